# SPDX-License-Identifier: Apache-2.0
"""Core-ATen ops with indices: results that are places (argmax), and inputs that name places (gather, embedding)."""

from __future__ import annotations

from typing import Any

from ._aten import Refused, Writer, rule
from ._aten_moves import block

_SAME_INDEX = ("view.default", "unsqueeze.default", "squeeze.dims", "squeeze.dim", "clone.default", "alias.default",
               "_to_copy.default", "reshape.default", "_unsafe_view.default", "detach.default")


def is_integer(node: Any) -> bool:
    value = getattr(node, "meta", {}).get("val")
    dtype = getattr(value, "dtype", None)
    return dtype is not None and not dtype.is_floating_point and str(dtype) != "torch.bool"


def index_input(w: Writer, node: Any) -> str:
    """The integer input that a node holds the numbers of, in another shape perhaps. A cross entropy puts 0 for the targets
    that it ignores: cases have none of these."""
    from ._aten import _name_of

    while getattr(node, "op", "") == "call_function":
        name = _name_of(node.target)
        if name in _SAME_INDEX:
            node = node.args[0]
        elif name == "where.self":
            node = node.args[1]
        else:
            break
    if getattr(node, "op", "") != "placeholder" or node not in w.inputs:
        raise Refused("an index that is computed")
    return w.inputs[node]


# ---- Places of the largest and the smallest. ----


def _place(sign: str) -> Any:
    def write(w: Writer, n: Any) -> str:
        source = n.args[0]
        axis = n.args[1] if len(n.args) > 1 else None
        keep = n.args[2] if len(n.args) > 2 else False
        text, rank, extents = w.value(source), w.rank(source), list(w.shape(source))
        if axis is None:
            text, extents, rank, axis = f"reshape({text}, -1)", [w.shape(source)], 1, 0
            count = " * ".join(w.extent(e) for e in w.shape(source)) or "1"
        else:
            axis %= rank
            count = w.extent(extents[axis])
        out = w.places_of(w.let(f"({sign}{text})" if sign else text), axis, rank, count)
        return out if keep else w.reduced(out, n, source, [axis], False)

    return write


rule("argmax.default")(_place(""))
rule("argmin.default")(_place("-"))


# ---- Indices that come in. ----


@rule("embedding.default")
def _embedding(w: Writer, n: Any) -> str:
    if len(n.args) > 2 and n.args[2] >= 0:
        raise Refused("padding_idx")
    return _rows(w, n.args[0], n.args[1], n)


@rule("index_select.default")
def _index_select(w: Writer, n: Any) -> str:
    if n.args[1] % w.rank(n.args[0]):
        raise Refused(f"dim={n.args[1]}")
    return _rows(w, n.args[0], n.args[2], n)


@rule("index.Tensor")
def _index(w: Writer, n: Any) -> str:
    places = n.args[1]
    if len(places) != 1 or not is_integer(places[0]):
        raise Refused("indices of several axes, or a mask")
    return _rows(w, n.args[0], places[0], n)


def _rows(w: Writer, table: Any, index: Any, n: Any) -> str:
    name = index_input(w, index)
    w.index_of(name, w.shape(table)[0])
    text = w.value(table)
    if w.rank(table) != 2:
        text = f"reshape({text}, {w.extent(w.shape(table)[0])}, -1)"
    return f"reshape(gather({text}, {name}), {w.extents(n)})"


@rule("gather.default")
def _gather(w: Writer, n: Any) -> str:
    """One place of an axis for each index: all others are masked, and a mask hides an infinity where a product does not."""
    source, axis, index = n.args[0], n.args[1] % w.rank(n.args[0]), n.args[2]
    name = index_input(w, index)
    shape, wanted, text = list(w.shape(source)), list(w.shape(index)), w.value(source)
    for i, (extent, least) in enumerate(zip(shape, wanted)):
        if i == axis or str(extent) == str(least):
            continue
        if not w.tie(extent, least):  # torch reads the first ones alone
            text, shape[i] = f"slice({text}, {i}, 0, {w.extent(least)})", least
    w.index_of(name, shape[axis])
    width = w.extent(shape[axis])
    order = [i for i in range(len(shape)) if i != axis] + [axis]
    last = text if order == sorted(order) else f"transpose({text}, {', '.join(map(str, order))})"
    beside = ", ".join("1" if i == axis else w.extent(e) for i, e in enumerate(shape))
    hot = f"reshape(one_hot({name}, {width}), {w.extents(index)}, {width})"
    picked = f"where({hot}, reshape({last}, {beside}, {width}), 0)"
    return f"reshape(sum({picked}, {len(shape)}), {w.extents(n)})"


def ignores_some(w: Writer, n: Any) -> str | None:
    """What a comparison of an index with a negative number is: the mask of a loss that ignores the target -100."""
    try:
        name = index_input(w, n.args[0])
    except Refused:
        return None
    if not isinstance(n.args[1], int) or n.args[1] >= 0:
        raise Refused(f"an index beside {n.args[1]}")
    note = f"'{name}' is never {n.args[1]}: what the reference ignores is not tried"
    w.notes += [] if note in w.notes else [note]
    return block(w, list(w.shape(n)), "1")
