# SPDX-License-Identifier: Apache-2.0
"""Smaller inputs of a reference, without its memory: windows of images need extents that are known when a formula is written,
and a benchmark's images are large."""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

#: Extents beyond it become smaller where the reference takes that.
_MOST = 40
#: Windows with more taps and places than that make a case slow.
_MOST_WORK = 1 << 21
#: Extents multiplied, of one image: a case with several images stays below the judge's usual limit, 2^24.
_MOST_PRODUCT = 1 << 22
#: The same where extents of parameters have to be smaller, from as many on: then they can as well be small.
_MOST_OF_PARAMETERS = 1 << 18
#: Taps and places of all images of a batch.
_MOST_OF_BATCH = 1 << 23


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Extents that the reference does not take are no error: torch prints each."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(level)


def _with_extent(x: Any, old: int, new: int, first: int, axis: int | None = None) -> Any:
    """The same tensor where it has no such extent. axis: this one alone changes."""
    if not isinstance(x, torch.Tensor):
        return x
    shape = [new if n == old and at >= first and axis in (None, at) else n for at, n in enumerate(x.shape)]
    return x if shape == list(x.shape) else torch.empty(shape, dtype=x.dtype)


def _takes(reference: Callable[..., Any], arguments: list[Any]) -> bool:
    try:
        reference(*arguments)
        return True
    except Exception:
        return False


def _changed(reference: Callable[..., Any], now: list[Any], inputs: int, extent: int, new: int, tied: set[int]) -> Any:
    """The arguments with another extent, as the reference takes them: alone, or with one that follows from it, as the extent of
    what is added to an upsampled image. None: it takes neither."""
    images = {n for x in now[:inputs] if isinstance(x, torch.Tensor) for n in x.shape[2:]} - {extent}
    for other in (None, *sorted(images, reverse=True)):
        trial = now[:inputs]
        for old, to in ((extent, new), (other, other and other * new // extent)):
            if old is not None and to:
                trial = [_with_extent(x, old, to, 2 if old in tied else 0) for x in trial]
        if _takes(reference, [*trial, *now[inputs:]]):
            return [*trial, *now[inputs:]]
    return None


def _one_axis_changed(reference: Callable[..., Any], now: list[Any], inputs: int, extent: int) -> Any:
    """The arguments with half this extent at one axis of the images, the first that the reference takes, or None."""
    for axis in range(2, max((x.ndim for x in now[:inputs] if isinstance(x, torch.Tensor)), default=0)):
        trial = [_with_extent(x, extent, -(-extent // 2), 2, axis) for x in now[:inputs]]
        moved = any(a is not b for a, b in zip(trial, now))
        if moved and _takes(reference, [*trial, *now[inputs:]]):
            return [*trial, *now[inputs:]]
    return None


def shrunk(reference: Callable[..., Any], arguments: Sequence[Any], inputs: int, draw: Any) -> tuple[list[Any], int]:
    """The arguments as fake tensors with smaller extents, the first `inputs` of them alone: equal extents stay equal, and what
    is an extent of a parameter, too, changes behind the channels alone. Then how many images a batch may hold, 2 at least."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode()

    def fake(x: Any) -> Any:
        return torch.empty(x.shape, dtype=x.dtype) if isinstance(x, torch.Tensor) else x

    with mode, torch.no_grad(), _quiet():
        now = [fake(x) for x in arguments]
        tied = {n for x in now[inputs:] if isinstance(x, torch.Tensor) for n in x.shape}
        extents = sorted({n for x in now[:inputs] if isinstance(x, torch.Tensor) for n in x.shape if n > _MOST}, reverse=True)
        images = max((x.ndim for x in now[:inputs] if isinstance(x, torch.Tensor)), default=0)
        sizes = (7, 11) if images >= 5 else (12, 24)
        for extent in extents:
            for new in (draw.randint(*sizes), 8 * draw.randint(1, 3), 32, 64):
                changed = _changed(reference, now, inputs, extent, new, tied)
                if changed is not None:
                    now = changed
                    break
        now = _cheaper(reference, now, inputs, tied)
        if _product(now, inputs) >= _MOST_PRODUCT:
            now = _with_smaller_parameters(reference, now, inputs, draw)
        work = _work(reference(*now), now[inputs:], _channels(now[:inputs], tied))
        return now, max(2, _MOST_OF_BATCH // max(work, 1))


def _channels(images: Sequence[Any], tied: set[int]) -> int:
    return max((x.shape[1] for x in images if isinstance(x, torch.Tensor) and x.ndim > 2 and x.shape[1] in tied), default=1)


def _work(y: Any, arguments: Sequence[Any], channels: int) -> int:
    """Places of the result times taps of the largest window: what a formula lists for each channel of an image. A transposed
    convolution has the places, too, that its padding takes away."""
    results = [t for t in (y if isinstance(y, (tuple, list)) else [y]) if isinstance(t, torch.Tensor)]
    windows = [x.shape[2:] for x in arguments if isinstance(x, torch.Tensor)]
    window = max(windows, key=math.prod, default=torch.Size())
    places = max((math.prod(n + k - 1 for n, k in itertools.zip_longest(t.shape[2:], window, fillvalue=1)) for t in results),
                 default=1)
    return places * math.prod(window) * channels


def _product(arguments: Sequence[Any], inputs: int) -> int:
    """Of all extents but the batch's and those of further images, each dimension once, as a trace names them: what the judge
    counts a case by."""
    known: list[int] = []
    for at, x in enumerate(arguments):
        own = list(known)
        if not isinstance(x, torch.Tensor):
            continue
        for n in x.shape[1 if at < inputs else 0:2 if 0 < at < inputs else None]:
            if n in own:
                own.remove(n)
            else:
                known.append(n)
    return math.prod(known)


def _cheaper(reference: Callable[..., Any], now: list[Any], inputs: int, tied: set[int]) -> list[Any]:
    """Images that a large window meets become smaller still, the largest extent first."""
    stuck: set[int] = set()
    channels = _channels(now[:inputs], tied)
    while _work(reference(*now), now[inputs:], channels) > _MOST_WORK or _product(now, inputs) > _MOST_PRODUCT:
        extents = {n for x in now[:inputs] if isinstance(x, torch.Tensor) for n in x.shape[2:] if n > 1} - stuck
        if not extents:
            break
        extent = max(extents)
        changed = _changed(reference, now, inputs, extent, -(-extent // 2), tied)
        if changed is None:  # equal extents of which one is needed as it is
            changed = _one_axis_changed(reference, now, inputs, extent)
        if changed is None:
            stuck.add(extent)
        else:
            now = changed
    return now


def _with_smaller_parameters(reference: Callable[..., Any], now: list[Any], inputs: int, draw: Any) -> list[Any]:
    """No image is large, but a matrix is, whose extents a window needs to know: they become smaller in inputs and parameters
    together, the largest first."""
    stuck: set[int] = set()
    while _product(now, inputs) > _MOST_OF_PARAMETERS:
        extents = {n for x in now if isinstance(x, torch.Tensor) for n in x.shape if n > _MOST} - stuck
        if not extents:
            break
        extent = max(extents)
        for new in (32 * draw.randint(3, 8), -(-extent // 2)):
            trial = [_with_extent(x, extent, new, 0) for x in now]
            if new < extent and _takes(reference, trial):
                now = trial
                break
        else:
            stuck.add(extent)
    return now
