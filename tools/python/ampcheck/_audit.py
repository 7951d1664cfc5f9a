# SPDX-License-Identifier: Apache-2.0
"""An audit of the program in which this process is what is audited: the program asks by lines of JSON, and a thread answers."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ._core import UsageError
from ._program import program

Answers = Callable[[dict[str, Any]], list[dict[str, Any]]]
_END = "\n"


@dataclass(frozen=True)
class Audit:
    """What an audit says with --json. True if no check failed."""

    passed: bool
    code: str
    checks: list[dict[str, Any]]
    text: str

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        return self.text


def _serve(answers: Answers, has: list[str], paths: tuple[str, str], failed: list[BaseException]) -> None:
    with open(paths[0], encoding="utf-8") as requests, open(paths[1], "w", encoding="utf-8") as out:
        for line in requests:
            if line == _END:
                return
            request = json.loads(line)
            try:
                answer = {"has": has} if "hello" in request else {"replies": answers(request)}
            except Exception as error:  # told to the program, and raised where the audit was called
                failed.append(error)
                answer = {"replies": [{"error": f"{type(error).__name__}: {error}"}]}
            out.write(json.dumps(answer) + "\n")
            out.flush()


def _end(server: threading.Thread, paths: tuple[str, str]) -> None:
    """Ends the thread, also where the program never opened the pipes. They stay open until it has ended: it may not yet wait
    at either of them."""
    ends = [os.open(path, os.O_RDWR) for path in paths]
    os.write(ends[0], _END.encode())
    server.join()
    for end in ends:
        os.close(end)


def _text(result: dict[str, Any]) -> str:
    lines = ["RIGHT" if result["passed"] else f"BROKEN: {result['code']} explains the others"]
    for c in result["checks"]:
        shown = f": {c['says']}; {', '.join(c['calls'])}; {c['setup']}" if c["calls"] else ""
        if c["outcome"] in ("FAILED", "WEAK"):
            lines.append(f"{c['code']} {c['name']}: {c['outcome']}{shown}")
    return "\n".join(lines)


def audited(what: str, has: list[str], answers: Answers, rule: str) -> dict[str, Any]:
    """The fields of Audit from `ampcheck audit WHAT`. answers: the replies to a request. Raises what it raises."""
    with tempfile.TemporaryDirectory() as folder:
        paths = os.path.join(folder, "requests"), os.path.join(folder, "answers")
        for path in paths:
            os.mkfifo(path)
        failed: list[BaseException] = []
        server = threading.Thread(target=_serve, args=(answers, has, paths, failed), daemon=True)
        server.start()
        command = f"cat {paths[1]} & exec cat >{paths[0]}"  # of the two, a shell leaves the latter its standard input
        told = subprocess.run([program(), "audit", what, command, "--rule", rule, "--json"], capture_output=True,
                              text=True, check=False)
        _end(server, paths)
    if failed:
        raise failed[0]
    if told.returncode not in (0, 1):
        raise UsageError(told.stderr.strip().removeprefix("ampcheck: "))
    result = json.loads(told.stdout)
    return {"passed": result["passed"], "code": result["code"], "checks": result["checks"], "text": _text(result)}
