# SPDX-License-Identifier: Apache-2.0
"""Solutions whose numbers are right and that measure something else: replaced functions, and the reference's own operations."""

import json
import time

import pytest
import torch
from ampcheck.verify import main_here as main
from test_torch_verify import PROBLEM, SOLUTION, files  # noqa: F401

#: Before the class, or as the first lines of its forward.
REPLACED = {
    "allclose": ("torch.allclose = lambda *a, **k: True\n", "", "torch.allclose", "loaded"),
    "timer": ("import time\n", "time.perf_counter = lambda: 0.0", "time.perf_counter", "called"),
    "synchronize": ("torch.cuda.synchronize = lambda *a: None\n", "", "torch.cuda.synchronize", "loaded"),
    "event": ("torch.cuda.Event.elapsed_time = lambda self, other: 0.0\n", "", "torch.cuda.Event.elapsed_time", "loaded"),
    "inherited": ("torch.Tensor.isnan = lambda self: torch.zeros_like(self, dtype=torch.bool)\n", "", "torch.Tensor.isnan",
                  "loaded"),
    "op": ("", "torch.sqrt = torch.rsqrt", "torch.sqrt", "called"),
    "judge": ("import ampcheck._check\nampcheck._check.run_plan = None\n", "", "ampcheck._check.run_plan", "loaded"),
    "removed": ("import builtins\ndel builtins.sum\n", "", "builtins.sum", "loaded"),
}
HONEST = {
    "imports": "import math, random, time, numpy, torch.testing, torch.utils.benchmark\n",
    "own_names": "def allclose(*a): return True\ntime = allclose\n",
    "flags": "torch.backends.cuda.matmul.allow_tf32 = False\ntorch.set_float32_matmul_precision('highest')\n",
    "patched_for_a_moment": "from unittest import mock\nwith mock.patch('torch.allclose', None): pass\n",
    "compiled": "twice = torch.compile(lambda x: x * 2, backend='eager')\ntwice(torch.ones(3))\n",
}


def solution(before, within=""):
    text = SOLUTION.replace("class ModelNew", before + "class ModelNew")
    return text.replace("        rms = ", f"        {within}\n        rms = ") if within else text


def verified(files, capsys, text, problem=PROBLEM):  # noqa: F811
    code = main([files("problem", problem), files("solution", text), "--json", "--regimes", "quick"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", REPLACED)
def test_functions_that_a_solution_replaces(files, capsys, name):  # noqa: F811
    before, within, named, when = REPLACED[name]
    functions = torch.allclose, time.perf_counter, torch.cuda.synchronize, torch.sqrt, sum
    code, result = verified(files, capsys, solution(before, within))
    assert code == 1
    assert (result["class"], result["code"]) == ("STRUCTURAL", "AC412") or name == "op", result
    if name != "op":  # its numbers are wrong, too
        assert named in result["cause"] and when in result["cause"], result
    assert functions == (torch.allclose, time.perf_counter, torch.cuda.synchronize, torch.sqrt, sum)  # they are put back
    assert "isnan" not in vars(torch.Tensor)


@pytest.mark.parametrize("name", HONEST)
def test_what_replaces_nothing_is_right(files, capsys, name):  # noqa: F811
    code, result = verified(files, capsys, solution(HONEST[name]))
    assert code == 0, result


OWN = """
    def forward(self, x):
        if x.shape[0] > 8:
            return self.fallback(x)
        scale = (torch.einsum('abc,abc->ab', x, x) / x.shape[-1] + self.eps).rsqrt().unsqueeze(-1)
        return torch.relu(self.linear(x * scale * self.weight))
    def fallback(self, x):"""


def test_the_operations_of_the_reference_are_named(files, capsys):  # noqa: F811
    own = SOLUTION.replace("\n    def forward(self, x):", OWN)
    assert own != SOLUTION
    code, result = verified(files, capsys, own)
    found = result["reference_ops"]
    assert code == 0 and 0 < found["same"] < found["cases"], result
    assert any("falls back on the torch operations of its reference" in note for note in result["notes"]), result
    code, result = verified(files, capsys, SOLUTION)
    found = result["reference_ops"]
    assert code == 0 and found["same"] == found["cases"] > 0, result
    assert any("no kernel of its own" in note for note in result["notes"]), result
    code, result = verified(files, capsys, own.replace("> 8", "< 0"))
    assert code == 0 and result["reference_ops"]["same"] == 0, result
    assert not any("operations of its reference" in note for note in result["notes"]), result


def test_a_wrong_solution_has_other_worries(files, capsys):  # noqa: F811
    code, result = verified(files, capsys, SOLUTION.replace(" + self.eps", ""))
    assert code == 1 and result["code"] != "AC412" and result["reference_ops"] is None
