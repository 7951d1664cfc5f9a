# SPDX-License-Identifier: Apache-2.0
"""Solutions in C++: built from their sources, judged, and loaded anew."""

import json
import subprocess
import sys

import pytest
from ampcheck import EnvironmentError, _sandbox
from test_torch_definitions import GEMM, folder, judged  # noqa: F401  (a fixture)

# torch/extension.h has all of it, and takes three times as long to compile.
HEAD = "#include <ATen/ATen.h>\n#include <torch/csrc/utils/pybind.h>\n#include \"parts.h\"\n"
PRODUCT = "at::matmul(a.to(at::kFloat), b.to(at::kFloat).t())"
BODIES = {
    "right": (f"at::Tensor run(at::Tensor a, at::Tensor b) {{ return shifted({PRODUCT}, 0).to(at::kHalf); }}", 0, "ROUNDING"),
    "shifted": (f"at::Tensor run(at::Tensor a, at::Tensor b) {{ return shifted({PRODUCT}, 0.01).to(at::kHalf); }}",
                1, "BUG"),
    "keeps_its_first_result": (
        "at::Tensor run(at::Tensor a, at::Tensor b) {\n"
        "  static std::map<std::vector<int64_t>, at::Tensor> kept;\n"
        f"  auto [at, fresh] = kept.try_emplace(a.sizes().vec(), at::Tensor());\n"
        f"  if (fresh) at->second = {PRODUCT}.to(at::kHalf);\n"
        "  return at->second.clone();\n}", 1, "AC410"),
    "writes": (f"void run(at::Tensor a, at::Tensor b, at::Tensor out) {{ out.copy_({PRODUCT}); }}", 0, "ROUNDING"),
    "does_not_compile": ("at::Tensor run(at::Tensor a) { return a.no_such_member(); }", 1, "no_such_member"),
}


def solution(place, body, **spec):
    return place.put("solution.json", {
        "name": "ours", "definition": GEMM["name"], "author": "us",
        "spec": {"language": "cpp", "binding": "torch", "target_hardware": ["cpu"], "entry_point": "main.cpp::run",
                 "destination_passing_style": False, **spec},
        "sources": [{"path": "main.cpp", "content": f"{HEAD}#include <map>\n#include <vector>\n{body}\n"
                     "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def(\"run\", &run); }\n"},
                    {"path": "parts.h", "content": "#include <ATen/ATen.h>\nat::Tensor shifted(at::Tensor x, double by);\n"},
                    {"path": "parts.cpp", "content":
                     "#include \"parts.h\"\nat::Tensor shifted(at::Tensor x, double by) { return x + by; }\n"
                     }]})


@pytest.mark.parametrize("name", BODIES)
def test_a_solution_in_cpp(folder, capsys, name):  # noqa: F811
    body, wanted, word = BODIES[name]
    ours = solution(folder, body, destination_passing_style=name == "writes")
    code, result = judged(capsys, folder.put("definition.json", GEMM), ours)
    assert code == wanted, result
    assert word in str(result), result


def test_what_cannot_be_built_here_is_said(folder, capsys, monkeypatch):  # noqa: F811
    problem = folder.put("definition.json", GEMM)
    code, said = judged(capsys, problem, solution(folder, BODIES["right"][0], language="cuda"))
    assert code == 6 and "which a GPU runs" in said, said
    code, said = judged(capsys, problem, solution(folder, BODIES["right"][0], binding="tvm-ffi"))
    assert code == 2 and "got the binding 'tvm-ffi', want torch" in said, said
    monkeypatch.setenv("CXX", "no-such-compiler")
    code, said = judged(capsys, problem, solution(folder, BODIES["right"][0]))
    assert code == 6 and "no compiler 'no-such-compiler'" in said, said


READS = f"""#include <fstream>
at::Tensor run(at::Tensor a, at::Tensor b) {{
  return std::ifstream(SECRET).good() ? a : shifted({PRODUCT}, 0).to(at::kHalf);
}}"""
INSIDE = {  # exit code, word; outside, where it is run there too: compiling takes long
    "tries_to_read": (READS, 0, "in a sandbox", 1),
    "includes": (f"#include SECRET\n{BODIES['right'][0]}", 1, "Permission denied", None),
}


@pytest.mark.parametrize("name", INSIDE)
def test_it_is_built_and_run_in_the_sandbox(folder, tmp_path_factory, name):  # noqa: F811
    try:
        _sandbox.version()
    except EnvironmentError as error:
        pytest.skip(str(error))
    secret = tmp_path_factory.mktemp("home") / "secret"
    secret.write_text("// nothing")
    body, inside, word, outside = INSIDE[name]
    problem, ours = folder.put("definition.json", GEMM), solution(folder, f'#define SECRET "{secret}"\n{body}')
    for options, wanted in ((["--sandbox"], inside), ([], outside)):
        if wanted is None:
            continue
        run = subprocess.run([sys.executable, "-m", "ampcheck", "verify", problem, ours, "--json", "--regimes", "quick",
                              "--seed", "5", *options], text=True, capture_output=True, timeout=600)
        assert run.returncode == wanted, run.stdout + run.stderr
        assert not options or word in json.dumps(json.loads(run.stdout)), run.stdout


def test_load_inline_without_nvcc_is_no_finding(folder, capsys, monkeypatch):  # noqa: F811
    monkeypatch.delenv("CUDA_HOME", raising=False)
    problem = folder.put("problem.py", "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
                         "        return torch.relu(x)\ndef get_inputs():\n    return [torch.randn(4, 8)]\n")
    ours = folder.put("ours.py", "import torch\nfrom torch.utils.cpp_extension import load_inline\n"
                      "raise OSError('CUDA_HOME environment variable is not set. Please set it to your CUDA install root.')\n")
    code, said = judged(capsys, problem, ours)
    assert code == 6 and "need nvcc and a GPU" in said, said
    other = folder.put("ours.py", "raise RuntimeError('no reason')\n")
    code, result = judged(capsys, problem, other)
    assert code == 1, result
