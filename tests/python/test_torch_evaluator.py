# SPDX-License-Identifier: Apache-2.0
"""The Evaluator for FlashInfer-Bench, where that is installed."""

import pytest
import torch

pytest.importorskip("flashinfer_bench")
from ampcheck import flashinfer_bench as ours
from flashinfer_bench.bench.evaluators import registry, resolve_evaluator
from flashinfer_bench.compile import Runnable
from flashinfer_bench.compile.runnable import RunnableMetadata
from flashinfer_bench.data import Definition

DEFINITION = Definition(
    name="scaled_n24", op_type="norm", axes={"M": {"type": "var"}, "N": {"type": "const", "value": 24}},
    inputs={"x": {"shape": ["M", "N"], "dtype": "float32"}, "eps": {"shape": None, "dtype": "float32"}},
    outputs={"y": {"shape": ["M", "N"], "dtype": "float32"}},
    reference="import torch\ndef run(x, eps):\n    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps)\n")


def right(x, eps):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps)


def no_eps(x, eps):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True))


def writes(x, eps, y):
    y.copy_(right(x, eps))


def raises(x, eps):
    raise ValueError("no")


@pytest.mark.parametrize("f,status", [(right, None), (writes, None), (no_eps, "INCORRECT_NUMERICAL"),
                                      (raises, "RUNTIME_ERROR")])
def test_verdicts_become_statuses(monkeypatch, f, status):
    monkeypatch.setattr(registry, "_DEFAULT_EVALUATOR", registry._DEFAULT_EVALUATOR)
    monkeypatch.setattr(ours.AmpcheckEvaluator, "regimes", "quick")
    ours.install()
    evaluator = resolve_evaluator(DEFINITION)
    assert evaluator is ours.AmpcheckEvaluator and evaluator.can_evaluate(DEFINITION)
    runnable = Runnable(f, RunnableMetadata(build_type="python", definition_name="scaled_n24", solution_name=f.__name__,
                                            destination_passing_style=f is writes, definition=DEFINITION, misc={}))
    correctness, evaluation = evaluator.check_correctness(DEFINITION, runnable, [[torch.rand(3, 24), 1e-6]], [], None, "log",
                                                          "cpu")
    assert (evaluation and evaluation.status.name) == status
    assert correctness.extra["ampcheck"]["verdict"] == ("wrong" if status else "right")
