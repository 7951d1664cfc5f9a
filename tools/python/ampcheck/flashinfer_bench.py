# SPDX-License-Identifier: Apache-2.0
"""An Evaluator of FlashInfer-Bench (0.1.2) without tolerances: its check of correctness is a verdict of ampcheck.

    import ampcheck.flashinfer_bench
    ampcheck.flashinfer_bench.install()  # for definitions that have no evaluator of their own
"""

from __future__ import annotations

import argparse
import secrets
import time
from typing import Any

from flashinfer_bench.bench.evaluators import registry
from flashinfer_bench.bench.evaluators.default import DefaultEvaluator
from flashinfer_bench.bench.utils import make_eval
from flashinfer_bench.data import Correctness, EvaluationStatus

from . import verify
from ._check import ExampleError
from ._core import UsageError
from ._definition_problem import callable_problem
from ._definitions import parse_definition

_STATUS = {"CRASH": EvaluationStatus.RUNTIME_ERROR, "TIMEOUT": EvaluationStatus.TIMEOUT}


class AmpcheckEvaluator(DefaultEvaluator):  # type: ignore[misc]
    """Baseline and times are the benchmark's. `extra["ampcheck"]` of the correctness is what `ampcheck verify --json` says, or
    `error` with the reason where the definition cannot become a formula: then the benchmark's own rule decides."""

    #: Options of `verify`.
    regimes = "standard"
    budget = 20.0

    @classmethod
    def can_evaluate(cls, definition: Any) -> bool:
        try:
            parse_definition(definition.model_dump(mode="json"), definition.name)
            return True
        except UsageError:
            return False

    @classmethod
    def check_correctness(cls, definition: Any, sol_runnable: Any, inputs: list[list[Any]], ref_outputs: list[list[Any]],
                          cfg: Any, log_path: str, device: str) -> tuple[Any, Any]:
        try:
            result = cls._verdict(definition, sol_runnable, inputs[0], device)
        except UsageError as error:
            correctness, evaluation = super().check_correctness(definition, sol_runnable, inputs, ref_outputs, cfg, log_path,
                                                                device)
            if correctness is not None:
                correctness.extra = {**(correctness.extra or {}), "ampcheck": {"error": str(error)}}
            return correctness, evaluation
        example = result["counterexample"] or {}
        got, want = example.get("got"), example.get("want")
        off = abs(float(got) - float(want)) if got is not None and want is not None else 0.0
        relative = off / abs(float(want)) if want is not None and float(want) != 0 else off
        correctness = Correctness(max_absolute_error=off, max_relative_error=relative, extra={"ampcheck": result})
        if result["verdict"] != "wrong":
            return correctness, None
        status = _STATUS.get(result["class"], EvaluationStatus.INCORRECT_NUMERICAL)
        failed = status != EvaluationStatus.INCORRECT_NUMERICAL
        said = f"{result['class']} {result['code']}: {result['cause']}; again with seed {result['seed']}"
        return correctness, make_eval(status=status, device=device, log_path=log_path,
                                      correctness=None if failed else correctness, extra_msg=said)

    @classmethod
    def _verdict(cls, definition: Any, sol_runnable: Any, inputs: list[Any], device: str) -> dict[str, Any]:
        start, seed = time.monotonic(), secrets.randbits(63)
        own = parse_definition(definition.model_dump(mode="json"), definition.name)
        scalars = {spec.name: value for spec, value in zip(own.inputs, inputs) if spec.shape is None}
        args = argparse.Namespace(rounding=None, dtype=[], backward=False, regimes=cls.regimes, budget=cls.budget, jobs=1)
        try:
            problem = callable_problem(own, sol_runnable.metadata.solution_name or "solution", sol_runnable,
                                       sol_runnable.metadata.destination_passing_style, scalars)
            problem.device = device
            return verify.result_of(verify.judge(problem, args, seed), seed, time.monotonic() - start)
        except ExampleError as error:
            return verify.not_run(error, seed, time.monotonic() - start)


def install() -> None:
    """Makes it the evaluator of definitions for which the benchmark has no other one."""
    registry._DEFAULT_EVALUATOR = AmpcheckEvaluator
