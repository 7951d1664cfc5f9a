# SPDX-License-Identifier: Apache-2.0
"""What `ampcheck verify` reads: a function of a file, a pair of KernelBench files, or a definition (_definition_problem.py)."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch

from ._check import ExampleError
from ._core import EnvironmentError, UsageError
from ._kernel import running
from ._replaced import Functions, ReplacedError, words
from ._surroundings import missing_gpu, missing_tool


class LoadError(UsageError):
    """The code of a file raised when it was loaded."""


@dataclass
class Problem:
    """A solution beside its reference, both functions of the same arguments."""

    name: str
    solution: Callable[..., Any]
    reference: Callable[..., Any]
    arguments: list[Any]  # for the trace: fake tensors of the problem's own extents, or real ones
    names: list[str]
    roles: dict[str, str]
    renew: Callable[[], Callable[..., Any]] | None  # the solution anew, from its file: nothing is kept from earlier calls
    inputs: int = 0  # the first arguments, whose extents may be made smaller before the trace
    adjust: Callable[[Any], None] | None = None  # what is known of the trace's extents besides
    rounding: str = "mathematics"  # of check(), where nothing else is asked for
    notes: list[str] = field(default_factory=list)
    real: str | None = None  # a file of tensors at which the solution is judged, too
    keep: tuple[Any, ...] = ()  # what lives as long
    device: str = "cpu"  # where the solution runs


def load(path: str) -> ModuleType:
    """A Python file as a module of its own. Raises LoadError if its own code raises."""
    if not os.path.isfile(path):
        raise UsageError(f"[verify] got '{path}', which is no file")
    name = f"ampcheck_verified_{len(sys.modules)}_{os.path.splitext(os.path.basename(path))[0]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"[verify] got '{path}', want a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and Triton look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise LoadError(f"[verify] got {type(error).__name__} from '{os.path.basename(path)}' itself: {error}; want a file "
                        "that can be loaded") from error
    return module


def load_solution(path: str) -> ModuleType:
    """The same; one that cannot be loaded is wrong, as one that raises at the first call. Raises ReplacedError if it replaces
    functions that others call."""
    functions = Functions()
    try:
        with running:
            module = load(path)
        if replaced := functions.restored():
            raise ReplacedError(words(replaced, "as it is loaded"))
        return module
    except LoadError as error:
        cause = error.__cause__ or error
        name = os.path.basename(path)
        if tool := missing_tool(cause):
            raise EnvironmentError(f"[verify] got '{name}', which builds kernels as it is loaded and finds no '{tool}' here: "
                                   f"{cause}; CUDA sources need nvcc and a GPU, C++ sources of torch's load_inline a compiler "
                                   "and ninja (pip install ninja)") from error
        if missing := missing_gpu(cause):
            raise EnvironmentError(f"[verify] got '{name}', which fails as it is loaded: {cause}; want {missing}") from error
        hint = ("import what is installed here, or install it" if isinstance(cause, ImportError) else
                "the file must load: run it with Python alone")
        said = f"cannot be loaded: {type(cause).__name__} from '{name}' itself: {cause}"
        raise ExampleError(str(error), said, hint) from error


def member(module: ModuleType, path: str, name: str) -> Any:
    if not hasattr(module, name):
        raise UsageError(f"[verify] got '{path}' without {name}, want it there")
    return getattr(module, name)


def _argument_names(f: Callable[..., Any], count: int) -> list[str]:
    from ._kernel import parameters_of

    known = [n for n in parameters_of(f) or [] if n != "self"]
    return [known[i] if i < len(known) else f"x{i}" for i in range(count)]


def role(name: str, shape: tuple[int, ...]) -> str:
    """Of a module's parameter: what scales is about 1, what is added about 0."""
    last = name.rsplit(".", 1)[-1]
    if "bias" in last or last in ("beta", "shift", "running_mean"):
        return "bias"
    return "weight" if len(shape) <= 1 and ("weight" in last or last in ("gamma", "scale")) else "data"


def _as_function(module: torch.nn.Module, inputs: int, state: list[str]) -> Callable[..., Any]:
    """A module as a function of its inputs and of its parameters and buffers."""

    def run(*arguments: Any) -> Any:
        own = dict(zip(state, arguments[inputs:]))
        return torch.func.functional_call(module, own, tuple(arguments[:inputs]))

    run.__name__ = type(module).__name__
    return run


def kernelbench(problem: str, solution: str, seed: int) -> Problem:
    """KernelBench's files: Model, get_inputs and get_init_inputs in the one, ModelNew in the other."""
    theirs, ours = load(problem), load_solution(solution)
    init = getattr(theirs, "get_init_inputs", list)

    def made(kind: Any) -> torch.nn.Module:
        torch.manual_seed(seed)
        module = kind(*init())
        return module.eval()

    if not hasattr(theirs, "Model"):
        raise UsageError(f"[verify] got '{problem}' without Model, want a KernelBench file (Model, get_inputs), or "
                         "FILE:FUNCTION")
    model = made(theirs.Model)

    def made_of(module: ModuleType) -> torch.nn.Module:
        return made(member(module, solution, "ModelNew" if hasattr(module, "ModelNew") else "Model"))

    new = made_of(ours)
    state = [n for n, x in {**dict(model.named_parameters()), **dict(model.named_buffers())}.items()
             if x.is_floating_point()]
    other = {**dict(new.named_parameters()), **dict(new.named_buffers())}
    own = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    unlike = [n for n in state if n not in other or other[n].shape != own[n].shape]
    if unlike:
        raise UsageError(f"[verify] got a solution without the parameter '{unlike[0]}' of {list(own[unlike[0]].shape)}, want "
                         "the same parameters as the reference's")
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():  # the problem's own extents may take gigabytes
        inputs = list(member(theirs, problem, "get_inputs")())
    names = _argument_names(model.forward, len(inputs))
    clean = [n.replace(".", "_") for n in state]
    clean = [f"{n}_" if n in names else n for n in clean]
    roles = {c: role(n, tuple(own[n].shape)) for c, n in zip(clean, state)}
    return Problem(os.path.splitext(os.path.basename(solution))[0], _as_function(new, len(inputs), state),
                   _as_function(model, len(inputs), state), [*inputs, *(own[n].detach() for n in state)], names + clean,
                   roles, lambda: _as_function(made_of(load(solution)), len(inputs), state), len(inputs))


def functions(problem: str, solution: str) -> Problem:
    """FILE:FUNCTION against FILE:FUNCTION; inputs are get_inputs() of the problem's file, or guessed by name."""
    from ._examples import guess

    (their_file, their_name), (our_file, our_name) = problem.rsplit(":", 1), solution.rsplit(":", 1)
    theirs, ours = load(their_file), load_solution(our_file)
    reference, f = member(theirs, their_file, their_name), member(ours, our_file, our_name)
    if hasattr(theirs, "get_inputs"):
        inputs = list(theirs.get_inputs())
    else:
        inputs = list(guess(f, reference, set()).values())
    return Problem(our_name, f, reference, inputs, _argument_names(reference, len(inputs)), {},
                   lambda: member(load(our_file), our_file, our_name))


def read(problem: str, solution: str, seed: int, workload: str | None = None, free: Sequence[str] = ()) -> Problem:
    if problem.endswith(".json") or os.path.isdir(problem):
        from ._definition_problem import definition_problem

        return definition_problem(problem, solution, seed, workload, free)
    if workload is not None or free:
        raise UsageError(f"[{'workload' if workload is not None else 'free'}] got it with '{problem}', want a definition.json")
    pairs = [":" in os.path.basename(path) for path in (problem, solution)]
    if all(pairs):
        return functions(problem, solution)
    if any(pairs):
        raise UsageError("[verify] got one file and one function, want FILE FILE or FILE:FUNCTION FILE:FUNCTION")
    return kernelbench(problem, solution, seed)
