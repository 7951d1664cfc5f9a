# SPDX-License-Identifier: Apache-2.0
"""Functions of torch tensors: see _frames.py. Gradients come from torch.autograd.grad."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from ._core import UsageError
from ._frames import Memory, Pool

DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16,
          "e4m3fn": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "i64": torch.int64, "i32": torch.int32,
          "u8": torch.uint8}
NAMES = {dtype: name for name, dtype in DTYPES.items()} | {torch.bool: "u8"}


def view(memory: Memory) -> torch.Tensor:
    """The judge's memory as a tensor, without a copy."""
    data, shape, dtype = memory
    if 0 in shape:
        return torch.empty(shape, dtype=DTYPES[dtype])
    return torch.frombuffer(data, dtype=DTYPES[dtype]).view(shape)


class TorchFrame:
    """Tensors live where the example lives: on its GPU, if it is on one."""

    name = "torch"

    def __init__(self, example: torch.Tensor) -> None:
        self.device = example.device
        self._pool = Pool()

    def dtype(self, tensor: torch.Tensor) -> str:
        if tensor.dtype not in NAMES:
            raise UsageError(f"got dtype {tensor.dtype}, want a floating type, int64, int32, uint8 or bool")
        return NAMES[tensor.dtype]

    def require(self, dtype: str) -> None:
        if dtype not in DTYPES:
            raise UsageError(f"[dtypes] got '{dtype}', want one of {', '.join(DTYPES)}")

    def shape(self, tensor: torch.Tensor) -> tuple[int, ...]:
        return tuple(tensor.shape)

    def is_bool(self, tensor: torch.Tensor) -> bool:
        return tensor.dtype == torch.bool

    def subclass(self, value: Any) -> str:
        """The name of a type that is no plain tensor."""
        return "" if type(value) in (torch.Tensor, torch.nn.Parameter) else type(value).__name__

    def all_positive(self, tensor: torch.Tensor) -> bool:
        return tensor.numel() > 0 and bool((tensor > 0).all())

    def with_dtype(self, tensor: torch.Tensor, dtype: str) -> torch.Tensor:
        return tensor.detach().to(DTYPES[dtype])

    def taken(self, slot: object, memory: Memory, boolean: bool) -> torch.Tensor:
        _, shape, dtype = memory
        out: torch.Tensor = self._pool.array(slot, memory, lambda: torch.empty(
            shape, dtype=torch.bool if boolean else DTYPES[dtype], device=self.device))
        with torch.no_grad():
            out.copy_(view(memory))
        return out.detach()  # the same memory, and none of the last call's autograd state

    def changed(self, tensor: torch.Tensor, memory: Memory) -> None:
        source, target = tensor.detach().to("cpu", DTYPES[memory[2]]).contiguous(), view(memory)
        if not torch.equal(source.view(torch.uint8) if source.ndim else source.reshape(1).view(torch.uint8),
                           target.view(torch.uint8) if target.ndim else target.reshape(1).view(torch.uint8)):
            target.copy_(source)

    def put(self, tensor: Any, memory: Memory, what: str) -> None:
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{what} is a {type(tensor).__name__}, want a tensor")
        if tensor.ndim == 0 and all(n == 1 for n in memory[1]):  # formulas keep the axes that a sum over all drops
            tensor = tensor.reshape(memory[1])
        if tuple(tensor.shape) != memory[1]:
            raise ValueError(f"{what} has shape {list(tensor.shape)}, want {list(memory[1])}")
        view(memory).copy_(tensor.detach())

    def bits(self, tensor: torch.Tensor) -> bytes:
        return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()

    def quiet(self) -> Any:
        return contextlib.nullcontext()

    def empty(self) -> None:
        self._pool.clear()

    def autograd(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The backward of a function by autograd: (inputs, which have a gradient, cotangents) -> gradients."""

        def backward(inputs: list[Any], wanted: list[bool], cotangents: list[torch.Tensor]) -> list[Any]:
            with torch.enable_grad():
                leaves = [x.requires_grad_(True) if want else x for x, want in zip(inputs, wanted)]
                outputs = call(leaves)
                pairs = [(y, dy) for y, dy in zip(outputs, cotangents) if isinstance(y, torch.Tensor) and y.requires_grad]
                sources = [x for x, want in zip(leaves, wanted) if want]
                if not pairs:
                    raise RuntimeError("no output of the function requires a gradient")
                arriving = [dy.to(y.dtype).reshape(y.shape) if y.ndim == 0 else dy.to(y.dtype) for y, dy in pairs]
                got = iter(torch.autograd.grad([y for y, _ in pairs], sources, arriving, allow_unused=True))
            return [next(got) if want else None for want in wanted]

        return backward
