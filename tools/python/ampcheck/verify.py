# SPDX-License-Identifier: Apache-2.0
"""ampcheck verify PROBLEM SOLUTION: a verdict that a benchmark, an agent or a reward can use."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import json
import os
import random
import secrets
import shlex
import sys
import threading
import time
from typing import Any

from . import _check, _child
from ._core import EnvironmentError, UsageError
from ._describe import Plan
from ._long import long_cases
from ._options import Dim
from ._replaced import Functions, ReplacedError, words
from ._report import Finding, Report

_HINTS = {
    "AC101": "compute the counterexample by hand: the formula is the reference, the interval is what rounding may do",
    "AC102": "something overflows or divides by zero where the reference does not (subtract the maximum, keep the epsilon), or "
             "elements are not written",
    "AC103": "a NaN or infinity of the inputs is hidden: maxima and masks must pass it on",
    "AC104": "forward and backward contradict each other: look for a sign, a factor or a term of the gradient",
    "AC105": "round sums to nearest, and compute what a row shares (a mean, a denominator) in fp32",
    "AC106": "forward mode and backward contradict each other: look for a sign, a factor or a term",
    "AC201": "scale, subtract the maximum or compute wider, so that what is on the way stays inside its type",
    "AC203": "reorder the products, or subtract the maximum, so that no number on the way overflows or vanishes",
    "AC204": "give one of the slopes at both sides where the function has a kink",
    "AC205": "give the slope that the reference gives where the function has a kink",
    "AC206": "give the slope that the reference gives where the function has a kink",
    "AC301": "keep partial sums in fp32 and round once, when the result is stored",
    "AC302": "keep intermediates in fp32 and round once, when the result is stored",
    "AC303": "keep subnormal numbers: build without flush to zero",
    "AC304": "use exact functions in place of fast ones, and keep what is on the way in fp32",
    "AC305": "convert with rounding to nearest: dropping bits truncates",
    "AC401": "some elements are not written: look at the mask of the last block",
    "AC402": "write inside of the tensors alone: look at bounds and strides of the stores",
    "AC403": "do not write to the inputs",
    "AC404": "the result depends on what was there before: initialise it, and keep nothing from call to call",
    "AC405": "carry nothing from one row to the next, and reduce over the right axis",
    "AC406": "use each tensor's own strides, or make it contiguous first",
    "AC407": "compute the gradient linearly in what arrives: no clipping, no constant added",
    "AC408": "add to the gradient that is there, or overwrite it, as the contract says",
    "AC409": "choose tiles and splits by the length of a row, never by the number of rows",
    "AC410": "keep no result from call to call: neither by shape, nor by address, nor by a part of the data",
    "AC411": "wait for threads and streams before you return",
    "AC412": "compute the result, and leave the functions of Python, torch and numpy as they are",
    "AC501": "the kernel fails at extents that the reference takes",
    "AC502": "a loop does not end, or the work grows faster than the extents",
}
_MOST_SHOWN = 64


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ampcheck verify", description="Judges a solution by its reference, at inputs drawn from a secret seed.",
        epilog="Exit codes: 0 right, 1 wrong, 2 usage (a reference that is no formula, too), 4 nothing was judged, 5 the "
               "budget ended first, 6 something is not installed.")
    parser.add_argument("problem", help="a KernelBench file (Model, get_inputs), FILE:FUNCTION, or a definition.json of "
                        "FlashInfer Trace or SOL-ExecBench (or the folder that holds it)")
    parser.add_argument("solution", help="a KernelBench solution (ModelNew), FILE:FUNCTION, or a solution.json")
    parser.add_argument("--json", action="store_true", help="JSON on stdout: ampcheck.verify/1")
    parser.add_argument("--seed", type=int, help="a seed that was printed: draws the same cases again")
    parser.add_argument("--regimes", choices=["quick", "standard", "all"], default="standard")
    parser.add_argument("--budget", type=float, default=20, metavar="SECONDS", help="after which no further case starts (20)")
    parser.add_argument("--dtype", action="append", default=[], metavar="TYPE",
                        help="storage types to judge (default: that of the problem's inputs)")
    parser.add_argument("--backward", action="store_true", help="judge the gradients, too")
    parser.add_argument("--rounding", choices=["mathematics", "as written"],
                        help="whether casts of the reference are roundings that a solution may do, too (as written: the "
                        "default for a definition.json; mathematics: for all others)")
    parser.add_argument("--workload", metavar="FILE", help="workloads of a definition, a line of JSON each (default: where its "
                        "collection keeps them)")
    parser.add_argument("--free", type=lambda text: text.split(","), default=[], metavar="AXES",
                        help="constant axes of a definition that may vary: N,K or all")
    parser.add_argument("--sandbox", action="store_true", help="in a process without network, that reads the files of the "
                        "problem and of Python alone (Landlock and seccomp; Linux)")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="after which a solution that hangs is wrong, and a "
                        "judge that is not done has no verdict (100 s more than the budget)")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("--sandboxed", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--jobs", type=int, default=1, help="cases at a time (1, so that the calls of the "
                        "solution come in the same order each time; 0: one for each core)")
    return parser


def parsed(argv: list[str]) -> argparse.Namespace:
    """Raises SystemExit for options that it does not take."""
    return _parser().parse_args(argv)


def files_of(args: argparse.Namespace) -> list[str]:
    """What a verdict reads besides Python: the files of the problem, and of a definition its collection."""
    out = []
    for path in (args.problem, args.solution):
        out.append(path.rsplit(":", 1)[0] if ":" in os.path.basename(path) else path)
    if args.problem.endswith(".json") or os.path.isdir(args.problem):
        folder = args.problem if os.path.isdir(args.problem) else os.path.dirname(os.path.abspath(args.problem))
        parts = os.path.abspath(folder).split(os.sep)
        out.append(os.sep.join(parts[:parts.index("definitions")]) if "definitions" in parts else folder)
    if args.workload is not None:
        out.append(os.path.dirname(os.path.abspath(args.workload)))
    return out


def judge(problem: Any, args: argparse.Namespace, seed: int) -> list[Report]:
    """Traces the reference at the problem's own extents and judges the solution at drawn ones; then at the tensors that the
    problem brings, if it brings some."""
    import torch

    from ._aten import Refused
    from ._shrink import shrunk
    from ._torch_reference import small_examples, symbols_of, trace_reference

    draw = random.Random(seed)
    arguments, batch = problem.arguments, 0
    if problem.inputs:
        arguments, batch = shrunk(problem.reference, problem.arguments, problem.inputs, draw)
    try:
        trace = trace_reference(problem.reference, arguments, problem.names,
                                rounding=args.rounding or problem.rounding)
    except Refused as refused:
        raise UsageError(str(refused)) from None
    _limit_batches(trace, arguments[:problem.inputs], batch)
    if problem.adjust is not None:
        problem.adjust(trace)
    examples = small_examples(trace, arguments, draw, problem.reference)
    examples = [x.to(problem.device) if isinstance(x, torch.Tensor) else x for x in examples]
    asked = _check.request(problem.solution, examples, None, problem.reference)
    asked.renew, asked.plain = problem.renew, True
    for (_, at, _), name in zip(asked.slots, problem.names):
        if at is not None:
            asked.tensors[at].name = name
    asked.slots = [(name, at, value) for (_, at, value), name in zip(asked.slots, problem.names)]
    for tensor, symbols in zip(asked.tensors, symbols_of(asked, trace)):
        tensor.symbols = symbols
    asked.notes += problem.notes + trace.notes
    from ._torch_reference import find_domains

    find_domains(asked, problem.reference)
    with torch.no_grad() if not args.backward else torch.enable_grad():
        plan = _check.make_plan(
            asked, trace.formula, outputs=trace.outputs, backward=None if args.backward else False, dims=None,
            roles={n: r for n, r in problem.roles.items() if n in {t.name for t in asked.tensors}}, domains=None, contract=None,
            rows=None, dtypes=args.dtype, name=_check.op_name(problem.solution) if problem.name is None else
            _clean(problem.name), extents=(trace.extents, trace.limits), forms=trace.forms, draw=draw)
    wanted = _check.Wanted(regimes=args.regimes, seed=1 + seed % (2**31), budget_s=args.budget, jobs=args.jobs)
    reports = [_check.run_plan(plan, asked, wanted)]
    _excuse(reports[0], plan, asked, problem.reference, same_bits=args.rounding != "mathematics")
    if not reports[0].findings:
        _look_for_torch(reports[0], asked, problem)
    for case in [] if reports[0].findings else _long_cases(plan, reports[0], draw):
        if sum(report.seconds for report in reports) > args.budget / 2:
            asked.notes.append(f"'{case}' is not judged: half of the budget was spent; --budget gives more")
            break
        try:
            reports.append(_check.run_plan(plan, asked, dataclasses.replace(wanted, cases=[case])))
        except UsageError:
            continue  # extents that belong together
        _excuse(reports[-1], plan, asked, problem.reference, same_bits=args.rounding != "mathematics")
        if reports[-1].findings:
            return reports
        if reports[-1].excused:  # nothing of it was judged
            reports[0].notes += reports.pop().notes
    if problem.real is not None and not reports[0].findings:
        asked.notes.append("one case is the workload's own tensors")
        reports.append(_check.run_plan(plan, asked, dataclasses.replace(wanted, inputs=problem.real, regimes="standard")))
    return reports


def _long_cases(plan: Plan, report: Report, draw: random.Random) -> list[str]:
    limits = {symbol: plan.limits.get(symbol) or plan.soft.get(symbol) or Dim() for symbol in plan.extents}
    names = [case["case"] for case in json.loads(report.to_json())["cases"]]
    return [] if report.totals["skipped"] else long_cases(plan, limits, names, draw)


def _limit_batches(trace: Any, images: list[Any], most: int) -> None:
    """What a formula lists for each image of a batch must fit into memory."""
    for x, symbols in zip(images, trace.symbols):
        if getattr(x, "ndim", 0) > 2:
            limit = trace.limits[symbols[0]]
            trace.limits[symbols[0]] = dataclasses.replace(limit, most=max(limit.least, min(limit.most or most, most)))


def _called(f: Any, asked: _check.Request, inputs: dict[str, Any]) -> list[Any]:
    from ._kernel import Call

    with asked.frame.quiet():
        return Call(f, asked.slots, False, [])([inputs[tensor.name] for tensor in asked.tensors], [])


def _look_for_torch(report: Report, asked: _check.Request, problem: Any) -> None:
    """What a passing solution computes with."""
    from ._same_ops import reference_ops, words

    found = reference_ops(report, lambda inputs: _called(problem.solution, asked, inputs),
                          lambda inputs: _called(problem.reference, asked, inputs))
    report.reference_ops = found
    if found is not None and (note := words(found)):
        report.notes.append(note)


def _excuse(report: Report, plan: Plan, asked: _check.Request, reference: Any, same_bits: bool) -> None:
    """Takes out of the findings what the reference does, too, at the same inputs: it raises at extents that neither takes, or
    its own results, as torch computes them, have the same bits (same_bits). Ends at the first finding that is the
    solution's own."""
    import torch

    def results(f: Any, found: Finding) -> list[Any]:
        with torch.no_grad():
            return _called(f, asked, report.inputs(found.case))

    def raises(found: Finding) -> bool:
        try:
            results(reference, found)
            return False
        except Exception:
            return True

    def computes_the_same(found: Finding) -> bool:
        names = [f"forward {name}" for name, _ in plan.outputs]
        if found.verdict not in ("BUG", "PRECISION_CONTRACT", "RANGE") or found.tensor not in names or not found.worst:
            return False
        try:
            own, torchs = results(asked.f, found), results(reference, found)
            # What was judged: a function that keeps something may compute the right numbers when it is asked once more.
            judged = all(_same(one.got, float(torchs[names.index(found.tensor)][one.index])) for one in found.worst)
            return judged and all(_same_bits(a, b) for a, b in zip(own, torchs, strict=True))
        except Exception:
            return False

    raised = same = 0
    for found in report.findings:
        if found.code == "AC501" and raises(found):
            raised += 1
        elif same_bits and found.code != "AC501" and computes_the_same(found):
            same += 1
        else:
            break
    report.excused = raised + same
    del report.findings[:report.excused]
    if raised:
        report.notes.append(f"{_cases(raised)} left out: the reference raises there, too")
    if same:
        report.notes.append(f"{_cases(same)} left out: the reference, as torch computes it, leaves its interval there with the "
                            "same bits")


def _cases(count: int) -> str:
    return "1 case is" if count == 1 else f"{count} cases are"


def _same(a: float, b: float) -> bool:
    return a == b or (a != a and b != b)


def _same_bits(a: Any, b: Any) -> bool:
    """NaN is NaN, whatever its bits, and zero is zero."""
    return a.dtype == b.dtype and a.shape == b.shape and bool(((a == b) | (a.isnan() & b.isnan())).all())


def _passed(report: Report) -> bool:
    if report.excused and not report.findings:
        totals = report.totals
        return not totals["skipped"] and totals["passed"] > 0
    return report.passed


def _clean(name: str) -> str:
    out = "".join(c if c.isalnum() else "_" for c in name)
    return out if out[:1].isalpha() else f"f_{out}"


def _numbers(value: float | None) -> Any:
    """JSON has no NaN and no infinity."""
    return value if value is None or value - value == 0 else str(value)


def _smallest(found: Finding) -> dict[str, Any]:
    try:
        return found.smallest
    except UsageError:  # a case of tensors of a file, whose name makes none
        return {}


def counterexample(report: Report) -> dict[str, Any] | None:
    """The smallest failing case, with its inputs where they are few."""
    if not report.findings or not report.findings[0].case:
        return None
    found = report.findings[0]
    inputs = {}
    for name, array in _smallest(found).items():
        flat = array.double().reshape(-1).tolist() if hasattr(array, "double") else array.astype(float).reshape(-1).tolist()
        inputs[name] = {"shape": list(array.shape), "values": [_numbers(v) for v in flat] if len(flat) <= _MOST_SHOWN else None}
    return {"case": found.case, "smallest_case": found.smallest_case or found.case, "tensor": found.tensor,
            "index": list(found.index) if found.index is not None else None, "got": _numbers(found.got),
            "want": _numbers(found.want), "low": _numbers(found.low), "high": _numbers(found.high), "inputs": inputs,
            "values": found.values}


def _power(report: Report) -> dict[str, Any] | None:
    """None for a formula that no change moves at these cases."""
    found = report.power()
    return dataclasses.asdict(found) if found.changes else None


def result_of(reports: list[Report], seed: int, seconds: float) -> dict[str, Any]:
    report = reports[-1]  # the others passed
    first = report.findings[0] if report.findings else None
    totals = {key: sum(one.totals[key] for one in reports) for key in report.totals}
    judged = totals["passed"] + totals["failed"] > 0
    verdict = "wrong" if first else "right" if all(map(_passed, reports)) else "incomplete"
    return {"schema": "ampcheck.verify/1", "verdict": verdict,
            "class": first.verdict if first else "ROUNDING" if judged else "SKIPPED", "code": first.code if first else "",
            "cause": (first.cause or first.note) if first else "", "hint": _HINTS.get(first.code, "") if first else "",
            "counterexample": counterexample(report), "cases": totals["cases"],
            "failed": totals["failed"] - sum(one.excused for one in reports),
            "elements": totals["elements"], "blind": totals["blind"], "power": _power(reports[0]),
            "reference_ops": reports[0].reference_ops,
            "seconds": round(seconds, 3), "seed": str(seed),
            "formula": report.formula, "notes": list(dict.fromkeys(note for one in reports for note in one.notes))}


def failed_at_once(error: Exception, seed: int, seconds: float, kind: str = "CRASH", code: str = "AC501",
                   hint: str = "") -> dict[str, Any]:
    """A solution that raises, or returns something else, at the first call; or that does not return."""
    return {"schema": "ampcheck.verify/1", "verdict": "wrong", "class": kind, "code": code, "cause": str(error),
            "hint": hint or _HINTS[code], "counterexample": None, "cases": 0, "failed": 0, "elements": 0, "blind": 0,
            "power": None, "reference_ops": None, "seconds": round(seconds, 3), "seed": str(seed), "formula": "", "notes": []}


def not_run(error: _check.ExampleError, seed: int, seconds: float, kind: str = "CRASH", code: str = "AC501") -> dict[str, Any]:
    return failed_at_once(RuntimeError(f"the solution {error.of_solution}"), seed, seconds, kind, code, error.hint)


def _left_running(known: set[int | None]) -> list[str]:
    """Threads of Python that the solution started and that are still there."""
    left = [t for t in threading.enumerate() if t.ident not in known and type(t).__name__ != "_DummyThread"]
    if not left:
        return []
    return [f"the solution leaves {'a thread' if len(left) == 1 else f'{len(left)} threads'} running when it returns: what "
            "they do later is not judged, and no timer counts it"]


def ended_the_process(how: str, seed: int, seconds: float) -> dict[str, Any]:
    return failed_at_once(RuntimeError(f"the solution ended the process ({how})"), seed, seconds,
                          hint="end no process, and read and write no memory but that of the tensors")


def not_finished(limit: float, seed: int, seconds: float) -> dict[str, Any]:
    """The judge itself needed more than it had: no fault of the solution."""
    out = failed_at_once(RuntimeError(), seed, seconds)
    return {**out, "verdict": "incomplete", "class": "SKIPPED", "code": "", "cause": "", "hint": "",
            "notes": [f"the judge did not finish within {limit:g} s, and no call of the solution took most of them: give it "
                      "more"]}


def text_of(result: dict[str, Any], again: str) -> str:
    lines = [f"{result['verdict'].upper()}  {result['class']} {result['code']}".rstrip()]
    example = result["counterexample"]
    if result["cause"]:
        lines.append(f"  cause   {result['cause']}")
    elif result["code"]:
        lines.append(f"  cause   none is known that gives these numbers (ampcheck explain {result['code']})")
    if example is not None:
        lines.append(f"  case    '{example['case']}'")
        if example["index"] is not None:
            lines.append(f"  worst   {example['tensor']} {example['index']}   got {example['got']}   want {example['want']}   "
                         f"allowed [{example['low']}, {example['high']}]")
        shapes = ", ".join(f"{n} {x['shape']}" for n, x in example["inputs"].items())
        lines.append(f"  smallest  {shapes}" + (f": {example['values']}" if example["values"] else ""))
    if result["hint"]:
        lines.append(f"  try     {result['hint']}")
    lines.append(f"  judged  {result['elements']:,} elements of {result['cases']} cases in {result['seconds']:.1f} s, "
                 f"{result['failed']} failed, {result['blind']:,} elements cannot be judged")
    lines += [f"  note    {note}" for note in result["notes"]]
    if result["power"] is not None:
        power = result["power"]
        lines.append(f"  power   these cases would find {power['found']} of {power['changes']} changes of the formula"
                     + (f"; not: {power['missed'][0]}" if power["missed"] else ""))
    lines.append(f"  again   {again}")
    return "\n".join(lines) + "\n"


def _verified(args: argparse.Namespace, seed: int) -> tuple[int, dict[str, Any]]:
    """Exit code and result; where nothing could be judged, `error` alone."""
    start, threads = time.monotonic(), {thread.ident for thread in threading.enumerate()}
    try:
        from ._problems import read

        try:
            problem = read(args.problem, args.solution, seed, args.workload, args.free)
            functions = Functions()
            reports = judge(problem, args, seed)
        except _check.LateError as error:
            return 1, not_run(error, seed, time.monotonic() - start, "STRUCTURAL", "AC411")
        except _check.ExampleError as error:
            return 1, not_run(error, seed, time.monotonic() - start)
        if (replaced := functions.restored()) and not reports[-1].findings:
            raise ReplacedError(words(replaced, "when it is called"))
        result = result_of(reports, seed, time.monotonic() - start)
        result["notes"] = [*result["notes"], *_left_running(threads)]
        if args.sandboxed:
            result["notes"] = [*result["notes"], "in a sandbox: no network, and no files but those of the problem"]
        code = 0 if all(map(_passed, reports)) else 1 if reports[-1].findings else 4 if not result["elements"] else 5
        skipped = sum(report.totals["skipped"] for report in reports)
        if code == 5 and skipped:
            result["notes"] = [*result["notes"], f"{_cases(skipped)} not judged: the budget of {args.budget:g} s ended first; "
                               "--budget gives more"]
        return code, result
    except ReplacedError as error:
        return 1, failed_at_once(error, seed, time.monotonic() - start, "STRUCTURAL", "AC412")
    except SystemExit as end:
        return 1, ended_the_process(f"sys.exit({'' if end.code is None else repr(end.code)})", seed, time.monotonic() - start)
    except UsageError as error:
        return 2, {"error": str(error)}
    except (EnvironmentError, ImportError, OSError) as error:
        return 6, {"error": str(error)}


def _verified_inside(args: argparse.Namespace, seed: int) -> tuple[int, dict[str, Any]]:
    """The same, and says what a sandbox refused."""
    code, result = _verified(args, seed)
    if args.sandboxed and any(f"[Errno {number}]" in result.get("cause", "") for number in (1, 13)):
        result["hint"] = ("the sandbox refuses all files but those of the problem, every socket, and signals to other "
                          "processes: compute from the inputs alone")
    return code, result


def warm() -> None:
    """Loads what a verdict needs of torch: who answers many requests does it once, before a child is forked for each. Traces a
    function, since torch loads most of its tracer at the first one. Raises ImportError."""
    import torch

    from ._torch_reference import trace_reference

    trace_reference(lambda x: x + 1, [torch.zeros(2, 3)], ["x"])


def answer(argv: list[str]) -> tuple[int, dict[str, Any]]:
    """The same for who asks by lines (`ampcheck serve`)."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            args = _parser().parse_args(argv)
    except SystemExit:
        return 2, {"error": said.getvalue().strip().splitlines()[-1].removeprefix("ampcheck verify: error: ")}
    return _verified_inside(args, args.seed if args.seed is not None else secrets.randbits(63))


def _given(argv: list[str] | None) -> argparse.Namespace | int:
    """The options, or the exit code of who asked for help or gave others."""
    try:
        return _parser().parse_args(argv)
    except SystemExit as end:
        return int(end.code or 0)


def _told(args: argparse.Namespace, seed: int, code: int, result: dict[str, Any]) -> int:
    """Prints a verdict; its exit code."""
    if "error" in result:
        print(f"ampcheck: {result['error']}", file=sys.stderr)
        return code
    words = ["ampcheck", "verify", args.problem, args.solution, *_replayed(args), "--seed", str(seed)]
    print(json.dumps(result, allow_nan=False) if args.json else text_of(result, shlex.join(words)),
          end="\n" if args.json else "")
    return code


def _replayed(args: argparse.Namespace) -> list[str]:
    """The options that decide which cases there are and what is right."""
    out = []
    for name, value, default in (("--regimes", args.regimes, "standard"), ("--rounding", args.rounding, None),
                                 ("--workload", args.workload, None), ("--free", ",".join(args.free), "")):
        out += [name, value] if value != default else []
    out += [word for dtype in args.dtype for word in ("--dtype", dtype)]
    return out + ["--backward"] * args.backward + ["--sandbox"] * (args.sandbox or args.sandboxed)


def main_here(argv: list[str] | None = None) -> int:
    """`verify` in this process, which the solution may end."""
    args = _given(argv)
    if isinstance(args, int):
        return args
    seed = args.seed if args.seed is not None else secrets.randbits(63)
    return _told(args, seed, *_verified_inside(args, seed))


def main(argv: list[str] | None = None) -> int:
    """`verify` in a process of its own."""
    args = _given(argv)
    if isinstance(args, int):
        return args
    if args.inside is not None:
        _child.inside(args.inside, lambda seed: _verified_inside(args, seed))
    given = [a for a in (sys.argv[2:] if argv is None else argv) if a != "--sandbox"]
    seed = args.seed if args.seed is not None else secrets.randbits(63)
    seconds = args.timeout if args.timeout is not None else args.budget + 100
    try:
        result = _child.ask([*given, *["--sandboxed"] * args.sandbox], files_of(args) if args.sandbox else None, seconds, seed)
    except EnvironmentError as error:
        print(f"ampcheck: {error}", file=sys.stderr)
        return 6
    except KeyboardInterrupt:
        return 130
    return _told(args, seed, int(result.pop("exit_code")), result)
