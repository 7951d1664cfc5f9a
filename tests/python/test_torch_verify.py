# SPDX-License-Identifier: Apache-2.0
"""`ampcheck verify`: KernelBench's files and pairs of functions, as text, JSON and exit codes."""

import json
import os

import pytest
from ampcheck.verify import main_here as main

PROBLEM = """
import torch, torch.nn as nn
class Model(nn.Module):
    def __init__(self, features, eps=1e-3):
        super().__init__()
        self.eps, self.weight, self.linear = eps, nn.Parameter(torch.ones(features)), nn.Linear(features, 12)
    def forward(self, x):
        rms = torch.sqrt(torch.mean(x ** 2, dim=-1, keepdim=True) + self.eps)
        return torch.relu(self.linear(x / rms * self.weight))
batch, features = 4096, 64
def get_inputs():
    return [torch.rand(batch, 4096, features)]
def get_init_inputs():
    return [features]
"""
SOLUTION = PROBLEM.replace("class Model", "class ModelNew")
FAULTS = {
    "right": (SOLUTION, 0, "ROUNDING"),
    "by_reciprocal": (SOLUTION.replace("x / rms", "x * (1 / rms)"), 0, "ROUNDING"),
    "missing_term": (SOLUTION.replace(" + self.eps", ""), 1, "BUG"),
    "factor": (SOLUTION.replace("x / rms", "x / rms * 1.1"), 1, "BUG"),
    "small_factor": (SOLUTION.replace("x / rms", "x / rms * 1.001"), 1, None),  # too few digits would explain it, too
    "weight_is_one": (SOLUTION.replace(" * self.weight", ""), 1, "BUG"),
    "tail": (SOLUTION.replace("return torch.relu(", "return torch.nn.functional.pad(torch.relu(").replace(
        "self.weight))", "self.weight))[..., :-1], (0, 1))"), 1, "BUG"),
    "bf16": (SOLUTION.replace("x ** 2", "(x ** 2).bfloat16()"), 1, None),
    "raises": (SOLUTION.replace("return torch.relu", "raise ValueError('no')\n        return torch.relu"), 1, "CRASH"),
    "other_parameters": (SOLUTION.replace("self.linear", "self.dense"), 2, None),
}


@pytest.fixture
def files(tmp_path):
    def write(name, text):
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        return str(path)

    return write


@pytest.mark.parametrize("name", FAULTS)
def test_kernelbench_files(files, capsys, name):
    text, code, verdict = FAULTS[name]
    got = main([files("problem", PROBLEM), files(name, text), "--json", "--regimes", "quick"])
    out = capsys.readouterr()
    assert got == code, out
    if code == 2:
        assert "parameter" in out.err and not out.out
        return
    result = json.loads(out.out)
    assert result["schema"] == "ampcheck.verify/1"
    assert result["verdict"] == ("right" if code == 0 else "wrong")
    assert verdict is None or result["class"] == verdict
    if result["counterexample"] is not None:
        example = result["counterexample"]
        assert example["inputs"].keys() >= {"x", "weight"} and example["low"] <= example["want"] <= example["high"]
        assert not example["low"] <= example["got"] <= example["high"]


#: Problems whose extents or windows are large, and whose reference must be found right: module, its input.
LARGE = {
    "a large fixed shape": ("nn.LayerNorm((1030, 1024))", "4, 1030, 1024"),
    "equal extents beside a batch": ("nn.LayerNorm((3, 32, 32))", "16, 3, 32, 32"),
    "groups of a transposed convolution": ("nn.ConvTranspose2d(8, 8, (3, 5), stride=(2, 3), padding=(1, 2), groups=4)",
                                           "16, 8, 128, 256"),
    "windows of a volume": ("nn.ConvTranspose3d(2, 3, 3)", "4, 2, 64, 64, 64"),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_problems_are_judged_at_extents_of_their_own(files, capsys, name):
    module, shape = LARGE[name]
    text = ("import torch, torch.nn as nn\nclass Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
            f"        self.inner = {module}\n    def forward(self, x):\n        return self.inner(x)\n"
            f"def get_inputs():\n    return [torch.rand({shape})]\ndef get_init_inputs():\n    return []\n")
    right = text.replace("class Model", "class ModelNew")
    wrong = right.replace("return self.inner(x)", "y = self.inner(x); y[..., -1:] = 0; return y")
    for solution, code in ((right, 0), (wrong, 1)):
        got = main([files("problem", text), files("solution", solution), "--json", "--regimes", "quick", "--budget", "120"])
        result = json.loads(capsys.readouterr().out)
        assert got == code and result["cases"] > 0, result
    assert result["class"] == "BUG"


#: As torch computes it, this one has too few digits.
SHORT = "import torch\ndef f(x):\n    return (x * x).bfloat16().float()\n"
OF_SHORT = {
    "the same": (SHORT, 0),
    "more exact": (SHORT.replace(".bfloat16().float()", ""), 0),
    "otherwise wrong": (SHORT.replace("(x * x)", "(x * x * 1.001)"), 1),
    "wrong in a column": (SHORT.replace("    return", "    y =") + "    y[..., -1:] *= 1.0078125\n    return y\n", 1),
    # The second call of an input gives the right numbers, so does the one that looks for the cause.
    "right from the second call on": (SHORT.replace("def f(x):", "seen = {}\ndef f(x):\n    n = seen[x.shape] = "
                                                    "seen.get(x.shape, 0) + 1\n    x = x * (1.01 if n == 1 else 1)"), 1),
}


@pytest.mark.parametrize("name", OF_SHORT)
def test_bits_of_the_reference_itself_are_no_fault(files, capsys, name):
    text, code = OF_SHORT[name]
    got = main([files("problem", SHORT) + ":f", files("solution", text) + ":f", "--regimes", "quick"])
    out = capsys.readouterr().out
    assert got == code, out
    if name == "the same":
        assert main([files("problem", SHORT) + ":f", files("solution", text) + ":f", "--regimes", "quick", "--rounding",
                     "mathematics"]) == 1
    left_out = "the reference, as torch computes it, leaves its interval" in out
    assert left_out == (name == "the same") or name == "right from the second call on", out


def test_a_solution_that_cannot_be_made_again_for_memory_is_no_crash(files, capsys, monkeypatch):
    """Its weights are there twice where it is loaded anew."""
    monkeypatch.delenv("AMPCHECK_TEST_LOADED", raising=False)
    again = ("import os\nn = int(os.environ.get('AMPCHECK_TEST_LOADED', 0)) + 1\nos.environ['AMPCHECK_TEST_LOADED'] = str(n)\n"
             "if n > 1:\n    raise {}('no room')\ndef f(x):\n    return x * x\n")
    right = "def f(x):\n    return x * x\n"
    for error, code, verdict in (("MemoryError", 5, "incomplete"), ("ValueError", 1, "wrong")):
        os.environ["AMPCHECK_TEST_LOADED"] = "0"
        got = main([files("problem", right) + ":f", files("again", again.format(error)) + ":f", "--json", "--regimes", "quick"])
        result = json.loads(capsys.readouterr().out)
        assert (got, result["verdict"]) == (code, verdict), result


def test_the_seed_is_secret_and_replays(files, capsys):
    arguments = [files("problem", PROBLEM), files("wrong", FAULTS["factor"][0]), "--json", "--regimes", "quick"]
    first, second = (main(arguments), json.loads(capsys.readouterr().out))[1], None
    main(arguments)
    second = json.loads(capsys.readouterr().out)
    assert first["seed"] != second["seed"]
    assert first["counterexample"]["case"] != second["counterexample"]["case"]
    main([*arguments, "--seed", first["seed"]])
    again = json.loads(capsys.readouterr().out)
    for result in (first, again):
        del result["seconds"], result["notes"]
    assert again == first


def test_functions_of_files(files, capsys):
    theirs = files("theirs", "import torch\ndef norm(x, weight):\n    return x / x.abs().amax(-1, keepdim=True) * weight\n")
    ours = files("ours", "import torch\ndef norm(x, weight):\n    return x / x.amax(-1, keepdim=True) * weight\n")
    assert main([f"{theirs}:norm", f"{theirs}:norm", "--regimes", "quick"]) == 0
    assert capsys.readouterr().out.startswith("RIGHT")
    assert main([f"{theirs}:norm", f"{ours}:norm", "--regimes", "quick"]) == 1
    text = capsys.readouterr().out
    assert text.startswith("WRONG  BUG AC101") and "smallest" in text and "--seed" in text


def test_misuse(files, capsys):
    problem = files("problem", PROBLEM)
    assert main([problem]) == 2
    assert main([problem, "nothing.py"]) == 2
    assert main([problem, f"{problem}:Model"]) == 2
    assert main([files("gamma", PROBLEM.replace("torch.relu", "torch.lgamma")), problem]) == 2
    assert "lgamma.default at gamma.py" in capsys.readouterr().err


NORM = """
import torch
def norm(x, weight):
    return x / torch.sqrt(torch.mean(x ** 2, dim=-1, keepdim=True) + 1e-3) * weight
def get_inputs():
    return [torch.randn(8, 33), torch.randn(33)]
"""
KEPT = {  # what a solution keeps from call to call: the words that are due, or none of an honest one
    "by_shape": ("kept.setdefault(x.shape, norm(x, weight))", "shapes"),
    "by_pointer": ("kept.setdefault((x.data_ptr(), x.shape), norm(x, weight))", "addresses"),
    "by_id": ("kept.setdefault((id(x.untyped_storage()), x.shape), norm(x, weight))", "addresses"),
    "memory_by_pointer": ("kept.setdefault((x.data_ptr(), x.shape), torch.empty_like(x)).copy_(norm(x, weight))", ""),
    "by_first_element": ("kept.setdefault((x.shape, float(x.flatten()[0])) if x.numel() else 0, norm(x, weight))",
                         "first or last elements"),
    "right_1000_calls": ("norm(x, weight) + (1 if next(calls) > 1000 else 0)", "first 1000 calls"),
    "call_before": ("[norm(x, weight)] and swap(x, norm(x, weight))", "call before"),
    "counts": ("norm(x, weight) + 0 * next(calls)", ""),
    "by_all_values": ("kept.setdefault((x.shape, tuple(x.flatten().tolist()), tuple(weight.tolist()), x.dtype), "
                      "norm(x, weight))", ""),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_is_kept_from_call_to_call_is_named(files, capsys, name):
    expression, words = KEPT[name]
    solution = NORM + f"""
import itertools
kept, calls, last = {{}}, itertools.count(1), {{}}
def swap(x, y):
    before = last.get(x.shape, y)
    last[x.shape] = y
    return before
def mine(x, weight):
    return ({expression}).clone()
"""
    got = main([files("problem", NORM) + ":norm", files("solution", solution) + ":mine", "--json", "--regimes", "quick",
                "--seed", "5"])
    result = json.loads(capsys.readouterr().out)
    assert got == (1 if words else 0), result
    assert result["code"] == ("AC410" if words else "")
    assert words in result["cause"]


LATE = {  # a thread that writes what the call has returned: the numbers that are due, or others
    "due": ("torch.empty_like(x)", "y.copy_(norm(xs, ws))", False),
    "garbage": ("norm(x, weight)", "y.zero_()", False),
    "honest": ("torch.empty_like(x)", "y.copy_(norm(xs, ws))", True),
}


@pytest.mark.parametrize("name", LATE)
def test_what_is_written_after_the_return_is_named(files, capsys, name):
    first, later, waits = LATE[name]
    solution = NORM + f"""
import threading, time
def mine(x, weight):
    y, xs, ws = {first}, x.clone(), weight.clone()
    thread = threading.Thread(target=lambda: (time.sleep(0 if {waits} else 0.02), {later}))
    thread.start()
    {'thread.join()' if waits else ''}
    return y
"""
    got = main([files("problem", NORM) + ":norm", files("solution", solution) + ":mine", "--json", "--regimes", "quick"])
    result = json.loads(capsys.readouterr().out)
    assert got == (0 if waits else 1), result
    assert result["code"] == ("" if waits else "AC411"), result
