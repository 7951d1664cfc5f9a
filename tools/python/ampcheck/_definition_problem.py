# SPDX-License-Identifier: Apache-2.0
"""A definition and a solution (_definitions.py) as the two functions that `verify` compares."""

from __future__ import annotations

import json
import math
import os
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ._core import UsageError
from ._definitions import (
    Definition,
    Solution,
    Workload,
    draw_workload,
    read_definition,
    root_of,
    workloads_of,
)
from ._options import fixed
from ._problems import Problem, load, load_solution, member, role

_MANY = 1 << 21  # elements of a tensor that make a case slow
_MOST = 1 << 24  # elements of a tensor that the judge takes
_MOST_REAL = 1 << 22  # elements of a workload's own tensors that are still judged
_SAFETENSORS = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
                torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2", torch.int64: "I64", torch.int32: "I32",
                torch.bool: "BOOL", torch.uint8: "U8"}


def _as_tuple(got: Any, definition: Definition) -> tuple[Any, ...]:
    names = [output.name for output in definition.outputs]
    if isinstance(got, dict):
        missing = [n for n in names if n not in got]
        if missing:
            raise ValueError(f"the function returned {', '.join(map(str, got))}, want '{missing[0]}', too")
        return tuple(got[n] for n in names)
    return tuple(got) if isinstance(got, (tuple, list)) else (got,)


def _bound(definition: Definition, arguments: Sequence[Any]) -> dict[str, int]:
    """Extents of all axes from those of the arguments."""
    known: dict[str, int] = {}
    for spec, value in zip(definition.inputs, arguments):
        if spec.shape is not None:
            known.update(zip(spec.shape, value.shape))
    return {**definition.extents(known), **known}


def _reference(definition: Definition, f: Callable[..., Any]) -> Callable[..., Any]:
    def reference(*arguments: Any) -> Any:
        got = _as_tuple(f(*arguments), definition)
        return got[0] if len(got) == 1 else got

    return reference


def _called(definition: Definition, f: Callable[..., Any], writes: bool) -> Callable[..., Any]:
    """A solution as a function that returns its results, whose types are those of the definition."""

    def run(*arguments: Any) -> Any:
        if writes:
            axes = _bound(definition, arguments)
            device = next((x.device for x in arguments if isinstance(x, torch.Tensor)), torch.device("cpu"))
            got: tuple[Any, ...] = tuple(  # NaN: what is not written is seen
                torch.full([axes[a] for a in out.shape or []], torch.nan, device=device).to(out.dtype)
                for out in definition.outputs)
            f(*arguments, *got)
        else:
            got = _as_tuple(f(*arguments), definition)
        for value, out in zip(got, definition.outputs):
            if isinstance(value, torch.Tensor) and value.dtype != out.dtype:
                raise TypeError(f"result '{out.name}' is {value.dtype}, want {out.dtype}")
        return got

    run.__name__ = f.__name__ if hasattr(f, "__name__") else "run"
    return run


def _solution(path: str, definition: Definition) -> tuple[str, Callable[[], Callable[..., Any]]]:
    """Its name, and what loads it anew."""
    if ":" in os.path.basename(path):
        file, name = path.rsplit(":", 1)
        return name, lambda: _called(definition, member(load_solution(file), file, name), False)
    solution = Solution(path, definition)
    if solution.cpp:
        from . import _cpp_solution

        library = _cpp_solution.build(solution.folder, solution.files, path)

        def loaded() -> Callable[..., Any]:
            keep = solution  # its folder holds the library
            module = _cpp_solution.load(library)
            return _called(definition, member(module, f"{path}: {keep.file}", keep.function), keep.writes)

        return solution.name, loaded

    def made() -> Callable[..., Any]:
        sys.path.insert(0, solution.folder)  # sources import each other
        try:
            module = load_solution(os.path.join(solution.folder, solution.file))
        finally:
            sys.path.remove(solution.folder)
        return _called(definition, member(module, f"{path}: {solution.file}", solution.function), solution.writes)

    return solution.name, made


def _arguments(definition: Definition, workload: Workload) -> list[Any]:
    """Fake tensors of the definition's extents, and the workload's scalars."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    axes = definition.extents(workload.axes)
    for text in definition.constraints:
        sides = text.split("==")
        if len(sides) == 2 and definition.evaluate(sides[0], axes) != definition.evaluate(sides[1], axes):
            raise UsageError(f"[definition] {definition.path}: got extents {axes}, which do not fit '{text}', want --workload "
                             "with extents of its own")
    out: list[Any] = []
    with FakeTensorMode():
        for spec in definition.inputs:
            if spec.shape is not None:
                out.append(torch.empty([axes[a] for a in spec.shape], dtype=spec.dtype))
                continue
            given = workload.inputs.get(spec.name, {})
            if "value" not in given:
                raise UsageError(f"[workload] got no value of the scalar '{spec.name}', want --workload FILE with one")
            out.append(given["value"])
    return out


def _adjust(definition: Definition, free: set[str]) -> Callable[[Any], None]:
    """Gives the trace the definition's axes: one symbol for each, constant ones fixed."""
    held = (set(definition.constant) - free) | definition.tied()

    def adjust(trace: Any) -> None:
        of_axis: dict[str, str] = {}
        tensors = [spec for spec in definition.inputs if spec.shape is not None]
        for spec, symbols in zip(tensors, trace.symbols):
            for at, axis in enumerate(spec.shape or []):
                first = of_axis.setdefault(axis, symbols[at])
                if first == symbols[at]:
                    continue
                other = symbols[at]
                for own in trace.symbols:
                    own[:] = [first if s == other else s for s in own]
                trace.formula, *trace.forms = (re.sub(rf"\b{other}\b", first, f) for f in (trace.formula, *trace.forms))
                lost = trace.limits.pop(other)
                trace.extents.pop(other)
                if lost.least == lost.most:
                    trace.limits[first] = lost
        for axis, symbol in of_axis.items():
            if axis in held:
                trace.limits[symbol] = fixed(trace.extents[symbol])

    return adjust


def _held_extents(spec: Any, axes: dict[str, int], held: set[str]) -> tuple[int, list[str]]:
    """Of an input by the axes that stay: how many elements, and the axes by name."""
    own = [axis for axis in spec.shape or [] if axis in held]
    return math.prod(axes[axis] for axis in own), own


def _notes(definition: Definition, workload: Workload, free: set[str]) -> list[str]:
    out: list[str] = []
    axes = definition.extents(workload.axes)
    held = (set(definition.constant) - free) | definition.tied()
    for spec in definition.inputs:
        size, own = _held_extents(spec, axes, held)
        if size > _MOST:
            raise UsageError(f"[definition] got '{spec.name}' of {size:,} elements by its constant axes alone, want at most "
                             f"{_MOST:,}: --free {','.join(own)} lets these axes vary, where the solution takes other extents")
        if size > _MANY and not out:
            out.append(f"'{spec.name}' has {size:,} elements by its constant axes alone, so few cases fit into the budget: "
                       f"--free {','.join(own)} lets these axes vary, where the solution takes other extents")
    made = [n for n, spec in workload.inputs.items() if spec["type"] == "custom"]
    if made:
        out.append(f"the inputs {', '.join(made)} are drawn as all others: the definition's own generator is not used")
    return out


def _read_safetensors(path: str, key: str) -> torch.Tensor:
    """One tensor of a .safetensors file."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        start = file.tell()
        if key not in header:
            raise UsageError(f"[workload] got the tensor '{key}', which '{path}' has not; it has "
                             f"{', '.join(k for k in header if k != '__metadata__')}")
        spec = header[key]
        types = {name: dtype for dtype, name in _SAFETENSORS.items()}
        if spec["dtype"] not in types:
            raise UsageError(f"[workload] {path}: '{key}' has dtype {spec['dtype']}, want {', '.join(types)}")
        begin, end = spec["data_offsets"]
        file.seek(start + begin)
        data = bytearray(file.read(end - begin))
    if not data:
        return torch.empty(spec["shape"], dtype=types[spec["dtype"]])
    return torch.frombuffer(data, dtype=types[spec["dtype"]]).reshape(spec["shape"])


def _write_safetensors(path: str, tensors: dict[str, torch.Tensor]) -> None:
    header: dict[str, Any] = {}
    parts: list[bytes] = []
    at = 0
    for name, tensor in tensors.items():
        data = bytes(tensor.contiguous().reshape(-1).view(torch.uint8).numpy()) if tensor.numel() else b""
        header[name] = {"dtype": _SAFETENSORS[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
        parts.append(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + b"".join(parts))


def _real(definition: Definition, workloads: list[Workload], seed: int, folder: str,
          notes: list[str]) -> str | None:
    """A file with the tensors of a workload that has some of its own; what it leaves random is drawn by the seed."""
    own = [w for w in workloads if any(s["type"] == "safetensors" for s in w.inputs.values())]
    if not own:
        return None
    workload = draw_workload(own, seed)
    axes = definition.extents(workload.axes)
    generator = torch.Generator().manual_seed(seed % 2**63)
    tensors: dict[str, torch.Tensor] = {}
    for spec in definition.inputs:
        if spec.shape is None:
            continue
        shape = [axes[a] for a in spec.shape]
        given = workload.inputs.get(spec.name, {"type": "random"})
        if given["type"] == "safetensors":
            path = root_of(workload, str(given.get("path")))
            value = _read_safetensors(path, str(given.get("tensor_key")))
            if list(value.shape) != shape or value.dtype != spec.dtype:
                raise UsageError(f"[workload] {path}: got '{given.get('tensor_key')}' of {list(value.shape)} in {value.dtype}, "
                                 f"want {shape} in {spec.dtype} for '{spec.name}'")
        elif spec.dtype.is_floating_point:
            value = torch.randn(shape, generator=generator).to(spec.dtype)
        else:
            notes.append(f"the workload's own tensors are not judged: '{spec.name}' of integers is random there")
            return None
        tensors[spec.name] = value
    if sum(t.numel() for t in tensors.values()) > _MOST_REAL:
        notes.append("the workload's own tensors are not judged: they are too large")
        return None
    path = os.path.join(folder, "workload.safetensors")
    _write_safetensors(path, tensors)
    return path


def definition_problem(problem: str, solution: str, seed: int, workload: str | None, free: Sequence[str]) -> Problem:
    """definition.json, or a folder that holds it, beside solution.json or FILE:FUNCTION."""
    path = os.path.join(problem, "definition.json") if os.path.isdir(problem) else problem
    definition = read_definition(path)
    unknown = [axis for axis in free if axis != "all" and axis not in definition.constant]
    if unknown:
        raise UsageError(f"[free] got '{unknown[0]}', want all, or constant axes: {', '.join(definition.constant) or 'none'}")
    freed = set(definition.constant) if "all" in free else set(free)
    workloads = workloads_of(path, workload)
    drawn = draw_workload(workloads, seed)
    name, made = _solution(solution, definition)
    out = _problem(definition, name, made(), drawn, freed)
    out.renew = made
    out.real = _real(definition, workloads, seed, out.keep[0].name, out.notes)
    return out


def callable_problem(definition: Definition, name: str, f: Callable[..., Any], writes: bool,
                     scalars: dict[str, Any]) -> Problem:
    """A definition beside a function that is loaded already, as a benchmark has it."""
    drawn = Workload({}, {n: {"type": "scalar", "value": v} for n, v in scalars.items()}, ".")
    return _problem(definition, name, _called(definition, f, writes), drawn, set())


def _problem(definition: Definition, name: str, f: Callable[..., Any], drawn: Workload, freed: set[str]) -> Problem:
    folder = tempfile.TemporaryDirectory(prefix="ampcheck-definition-")
    place = os.path.join(folder.name, re.sub(r"\W", "_", definition.name) + ".py")
    with open(place, "w", encoding="utf-8") as file:
        file.write(definition.reference)
    reference = _reference(definition, member(load(place), f"{definition.path}: reference", "run"))
    parameters = [spec for spec in definition.inputs if spec.shape is not None and spec.dtype.is_floating_point and
                  spec.name.endswith(("weight", "bias", "gamma", "beta"))]
    roles = {spec.name: role(spec.name, tuple(0 for _ in spec.shape or [])) for spec in parameters}
    out = Problem(name, f, reference, _arguments(definition, drawn), [spec.name for spec in definition.inputs], roles, None)
    out.adjust, out.rounding, out.notes = _adjust(definition, freed), "as written", _notes(definition, drawn, freed)
    out.keep = (folder,)  # the reference's source, for messages, and the tensors
    return out
