# SPDX-License-Identifier: Apache-2.0
"""Figures of the Python package, each beside its baseline in one run: `tests/python/run bench FOLDER`, or, where the package
is installed, `python tests/python/bench.py`. The recorder is measured where torch is. Exit code 1: a goal was missed."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import ampcheck
import numpy as np

PROGRAM = shutil.which("ampcheck", path=os.path.dirname(sys.executable)) or shutil.which("ampcheck")
FORMULA = "y = x / sqrt(mean(x^2, -1) + 1e-6) * weight"
FIGURES: list[tuple[str, float, float, str]] = []

KERNEL = r"""
#include <ampcheck/op.h>
using namespace ampcheck::op;
AMPCHECK_OP(bench_rms_norm, op) {
  op.input("x", "N D").no_gradient();
  op.input("weight", "D").weight().no_gradient();
  op.output("y");
  op.dim("N", 5, 64, 2);
  op.dim("D", 7, 129, 1025).least(1);
  op.storage({AC_FP32});
  op.formula([](Expr x, Expr weight) { return x / sqrt(mean(x * x, -1) + 1e-6) * weight; });
  op.forward([](const Call& call) {
    auto x = call.view<const float>("x"), weight = call.view<const float>("weight");
    auto y = call.view<float>("y");
    for (int i = 0; i < x.extent(0); ++i) {
      float sum = 0;
      for (int j = 0; j < x.extent(1); ++j) sum += x(i, j) * x(i, j);
      const float scale = 1 / std::sqrt(sum / float(x.extent(1)) + 1e-6f);
      for (int j = 0; j < x.extent(1); ++j) y(i, j) = x(i, j) * scale * weight(j);
    }
  });
}
"""


def record(figure: str, wanted: float, measured: float, unit: str = "") -> None:
    """The goal is an upper limit."""
    FIGURES.append((figure, wanted, measured, unit))


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def ratio(baseline: Callable[[], object], subject: Callable[[], object], turns: int) -> float:
    """Of neighbouring runs, so that a busy machine slows both; the median."""
    return statistics.median(seconds(subject) / seconds(baseline) for _ in range(turns))


def program(*words: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([str(PROGRAM), *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def plug_in(folder: pathlib.Path) -> None:
    subprocess.run([str(PROGRAM), "new", "op", "made"], cwd=folder, capture_output=True, check=True)  # has the headers
    (folder / "kernel.cpp").write_text(KERNEL)
    library = str(folder / "libkernel.so")
    subprocess.run(["c++", "-std=c++20", "-O2", "-shared", "-fPIC", "-I", str(folder / "made"), str(folder / "kernel.cpp"),
                    "-o", library], check=True)
    runs: list[ampcheck.Report] = []
    got = ratio(lambda: program("check", library, "--jobs", "1", "--real", "off"),
                lambda: runs.append(ampcheck.check_library(library, jobs=1)), 9)
    assert all(runs), runs[0]
    record("check of a C++ plug-in's op through Python / by the program", 1.3, got, "x")


def numpy_verdict() -> None:
    def rms_norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + np.float32(1e-6)) * weight

    inputs = {"x": np.ones((64, 256), np.float32), "weight": np.ones(256, np.float32)}
    record("verdict on an RMSNorm of NumPy", 1.0,
           statistics.median(seconds(lambda: ampcheck.check(rms_norm, FORMULA, inputs)) for _ in range(5)), "s")


def imports() -> None:
    code = "import time; t = time.perf_counter(); import ampcheck; ampcheck.check; print(time.perf_counter() - t)"
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(7)]
    record("import ampcheck", 150, 1e3 * statistics.median(float(run.stdout) for run in runs), "ms")


def recorder(folder: pathlib.Path) -> None:
    """A step of the tutorial's net at a smaller width: each is recorded, every tenth with its tensors."""
    import ampcheck.torch
    import torch

    torch.manual_seed(1)
    width, batch, steps = 1024, 128, 20
    x, target = torch.randn(batch, width), torch.randn(batch, 8)

    def train(recorded: bool) -> None:
        net = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, 8))
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)

        path = str(folder / f"{time.monotonic_ns()}.trace")
        recording = ampcheck.torch.record(path, net, optimizer, every=10) if recorded else contextlib.nullcontext()
        with recording as run:
            for _ in range(steps):
                optimizer.zero_grad()
                loss = torch.nn.functional.mse_loss(net(x), target)
                loss.backward()
                optimizer.step()
                if recorded:
                    run.step(loss)

    train(False)
    record("a training step recorded / not", 1.3, ratio(lambda: train(False), lambda: train(True), 5), "x")


def main() -> int:
    assert PROGRAM, "the program 'ampcheck' is not on the path"
    with tempfile.TemporaryDirectory(prefix="ampcheck-bench-") as name:
        folder = pathlib.Path(name)
        plug_in(folder)
        numpy_verdict()
        imports()
        try:
            import torch  # noqa: F401
        except ImportError:
            print("recorder: SKIPPED, no torch here")
        else:
            recorder(folder)
    width = max(len(figure) for figure, *_ in FIGURES)
    print(f"{'figure':{width}} | goal       | measured   |")
    for figure, wanted, measured, unit in FIGURES:
        met = "met" if measured <= wanted else "MISSED"
        print(f"{figure:{width}} | <= {f'{wanted:g} {unit}':7} | {f'{measured:.3g} {unit}':10} | {met}")
    return int(any(measured > wanted for _, wanted, measured, _ in FIGURES))


if __name__ == "__main__":
    sys.exit(main())
