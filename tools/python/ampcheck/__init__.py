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

from ._check import check
from ._core import EnvironmentError, Error, UsageError
from ._options import Contract, Dim
from ._report import Finding, Report

if TYPE_CHECKING:
    from . import torch as torch

__version__ = "0.2.0"
__all__ = ["Contract", "Dim", "EnvironmentError", "Error", "Finding", "Report", "UsageError", "check", "torch"]


def __getattr__(name: str) -> object:
    if name == "torch":  # imported on first use: it takes seconds
        return importlib.import_module(".torch", __name__)
    raise AttributeError(f"module 'ampcheck' has no attribute '{name}'")
