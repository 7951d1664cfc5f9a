# SPDX-License-Identifier: Apache-2.0
"""`ampcheck serve`: a line in, a line out, whatever a solution does to its process."""

import json
import subprocess
import sys

import pytest

PROBLEM = """
import torch, torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        return x / torch.sqrt(torch.mean(x ** 2, dim=-1, keepdim=True) + 1e-3)
def get_inputs():
    return [torch.rand(16, 64)]
"""
SOLUTION = PROBLEM.replace("class Model", "class ModelNew")


@pytest.fixture(scope="module")
def answers():
    """All requests go through one server: a bad one does no harm to the next."""
    hang = SOLUTION.replace("return x /", "\n        while True: pass\n        return x /")
    requests = [
        {"id": "right", "problem_source": PROBLEM, "solution_source": SOLUTION, "regimes": "quick"},
        {"id": "exits", "problem_source": PROBLEM, "solution_source": "import os\nos._exit(0)\n"},
        {"id": "crashes", "problem_source": PROBLEM, "solution_source": "import os\nos.kill(os.getpid(), 11)\n"},
        {"id": "killed", "problem_source": PROBLEM, "solution_source": "import os\nos.kill(os.getpid(), 9)\n"},
        {"id": "hangs", "problem_source": PROBLEM, "solution_source": hang, "timeout": 20},
        {"id": "prints", "problem_source": PROBLEM, "solution_source": "print('{\"verdict\": \"right\"}')\n" + SOLUTION.replace(
            " + 1e-3", ""), "regimes": "quick"},
        {"id": "typo", "problem_source": PROBLEM, "solution_surce": SOLUTION},
        {"id": "no file", "problem": "/nonexistent.py", "solution_source": SOLUTION},
        {"id": "type", "problem_source": PROBLEM, "solution_source": SOLUTION, "budget": "long"},
        {"id": 7, "problem_source": PROBLEM, "solution_source": SOLUTION, "regimes": "quick", "backward": True, "seed": "12"},
    ]
    lines = [json.dumps(r) for r in requests[:6]] + ["{no json", "[1]"] + [json.dumps(r) for r in requests[6:]]
    run = subprocess.run([sys.executable, "-m", "ampcheck", "serve"], input="\n".join(lines) + "\n\n", text=True,
                         capture_output=True, timeout=300)
    assert run.returncode == 0, run.stderr
    out = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(out) == len(lines), run.stdout
    return out


def test_each_line_has_its_answer_in_order(answers):
    assert [a["id"] for a in answers] == ["right", "exits", "crashes", "killed", "hangs", "prints", None, None, "typo",
                                          "no file", "type", 7]
    assert [a["exit_code"] for a in answers] == [0, 1, 1, 5, 1, 1, 2, 2, 2, 2, 2, 0]


def test_what_a_solution_does_to_its_process_is_a_finding(answers):
    by_id = {a["id"]: a for a in answers}
    assert by_id["right"]["verdict"] == "right" and by_id["right"]["elements"] > 100
    assert by_id["exits"]["code"] == "AC501" and "ended the process (exit code 0)" in by_id["exits"]["cause"]
    assert "signal 11" in by_id["crashes"]["cause"]
    assert by_id["killed"]["verdict"] == "incomplete" and "memory" in by_id["killed"]["notes"][0]
    assert (by_id["hangs"]["class"], by_id["hangs"]["code"]) == ("TIMEOUT", "AC502")
    assert by_id["prints"]["verdict"] == "wrong", "what it prints is no answer"
    assert by_id["prints"]["counterexample"]["case"]
    assert by_id[7]["seed"] == "12"


def test_bad_requests_say_what_was_wanted(answers):
    errors = [a["error"] for a in answers if a["exit_code"] == 2]
    for error, words in zip(errors, ["line 7: got no JSON", "line 8: got [1], want an object", "got 'solution_surce'",
                                     "is no file", "[budget] got \"long\", want seconds"]):
        assert words in error, errors


def test_a_judge_that_is_too_slow_is_no_fault_of_the_solution():
    """Without time for the trace of the reference, nothing of the solution has run."""
    slow = PROBLEM.replace("        return x /", "        import time; time.sleep(30)\n        return x /")
    request = {"problem_source": slow, "solution_source": SOLUTION, "timeout": 4}
    run = subprocess.run([sys.executable, "-m", "ampcheck", "serve"], input=json.dumps(request), text=True,
                         capture_output=True, timeout=300)
    answer = json.loads(run.stdout)
    assert (answer["exit_code"], answer["verdict"], answer["code"]) == (5, "incomplete", ""), answer
    assert "did not finish within 4 s" in answer["notes"][0]
