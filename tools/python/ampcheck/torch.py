# SPDX-License-Identifier: Apache-2.0
"""Beside torch.library.opcheck and torch.autograd.gradcheck, with their arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch as _torch
from torch.autograd.gradcheck import GradcheckError

from . import _check
from ._aten import Refused
from ._core import UsageError
from ._kernel import parameters_of
from ._options import Contract
from ._record import Recorder, record
from ._report import Report
from ._scaler import ScalerAudit, audit_scaler
from ._step import StepAudit, StepSetup, TrainingStep, audit_step
from ._torch_reference import formula_of, plan_of_reference

__all__ = ["Recorder", "ScalerAudit", "StepAudit", "StepSetup", "TrainingStep", "audit_scaler", "audit_step", "check",
           "formula_of", "gradcheck", "record"]


def _no_tolerance(where: str, **given: Any) -> None:
    for name, value in given.items():
        if value is not None:
            raise UsageError(f"[{where}] got {name}={value!r}, want none: the interval of each element follows from the "
                             "formula and the contract= of the function")


def check(op: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any] | None = None, *,
          reference: Callable[..., Any] | str | None = None, test_utils: Any = None, raise_exception: bool = False,
          atol: float | None = None, rtol: float | None = None, **options: Any) -> Report:
    """Judges an op by the samples that torch.library.opcheck takes: op(*args, **kwargs).

    reference: an eager function of the same arguments, or a formula. Without one the op must consist of aten operations,
    and what is judged is how torch computes them. A wrong op raises only with raise_exception=True."""
    _no_tolerance("check", atol=atol, rtol=rtol)
    del test_utils  # which of opcheck's own tests to run
    named = dict(kwargs or {})

    def call(*arguments: Any) -> Any:
        return op(*arguments, **named)

    def eager(*arguments: Any) -> Any:
        return (reference or op)(*arguments, **named)  # type: ignore[operator]

    call.__name__ = _check.op_name(op)
    names = parameters_of(reference if callable(reference) else op) or []
    names = [names[i] if i < len(names) else f"x{i}" for i in range(len(args))]
    # A dict would be given by name; opcheck's samples are positional.
    report = _check.check(_Positional(call, names), reference=reference if isinstance(reference, str) else
                          _Positional(eager, names), inputs=list(args), **options)
    if raise_exception and not report:
        raise AssertionError(str(report))
    return report


class _Positional:
    """A function whose parameters have names that its signature does not say."""

    def __init__(self, f: Callable[..., Any], names: Sequence[str]) -> None:
        import inspect

        self._f = f
        self.__name__ = getattr(f, "__name__", "function")
        self.__signature__ = inspect.Signature(
            [inspect.Parameter(n, inspect.Parameter.POSITIONAL_ONLY) for n in names if n.isidentifier()])

    def __call__(self, *arguments: Any) -> Any:
        return self._f(*arguments)


def gradcheck(func: Callable[..., Any], inputs: Any, *, eps: float | None = None, atol: float | None = None,
              rtol: float | None = None, raise_exception: bool = True, reference: Callable[..., Any] | None = None,
              contract: Contract | None = None, **options: Any) -> Report:
    """Whether the backward of a function is the derivative of its forward, as torch.autograd.gradcheck asks, but in the
    dtype of the inputs: fp32, fp16 and bf16 too.

    The forward is traced and becomes a formula, whose gradient is certified in 100 digits. A forward that cannot be traced
    (an op of a library) is compared with differences of itself, with steps and bounds from its measured noise."""
    _no_tolerance("gradcheck", eps=eps, atol=atol, rtol=rtol)
    arguments = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    if not any(isinstance(x, _torch.Tensor) and x.requires_grad for x in arguments):
        raise ValueError("gradcheck expects at least one input tensor to require gradient, but none of the them have "
                         "requires_grad=True.")
    wanted = [x.requires_grad for x in arguments if isinstance(x, _torch.Tensor)]
    plain = [x.detach() if isinstance(x, _torch.Tensor) else x for x in arguments]
    run = {k: options.pop(k) for k in ("regimes", "seeds", "seed", "budget_s", "cases", "jobs", "relations")
           if k in options}
    wanted_run = _check.Wanted(**run)
    settings = {"backward": None, "roles": None, "domains": None, "contract": contract, "rows": None, "dtypes": (),
                "name": _check.op_name(func), **options}
    asked = _check.request(func, plain, None, reference)
    for tensor, want in zip(asked.tensors, wanted):
        tensor.constant = not want
    try:
        plan = plan_of_reference(asked, reference or func, rounding="mathematics", dims=settings.pop("dims", None),
                                 **settings)
    except UsageError as error:
        if not isinstance(error.__context__, Refused):
            raise
        asked = _check.request(func, plain, None, reference)
        plan = _check.black_box(asked, wanted, **settings)
        asked.notes.append(f"the forward is compared with itself: {error}")
    report = _check.run_plan(plan, asked, wanted_run)
    if raise_exception and not report:
        raise GradcheckError(str(report))
    return report
