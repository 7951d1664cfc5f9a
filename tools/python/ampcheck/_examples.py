# SPDX-License-Identifier: Apache-2.0
"""Inputs for a function whose caller gave none: by the names of its parameters."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from . import _describe
from ._core import UsageError
from ._kernel import parameters_of

_ROWS, _COLUMNS = 6, 40
_VECTORS = re.compile(r"^(w|b|weight|bias|gamma|beta|scale|shift|gain)$", re.IGNORECASE)


def _names_of_formula(formula: str, attributes: set[str]) -> list[str]:
    """The names that a formula reads and does not define, in its order, without functions."""
    known = set(_describe.statements(formula)) | attributes | {"pi", "inf", "with", "axis", "reversed", "stride", "padding"}
    text = re.sub(r"#.*|\b\d[\w.]*(?:(?<=[eE])[-+]\d+)?", "", formula)  # no comments, no numbers
    names = re.findall(r"[A-Za-z_]\w*(?!\w*\s*\()", text)
    return [n for n in dict.fromkeys(names) if n not in known]


def _shapes(names: list[str]) -> list[list[tuple[int, ...]]]:
    """What is tried, in this order: matrices beside vectors of their columns, all matrices, products of matrices."""
    vectors: list[tuple[int, ...]] = [(_COLUMNS,) if _VECTORS.match(name) else (_ROWS, _COLUMNS) for name in names]
    chain: list[tuple[int, ...]] = [(_ROWS + 2 * i, _ROWS + 2 * i + 2) for i in range(len(names))]
    return [vectors, [(_ROWS, _COLUMNS)] * len(names), chain]


def guess(f: Callable[..., Any], reference: Any, attributes: set[str]) -> dict[str, Any]:
    """Arrays by name: torch tensors where the reference is a function, else NumPy's."""
    rng = np.random.default_rng(1)
    if isinstance(reference, str):
        names = _names_of_formula(reference, attributes)
        known = parameters_of(f) or names
        names = sorted(names, key=lambda n: known.index(n) if n in known else len(known))
        return {n: rng.standard_normal(s).astype(np.float32) for n, s in zip(names, _shapes(names)[0])}
    import torch

    names = [n for n in parameters_of(reference) or parameters_of(f) or [] if n not in attributes]
    for shapes in _shapes(names):
        out = {n: torch.from_numpy(rng.standard_normal(s).astype(np.float32)) for n, s in zip(names, shapes)}
        try:
            with torch.no_grad():
                reference(*out.values())
            return out
        except Exception:
            continue
    raise UsageError("[inputs] got none, and no guess by the names of the parameters fits; want inputs= with examples")
