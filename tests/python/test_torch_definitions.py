# SPDX-License-Identifier: Apache-2.0
"""`ampcheck verify` on definitions of FlashInfer Trace and SOL-ExecBench, and references whose casts are roundings."""

import json

import ampcheck
import pytest
import torch
from ampcheck._definition_problem import _write_safetensors
from ampcheck.verify import main_here as main

RMS_NORM = {
    "name": "rms_norm_d24", "op_type": "rmsnorm",
    "axes": {"batch": {"type": "var"}, "hidden": {"type": "const", "value": 24}},
    "inputs": {"x": {"shape": ["batch", "hidden"], "dtype": "bfloat16"}, "weight": {"shape": ["hidden"], "dtype": "bfloat16"},
               "eps": {"shape": None, "dtype": "float32"}},
    "outputs": {"output": {"shape": ["batch", "hidden"], "dtype": "bfloat16"}},
    "reference": """import torch

@torch.no_grad()
def run(x, weight, eps):
    wide = x.to(torch.float32)
    inverse = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * (wide * inverse).to(x.dtype)
"""}
WORKLOAD = {"axes": {"batch": 512}, "uuid": "one",
            "inputs": {"x": {"type": "random"}, "weight": {"type": "random"}, "eps": {"type": "scalar", "value": 1e-5}}}
EXACT = """import torch
def run(x, weight, eps):
    wide = x.float()
    inverse = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return (wide * inverse * weight.float()).to(x.dtype)
"""
LAST = "(wide * inverse * weight.float()).to(x.dtype)"
NORMS = {  # (source, whether it writes its results, exit code, word of the class or cause)
    "exact": (EXACT, False, 0, "ROUNDING"),
    "rounds_as_the_reference": (EXACT.replace(LAST, "weight * (wide * inverse).to(x.dtype)"), False, 0, "ROUNDING"),
    "writes": (EXACT.replace("eps)", "eps, output)", 1).replace(f"return {LAST}", f"output[:] = {LAST}"), True, 0, "ROUNDING"),
    "tail_not_written": (EXACT.replace("eps)", "eps, output)", 1).replace(
        f"return {LAST}", f"output[:, :16] = {LAST}[:, :16]"), True, 1, "16"),
    "dropped_tail": (EXACT.replace("wide.pow(2).mean(-1", "wide[:, :16].pow(2).mean(-1"), False, 1, "BUG"),
    "missing_eps": (EXACT.replace(" + eps", ""), False, 1, "eps"),
    "sum_in_bf16": (EXACT.replace("    inverse", """    total = torch.zeros_like(x[:, :1])
    for at in range(x.shape[-1]):
        total = total + x[:, at:at + 1] * x[:, at:at + 1]
    inverse""").replace("wide.pow(2).mean(-1, keepdim=True)", "total.float() / x.shape[-1]"), False, 1, "16 bits"),
    "other_type": (EXACT.replace(".to(x.dtype)", ""), False, 1, "float32, want torch.bfloat16"),
    "cannot_be_loaded": (EXACT.replace("import torch", "import torchh"), False, 1, "torchh"),
}
GEMM = {
    "name": "gemm_n12_k40", "op_type": "gemm",
    "axes": {"M": {"type": "var"}, "N": {"type": "const", "value": 12}, "K": {"type": "const", "value": 40}},
    "inputs": {"A": {"shape": ["M", "K"], "dtype": "float16"}, "B": {"shape": ["N", "K"], "dtype": "float16"}},
    "outputs": {"C": {"shape": ["M", "N"], "dtype": "float16"}},
    "reference": "import torch\n\ndef run(A, B):\n    return torch.matmul(A, B.T)\n"}
GEMMS = {
    "right": ("return (A.float() @ B.float().T).half()", 0, "ROUNDING"),
    "dropped_tail": ("return (A[:, :32].float() @ B[:, :32].float().T).half()", 1, "BUG"),
    "sum_in_fp16": ("return sum_of(A, B)", 1, "PRECISION_CONTRACT"),
    "bias": ("return (A.float() @ B.float().T + 0.01).half()", 1, "BUG"),
}
SUM_OF = """def sum_of(A, B):
    out = A[:, :1] * B[:, 0]
    for at in range(1, 40):
        out = out + A[:, at:at + 1] * B[:, at]
    return out
"""


@pytest.fixture
def folder(tmp_path):
    class Folder:
        path = tmp_path

        def put(self, name, value):
            place = tmp_path / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(value if isinstance(value, str) else json.dumps(value))
            return str(place)

        def solution(self, definition, source, writes=False, **spec):
            return self.put("solution.json", {
                "name": "ours", "definition": definition["name"], "author": "us",
                "spec": {"language": "python", "target_hardware": ["cpu"], "entry_point": "main.py::run",
                         "destination_passing_style": writes, **spec},
                "sources": [{"path": "main.py", "content": source}]})

    return Folder()


def judged(capsys, *arguments):
    code = main([*arguments, "--json", "--regimes", "quick", "--seed", "7"])
    out = capsys.readouterr()
    return code, json.loads(out.out) if out.out else out.err


@pytest.mark.parametrize("name", NORMS)
def test_solutions_of_rms_norm(folder, capsys, name):
    source, writes, wanted, word = NORMS[name]
    folder.put("definition.json", RMS_NORM)
    folder.put("workload.jsonl", json.dumps(WORKLOAD) + "\n\n")
    code, result = judged(capsys, str(folder.path), folder.solution(RMS_NORM, source, writes))
    assert code == wanted, result
    assert word in result["class"] + result["cause"]
    if wanted == 0:
        assert result["power"]["found"] >= 0.8 * result["power"]["changes"] > 20
        assert result["power"]["found"] + len(result["power"]["missed"]) == result["power"]["changes"]


@pytest.mark.parametrize("name", GEMMS)
def test_solutions_of_gemm(folder, capsys, name):
    body, wanted, word = GEMMS[name]
    solution = folder.solution(GEMM, f"{SUM_OF}def run(A, B):\n    {body}\n")
    code, result = judged(capsys, folder.put("definition.json", GEMM), solution)
    assert (code, result["class"]) == (wanted, word), result
    assert wanted == 0 or ",40]" in result["counterexample"]["case"], "constant axes stay"


def test_the_mathematics_alone_convicts_who_rounds_as_the_reference_does(folder, capsys):
    folder.put("workload.jsonl", json.dumps(WORKLOAD))
    problem = folder.put("definition.json", RMS_NORM)
    code, result = judged(capsys, problem, folder.solution(RMS_NORM, NORMS["rounds_as_the_reference"][0]), "--rounding",
                          "mathematics")
    assert (code, result["class"]) == (1, "PRECISION_CONTRACT"), result


def test_places_and_files_of_a_collection(folder, capsys):
    """definitions/OP/NAME.json with workloads/OP/NAME.jsonl, whose tensors are judged, too."""
    problem = folder.put("definitions/rmsnorm/rms_norm_d24.json", RMS_NORM)
    generator = torch.Generator().manual_seed(1)
    _write_safetensors(str(folder.path / "tensors.safetensors"),
                       {"one": torch.randn(5, 24, generator=generator).bfloat16(), "w": torch.ones(24).bfloat16()})
    inputs = {"x": {"type": "safetensors", "path": "tensors.safetensors", "tensor_key": "one"},
              "weight": {"type": "random"}, "eps": {"type": "scalar", "value": 1e-5}}
    line = {"definition": "rms_norm_d24", "workload": {"axes": {"batch": 5}, "uuid": "two", "inputs": inputs}}
    workloads = folder.put("workloads/rmsnorm/rms_norm_d24.jsonl", json.dumps(line))
    solution = folder.solution(RMS_NORM, EXACT)
    code, result = judged(capsys, problem, solution)
    assert code == 0 and "one case is the workload's own tensors" in result["notes"], result
    first = torch.randn(5, 24, generator=torch.Generator().manual_seed(1)).bfloat16()[0, 0].item()
    doubled = f"    if bool(x.numel() and x[0, 0] == {first!r}):\n        weight = weight * 2\n    return"
    only_there = EXACT.replace("    return", doubled)
    code, result = judged(capsys, problem, folder.solution(RMS_NORM, only_there))
    assert code == 1 and result["failed"] == 1, result
    inputs["x"]["tensor_key"] = "on"
    folder.put("workloads/rmsnorm/rms_norm_d24.jsonl", json.dumps(line))
    assert "got the tensor 'on'" in judged(capsys, problem, solution)[1]
    folder.put("workloads/rmsnorm/rms_norm_d24.jsonl", "{")
    assert f"{workloads}:1: got no JSON" in judged(capsys, problem, solution)[1]


def changed(of, **fields):
    return {**of, **fields}


MISUSE = {
    "dtype": (changed(RMS_NORM, inputs={**RMS_NORM["inputs"], "x": {"shape": ["batch"], "dtype": "bfloat"}}),
              "input 'x': got dtype 'bfloat'", "did you mean 'bfloat16'?"),
    "axis": (changed(RMS_NORM, inputs={**RMS_NORM["inputs"], "x": {"shape": ["bach"], "dtype": "float32"}}),
             "got the axis 'bach'", "did you mean 'batch'?"),
    "field": ({k if k != "outputs" else "output": v for k, v in RMS_NORM.items()}, "got no 'outputs'", "'output'?"),
    "kind": (changed(RMS_NORM, axes={**RMS_NORM["axes"], "batch": {"type": "constant"}}), "got type 'constant'", "var"),
    "integers": (changed(RMS_NORM, outputs={"i": {"shape": ["batch"], "dtype": "int32"}}), "output 'i', int32", "floating"),
    "constraint": (changed(RMS_NORM, constraints=["batch == hidden * 4"]), "'batch == hidden * 4'", "--workload"),
    "scalar": (RMS_NORM, "no value of the scalar 'eps'", "--workload"),
}


@pytest.mark.parametrize("name", MISUSE)
def test_a_definition_that_cannot_be_read(folder, capsys, name):
    definition, *words = MISUSE[name]
    problem = folder.put("definition.json", definition)
    code, said = judged(capsys, problem, folder.solution(RMS_NORM, EXACT))
    assert code == 2
    for word in words:
        assert word in said, said


def test_a_solution_that_cannot_be_read(folder, capsys):
    problem, workload = folder.put("definition.json", RMS_NORM), folder.put("own.jsonl", json.dumps(WORKLOAD))
    for spec, words in (({"language": "rust"}, "got the language 'rust'"), ({"entry_point": "main.py"}, "want FILE::FUNCTION"),
                        ({"entry_point": "kernel.py::run"}, "not among the sources")):
        code, said = judged(capsys, problem, folder.solution(RMS_NORM, EXACT, **spec), "--workload", workload)
        assert code == 2 and words in said, said
    code, said = judged(capsys, problem, folder.solution(GEMM, EXACT), "--workload", workload)
    assert code == 2 and "got a solution of 'gemm_n12_k40', want one of 'rms_norm_d24'" in said
    code, said = judged(capsys, problem, folder.solution(RMS_NORM, EXACT), "--workload", workload, "--free", "batch")
    assert code == 2 and "[free] got 'batch', want all, or constant axes: hidden" in said


def test_what_is_too_large_or_needs_a_gpu_is_said(folder, capsys):
    large = json.loads(json.dumps(GEMM))
    large["axes"]["N"]["value"], large["axes"]["K"]["value"] = 24576, 3072
    problem = folder.put("definition.json", large)
    solution = folder.solution(GEMM, "def run(A, B):\n    return A @ B.T\n")
    code, said = judged(capsys, problem, solution)
    assert code == 2 and "'B' of 75,497,472 elements" in said and "--free N,K" in said, said
    for language in ("cutile", "cute_dsl"):
        problem = folder.put("definition.json", GEMM)
        code, said = judged(capsys, problem, folder.solution(GEMM, "import cuda.tile\n", languages=[language]))
        assert code == 6 and f"a solution in {language}, which a GPU runs" in said, said
    solution = folder.solution(GEMM, "def run(A, B):\n    return A @ B.T\n")
    ragged = {**GEMM, "constraints": ["M == indptr[-1].item()"]}
    code, said = judged(capsys, folder.put("definition.json", ragged), solution)
    assert code == 2 and "extents that the data decides" in said, said


def test_power_is_known_where_constant_axes_are_long(folder, capsys):
    """No case is small there: some of the smallest are looked at."""
    long = json.loads(json.dumps(RMS_NORM))
    long["axes"]["hidden"]["value"] = 8192
    folder.put("workload.jsonl", json.dumps(WORKLOAD))
    problem = folder.put("definition.json", long)
    code, result = judged(capsys, problem, folder.solution(RMS_NORM, EXACT))
    assert code == 0 and 0 < result["power"]["cases"] <= 8, result
    assert result["power"]["changes"] > 20 and result["power"]["found"] > 0.6 * result["power"]["changes"], result["power"]


@pytest.mark.parametrize("fault,wanted", [("", 0), ("    C[64:65] *= 1.25\n", 1)])
def test_a_tile_is_full_once_beside_long_constant_axes(folder, capsys, fault, wanted):
    """K and N leave room for a handful of rows in the usual cases."""
    large = json.loads(json.dumps(GEMM))
    large["axes"]["N"]["value"], large["axes"]["K"]["value"] = 128, 256
    source = f"def run(A, B):\n    C = (A.float() @ B.float().T).half()\n{fault}    return C\n"
    code, result = judged(capsys, folder.put("definition.json", large), folder.solution(GEMM, source))
    assert code == wanted, result
    if wanted:
        assert "[65,256]" in result["counterexample"]["smallest_case"], result["counterexample"]


def test_free_axes_vary(folder, capsys):
    problem = folder.put("definition.json", GEMM)
    only_12 = folder.solution(GEMM, "def run(A, B):\n    return A @ B[:12].T\n")
    assert judged(capsys, problem, only_12)[0] == 0
    assert judged(capsys, problem, only_12, "--free", "all")[0] == 1


# ---- "as written": a cast of the reference is a rounding of the contract. ----


def rms_norm(x, weight):
    wide = x.float()
    normal = wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + 1e-6)
    return (normal * weight.float()).to(x.dtype)


def rms_norm_rounding(x, weight):
    wide = x.float()
    normal = wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + 1e-6)
    return normal.to(x.dtype) * weight


@pytest.mark.parametrize("kernel,reference,passes", [(rms_norm, rms_norm, True), (rms_norm_rounding, rms_norm, False),
                                                     (rms_norm_rounding, rms_norm_rounding, True),
                                                     (rms_norm, rms_norm_rounding, True)])
def test_a_rounding_is_allowed_where_the_reference_has_it(kernel, reference, passes):
    inputs = [torch.rand(6, 40).bfloat16(), torch.rand(40).bfloat16()]
    r = ampcheck.check(kernel, reference=reference, inputs=inputs, rounding="as written", regimes="quick", backward=False)
    assert bool(r) == passes, r
    if not passes:
        assert r.findings[0].verdict == "PRECISION_CONTRACT"
    assert ("rounded(" in r.formula) == (reference is rms_norm_rounding)


def test_two_contracts_differ_in_one_line():
    inputs = [torch.rand(6, 40).bfloat16(), torch.rand(40).bfloat16()]
    lines = [ampcheck.check(rms_norm, reference=f, inputs=inputs, rounding="as written", regimes="quick",
                            backward=False).formula.splitlines() for f in (rms_norm, rms_norm_rounding)]
    assert len(lines[0]) == len(lines[1])
    assert sum(a != b for a, b in zip(*lines)) == 1, lines


def test_a_rounding_to_another_type_than_the_inputs_is_refused():
    with pytest.raises(ampcheck.UsageError, match="a rounding to torch.bfloat16"):
        ampcheck.check(lambda x: x * 2, reference=lambda x: x.bfloat16().float() * 2, inputs=[torch.rand(4, 8)],
                       rounding="as written", backward=False)
    with pytest.raises(ampcheck.UsageError, match="want 'mathematics' or 'as written'"):
        ampcheck.check(lambda x: x * 2, reference=lambda x: x * 2, inputs=[torch.rand(4, 8)], rounding="written")
