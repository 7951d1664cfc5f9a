# SPDX-License-Identifier: Apache-2.0
"""A loss scaler of torch, or of the user's own, under `ampcheck audit scaler`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ._audit import Audit, audited
from ._core import UsageError

__all__ = ["ScalerAudit", "audit_scaler"]

_SETTINGS = ("init_scale", "growth_factor", "backoff_factor", "growth_interval", "enabled")
_CALLS = ("scale", "unscale_", "step", "update", "get_scale", "state_dict", "load_state_dict")


@dataclass(frozen=True)
class ScalerAudit(Audit):
    """What `ampcheck audit scaler --json` says. True if no check failed."""


def _maker(scaler: Any) -> Callable[..., Any]:
    """What makes new scalers: scaler itself, or the class of an object."""
    is_object = hasattr(scaler, "get_scale") and not inspect.isclass(scaler)
    made = type(scaler) if is_object else scaler
    if not callable(made):
        raise UsageError(f"[audit_scaler] got {scaler!r}, want a scaler, its class, or a function that makes one")
    takes = inspect.signature(made).parameters
    more = {}
    if "device" in takes:
        more["device"] = str(getattr(scaler, "_device", "cpu")) if is_object else "cpu"
    if not any(p.kind is p.VAR_KEYWORD for p in takes.values()):
        lacks = [name for name in _SETTINGS if name not in takes]
        if lacks:
            raise UsageError(f"[audit_scaler] {getattr(made, '__name__', made)} does not take {', '.join(lacks)}: want a "
                             f"function that makes a scaler of {', '.join(_SETTINGS)}")
    return lambda setup: made(**more, **{name: setup[name] for name in _SETTINGS})


class _Session:
    """A scaler and two optimizers of one parameter each, as the program's rules have them."""

    def __init__(self, make: Callable[..., Any], setup: dict[str, Any]) -> None:
        self.make, self.setup, self.scaler, self.factor = make, setup, make(setup), 1.0
        lacks = [name for name in _CALLS if not hasattr(self.scaler, name)]
        if lacks:
            raise UsageError(f"[audit_scaler] got a {type(self.scaler).__name__} without {', '.join(lacks)}")
        self.device = getattr(self.scaler, "_device", "cpu")
        self.weights = [torch.zeros(3, device=self.device, requires_grad=True) for _ in range(2)]
        more = {"fused": True} if setup["fused"] else {}
        self.optimizers = [torch.optim.SGD([w], lr=1 / 16, momentum=0.5, **more) for w in self.weights]

    def backward(self, weight: torch.Tensor, call: dict[str, Any]) -> None:
        factor = 1.0 if call["raw"] else self.factor
        before = [0.0] * 3 if weight.grad is None else weight.grad.tolist()
        weight.grad = torch.tensor([b + float(g) * factor for b, g in zip(before, call["grads"])], dtype=torch.float32,
                                   device=self.device)

    def reload(self) -> None:
        state = self.scaler.state_dict()
        self.scaler = self.make(self.setup)
        self.scaler.load_state_dict(state)

    def set_window(self, window: int) -> None:
        if hasattr(self.scaler, "set_growth_interval"):
            self.scaler.set_growth_interval(window)
        else:
            self.scaler.growth_interval = window

    def scaled_half(self) -> float:
        """What backward starts from if the loss is in fp16."""
        loss = torch.ones((), dtype=torch.float16, device=self.device, requires_grad=True)
        self.scaler.scale(loss).backward()
        return float(loss.grad)  # type: ignore[arg-type]

    def act(self, call: dict[str, Any]) -> float:
        """Does the call; what became of the loss."""
        op, weight, optimizer = call["op"], self.weights[call["optimizer"]], self.optimizers[call["optimizer"]]
        if op == "scale":
            self.factor = float(self.scaler.scale(torch.ones((), device=self.device)))
        elif op == "scale_half":
            return self.scaled_half()
        elif op == "backward":
            self.backward(weight, call)
        elif op == "unscale":
            self.scaler.unscale_(optimizer)
        elif op == "corrupt":
            weight.grad[0] = float("inf")
        elif op == "step":
            self.scaler.step(optimizer)
        elif op == "update":
            self.scaler.update()
        elif op == "zero":
            for each in self.weights:
                each.grad = None
        elif op == "set_window":
            self.set_window(call["growth_interval"])
        elif op == "reload":
            self.reload()
        return self.factor

    def reply(self, call: dict[str, Any], scaled: float) -> dict[str, Any]:
        weight = self.weights[call["optimizer"]]
        grads = [0.0] * 3 if weight.grad is None else weight.grad.tolist()
        return {"scale": float(self.scaler.get_scale()), "scaled": scaled, "grads": grads, "weights": weight.tolist()}


def _plain(value: Any) -> Any:
    """JSON has no infinity and no NaN: they go as text."""
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return value if abs(value) < float("inf") else str(value)


def audit_scaler(scaler: Any, *, fused: bool = False, rule: str = "torch") -> ScalerAudit:
    """Audits a loss scaler with the calls of torch.amp.GradScaler by the checks S1 to S23 (`ampcheck explain loss-scale`).

    scaler: an object, its class, or a function that makes one of init_scale, growth_factor, backoff_factor, growth_interval
    and enabled. Of an object only its class and device are taken: each sequence of calls gets a new one. fused: with a fused
    optimizer too. rule: that the scale is to follow. Raises UsageError for what is no scaler."""
    make = _maker(scaler)

    def answers(request: dict[str, Any]) -> list[dict[str, Any]]:
        session = _Session(make, request["setup"])
        replies: list[dict[str, Any]] = []
        for call in request["calls"]:
            try:
                scaled = session.act(call)
            except Exception as error:  # a call in a wrong order has to be refused: the program judges it
                return [*replies, {"error": f"{type(error).__name__}: {error}"}]
            replies.append({name: _plain(value) for name, value in session.reply(call, scaled).items()})
        return replies

    return ScalerAudit(**audited("scaler", ["half"] + ["fused"] * fused, answers, rule))
