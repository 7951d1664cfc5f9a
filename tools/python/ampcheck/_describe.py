# SPDX-License-Identifier: Apache-2.0
"""From example tensors to the description of an op: names, dimensions, types. See src/api/ampcheck/ampcheck_op.h."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import _core
from ._core import UsageError
from ._extents import extent_value, extents_in
from ._options import Contract, Dim, fixed

ROLES = {"data": 0, "weight": 1, "bias": 2, "mask": 3, "index": 4, "target": 5, "probability": 6, "log_probability": 7,
         "angle": 8, "quantized": 9}
DOMAINS = {"any": 0, "positive": 1, "unit_interval": 2}
_TYPES = {"storage": 0, "fp32": 2, "i64": 3, "u8": 4, "fp16": 5, "bf16": 6, "e4m3fn": 7, "e5m2": 8}
_NO_GRADIENT, _ROW_INDEPENDENT = 2, 4
_SIZE = {"fp64": 8, "fp32": 4, "fp16": 2, "bf16": 2, "e4m3fn": 1, "e5m2": 1}
#: Elements of the largest input of a case at the caller's own extents; larger ones are halved.
_MOST_ELEMENTS = 12000
#: Product of all extents of a case, which bounds the work of a contraction (checks/data/regime_cases.cpp).
_MOST_WORK = 1 << 18
#: The same of the first case, where calls are repeated thousands of times (checks/judge/call_history.h).
_SMALL_WORK = 1 << 14


@dataclass
class Tensor:
    """One example input."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    boolean: bool = False
    role: str = ""
    domain: str = "any"
    symbols: list[str] = field(default_factory=list)
    index_dim: str | None = None
    constant: bool = False  # has no gradient, though it is floating


def statements(formula: str) -> list[str]:
    """The names that a formula defines, in its order."""
    out: list[str] = []
    for line in re.split(r"[\n;]", re.sub(r"#.*", "", formula)):
        found = re.match(r"\s*([A-Za-z_]\w*)\s*=(?!=)", line)
        if found and found.group(1) not in out:
            out.append(found.group(1))
    return out


def storage_of(tensors: Sequence[Tensor]) -> str:
    """The narrowest floating type: what the op stores. fp64 is judged in fp32."""
    floats = [t.dtype for t in tensors if t.dtype in _SIZE]
    if not floats:
        raise UsageError("[inputs] got no tensor of a floating type, want at least one")
    narrowest = min(floats, key=lambda dtype: _SIZE[dtype])
    return "fp32" if narrowest == "fp64" else narrowest


def _given_dims(tensors: Sequence[Tensor], given: Mapping[str, str], attributes: Mapping[str, float]) -> dict[str, int]:
    """The extents of the symbols that dims= names. Extents that follow from others ("D/2") have to be the examples'."""
    extents: dict[str, int] = {}
    named = [tensor for tensor in tensors if tensor.name in given]
    for tensor in named:
        tensor.symbols = extents_in(given[tensor.name])
        if len(tensor.symbols) != len(tensor.shape):
            raise UsageError(f"[dims] got '{given[tensor.name]}' for '{tensor.name}', which has {len(tensor.shape)} axes")
        for symbol, extent in zip(tensor.symbols, tensor.shape):
            if symbol.isidentifier() and symbol not in attributes and extents.setdefault(symbol, extent) != extent:
                raise UsageError(f"[dims] got '{symbol}' for extents {extents[symbol]} and {extent} of the inputs")
    for tensor in named:
        for symbol, extent in zip(tensor.symbols, tensor.shape):
            want = extent_value(symbol, {**attributes, **extents})
            if want != extent:
                raise UsageError(f"[dims] got the extent {extent} of '{tensor.name}', want {want}, which is '{symbol}'")
    return extents


def name_dims(tensors: Sequence[Tensor], given: Mapping[str, str], taken: set[str],
              attributes: Mapping[str, float] | None = None) -> dict[str, int]:
    """Gives each axis its symbol and returns the extents. Axes of equal extent are one dimension, those that are aligned
    from the right first; an extent of 1 is nobody else's."""
    extents = _given_dims(tensors, given, attributes or {})
    letters = (letter + number for number in ["", *map(str, range(2, 100))] for letter in "NMKLPQRSTUVWABCEFGHIJ")
    names = (symbol for symbol in letters if symbol not in taken and symbol not in extents)
    fresh = (f"?{i}" for i in range(10**6))
    last: dict[tuple[int, int], str] = {}  # (axis from the right, extent) -> symbol
    for tensor in sorted(tensors, key=lambda t: -len(t.shape)):
        if tensor.name in given:
            continue
        symbols: list[str] = []
        for at, extent in enumerate(reversed(tensor.shape)):
            known = [last.get((at, extent)), *(s for s, n in extents.items() if n == extent)]
            symbol = next((s for s in known if s and s not in symbols and extent != 1), None) or next(fresh)
            extents.setdefault(symbol, extent)
            last.setdefault((at, extent), symbol)
            symbols.append(symbol)
        tensor.symbols = symbols[::-1]
    # Named in the order of reading: the rows of the first input are N.
    final: dict[str, str] = {}
    for tensor in tensors:
        for symbol in tensor.symbols:
            if symbol not in final and symbol in extents:
                final[symbol] = next(names) if symbol.startswith("?") else symbol
        tensor.symbols = [final.get(symbol, symbol) for symbol in tensor.symbols]
    return {final[symbol]: extents[symbol] for symbol in final}


def find_index_dims(tensors: Sequence[Tensor], formula: str) -> None:
    """Of inputs of indices the dimension that they count, where the formula says it: gather(table, index) or
    one_hot(index, V)."""
    named = {tensor.name: tensor for tensor in tensors}
    for table, index in re.findall(r"\bgather\(\s*(\w+)\s*,\s*(\w+)\s*\)", formula):
        if index in named and table in named and named[table].symbols:
            named[index].index_dim = named[table].symbols[0]
    symbols = {symbol for tensor in tensors for symbol in tensor.symbols}
    for index, symbol in re.findall(r"\bone_hot\(\s*(\w+)\s*,\s*(\w+)\s*\)", formula):
        if index in named and symbol in symbols:
            named[index].index_dim = symbol


def _samples(extents: Mapping[str, int], limits: Mapping[str, Dim], tensors: Sequence[Tensor],
             attributes: Mapping[str, float], draw: random.Random | None = None) -> list[dict[str, int]]:
    """Three shapes: small and all different, in between, and the caller's, made smaller where it is large."""

    def fit(symbol: str, wanted: int) -> int:
        limit = limits[symbol]
        low = max(limit.least, 1)
        most = limit.most or max(wanted, low, limit.multiple)
        low = -(-low // limit.multiple) * limit.multiple
        return max(low, min(wanted, most) // limit.multiple * limit.multiple)

    small = {s: fit(s, 5 + 2 * i) for i, s in enumerate(extents)}
    middle = {s: fit(s, (33, 6, 4, 3, 2)[min(i, 4)]) for i, s in enumerate(reversed(list(extents)))}
    own = {s: fit(s, n) for s, n in extents.items()}
    if draw is not None:
        small = {s: fit(s, draw.randint(2, 19)) for s in extents}
        middle = {s: fit(s, draw.choice((draw.randint(1, 9), draw.randint(9, 70)))) for s in extents}
        own = {s: fit(s, draw.randint(max(1, n // 2), n)) for s, n in extents.items()}

    def largest(sample: Mapping[str, int]) -> int:
        names = {**attributes, **sample}
        return max(math.prod(extent_value(extent, names) for extent in tensor.symbols) for tensor in tensors)

    floor = {s: fit(s, 1) for s in extents}
    smallest = largest(floor)
    most = max(_MOST_ELEMENTS, smallest * (4 if smallest <= 1 << 18 else 1))
    least = math.prod(floor.values())
    for sample, work in ((small, max(_SMALL_WORK, 2 * least)), (middle, max(_MOST_WORK, 16 * least)),
                         (own, max(_MOST_WORK, 16 * least))):
        while largest(sample) > most or math.prod(sample.values()) > work:
            symbol = max(sample, key=lambda s: sample[s] if fit(s, sample[s] // 2) < sample[s] else 0)
            if fit(symbol, sample[symbol] // 2) >= sample[symbol]:
                break
            sample[symbol] = fit(symbol, sample[symbol] // 2)
    return [small, middle, own]


@dataclass
class Plan:
    """All that is known of the op but which extents are free."""

    name: str
    summary: str
    tensors: list[Tensor]
    outputs: list[tuple[str, str]]  # name, dtype rule
    formula: str
    attributes: dict[str, list[float]]
    extents: dict[str, int]
    limits: dict[str, Dim]  # that the caller gave
    soft: dict[str, Dim]  # that a trace found: the formula may still not fit
    contract: Contract
    library: str
    storage: list[str]
    rows: str
    forward: Any
    backward: Any
    base: str  # the storage type of the examples
    forms: list[str] = field(default_factory=list)
    output_dims: list[str] = field(default_factory=list)  # of an op without a formula
    draw: random.Random | None = None  # draws the extents of the cases, which are small and fixed otherwise
    forget: Any = None  # forget(): the function remembers nothing of earlier calls from now on
    written_late: Any = None  # written_late(): whether a result changed after its call had returned
    _drawn: int | None = None

    def type_rule(self, dtype: str) -> int:
        if dtype in ("i64", "i32", "u8"):
            return _TYPES["i64" if dtype != "u8" else "u8"]
        return _TYPES["storage" if dtype in (self.base, "fp64") else dtype]

    def inputs(self) -> list[dict[str, object]]:
        out: list[dict[str, object]] = []
        for tensor in self.tensors:
            integer = tensor.dtype in ("i64", "i32", "u8")
            has_rows = bool(self.rows) and set(self.rows.split()) <= set(tensor.symbols)
            flags = _NO_GRADIENT if self.backward is None or integer or tensor.constant else _ROW_INDEPENDENT if has_rows else 0
            role = tensor.role or ("mask" if tensor.dtype == "u8" else "index" if integer else "data")
            if role not in ROLES:
                raise UsageError(f"[roles] got '{role}' for '{tensor.name}', want one of {', '.join(ROLES)}")
            if tensor.domain not in DOMAINS:
                raise UsageError(f"[domains] got '{tensor.domain}' for '{tensor.name}', want any, positive or unit_interval")
            out.append({"name": tensor.name, "dims": " ".join(tensor.symbols), "role": ROLES[role],
                        "type": self.type_rule(tensor.dtype), "domain": DOMAINS[tensor.domain], "flags": flags,
                        "index_dim": tensor.index_dim})
        return out

    def spec(self, limits: Mapping[str, Dim]) -> dict[str, object]:
        if self._drawn is None and self.draw is not None:
            self._drawn = self.draw.getrandbits(64)
        draw = None if self._drawn is None else random.Random(self._drawn)  # the same ones however often it is asked
        samples = _samples(self.extents, limits, self.tensors,
                           {name: values[0] for name, values in self.attributes.items()}, draw)
        dims = [{"symbol": s, "samples": [one[s] for one in samples], "multiple": limits[s].multiple,
                 "least": limits[s].least, "most": limits[s].most} for s in self.extents]
        attributes = [{"name": n, "value": values[0], "others": values[1:]} for n, values in self.attributes.items()]
        dims_of: list[str | None] = [*self.output_dims] or [None] * len(self.outputs)
        outputs = [{"name": n, "type": self.type_rule(dtype), "flags": _ROW_INDEPENDENT if self.rows else 0, "dims": own}
                   for (n, dtype), own in zip(self.outputs, dims_of)]
        return {"name": self.name, "summary": self.summary, "inputs": self.inputs(), "outputs": outputs,
                "attributes": attributes, "dims": dims, "forms": [f for f in (self.formula, *self.forms) if f],
                "contract": self.contract.spec(self.storage, self.library), "row_dim": self.rows,
                "forward": self.forward, "backward": self.backward, "forget": self.forget}


def _divisors(extent: int) -> list[int]:
    return [n for n in range(2, min(extent, 1024) + 1) if extent % n == 0]


def _as_free(plan: Plan, limits: dict[str, Dim], symbol: str, free: Dim) -> tuple[Any, Dim] | None:
    """The op with this extent free beside what is free already; where that does not fit, with multiples of what divides
    the given extent (groups, blocks)."""
    least = free.least
    for multiple in [1, *_divisors(plan.extents[symbol])]:
        dim = free if multiple == 1 else Dim(multiple, max(least, multiple), free.most)
        try:
            return _core.describe(plan.spec(limits | {symbol: dim})), dim
        except UsageError:
            continue
    return None


def describe(plan: Plan, notes: list[str]) -> Any:
    """The op with as many free extents as the formula takes. A formula that names a number of its own, or whose operands
    only fit by chance (square examples), holds some fixed: the notes say which."""
    held = {s: plan.limits.get(s, fixed(n)) for s, n in plan.extents.items()}
    free = {s: plan.limits.get(s, fixed(1) if n == 1 else plan.soft.get(s, Dim())) for s, n in plan.extents.items()}
    if held == free:
        return _core.describe(plan.spec(held))
    try:
        return _core.describe(plan.spec(free))
    except UsageError:
        op = _core.describe(plan.spec(held))  # a mistake of the formula itself is said of this one
    limits = dict(held)
    for symbol in plan.extents:
        if limits[symbol] == free[symbol]:
            continue
        found = _as_free(plan, limits, symbol, free[symbol])
        if found is not None:
            op, limits[symbol] = found
    stuck = [f"{s} = {plan.extents[s]}" for s in plan.extents if limits[s] != free[s] and limits[s] == held[s]]
    if stuck:
        notes.append(f"extents that do not vary, since the formula fits no others: {', '.join(stuck)} "
                     "(examples with different extents, or dims=, may free them)")
    return op
