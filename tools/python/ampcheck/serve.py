# SPDX-License-Identifier: Apache-2.0
"""ampcheck serve: `verify` for a benchmark or a reward that asks many times. A request a line on stdin, an answer a line on
stdout, both JSON. Each request runs in a child of its own: what a solution does to its process ends with it."""

from __future__ import annotations

import argparse
import gc
import json
import mmap
import os
import secrets
import sys
import tempfile
import time
from typing import Any

from . import _child, _sandbox, verify
from ._core import EnvironmentError, UsageError
from ._kernel import running

# What a request may hold, with the type that is wanted.
_FIELDS: dict[str, tuple[type | tuple[type, ...], str]] = {
    "id": (object, "anything"), "problem": (str, "a path"), "solution": (str, "a path"),
    "problem_source": (str, "Python source"), "solution_source": (str, "Python source"),
    "seed": ((int, str), "a seed that was printed"), "regimes": (str, "quick, standard or all"),
    "budget": ((int, float), "seconds"), "timeout": ((int, float), "seconds"), "dtype": (list, "a list of types"),
    "backward": (bool, "true or false"), "jobs": (int, "a number"),
    "rounding": (str, "mathematics or as written"), "workload": (str, "a path"), "free": (list, "a list of axes"),
    "sandbox": (bool, "true or false")}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ampcheck serve", description="Answers requests to verify, a line of JSON each, from stdin.",
        epilog="Exit codes: 0 at the end of stdin, 2 usage, 6 something is not installed.")
    parser.add_argument("--timeout", type=float, default=120, metavar="SECONDS",
                        help="after which a request is ended, unless it has its own (120)")
    return parser


def _object(line: str) -> dict[str, Any]:
    try:
        request = json.loads(line)
    except ValueError as error:
        raise UsageError(f"got no JSON ({error}), want an object a line") from None
    if not isinstance(request, dict):
        raise UsageError(f"got {json.dumps(request)[:40]}, want an object")
    return request


def _require(request: dict[str, Any]) -> None:
    """Throws UsageError with what is wrong, and what was wanted."""
    for key, value in request.items():
        if key not in _FIELDS:
            raise UsageError(f"got '{key}', want one of: {', '.join(_FIELDS)}")
        wanted, words = _FIELDS[key]
        if not isinstance(value, wanted) or (isinstance(value, bool) and wanted not in (bool, object)):
            raise UsageError(f"[{key}] got {json.dumps(value)[:40]}, want {words}")
    for what in ("problem", "solution"):
        if (what in request) == (f"{what}_source" in request):
            raise UsageError(f"got {'both' if what in request else 'neither'} of '{what}' and '{what}_source', want one")


def _arguments(request: dict[str, Any], folder: str) -> list[str]:
    """The command line of `verify`. Sources become files of the folder."""
    out = []
    for what in ("problem", "solution"):
        path = request.get(what)
        if path is None:
            path = os.path.join(folder, f"{what}.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(request[f"{what}_source"])
        out.append(path)
    for flag in ("seed", "regimes", "budget", "jobs", "rounding", "workload"):
        if flag in request:
            out += [f"--{flag}", str(request[flag])]
    for dtype in request.get("dtype", []):
        out += ["--dtype", str(dtype)]
    if request.get("free"):
        out += ["--free", ",".join(map(str, request["free"]))]
    return out + ["--json"] + [f"--{flag}" for flag, key in (("backward", "backward"), ("sandboxed", "sandbox"))
                               if request.get(key)]


def _enter_sandbox(arguments: list[str], folder: str) -> None:
    """For a child that has just been forked, with one thread."""
    scratch = os.path.join(folder, "scratch")
    os.mkdir(scratch)
    files = verify.files_of(verify.parsed(arguments))
    reads = _sandbox.readable(files)
    given = _sandbox.environment(scratch)
    os.environ.clear()
    os.environ.update(given)
    tempfile.tempdir = scratch
    _sandbox.enter(reads, scratch)


def _in_child(arguments: list[str], folder: str, to: int) -> None:
    """Runs `verify` with its output in a file, and ends the process."""
    code = 70
    try:
        gc.freeze()  # or each trace looks through all of torch's objects for garbage again and again
        quiet = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):  # a solution prints nothing between the answers
            os.dup2(quiet, stream)
        with os.fdopen(to, "w", encoding="utf-8") as answer:
            try:
                if "--sandboxed" in arguments:
                    _enter_sandbox(arguments, folder)
                code, text = verify.answer(arguments)
            except EnvironmentError as error:
                code, text = 6, {"error": str(error)}
            except Exception as error:  # no fault of the solution
                code, text = 70, {"error": f"ampcheck failed: {type(error).__name__}: {error}"}
            answer.write(json.dumps({"exit_code": code, **text}, allow_nan=False) + "\n")
    finally:
        os._exit(code)


def answer(request: dict[str, Any], timeout: float) -> dict[str, Any]:
    """The answer to one request. The seed is drawn here: a solution that ends the process does not hide it."""
    start = time.monotonic()
    seed = int(request.get("seed", secrets.randbits(63)))
    running.shared = mmap.mmap(-1, 8)  # of the child, too
    with tempfile.TemporaryDirectory(prefix="ampcheck-serve-", ignore_cleanup_errors=True) as folder:
        arguments = _arguments({**request, "seed": seed}, folder)
        return _child.verdict(lambda to: _in_child(arguments, folder, to), float(request.get("timeout", timeout)), seed,
                              lambda: time.monotonic() - start)


def main(argv: list[str] | None = None) -> int:
    try:
        args = _parser().parse_args(argv)
    except SystemExit as end:
        return int(end.code or 0)
    try:
        verify.warm()
    except ImportError as error:
        print(f"ampcheck: {error}", file=sys.stderr)
        return 6
    sys.stdin.reconfigure(errors="replace")  # type: ignore[union-attr]  # such a line is no JSON, and the next one may be
    for number, line in enumerate(sys.stdin, 1):
        if not line.strip():
            continue
        named: Any = None
        try:
            request = _object(line)
            named = request.get("id")
            _require(request)
            result = answer(request, args.timeout)
        except UsageError as error:
            result = {"exit_code": 2, "error": f"[serve] line {number}: {error}"}
        sys.stdout.write(json.dumps({"id": named, **result}, allow_nan=False) + "\n")
        sys.stdout.flush()
    return 0
