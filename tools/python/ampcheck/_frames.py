# SPDX-License-Identifier: Apache-2.0
"""Tensors between the judge and the function, in the library that the function's own tensors come from.

The judge hands out memory that is valid during one call only. A function may keep what it was given, so it gets arrays of
its own: the same ones in calls of that shape, with new contents. A function that caches by pointer or by id() thus meets new
data at an old address, and its stale answer leaves the interval.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from ._core import UsageError

Memory = tuple[memoryview, tuple[int, ...], str]

_NUMPY = {"fp64": np.float64, "fp32": np.float32, "fp16": np.float16, "i64": np.int64, "i32": np.int32, "u8": np.uint8}
_OF_ML_DTYPES = {"bf16": "bfloat16", "e4m3fn": "float8_e4m3fn", "e5m2": "float8_e5m2"}


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype; bf16 and fp8 are those of ml_dtypes."""
    if name in _NUMPY:
        return np.dtype(_NUMPY[name])
    if name not in _OF_ML_DTYPES:
        raise UsageError(f"[dtypes] got '{name}', want {', '.join(['fp64', 'fp32', 'fp16', *_OF_ML_DTYPES])}")
    try:
        import ml_dtypes
    except ImportError:
        raise UsageError(f"[dtypes] got '{name}' for a NumPy function, want the package ml_dtypes, whose type it is") from None
    out: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _OF_ML_DTYPES[name]))
    return out


def view(memory: Memory) -> np.ndarray[Any, Any]:
    """The judge's memory as an array, without a copy."""
    data, shape, dtype = memory
    return np.frombuffer(data, dtype=numpy_dtype(dtype)).reshape(shape)


def address_of(memory: Memory) -> int:
    data = memory[0]
    return int(np.frombuffer(data, np.uint8).__array_interface__["data"][0]) if len(data) else 0


def dtype_name(array: np.ndarray[Any, Any]) -> str:
    for name, dtype in _NUMPY.items():
        if array.dtype == dtype:
            return name
    known = {"bfloat16": "bf16", "float8_e4m3fn": "e4m3fn", "float8_e5m2": "e5m2", "bool": "u8"}
    if array.dtype.name in known:
        return known[array.dtype.name]
    raise UsageError(f"got dtype {array.dtype}, want a floating type, int64, int32, uint8 or bool")


class Pool:
    """The arrays that a function gets: of each input and shape two at most, so that calls come with other data at the same
    address, and with the same data at another one, as the judge's own memory is the same or another."""

    _LARGE = 1 << 22  # elements of which one is enough

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], list[tuple[int, Any]]] = {}

    def array(self, slot: object, memory: Memory, make: Callable[[], Any]) -> Any:
        """The one for this memory, else a new one, else the one that was used before the last."""
        _, shape, dtype = memory
        known = self._known.setdefault((slot, shape, dtype), [])
        address = address_of(memory)
        at = next((i for i, (place, _) in enumerate(known) if place == address), -1)
        if at < 0 and len(known) < (2 if math.prod(shape) <= self._LARGE else 1):
            known.append((address, make()))
        else:
            known.append((address, known.pop(max(at, 0))[1]))
        return known[-1][1]

    def clear(self) -> None:
        self._known.clear()


class NumpyFrame:
    """Functions of NumPy arrays."""

    name = "numpy"

    def __init__(self) -> None:
        self._pool = Pool()

    def dtype(self, tensor: Any) -> str:
        return dtype_name(tensor)

    def require(self, dtype: str) -> None:
        """Raises UsageError where functions of such arrays take no such type, before one is called with it."""
        numpy_dtype(dtype)

    def shape(self, tensor: Any) -> tuple[int, ...]:
        return tuple(int(n) for n in tensor.shape)

    def is_bool(self, tensor: Any) -> bool:
        return bool(tensor.dtype == np.bool_)

    def all_positive(self, tensor: Any) -> bool:
        return tensor.size > 0 and bool(np.all(tensor > 0))

    def with_dtype(self, tensor: Any, dtype: str) -> Any:
        return tensor.astype(numpy_dtype(dtype))

    def taken(self, slot: object, memory: Memory, boolean: bool) -> Any:
        """The function's own array with the contents of the memory."""
        _, shape, dtype = memory
        out = self._pool.array(slot, memory, lambda: np.empty(shape, np.bool_ if boolean else numpy_dtype(dtype)))
        out.setflags(write=True)
        np.copyto(out, view(memory), casting="unsafe")
        return out

    def changed(self, tensor: Any, memory: Memory) -> None:
        """Puts back what the function wrote over an input, so that the judge sees it."""
        source = np.ascontiguousarray(tensor).astype(numpy_dtype(memory[2]), copy=False)
        if source.tobytes() != bytes(memory[0]):
            memory[0][:] = source.tobytes()

    def put(self, tensor: Any, memory: Memory, what: str) -> None:
        """Writes a result of the function into the judge's memory; a wrong shape is said as the function's fault."""
        got = np.asarray(tensor)
        if got.ndim == 0 and all(n == 1 for n in memory[1]):  # formulas keep the axes that a sum over all drops
            got = got.reshape(memory[1])
        if got.shape != memory[1]:
            raise ValueError(f"{what} has shape {list(got.shape)}, want {list(memory[1])}")
        with np.errstate(over="ignore", invalid="ignore"):
            np.copyto(view(memory), got, casting="unsafe")

    def bits(self, tensor: Any) -> bytes:
        return np.asarray(tensor).tobytes()

    def quiet(self) -> Any:
        """The cases overflow on purpose: NumPy's warnings would say so thousands of times."""
        return np.errstate(all="ignore")

    def empty(self) -> None:
        self._pool.clear()


class ArrayFrame(NumpyFrame):
    """Functions of another library's arrays, which come and go by DLPack."""

    def __init__(self, example: Any) -> None:
        super().__init__()
        namespace = getattr(example, "__array_namespace__", None)
        self._library = namespace() if namespace else sys.modules[type(example).__module__.split(".")[0]]
        self.name = self._library.__name__.split(".")[0]
        if not hasattr(self._library, "from_dlpack"):
            raise UsageError(f"[inputs] got a {type(example).__name__}, whose library has no from_dlpack")

    @staticmethod
    def _host(tensor: Any) -> np.ndarray[Any, Any]:
        return np.asarray(tensor) if hasattr(tensor, "__array__") else np.from_dlpack(tensor)

    def dtype(self, tensor: Any) -> str:
        return dtype_name(self._host(tensor))

    def shape(self, tensor: Any) -> tuple[int, ...]:
        return super().shape(self._host(tensor))

    def is_bool(self, tensor: Any) -> bool:
        return super().is_bool(self._host(tensor))

    def all_positive(self, tensor: Any) -> bool:
        return super().all_positive(self._host(tensor))

    def with_dtype(self, tensor: Any, dtype: str) -> Any:
        return self._own(super().with_dtype(self._host(tensor), dtype))

    def _own(self, array: np.ndarray[Any, Any]) -> Any:
        if hasattr(self._library, "asarray"):
            return self._library.asarray(array.copy())
        return self._library.from_dlpack(array.copy())

    def taken(self, slot: object, memory: Memory, boolean: bool) -> Any:
        return self._own(super().taken(slot, memory, boolean))

    def bits(self, tensor: Any) -> bytes:
        return super().bits(self._host(tensor))

    def changed(self, tensor: Any, memory: Memory) -> None:
        super().changed(self._host(tensor), memory)

    def put(self, tensor: Any, memory: Memory, what: str) -> None:
        super().put(self._host(tensor), memory, what)


def frame_of(tensors: list[Any]) -> Any:
    """The frame of the library that the tensors come from."""
    if not tensors:
        raise UsageError("[inputs] got no array, want at least one")
    first = tensors[0]
    if isinstance(first, np.ndarray):
        return NumpyFrame()
    if type(first).__module__.split(".")[0] == "torch":
        from ._torch_frame import TorchFrame

        return TorchFrame(first)
    if hasattr(first, "__dlpack__"):
        return ArrayFrame(first)
    raise UsageError(f"[inputs] got a {type(first).__name__}, want arrays of NumPy, of torch, or with __dlpack__")
