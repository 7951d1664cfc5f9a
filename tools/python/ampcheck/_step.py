# SPDX-License-Identifier: Apache-2.0
"""A training step of torch, driven by `ampcheck audit step`: the program asks, and this process runs the step."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ._audit import Audit, audited
from ._core import UsageError

__all__ = ["StepAudit", "StepSetup", "TrainingStep", "audit_step"]

_FEW = 512  # elements: more than these go as a digest


@dataclass(frozen=True)
class StepSetup:
    """What a new loop is made with. The same setup has to make the same loop: seed everything."""

    scale: float
    growth_interval: int
    clip: float | None
    accumulate: int


@dataclass
class TrainingStep:
    """A loop that was just made.

    step: takes the numbers of the batches of one optimizer step (several with micro-batches), makes the step as the training
    loop does, with zero_grad and scaler.update(), and returns the loss or None. state: further state that an update moves, as
    name -> function; forward: what forward passes alone move, as running statistics. save, load: the loop's own checkpoint."""

    step: Callable[[Sequence[int]], Any]
    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    scaler: Any = None
    schedule: Any = None
    state: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
    save: Callable[[], Any] | None = None
    load: Callable[[Any], None] | None = None


@dataclass(frozen=True)
class StepAudit(Audit):
    """What `ampcheck audit step --json` says. True if no check failed."""


def _part(value: Any) -> Any:
    """Numbers of few elements, a digest of many."""
    tensors = [v for v in (value if isinstance(value, (list, tuple)) else [value]) if isinstance(v, torch.Tensor)]
    if not tensors:
        return value
    if sum(t.numel() for t in tensors) <= _FEW:
        return [x for t in tensors for x in t.detach().to("cpu", torch.float64).flatten().tolist()]
    out = hashlib.sha256()
    for tensor in tensors:
        out.update(tensor.detach().to("cpu").contiguous().view(torch.uint8).numpy().tobytes())
    return out.hexdigest()


class _Loop:
    def __init__(self, make: Callable[[StepSetup], TrainingStep], setup: StepSetup) -> None:
        self.made, self.setup = make(setup), setup
        self.weights = [p for p in self.made.model.parameters() if p.requires_grad]
        if not self.weights:
            raise UsageError("[audit_step] got a model without a parameter that requires a gradient")
        self.call: dict[str, Any] = {}
        self.scales: list[float] = []
        self.places = {"first": (self.weights[0], 0), "last": (self.weights[-1], -1)}
        self.seen = {"first": 0, "last": 0}
        for at, (weight, _) in self.places.items():
            hook: Any = weight.register_post_accumulate_grad_hook
            hook(lambda w, at=at: self.behind_backward(at))

    def scale(self) -> float:
        return self.setup.scale if self.made.scaler is None else float(self.made.scaler.get_scale())

    def behind_backward(self, at: str) -> None:
        """torch calls this when the gradient of one weight is there, before anything else sees it."""
        micro, self.seen[at] = self.seen[at], self.seen[at] + 1
        if at == "first":
            self.scales.append(self.scale())
        weight, place = self.places[at]
        if self.call.get("poison") is not None and self.call["at"] == at and self.call["micro_batch"] == micro:
            weight.grad.view(-1)[place] = float(self.call["poison"])  # type: ignore[union-attr]

    def step(self, call: dict[str, Any]) -> dict[str, Any]:
        self.call, self.scales, self.seen = call, [], {"first": 0, "last": 0}
        first = call["batch"] * self.setup.accumulate
        loss = self.made.step(range(first, first + self.setup.accumulate))
        if not self.scales:
            raise UsageError("[audit_step] step() made no backward pass")
        said: dict[str, Any] = {"scale": self.scales}
        if self.made.scaler is not None:
            said["skipped"] = self.scale() < self.scales[-1]
        if loss is not None:
            said["loss"] = float(loss)
        return said

    def report(self) -> dict[str, Any]:
        made = self.made
        states = [made.optimizer.state[w] for w in self.weights if w in made.optimizer.state]
        names = sorted({name for state in states for name in state if name != "step"})
        state: dict[str, Any] = {"weights": _part(self.weights)}
        if states and names:
            state["moments"] = _part([s[n] for s in states for n in names if isinstance(s.get(n), torch.Tensor)])
        steps = [float(s["step"]) for s in states if "step" in s]
        if steps:
            state["steps"] = max(steps)
        if made.schedule is not None:
            state["schedule"] = made.schedule.last_epoch
        state.update({name: _part(read()) for name, read in made.state.items()})
        return {"state": state, "forward": {"buffers": _part(list(made.model.buffers()))}}


def _answers(make: Callable[[StepSetup], TrainingStep], request: dict[str, Any]) -> list[dict[str, Any]]:
    known = request["setup"]
    setup = StepSetup(known["scale"], known["growth_interval"], known["clip"], known["accumulate"])
    loop, replies = _Loop(make, setup), []
    for call in request["calls"]:
        said: dict[str, Any] = {}
        if call["op"] == "step":
            said = loop.step(call)
        elif call["op"] == "reload":
            kept = loop.made.save()  # type: ignore[misc]
            loop = _Loop(make, setup)
            loop.made.load(kept)  # type: ignore[misc]
        replies.append({"scale": loop.scale(), **said, **loop.report()})
    return replies


def audit_step(make: Callable[[StepSetup], TrainingStep], *, clip: bool = False, accumulate: bool = False,
               rule: str = "torch") -> StepAudit:
    """Audits a training step under a loss scale by the checks L1 to L20 (`ampcheck explain training-step`).

    make(setup) makes a new loop from fixed seeds; clip, accumulate: whether it heeds setup.clip and setup.accumulate. A resume
    is audited where the loop has save and load. rule: that the scale is to follow. Raises what the loop raises, UsageError for
    a loop that cannot be judged."""
    probe = make(StepSetup(65536.0, 2**30, None, 1))
    has = ["scaler"] * (probe.scaler is not None) + ["clip"] * clip + ["accumulate"] * accumulate
    has += ["resume"] * (probe.save is not None and probe.load is not None)
    return StepAudit(**audited("step", has, lambda request: _answers(make, request), rule))
