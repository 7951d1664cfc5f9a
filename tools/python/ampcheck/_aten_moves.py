# SPDX-License-Identifier: Apache-2.0
"""Core-ATen ops that move elements, and windows: convolution and pooling, in the language of formulas."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

from ._aten import Refused, Writer, rule

_MOST_TAPS = 128
MOST_MASKED = 25


@rule("view.default", "_unsafe_view.default", "unsqueeze.default", "squeeze.dims", "squeeze.dim", "reshape.default")
def _view(w: Writer, n: Any) -> str:
    if w.shape(n) == w.shape(n.args[0]):
        return w.value(n.args[0])
    return f"reshape({w.value(n.args[0])}, {w.extents(n)})"


@rule("permute.default")
def _permute(w: Writer, n: Any) -> str:
    order = w.axes(n.args[0], n.args[1])
    return f"transpose({w.value(n.args[0])}, {', '.join(map(str, order))})"


@rule("expand.default")
def _expand(w: Writer, n: Any) -> str:
    """Operators broadcast by themselves, products of matrices do not."""
    source, out = w.shape(n.args[0]), w.shape(n)
    x = w.value(n.args[0])
    if len(source) == len(out) and all(str(a) == str(b) for a, b in zip(source, out)):
        return x
    return f"({x} + reshape(arange({' * '.join(w.extent(e) for e in out)}) * 0, {w.extents(n)}))"


@rule("cat.default")
def _cat(w: Writer, n: Any) -> str:
    axis = w.axes(n.args[0][0], n.args[1] if len(n.args) > 1 else 0)[0]
    parts = [w.value(part) for part in n.args[0]]
    # A number stands for a tensor of it where that broadcasts, and here it does not.
    parts = [block(w, list(w.shape(of)), part) if re.fullmatch(r"[\d.e+-]+", part) else part
             for of, part in zip(n.args[0], parts)]
    return f"concat({', '.join(parts)}, axis={axis})"


@rule("flip.default")
def _flip(w: Writer, n: Any) -> str:
    text, shape = w.value(n.args[0]), w.shape(n.args[0])
    for axis in w.axes(n.args[0], n.args[1]):
        extent = shape[axis]
        if not isinstance(extent, int) or extent > _MOST_TAPS:
            raise Refused(f"an extent that varies, or is larger than {_MOST_TAPS}", by_extent=True)
        text = w.let(text)
        text = f"concat({', '.join(f'slice({text}, {axis}, {at}, {at + 1})' for at in reversed(range(extent)))}, axis={axis})"
    return text


@rule("cumprod.default")
def _cumprod(w: Writer, n: Any) -> str:
    axis = w.axes(n.args[0], n.args[1])[0]
    extent = w.shape(n.args[0])[axis]
    if not isinstance(extent, int) or extent > _MOST_TAPS:
        raise Refused(f"an extent that varies, or is larger than {_MOST_TAPS}", by_extent=True)
    text = w.source(n.args[0])
    products = [w.let(f"slice({text}, {axis}, 0, 1)")]
    for at in range(1, extent):
        products.append(w.let(f"({products[-1]} * slice({text}, {axis}, {at}, {at + 1}))"))
    out = f"concat({', '.join(products)}, axis={axis})"
    if w.other():  # torch divides: the gradient of each product, by the factor
        return w.let_with(out, text, f"cumsum(d{{0}} * {{0}}, {axis}, reversed=1) / {text}")
    return out


def _each(w: Writer, source: Any, axis: int, places: tuple[Any, Any, Any]) -> str:
    """Every step-th element: cut into blocks of a step, of which one is taken."""
    shape = list(w.shape(source))
    extent = shape[axis]
    if not all(isinstance(e, int) for e in (extent, *places)):
        raise Refused("a step over an extent that varies", by_extent=True)
    begin, end = (min(max(e + extent if e < 0 else e, 0), extent) for e in places[:2])
    step, count = places[2], -(-(end - begin) // places[2])
    if count <= 0:
        raise Refused("an empty slice")
    return _taken(w, w.value(source), axis, begin, count, step, shape)


@rule("slice.Tensor")
def _slice(w: Writer, n: Any) -> str:
    source = n.args[0]
    axis = w.axes(source, n.args[1] if len(n.args) > 1 else 0)[0]
    extent = w.shape(source)[axis]
    begin = n.args[2] if len(n.args) > 2 and n.args[2] is not None else 0
    end = n.args[3] if len(n.args) > 3 and n.args[3] is not None else extent
    step = n.args[4] if len(n.args) > 4 else 1
    if isinstance(end, int) and end >= 2**62:
        end = extent
    if step != 1:
        return _each(w, source, axis, (begin, end, step))
    if isinstance(begin, int) and isinstance(end, int) and end == 0:
        raise Refused("an empty slice")
    last = w.number(end)
    if isinstance(extent, int) and isinstance(end, int):
        last = str(min(end if end >= 0 else end + extent, extent))
    return f"slice({w.value(source)}, {axis}, {w.number(begin)}, {last})"


@rule("select.int")
def _select(w: Writer, n: Any) -> str:
    source, at = n.args[0], n.args[2]
    axis = w.axes(source, n.args[1])[0]
    extent = w.extent(w.shape(source)[axis])
    begin = w.number(at) if at >= 0 else f"{extent} - {-at}"
    one = f"slice({w.value(source)}, {axis}, {begin}, {begin} + 1)"
    return f"squeeze({one}, {axis})"


@rule("constant_pad_nd.default")
def _pad(w: Writer, n: Any) -> str:
    value = n.args[2] if len(n.args) > 2 else 0
    shape = list(w.shape(n.args[0]))
    text = w.value(n.args[0])
    for at, (before, after) in enumerate(zip(n.args[1][::2], n.args[1][1::2])):
        axis = len(shape) - 1 - at
        if before < 0 or after < 0:
            raise Refused("a negative padding")
        text = padded(w, text, shape, axis, before, after, w.number(value))
        shape[axis] = shape[axis] + before + after
    return text


def block(w: Writer, shape: list[Any], value: str) -> str:
    """A tensor of one number."""
    count = " * ".join(w.extent(e) for e in shape)
    return f"reshape(arange({count}) * 0 + {value}, {', '.join(w.extent(e) for e in shape)})"


def padded(w: Writer, text: str, shape: list[Any], axis: int, before: int, after: int, value: str) -> str:
    parts = [text]
    if before:
        parts.insert(0, block(w, [before if i == axis else e for i, e in enumerate(shape)], value))
    if after:
        parts.append(block(w, [after if i == axis else e for i, e in enumerate(shape)], value))
    return f"concat({', '.join(parts)}, axis={axis})" if len(parts) > 1 else text


def each(value: Any, count: int, default: int) -> list[int]:
    if value is None or value == []:
        return [default] * count
    out = [value] if isinstance(value, int) else list(value)
    return out * count if len(out) == 1 else out


def windows(w: Writer, text: str, shape: list[Any], kernel: list[int], stride: list[int], padding: list[int],
             dilation: list[int]) -> tuple[list[str], list[Any]]:
    """For each tap of the kernel the image that it meets, as [N, C, outputs...], and the outputs' extents.

    Strides have no function of their own: the image is cut into blocks of one stride, and one of each block is taken."""
    spatial = len(kernel)
    if math.prod(kernel) > _MOST_TAPS:
        raise Refused(f"a window of {math.prod(kernel)} taps, more than {_MOST_TAPS}")
    extents = list(shape)
    for k in range(spatial):
        if padding[k]:
            text = padded(w, text, extents, 2 + k, padding[k], padding[k], "0")
            extents[2 + k] = extents[2 + k] + 2 * padding[k]
    image = w.let(text)
    outputs = [(extents[2 + k] - dilation[k] * (kernel[k] - 1) - 1) // stride[k] + 1 for k in range(spatial)]
    if any(stride[k] > 1 and not isinstance(outputs[k], int) for k in range(spatial)):
        raise Refused("a stride over an extent that varies", by_extent=True)
    taps = []
    for at in itertools.product(*(range(k) for k in kernel)):
        tap = image
        for k in range(spatial):
            begin = at[k] * dilation[k]
            tap = _taken(w, tap, 2 + k, begin, outputs[k], stride[k], [*extents[:2], *outputs[:k], *extents[2 + k:]])
        taps.append(tap)
    return taps, outputs


def _taken(w: Writer, text: str, axis: int, begin: int, count: Any, stride: int, now: list[Any]) -> str:
    """count elements from begin on, each stride-th, of a tensor of the extents `now`."""
    if stride == 1:
        return f"slice({text}, {axis}, {begin}, {begin} + {w.extent(count)})"
    if begin + count * stride > now[axis]:  # the last block is cut short: fill it, nobody reads the filling
        text = padded(w, text, now, axis, 0, begin + count * stride - now[axis], "0")
    block = f"slice({text}, {axis}, {begin}, {begin + count * stride})"
    cut = [w.extent(e) for e in now[:axis]] + [str(count), str(stride)] + [w.extent(e) for e in now[axis + 1:]]
    return f"squeeze(slice(reshape({block}, {', '.join(cut)}), {axis + 1}, 0, 1), {axis + 1})"


@rule("convolution.default")
def _convolution(w: Writer, n: Any) -> str:
    x, weight, bias, stride, padding, dilation, transposed, _, groups = n.args
    if transposed:
        from ._aten_transposed import convolution

        return convolution(w, n)
    shape, filters = list(w.shape(x)), list(w.shape(weight))
    spatial = len(shape) - 2
    if any(not isinstance(e, int) for e in (filters if groups > 1 else filters[2:])):
        raise Refused("a filter whose extents vary", by_extent=True)
    window = (filters[2:], each(stride, spatial, 1), each(padding, spatial, 0), each(dilation, spatial, 1))
    taps, outputs = windows(w, w.value(x), shape, *window)
    batch, channels = w.extent(shape[0]), w.extent(filters[1])
    of_group = w.extent(filters[0]) if groups == 1 else str(filters[0] // groups)
    width = f"{channels} * {math.prod(filters[2:])}"
    places = " * ".join(w.extent(e) for e in outputs)
    if any(window[2]) and math.prod(filters[2:]) <= MOST_MASKED and w.other():
        product = _inside_only(w, n, taps, window, (batch, channels, of_group, places))
        return _image(w, n, product, outputs)
    rows = f"{batch}, {groups}, {channels}, {places}"
    columns = w.let("concat(" + ", ".join(f"reshape({w.let(tap)}, {rows})" for tap in taps) + ", axis=2)")
    order = [0, *range(2, 2 + spatial), 1]
    matrix = f"transpose({w.value(weight)}, {', '.join(map(str, order))})"
    across = f"transpose({columns}, 1, 2, 0, 3)"  # [groups, taps x channels, batch, places]: one product for all images
    if groups == 1:
        product = f"reshape({matrix}, {of_group}, {width}) @ reshape({across}, {width}, {batch} * {places})"
    else:
        product = (f"reshape({matrix}, {groups}, {of_group}, {width}) @ "
                   f"reshape({across}, {groups}, {width}, {batch} * {places})")
    return _image(w, n, product, outputs)


def _image(w: Writer, n: Any, product: str, outputs: list[Any]) -> str:
    """[filters, batch x places] as [batch, filters, places...], and the bias."""
    x, weight, bias = n.args[:3]
    filters, spatial = w.extent(w.shape(weight)[0]), len(outputs)
    spread = ", ".join([filters, w.extent(w.shape(x)[0]), *(w.extent(e) for e in outputs)])
    out = f"transpose(reshape({w.let(f'({product})')}, {spread}), 1, 0{''.join(f', {2 + k}' for k in range(spatial))})"
    if bias is None:
        return out
    return f"({out} + reshape({w.value(bias)}, {filters}{', 1' * spatial}))"


def _inside_only(w: Writer, n: Any, taps: list[str], window: Any, extents: tuple[str, str, str, str]) -> str:
    """The same sum without the products outside of the image: kernels skip them, and an infinite weight shows it."""
    x, weight, groups = n.args[0], n.args[1], n.args[8]
    batch, channels, of_group, places = extents
    shape = [w.shape(x)[0], 1, *w.shape(x)[2:]]
    masks, _ = windows(w, block(w, shape, "1"), shape, *window)
    terms = []
    for at, (tap, mask) in zip(itertools.product(*(range(k) for k in window[0])), zip(taps, masks)):
        filter_ = w.value(weight)
        for k, i in enumerate(at):
            filter_ = f"slice({filter_}, {2 + k}, {i}, {i + 1})"
        image = f"transpose(reshape({tap}, {batch}, {groups}, {channels}, {places}), 1, 2, 0, 3)"
        image = w.let(f"reshape({image}, {groups}, {channels}, {batch} * {places})")
        product = w.let(f"(reshape({filter_}, {groups}, {of_group}, {channels}) @ {image})")
        terms.append(w.let(f"where(reshape({mask}, 1, 1, {batch} * {places}), {product}, 0)"))
    return " + ".join(terms)


def _pooling(w: Writer, n: Any, spatial: int) -> tuple[list[int], list[int], list[int]]:
    kernel = each(n.args[1], spatial, 1)
    stride = each(n.args[2] if len(n.args) > 2 else None, spatial, 0)
    stride = kernel if not any(stride) else stride
    padding = each(n.args[3] if len(n.args) > 3 else None, spatial, 0)
    return kernel, stride, padding


def _ceil_extra(extents: list[Any], window: tuple[list[int], list[int], list[int]], dilation: list[int]) -> list[int]:
    """ceil_mode: how far the last window of each axis reaches beyond the padding. It begins inside the image or its left
    padding (torch's pooling_output_shape)."""
    out = []
    for extent, k, stride, padding, apart in zip(extents, *window, dilation):
        if not isinstance(extent, int):
            raise Refused("ceil_mode over an extent that varies", by_extent=True)
        reach = extent + 2 * padding - apart * (k - 1) - 1
        count = -(-reach // stride) + 1
        count -= (count - 1) * stride >= extent + padding
        out.append(max((count - 1) * stride - reach, 0))
    return out


def _max_inside(w: Writer, n: Any, window: tuple[list[int], list[int], list[int], list[int]]) -> list[str]:
    """A dilated window may leave the edge out: where a tap lies outside, the one in the middle, which never does, stands for
    it and changes no maximum."""
    kernel, _, padding, dilation = window
    shape = list(w.shape(n.args[0]))
    middle = [min(max(-(-p // d), 0), k - 1) for k, p, d in zip(kernel, padding, dilation)]
    if any(m * d < p or (k - 1 - m) * d < p for m, k, p, d in zip(middle, kernel, padding, dilation)):
        raise Refused("a window without a tap that always lies inside")
    taps, outputs = windows(w, w.value(n.args[0]), shape, *window)
    ones = [shape[0], 1, *shape[2:]]
    masks, _ = windows(w, block(w, ones, "1"), ones, *window)
    inside = w.let(taps[list(itertools.product(*(range(k) for k in kernel))).index(tuple(middle))])
    out = ", ".join([w.extent(shape[0]), w.extent(shape[1]), *(w.extent(e) for e in outputs)])
    one = ", ".join(f"reshape(where({w.let(mask)} > 0, {tap}, {inside}), {out}, 1)" for tap, mask in zip(taps, masks))
    axis = len(shape)
    return [w.let(f"squeeze(max(concat({one}, axis={axis}), {axis}), {axis})"), ""]


def _max_pool(spatial: int) -> Any:
    def write(w: Writer, n: Any) -> list[str]:
        kernel, stride, padding = _pooling(w, n, spatial)
        dilation = each(n.args[4] if len(n.args) > 4 else None, spatial, 1)
        text, extents = w.value(n.args[0]), list(w.shape(n.args[0]))
        ceil = len(n.args) > 5 and n.args[5]
        extra = _ceil_extra(extents[2:], (kernel, stride, padding), dilation) if ceil else [0] * spatial
        if any((p or e) and d > 1 for p, e, d in zip(padding, extra, dilation)):
            if any(extra):
                raise Refused("ceil_mode=True of a dilated window")
            return _max_inside(w, n, (kernel, stride, padding, dilation))
        for k in range(spatial):  # a window that reaches outside holds the edge: repeating it changes no maximum
            if padding[k] or extra[k]:
                text = w.let(text)
                last = w.extent(extents[2 + k])
                first = [f"slice({text}, {2 + k}, 0, 1)"] * padding[k]
                behind = [f"slice({text}, {2 + k}, {last} - 1, {last})"] * (padding[k] + extra[k])
                text = f"concat({', '.join([*first, text, *behind])}, axis={2 + k})"
                extents[2 + k] = extents[2 + k] + 2 * padding[k] + extra[k]
        taps, _ = windows(w, text, extents, kernel, stride, [0] * spatial, dilation)
        shape = w.extents(next(u for u in n.users if u.args[1] == 0))
        one = ", ".join(f"reshape({tap}, {shape}, 1)" for tap in taps)
        return [w.let(f"squeeze(max(concat({one}, axis={2 + spatial}), {2 + spatial}), {2 + spatial})"), ""]

    return write


rule("max_pool2d_with_indices.default")(_max_pool(2))
rule("max_pool3d_with_indices.default")(_max_pool(3))


def _avg_pool(spatial: int) -> Any:
    def write(w: Writer, n: Any) -> str:
        kernel, stride, padding = _pooling(w, n, spatial)
        counts_padding = len(n.args) <= 5 or n.args[5]
        shape, ones = list(w.shape(n.args[0])), [1] * spatial
        ceil = len(n.args) > 4 and n.args[4]
        extra = _ceil_extra(shape[2:], (kernel, stride, padding), ones) if ceil else [0] * spatial

        def taps(text: str, extents: list[Any], edge: str) -> str:
            for k in range(spatial):
                if padding[k]:
                    text = padded(w, text, extents, 2 + k, padding[k], padding[k], edge)
                    extents[2 + k] = extents[2 + k] + 2 * padding[k]
                if extra[k]:
                    text = padded(w, text, extents, 2 + k, 0, extra[k], "0")
                    extents[2 + k] = extents[2 + k] + extra[k]
            return " + ".join(windows(w, text, extents, kernel, stride, [0] * spatial, ones)[0])

        total = taps(w.value(n.args[0]), list(shape), "0")
        if len(n.args) > 6 and n.args[6] is not None:
            return f"(({total}) / {w.number(n.args[6])})"
        if not any(extra) and (counts_padding or not any(padding)):
            return f"(({total}) / {math.prod(kernel)})"
        image = [1, 1, *shape[2:]]
        return f"(({total}) / ({taps(block(w, image, '1'), image, '1' if counts_padding else '0')}))"

    return write


rule("avg_pool1d.default")(_avg_pool(1))
rule("avg_pool2d.default")(_avg_pool(2))
rule("avg_pool3d.default")(_avg_pool(3))
