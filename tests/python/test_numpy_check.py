# SPDX-License-Identifier: Apache-2.0
"""ampcheck.check of NumPy functions: planted faults are found, correct variants pass, misuse is said in words."""

import json
import subprocess
import sys
import threading
import time

import ampcheck
import numpy as np
import pytest

RMS = "y = x / sqrt(mean(x^2, -1) + eps) * weight"
SOFTMAX = "e = exp(x - stop_gradient(max(x, -1)))\ny = e / sum(e, -1)"


def examples(rows=8, columns=24, dtype=np.float32):
    rng = np.random.default_rng(3)
    return {"x": rng.standard_normal((rows, columns)).astype(dtype), "weight": np.ones(columns, dtype)}


def rms_norm(x, weight, eps=1e-6):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(eps)) * weight


def rms_norm_by_reciprocal(x, weight, eps=1e-6):
    return (x * (np.float32(1) / np.sqrt(np.mean(x * x, -1, keepdims=True) + np.float32(eps)))) * weight


def rms_norm_sequential(x, weight, eps=1e-6):
    total = np.zeros(x.shape[:-1], np.float32)
    for i in range(x.shape[-1]):
        total = total + x[..., i] * x[..., i]
    return x / np.sqrt(total / np.float32(max(x.shape[-1], 1)) + np.float32(eps))[..., None] * weight


def dropped_tail(x, weight, eps=1e-6):
    y = rms_norm(x, weight, eps)
    y[..., x.shape[-1] // 4 * 4:] = 0
    return y


def missing_term(x, weight, eps=1e-6):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True)) * weight


def wrong_factor(x, weight, eps=1e-6):
    return rms_norm(x, weight, eps) * np.float32(1.0001)


def accumulates_in_fp16(x, weight, eps=1e-6):
    total = np.zeros(x.shape[:-1], np.float16)
    for i in range(x.shape[-1]):
        total = (total + (x[..., i] * x[..., i]).astype(np.float16)).astype(np.float16)
    mean = total.astype(np.float32) / np.float32(max(x.shape[-1], 1))
    return x / np.sqrt(mean + np.float32(eps))[..., None] * weight


def backward(dy, x, weight, eps=1e-6):
    inverse = np.float32(1) / np.sqrt(np.mean(x * x, -1, keepdims=True) + np.float32(eps))
    n, dn = x * inverse, dy * weight
    return inverse * (dn - n * np.mean(dn * n, -1, keepdims=True)), (dy * n).sum(0)


def backward_without_projection(dy, x, weight, eps=1e-6):
    dx, dweight = backward(dy, x, weight, eps)
    inverse = np.float32(1) / np.sqrt(np.mean(x * x, -1, keepdims=True) + np.float32(eps))
    return inverse * dy * weight, dweight


def check(f, **options):
    options = {"regimes": "quick", "attributes": {"eps": 1e-6}, **options}
    return ampcheck.check(f, reference=RMS, inputs=examples(), **options)


@pytest.mark.parametrize("f", [rms_norm, rms_norm_by_reciprocal, rms_norm_sequential])
def test_correct_variants_pass(f):
    r = check(f, regimes="standard")
    assert r, r
    assert r.totals["cases"] > 40 and r.totals["elements"] > 100_000


@pytest.mark.parametrize("f, code", [(dropped_tail, "AC101"), (missing_term, "AC101"), (wrong_factor, "AC101"),
                                     (accumulates_in_fp16, None)])
def test_planted_faults_are_found(f, code):
    r = check(f)
    assert not r
    assert code is None or r.findings[0].code == code


def test_a_bf16_accumulator_is_named():
    """Sums in fp16 are not what was declared; declared, they are right."""
    r = check(accumulates_in_fp16)
    assert "fp16" in str(r), r


def test_backward_is_judged():
    r = check(backward_is := rms_norm, backward=backward)
    assert r, (backward_is, r)
    wrong = check(rms_norm, backward=backward_without_projection)
    assert {f.tensor for f in wrong.findings} == {"backward dx"}


def test_a_finding_as_data():
    finding = check(dropped_tail).findings[0]
    assert finding.verdict == "BUG" and finding.got == 0.0
    assert not finding.low <= finding.got <= finding.high
    assert finding.low <= finding.want <= finding.high
    assert len(finding.index) == 2
    smallest = finding.smallest
    assert set(smallest) == {"x", "weight"} and smallest["x"].dtype == np.float32
    got, right = dropped_tail(**smallest), rms_norm(**smallest)
    assert not np.array_equal(got, right), "the smallest inputs show the fault"


def test_the_json_is_the_program_s():
    r = check(dropped_tail)
    data = json.loads(r.to_json())
    assert data["schema"] == "ampcheck.check/1"
    assert len([c for c in data["cases"] if c["verdict"] == "BUG"]) > 0


def test_extents_vary_unless_they_are_held():
    seen = set()

    def f(x, weight, eps=1e-6):
        seen.add(x.shape)
        return rms_norm(x, weight, eps)

    assert check(f)
    assert len({s[-1] for s in seen}) > 5
    seen.clear()
    assert check(f, dims={"x": "N D", "weight": "D", "D": ampcheck.Dim(multiple=8, least=8)})
    assert all(s[-1] % 8 == 0 for s in seen) and len({s[-1] for s in seen}) > 2
    seen.clear()
    assert check(f, dims={"x": "N D", "weight": "D", "D": 32})
    assert {s[-1] for s in seen} == {24, 32}, "24: the examples"


def test_extents_that_follow_from_others():
    rng = np.random.default_rng(5)
    gated = "h = floor(D/2); y = slice(x, -1, 0, h) * sigmoid(slice(x, -1, h, 2*h)) * weight"
    seen = set()

    def gate(x, weight, half=0):
        h = x.shape[-1] // 2
        seen.add((x.shape[-1], weight.shape[-1]))
        one = np.float32(1)
        return x[..., :h] / (one + np.exp(-x[..., half * h:(half + 1) * h])) * weight

    x, weight = rng.standard_normal((6, 24)).astype(np.float32), np.ones(12, np.float32)
    dims = {"x": "N D", "weight": "D / 2"}
    assert ampcheck.check(lambda x, weight: gate(x, weight, 1), gated, {"x": x, "weight": weight}, dims=dims)
    assert all(whole // 2 == half for whole, half in seen) and len({whole % 2 for whole, _ in seen}) == 2
    report = ampcheck.check(gate, gated, {"x": x, "weight": weight}, dims=dims)
    assert not report
    with pytest.raises(ampcheck.UsageError, match=r"got the extent 12 of 'weight', want 8, which is 'D/3'"):
        ampcheck.check(gate, gated, {"x": x, "weight": weight}, dims={"x": "N D", "weight": "D/3"})
    with pytest.raises(ampcheck.UsageError, match=r"'E/2' with the unknown name 'E'"):
        ampcheck.check(gate, gated, {"x": x, "weight": weight}, dims={"x": "N D", "weight": "E/2"})

    square = {"m": rng.standard_normal((5, 5)).astype(np.float32), "x": np.ones(5, np.float32)}
    turned = "y = reshape(matmul(transpose(m), reshape(x, n, 1)), n)"
    assert ampcheck.check(lambda m, x: m.T @ x, turned, square, dims={"m": "n n", "x": "n"})
    assert not ampcheck.check(lambda m, x: m @ x, turned, square, dims={"m": "n n", "x": "n"})


def test_rows_that_look_at_each_other():
    def leaks(x, weight, eps=1e-6):
        y = rms_norm(x, weight, eps)
        return y + np.float32(1e-9) * x[:1] * np.float32(0 if len(x) < 2 else 1e-3)

    assert any(f.code.startswith("AC4") or f.code == "AC101" for f in check(leaks, rows="N").findings)
    assert check(rms_norm, rows="N")


def test_crashes_changed_inputs_and_caches_are_findings():
    def only_small(x, weight, eps=1e-6):
        if x.shape[-1] > 24:
            raise ValueError("too wide")
        return rms_norm(x, weight, eps)

    def scribbles(x, weight, eps=1e-6):
        y = rms_norm(x, weight, eps)
        x *= 2
        return y

    cache = {}

    def by_pointer(x, weight, eps=1e-6):
        return cache.setdefault((x.ctypes.data, x.shape), rms_norm(x, weight, eps))

    crash = next(f for f in check(only_small).findings if f.verdict == "CRASH")
    assert "ValueError: too wide" in crash.cause and "test_numpy_check.py" in crash.cause
    assert "AC403" in {f.code for f in check(scribbles).findings}
    assert not check(by_pointer)


def test_a_wrong_shape_is_a_finding():
    def transposed(x, weight, eps=1e-6):
        y = rms_norm(x, weight, eps)
        return y if x.shape == (8, 24) else y.T

    r = check(transposed)
    assert any("has shape" in f.cause for f in r.findings), r


def test_softmax_and_dtypes():
    def softmax(x):
        wide = x.astype(np.float32)
        e = np.exp(wide - wide.max(-1, keepdims=True))
        return (e / e.sum(-1, keepdims=True)).astype(x.dtype)

    x = np.random.default_rng(1).standard_normal((4, 9)).astype(np.float16)
    r = ampcheck.check(softmax, reference=SOFTMAX, inputs=[x], dtypes=["fp16", "bf16", "fp32"], regimes="quick")
    assert r, r
    assert "bf16" in str(r) and "fp16" in str(r)

    def in_half(x):
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True, dtype=x.dtype)

    assert not ampcheck.check(in_half, reference=SOFTMAX, inputs=[x], regimes="quick")


def test_examples_in_fp32_are_judged_in_fp64():
    def exact(x):
        return np.exp(x)

    def through_fp32(x):
        return np.exp(x.astype(np.float32)).astype(x.dtype)

    x = np.linspace(-1, 1, 60, dtype=np.float32).reshape(5, 12)
    right = ampcheck.check(exact, reference="y = exp(x)", inputs=[x], dtypes=["fp64"], regimes="quick")
    assert right, right
    assert json.loads(right.to_json())["cases"][0]["dtype"] == "fp64"
    wrong = ampcheck.check(through_fp32, reference="y = exp(x)", inputs=[x], dtypes=["fp64"], regimes="quick")
    assert not wrong and wrong.findings[0].verdict in ("PRECISION_CONTRACT", "BUG")


def test_a_type_whose_package_is_missing_is_no_fault_of_the_function(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(ampcheck.UsageError, match="ml_dtypes"):
        ampcheck.check(np.exp, reference="y = exp(x)", inputs=[np.ones((2, 3), np.float32)], dtypes=["bf16"])
    with pytest.raises(ampcheck.UsageError, match="got 'fp33', want fp64, fp32, fp16, bf16, e4m3fn, e5m2"):
        ampcheck.check(np.exp, reference="y = exp(x)", inputs=[np.ones((2, 3), np.float32)], dtypes=["fp33"])


@pytest.mark.parametrize("error", [MemoryError("no room"), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_a_function_without_memory_is_no_crash(error):
    def starved(x):
        if x.shape[0] > 5:
            raise error
        return np.exp(x)

    r = ampcheck.check(starved, reference="y = exp(x)", inputs=[np.ones((5, 3), np.float32)], regimes="quick")
    assert not r and not r.findings and "memory" in str(r), str(r)


def test_other_arrays_come_by_dlpack():
    class Array:
        """What another library's array is at least."""

        def __init__(self, data):
            self.data = data

        def __dlpack__(self, **_):
            return self.data.__dlpack__()

        def __dlpack_device__(self):
            return self.data.__dlpack_device__()

        def __array_namespace__(self):
            return Library

    class Library:
        __name__ = "library"

        @staticmethod
        def from_dlpack(x):
            return Array(np.array(np.from_dlpack(x)))

    def double(x):
        assert isinstance(x, Array)
        return Array(x.data + x.data)

    assert ampcheck.check(double, reference="y = 2 * x", inputs=[Array(np.ones((3, 5), np.float32))], regimes="quick")


@pytest.mark.parametrize("arguments, said", [
    ({"reference": "y = x + z"}, "unknown name 'z'"),
    ({"reference": 3}, "[reference]"),
    ({"inputs": {"x": "text"}}, "[inputs]"),
    ({"regimes": "some"}, "[regimes]"),
    ({"dtypes": ["fp8"]}, "fp8"),
    ({"seeds": 0}, "[seeds]"),
    ({"dims": {"Q": 3}}, "[dims]"),
    ({"contract": ampcheck.Contract(accumulate="int")}, "accumulate"),
    ({"contract": ampcheck.Contract(ulps={"sin": 1})}, "sin"),
    ({"cases": ["nonsense("]}, "nonsense"),
])
def test_misuse_is_said(arguments, said):
    with pytest.raises(ampcheck.UsageError, match=said.replace("[", r"\[").replace("]", r"\]")):
        ampcheck.check(**{"f": lambda x: x, "reference": "y = x", "inputs": {"x": np.ones((2, 3), np.float32)},
                          **arguments})


def test_a_named_case_runs_again():
    name = check(dropped_tail).findings[0].case
    again = check(dropped_tail, cases=[name])
    assert again.totals["cases"] == 1 and again.findings[0].case == name


def test_two_checks_at_the_same_time_and_no_gil():
    done = []
    threads = [threading.Thread(target=lambda: done.append(bool(check(rms_norm)))) for _ in range(2)]
    for thread in threads:
        thread.start()
    ticks = 0
    while any(t.is_alive() for t in threads):
        time.sleep(0.001)
        ticks += 1
    assert done == [True, True] and ticks > 3


def test_the_plugin_of_pytest(pytester):
    pytester.makepyfile("""
        import numpy as np
        FORMULA = "y = x / sqrt(mean(x^2, -1) + 1e-6) * weight"
        def norm(x, weight):
            return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + np.float32(1e-6)) * weight
        def test_right(ampcheck):
            ampcheck(norm, reference=FORMULA)
        def test_wrong(ampcheck):
            ampcheck(lambda x, weight: norm(x, weight) * np.float32(1.01), reference=FORMULA)
    """)
    result = pytester.runpytest_subprocess("--ampcheck-regimes", "quick", "--ampcheck-seed", "5")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*AC101*"])


def test_the_program_is_there():
    out = subprocess.run([sys.executable, "-m", "ampcheck", "explain", "AC101"], capture_output=True, text=True)
    assert out.returncode == 0 and "AC101" in out.stdout


def test_neither_numpy_nor_torch_is_imported_before_it_is_used():
    code = "import ampcheck, sys; print('numpy' in sys.modules or 'torch' in sys.modules); ampcheck.check; ampcheck.Report"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out == "False\n"


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="no attribute 'chek'"):
        _ = ampcheck.chek


def test_a_result_that_is_written_after_the_return_is_a_finding():
    import threading
    import time

    def late(x):
        y = np.empty_like(x)
        threading.Thread(target=lambda source: (time.sleep(0.02), np.copyto(y, source * 2)), args=(x.copy(),)).start()
        return y

    kept = {}

    def reused(x):  # memory of its own, used again in the next call
        return np.multiply(x, 2, out=kept.setdefault(x.shape, np.empty_like(x)))

    x = np.random.default_rng(1).standard_normal((4, 9)).astype(np.float32)
    r = ampcheck.check(late, reference="y = 2 * x", inputs={"x": x}, regimes="quick")
    assert not r and r.findings[0].code == "AC411" and "AC411" in str(r) and "AC411" in r.to_json(), r
    r = ampcheck.check(reused, reference="y = 2 * x", inputs={"x": x}, regimes="quick")
    assert r, r


def test_the_plugin_s_first_line_says_what_is_wrong(pytester):
    pytester.makepyfile("""
        import numpy as np
        x = np.ones((3, 5), np.float32)
        def test_wrong(ampcheck):
            ampcheck(lambda x: x * np.float32(1.5), reference="y = 2 * x", inputs={"x": x})
        def test_misuse(ampcheck):
            ampcheck(lambda x: x, reference="y = 2 *", inputs={"x": x})
    """)
    result = pytester.runpytest_subprocess("--ampcheck-regimes", "quick")
    result.assert_outcomes(failed=2)
    text = result.stdout.str()
    assert "BUG AC101 forward y in" in text.split("test_wrong", 1)[1].split("\n")[1], text
    assert "_describe.py" not in text and "_check.py" not in text and "want a value" in text, text
