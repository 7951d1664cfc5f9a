# SPDX-License-Identifier: Apache-2.0
"""`python -m ampcheck verify` judges in a process of its own: a solution that ends it, hangs, prints, or leaves processes and
threads behind gets a verdict; and what says nothing of the solution is no verdict on it."""

import json
import os
import subprocess
import sys
import time

import pytest
from ampcheck import verify

PROBLEM = "import torch\ndef f(x):\n    return torch.relu(x) * 2\ndef get_inputs():\n    return [torch.randn(8, 33)]\n"
RIGHT = "    return torch.relu(x) * 2\n"
HEAD = "import ctypes, itertools, os, subprocess, sys, threading, time\nimport torch\ncalls = itertools.count(1)\n"
BODIES = {  # exit code, class, words of the cause or of a note
    "right": (RIGHT, 0, "ROUNDING", ""),
    "ends_well": ("    os._exit(0)\n", 1, "CRASH", "the solution ended the process (exit code 0)"),
    "ends_later": (f"    if next(calls) > 30:\n        os._exit(0)\n{RIGHT}", 1, "CRASH", "ended the process (exit code 0)"),
    "exits": ("    sys.exit(0)\n", 1, "CRASH", "ended the process (sys.exit(0))"),
    "reads_memory": ("    ctypes.string_at(0)\n", 1, "CRASH", "(signal 11"),
    "hangs": ("    time.sleep(60)\n", 1, "TIMEOUT", "no answer within 12 s: the solution hangs"),
    "prints": (f"    print('RIGHT')\n{RIGHT}", 0, "ROUNDING", ""),
    "leaves_a_process": ("    if next(calls) == 3:\n        subprocess.Popen([sys.executable, '-c', 'import time; "
                         f"time.sleep(60)'], close_fds=False)\n{RIGHT}", 0, "ROUNDING", ""),
    "leaves_a_thread": ("    if next(calls) == 3:\n        threading.Thread(target=time.sleep, args=(60,)).start()\n"
                        f"{RIGHT}", 0, "ROUNDING", "threads running when it returns"),
    "returns_nothing": ("    torch.relu(x) * 2\n", 1, "CRASH", "returns a NoneType where the reference returns an array"),
    "returns_two": ("    return x, x\n", 1, "CRASH", "returns 2 results, where the reference returns 1"),
    "raises": ("    raise ValueError('no')\n", 1, "CRASH", "raises ValueError: no (solution.py:5)"),
    "computes_later": ("    class Late(torch.Tensor):\n        pass\n    return (torch.relu(x) * 2).as_subclass(Late)\n", 1,
                       "STRUCTURAL", "returns a Late as 'y', a subclass of torch.Tensor"),
    "returns_a_parameter": ("    return torch.nn.Parameter(torch.relu(x) * 2)\n", 0, "ROUNDING", ""),
}


def asked(tmp_path, body, *more):
    (tmp_path / "problem.py").write_text(PROBLEM)
    (tmp_path / "solution.py").write_text(f"{HEAD}def f(x):\n{body}")
    return subprocess.run([sys.executable, "-m", "ampcheck", "verify", f"{tmp_path}/problem.py:f", f"{tmp_path}/solution.py:f",
                           "--regimes", "quick", *more], capture_output=True, text=True, timeout=100)


@pytest.mark.parametrize("name", BODIES)
def test_what_a_solution_does_to_its_process_is_a_verdict(tmp_path, name):
    body, wanted, kind, words = BODIES[name]
    start = time.monotonic()
    got = asked(tmp_path, body, "--json", *(["--timeout", "12"] if name == "hangs" else []))
    assert time.monotonic() - start < 55, "it waits for nothing that a solution left"
    assert got.returncode == wanted, got
    result = json.loads(got.stdout)
    assert result["class"] == kind, result
    assert words in result["cause"] + " ".join(result["notes"]), result
    assert (result["hint"] != "") == (wanted == 1), result
    if kind == "CRASH" or kind == "TIMEOUT":
        assert int(result["seed"]) > 0
    assert "RIGHT" not in got.stdout
    assert ("running when it returns" in " ".join(result["notes"])) == (name == "leaves_a_thread"), result


def test_the_printed_command_draws_the_same_again(tmp_path):
    first = asked(tmp_path, "    return torch.relu(x) * 2.001\n", "--dtype", "bf16", "--dtype", "fp32")
    words = next(line for line in first.stdout.splitlines() if "again" in line).split()
    assert words[1:3] == ["ampcheck", "verify"] and "--regimes" in words and words.count("--dtype") == 2
    second = subprocess.run([sys.executable, "-m", *words[1:]], capture_output=True, text=True)

    def told(text):
        return [line for line in text.splitlines() if not line.startswith("  judged")]

    assert first.returncode == second.returncode == 1
    assert told(second.stdout) == told(first.stdout)


def test_what_fails_for_want_of_a_gpu_is_no_verdict(tmp_path):
    if subprocess.run([sys.executable, "-c", "import torch, sys; sys.exit(torch.cuda.is_available())"]).returncode:
        pytest.skip("a GPU is here")
    got = asked(tmp_path, "    return torch.relu(x.cuda()).cpu() * 2\n")
    assert got.returncode == 6 and "a GPU" in got.stderr and not got.stdout, got
    kernel = ("import triton, triton.language as tl\n@triton.jit\ndef k(x, y, n: tl.constexpr):\n    at = tl.arange(0, n)\n"
              "    tl.store(y + at, tl.load(x + at))\n")
    (tmp_path / "solution.py").write_text(f"{kernel}import torch\ndef f(x):\n    y = torch.empty_like(x)\n"
                                          "    k[(1,)](x, y, 16)\n    return y\n")
    pytest.importorskip("triton")
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    got = subprocess.run([sys.executable, "-m", "ampcheck", "verify", f"{tmp_path}/problem.py:f", f"{tmp_path}/solution.py:f"],
                         capture_output=True, text=True, env=environment)
    assert got.returncode == 6 and "TRITON_INTERPRET=1" in got.stderr and not got.stdout, got


def test_torch_s_tracer_logs_nothing(tmp_path):
    (tmp_path / "problem.py").write_text("import torch\ndef f(x, w):\n    return x @ w\ndef get_inputs():\n"
                                         "    return [torch.randn(1, 3), torch.randn(4, 4)]\n")
    (tmp_path / "solution.py").write_text("def f(x, w):\n    return x @ w\n")
    got = subprocess.run([sys.executable, "-m", "ampcheck", "verify", f"{tmp_path}/problem.py:f", f"{tmp_path}/solution.py:f"],
                         capture_output=True, text=True)
    assert got.returncode == 2 and len(got.stderr.splitlines()) == 1, got.stderr


def test_modules_of_the_folder_do_not_replace_others(tmp_path):
    """The program `ampcheck` does not look there, so the process of the judge must not either."""
    asked(tmp_path, RIGHT)
    (tmp_path / "random.py").write_text("raise SystemExit(3)\n")
    command = "import sys; sys.path.remove(''); from ampcheck.__main__ import main; raise SystemExit(main())"
    got = subprocess.run([sys.executable, "-c", command, "verify", "problem.py:f", "solution.py:f", "--regimes", "quick"],
                         cwd=tmp_path, capture_output=True, text=True)
    assert got.returncode == 0, got


def test_each_code_of_a_wrong_result_has_a_hint():
    from ampcheck._program import program

    listed = subprocess.run([program(), "explain"], capture_output=True, text=True).stdout.splitlines()
    codes = {line.split()[0]: line.split()[1] for line in listed if line.startswith("AC")}
    assert len(codes) > 30
    # AC6xx are of GPU kernels on device ptx; a blind output is no fault.
    owed = {code for code, kind in codes.items() if code < "AC600" and kind != "ILL_CONDITIONED"}
    assert owed <= set(verify._HINTS), owed - set(verify._HINTS)
