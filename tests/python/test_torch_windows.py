# SPDX-License-Identifier: Apache-2.0
"""Ops of windows and orders as references: torch's own kernels follow their formulas, and slips are found."""

import ampcheck
import pytest
import torch
from torch import nn

MODULES = {
    "transposed 1d": (nn.ConvTranspose1d(3, 4, 3, stride=2, padding=1, output_padding=1), (2, 3, 7)),
    "transposed 2d by groups": (nn.ConvTranspose2d(4, 6, (3, 2), stride=(1, 2), padding=(1, 0), groups=2), (2, 4, 5, 4)),
    "transposed 2d dilated": (nn.ConvTranspose2d(2, 2, 2, dilation=2, padding=3, bias=False), (2, 2, 5, 6)),
    "dilated windows": (nn.MaxPool1d(5, 1, 2, dilation=2), (2, 3, 17)),
    "dilated windows in 2d": (nn.MaxPool2d(3, 2, 1, dilation=3), (2, 2, 9, 8)),
}


def as_function(module, change=lambda y: y):
    names = [name for name, _ in module.named_parameters()]
    return (lambda x, *own: change(torch.func.functional_call(module, dict(zip(names, own)), (x,))),
            [p.detach() for p in module.parameters()])


@pytest.mark.parametrize("name", MODULES)
def test_torchs_own_kernels_are_right(name):
    module, shape = MODULES[name]
    reference, own = as_function(module)
    x = torch.rand(shape, generator=torch.Generator().manual_seed(1))
    r = ampcheck.check(reference, reference=reference, inputs=[x, *own], regimes="quick")
    assert r, r


@pytest.mark.parametrize("name", ["transposed 1d", "dilated windows"])
def test_another_one_is_found(name):
    module, shape = MODULES[name]
    reference, own = as_function(module)
    moved, _ = as_function(module, lambda y: y.roll(1, -1))
    r = ampcheck.check(moved, reference=reference, inputs=[torch.rand(shape), *own], regimes="quick", backward=False)
    assert not r and r.findings[0].verdict == "BUG"


def test_the_filter_is_turned():
    """The slip of who takes a transposed convolution for a convolution of the spread image."""
    module = nn.ConvTranspose1d(2, 2, 3, bias=False)
    reference, own = as_function(module)
    unturned = lambda x, weight: reference(x, weight.flip(-1))  # noqa: E731
    assert not ampcheck.check(unturned, reference=reference, inputs=[torch.rand(2, 2, 6), *own], regimes="quick",
                              backward=False)


def reversed_sums(x):
    return x.flip(1).cumsum(1).flip(1)


def exclusive_sums(x):
    return torch.cat((torch.zeros_like(x[:, :1]), x.cumsum(1)[:, :-1]), 1)


def products(x):
    return x.cumprod(1)


ORDERS = [(reversed_sums, lambda x: x.sum(1, keepdim=True) - x.cumsum(1) + x, "cancellation"),
          (exclusive_sums, lambda x: x.cumsum(1), "not exclusive"),
          (products, lambda x: torch.cat((x.cumprod(1)[:, :-1], x[:, -1:]), 1), "the last alone")]


@pytest.mark.parametrize("reference,slip,_", ORDERS)
def test_orders_of_elements(reference, slip, _):
    x = torch.rand(6, 9, generator=torch.Generator().manual_seed(1))
    r = ampcheck.check(lambda x: reference(x.clone()), reference=reference, inputs=[x], regimes="quick")
    assert r, r
    assert not ampcheck.check(slip, reference=reference, inputs=[x], regimes="quick", backward=False)
