# SPDX-License-Identifier: Apache-2.0
"""Whether a solution is a kernel at all: at which cases it computes by the very torch operations of its reference."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_MOST_CASES = 12
#: They move or make memory and compute nothing.
_MOVES = ("empty", "view", "reshape", "detach", "clone", "copy", "alias", "expand", "as_strided", "permute", "transpose", "t.",
          "unsqueeze", "squeeze", "slice", "select", "_to_copy", "contiguous", "lift")


class _Log(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ops: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func).removeprefix("aten.")
        if not name.startswith(_MOVES):
            self.ops.append(str(func))
        return func(*args, **(kwargs or {}))


def _ops_of(call: Callable[[dict[str, Any]], Any], inputs: dict[str, Any]) -> list[str] | None:
    """None where it raises, as a compiled function may under a dispatch mode."""
    try:
        with torch.no_grad(), _Log() as log:
            call(inputs)
        return log.ops
    except Exception:
        return None


def _shapes(case: str) -> str:
    """Cases that differ in their shapes and types alone stand for the others."""
    return ",".join(part for part in case.split(",") if "=" not in part or "[" in part)


def reference_ops(report: Any, solution: Callable[[dict[str, Any]], Any],
                  reference: Callable[[dict[str, Any]], Any]) -> dict[str, Any] | None:
    """Over cases of different shapes: `cases` that were looked at, `same` of them that ran the torch operations of the
    reference and no others, the `first` such case, and its `ops`. None where the reference runs no torch operation."""
    seen: dict[str, str] = {}
    for case in json.loads(report.to_json())["cases"]:
        if case["verdict"] == "ROUNDING":
            seen.setdefault(_shapes(case["case"]), case["case"])
    out: dict[str, Any] = {"cases": 0, "same": 0, "first": "", "ops": []}
    for case in list(seen.values())[:_MOST_CASES]:
        inputs = report.inputs(case)
        theirs, ours = _ops_of(reference, inputs), _ops_of(solution, inputs)
        if not theirs or ours is None:
            continue
        out["cases"] += 1
        if ours == theirs:
            out["same"] += 1
            if not out["first"]:
                out["first"], out["ops"] = case, theirs
    return out if out["cases"] else None


def words(found: dict[str, Any]) -> str:
    """A note; empty where there is nothing to say."""
    if not found["same"]:
        return ""
    ops = ", ".join(found["ops"][:4]) + (", ..." if len(found["ops"]) > 4 else "")
    if found["same"] == found["cases"]:
        return f"the solution runs the torch operations of its reference and no others ({ops}): it has no kernel of its own"
    return (f"at {found['same']} of {found['cases']} shapes the solution falls back on the torch operations of its reference "
            f"({ops}), first in '{found['first']}'")
