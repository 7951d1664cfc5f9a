# SPDX-License-Identifier: Apache-2.0
"""`verify --sandbox`: what a solution may not do is refused and said, and right solutions are right there."""

import errno
import json
import os
import subprocess
import sys
import tempfile

import pytest
from ampcheck import EnvironmentError, _sandbox

try:
    _sandbox.version()
except EnvironmentError as error:
    pytest.skip(str(error), allow_module_level=True)

SOURCE = """
def scaled(x, weight):
    return x * weight
def reads_home(x, weight):
    open({secret!r}).read()
    return x * weight
def tries(x, weight):
    try:
        open({secret!r})
        return x
    except OSError:
        return x * weight
"""
#: What a process may not do, or may; it exits with 13 where that is refused.
REFUSED = {
    "reads": "open(SECRET).read()",
    "lists": "os.listdir(os.path.dirname(SECRET))",
    "writes": "open(SECRET + '.new', 'w')",
    "removes": "os.remove(SECRET)",
    "udp": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
    "tcp": "socket.create_connection(('127.0.0.1', 9))",
    "local socket": "socket.socket(socket.AF_UNIX)",
    "a child reads": "sys.exit(13 if subprocess.run(['cat', SECRET], stderr=subprocess.DEVNULL).returncode else 0)",
    "a thread reads": "t = threading.Thread(target=lambda: done.append(os.access(SECRET, os.R_OK) and open(SECRET))); "
                      "t.start(); t.join(); sys.exit(0 if done else 13)",
    "memory of others": "open('/proc/1/environ').read()",
}
ALLOWED = {
    "scratch": "tempfile.TemporaryFile().write(b'x')",
    "home is scratch": "open(os.path.expanduser('~/x'), 'w').write('x')",
    "packages": "import numpy; numpy.ones(3).sum()",
    "no variables": "assert 'A_TOKEN' not in os.environ",
    "what was asked for": "open(GIVEN).read()",
}


def run_inside(command, files):
    """The exit code of a Python command that starts as the judge does."""
    with tempfile.TemporaryDirectory() as scratch:
        environment = _sandbox.environment(scratch)
        child = os.fork()
        if child == 0:
            try:
                _sandbox.enter(_sandbox.readable(files), scratch)
                os.execve(sys.executable, [sys.executable, *command], environment)
            finally:
                os._exit(70)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.fixture
def files(tmp_path):
    names = {"SECRET": tmp_path / "home" / "secret", "GIVEN": tmp_path / "given"}
    for path in names.values():
        path.parent.mkdir(exist_ok=True)
        path.write_text("key")
    return {name: str(path) for name, path in names.items()}


def code_of(body, files, **names):
    names = "".join(f"{name} = {value!r}\n" for name, value in {**files, **names}.items())
    return f"""
import os, socket, subprocess, sys, tempfile, threading
{names}
done = []
threading.excepthook = lambda _: None
try:
    {body}
except PermissionError as error:
    sys.exit(error.errno)
"""


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused(files, what):
    code = code_of(REFUSED[what], files)
    assert run_inside(["-c", code], [files["GIVEN"]]) == 13
    if what not in ("removes", "tcp", "memory of others"):
        assert subprocess.run([sys.executable, "-c", code]).returncode == 0, "outside it is no matter"


@pytest.mark.parametrize("what", ALLOWED)
def test_what_is_allowed(files, what, monkeypatch):
    monkeypatch.setenv("A_TOKEN", "key")
    assert run_inside(["-c", code_of(ALLOWED[what], files)], [files["GIVEN"]]) == 0


@pytest.mark.skipif(_sandbox.version() < 6, reason="signals are contained from version 6 of Landlock's interface on")
def test_other_processes_are_out_of_reach(files):
    assert run_inside(["-c", code_of("os.kill(PARENT, 0)", files, PARENT=os.getpid())], []) == errno.EPERM


def test_the_process_that_asked_is_free(files):
    assert run_inside(["-c", "pass"], []) == 0
    assert open(files["SECRET"]).read() == "key"
    assert run_inside(["-c", "import os; os.abort()"], []) == -6


@pytest.fixture
def solutions(files, tmp_path):
    file = tmp_path / "solutions.py"
    file.write_text(SOURCE.format(secret=files["SECRET"]))
    return str(file)


def test_requests(solutions):
    """What is refused is said; who does without is right, and outside of a sandbox nothing is refused."""
    asked = [("reads_home", True), ("tries", True), ("reads_home", False)]
    requests = [{"problem": f"{solutions}:scaled", "solution": f"{solutions}:{name}", "regimes": "quick", "seed": 5,
                 "sandbox": inside} for name, inside in asked]
    run = subprocess.run([sys.executable, "-m", "ampcheck", "serve"], input="".join(json.dumps(r) + "\n" for r in requests),
                         text=True, capture_output=True, timeout=600)
    assert run.returncode == 0, run.stderr
    refused, right, free = map(json.loads, run.stdout.splitlines())
    assert refused["exit_code"] == 1 and "[Errno 13]" in refused["cause"], refused
    assert refused["hint"].startswith("the sandbox refuses")
    assert right["exit_code"] == 0 and any(note.startswith("in a sandbox") for note in right["notes"]), right
    assert free["exit_code"] == 0, free


def test_the_command(solutions, files):
    """In a process that is inside from its start."""
    for name, code, word in (("scaled", 0, "RIGHT"), ("reads_home", 1, f"Permission denied: '{files['SECRET']}'")):
        run = subprocess.run([sys.executable, "-m", "ampcheck", "verify", f"{solutions}:scaled", f"{solutions}:{name}",
                              "--sandbox", "--regimes", "quick", "--seed", "5"], text=True, capture_output=True, timeout=300)
        assert run.returncode == code and word in run.stdout, run.stdout + run.stderr
        assert "--sandbox --seed 5" in run.stdout


def test_every_denied_call_is_in_the_filter():
    for machine, (_, architecture, denied) in _sandbox._MACHINES.items():
        code = _sandbox._filter(_sandbox._MACHINES[machine])
        assert len(code) == 8 * (6 + len(denied))
        assert len(set(denied)) == len(denied)
        assert run_filter(code, architecture, 0) == 0x7FFF0000
        for number in [*denied, 0x40000000, 0x40000001]:
            assert run_filter(code, architecture, number) == 0x0005000D, (machine, number)
        assert run_filter(code, architecture ^ 1, 0) == 0x0005000D


def run_filter(code, architecture, number):
    """What the kernel does with such a program."""
    import struct

    lines = [struct.unpack_from("=HBBI", code, at) for at in range(0, len(code), 8)]
    at, loaded = 0, 0
    while True:
        kind, yes, no, value = lines[at]
        if kind == 0x06:
            return value
        if kind == 0x20:
            loaded = {0: number, 4: architecture}[value]
            at += 1
        else:
            at += 1 + (yes if (loaded == value if kind == 0x15 else loaded >= value) else no)
