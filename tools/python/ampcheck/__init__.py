# SPDX-License-Identifier: Apache-2.0
"""This low-precision number differs from the reference. Is it wrong, or only rounded?

    r = ampcheck.check(f, reference="y = x / sqrt(mean(x^2, -1) + eps) * weight",
                       inputs={"x": x, "weight": w}, attributes={"eps": 1e-6})
    assert r, r

`ampcheck explain python` is the manual. ``ampcheck.torch`` needs torch; nothing else does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from ._core import EnvironmentError, Error, UsageError
from ._options import Contract, Dim

if TYPE_CHECKING:
    from . import torch as torch
    from ._check import check, check_library
    from ._report import Finding, Report

__version__ = "0.2.0"
__all__ = ["Contract", "Dim", "EnvironmentError", "Error", "Finding", "Report", "UsageError", "check",
           "check_library", "torch"]


#: Imported on first use: NumPy takes a tenth of a second, torch takes seconds.
_LATER = {"check": "._check", "check_library": "._check", "Finding": "._report", "Report": "._report"}


def __getattr__(name: str) -> object:
    if name == "torch":
        return importlib.import_module(".torch", __name__)
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name], __name__), name)
    raise AttributeError(f"module 'ampcheck' has no attribute '{name}'")
