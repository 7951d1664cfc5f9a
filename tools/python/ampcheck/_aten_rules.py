# SPDX-License-Identifier: Apache-2.0
"""How each core-ATen op reads in the language of formulas."""

from __future__ import annotations

import math
from typing import Any

from ._aten import Refused, Writer, rule


def _unary(text: str) -> Any:
    return lambda w, n: text.format(w.value(n.args[0]))


for _name, _text in {
    "exp.default": "exp({0})", "expm1.default": "expm1({0})", "log.default": "log({0})", "log1p.default": "log1p({0})",
    "tanh.default": "tanh({0})", "erf.default": "erf({0})", "sin.default": "sin({0})", "cos.default": "cos({0})",
    "sqrt.default": "sqrt({0})", "rsqrt.default": "rsqrt({0})",
    "sigmoid.default": "sigmoid({0})", "abs.default": "abs({0})", "neg.default": "(-{0})",
    "reciprocal.default": "(1 / {0})", "logical_not.default": "(1 - {0})",
    "bitwise_not.default": "(1 - {0})", "isnan.default": "(1 - ({0} == {0}))",
    "alias.default": "{0}", "clone.default": "{0}", "detach.default": "stop_gradient({0})",
    "_assert_tensor_metadata.default": "{0}", "lift_fresh_copy.default": "{0}",
}.items():
    rule(_name)(_unary(_text))


def _binary(sign: str) -> Any:
    def write(w: Writer, n: Any) -> str:
        right = w.value(n.args[1])
        alpha = n.kwargs.get("alpha", 1)
        if alpha != 1:
            right = f"{w.number(alpha)} * {right}"
        return f"({w.value(n.args[0])} {sign} {right})"

    return write


def _mask(w: Writer, n: Any) -> Any:
    """The condition of where(condition, 0, -infinity): what is added to scores to mask them."""
    if getattr(n, "op", "") != "call_function" or not str(n.target).startswith("aten.where"):
        return None
    return n.args[0] if _constant(n.args[1], lambda v: v == 0) and _constant(n.args[2], lambda v: v == -math.inf) else None


@rule("add.Tensor")
def _add(w: Writer, n: Any) -> str:
    """A mask that is added is a choice: an infinity in a sum would open the interval of all its terms."""
    for mask, other in ((n.args[1], n.args[0]), (n.args[0], n.args[1])):
        condition = _mask(w, mask)
        if condition is not None and n.kwargs.get("alpha", 1) == 1:
            return f"where({w.value(condition)}, {w.value(other)}, (-inf))"
    return _binary("+")(w, n)


rule("add.Scalar")(_binary("+"))
for _name, _sign in {"sub": "-", "mul": "*"}.items():
    rule(f"{_name}.Tensor", f"{_name}.Scalar")(_binary(_sign))
for _name, _sign in {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}.items():
    rule(f"{_name}.Tensor", f"{_name}.Scalar")(_binary(_sign))
rule("logical_and.default", "bitwise_and.Tensor")(_binary("*"))


@rule("logical_or.default", "bitwise_or.Tensor")
def _or(w: Writer, n: Any) -> str:
    return f"maximum({w.value(n.args[0])}, {w.value(n.args[1])})"




@rule("eq.Tensor", "eq.Scalar")
def _eq(w: Writer, n: Any) -> str:
    return f"({w.value(n.args[0])} == {w.value(n.args[1])})"


@rule("div.Tensor", "div.Scalar")
def _div(w: Writer, n: Any) -> str:
    return f"({w.value(n.args[0])} / {w.value(n.args[1])})"


@rule("ne.Tensor", "ne.Scalar")
def _ne(w: Writer, n: Any) -> str:
    ignored = _index.ignores_some(w, n) if _index.is_integer(n.args[0]) else None
    if ignored is not None:
        return ignored
    return f"(1 - ({w.value(n.args[0])} == {w.value(n.args[1])}))"


@rule("maximum.default")
def _maximum(w: Writer, n: Any) -> str:
    return f"maximum({w.value(n.args[0])}, {w.value(n.args[1])})"


@rule("minimum.default")
def _minimum(w: Writer, n: Any) -> str:
    return f"minimum({w.value(n.args[0])}, {w.value(n.args[1])})"


def _is_nan_of(condition: Any) -> Any:
    """What isnan() is asked of; None for another condition."""
    return condition.args[0] if str(condition.target).startswith("aten.isnan") else None


def _constant(n: Any, holds: Any) -> bool:
    """Whether a node is a number of which this holds."""
    value = n.args[0] if str(getattr(n, "target", "")).startswith("aten.scalar_tensor") else n
    return isinstance(value, float) and bool(holds(value))


@rule("where.self")
def _where(w: Writer, n: Any) -> str:
    if _index.is_integer(n):  # of indices: see index_input()
        return w.value(n.args[1])
    if _is_nan_of(n.args[0]) is not None and _constant(n.args[1], math.isnan):  # NaN where another tensor has it
        return f"where({w.value(n.args[0])}, {w.value(_is_nan_of(n.args[0]))}, {w.value(n.args[2])})"
    return f"where({w.value(n.args[0])}, {w.value(n.args[1])}, {w.value(n.args[2])})"


@rule("relu.default")
def _relu(w: Writer, n: Any) -> str:
    x = w.let(w.value(n.args[0]))
    return f"where({x} <= 0, 0, {x})"


@rule("leaky_relu.default")
def _leaky_relu(w: Writer, n: Any) -> str:
    x = w.let(w.value(n.args[0]))
    slope = n.args[1] if len(n.args) > 1 else 0.01
    return f"({x} * where({x} <= 0, {w.number(slope)}, 1))"


@rule("elu.default")
def _elu(w: Writer, n: Any) -> str:
    x = w.let(w.value(n.args[0]))
    alpha, scale, slope = [*n.args[1:], *[1.0, 1.0, 1.0][len(n.args) - 1:]][:3]
    inside = f"({w.number(slope)} * {x})" if slope != 1 else x
    return f"where({x} <= 0, {w.number(alpha * scale)} * expm1({inside}), {w.number(scale)} * {x})"


@rule("clamp.default", "hardtanh.default")
def _clamp(w: Writer, n: Any) -> str:
    x = w.let(w.value(n.args[0]))
    hard = str(n.target).startswith("aten.hardtanh")
    low = n.args[1] if len(n.args) > 1 else -1.0 if hard else n.kwargs.get("min")
    high = n.args[2] if len(n.args) > 2 else 1.0 if hard else n.kwargs.get("max")
    text = x
    if high is not None:
        text = f"where({x} >= {w.number(high)}, {w.number(high)}, {text})"
    if low is not None:
        text = f"where({x} <= {w.number(low)}, {w.number(low)}, {text})"
    return text


@rule("gelu.default")
def _gelu(w: Writer, n: Any) -> str:
    x = w.let(w.value(n.args[0]))
    if n.kwargs.get("approximate", "none") == "tanh":
        return f"(0.5 * {x} * (1 + tanh(sqrt(2/pi) * ({x} + 0.044715 * {x}^2 * {x}))))"
    return f"(0.5 * {x} * (1 + erf({x} * (1/sqrt(2)))))"


@rule("pow.Tensor_Scalar")
def _pow(w: Writer, n: Any) -> str:
    x, exponent = w.value(n.args[0]), n.args[1]
    if exponent == 0.5:
        return f"sqrt({x})"
    if exponent == -0.5:
        return f"rsqrt({x})"
    if exponent in (2, 3, 4):
        x = w.let(x)
        return {2: f"({x}^2)", 3: f"({x}^2 * {x})", 4: f"(({x}^2)^2)"}[int(exponent)]
    return f"pow({x}, {w.number(exponent)})"


@rule("xlogy.Tensor")
def _xlogy(w: Writer, n: Any) -> str:
    """x log(y), and 0 where x is 0."""
    x = w.let(w.value(n.args[0]))
    return f"where({x} == 0, 0, {x} * log({w.value(n.args[1])}))"


@rule("pow.Tensor_Tensor")
def _pow_tensor(w: Writer, n: Any) -> str:
    return f"pow({w.value(n.args[0])}, {w.value(n.args[1])})"


# ---- Casts and constants. ----


@rule("_to_copy.default")
def _to_copy(w: Writer, n: Any) -> str:
    """Mathematics does not see a cast; for "as written" see Writer._rounded()."""
    x = w.value(n.args[0])
    wanted = n.kwargs.get("dtype")
    source = n.args[0].meta["val"].dtype
    if wanted is not None and not wanted.is_floating_point and source.is_floating_point:
        raise Refused(f"a cast from {source} to {wanted}")
    return x


@rule("scalar_tensor.default")
def _scalar(w: Writer, n: Any) -> str:
    if _constant(n, math.isnan) and all(_is_nan_of(u.args[0]) is not None for u in n.users if "where" in str(u.target)):
        return ""  # _where() has another word for it
    return w.number(n.args[0])


@rule("full_like.default", "full.default")
def _full(w: Writer, n: Any) -> str:
    return w.number(n.args[1])


@rule("zeros_like.default")
def _zeros(w: Writer, n: Any) -> str:
    return "0"


@rule("arange.start_step")
def _arange(w: Writer, n: Any) -> str:
    start, end, step = n.args[0], n.args[1], n.args[2] if len(n.args) > 2 else 1
    if step == 1 and isinstance(start, int):
        count = w.number(end) if start == 0 else f"{w.number(end)} - {start}"
        return f"arange({count})" if start == 0 else f"(arange({count}) + {start})"
    raise Refused(f"the step {step}")


# ---- Sums and the like: the language keeps reduced axes. ----


def _reduction(function: str) -> Any:
    def write(w: Writer, n: Any) -> str:
        source = n.args[0]
        axes = w.axes(source, n.args[1] if len(n.args) > 1 else None)
        keep = n.args[2] if len(n.args) > 2 else False
        if not w.rank(source):
            return w.value(source)
        text = f"{function}({w.value(source)}, {', '.join(map(str, axes))})"
        return w.reduced(text, n, source, axes, keep)

    return write


for _name in ("sum.dim_IntList", "sum.default"):
    rule(_name)(_reduction("sum"))
for _name in ("mean.dim", "mean.default"):
    rule(_name)(_reduction("mean"))
for _name in ("amax.default", "any.dim"):
    rule(_name)(_reduction("max"))
rule("amin.default")(_reduction("min"))


def _extreme(function: str) -> Any:
    """max.dim and min.dim: values, and indices that the language does not have."""

    def write(w: Writer, n: Any) -> list[str]:
        source = n.args[0]
        axes = w.axes(source, n.args[1])
        keep = n.args[2] if len(n.args) > 2 else False
        text = f"{function}({w.value(source)}, {axes[0]})"
        if not keep:
            text = f"squeeze({text}, {axes[0]})"
        return [w.let(text), ""]

    return write


rule("max.dim")(_extreme("max"))
rule("min.dim")(_extreme("min"))


@rule("var.correction")
def _var(w: Writer, n: Any) -> str:
    source = n.args[0]
    axes = w.axes(source, n.args[1] if len(n.args) > 1 else None)
    x = w.let(w.value(source))
    over = ", ".join(map(str, axes))
    centred = w.let(f"({x} - mean({x}, {over}))")
    count = " * ".join(w.extent(w.shape(source)[axis]) for axis in axes)
    correction = n.kwargs.get("correction", 1)
    correction = 1 if correction is None else correction
    text = f"(sum({centred}^2, {over}) / ({count} - {w.number(correction)}))"
    return w.reduced(text, n, source, axes, n.kwargs.get("keepdim", False))


@rule("cumsum.default")
def _cumsum(w: Writer, n: Any) -> str:
    return f"cumsum({w.value(n.args[0])}, {w.axes(n.args[0], n.args[1])[0]})"


@rule("_softmax.default")
def _softmax(w: Writer, n: Any) -> str:
    x, axis = w.source(n.args[0]), w.axes(n.args[0], n.args[1])[0]
    e = w.let(f"exp({x} - stop_gradient(max({x}, {axis})))")
    if w.other():
        return w.let_with(f"({e} / sum({e}, {axis}))", x, f"{{0}} * (d{{0}} - sum(d{{0}} * {{0}}, {axis}))")
    return f"({e} / sum({e}, {axis}))"


@rule("_log_softmax.default")
def _log_softmax(w: Writer, n: Any) -> str:
    x, axis = w.source(n.args[0]), w.axes(n.args[0], n.args[1])[0]
    shifted = w.let(f"({x} - stop_gradient(max({x}, {axis})))")
    text = f"({shifted} - log(sum(exp({shifted}), {axis})))"
    return w.let_with(text, x, f"d{{0}} - exp({{0}}) * sum(d{{0}}, {axis})") if w.other() else text


# ---- Products. ----


@rule("mm.default", "bmm.default")
def _mm(w: Writer, n: Any) -> str:
    return f"({w.value(n.args[0])} @ {w.value(n.args[1])})"


@rule("addmm.default")
def _addmm(w: Writer, n: Any) -> str:
    product = f"{w.value(n.args[1])} @ {w.value(n.args[2])}"
    alpha, beta = n.kwargs.get("alpha", 1), n.kwargs.get("beta", 1)
    if alpha != 1:
        product = f"{w.number(alpha)} * ({product})"
    bias = w.value(n.args[0]) if beta == 1 else f"{w.number(beta)} * {w.value(n.args[0])}"
    return f"({product} + {bias})"


# ---- Normalisation. ----


def _normalised(w: Writer, x: str, axes: str, eps: Any) -> tuple[str, str, str]:
    """(x - mean) / sqrt(var + eps) over axes, and both statistics with their axes kept."""
    mean = w.let(f"mean({x}, {axes})")
    centred = w.let(f"({x} - {mean})")
    inverse = w.let(f"rsqrt(mean({centred}^2, {axes}) + {w.number(eps)})")
    if w.other():  # a scale and a shift for each row
        return w.let(f"({x} * {inverse} - {mean} * {inverse})"), mean, inverse
    return w.let(f"({centred} * {inverse})"), mean, inverse


@rule("native_layer_norm.default")
def _layer_norm(w: Writer, n: Any) -> list[str]:
    source, shape, weight, bias, eps = n.args
    rank = w.rank(source)
    axes = ", ".join(str(axis) for axis in range(rank - len(shape), rank))
    out, mean, inverse = _normalised(w, w.let(w.value(source)), axes, eps)
    out = f"{out} * {w.value(weight)}" if weight is not None else out
    out = f"{out} + {w.value(bias)}" if bias is not None else out
    return [w.let(f"({out})"), mean, inverse]


@rule("native_group_norm.default")
def _group_norm(w: Writer, n: Any) -> list[str]:
    source, weight, bias, batch, channels, inner, groups, eps = n.args
    x = w.let(f"reshape({w.value(source)}, {w.number(batch)}, {w.number(groups)}, -1)")
    out, mean, inverse = _normalised(w, x, "2", eps)
    out = f"reshape({out}, {w.extents(source)})"
    ones = ", 1" * (w.rank(source) - 2)
    for parameter, sign in ((weight, "*"), (bias, "+")):
        if parameter is not None:
            out = f"{out} {sign} reshape({w.value(parameter)}, {w.number(channels)}{ones})"
    return [w.let(f"({out})"), mean, inverse]


def _channels(w: Writer, source: Any, parameter: Any) -> str:
    """A parameter of the channels, axis 1, beside the source."""
    return f"reshape({w.value(parameter)}, {w.extent(w.shape(source)[1])}{', 1' * (w.rank(source) - 2)})"


@rule("_native_batch_norm_legit_no_training.default")
def _batch_norm(w: Writer, n: Any) -> list[str]:
    source, weight, bias, mean, var, _, eps = n.args
    out = f"({w.value(source)} - {_channels(w, source, mean)}) * rsqrt({_channels(w, source, var)} + {w.number(eps)})"
    out = f"{out} * {_channels(w, source, weight)}" if weight is not None else out
    out = f"{out} + {_channels(w, source, bias)}" if bias is not None else out
    return [w.let(f"({out})"), "", ""]


@rule("_native_batch_norm_legit.no_stats", "_native_batch_norm_legit_functional.default")
def _batch_norm_of_batch(w: Writer, n: Any) -> list[str]:
    source, weight, bias = n.args[:3]
    if "functional" in str(n.target) and not n.args[5]:
        raise Refused("running statistics")
    axes = ", ".join(str(axis) for axis in range(w.rank(source)) if axis != 1)
    out, mean, inverse = _normalised(w, w.let(w.value(source)), axes, n.args[-1])
    out = f"{out} * {_channels(w, source, weight)}" if weight is not None else out
    out = f"{out} + {_channels(w, source, bias)}" if bias is not None else out
    return [w.let(f"({out})"), mean, inverse, "", ""]


from . import _aten_index as _index  # noqa: E402  (more rules)
