# SPDX-License-Identifier: Apache-2.0
"""Triton functions in interpreter mode, without a GPU: right ones pass, three broken ones each are found."""

import os
import pathlib
import subprocess
import sys

os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported

import ampcheck
import pytest
import torch
from ampcheck._triton import as_on_a_gpu, to_bf16

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402


@triton.jit
def softmax_kernel(x, y, columns, MASKED: tl.constexpr, BF16: tl.constexpr, SHIFT: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    value = tl.load(x + row * columns + at, mask=inside, other=float("-inf")).to(tl.float32)
    if SHIFT:
        value = value - tl.max(value, 0)
    e = tl.exp(value)
    if BF16:
        e = e.to(tl.bfloat16).to(tl.float32)
    stored = inside if MASKED else at < columns // 4 * 4
    tl.store(y + row * columns + at, e / tl.sum(e, 0), mask=stored)


@triton.jit
def rms_kernel(x, weight, y, columns, eps, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    value = tl.load(x + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    square = value * value
    if FAULT == 1:  # the tail is no part of the sum
        square = tl.where(at < columns // 4 * 4, square, 0.0)
    if FAULT == 2:  # lower precision than declared
        square = square.to(tl.bfloat16).to(tl.float32)
    mean = tl.sum(square, 0) / columns
    if FAULT != 3:  # the epsilon is missing
        mean = mean + eps
    scale = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + row * columns + at, value / tl.sqrt(mean) * scale, mask=inside)


@triton.jit
def fused_kernel(x, z, y, n, MINUS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a, b = tl.load(x + at, mask=at < n), tl.load(z + at, mask=at < n)
    product = b * a
    tl.store(y + at, a + (-product if MINUS else product), mask=at < n)


@triton.jit
def narrow_kernel(x, y, n: tl.constexpr):
    at = tl.arange(0, n)
    tl.store(y + at, tl.load(x + at).to(tl.bfloat16))


def narrow(x):
    y = torch.empty(4, dtype=torch.bfloat16)
    narrow_kernel[(1,)](torch.ones(4), y, 4)
    return y


def fused(x, z, minus=False):
    y = torch.empty_like(x)
    fused_kernel[(1,)](x, z, y, x.numel(), minus, triton.next_power_of_2(x.numel()))
    return y


def softmax(x, masked=True, bf16=False, shift=True):
    y = torch.zeros_like(x)
    softmax_kernel[(x.shape[0],)](x, y, x.shape[1], masked, bf16, shift, triton.next_power_of_2(x.shape[1]))
    return y


def rms(x, weight, fault=0):
    y = torch.empty_like(x)
    rms_kernel[(x.shape[0],)](x, weight, y, x.shape[1], 1e-6, fault, triton.next_power_of_2(x.shape[1]))
    return y


def eager_rms(x, weight):
    wide = x.float()
    return (wide / torch.sqrt((wide * wide).mean(-1, keepdim=True) + 1e-6) * weight.float()).to(x.dtype)


def check(f, reference, *examples):
    # The interpreter is slow: small arrays.
    dims = {"N": ampcheck.Dim(most=6), "M": ampcheck.Dim(most=40)}
    return ampcheck.check(f, reference=reference, inputs=list(examples), regimes="quick", backward=False, dims=dims)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_right_kernels_pass(dtype):
    x = torch.randn(4, 20).to(dtype)
    r = check(softmax, lambda x: torch.softmax(x, -1), x)
    assert r, r
    r = check(rms, eager_rms, x, torch.ones(20, dtype=dtype))
    assert r, r


def eager_sum(x, z):
    return x + z * x


def test_bf16_in_the_interpreter_is_that_of_a_gpu():
    """Triton's interpreter drops bits where a GPU rounds, and adds the bits of bf16 numbers as integers."""
    x, z = torch.randn(4, 20).bfloat16(), torch.randn(4, 20).bfloat16()
    r = check(rms, eager_rms, x, torch.ones(20, dtype=torch.bfloat16))
    assert r, r
    r = check(fused, eager_sum, x, z)  # arithmetic in bf16 rounds twice
    assert {f.verdict for f in r.findings} <= {"PRECISION_CONTRACT"}, r
    dims = {"N": ampcheck.Dim(most=6), "M": ampcheck.Dim(most=40)}
    r = ampcheck.check(fused, reference=eager_sum, inputs=[x, z], regimes="quick", backward=False, dims=dims,
                       rounding="as written")
    assert r, r
    r = ampcheck.check(lambda x, z: fused(x, z, True), reference=eager_sum, inputs=[x, z], regimes="quick", backward=False,
                       dims=dims, rounding="as written")
    assert r.findings, r


@pytest.mark.parametrize("fault", [1, 2, 3])
def test_broken_rms_norm_in_bf16_is_found(fault):
    r = check(lambda x, weight: rms(x, weight, fault), eager_rms, torch.randn(4, 20).bfloat16(),
              torch.ones(20, dtype=torch.bfloat16))
    assert r.findings or fault == 2, r  # squares in bf16 vanish in the rounding of the result


def test_other_calls_of_the_interpreter_stay_as_they_are():
    """What is mended is mended while a function is judged alone."""
    x = torch.full((1, 4), 1 + 2.0 ** -8 + 2.0 ** -9)
    y = torch.empty(1, 4, dtype=torch.bfloat16)
    narrow_kernel[(1,)](x, y, 4)
    before = y.clone()
    seen = []
    ampcheck.check(lambda x: seen.append(narrow(x)) or x * 1, reference="y = x", inputs=[x], regimes="quick", backward=False)
    narrow_kernel[(1,)](x, y, 4)
    assert torch.equal(before, y)
    with as_on_a_gpu:
        narrow_kernel[(1,)](x, y, 4)
    assert torch.equal(y, x.bfloat16())


def test_rounding_to_bf16_is_torch_s():
    bits = torch.randint(-2**31, 2**31, (200_000,), generator=torch.Generator().manual_seed(1), dtype=torch.int64)
    ties = (bits[:1000] & ~0xFFFF) | 0x8000
    values = torch.cat([bits, ties]).to(torch.int32).view(torch.float32)
    got = torch.from_numpy(to_bf16(values.numpy()).view("int16")).view(torch.bfloat16)
    want = values.bfloat16()
    assert torch.equal(got.isnan(), want.isnan())
    assert torch.equal(got[~got.isnan()].view(torch.int16), want[~want.isnan()].view(torch.int16))


@pytest.mark.parametrize("fault", [{"masked": False}, {"bf16": True}, {"shift": False}])
def test_broken_softmax_is_found(fault):
    r = check(lambda x: softmax(x, **fault), lambda x: torch.softmax(x, -1), torch.randn(4, 20))
    assert r.findings, r


@pytest.mark.parametrize("fault", [1, 2, 3])
def test_broken_rms_norm_is_found(fault):
    r = check(lambda x, weight: rms(x, weight, fault), eager_rms, torch.randn(4, 20), torch.ones(20))
    assert r.findings, r


def test_the_gpu_check_s_kernels_forward_and_backward(tmp_path):
    """What tools/gpu_check runs natively, here in interpreter mode: softmax and RMSNorm in two types."""
    script = pathlib.Path(__file__).parents[2] / "tools" / "gpu" / "triton_kernels.py"
    ran = subprocess.run([sys.executable, str(script), str(tmp_path), "cpu"], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    lines = [line.split("\t") for line in (tmp_path / "list").read_text().splitlines()]
    assert [owed for _, owed, _ in lines].count("0") == 8 and len(lines) == 32
    for path, owed, formula in lines:
        got = subprocess.run([sys.executable, "-m", "ampcheck", "check", "--dump", path, "--formula", formula],
                             capture_output=True, text=True)
        assert got.returncode == int(owed), (path, got.stdout, got.stderr)
