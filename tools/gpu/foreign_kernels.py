#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts which CUDA kernels of a folder device ptx decodes, and what it finds where their own tests run.

tools/gpu/foreign_kernels.py FOLDER [--program build/ampcheck] [--include DIR]... [--nvcc WORD]... [--run] [--json FILE]

Every *.cu of the folder is turned into PTX by the nvcc that is there. With --run, each file with a main() is built as a
library too and runs on device ptx, once for each kernel number that it takes, in smaller sizes than it is written with
(--size NAME=VALUE changes `int NAME = ...;`). The folder itself is only read. Nothing of it is part of ampcheck.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SIZES = {"B": 2, "T": 64, "C": 192, "NH": 3, "OC": 768, "V": 1025, "Vp": 1088, "repeat_times": 1, "num_parameters": 4096}
MOST_NUMBERS = 16  # kernels of one program


def find_nvcc():
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    found = os.environ.get("NVCC") or shutil.which("nvcc") or str(pathlib.Path(home) / "bin/nvcc")
    if not os.access(found, os.X_OK):
        sys.exit(f"foreign_kernels: got no nvcc ('{found}'), want one in NVCC, PATH or CUDA_HOME")
    return found


def run(words, seconds, cwd=None):
    """Exit code, output and errors; 124: it ran out of time."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=seconds, cwd=cwd, check=False)
        return done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired as over:
        return 124, "", (over.stderr or b"").decode(errors="replace") if isinstance(over.stderr, bytes) else ""


class Survey:
    def __init__(self, args, scratch):
        self.args, self.scratch, self.nvcc = args, pathlib.Path(scratch), find_nvcc()

    def words(self, *more):
        return [self.nvcc, "-std=c++17", "-lineinfo", *[f"-I{d}" for d in self.args.include], *self.args.nvcc, *more]

    def decode(self, source):
        """What device ptx says of each kernel of a file."""
        out = {"file": source.name, "kernels": []}
        ptx = self.scratch / (source.name + ".ptx")
        code, _, err = run(self.words("-ptx", f"-arch={self.args.arch}", str(source), "-o", str(ptx)), self.args.timeout)
        if code != 0:
            out["not_compiled"] = first_error(err)
            return out
        code, text, err = run([self.args.program, "list", str(ptx), "--json"], self.args.timeout)
        if code == 0:
            out["kernels"] = json.loads(text)["kernels"]
        elif code != 4:  # 4: it has no kernel
            out["not_read"] = err.strip()
        ptx.unlink()
        return out

    def smaller(self, source):
        text = source.read_text(errors="replace")
        for name, value in self.args.sizes.items():
            text = re.sub(rf"\b((?:const )?(?:int|long|size_t) {name} = )[0-9][0-9 *]*;", rf"\g<1>{value};", text)
        copy = self.scratch / source.name
        copy.write_text(text)
        return copy

    def verdicts(self, source):
        """Each kernel number of a program with a main(): what its own test says, and what is found."""
        library = self.scratch / (source.stem + ".so")
        code, _, err = run(
            self.words("-shared", "-cudart", "none", "-Xcompiler", "-fPIC", "-gencode",
                       f"arch={self.args.arch},code={self.args.arch}", f"-I{source.parent}", str(self.smaller(source)),
                       "-o", str(library)), self.args.timeout)
        if code != 0:
            return [{"file": source.name, "outcome": "not built", "text": first_error(err) or "it took too long"}]
        out = []
        for number in range(1, MOST_NUMBERS + 1):
            code, text, err = run([self.args.runner, str(library), str(number)], self.args.timeout, source.parent)
            if re.search(r"invalid kernel|unknown kernel", text + err, re.IGNORECASE):
                break
            findings = [line[len("finding: "):] for line in err.splitlines() if line.startswith("finding: ")]
            missing = re.search(r"symbol lookup error.*undefined symbol: (\w+)|device ptx: (.*)", err)
            outcome = ("finding" if findings else "too long" if code == 124 else "passes" if code == 0 else
                       "not run" if missing else "its test fails")
            out.append({"file": source.name, "number": number, "outcome": outcome, "findings": findings,
                        "text": (missing.group(1) or missing.group(2)) if missing else last_line(text)})
            if "Using kernel" not in text and not re.search(r"kernel_num|argv\[1\]", source.read_text(errors="replace")):
                break  # it takes no number
        return out


def first_error(text):
    lines = [line for line in text.splitlines() if "error" in line]
    return (lines or text.splitlines() or [""])[0][:200]


def last_line(text):
    lines = text.strip().splitlines()
    return lines[-1][:200] if lines else ""


def reason(kernel):
    """Why a kernel is not run, without its place."""
    return re.sub(r"^\[[^\]]*\] ", "", kernel["why_not"])


def report(files, results):
    kernels = [kernel for file in files for kernel in file["kernels"]]
    decoded = [kernel for kernel in kernels if kernel["runs"]]
    compiled = [file for file in files if "not_compiled" not in file]
    print(f"{len(compiled)} of {len(files)} files compile, {len(decoded)} of {len(kernels)} kernels decode")
    for why, count in collections.Counter(reason(k) for k in kernels if not k["runs"]).most_common(20):
        print(f"  {count:5}  {why}")
    for file in files:
        for key in ("not_compiled", "not_read"):
            if key in file:
                print(f"  {file['file']}: {file[key]}")
    if not results:
        return
    counts = collections.Counter(result["outcome"] for result in results)
    print(f"{len(results)} programs run: " + ", ".join(f"{count} {name}" for name, count in counts.most_common()))
    for result in results:
        if result["outcome"] == "passes":
            continue
        print(f"  {result['file']} {result.get('number', '')}: {result['outcome']}: "
              f"{'; '.join(result.get('findings', [])[:3]) or result['text']}")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--program", default="build/ampcheck", help="ampcheck")
    parser.add_argument("--runner", help="run_program (tools/gpu/run_program beside ampcheck)")
    parser.add_argument("--include", action="append", default=[], help="folder of headers for nvcc")
    parser.add_argument("--nvcc", action="append", default=[], help="a further word for nvcc: --nvcc=-DNAME")
    parser.add_argument("--arch", default="compute_80")
    parser.add_argument("--run", action="store_true", help="run the programs, too")
    parser.add_argument("--size", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--timeout", type=int, default=120, help="seconds of a compilation or a run")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    args.sizes = dict(SIZES)
    for text in args.size:
        name, _, value = text.partition("=")
        if not (name.isidentifier() and value.isdigit()):
            sys.exit(f"foreign_kernels: got --size {text}, want NAME=VALUE")
        args.sizes[name] = int(value)
    args.program = os.path.abspath(args.program)
    args.runner = os.path.abspath(args.runner or os.path.join(os.path.dirname(args.program), "tools/gpu/run_program"))
    for needed in [args.program] + ([args.runner] if args.run else []):
        if not os.access(needed, os.X_OK):
            sys.exit(f"foreign_kernels: got no program '{needed}', want it built")
    return args


def main():
    args = parse_arguments()
    sources = sorted(args.folder.glob("*.cu"))
    if not sources:
        sys.exit(f"foreign_kernels: got no *.cu in '{args.folder}'")
    with tempfile.TemporaryDirectory() as scratch:
        survey = Survey(args, scratch)
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            files = list(pool.map(survey.decode, sources))
            programs = [s for s in sources if args.run and re.search(r"\bint main\(", s.read_text(errors="replace"))]
            results = [result for some in pool.map(survey.verdicts, programs) for result in some]
    report(files, results)
    if args.json:
        args.json.write_text(json.dumps({"files": files, "runs": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
