# SPDX-License-Identifier: Apache-2.0
"""ampcheck.check: one call, from a function and its reference to a report."""

from __future__ import annotations

import keyword
import numbers
import os
import random
import re
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import _core, _describe
from ._core import EnvironmentError, UsageError
from ._describe import Plan, Tensor
from ._examples import guess
from ._frames import NumpyFrame, frame_of, numpy_dtype
from ._kernel import Call, Kernel, KernelFailed, Returned, parameters_of, running
from ._options import Contract, Dim, fixed
from ._program import program
from ._report import Report
from ._surroundings import missing_gpu


class ExampleError(UsageError):
    """The function raised at its own examples, or what it returned is no result. `of_solution`: the same in the words of a
    verdict; `hint`: what to do."""

    def __init__(self, text: str, of_solution: str = "", hint: str = "") -> None:
        super().__init__(text)
        self.of_solution = of_solution or text
        self.hint = hint


class LateError(ExampleError):
    """A result that may be computed when somebody looks at it, and not when the function returns."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"[check] got a {kind} as result '{name}', want a plain tensor",
                         f"returns a {kind} as '{name}', a subclass of torch.Tensor: it may compute when somebody looks at it, "
                         "after the time that is measured", "return a plain tensor")


@dataclass
class Wanted:
    """The arguments of check() that say how much is run."""

    dtypes: Sequence[str] = ()
    regimes: str = "standard"
    seeds: int = 1
    seed: int = 1
    budget_s: float = 0.0
    cases: Sequence[str] = ()
    jobs: int = 0
    relations: bool = True
    isolation: str = "none"
    inputs: str = ""  # a file of tensors: the only case

    def spec(self) -> dict[str, object]:
        for name in ("seeds", "seed", "jobs"):
            value = getattr(self, name)
            if not isinstance(value, numbers.Integral) or value < (0 if name == "jobs" else 1):
                raise UsageError(f"[{name}] got {value!r}, want a whole number of at least {0 if name == 'jobs' else 1}")
        return {"cases": list(self.cases), "dtypes": [], "regimes": self.regimes, "seeds": int(self.seeds),
                "seed": int(self.seed), "budget_s": float(self.budget_s), "jobs": int(self.jobs),
                "relations": bool(self.relations), "program": program() if self.isolation == "process" else "",
                "again": "", "inputs": self.inputs}


@dataclass
class Request:
    """A function with its examples, before anything is known of its formula."""

    f: Callable[..., Any]
    frame: Any
    tensors: list[Tensor]
    examples: list[Any]  # as the tensors
    slots: list[tuple[str, int | None, Any]]  # arguments: name, number of the tensor or None, constant
    by_name: bool
    attributes: dict[str, list[float]]
    notes: list[str] = field(default_factory=list)
    renew: Callable[[], Callable[..., Any]] | None = None  # the function anew, with nothing kept from earlier calls
    plain: bool = False  # results are of the array's own type, no subclass


def _arguments(f: Callable[..., Any], inputs: Any, reference: Any) -> tuple[list[tuple[str, Any]], bool]:
    """Names and values of the arguments, and whether they are given by name. Where the function does not name them, the
    reference may."""
    known = parameters_of(f)
    if isinstance(inputs, Mapping):
        return list(inputs.items()), known is not None and set(inputs) <= set(known)
    if not isinstance(inputs, (list, tuple)):
        inputs = [inputs]
    if not known and callable(reference):
        known = parameters_of(reference)
    names = [known[i] if known is not None and i < len(known) else f"x{i}" for i in range(len(inputs))]
    return list(zip(names, inputs)), False


def request(f: Callable[..., Any], inputs: Any, attributes: Mapping[str, Any] | None,
            reference: Any = None) -> Request:
    """Sorts the arguments: arrays are inputs of the op, all else are constants."""
    if not callable(f):
        raise UsageError(f"[check] got a {type(f).__name__}, want a function")
    pairs, by_name = _arguments(f, inputs, reference)
    arrays = [value for _, value in pairs if hasattr(value, "__dlpack__") or isinstance(value, np.ndarray)]
    frame = frame_of(arrays)
    tensors: list[Tensor] = []
    examples: list[Any] = []
    slots: list[tuple[str, int | None, Any]] = []
    for name, value in pairs:
        if not (hasattr(value, "__dlpack__") or isinstance(value, np.ndarray)):
            slots.append((name, None, value))
            continue
        if not re.fullmatch(r"[A-Za-z_]\w*", name) or keyword.iskeyword(name):
            raise UsageError(f"[inputs] got the name '{name}', want a name of letters, digits and _")
        slots.append((name, len(tensors), None))
        tensors.append(Tensor(name, frame.shape(value), frame.dtype(value), frame.is_bool(value)))
        examples.append(value)
    values = {name: [float(v) for v in value] if isinstance(value, (list, tuple)) else [float(value)]
              for name, value in (attributes or {}).items()}
    return Request(f, frame, tensors, examples, slots, by_name, values)


def _storage_first(asked: Request, storage: str) -> list[int]:
    """The op's order of the inputs: a case's name prints the storage type at its first one."""
    order = sorted(range(len(asked.tensors)), key=lambda i: asked.tensors[i].dtype not in (storage, "fp64"))
    where = {old: new for new, old in enumerate(order)}
    asked.slots = [(name, None if at is None else where[at], value) for name, at, value in asked.slots]
    asked.tensors = [asked.tensors[i] for i in order]
    asked.examples = [asked.examples[i] for i in order]
    return order


def _widened(asked: Request, storage: str) -> list[Any]:
    """The examples in the types that the op has: fp64 is judged in its storage type."""
    if storage != "fp64" and any(t.dtype == "fp64" for t in asked.tensors):
        asked.notes.append(f'the examples are fp64: the function is judged in {storage} (dtypes=["fp64"] judges it in fp64)')
    return [asked.frame.with_dtype(x, storage) if t.dtype == "fp64" else x
            for x, t in zip(asked.examples, asked.tensors)]


def _outputs(asked: Request, call: Call, examples: list[Any], names: Sequence[str],
             storage: str) -> list[tuple[str, str]]:
    """Calls the function once at its examples: which results it has, and of which type."""
    threads = {thread.ident for thread in threading.enumerate()}
    try:
        with running:
            got = call(examples, [values[0] for values in asked.attributes.values()])
            if call.returned is not None:
                call.returned.settle(threads)
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0].removesuffix(".")
        said = f"[check] got {type(error).__name__} at the examples: {first}"
        if missing := missing_gpu(error):
            raise EnvironmentError(f"{said}; want {missing}") from error
        raise ExampleError(f"{said}; want inputs that the function takes",
                           f"raises {KernelFailed(error).ampcheck_said}, at inputs that the reference takes",
                           "call it at the inputs of the problem: it must run there before anything can be compared") from error
    if len(got) != len(names):
        raise ExampleError(f"[outputs] got {len(got)} results of the function and the outputs {', '.join(names)}, "
                           "want as many: outputs= names those of the formula",
                           f"returns {len(got)} {'result' if len(got) == 1 else 'results'}, where the reference returns "
                           f"{len(names)}", "return what the reference returns, in its order")
    out = []
    for value, name in zip(got, names):
        if not (hasattr(value, "__dlpack__") or isinstance(value, (np.ndarray, np.generic))):
            raise ExampleError(f"[check] got a {type(value).__name__} as result '{name}', want an array",
                               f"returns a {type(value).__name__} where the reference returns an array ('{name}')",
                               "return what the reference returns, in its order")
        if asked.plain and (lazy := asked.frame.subclass(value)):
            raise LateError(lazy, name)
        dtype = asked.frame.dtype(value)
        if dtype == "fp64" and storage != "fp64":
            asked.notes.append(f"result '{name}' is fp64; it is judged as {storage}")
        if dtype in ("i64", "i32"):  # fp32 has all whole numbers up to 2^24, and no case is larger
            dtype = "fp32"
        out.append((name, storage if dtype == "fp64" else dtype))
    return out


def _dims(dims: Mapping[str, Any] | None, tensors: Sequence[Tensor]) -> tuple[dict[str, str], dict[str, Dim]]:
    """dims= holds both: "x": "N D" names axes, "D": Dim(...) or an extent says which ones are taken."""
    axes: dict[str, str] = {}
    limits: dict[str, Dim] = {}
    names = {tensor.name for tensor in tensors}
    for key, value in (dims or {}).items():
        if key in names and isinstance(value, str):
            axes[key] = value
        elif isinstance(value, Dim):
            limits[key] = value
        elif isinstance(value, numbers.Integral) and not isinstance(value, bool):
            limits[key] = fixed(int(value))
        else:
            raise UsageError(f"[dims] got '{key}': {value!r}, want an input's axes (\"x\": \"N D\"), or for a dimension a "
                             "Dim or an extent")
    return axes, limits


def _positive(asked: Request, formula: str) -> None:
    """log(x), sqrt(x) and the like are asked of positive x alone, where the examples are."""
    for tensor, example in zip(asked.tensors, asked.examples):
        if re.search(rf"\b(log|sqrt|rsqrt|pow)\(\s*{tensor.name}\s*[,)]", formula) and asked.frame.all_positive(example):
            tensor.domain = "positive"


def make_plan(asked: Request, formula: str, *, outputs: Sequence[str] | None, backward: Any, dims: Any, roles: Any,
              domains: Any, contract: Contract | None, rows: str | None, dtypes: Sequence[str], name: str,
              draw: random.Random | None = None,
              extents: tuple[dict[str, int], dict[str, Dim]] | None = None, forms: Sequence[str] = ()) -> Plan:
    """The op of a function and a formula. extents: where a trace already knows the symbols of each tensor."""
    for tensor in asked.tensors:
        tensor.role = dict(roles or {}).get(tensor.name, tensor.role)
        tensor.domain = dict(domains or {}).get(tensor.name, tensor.domain)
    for dtype in dtypes:
        asked.frame.require(dtype)
    in_fp64 = list(dtypes) == ["fp64"] and any(t.dtype == "fp64" for t in asked.tensors)
    storage = "fp64" if in_fp64 else _describe.storage_of(asked.tensors)
    _storage_first(asked, storage)
    examples = _widened(asked, storage)
    targets = _describe.statements(formula)
    if not targets:
        raise UsageError(f"[reference] got '{formula}', want a formula, as \"y = x * sigmoid(x)\"")
    call = Call(asked.f, asked.slots, asked.by_name, list(asked.attributes))
    call.returned = Returned(asked.frame.bits)
    for attribute, values in asked.attributes.items():
        if attribute not in call.passed and len(values) > 1:
            raise UsageError(f"[attributes] got several values of '{attribute}', which is no parameter of the function")
    results = _outputs(asked, call, examples, list(outputs or targets[-1:]), storage)
    if not domains:
        _positive(asked, formula)
    if extents is None:
        axes, limits = _dims(dims, asked.tensors)
        taken = {t.name for t in asked.tensors} | set(asked.attributes) | set(re.findall(r"[A-Za-z_]\w*", formula))
        known = _describe.name_dims(asked.tensors, axes, taken, {n: v[0] for n, v in asked.attributes.items()})
        _describe.find_index_dims(asked.tensors, formula)
    else:
        known, limits = dict(extents[0]), _dims(dims, asked.tensors)[1]
    for symbol in limits:
        if symbol not in known:
            raise UsageError(f"[dims] got '{symbol}', want one of the dimensions {', '.join(known)}")
    kernel = Kernel(asked.frame, call, [t.boolean for t in asked.tensors], [n for n, _ in results],
                    [t.name for t in asked.tensors])
    renew = asked.renew

    def forget() -> None:
        call.f = renew() if renew is not None else call.f

    run_backward = None
    if callable(backward):
        kernel.use_backward(backward, list(asked.attributes))
        run_backward = kernel.backward
    elif backward is None and hasattr(asked.frame, "autograd") and _differentiable(asked, call, examples):
        run_backward = kernel.backward
    elif backward is None:
        asked.notes.append("gradients are not judged: no backward= is given")
    return Plan(name=name, summary="a Python function", tensors=asked.tensors, outputs=results, formula=formula,
                attributes=asked.attributes, extents=known, limits=limits,
                soft=extents[1] if extents else {}, contract=contract or Contract(),
                library=asked.frame.name, storage=list(dtypes or [storage]), rows=rows or "", base=storage,
                forward=kernel.forward, backward=run_backward, forms=list(forms), draw=draw,
                forget=forget if renew is not None else None, written_late=call.returned.written_late)


def black_box(asked: Request, wanted: Sequence[bool], *, name: str, contract: Contract | None, **_: Any) -> Plan:
    """A function without a formula: its gradients are compared with differences of itself, at the given extents."""
    storage = _describe.storage_of(asked.tensors)
    order = _storage_first(asked, storage)
    for tensor, at in zip(asked.tensors, order):
        tensor.constant = not wanted[at]
    examples = _widened(asked, storage)
    call = Call(asked.f, asked.slots, asked.by_name, [])
    got = call(examples, [])
    names = ["y"] if len(got) == 1 else [f"y{i}" for i in range(len(got))]
    results = _outputs(asked, call, examples, names, storage)
    known = _describe.name_dims(asked.tensors, {}, {t.name for t in asked.tensors})
    dims = []
    for value in got:
        symbols = [next((s for s, n in known.items() if n == extent), "") for extent in asked.frame.shape(value)]
        if "" in symbols:
            raise UsageError(f"[gradcheck] got a result of shape {list(value.shape)} with an extent that no input has, want a "
                             "function that can be traced, or reference=")
        dims.append(" ".join(symbols))
    kernel = Kernel(asked.frame, call, [t.boolean for t in asked.tensors], names, [t.name for t in asked.tensors])
    return Plan(name=name, summary="a Python function", tensors=asked.tensors, outputs=results, formula="",
                attributes={}, extents=known, limits={s: fixed(n) for s, n in known.items()}, soft={},
                contract=contract or Contract(), library=asked.frame.name, storage=[storage], rows="", base=storage,
                forward=kernel.forward, backward=kernel.backward, output_dims=dims)


def _differentiable(asked: Request, call: Call, examples: list[Any]) -> bool:
    """Whether autograd sees a way from an input to a result. Inputs that torch gives no gradient (the running mean of a
    batch norm) are marked."""

    def reaches(wanted: list[bool]) -> bool:
        leaves = [x.detach().clone().requires_grad_(want) for x, want in zip(examples, wanted)]
        got = call(leaves, [values[0] for values in asked.attributes.values()])
        return any(getattr(y, "requires_grad", False) for y in got)

    floats = [x.is_floating_point() for x in examples]
    try:
        return reaches(floats)
    except RuntimeError:
        found = False
        for at, tensor in enumerate(asked.tensors):
            try:
                found |= floats[at] and reaches([at == i for i in range(len(floats))])
            except RuntimeError:
                tensor.constant = True
        return found


def run_plan(plan: Plan, asked: Request, wanted: Wanted) -> Report:
    """Judges the op."""
    op = _describe.describe(plan, asked.notes)
    options = wanted.spec()
    if wanted.inputs:
        options["cases"] = [op.name]
    options["again"] = "ampcheck.check(..., cases=[\"{}\"])"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the function, at cases that overflow on purpose
        core = _core.run(op, options)
    asked.frame.empty()

    def arrays(case: str) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for tensor in _core.inputs_of(op, case):
            values = np.frombuffer(tensor["values"], np.float64).reshape(tensor["shape"])
            out[tensor["name"]] = _as_given(asked.frame, values, tensor["dtype"])
        return out

    report = Report(core, formula=plan.formula, seed=wanted.seed, notes=asked.notes, inputs=arrays,
                    power=lambda: _core.power_of(op, core, plan.backward is not None))
    if plan.written_late is not None and plan.written_late():
        report.add_late(plan.outputs[0][0])
    return report


def _as_given(frame: Any, values: np.ndarray[Any, Any], dtype: str) -> Any:
    if frame.name == "torch":
        import torch

        from ._torch_frame import DTYPES

        return torch.from_numpy(values.copy()).to(DTYPES[dtype])
    return values.astype(numpy_dtype(dtype))


def op_name(f: Any) -> str:
    name = getattr(f, "__name__", None) or type(f).__name__
    clean = re.sub(r"\W", "_", name).strip("_") or "function"
    return clean if clean[0].isalpha() else f"f_{clean}"


def check(f: Callable[..., Any], reference: Any, inputs: Any = None, *, attributes: Mapping[str, Any] | None = None,
          backward: Any = None, outputs: Sequence[str] | None = None, contract: Contract | None = None,
          forms: Sequence[str] = (), dtypes: Sequence[str] = (), dims: Mapping[str, Any] | None = None,
          roles: Mapping[str, str] | None = None, domains: Mapping[str, str] | None = None, rows: str | None = None,
          regimes: str = "standard", seeds: int = 1, seed: int = 1, budget_s: float = 0.0, cases: Sequence[str] = (),
          jobs: int = 0, relations: bool = True, rounding: str = "mathematics") -> Report:
    """Judges a function by its reference, at cases of ampcheck's own; the inputs are examples of what it takes.

    f: a function of arrays (NumPy, torch, or with __dlpack__), a torch.nn.Module, an autograd.Function.apply.
    reference: a formula (`ampcheck explain formulas`), or for torch a function or module of the same arguments.
    inputs: {"x": x, "weight": w}, or a list in the order of the parameters. What is no array is passed on as it is.
        Without inputs they are guessed by the names of the parameters.
    backward: backward(dy, x, weight) -> (dx, dweight). None: autograd where there is one. False: forward alone.
    rows: the dimension whose rows do not depend on each other: "N".

    A wrong function is a finding, never an exception. Wrong use raises UsageError.
    """
    if inputs is None:
        inputs = list(guess(f, reference, set(attributes or {})).items())
        inputs = dict(inputs) if isinstance(reference, str) else [value for _, value in inputs]
    asked = request(f, inputs, attributes, reference)
    wanted = Wanted(dtypes, regimes, seeds, seed, budget_s, cases, jobs, relations)
    if isinstance(dtypes, str):
        raise UsageError(f"[dtypes] got '{dtypes}', want a list")
    settings = {"backward": backward, "dims": dims, "roles": roles, "domains": domains, "contract": contract,
                "rows": rows, "dtypes": dtypes, "name": op_name(f), "forms": forms}
    if isinstance(reference, str):
        plan = make_plan(asked, reference, outputs=outputs, **settings)
    elif asked.frame.name == "torch" and callable(reference):
        from ._torch_reference import plan_of_reference

        plan = plan_of_reference(asked, reference, rounding=rounding, **settings)
    else:
        raise UsageError(f"[reference] got a {type(reference).__name__}, want a formula as text, or for torch tensors an "
                         "eager function")
    return run_plan(plan, asked, wanted)


def check_library(path: str | os.PathLike[str], op: str = "", *, dtypes: Sequence[str] = (), regimes: str = "standard",
                  seeds: int = 1, seed: int = 1, budget_s: float = 0.0, cases: Sequence[str] = (), jobs: int = 0,
                  relations: bool = True) -> Report:
    """Judges an op of a C or C++ plug-in or of a TOML file of launchers, as `ampcheck check PATH OP` does.

    op: its name; may be left out where the library has one op. Kernels run in a process of their own.

    A wrong op is a finding. Wrong use, and a library that describes no op, raise UsageError; one that is not there or cannot
    be loaded raises EnvironmentError.
    """
    if isinstance(dtypes, str) or isinstance(cases, str):
        raise UsageError(f"[{'dtypes' if isinstance(dtypes, str) else 'cases'}] got text, want a list")
    chosen = _core.of_library(os.fspath(path), op)
    options = Wanted(dtypes, regimes, seeds, seed, budget_s, cases, jobs, relations, isolation="process").spec()
    options["dtypes"] = list(dtypes)
    options["again"] = f"ampcheck.check_library({os.fspath(path)!r}, {chosen.name!r}, cases=[\"{{}}\"])"
    core = _core.run(chosen, options)

    def arrays(case: str) -> dict[str, Any]:
        frame = NumpyFrame()
        return {tensor["name"]: _as_given(frame, np.frombuffer(tensor["values"], np.float64).reshape(tensor["shape"]),
                                          tensor["dtype"]) for tensor in _core.inputs_of(chosen, case)}

    return Report(core, formula="", seed=seed, notes=[], inputs=arrays, power=lambda: _core.power_of(chosen, core, True))
