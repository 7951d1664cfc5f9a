# SPDX-License-Identifier: Apache-2.0
"""References with indices, masks of infinities and partial windows: torch's own kernels follow their formulas, slips are
found."""

import ampcheck
import pytest
import torch
import torch.nn.functional as F


def rand(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def places(most, *shape):
    return torch.randint(0, most, shape, generator=torch.Generator().manual_seed(2))


def causal(q, k, v):
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    return torch.softmax(scores.masked_fill(~seen, float("-inf")), -1) @ v


def sees_the_next(q, k, v):
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(1)
    return torch.softmax(scores.masked_fill(~seen, float("-inf")), -1) @ v


def divergence(a, b):
    return F.kl_div(a, b, reduction="batchmean")


#: name: (reference, examples, a slip of it)
PAIRS = {
    "argmax": (lambda x: x.argmax(1), lambda: [rand(9, 21)], lambda x: x.shape[1] - 1 - x.flip(1).argmax(1)),
    "argmin": (lambda x: x.argmin(0), lambda: [rand(9, 21)], lambda x: x.abs().argmin(0)),
    "argmax of all": (lambda x: x.argmax(), lambda: [rand(9, 21)], lambda x: x[:, :-1].argmax()),
    "embedding": (lambda w, i: F.embedding(i, w), lambda: [rand(30, 16), places(30, 9)],
                  lambda w, i: F.embedding((i - 1).clamp(min=0), w)),
    "rows": (lambda w, i: w[i] * 2, lambda: [rand(30, 16), places(30, 9)], lambda w, i: w[i.sort()[0]] * 2),
    "gather": (lambda x, i: x.gather(1, i), lambda: [rand(9, 21), places(21, 9, 4)], lambda x, i: x.gather(1, i.flip(1))),
    "gather of rows": (lambda x, i: x.gather(0, i), lambda: [rand(9, 21), places(9, 4, 21)],
                       lambda x, i: x.gather(0, i.flip(0))),
    "cross entropy": (F.cross_entropy, lambda: [rand(9, 21), places(21, 9)],
                      lambda x, t: F.cross_entropy(x, t, reduction="sum") / x.shape[1]),
    "negative log likelihood": (lambda x, t: F.nll_loss(x, t, reduction="none"), lambda: [rand(9, 21), places(21, 9)],
                                lambda x, t: F.nll_loss(x.roll(1, 1), t, reduction="none")),
    "divergence": (divergence, lambda: [rand(9, 21), rand(9, 21).softmax(1)],
                   lambda a, b: F.kl_div(a, b, reduction="mean")),
    "a mask of -infinity": (causal, lambda: [rand(2, 9, 16), rand(2, 9, 16), rand(2, 9, 16)], sees_the_next),
    "the last window is a part": (lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True), lambda: [rand(2, 3, 10, 12)],
                                  lambda x: F.max_pool2d(F.pad(x, (1, 2, 1, 2)), 3, 2)),
    "means of a part": (lambda x: F.avg_pool2d(x, 3, 2, ceil_mode=True), lambda: [rand(2, 3, 10, 12)],
                        lambda x: F.avg_pool2d(F.pad(x, (0, 1, 0, 1)), 3, 2)),
    "means without the padding": (lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), lambda: [rand(2, 3, 9, 11)],
                                  lambda x: F.avg_pool2d(x, 3, 2, 1)),
    "an own divisor": (lambda x: F.avg_pool2d(x, 3, 2, 1, divisor_override=5), lambda: [rand(2, 3, 9, 11)],
                       lambda x: F.avg_pool2d(x, 3, 2, 1)),
    "each third": (lambda x: x[:, 1::3] * 2, lambda: [rand(4, 11)], lambda x: x[:, :-1:3] * 2),
}


@pytest.mark.parametrize("name", PAIRS)
def test_torchs_own_is_right_and_a_slip_is_found(name):
    reference, examples, slip = PAIRS[name]
    right = ampcheck.check(reference, reference=reference, inputs=examples(), regimes="quick")
    assert right, f"{right.formula}\n{right}"
    wrong = ampcheck.check(slip, reference=reference, inputs=examples(), regimes="quick", backward=False)
    assert not wrong and wrong.findings[0].verdict == "BUG", f"{wrong.formula}\n{wrong}"


def test_a_tie_is_named():
    reference, examples, slip = PAIRS["argmax"]
    wrong = ampcheck.check(slip, reference=reference, inputs=examples(), regimes="quick", backward=False)
    assert "the last of equal maxima" in wrong.findings[0].cause


def test_an_index_of_a_formula_counts_its_table():
    table, index = rand(30, 16), places(30, 9)
    r = ampcheck.check(lambda table, index: table[index], "y = gather(table, index)", {"table": table, "index": index},
                       regimes="quick")
    assert r, r


def test_targets_that_are_ignored_are_said():
    r = ampcheck.check(F.cross_entropy, reference=F.cross_entropy, inputs=[rand(9, 21), places(21, 9)], regimes="quick")
    assert sum("never -100" in note for note in r.notes) == 1


def test_an_index_that_is_computed_is_refused():
    def next_row(table, index):
        return table[index + 1]

    with pytest.raises(ampcheck.UsageError, match="index that is computed at test_torch_indices.py"):
        ampcheck.check(next_row, reference=next_row, inputs=[rand(30, 16), places(29, 9)])
