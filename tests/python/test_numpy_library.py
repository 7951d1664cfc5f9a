# SPDX-License-Identifier: Apache-2.0
"""ampcheck.check_library: ops of a plug-in, judged as the program judges them."""

import json
import shutil
import subprocess
import sys

import ampcheck
import pytest

pytestmark = pytest.mark.skipif(shutil.which("c++") is None, reason="no c++ here")

TWO_OPS = r"""
#include <ampcheck/op.h>
#include <cstdlib>
using namespace ampcheck::op;
template <int kWhat>
void make(Op& op) {
  op.input("x", "N").no_gradient();
  op.output("y");
  op.dim("N", 5, 64, 257);
  op.formula([](Expr x) { return x * sigmoid(x); });
  op.forward([]<class T>(Type<T>, const Call& call) {
    auto x = call.view<const T>("x");
    auto y = call.view<T>("y");
    if (kWhat == 2) std::abort();
    const int n = int(x.extent(0)) - (kWhat == 1 && x.extent(0) > 1 ? 1 : 0);
    for (int i = 0; i < int(x.extent(0)); ++i) y(i) = i < n ? T(float(x(i)) / (1 + std::exp(-float(x(i))))) : T(0);
  });
}
AMPCHECK_OP(right_swish, op) { make<0>(op); }
AMPCHECK_OP(without_tail, op) { make<1>(op); }
AMPCHECK_OP(aborts, op) { make<2>(op); }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("library")
    subprocess.run([sys.executable, "-m", "ampcheck", "new", "op", "made"], cwd=folder, check=True, capture_output=True)
    (folder / "ops.cpp").write_text(TWO_OPS)
    subprocess.run(["c++", "-std=c++20", "-O1", "-shared", "-fPIC", "-I", folder / "made", folder / "ops.cpp", "-o",
                    folder / "libops.so"], check=True)
    return folder / "libops.so"


def test_a_right_op_passes_and_says_what_the_program_says(library):
    r = ampcheck.check_library(library, "right_swish", dtypes=["fp32"])
    assert r, r
    words = ["check", library, "right_swish", "--dtype", "fp32", "--real", "off", "--json"]
    told = subprocess.run([sys.executable, "-m", "ampcheck", *words], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    here, there = json.loads(r.to_json()), json.loads(told.stdout)
    assert here["summary"]["cases"] == there["summary"]["cases"]
    assert [case["case"] for case in here["cases"]] == [case["case"] for case in there["cases"]]


def test_a_wrong_one_is_a_finding_with_its_smallest_inputs(library):
    r = ampcheck.check_library(library, "without_tail", dtypes=["fp32"], regimes="quick")
    assert not r and {f.verdict for f in r.findings} == {"BUG"}, r
    assert "x" in r.findings[0].smallest
    again = ampcheck.check_library(library, "without_tail", cases=[r.findings[0].case])
    assert [f.case for f in again.findings] == [r.findings[0].case]


def test_a_crash_is_a_finding_and_python_lives(library):
    r = ampcheck.check_library(library, "aborts", dtypes=["fp32"], regimes="quick")
    assert {f.verdict for f in r.findings} == {"CRASH"}, r


def test_wrong_use(library, tmp_path):
    with pytest.raises(ampcheck.UsageError, match=r"want one of .*right_swish.*without_tail"):
        ampcheck.check_library(library)
    with pytest.raises(ampcheck.UsageError, match="rihgt"):
        ampcheck.check_library(library, "rihgt")
    with pytest.raises(ampcheck.EnvironmentError, match="there is no file"):
        ampcheck.check_library(tmp_path / "none.so")
    with pytest.raises(ampcheck.UsageError, match="dtypes.*want a list"):
        ampcheck.check_library(library, "aborts", dtypes="fp32")
