# SPDX-License-Identifier: Apache-2.0
"""Problems of FlashInfer Trace and of SOL-ExecBench: a definition (axes, tensors, a reference in torch), a solution (sources
and an entry point) and workloads (extents, scalars, tensors of files). See docs/flashinfer-trace of flashinfer-bench and docs/
of SOL-ExecBench for the formats."""

from __future__ import annotations

import ast
import difflib
import json
import operator
import os
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ._core import EnvironmentError, UsageError

_DTYPES = {"float64": torch.float64, "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16,
           "float8_e4m3fn": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2, "int64": torch.int64,
           "int32": torch.int32, "bool": torch.bool}
_PYTHON = {"python", "pytorch", "triton"}
_CPP = {"cpp", "c++"}
_OF_A_GPU = {"cutlass", "cublas", "cudnn", "cute_dsl", "cutile", "cudnn_frontend"}
_OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.USub: operator.neg,
    ast.UAdd: operator.pos}
_VARIABLE_EXTENT = 48  # of an axis of which no workload is there; it is drawn anew for each case


@dataclass
class Tensor:
    """An input or output: names of its axes, or none for a Python scalar."""

    name: str
    shape: list[str] | None
    dtype: torch.dtype


@dataclass
class Workload:
    axes: dict[str, int]
    inputs: dict[str, dict[str, Any]]
    folder: str  # where its files begin


@dataclass
class Definition:
    name: str
    path: str
    constant: dict[str, int]
    variable: list[str]
    derived: dict[str, str]  # axis -> expression of other axes
    inputs: list[Tensor]
    outputs: list[Tensor]
    reference: str
    constraints: list[str] = field(default_factory=list)

    def extents(self, given: Mapping[str, int]) -> dict[str, int]:
        """Of all axes, from those of the variable ones."""
        out = {**self.constant, **{axis: given.get(axis, _VARIABLE_EXTENT + i) for i, axis in enumerate(self.variable)}}
        for axis, text in self.derived.items():
            out[axis] = _evaluate(text, out, self.path)
        return out

    def evaluate(self, text: str, axes: Mapping[str, int]) -> int:
        return _evaluate(text, axes, self.path)

    def tied(self) -> set[str]:
        """Variable axes that something relates to others: they stay as a workload has them."""
        texts = [*self.constraints, *self.derived.values()]
        names = {node.id for text in texts for node in ast.walk(ast.parse(text, mode="eval")) if isinstance(node, ast.Name)}
        return (names | set(self.derived)) - set(self.constant)


def _evaluate(text: str, axes: Mapping[str, int], path: str) -> int:
    """An expression of axes; nothing but arithmetic is computed."""

    def value(node: ast.AST) -> Any:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.Name) and node.id in axes:
            return axes[node.id]
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.UnaryOp) and type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](value(node.operand))
        raise UsageError(f"[definition] {path}: got the expression '{text.strip()}', want + - * / // % ** of axes; extents "
                         "that the data decides (ragged, paged) make no formula: judge a dense function, FILE:FUNCTION")

    return int(value(_parsed(text.strip(), path)))


def _parsed(text: str, path: str) -> ast.AST:
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError:
        raise UsageError(f"[definition] {path}: got '{text}', want an expression of axes") from None


def _json(path: str) -> Any:
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except OSError as error:
        raise UsageError(f"[verify] got '{path}', which cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"[verify] got '{path}', which is no JSON ({error})") from None


def _field(of: Any, key: str, kind: type, where: str) -> Any:
    """A field that has to be there, of that type."""
    if not isinstance(of, dict):
        raise UsageError(f"{where}: got {json.dumps(of)[:40]}, want an object")
    if key not in of:
        near = difflib.get_close_matches(key, list(of), 1, 0.7)
        raise UsageError(f"{where}: got no '{key}', want it" + (f" (did you mean it by '{near[0]}'?)" if near else ""))
    if not isinstance(of[key], kind):
        raise UsageError(f"{where}: got {key} = {json.dumps(of[key])[:40]}, want a {_WORDS[kind]}")
    return of[key]


_WORDS: dict[type, str] = {dict: "object", list: "list", str: "text", int: "whole number"}


def _tensors(of: Mapping[str, Any], axes: Sequence[str], where: str) -> list[Tensor]:
    out = []
    for name, spec in of.items():
        at = f"{where} '{name}'"
        dtype = _field(spec, "dtype", str, at)
        if dtype not in _DTYPES:
            near = difflib.get_close_matches(dtype, _DTYPES, 1)
            raise UsageError(f"{at}: got dtype '{dtype}', want one of {', '.join(_DTYPES)}"
                             + (f" (did you mean '{near[0]}'?)" if near else ""))
        shape = spec.get("shape")
        for axis in shape or []:
            if axis not in axes:
                near = difflib.get_close_matches(str(axis), axes, 1)
                raise UsageError(f"{at}: got the axis '{axis}', want one of {', '.join(axes)}"
                                 + (f" (did you mean '{near[0]}'?)" if near else ""))
        out.append(Tensor(name, shape, _DTYPES[dtype]))
    return out


def read_definition(path: str) -> Definition:
    """Raises UsageError with the place and what was wanted."""
    return parse_definition(_json(path), path)


def parse_definition(text: Any, path: str) -> Definition:
    """The same of what a file holds; `path` stands for it in messages."""
    where = f"[definition] {path}"
    constant: dict[str, int] = {}
    variable: list[str] = []
    derived: dict[str, str] = {}
    for axis, spec in _field(text, "axes", dict, where).items():
        kind = _field(spec, "type", str, f"{where}: axis '{axis}'")
        if kind == "const":
            constant[axis] = _field(spec, "value", int, f"{where}: axis '{axis}'")
        elif kind == "expr":
            derived[axis] = _field(spec, "expression", str, f"{where}: axis '{axis}'")
        elif kind == "var":
            variable.append(axis)
        else:
            raise UsageError(f"{where}: axis '{axis}': got type '{kind}', want const, var or expr")
    axes = [*constant, *variable, *derived]
    inputs = _tensors(_field(text, "inputs", dict, where), axes, f"{where}: input")
    outputs = _tensors(_field(text, "outputs", dict, where), axes, f"{where}: output")
    for output in outputs:
        if output.shape is None or not output.dtype.is_floating_point:
            what = "a scalar" if output.shape is None else str(output.dtype).removeprefix("torch.")
            raise UsageError(f"{where}: got output '{output.name}', {what}, want tensors of floating types alone")
    out = Definition(_field(text, "name", str, where), path, constant, variable, derived, inputs, outputs,
                     _field(text, "reference", str, where), list(text.get("constraints") or []))
    for one in [*out.constraints, *derived.values()]:
        _parsed(one, path)
    return out


def read_workloads(path: str) -> list[Workload]:
    """A line of JSON each: of SOL-ExecBench the workload itself, of FlashInfer Trace an object that holds it."""
    out = []
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError as error:
        raise UsageError(f"[workload] got '{path}', which cannot be read: {error.strerror}") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"[workload] {path}:{number}"
        try:
            text = json.loads(line)
        except ValueError as error:
            raise UsageError(f"{where}: got no JSON ({error}), want an object a line") from None
        text = text["workload"] if isinstance(text, dict) and isinstance(text.get("workload"), dict) else text
        inputs = _field(text, "inputs", dict, where)
        for name, spec in inputs.items():
            kind = _field(spec, "type", str, f"{where}: input '{name}'")
            if kind not in ("random", "scalar", "safetensors", "custom"):
                raise UsageError(f"{where}: input '{name}': got type '{kind}', want random, scalar, safetensors or custom")
        out.append(Workload(dict(_field(text, "axes", dict, where)), inputs, os.path.dirname(os.path.abspath(path))))
    return out


def workloads_of(definition: str, given: str | None) -> list[Workload]:
    """Those of --workload; else of the places where both collections keep them; else none."""
    if given is not None:
        return read_workloads(given)
    folder, file = os.path.split(os.path.abspath(definition))
    places = [os.path.join(folder, "workload.jsonl"), os.path.join(folder, "workloads.jsonl")]
    parts = folder.split(os.sep)
    if "definitions" in parts:  # FlashInfer Trace: definitions/OP/NAME.json, workloads/OP/NAME.jsonl
        at = len(parts) - 1 - parts[::-1].index("definitions")
        parts[at] = "workloads"
        places.append(os.path.join(os.sep.join(parts), os.path.splitext(file)[0] + ".jsonl"))
    found = [place for place in places if os.path.isfile(place)]
    return read_workloads(found[0]) if found else []


def root_of(workload: Workload, path: str) -> str:
    """A tensor file of a workload: its path counts from the root of the collection, which is above the workload."""
    folder = workload.folder
    while True:
        place = os.path.join(folder, path)
        if os.path.isfile(place):
            return place
        if os.path.dirname(folder) == folder:
            raise UsageError(f"[workload] got the file '{path}', which is neither in {workload.folder} nor above it")
        folder = os.path.dirname(folder)


class Solution:
    """The sources of a solution in a folder of their own, which goes with this object."""

    def __init__(self, path: str, definition: Definition) -> None:
        text = _json(path)
        where = f"[solution] {path}"
        self.name = str(text.get("name", os.path.splitext(os.path.basename(path))[0])) if isinstance(text, dict) else ""
        named = text.get("definition") if isinstance(text, dict) else None
        if named is not None and named != definition.name:
            raise UsageError(f"{where}: got a solution of '{named}', want one of '{definition.name}'")
        spec = _field(text, "spec", dict, where)
        languages = spec["languages"] if "languages" in spec else [_field(spec, "language", str, where)]
        if any(one in _OF_A_GPU or "cuda" in str(one).lower() for one in languages):
            raise EnvironmentError(f"{where}: got a solution in {' and '.join(map(str, languages))}, which a GPU "
                                   "runs, want Python, Triton or C++ here; a library of CUDA kernels is "
                                   "checked with `ampcheck check --device cuda`, or without a GPU on device ptx")
        other = [one for one in languages if one not in _PYTHON | _CPP]
        if other:
            raise UsageError(f"{where}: got the language '{other[0]}', want {', '.join(sorted(_PYTHON | _CPP))}")
        self.cpp = any(one in _CPP for one in languages)
        if self.cpp and "tvm" in str(spec.get("binding") or "torch"):
            raise UsageError(f"{where}: got the binding '{spec['binding']}', want torch: a function that PYBIND11_MODULE "
                             "exports")
        entry = _field(spec, "entry_point", str, where)
        if entry.count("::") != 1:
            raise UsageError(f"{where}: got entry_point '{entry}', want FILE::FUNCTION")
        self.file, self.function = entry.split("::")
        self.writes = bool(spec.get("destination_passing_style", True))
        self._folder = tempfile.TemporaryDirectory(prefix="ampcheck-solution-")
        self.folder = self._folder.name
        self.files: list[str] = []
        for source in _field(text, "sources", list, where):
            self.files.append(_field(source, "path", str, where))
            self._write(_field(source, "path", str, where), _field(source, "content", str, where), where)
        if not os.path.isfile(os.path.join(self.folder, self.file)):
            raise UsageError(f"{where}: got the entry point '{entry}', whose file is not among the sources")

    def _write(self, path: str, content: str, where: str) -> None:
        if os.path.isabs(path) or ".." in path.split("/"):
            raise UsageError(f"{where}: got the source '{path}', want a path below the solution's folder")
        place = os.path.join(self.folder, path)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "w", encoding="utf-8") as file:
            file.write(content)


def draw_workload(workloads: list[Workload], seed: int) -> Workload:
    """One of them, by the seed; where there are none, one without extents and scalars."""
    return random.Random(seed).choice(workloads) if workloads else Workload({}, {}, ".")
