# SPDX-License-Identifier: Apache-2.0
"""The reference is the eager function that people already have: traced with torch.export at free extents, decomposed to
core ATen, and written as a formula of the language."""

from __future__ import annotations

import contextlib
import io
import logging
import math
import re
import types
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ._aten import Refused, Writer
from ._check import Request, make_plan
from ._core import UsageError
from ._describe import Plan
from ._kernel import Call
from ._options import Dim, fixed

_MOST_SYMBOL = 1 << 20


class _AsModule(torch.nn.Module):
    """torch.export takes modules alone."""

    def __init__(self, f: Callable[..., Any], names: Sequence[str] | None) -> None:
        super().__init__()
        self._f = f
        self._names = names

    def forward(self, *arguments: Any) -> Any:
        if self._names is None:
            return self._f(*arguments)
        return self._f(**dict(zip(self._names, arguments)))


@dataclass
class Trace:
    """A traced reference: its formula and what it says of the inputs' extents."""

    formula: str
    outputs: list[str]
    extents: dict[str, int]
    limits: dict[str, Dim]
    symbols: list[list[str]]  # of each tensor argument
    notes: list[str] = field(default_factory=list)
    forms: list[str] = field(default_factory=list)
    indices: dict[str, str] = field(default_factory=dict)  # inputs that hold indices: the symbol of the axis


#: How many leading axes of a tensor with at least three are free, in the order of the tries: windows of images need
#: extents that are known. Tensors with fewer axes are free until the last tries: _BATCH frees the first axis of the first
#: tensor alone, as filters of groups want it.
_BATCH = -1
_FREE_AXES = (99, 2, 1, _BATCH, 0)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Without the log lines of torch's tracer: what it cannot trace is tried in another way, or refused in our words."""
    known, trace = logging.root.manager.disable, logging.getLogger("torch.__trace")  # whose records ask for no level
    was = trace.disabled
    logging.disable(logging.ERROR)
    trace.disabled = True
    try:
        said = io.StringIO()  # graphs that it could not finish
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            yield
    finally:
        logging.disable(known)
        trace.disabled = was


def export(module: torch.nn.Module, arguments: Sequence[Any], free: int) -> Any:
    """The program in core ATen. Extents that it needs come out fixed, all others of the first `free` axes free."""
    auto = torch.export.Dim.AUTO

    first = next((x for x in arguments if isinstance(x, torch.Tensor)), None)

    def dims(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return None
        if free == _BATCH:
            return {0: auto} if x is first and x.ndim else {}
        return {axis: auto for axis in range(x.ndim) if free and (x.ndim < 3 or axis < free)}

    with warnings.catch_warnings(), torch.no_grad(), _silent():
        warnings.simplefilter("ignore")
        shapes = (tuple(dims(x) for x in arguments),) if free else None
        return torch.export.export(module, tuple(arguments), dynamic_shapes=shapes, strict=False).run_decompositions()


def _named_forward(f: Callable[..., Any]) -> Callable[..., Any]:
    """The same function under the name that torch.export keeps lines of: a refused op can then be shown in its source."""
    if not isinstance(f, types.FunctionType):
        return f
    out = types.FunctionType(f.__code__.replace(co_name="forward"), f.__globals__, "forward", f.__defaults__, f.__closure__)
    out.__kwdefaults__ = f.__kwdefaults__
    return out


def _dimensions(program: Any, names: Sequence[str], taken: set[str]) -> tuple[dict[Any, str], Trace]:
    """A symbol for each free extent of the inputs, and one for each fixed number."""
    letters = (a + n for n in ["", *map(str, range(2, 400))] for a in "NMKLPQRSTUVWABCEFGHIJ")
    fresh = (s for s in letters if s not in taken)
    of_symbol: dict[Any, str] = {}
    trace = Trace("", [], {}, {}, [])
    values = {node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"}
    ranges = {str(symbol): limits for symbol, limits in program.range_constraints.items()}
    for name in names:
        own: list[str] = []
        for extent in values[name].shape:
            if isinstance(extent, int):
                known = (s for s, n in trace.extents.items() if n == extent and trace.limits[s] == fixed(n) and s not in own)
                symbol = next(known, None) or next(fresh)
                trace.extents[symbol], trace.limits[symbol] = extent, fixed(extent)
            else:
                expression = extent.node.expr
                symbol = of_symbol.get(expression, "")
                if not symbol or symbol in own:
                    symbol = of_symbol[expression] = symbol or next(fresh)
                trace.extents[symbol] = int(extent.node.hint)
                if expression.is_Symbol:
                    trace.limits[symbol] = _limits(ranges.get(str(expression)))
                else:  # an extent that follows from another one
                    trace.limits[symbol] = fixed(int(extent.node.hint))
            own.append(symbol)
        trace.symbols.append(own)
    for own in trace.symbols:
        for symbol in set(own):
            if own.count(symbol) > 1:  # a square input: one symbol would stand twice in it
                trace.limits[symbol] = fixed(trace.extents[symbol])
    return of_symbol, trace


def _limits(limits: Any) -> Dim:
    """torch's own least extent of 2 only keeps 0 and 1 out of its trace."""
    if limits is None:
        return Dim()
    lower, upper = limits.lower, limits.upper
    least = int(lower) if getattr(lower, "is_Integer", False) else 2
    most = int(upper) if getattr(upper, "is_Integer", False) else _MOST_SYMBOL
    return Dim(least=1 if least <= 2 else least, most=0 if most >= _MOST_SYMBOL else most)


def trace_reference(reference: Callable[..., Any], arguments: Sequence[Any], names: Sequence[str], *,
                    by_name: bool = False, taken: set[str] | None = None, rounding: str = "mathematics") -> Trace:
    """arguments: tensors and constants as the function takes them; names: of the tensors, for the formula."""
    if rounding not in ("mathematics", "as written"):
        raise UsageError(f"[rounding] got '{rounding}', want 'mathematics' or 'as written'")
    module = _AsModule(_named_forward(reference), list(names) if by_name else None)
    refused: Refused | None = None
    failed: Exception | None = None
    for free in _FREE_AXES:
        try:
            return _written(export(module, arguments, free), arguments, names, taken or set(), rounding == "as written")
        except Refused as why:
            refused = why  # the last one: at extents that are known
            if not why.by_extent:
                break
        except Exception as error:  # an extent that decides something may keep a trace from being free
            failed = failed or error
    if refused is not None:
        raise refused
    text = (str(failed).strip().splitlines() or [""])[0].rstrip(".")
    if type(failed).__name__ == "GuardOnDataDependentSymNode":
        where = place_of(str(failed))
        raise UsageError(f"[reference] got a function whose way depends on the data{' at ' + where if where else ''}, want one "
                         "that computes the same for all data, or a formula") from failed
    if "data pointer" in text:
        text = "it runs a kernel of its own (Triton, or an op of a library), which has no trace"
    raise UsageError(f"[reference] got a function that torch.export cannot trace: {type(failed).__name__}: {text}; want one "
                     "of tensor operations alone, or a formula") from failed


def _written(program: Any, arguments: Sequence[Any], names: Sequence[str], taken: set[str], as_written: bool) -> Trace:
    user = list(program.graph_signature.user_inputs)
    tensors = [name for name, value in zip(user, arguments) if isinstance(value, torch.Tensor)]
    of_symbol, trace = _dimensions(program, tensors, set(names) | taken)
    tensor_names = [name for name, value in zip(names, arguments) if isinstance(value, torch.Tensor)]
    what = (program, dict(zip(tensors, tensor_names)), of_symbol, as_written, set(names) | set(trace.extents))
    writer = Writer(*what)
    trace.formula, trace.outputs = writer.write()
    if writer.ties:
        for kept, other in writer.ties:
            _merge(of_symbol, kept, other, trace)
        writer = Writer(*what)
        trace.formula, trace.outputs = writer.write()
    trace.notes += writer.notes
    for name, extent in writer.indices.items():
        trace.indices[name] = _symbol_of(extent, of_symbol, trace)
    if writer.has_alternative:
        trace.forms.append(Writer(*what, alternative=True).write()[0])
    return trace


def _merge(of_symbol: dict[Any, str], kept: Any, other: Any, trace: Trace) -> None:
    """Both extents by one symbol."""
    old, new = of_symbol[other], of_symbol[kept]
    if old == new:
        return
    of_symbol.update({expression: new for expression, symbol in of_symbol.items() if symbol == old})
    trace.symbols = [[new if symbol == old else symbol for symbol in own] for own in trace.symbols]
    del trace.extents[old], trace.limits[old]


def _symbol_of(extent: Any, of_symbol: dict[Any, str], trace: Trace) -> str:
    """The dimension that an index counts: one of the inputs has it."""
    if isinstance(extent, int):
        found = next((s for s, n in trace.extents.items() if n == extent and trace.limits[s] == fixed(n)), None)
    else:
        found = of_symbol.get(extent.node.expr)
    if found is None:
        raise Refused(f"[reference] got an index into an axis of {extent}, which no input has; want reference= as a formula")
    return found


def plan_of_reference(asked: Request, reference: Callable[..., Any], *, rounding: str, dims: Any,
                      **settings: Any) -> Plan:
    """The op of a function whose reference is a function too."""
    if not callable(reference):
        raise UsageError(f"[reference] got a {type(reference).__name__}, want a function")
    names = [name for name, _, _ in asked.slots]
    values = [value if at is None else asked.examples[at] for _, at, value in asked.slots]
    if asked.by_name:
        values = [value.detach() if isinstance(value, torch.Tensor) else value for value in values]
    try:
        trace = trace_reference(reference, values, names, by_name=asked.by_name,
                                taken=set(asked.attributes), rounding=rounding)
    except Refused as refused:
        raise UsageError(str(refused)) from refused
    for tensor, symbols in zip(asked.tensors, symbols_of(asked, trace)):
        tensor.symbols = symbols
    own = dict(dims or {})
    axes = [key for key, value in own.items() if isinstance(value, str)]
    if axes:
        raise UsageError(f"[dims] got axes of '{axes[0]}', want none: the trace of the reference names them "
                         f"{' '.join(trace.symbols[0])}")
    asked.notes += trace.notes
    find_domains(asked, reference)
    settings["forms"] = [*trace.forms, *settings.get("forms", ())]
    return make_plan(asked, trace.formula, outputs=trace.outputs, dims=own, extents=(trace.extents, trace.limits),
                     **settings)


def small_examples(trace: Trace, arguments: Sequence[Any], draw: Any, reference: Callable[..., Any]) -> list[Any]:
    """Real tensors for a trace of fake ones, or of large ones: free extents become small, fixed ones stay. Where the reference
    takes only multiples (of groups, of heads), they are multiples of what divides the given extents."""
    given, wanted = dict(trace.extents), [draw.randint(3, 24) for _ in trace.extents]
    generator = torch.Generator().manual_seed(draw.getrandbits(62))
    for multiple in (1, 2, 4, 8, 16, 32, 64, 0):
        for at, (symbol, extent) in enumerate(given.items()):
            limit = trace.limits[symbol]
            step = math.gcd(extent, multiple) or 1
            small = max(limit.least, min(extent, -(-(wanted[at] + at) // step) * step))
            trace.extents[symbol] = extent if limit.least == limit.most or not multiple else small
        out = _examples(trace, arguments, generator)
        if not _takes(reference, out) and multiple:
            continue
        _find_least(trace, arguments, generator, reference)
        return out
    raise AssertionError("unreachable")


def _takes(reference: Callable[..., Any], arguments: Sequence[Any]) -> bool:
    try:
        with torch.no_grad():
            reference(*arguments)
        return True
    except Exception:
        return False


def _find_least(trace: Trace, arguments: Sequence[Any], generator: torch.Generator, reference: Callable[..., Any]) -> None:
    """The smallest extents that the reference takes (a window may not be larger than its image), and whether only multiples of
    them (groups)."""
    for symbol, extent in list(trace.extents.items()):
        limit = trace.limits[symbol]
        if limit.least == limit.most:
            continue

        def takes(n: int, symbol: str = symbol) -> bool:
            trace.extents[symbol] = n
            return _takes(reference, _examples(trace, arguments, generator))

        least = next((n for n in range(limit.least, extent) if takes(n)), extent)
        multiple = least if least > 1 and not takes(least + 1) and takes(2 * least) else limit.multiple
        trace.limits[symbol] = Dim(multiple, least, limit.most)
        trace.extents[symbol] = extent


def _examples(trace: Trace, arguments: Sequence[Any], generator: torch.Generator) -> list[Any]:
    symbols = iter(trace.symbols)
    out: list[Any] = []
    for value in arguments:
        if not isinstance(value, torch.Tensor):
            out.append(value)
            continue
        shape = [trace.extents[s] for s in next(symbols)]
        if value.is_floating_point():
            out.append(torch.rand(shape, generator=generator).to(value.dtype))
        else:
            out.append(torch.zeros(shape, dtype=value.dtype))
    return out


def find_domains(asked: Request, reference: Callable[..., Any]) -> None:
    """Inputs that are positive in the examples, and below 0 make the reference NaN, are positive: a variance, what goes
    into a logarithm."""
    call = Call(reference, asked.slots, asked.by_name, list(asked.attributes))

    def is_nan(examples: list[Any]) -> bool:
        with torch.no_grad():
            got = call(examples, [values[0] for values in asked.attributes.values()])
        return any(bool(torch.isnan(y).any()) for y in got if isinstance(y, torch.Tensor) and y.is_floating_point())

    if is_nan(asked.examples):
        return
    for at, (tensor, example) in enumerate(zip(asked.tensors, asked.examples)):
        if example.is_floating_point() and asked.frame.all_positive(example):
            if is_nan([-x if i == at else x for i, x in enumerate(asked.examples)]):
                tensor.domain = "positive"


def symbols_of(asked: Request, trace: Trace) -> list[list[str]]:
    """Symbols in the order of the request's tensors; a square input gets one symbol for each axis."""
    at_slot = iter(trace.symbols)
    out: list[list[str]] = [[] for _ in asked.tensors]
    for _, at, _ in asked.slots:
        if at is not None:
            out[at] = next(at_slot)
    for own in out:
        for i, symbol in enumerate(own):
            if symbol in own[:i]:
                twin = next(f"{symbol}_{k}" for k in range(2, 99) if f"{symbol}_{k}" not in own)
                trace.extents[twin], trace.limits[twin] = trace.extents[symbol], fixed(trace.extents[symbol])
                own[i] = twin
    for tensor in asked.tensors:
        tensor.index_dim = trace.indices.get(tensor.name)
    return out


def formula_of(reference: Callable[..., Any], inputs: Mapping[str, torch.Tensor]) -> str:
    """The formula of an eager function, for `ampcheck check --formula`."""
    try:
        return trace_reference(reference, list(inputs.values()), list(inputs)).formula
    except Refused as refused:
        raise UsageError(str(refused)) from None


def place_of(text: str) -> str:
    """The last line of the user's own code in a stack trace of torch.fx: "norm.py:12 (y = torch.sin(x))"."""
    found = re.findall(r'File "([^"]+)", line (\d+), in [^\n]+\n\s*([^\n]*)', text or "")
    own = [f for f in found if "site-packages" not in f[0] and not f[0].endswith("/_torch_reference.py")] or found
    return f"{own[-1][0].rsplit('/', 1)[-1]}:{own[-1][1]} ({own[-1][2].strip()})" if own else ""
