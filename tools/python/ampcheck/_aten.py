# SPDX-License-Identifier: Apache-2.0
"""A traced program in core ATen as a formula in text: one statement a node, short ones put where they are used."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

import torch

#: What writes a node: (writer, node) -> text of the value.
Rule = Callable[["Writer", Any], "str | list[str]"]
RULES: dict[str, Rule] = {}
_KNOWN = {1 / math.sqrt(2): "1/sqrt(2)", math.sqrt(2 / math.pi): "sqrt(2/pi)", math.pi: "pi", math.log(2): "log(2)"}
_MOST_INLINE = 72
_LOW = {torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2}
#: Ops whose results are some of their operands' numbers, or written constants: there is nothing to round.
_EXACT = {"view", "_unsafe_view", "reshape", "flip", "unsqueeze", "squeeze", "permute", "expand", "cat", "slice", "select",
          "clone", "alias", "detach", "lift_fresh_copy", "constant_pad_nd", "embedding", "relu", "neg", "abs", "max", "min",
          "amax", "amin", "maximum", "minimum", "where", "clamp", "hardtanh", "scalar_tensor", "full", "full_like",
          "zeros_like", "_assert_tensor_metadata", "max_pool2d_with_indices", "max_pool3d_with_indices"}


class Refused(Exception):
    """An op that the language has no counterpart of; by_extent: at extents that are known it may have one."""

    def __init__(self, text: str, by_extent: bool = False) -> None:
        super().__init__(text)
        self.by_extent = by_extent


def rule(*names: str) -> Callable[[Rule], Rule]:
    def add(f: Rule) -> Rule:
        for name in names:
            RULES[name] = f
        return f

    return add


class Writer:
    """Writes one program."""

    def __init__(self, program: Any, inputs: dict[str, str], symbols: dict[Any, str], as_written: bool,
                 taken: set[str], alternative: bool = False) -> None:
        #: Whether to write the algebra that kernels usually follow where it is another one, as a further form.
        self.alternative = alternative
        self.has_alternative = False
        self._program = program
        self._symbols = symbols
        self.as_written = as_written
        self._taken = set(taken)
        self.notes: list[str] = []
        #: Of nodes that are inputs of the function: their names in the formula.
        self.inputs: dict[Any, str] = {}
        #: Of inputs that hold indices: into which extent.
        self.indices: dict[str, Any] = {}
        #: Free extents that need not be equal, but are, and that the formula takes for one.
        self.ties: list[tuple[Any, Any]] = []
        self._lines: list[str] = []
        self._text: dict[Any, str] = {}  # of a node: what stands for it, safe between operators
        self._parts: dict[Any, list[str]] = {}  # of a node with several results
        self._count = 0
        self._storage = _narrowest(node.meta["val"].dtype for node in program.graph.nodes
                                   if node.op == "placeholder" and node.name in inputs)
        for node in program.graph.nodes:
            if node.op == "placeholder" and node.name in inputs:
                self._text[node] = self.inputs[node] = inputs[node.name]

    # ---- What rules use. ----

    def value(self, at: Any) -> str:
        """A tensor or a number as an operand."""
        return self._text[at] if isinstance(at, torch.fx.Node) and at in self._text else self.number(at)

    def number(self, value: Any) -> str:
        """A number or an extent."""
        if isinstance(value, torch.fx.Node):
            return self.extent(value.meta["val"]) if value not in self._text else self._text[value]
        if isinstance(value, (torch.SymInt, torch.SymFloat)):
            return self.extent(value)
        if isinstance(value, bool):
            return "1" if value else "0"
        if isinstance(value, int):
            return str(value) if value >= 0 else f"({value})"
        for known, text in _KNOWN.items():
            if isinstance(value, float) and abs(value) == known:
                return f"({'-' if value < 0 else ''}{text})"
        if math.isnan(value):
            raise Refused(f"a constant {value}")
        if math.isinf(value):
            return "inf" if value > 0 else "(-inf)"
        # float() of a short decimal reads back as it; a longer one is exact as a decimal.
        text = f"{value!r}"
        if abs(value) < 1 and Fraction(text).denominator == 1:
            text = f"{value:.1f}"
        return text if value >= 0 else f"({text})"

    def extent(self, value: Any) -> str:
        if isinstance(value, int):
            return str(value)
        return self._expression(value.node.expr)

    def _expression(self, e: Any) -> str:
        if e in self._symbols:
            return self._symbols[e]
        if e.is_Integer:
            return str(int(e)) if int(e) >= 0 else f"({int(e)})"
        if e.is_Add:
            return "(" + " + ".join(self._expression(a) for a in e.args) + ")"
        if e.is_Mul:
            over = [a for a in e.args if not (a.is_Rational and not a.is_Integer)]
            under = [a for a in e.args if a.is_Rational and not a.is_Integer]
            text = " * ".join(self._expression(a) for a in over) or "1"
            for a in under:
                text = f"{a.p} * {text} / {a.q}"
            return f"({text})"
        if e.is_Pow and e.args[1] == 2:
            return f"({self._expression(e.args[0])}^2)"
        if type(e).__name__ in ("FloorDiv", "CleanDiv", "IntTrueDiv"):
            return f"({self._expression(e.args[0])} / {self._expression(e.args[1])})"
        kind, parts = type(e).__name__, e.args
        if kind == "ToFloat":
            return self._expression(parts[0])
        if kind == "FloatTrueDiv":
            return f"({self._expression(parts[0])} / {self._expression(parts[1])})"
        if kind == "FloatPow" and parts[1] == 0.5:
            return f"sqrt({self._expression(parts[0])})"
        if e.is_Float:
            return self.number(float(e))
        raise Refused(f"an extent {e}", by_extent=True)

    def extents(self, of: Any) -> str:
        """The extents of a node's value, for reshape."""
        shape = of.meta["val"].shape
        return ", ".join(self.extent(n) for n in shape) if shape else "1"

    @staticmethod
    def shape(of: Any) -> tuple[Any, ...]:
        return tuple(of.meta["val"].shape)

    @staticmethod
    def rank(of: Any) -> int:
        return len(of.meta["val"].shape)

    def axes(self, of: Any, given: Any) -> list[int]:
        """Axes counted from 0; none given: all."""
        rank = self.rank(of)
        if given is None or given == []:
            return list(range(rank))
        given = [given] if isinstance(given, int) else list(given)
        return [axis % rank if rank else 0 for axis in given]

    def let(self, text: str) -> str:
        """A statement for a value that is used more than once."""
        if re.fullmatch(r"\w+", text):
            return text
        name = self.fresh()
        self._lines.append(f"{name} = {_bare(text)}")
        return name

    def other(self) -> bool:
        """Whether to write another algebra here; says that there is one."""
        self.has_alternative = True
        return self.alternative

    def let_with(self, text: str, of: str, gradient: str) -> str:
        """A statement with its own gradient: {} is its name."""
        name = self.fresh()
        self._lines.append(f"{name} = {_bare(text)}  with d{of} = {gradient.format(name)}")
        return name

    def copied(self, text: str) -> str:
        """A statement of its own, whose gradient let_with can say: an input may have none."""
        name = self.fresh()
        self._lines.append(f"{name} = {_bare(text)}")
        return name

    def source(self, node: Any) -> str:
        """What a formula with an own gradient is of: a name, and in the further form a statement that may have one."""
        return self.copied(self.value(node)) if self.other() else self.let(self.value(node))

    def fresh(self) -> str:
        while True:
            self._count += 1
            name = f"v{self._count}"
            if name not in self._taken:
                return name

    def index_of(self, name: str, extent: Any) -> None:
        """The input holds indices into an axis of this extent."""
        if str(self.indices.setdefault(name, extent)) != str(extent):
            raise Refused(f"'{name}' as an index into two axes")

    def tie(self, a: Any, b: Any) -> bool:
        """Whether two free extents are equal at the examples: they are one dimension from now on, and the program is to be
        written anew."""
        if not (isinstance(a, torch.SymInt) and isinstance(b, torch.SymInt) and a.node.hint == b.node.hint):
            return False
        self.ties.append((a.node.expr, b.node.expr))
        return True

    def places_of(self, x: str, axis: int, rank: int, count: str) -> str:
        """Where the first largest of each row stands, with its axis kept: of a row with a NaN where the first one stands."""
        ones = ", ".join(count if i == axis else "1" for i in range(rank))
        places = self.let(f"reshape(arange({count}), {ones})")
        missing = self.let(f"(1 - ({x} == {x}))")
        rest = self.let(f"where({missing} > 0, 0, {x})")

        def first(of: str) -> str:
            return f"sum(first_max({of}, {axis}) * {places}, {axis})"

        return f"where(max({missing}, {axis}) > 0, {first(missing)}, {first(rest)})"

    def reduced(self, text: str, node: Any, source: Any, axes: list[int], keep: bool) -> str:
        """Reductions of the language keep their axes; torch's usually do not."""
        if keep or not axes:
            return text
        return f"reshape({text}, {self.extents(node)})" if self.rank(node) else text

    # ---- The walk. ----

    def write(self) -> tuple[str, list[str]]:
        for node in self._program.graph.nodes:
            if node.op == "placeholder":
                self._placeholder(node)
            elif node.op == "call_function":
                self._call(node)
        names = self._outputs()
        return "\n".join(self._lines), names

    def _placeholder(self, node: Any) -> None:
        if node in self._text or not isinstance(node.meta.get("val"), torch.Tensor):
            return
        value = self._constant_of(node.name)
        if value is not None and value.numel() >= 1 and bool((value == value.reshape(-1)[0]).all()):
            self._text[node] = self.number(value.reshape(-1)[0].item())

    def _constant_of(self, name: str) -> Any:
        signature = self._program.graph_signature
        for table, values in ((signature.inputs_to_parameters, self._program.state_dict),
                              (signature.inputs_to_buffers, self._program.state_dict),
                              (signature.inputs_to_lifted_tensor_constants, self._program.constants)):
            if name in table:
                key = table[name]
                return values.get(key, self._program.constants.get(key))
        return None

    def _call(self, node: Any) -> None:
        name = _name_of(node.target)
        if name == "getitem":
            parts = self._parts.get(node.args[0])
            if parts is None:
                return  # of an op that only makes extents
            if not parts[node.args[1]]:
                if node.users:
                    self._refuse(node.args[0], f"result {node.args[1]} of {_name_of(node.args[0].target)}")
                return
            self._text[node] = parts[node.args[1]]
            return
        if not isinstance(node.meta.get("val"), (torch.Tensor, tuple, list)):
            return  # arithmetic of extents, asserts
        if name not in RULES:
            self._refuse(node, f"torch op {name}")
        try:
            text = RULES[name](self, node)
        except Refused as refused:
            self._refuse(node, f"torch op {name} with {refused}", refused.by_extent)
        except KeyError:
            self._refuse(node, f"torch op {name} of a constant tensor")
        if isinstance(text, list):
            self._parts[node] = [self._rounded(node, node.meta["val"][0], text[0]), *text[1:]]
            return
        text = self._rounded(node, node.meta["val"], text)
        used = sum(_name_of(user.target) != "_assert_tensor_metadata.default" for user in node.users)
        self._text[node] = text if used <= 1 and len(text) <= _MOST_INLINE else self.let(text)

    def _rounded(self, node: Any, value: Any, text: str) -> str:
        """Mathematics does not see in which type torch keeps a value; "as written" it is a rounding of the contract. The
        results of all are rounded anyway."""
        name = _name_of(node.target).partition(".")[0]
        if not self.as_written or value.dtype not in _LOW or name in _EXACT or all(u.op == "output" for u in node.users):
            return text
        if name == "_to_copy" and node.args[0].meta["val"].dtype == value.dtype:
            return text
        if value.dtype != self._storage:
            self._refuse(node, f"a rounding to {value.dtype}")
        return f"rounded({_bare(text)})"

    def _refuse(self, node: Any, what: str, by_extent: bool = False) -> None:
        from ._torch_reference import place_of

        place = place_of(node.meta.get("stack_trace", ""))
        raise Refused(f"[reference] got {what}{' at ' + place if place else ''}, which the language of formulas has not; "
                      "want reference= as a formula (`ampcheck explain formulas`), or a reference without it", by_extent)

    def _outputs(self) -> list[str]:
        results = [n for n in self._program.graph.nodes if n.op == "output"][0].args[0]
        wanted = set(self._program.graph_signature.user_outputs)
        results = [r for r in results if getattr(r, "name", None) in wanted]
        free = [n for n in ("y", "out", "result") if n not in self._taken and f"d{n}" not in self._taken]
        names = [free[0]] if len(results) == 1 else [f"{free[0]}{i}" for i in range(len(results))]
        for result, name in zip(results, names):
            last = self._lines[-1].partition(" = ") if self._lines else ("", "", "")
            if len(results) == 1 and last[0] == self.value(result) and "  with d" not in last[2]:
                self._lines[-1] = f"{name} = {last[2]}"
                break
            self._lines.append(f"{name} = {_bare(self.value(result))}")
        return names


def _bare(text: str) -> str:
    """Without one pair of brackets around the whole."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return text[1:-1] if at == len(text) - 1 else text
    return text


def _narrowest(dtypes: Iterable[torch.dtype]) -> torch.dtype | None:
    """The type that cases store in."""
    floats = [dtype for dtype in dtypes if dtype.is_floating_point]
    return min(floats, key=lambda dtype: dtype.itemsize) if floats else None


def _name_of(target: Any) -> str:
    if getattr(target, "__name__", "") == "getitem":
        return "getitem"
    text = str(target)
    return text[len("aten."):] if text.startswith("aten.") else text


from . import _aten_rules as _aten_rules  # noqa: E402  (fills RULES)
