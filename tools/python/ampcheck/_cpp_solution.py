# SPDX-License-Identifier: Apache-2.0
"""A solution in C++: its sources as an extension of Python, with the headers and libraries of torch, as
torch.utils.cpp_extension and the benchmarks build them. No ninja is needed."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Sequence
from types import ModuleType

import torch

from ._check import ExampleError
from ._core import EnvironmentError

_SUFFIXES = (".cpp", ".cc", ".cxx", ".c")
_NAME = "ampcheck_solution"  # of the module: TORCH_EXTENSION_NAME
_HINT = "build it with the compiler of CXX and the headers of torch that is installed here"
_MOST_SECONDS = 600
_STANDARD = "-std=c++20"  # torch's headers want it since 2.11, and older ones take it


def _command(folder: str, sources: Sequence[str], out: str) -> list[str]:
    from torch.utils.cpp_extension import include_paths, library_paths

    compiler = shlex.split(os.environ.get("CXX", "c++"))
    if not compiler or shutil.which(compiler[0]) is None:
        raise EnvironmentError(f"[solution] got C++ and no compiler '{' '.join(compiler)}', want one (CXX)")
    includes = [folder, *include_paths(), sysconfig.get_path("include")]
    libraries = library_paths()
    return [*compiler, "-O2", "-shared", "-fPIC", _STANDARD, f"-DTORCH_EXTENSION_NAME={_NAME}",
            "-DTORCH_API_INCLUDE_EXTENSION_H",
            f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}", *(f"-I{path}" for path in includes),
            *sources, *(f"-L{path}" for path in libraries), *(f"-Wl,-rpath,{path}" for path in libraries),
            "-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python", "-o", out]


def build(folder: str, files: Sequence[str], name: str) -> str:
    """The extension that these sources make, as a file. Raises ExampleError where they do not compile: nobody can use such a
    solution."""
    sources = [os.path.join(folder, file) for file in files if file.endswith(_SUFFIXES)]
    out = os.path.join(folder, _NAME + ".so")
    try:
        done = subprocess.run(_command(folder, sources, out), capture_output=True, text=True, timeout=_MOST_SECONDS, cwd=folder)
    except subprocess.TimeoutExpired:
        raise ExampleError(f"[verify] got '{name}', which does not compile in {_MOST_SECONDS} s",
                           f"does not compile in {_MOST_SECONDS} s", _HINT) from None
    if done.returncode != 0:
        said = done.stderr.replace(folder + os.sep, "")
        first = re.search(r"^.*\b(?:error|undefined reference)\b.*$", said, re.MULTILINE)
        shown = first.group(0) if first else said[-400:]
        raise ExampleError(f"[verify] got '{name}', which does not compile: {shown}", f"does not compile: {shown}", _HINT)
    return out


def load(path: str) -> ModuleType:
    """The extension anew: a copy of its file is another library, with variables of its own."""
    folder = tempfile.mkdtemp(dir=os.path.dirname(path))
    place = os.path.join(folder, os.path.basename(path))
    shutil.copyfile(path, place)
    name = f"ampcheck_{os.path.basename(folder)}.{_NAME}"  # pybind11 hands out a module of the same name again
    loader = importlib.machinery.ExtensionFileLoader(name, place)
    spec = importlib.util.spec_from_file_location(name, place, loader=loader)
    assert spec is not None
    try:
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except Exception as error:
        said = f"{type(error).__name__} from the solution's library as it was loaded: {error}"
        raise ExampleError(f"[verify] got {said}", f"cannot be loaded: {said}", _HINT) from error
    return module
