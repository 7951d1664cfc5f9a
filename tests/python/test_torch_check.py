# SPDX-License-Identifier: Apache-2.0
"""References that are eager functions, gradients by autograd, and what stands beside opcheck and gradcheck."""

import json
import os
import pathlib
import re
import subprocess
import sys

import ampcheck
import ampcheck.torch
import pytest
import torch
import torch.nn.functional as F


def rms(x, weight):
    wide = x.float()
    return (wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + 1e-6) * weight.float()).to(x.dtype)


def torchs_own(x, weight):
    return F.rms_norm(x.float(), (x.shape[-1],), weight.float(), 1e-6).to(x.dtype)


def dropped_tail(x, weight):
    y = rms(x, weight)
    return torch.cat([y[..., :-1], torch.zeros_like(y[..., -1:])], -1)


def bf16_accumulation(x, weight):
    total = torch.zeros(x.shape[:-1], dtype=torch.bfloat16)
    for i in range(x.shape[-1]):
        total = total + (x[..., i].float() ** 2).to(torch.bfloat16)
    mean = total.float() / x.shape[-1]
    return (x.float() * torch.rsqrt(mean + 1e-6)[..., None] * weight.float()).to(x.dtype)


def missing_term(x, weight):
    wide = x.float()
    return (wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True)) * weight.float()).to(x.dtype)


def wrong_factor(x, weight):
    return rms(x, weight) * 1.02


class Function(torch.autograd.Function):
    """The same with a backward written by hand."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return rms(x, weight)

    @staticmethod
    def backward(ctx, dy):
        x, weight = (t.float() for t in ctx.saved_tensors)
        dy = dy.float()
        inverse = torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)
        n, dn = x * inverse, dy * weight
        dx = inverse * (dn - n * (dn * n).mean(-1, keepdim=True))
        dtype = ctx.saved_tensors[0].dtype
        return dx.to(dtype), (dy * n).sum(0).to(dtype)


class WrongBackward(Function):
    """A mean where a sum is due."""

    @staticmethod
    def backward(ctx, dy):
        dx, dweight = Function.backward(ctx, dy)
        return dx, dweight / dy.shape[0]


def inputs(dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(16, 48, generator=generator).to(dtype), torch.ones(48, dtype=dtype)]


def check(f, dtype=torch.float32, **options):
    return ampcheck.check(f, reference=rms, inputs=inputs(dtype), regimes="quick", **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("f", [rms, torchs_own, Function.apply])
def test_correct_variants_pass(f, dtype):
    r = check(f, dtype)
    assert r, r
    assert any("backward" in c["name"] for case in json.loads(r.to_json())["cases"] for c in case["checks"])


@pytest.mark.parametrize("f, verdict", [(dropped_tail, "BUG"), (bf16_accumulation, None), (missing_term, "BUG"),
                                        (wrong_factor, "BUG")])
def test_planted_faults_are_found(f, verdict):
    for dtype in (torch.float32, torch.bfloat16):
        r = check(f, dtype)
        assert not r, (f, dtype)
        assert verdict is None or r.findings[0].verdict == verdict


def test_a_wrong_backward_is_found_and_named():
    r = check(WrongBackward.apply)
    assert {f.tensor for f in r.findings} == {"backward dweight"}
    assert "mean for the sum" in r.findings[0].cause


def test_rounding_before_the_weight_is_another_contract():
    def as_hf(x, weight):
        wide = x.float()
        return weight * (wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)

    r = check(as_hf, torch.bfloat16)
    assert r.findings[0].verdict == "PRECISION_CONTRACT" and "in bf16" in r.findings[0].cause


def test_the_formula_is_what_the_program_takes(tmp_path):
    np = pytest.importorskip("numpy")
    r = check(rms)
    x, weight = inputs()
    np.savez(tmp_path / "saved.npz", x=x.numpy(), weight=weight.numpy(), y=rms(x, weight).numpy())
    out = subprocess.run([sys.executable, "-m", "ampcheck", "check", "--dump", str(tmp_path / "saved.npz"), "--formula",
                          r.formula], capture_output=True, text=True)
    assert out.returncode == 0, out.stdout + out.stderr


EAGER = {
    "softmax": (lambda x: torch.softmax(x, -1), [(6, 10)]),
    "log_softmax": (lambda x: torch.log_softmax(x, 0), [(6, 10)]),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b), [(6, 10), (10,), (10,)]),
    "group_norm": (lambda x, w: F.group_norm(x, 2, w), [(2, 4, 5), (4,)]),
    "batch_norm": (lambda x, m, v: F.batch_norm(x, m, v.abs() + 0.5), [(3, 4, 5), (4,), (4,)]),
    "linear": (lambda x, w, b: torch.relu(F.linear(x, w, b)), [(6, 10), (7, 10), (7,)]),
    "bmm": (lambda a, b: a @ b, [(2, 3, 4), (2, 4, 5)]),
    "silu": (F.silu, [(6, 10)]),
    "hardswish": (F.hardswish, [(6, 10)]),
    "elu": (F.elu, [(6, 10)]),
    "leaky_relu": (F.leaky_relu, [(6, 10)]),
    "softsign": (F.softsign, [(6, 10)]),
    "cumsum": (lambda x: torch.cumsum(x, -1), [(6, 10)]),
    "var": (lambda x: x.var(-1), [(6, 10)]),
    "amax": (lambda x: x.amax((0, 1)), [(6, 10, 3)]),
    "max": (lambda x: x.max(-1).values, [(6, 10)]),
    "mse_loss": (F.mse_loss, [(6, 10), (6, 10)]),
    "hinge": (lambda x, t: torch.mean(torch.clamp(1 - x * t, min=0)), [(6, 10), (6, 10)]),
    "cat": (lambda a, b: torch.cat([a, b * 2], 1), [(3, 4), (3, 5)]),
    "slice": (lambda x: x[:, 1:3] * x[:, :2], [(3, 7)]),
    "pad": (lambda x: F.pad(x, (1, 2)) + 1, [(3, 7)]),
    "conv1d": (lambda x, w: F.conv1d(x, w, dilation=2, stride=2), [(2, 3, 11), (4, 3, 3)]),
    "conv2d": (lambda x, w, b: F.conv2d(x, w, b, stride=2), [(2, 3, 7, 8), (4, 3, 3, 2), (4,)]),
    "conv2d_groups": (lambda x, w: F.conv2d(x, w, groups=2), [(2, 4, 5, 6), (6, 2, 3, 3)]),
    "conv2d_padding": (lambda x, w: F.conv2d(x, w, padding=1), [(2, 3, 5, 6), (4, 3, 3, 3)]),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2), [(2, 3, 5, 7)]),
    "max_pool2d_padding": (lambda x: F.max_pool2d(x, 3, stride=2, padding=1), [(2, 3, 6, 7)]),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 3, stride=2), [(2, 3, 7, 7)]),
}


@pytest.mark.parametrize("name", EAGER)
def test_eager_functions_as_their_own_reference(name):
    f, shapes = EAGER[name]
    generator = torch.Generator().manual_seed(2)
    examples = [torch.randn(s, generator=generator) for s in shapes]
    r = ampcheck.check(f, reference=f, inputs=examples, regimes="quick")
    assert r, f"{r.formula}\n{r}"

    def wrong(*arguments):
        return f(*arguments) * 1.001

    op = json.loads(r.to_json())["cases"][0]["case"].partition("(")
    one = [f"wrong({op[2]}"]
    assert ampcheck.check(wrong, reference=f, inputs=examples, cases=one).findings, r.formula


def test_what_does_not_map_is_refused_with_its_place():
    def lgamma(x):
        return torch.lgamma(x)

    with pytest.raises(ampcheck.UsageError, match=r"lgamma\.default at test_torch_check\.py:\d+ \(return torch\.lgamma\(x\)\)"):
        ampcheck.check(lgamma, reference=lgamma, inputs=[torch.randn(3, 4)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_gradcheck_works_in_low_precision(dtype):
    arguments = tuple(x.requires_grad_() for x in inputs(dtype))
    assert ampcheck.torch.gradcheck(Function.apply, arguments, reference=rms, regimes="quick")
    with pytest.raises(torch.autograd.gradcheck.GradcheckError if hasattr(torch.autograd.gradcheck, "GradcheckError")
                       else RuntimeError, match="dweight"):
        ampcheck.torch.gradcheck(WrongBackward.apply, arguments, reference=rms, regimes="quick")


def test_gradcheck_of_an_op_that_cannot_be_traced():
    def made(name, factor):
        @torch.library.custom_op(f"ampcheck_tests::{name}", mutates_args=())
        def op(x: torch.Tensor) -> torch.Tensor:
            return torch.sinh(x) * 3

        op.register_fake(torch.empty_like)
        op.register_autograd(lambda ctx, dy: dy * torch.cosh(ctx.saved_tensors[0]) * factor,
                             setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))
        return op

    x = torch.randn(5, 7, requires_grad=True)
    right = ampcheck.torch.gradcheck(made("right", 3), (x,), raise_exception=False, regimes="quick")
    assert right, right
    assert not ampcheck.torch.gradcheck(made("wrong", 2.9), (x,), raise_exception=False, regimes="quick")


def test_check_takes_what_opcheck_takes():
    x = torch.randn(5, 7)
    assert ampcheck.torch.check(torch.ops.aten.silu.default, (x,), regimes="quick")
    assert not ampcheck.torch.check(lambda x: F.silu(x) + 1e-5, (x,), reference=F.silu, regimes="quick")
    with pytest.raises(ampcheck.UsageError, match="atol"):
        ampcheck.torch.check(F.silu, (x,), atol=1e-3)
    with pytest.raises(AssertionError, match="AC101"):
        ampcheck.torch.check(lambda x: F.silu(x) + 1e-5, (x,), reference=F.silu, regimes="quick", raise_exception=True)


def branches(x):
    if x.sum() > 0:
        return x
    return -x


def test_a_reference_that_depends_on_data_is_refused_with_its_place(capfd):
    with pytest.raises(ampcheck.UsageError, match=r"depends on the data at test_torch_check.py:\d+ \(if x.sum\(\) > 0"):
        ampcheck.check(branches, reference=branches, inputs=[torch.randn(4, 8)])
    out = capfd.readouterr()
    assert not out.out and not out.err


def test_the_blocks_of_the_manual_that_stand_alone_run(tmp_path):
    """The first of NumPy and of torch, and that of Triton, one after the other as a reader would."""
    page = pathlib.Path(__file__).parents[2] / "tools" / "manual" / "python.md"
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    chosen = [b for b in blocks if "assert r, r" in b or "print(r.formula)" in b]
    assert len(chosen) == 3 and "triton" in chosen[2]
    place = tmp_path / "blocks.py"  # a file: Triton reads its source
    place.write_text("\n".join(chosen) + "\nprint('all')\n")
    ran = subprocess.run([sys.executable, str(place)], capture_output=True, text=True,
                         env={**os.environ, "TRITON_INTERPRET": "1"})
    assert ran.returncode == 0 and ran.stdout.endswith("all\n"), ran.stdout + ran.stderr
    assert "y = (x * rsqrt((mean((x * x), 1) + 1e-06))) * weight" in ran.stdout
