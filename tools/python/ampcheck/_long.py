# SPDX-License-Identifier: Apache-2.0
"""Long extents beside large constant ones. Where the extents that stay make each case large, the free ones stay short in the
usual cases: a tile of 64 or 128 rows would never be full. Here each of them is long once."""

from __future__ import annotations

import math
import random
import re
from typing import Any

from ._describe import Plan
from ._extents import extent_value

_SHORT = 100  # a free extent that was longer than this in some case needs no further one
_LONG = (129, 300)
_MOST_ELEMENTS, _MOST_WORK = 1 << 18, 1 << 23
_TENSOR = re.compile(r"(\w+)=(\w+)\[([\d,]*)\]")


def _shapes(case: str) -> dict[str, list[int]]:
    return {name: [int(n) for n in extents.split(",") if n] for name, _, extents in _TENSOR.findall(case)}


def _extents_of(plan: Plan, case: str) -> dict[str, int]:
    """Of each symbol that stands alone as an axis of a tensor in the case's name."""
    out: dict[str, int] = {}
    shapes = _shapes(case)
    for tensor in plan.tensors:
        out.update((s, n) for s, n in zip(tensor.symbols, shapes.get(tensor.name, [])) if s in plan.extents)
    return out


def _fits(plan: Plan, extents: dict[str, int]) -> bool:
    names = {**{name: values[0] for name, values in plan.attributes.items()}, **extents}
    sizes = [math.prod(extent_value(e, names) for e in tensor.symbols) for tensor in plan.tensors]
    return max(sizes) <= _MOST_ELEMENTS and math.prod(extents.values()) <= _MOST_WORK


def _renamed(plan: Plan, case: str, extents: dict[str, int]) -> str:
    names = {**{name: values[0] for name, values in plan.attributes.items()}, **extents}
    symbols = {tensor.name: tensor.symbols for tensor in plan.tensors}

    def shape(found: re.Match[str]) -> str:
        own = ",".join(str(extent_value(e, names)) for e in symbols[found[1]])
        return f"{found[1]}={found[2]}[{own}]"

    return _TENSOR.sub(shape, case)


def long_cases(plan: Plan, limits: dict[str, Any], cases: list[str], draw: random.Random) -> list[str]:
    """Names of further cases: of each free extent that was short in all of these one where it is long, and the other free ones
    are short."""
    known = [extents for case in cases if len(extents := _extents_of(plan, case)) == len(plan.extents)]
    plain = [case for case in cases if len(_extents_of(plan, case)) == len(plan.extents) and case.count("=") ==
             len(_TENSOR.findall(case)) + case.count("seed=")]
    out: list[str] = []
    if not plain:
        return out
    free = [s for s in plan.extents if len({extents[s] for extents in known}) > 1]
    for symbol in free:
        if max(extents[symbol] for extents in known) > _SHORT:
            continue
        limit = limits[symbol]
        extents = {s: min(e[s] for e in known if e[s] > 0) if s in free else n for s, n in known[0].items()}
        wanted = draw.randint(*_LONG)
        wanted = min(wanted, limit.most or wanted) // limit.multiple * limit.multiple
        while wanted > max(_SHORT // 4, limit.least) and not _fits(plan, {**extents, symbol: wanted}):
            wanted = wanted // 2 // limit.multiple * limit.multiple
        if wanted > max(e[symbol] for e in known) and _fits(plan, {**extents, symbol: wanted}):
            out.append(_renamed(plan, plain[0], {**extents, symbol: wanted}))
    return out
