# SPDX-License-Identifier: Apache-2.0
"""Triton's interpreter beside a GPU. It keeps bf16 as 16 bits of an integer: conversions to it drop bits where a GPU rounds to
nearest, and arithmetic on two bf16 numbers is that of the integers (Triton 3.9). While a function is judged here, both are
those of a GPU: the type's own operation, as one of fp32 that is rounded once."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

_INTERPRETER = "triton.runtime.interpreter"
_inside = threading.local()


def to_bf16(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The bits of fp32 numbers, rounded to nearest, ties to even; NaN stays NaN."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1)).astype(np.uint32)) >> 16
    return np.where(np.isnan(values), (bits >> 16) | 0x40, rounded).astype(np.uint16)


def from_bf16(bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return (np.ascontiguousarray(bits).astype(np.uint32) << 16).view(np.float32)


def _install(module: Any) -> None:
    """Wraps what converts and what computes. Both do as they did wherever no function is judged."""
    tl, builder, handle = module.tl, module.InterpreterBuilder, module.TensorHandle
    convert, binary, unary = module._convert_float, builder.binary_op, builder.unary_op
    nearest = getattr(module._ir.ROUNDING_MODE, "RTNE", None)

    def judged() -> bool:
        return getattr(_inside, "depth", 0) > 0

    def converted(values: Any, from_type: Any, to_type: Any, mode: Any) -> Any:
        if judged() and from_type == tl.float32 and to_type == tl.bfloat16 and mode in (None, nearest):
            return to_bf16(values.view(np.float32))
        if judged() and from_type == tl.bfloat16 and to_type == tl.float32:
            return from_bf16(values.view(np.uint16)).view(np.uint32)
        return convert(values, from_type, to_type, mode)

    def is_bf16(*operands: Any) -> bool:
        return judged() and all(x.dtype.scalar == tl.bfloat16 and x.data.dtype == np.uint16 for x in operands)

    def rounded(got: Any, dtype: Any) -> Any:
        return handle(to_bf16(got) if got.dtype == np.float32 else got, dtype)

    def binary_op(self: Any, left: Any, right: Any, op: Callable[..., Any]) -> Any:
        if not is_bf16(left, right):
            return binary(self, left, right, op)
        with np.errstate(all="ignore"):
            return rounded(op(from_bf16(left.data), from_bf16(right.data)), left.dtype.scalar)

    def unary_op(self: Any, operand: Any, op: Callable[..., Any]) -> Any:
        if not is_bf16(operand):
            return unary(self, operand, op)
        with np.errstate(all="ignore"):
            return rounded(op(from_bf16(operand.data)), operand.dtype.scalar)

    module._convert_float, builder.binary_op, builder.unary_op = converted, binary_op, unary_op


class _AsOnAGpu:
    """While a function is judged."""

    def __enter__(self) -> None:
        _inside.depth = getattr(_inside, "depth", 0) + 1
        module = sys.modules.get(_INTERPRETER)
        if module is not None and not hasattr(module, "_ampcheck"):
            module._ampcheck = True  # type: ignore[attr-defined]
            try:
                _install(module)
            except AttributeError:  # another version of Triton: it stays as it is
                pass

    def __exit__(self, *_: object) -> None:
        _inside.depth -= 1


as_on_a_gpu = _AsOnAGpu()
