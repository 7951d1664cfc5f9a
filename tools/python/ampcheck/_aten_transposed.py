# SPDX-License-Identifier: Apache-2.0
"""Transposed convolution in the language of formulas: zeros are put between the elements of the image and around it, and the
filter goes over it from its last tap to its first."""

from __future__ import annotations

import itertools
import math
from typing import Any

from ._aten import Refused, Writer
from ._aten_moves import MOST_MASKED, block, each, padded, windows


def _spread(w: Writer, text: str, shape: list[Any], axis: int, stride: int) -> str:
    """stride - 1 zeros between two elements."""
    n = shape[axis]
    if stride == 1:
        return text
    before = [w.extent(e) for e in shape[:axis]]
    behind = [w.extent(e) for e in shape[axis + 1:]]
    blocks = f"pad(reshape({text}, {', '.join([*before, w.extent(n), '1', *behind])}), {axis + 1}, 0, {stride - 1})"
    flat = f"reshape({blocks}, {', '.join([*before, f'{w.extent(n)} * {stride}', *behind])})"
    shape[axis] = (n - 1) * stride + 1
    return f"slice({flat}, {axis}, 0, {w.extent(shape[axis])})"


def _around(w: Writer, text: str, shape: list[Any], axis: int, before: int, after: int) -> str:
    """Zeros at both ends; a negative number takes away."""
    first, last = max(-before, 0), shape[axis] - max(-after, 0)
    if first or after < 0:
        text = f"slice({text}, {axis}, {first}, {w.extent(last)})"
        shape[axis] = last - first
    text = padded(w, w.let(text), shape, axis, max(before, 0), max(after, 0), "0")
    shape[axis] = shape[axis] + max(before, 0) + max(after, 0)
    return text


def _image(w: Writer, n: Any, text: str, shape: list[Any], full: bool) -> tuple[list[str], list[Any]]:
    """The taps, in the order of the filter, and the outputs' extents. full: with the outputs that padding takes away."""
    stride, padding, dilation, extra = (each(v, len(shape) - 2, d) for v, d in zip((*n.args[3:6], n.args[7]), (1, 0, 1, 0)))
    kernel = list(w.shape(n.args[1]))[2:]
    shape = list(shape)
    for k in range(len(kernel)):
        text = _spread(w, w.let(text), shape, 2 + k, stride[k])
        reach = dilation[k] * (kernel[k] - 1) - (0 if full else padding[k])
        text = _around(w, text, shape, 2 + k, reach, reach + extra[k])
    ones = [1] * len(kernel)
    taps, outputs = windows(w, text, shape, kernel, ones, [0] * len(kernel), dilation)
    return taps[::-1], outputs


def convolution(w: Writer, n: Any) -> str:
    x, weight, bias, groups = n.args[0], n.args[1], n.args[2], n.args[8]
    shape, filters = list(w.shape(x)), list(w.shape(weight))
    if any(not isinstance(e, int) for e in (filters if groups > 1 else filters[2:])):
        raise Refused("a filter whose extents vary", by_extent=True)
    # What padding takes away is computed first: then gradients have the products with the zeros around, as torch's have.
    inside = math.prod(filters[2:]) <= MOST_MASKED and w.other()
    taps, outputs = _image(w, n, w.value(x), shape, not inside)
    batch, of_group, count = w.extent(shape[0]), w.extent(filters[1]), math.prod(filters[2:])
    channels = w.extent(filters[0]) if groups == 1 else str(filters[0] // groups)
    places = " * ".join(w.extent(e) for e in outputs)
    if inside:
        product = _inside_only(w, n, taps, shape, (batch, channels, of_group, places))
    else:
        rows = f"{batch}, {groups}, {channels}, {places}"
        columns = w.let("concat(" + ", ".join(f"reshape({w.let(tap)}, {rows})" for tap in taps) + ", axis=2)")
        across = f"reshape(transpose({columns}, 1, 2, 0, 3), {groups}, {channels} * {count}, {batch} * {places})"
        matrix = f"transpose(reshape({w.value(weight)}, {groups}, {channels}, {of_group}, {count}), 0, 2, 3, 1)"
        product = f"reshape({matrix}, {groups}, {of_group}, {channels} * {count}) @ {across}"
    results = of_group if groups == 1 else str(filters[1] * groups)
    spread = ", ".join([results, batch, *(w.extent(e) for e in outputs)])
    out = f"transpose(reshape({w.let(f'({product})')}, {spread}), 1, 0{''.join(f', {2 + k}' for k in range(len(outputs)))})"
    for k, padding in enumerate([] if inside else each(n.args[4], len(outputs), 0)):
        if padding:
            out = f"slice({out}, {2 + k}, {padding}, {w.extent(outputs[k] - padding)})"
    return out if bias is None else f"({out} + reshape({w.value(bias)}, {results}{', 1' * len(outputs)}))"


def _inside_only(w: Writer, n: Any, taps: list[str], shape: list[Any], extents: tuple[str, str, str, str]) -> str:
    """The same sum without the products with the zeros that were put in: kernels skip them, and an infinite weight shows it."""
    weight, groups = n.args[1], n.args[8]
    batch, channels, of_group, places = extents
    ones = [shape[0], 1, *shape[2:]]
    masks, _ = _image(w, n, block(w, ones, "1"), ones, False)
    terms = []
    for at, tap, mask in zip(itertools.product(*(range(k) for k in w.shape(weight)[2:])), taps, masks):
        filter_ = w.value(weight)
        for k, i in enumerate(at):
            filter_ = f"slice({filter_}, {2 + k}, {i}, {i + 1})"
        filter_ = f"transpose(reshape({filter_}, {groups}, {channels}, {of_group}), 0, 2, 1)"
        image = f"transpose(reshape({tap}, {batch}, {groups}, {channels}, {places}), 1, 2, 0, 3)"
        image = w.let(f"reshape({image}, {groups}, {channels}, {batch} * {places})")
        terms.append(w.let(f"where(reshape({mask}, 1, 1, {batch} * {places}), {w.let(f'({filter_} @ {image})')}, 0)"))
    return " + ".join(terms)
