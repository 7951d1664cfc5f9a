# SPDX-License-Identifier: Apache-2.0
"""A training loop of torch, recorded as a trace that `ampcheck trace` and `ampcheck audit scaler --log` read."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch

from ._core import UsageError, stats_of

__all__ = ["Recorder", "record"]

_SCHEMA = "ampcheck.trace/1"
_DTYPES = {torch.float64: "fp64", torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}


def _number(value: float) -> float | str:
    """JSON has no infinities and no NaN; a trace writes them as text."""
    if math.isfinite(value):
        return value
    return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")


class _Numbers:
    """Of one tensor: counted by the program's own statistics where its memory can be read, else on its device, where they stay
    until the step ends."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.elements, self.format = tensor.numel(), tensor.dtype
        tensor = tensor.detach()
        self.counted: dict[str, Any] | None = None
        if tensor.device.type == "cpu" and tensor.is_contiguous():
            self.counted = stats_of(tensor.data_ptr(), _DTYPES[tensor.dtype], tensor.numel())
            return
        wide = tensor.dtype == torch.float64
        size = tensor.abs().to(torch.float64 if wide else torch.float32).contiguous()
        # The field of the exponent: 0 of zeros and subnormal numbers, the last one of infinities and NaN.
        fields_of = size.view(torch.int64) >> 52 if wide else size.view(torch.int32) >> 23
        self.exponents = torch.bincount(fields_of.flatten(), minlength=2048 if wide else 256)
        self.counts = torch.stack([torch.count_nonzero(size), torch.isnan(size).sum()])
        finite = size.nan_to_num(nan=0.0, posinf=0.0)
        self.ends = torch.stack([finite.amax(), finite.where(finite > 0, math.inf).amin()])

    def fields(self) -> dict[str, Any]:
        """As a line of a trace has them."""
        least = round(math.log2(torch.finfo(self.format).smallest_normal))
        if self.counted is not None:
            got = self.counted
            zero, nan, inf, amax, amin = (got[name] for name in ("zero", "nan", "inf", "amax", "amin"))
            # The last field of these formats is that of infinities and NaN.
            counts = got["exponents"][:-1]
            counts[0] -= zero
        else:
            nonzero, nan = (int(n) for n in self.counts.tolist())
            amax, amin = (float(v) for v in self.ends.tolist())
            amin = amin if math.isfinite(amin) else 0.0
            counts = self.exponents.tolist()
            zero, inf = self.elements - nonzero, counts.pop() - nan
            counts[0] -= zero
            # A format with fewer exponents than the one that counts: all below its smallest go together.
            fewer = least + (1023 if len(counts) > 256 else 127)
            counts = [sum(counts[:fewer]), *counts[fewer:]]
        below = counts[0]
        while counts and counts[-1] == 0:
            counts.pop()
        skipped = next((i for i, n in enumerate(counts) if n), 0)
        return {"elements": self.elements, "zero": zero, "subnormal": below, "inf": inf, "nan": nan, "amax": amax,
                "amin": amin, "exponents": [least - 1 + skipped if counts else 0, counts[skipped:]]}


class _Line:
    """One tensor of a step."""

    def __init__(self, fields: dict[str, Any], numbers: _Numbers, moved: tuple[torch.Tensor, torch.Tensor] | None) -> None:
        self.of, self.numbers, self.moved = fields, numbers, moved

    def moves(self) -> tuple[int, int]:
        """Elements that were meant to move, and of them those that did not."""
        return (0, 0) if self.moved is None else (int(self.moved[0]), int(self.moved[1]))

    def text(self) -> str:
        intended, stagnant = self.moves()
        return json.dumps({**self.of, **self.numbers.fields(), "nonzero": 0, "flushed": 0, "overflowed": 0,
                           "intended": intended, "stagnant": stagnant, "subnormal_loss": 0, "saturated": 0, "bias": None,
                           "bias_z": None, "ulps": [], "local_error": None, "carried_error": None})


class Recorder:
    """Of record(). step(loss) ends a step where no scaler does."""

    def __init__(self, path: str | os.PathLike[str], model: torch.nn.Module, optimizer: torch.optim.Optimizer,
                 scaler: torch.amp.GradScaler | None, every: int) -> None:
        if every < 1:
            raise UsageError(f"[record] every, got {every}, want 1 or more")
        self._path, self._model, self._optimizer, self._scaler, self._every = path, model, optimizer, scaler, every
        self._step, self._seq, self._stepped = 0, 0, False
        self._loss: torch.Tensor | None = None
        self._lines: list[_Line] = []
        self._undo: list[Callable[[], Any]] = []
        self._calls: dict[str, int] = {}
        self._before: dict[str, torch.Tensor] = {}
        self._dtype, self._autocast = "fp32", "none"

    # ---- The context. ----

    def __enter__(self) -> Recorder:
        self._file = open(self._path, "w", encoding="utf-8")  # closed in __exit__
        self._header: dict[str, Any] | None = None
        names = {id(module): name for name, module in self._model.named_modules()}
        for module in self._model.modules():
            if next(module.children(), None) is None:
                self._undo.append(module.register_forward_hook(self._forward_of(names[id(module)])).remove)
        for name, parameter in self._model.named_parameters():
            if parameter.requires_grad:
                self._undo.append(parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                    self._gradient_of(name)).remove)
        self._undo.append(self._optimizer.register_step_pre_hook(self._before_update).remove)
        self._undo.append(self._optimizer.register_step_post_hook(self._after_update).remove)
        if self._scaler is not None:
            self._wrap_scaler(self._scaler)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()
        self._start()
        self._file.close()

    def _wrap_scaler(self, scaler: torch.amp.GradScaler) -> None:
        scale, update = scaler.scale, scaler.update
        own: dict[str, Any] = {name: vars(scaler)[name] for name in ("scale", "update") if name in vars(scaler)}

        def scaled(outputs: Any) -> Any:
            if isinstance(outputs, torch.Tensor) and outputs.numel() == 1:
                self._loss = outputs.detach()
            return scale(outputs)

        def updated(*args: Any, **kwargs: Any) -> None:
            before = float(scaler.get_scale())
            update(*args, **kwargs)
            self._end(before, float(scaler.get_scale()), int(scaler._get_growth_tracker()))

        scaler.scale, scaler.update = scaled, updated  # type: ignore[method-assign]

        def undo() -> None:
            del scaler.scale, scaler.update
            vars(scaler).update(own)

        self._undo.append(undo)

    # ---- What hooks see. ----

    def _watched(self) -> bool:
        return self._step % self._every == 0

    def _scale(self) -> float:
        return float(self._scaler.get_scale()) if self._scaler is not None and self._scaler.is_enabled() else 1.0

    def _add(self, phase: str, op: str, layer: str, tensor: str, value: torch.Tensor, scale: float = 1.0,
             moved: tuple[torch.Tensor, torch.Tensor] | None = None) -> None:
        dtype = _DTYPES.get(value.dtype)
        if dtype is None or value.numel() == 0:
            return
        if dtype in ("fp16", "bf16"):
            self._dtype = dtype
        for device in ("cpu", "cuda"):  # whose lists the open region follows
            if torch.is_autocast_enabled(device):
                self._autocast = device
        fields = {"step": self._step, "seq": self._seq, "phase": phase, "cast": False, "op": op, "layer": layer,
                  "tensor": tensor, "dtype": dtype, "from": "", "source": -1, "scale": scale, "role": "none"}
        self._seq += 1
        self._lines.append(_Line(fields, _Numbers(value), moved))

    def _forward_of(self, layer: str) -> Callable[..., None]:
        def hook(module: torch.nn.Module, inputs: Any, output: Any) -> None:
            del inputs
            if not self._watched():
                return
            kind = type(module).__name__.lower()
            self._calls[kind] = self._calls.get(kind, 0) + 1
            op = f"{kind}_{self._calls[kind]}"
            first = output[0] if isinstance(output, tuple | list) and output else output
            if not isinstance(first, torch.Tensor) or not first.is_floating_point():
                return
            self._add("forward", op, layer, "y", first)
            if first.requires_grad:
                scale = self._scale()
                first.register_hook(  # type: ignore[no-untyped-call]
                    lambda g: self._add("backward", op, layer, "dy", g, scale))

        return hook

    def _gradient_of(self, name: str) -> Callable[[torch.Tensor], None]:
        layer, _, word = name.rpartition(".")

        def hook(parameter: torch.Tensor) -> None:
            if self._watched() and parameter.grad is not None and not parameter.grad.is_sparse:
                self._add("backward", layer or name, layer, "d" + word, parameter.grad, self._scale())

        return hook

    def _named_gradients(self) -> list[tuple[str, torch.Tensor, torch.Tensor]]:
        return [(name, p, p.grad) for name, p in self._model.named_parameters()
                if p.grad is not None and not p.grad.is_sparse]

    def _before_update(self, *_: Any) -> None:
        self._stepped = True
        if not self._watched():
            return
        for name, parameter, gradient in self._named_gradients():
            self._add("unscale", name, name, "grad", gradient)
            self._before[name] = parameter.detach().clone()

    def _after_update(self, *_: Any) -> None:
        if not self._watched():
            return
        for name, parameter, gradient in self._named_gradients():
            before = self._before.pop(name, None)
            if before is None:
                continue
            meant = gradient != 0
            stayed = meant & (parameter.detach() == before)
            counts = torch.count_nonzero(meant), torch.count_nonzero(stayed)
            self._add("optimizer", name, name, "value", parameter, moved=counts)

    # ---- Lines. ----

    def _start(self) -> None:
        if self._header is not None:
            return
        kind = "torch" if self._scaler is not None and self._scaler.is_enabled() else "none"
        self._header = {"schema": _SCHEMA, "model": type(self._model).__name__, "dtype": self._dtype,
                        "autocast": self._autocast,
                        "autocast_tables": f"torch {torch.__version__}", "scaler": kind, "seed": 0, "steps": 0,
                        "local": False, "carried": False}
        self._file.write(json.dumps(self._header) + "\n")

    def step(self, loss: Any = None) -> None:
        """Ends a step of a loop without a scaler, after optimizer.step(). loss: a number or a tensor of one element."""
        if self._scaler is not None and self._scaler.is_enabled():
            raise UsageError("[record] got step() beside a scaler, want none: scaler.update() ends a step")
        if loss is not None:
            self._loss = loss.detach() if isinstance(loss, torch.Tensor) else torch.tensor(float(loss))
        self._end(1.0, 1.0, 0)

    def _end(self, scale: float, scale_after: float, tracker: int) -> None:
        self._start()
        for line in self._lines:
            self._file.write(line.text() + "\n")
        moves = [line.moves() for line in self._lines]
        moved, stayed = sum(meant for meant, _ in moves), sum(still for _, still in moves)
        loss = float(self._loss) if self._loss is not None else math.nan
        self._file.write(json.dumps({"step": self._step, "loss": _number(loss), "fp64_loss": None, "spread": None,
                                     "scale": scale, "scale_after": scale_after, "tracker": tracker,
                                     "found_inf": not self._stepped, "stepped": self._stepped,
                                     "stagnant_share": stayed / moved if moved else 0.0}) + "\n")
        self._file.flush()
        self._lines.clear()
        self._before.clear()
        self._calls.clear()
        self._step, self._seq, self._stepped, self._loss = self._step + 1, 0, False, None


def record(path: str | os.PathLike[str], model: torch.nn.Module, optimizer: torch.optim.Optimizer,
           scaler: torch.amp.GradScaler | None = None, *, every: int = 10) -> Recorder:
    """A context around a training loop, which writes a trace of it to `path`.

    With a scaler each step ends with scaler.update(), and the loss is what scaler.scale() gets. Without one call
    recorder.step(loss) after optimizer.step(). every: tensors of every n-th step, the first one among them; loss and
    scale of all steps.

    It records: outputs of modules without children and their gradients, gradients of parameters before and after they
    are unscaled, weights after the update and how many of them stayed what they were, loss, scale, skipped steps."""
    return Recorder(path, model, optimizer, scaler, every)
