# SPDX-License-Identifier: Apache-2.0
"""triton_kernels.py FOLDER [DEVICE]: runs Triton's softmax and RMSNorm, forward and backward, right and in three broken versions
each, and a CUDA operator of torch, right and wrong. Their tensors go to FOLDER as dumps; FOLDER/list has a line for each:
file, the exit code that `ampcheck check --dump` owes it, its formula, separated by tabs. DEVICE: cuda (default), or cpu with
TRITON_INTERPRET=1. Exit code 77 where something is not installed."""
import os
import sys

try:
    import numpy
    import torch
    import triton
    import triton.language as tl
except ImportError as missing:
    print(missing)
    sys.exit(77)

#: What a version lacks: nothing, the columns behind the last multiple of 4, digits of a sum, a term.
RIGHT, TAIL, BF16, TERM = range(4)
#: The backward reads y as it is saved.
SOFTMAX = "y = stored(p, exp(x - max(x, -1)) / sum(exp(x - max(x, -1)), -1)) with dx = y * (dy - sum(dy * y, -1))"
RMS = "y = x / sqrt(mean(x^2, -1) + 1e-6) * weight"


@triton.jit
def _shortened(value, at, columns, FAULT: tl.constexpr):
    """What goes into a sum."""
    if FAULT == 1:
        value = tl.where(at < columns // 4 * 4, value, 0.0)
    if FAULT == 2:
        value = value.to(tl.bfloat16).to(tl.float32)
    return value


@triton.jit
def _softmax(x, y, columns, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside = at < columns
    value = tl.load(x + row * columns + at, mask=inside, other=float("-inf")).to(tl.float32)
    if FAULT != 3:  # without the maximum it overflows
        value = value - tl.max(value, 0)
    e = tl.exp(value)
    tl.store(y + row * columns + at, e / tl.sum(_shortened(e, at, columns, FAULT), 0), mask=inside)


@triton.jit
def _softmax_backward(y, dy, dx, columns, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside = at < columns
    p = tl.load(y + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(dy + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    dot = tl.sum(_shortened(p * g, at, columns, FAULT), 0)
    if FAULT == 3:
        dot = dot * 0.0
    tl.store(dx + row * columns + at, p * (g - dot), mask=inside)


@triton.jit
def _rms(x, weight, y, columns, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside = at < columns
    value = tl.load(x + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(_shortened(value * value, at, columns, FAULT), 0) / columns
    if FAULT != 3:
        mean = mean + 1e-6
    scale = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + row * columns + at, value / tl.sqrt(mean) * scale, mask=inside)


@triton.jit
def _rms_backward(x, weight, dy, dx, columns, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside = at < columns
    value = tl.load(x + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(dy + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    g = g * tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    inverse = 1.0 / tl.sqrt(tl.sum(value * value, 0) / columns + 1e-6)
    dot = tl.sum(_shortened(g * value, at, columns, FAULT), 0) / columns
    if FAULT == 3:
        dot = dot * 0.0
    tl.store(dx + row * columns + at, inverse * (g - value * inverse * inverse * dot), mask=inside)


@triton.jit
def _rms_backward_weight(x, dy, dweight, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    column, at = tl.program_id(0), tl.arange(0, BLOCK)
    total = 0.0
    for row in range(ROWS):
        value = tl.load(x + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
        inverse = 1.0 / tl.sqrt(tl.sum(value * value, 0) / columns + 1e-6)
        own = tl.load(x + row * columns + column).to(tl.float32)
        total += tl.load(dy + row * columns + column).to(tl.float32) * own * inverse
    tl.store(dweight + column, total)


def _block(x):
    return triton.next_power_of_2(x.shape[1])


def softmax(x, fault=RIGHT):
    y = torch.empty_like(x)
    _softmax[(x.shape[0],)](x, y, x.shape[1], fault, _block(x))
    return y


def softmax_backward(y, dy, fault=RIGHT):
    dx = torch.empty_like(y)
    _softmax_backward[(y.shape[0],)](y, dy, dx, y.shape[1], fault, _block(y))
    return dx


def rms(x, weight, fault=RIGHT):
    y = torch.empty_like(x)
    _rms[(x.shape[0],)](x, weight, y, x.shape[1], fault, _block(x))
    return y


def rms_backward(x, weight, dy, fault=RIGHT):
    """dx, dweight."""
    dx, dweight = torch.empty_like(x), torch.empty_like(weight)
    _rms_backward[(x.shape[0],)](x, weight, dy, dx, x.shape[1], fault, _block(x))
    _rms_backward_weight[(x.shape[1],)](x, dy, dweight, x.shape[0], x.shape[1], x.shape[0], _block(x))
    return dx, dweight


_CUDA = """
#include <torch/extension.h>
__global__ void square(const float* x, float* y, int n, float factor) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = factor * (x[i] * x[i]);
}
at::Tensor scaled_square(const at::Tensor& x, double factor) {
  at::Tensor y = at::empty_like(x);
  square<<<(x.numel() + 127) / 128, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel(), factor);
  return y;
}
TORCH_LIBRARY(ampcheck_pack, m) { m.def("scaled_square(Tensor x, float factor) -> Tensor", scaled_square); }
"""


def cuda_operator():
    """An operator of torch.ops, compiled here; None, after a line that says why, where nothing compiles it."""
    from torch.utils import cpp_extension

    try:
        cpp_extension.load_inline("ampcheck_pack", "", cuda_sources=_CUDA, is_python_module=False, with_cuda=True)
        return torch.ops.ampcheck_pack.scaled_square
    except Exception as error:  # no nvcc, no ninja, no compiler
        print(f"= no operator of torch.ops: {type(error).__name__}: {str(error).splitlines()[0][:200]}")
        return None


def dumps(device):
    """Name, whether it is right, formula, tensors."""
    random = torch.Generator().manual_seed(1)

    def normal(*shape, dtype):
        return torch.randn(*shape, generator=random).to(dtype).to(device)

    rows, columns = (64, 1021) if device == "cuda" else (6, 45)
    for dtype in (torch.float32, torch.float16):
        name = str(dtype).split(".")[1]
        x, dy = 20 * normal(rows, columns, dtype=dtype), normal(rows, columns, dtype=dtype)
        weight = normal(columns, dtype=dtype)
        for fault in (RIGHT, TAIL, BF16, TERM):
            y = softmax(x / 20 + 90, fault)  # exp(90) is beyond fp32
            yield f"softmax_{name}_{fault}", fault == RIGHT, SOFTMAX, {"x": x / 20 + 90, "y": y}
            y = softmax(x / 20)
            yield (f"softmax_backward_{name}_{fault}", fault == RIGHT, SOFTMAX,
                   {"x": x / 20, "y": y, "dy": dy, "dx": softmax_backward(y, dy, fault)})
            small = x / 20000 if dtype == torch.float32 else x / 2000  # the epsilon counts
            y = rms(small, weight, fault)
            yield f"rms_{name}_{fault}", fault == RIGHT, RMS, {"x": small, "weight": weight, "y": y}
            dx, dweight = rms_backward(x, weight, dy, fault)
            yield (f"rms_backward_{name}_{fault}", fault == RIGHT, RMS,
                   {"x": x, "weight": weight, "y": rms(x, weight), "dy": dy, "dx": dx, "dweight": dweight})
    operator = cuda_operator() if device == "cuda" else None
    if operator is not None:
        x = normal(rows, columns, dtype=torch.float32)
        for factor in (1.0, 1.0001):
            yield f"operator_{factor}", factor == 1, "y = x^2", {"x": x, "y": operator(x, factor)}


def main(folder, device="cuda"):
    if device == "cuda" and not torch.cuda.is_available():
        print("torch sees no GPU")
        return 77
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "list"), "w", encoding="utf-8") as lines:
        for name, right, formula, tensors in dumps(device):
            path = os.path.join(folder, name + ".npz")
            numpy.savez(path, **{key: value.cpu().numpy() for key, value in tensors.items()})
            lines.write(f"{path}\t{0 if right else 1}\t{formula}\n")
    print(f"= torch {torch.__version__}, triton {triton.__version__}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
