# SPDX-License-Identifier: Apache-2.0
"""Functions of Python and torch that a solution replaces: a timer, allclose, an op that others call."""

from __future__ import annotations

import builtins
import inspect
import math
import os
import random
import sys
import time
from typing import Any

#: Modules and classes whose functions a benchmark, a test or the judge calls; those that are loaded count.
_MODULES = ("torch", "torch.nn", "torch.nn.functional", "torch.nn.init", "torch.testing", "torch.linalg", "torch.special",
            "torch.fft", "torch.autograd", "torch.cuda", "torch.profiler", "torch.utils.benchmark", "torch.random", "numpy",
            "numpy.testing", "numpy.linalg", "numpy.random", "triton.testing")
_CLASSES = (("torch", "Tensor"), ("torch.nn", "Module"), ("torch.nn", "Parameter"), ("torch.cuda", "Event"),
            ("torch.cuda", "Stream"), ("torch.autograd", "Function"))
_MISSING = object()


class ReplacedError(Exception):
    """The solution replaced what others call; the text names it."""


def _owners() -> list[tuple[str, Any]]:
    out: list[tuple[str, Any]] = [(m.__name__, m) for m in (builtins, math, random, time)]
    out += [(name, sys.modules[name]) for name in _MODULES if name in sys.modules]
    out += [(name, module) for name, module in sys.modules.items() if name.split(".")[0] == "ampcheck"]
    for module, name in _CLASSES:
        if hasattr(sys.modules.get(module), name):
            out.append((f"{module}.{name}", getattr(sys.modules[module], name)))
    return out


def _functions(owner: Any) -> dict[str, Any]:
    """By name, as they stand there: no attribute is computed, and none is loaded because somebody looks."""
    if not inspect.isclass(owner):
        return {name: value for name, value in vars(owner).items() if callable(value)}
    return {name: inspect.getattr_static(owner, name, _MISSING) for name in dir(owner)}


def _by_its_own_package(owner_name: str, name: str, now: Any) -> bool:
    """torch wraps some of its functions as more of it is loaded, as torch.compile does."""
    package = getattr(sys.modules.get(owner_name.split(".")[0]), "__file__", None)
    code = getattr(now, "__code__", None)
    named = getattr(now, "__name__", "") == name or name.startswith("__")
    return (package is not None and code is not None and named
            and os.path.abspath(code.co_filename).startswith(os.path.dirname(os.path.abspath(package)) + os.sep))


class Functions:
    """Those that there are now."""

    def __init__(self) -> None:
        self._known = [(name, owner, _functions(owner)) for name, owner in _owners()]

    def restored(self) -> list[str]:
        """Names of those that have been replaced or removed since. They are what they were again."""
        out = []
        for owner_name, owner, known in self._known:
            is_class = inspect.isclass(owner)
            for name, value in known.items():
                now = inspect.getattr_static(owner, name, _MISSING) if is_class else vars(owner).get(name, _MISSING)
                if now is value or value is _MISSING or _by_its_own_package(owner_name, name, now):
                    continue
                try:
                    if is_class and not any(value is one for one in (vars(base).get(name) for base in owner.__mro__[1:])):
                        setattr(owner, name, value)
                    elif is_class:
                        delattr(owner, name)
                    else:
                        setattr(owner, name, value)
                except (AttributeError, TypeError):
                    continue  # nobody can replace it: it is made anew whenever somebody asks
                out.append(f"{owner_name}.{name}")
        return out


def words(names: list[str], when: str) -> str:
    shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    return f"the solution replaces {shown} {when}: whoever calls it afterwards gets the solution's own"
