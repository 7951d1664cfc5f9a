# SPDX-License-Identifier: Apache-2.0
"""A verdict in a process of its own. What a solution does to its process (ends it, hangs, writes to stdout) is a verdict of who
asked, and never its exit code or its output."""

from __future__ import annotations

import json
import mmap
import os
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from . import _sandbox
from ._kernel import running

#: What a child and who asked it share: since when the function runs (8 bytes, see _kernel.Watch), and the seed. The seed is no
#: argument: those of a process can be read by all.
_SHARED = 16


def _end(child: int) -> int:
    """Ends a child and all that it started; its status."""
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        pass
    return os.waitpid(child, 0)[1]


def _read(source: int, child: int, seconds: float) -> tuple[str, bool]:
    """The line that a child says, or what it said before it ended, and whether that took too long. The end of the file says
    nothing: what a solution started may hold it open."""
    end = time.monotonic() + seconds
    said = b""
    while time.monotonic() < end:
        ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        ready = select.select([source], [], [], 0 if ended else 0.05)[0]
        part = os.read(source, 1 << 16) if ready else b""
        said += part
        if said.endswith(b"\n") or (ended and not part):
            return said.decode("utf-8", "replace"), False
        if ready and not part:
            time.sleep(0.01)  # it has closed its end, and is about to end
    return said.decode("utf-8", "replace"), True


def verdict(run: Callable[[int], None], seconds: float, seed: int, took: Callable[[], float]) -> dict[str, Any]:
    """What `run` writes to the file that it is given, in a child that is forked here: an object with `exit_code`. Where it
    writes none, what that says of the solution."""
    from . import verify

    source, to = os.pipe()
    child = os.fork()
    if child == 0:
        code = 70
        try:
            os.close(source)
            os.setsid()  # so that what a solution starts ends with it
            run(to)
        except BaseException as error:
            os.write(2, f"ampcheck: {error}\n".encode())
        finally:
            os._exit(code)
    os.close(to)
    try:
        text, late = _read(source, child, seconds)
        hangs = late and running.seconds() > max(1.0, seconds / 4)
    finally:
        os.close(source)
        status = _end(child)
    if late and not hangs:
        return {"exit_code": 5, **verify.not_finished(seconds, seed, took())}
    if late:
        return {"exit_code": 1, **verify.failed_at_once(
            RuntimeError(f"no answer within {seconds:g} s: the solution hangs, or is too slow"), seed, took(), "TIMEOUT",
            "AC502")}
    try:
        return dict(json.loads(text))
    except ValueError:
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:  # as the system does where memory ends
            out = verify.not_finished(seconds, seed, took())
            return {"exit_code": 5, **out, "notes": ["the process was killed, as it is where memory runs out: give it more"]}
        how = (f"signal {os.WTERMSIG(status)}, {signal.strsignal(os.WTERMSIG(status))}" if os.WIFSIGNALED(status) else
               f"exit code {os.WEXITSTATUS(status)}")
        return {"exit_code": 1, **verify.ended_the_process(how, seed, took())}


def ask(argv: Sequence[str], files: Sequence[str] | None, seconds: float, seed: int) -> dict[str, Any]:
    """`ampcheck verify` with these arguments, in a Python of its own, in a sandbox that reads `files` unless they are None."""
    start = time.monotonic()
    if files is not None:
        _sandbox.version()
    shared = os.memfd_create("ampcheck")
    os.ftruncate(shared, _SHARED)
    running.shared = mmap.mmap(shared, _SHARED)
    running.shared[8:] = seed.to_bytes(8, "little", signed=True)

    def run(to: int) -> None:
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(2, 1)  # what a solution prints is no part of the answer
        for handle in (to, shared):
            os.set_inheritable(handle, True)
        environment = dict(os.environ)
        if files is not None:
            environment = _sandbox.environment(scratch)
            _sandbox.enter(_sandbox.readable(files), scratch)
        if not {"", os.getcwd()} & set(sys.path):  # nor there: -m would look for modules in the folder that this runs in
            environment["PYTHONSAFEPATH"] = "1"
        command = [sys.executable, "-m", "ampcheck", "verify", *argv, "--inside", f"{to},{shared}"]
        os.execve(sys.executable, command, environment)

    try:
        with tempfile.TemporaryDirectory(prefix="ampcheck-verify-", ignore_cleanup_errors=True) as scratch:
            return verdict(run, seconds, seed, lambda: time.monotonic() - start)
    finally:
        running.shared = None
        os.close(shared)


def inside(handles: str, answered: Callable[[int], tuple[int, dict[str, Any]]]) -> None:
    """In that process: answers, and ends it with all threads that a solution left."""
    to, shared = (int(handle) for handle in handles.split(","))
    running.shared = mmap.mmap(shared, _SHARED)
    seed = int.from_bytes(running.shared[8:], "little", signed=True)
    running.shared[8:] = bytes(8)  # no solution finds it there
    for handle in (to, shared):
        os.set_inheritable(handle, False)
    try:
        code, result = answered(seed)
    except Exception as error:  # no fault of the solution
        traceback.print_exc()
        code, result = 70, {"error": f"ampcheck failed: {type(error).__name__}: {error}"}
    with os.fdopen(to, "w", encoding="utf-8") as answer:
        answer.write(json.dumps({"exit_code": code, **result}, allow_nan=False) + "\n")
    os._exit(0)
