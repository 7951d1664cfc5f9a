# SPDX-License-Identifier: Apache-2.0
"""python -m ampcheck.kernelbench FOLDER: `verify` on each problem of a folder of KernelBench's repository, with the problem's
own reference as the solution, and with mutants of it."""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
from typing import Any

from . import serve, verify
from ._core import UsageError

_MUTANT = """

class ModelNew(Model):
    def forward(self, *arguments):
        {}
"""
#: What a mutant does instead of calling the reference. `super().forward` is the right kernel.
MUTANTS = {
    "sign": "return -super().forward(*arguments)",
    "factor": "return super().forward(*arguments) * 1.01",
    # A kernel that masks one element too many of the last axis.
    "tail": "y = super().forward(*arguments); y = y.clone(); y[..., -1:] = 0; return y",
    # What the last element of the first input adds is left out.
    "term": "x = arguments[0].clone(); x[..., -1:] = 0; return super().forward(x, *arguments[1:])",
    # All in bf16: sums too.
    "bf16": "\n        ".join([
        "low = lambda v: v.bfloat16() if isinstance(v, torch.Tensor) and v.is_floating_point() else v",
        "own = {n: low(v) for n, v in {**dict(self.named_parameters()), **dict(self.named_buffers())}.items()}",
        "reference = Model.__new__(Model)",
        "reference.__dict__ = self.__dict__",
        "return torch.func.functional_call(reference, own, tuple(low(v) for v in arguments)).float()"]),
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m ampcheck.kernelbench",
        description="Judges each problem of a folder of KernelBench by itself: a right solution, which must pass.",
        epilog="Exit codes: 0 all right ones pass and all mutants are found, 1 else, 2 usage, 6 something is not installed.")
    parser.add_argument("folder", help="KernelBench/level1 of a copy of the repository")
    parser.add_argument("--mutants", action="store_true", help=f"judge wrong solutions too: {', '.join(MUTANTS)}")
    parser.add_argument("--only", default="", metavar="TEXT", help="problems whose name holds it")
    parser.add_argument("--seed", type=int, default=1, help="of the first problem; each has its own (1)")
    parser.add_argument("--regimes", choices=["quick", "standard", "all"], default="standard")
    parser.add_argument("--dtype", metavar="TYPE", help="the storage type (that of the problem's inputs). fp64: whether the "
                        "formula is the reference, to a rounding of fp64")
    parser.add_argument("--budget", type=float, default=20, metavar="SECONDS", help="of a problem (20)")
    parser.add_argument("--timeout", type=float, default=120, metavar="SECONDS", help="after which it is ended (120)")
    parser.add_argument("--json", metavar="FILE", help="a line of JSON for each verdict")
    return parser


def problems(folder: str, only: str) -> list[str]:
    """The files of a folder by their numbers."""
    if not os.path.isdir(folder):
        raise UsageError(f"[kernelbench] got '{folder}', which is no folder, want KernelBench/level1 of the repository")
    names = [n for n in os.listdir(folder) if n.endswith(".py") and only in n]
    if not names:
        raise UsageError(f"[kernelbench] got '{folder}' without problems{f' named like {only!r}' if only else ''}, want files "
                         "as 1_Square_matrix_multiplication_.py")
    return sorted(names, key=lambda n: (int((re.match(r"\d+", n) or ["0"])[0]), n))


def judge(path: str, mutant: str, args: argparse.Namespace, seed: int) -> dict[str, Any]:
    """The answer of `serve` to the problem beside itself (mutant: "") or beside a mutant of it."""
    with open(path, encoding="utf-8") as file:
        source = file.read()
    if mutant:
        source += _MUTANT.format(MUTANTS[mutant])
    return serve.answer({"problem": path, "solution_source": source, "seed": seed, "regimes": args.regimes,
                         "budget": args.budget, "jobs": 1, **({"dtype": [args.dtype]} if args.dtype else {})}, args.timeout)


def _line(name: str, mutant: str, got: dict[str, Any]) -> str:
    said = got.get("error") or f"{got['class']} {got['code']}".rstrip()
    said = f"REFUSED {said}" if "error" in got else said
    return f"{name[:-3]:<58} {mutant or 'right':<7} {got.get('seconds', 0):6.1f} s  {said}"[:220]


class Table:
    """What came of the problems."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.flagged: list[str] = []
        self.refused: list[str] = []
        self.incomplete: list[str] = []
        self.mutants = self.found = 0
        self.missed: list[str] = []

    def add(self, name: str, mutant: str, got: dict[str, Any]) -> None:
        if "error" in got:
            self.refused.append(name)
        elif mutant:
            self.mutants += 1
            self.found += got["verdict"] == "wrong"
            self.missed += [] if got["verdict"] == "wrong" else [f"{name} {mutant}"]
        else:
            self.seconds.append(got["seconds"])
            self.flagged += [name] if got["verdict"] == "wrong" else []
            self.incomplete += [name] if got["verdict"] == "incomplete" else []

    def text(self) -> str:
        judged = len(self.seconds)
        out = f"{judged} problems judged, {len(self.flagged)} flagged, {len(self.refused)} refused"
        out += f", {len(self.incomplete)} not finished" if self.incomplete else ""
        if judged:
            out += f"; median {statistics.median(self.seconds):.1f} s, longest {max(self.seconds):.1f} s"
        if self.mutants:
            out += f"\n{self.found} of {self.mutants} mutants found"
            out += f"; not: {', '.join(self.missed)}" if self.missed else ""
        return out + "\n"


def run(args: argparse.Namespace) -> int:
    table = Table()
    log = open(args.json, "w", encoding="utf-8") if args.json else None
    try:
        for at, name in enumerate(problems(args.folder, args.only)):
            for mutant in ["", *(MUTANTS if args.mutants else [])]:
                got = judge(os.path.join(args.folder, name), mutant, args, args.seed + at)
                table.add(name, mutant, got)
                print(_line(name, mutant, got), flush=True)
                if log is not None:
                    log.write(json.dumps({"problem": name, "mutant": mutant, **got}) + "\n")
                    log.flush()
                if "error" in got:
                    break
    finally:
        if log is not None:
            log.close()
    print(table.text(), end="")
    return 1 if table.flagged or table.missed else 0


def main(argv: list[str] | None = None) -> int:
    try:
        args = _parser().parse_args(argv)
    except SystemExit as end:
        return int(end.code or 0)
    try:
        verify.warm()
        return run(args)
    except UsageError as error:
        print(f"ampcheck: {error}", file=sys.stderr)
        return 2
    except (ImportError, OSError) as error:
        print(f"ampcheck: {error}", file=sys.stderr)
        return 6


if __name__ == "__main__":
    raise SystemExit(main())
