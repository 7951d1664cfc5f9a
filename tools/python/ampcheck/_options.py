# SPDX-License-Identifier: Apache-2.0
"""What a caller may declare of a function: its arithmetic, and which extents it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: NumPy's vectorised functions in single precision err by up to 4 ulp (its own accuracy tests hold them to that).
NUMPY_ULPS = {name: 4.0 for name in ("exp", "expm1", "log", "log1p", "tanh", "erf", "erfc")}


@dataclass(frozen=True)
class Contract:
    """What the function promises of its arithmetic; every interval is derived from this.

    accumulate: type of partial sums: "fp32", "fp16", "bf16" or "tensor_core(h100)".
    math: accuracy of exp, tanh, ...: "numpy" (4 ulp), "cuda" or "glibc" (the tables of their manuals).
          None: "numpy" for NumPy functions, "cuda" for all others.
    ulps: largest errors of single functions, in ulps: {"exp": 2}.
    """

    accumulate: str = "fp32"
    math: str | None = None
    ulps: Mapping[str, float] = field(default_factory=dict)
    atomics: bool = False
    flushes_subnormals: bool = False

    def spec(self, storage: list[str], library: str) -> dict[str, object]:
        math = self.math or ("numpy" if library == "numpy" else "cuda")
        ulps = dict(NUMPY_ULPS) if math == "numpy" else {}
        ulps.update(self.ulps)
        return {"storage": storage, "accumulate": self.accumulate, "math": math, "ulps": ulps,
                "atomics": self.atomics, "flushes_subnormals": self.flushes_subnormals}


@dataclass(frozen=True)
class Dim:
    """Which extents a dimension may have: multiples of `multiple`, from `least` (0: also empty arrays) to `most` (0: any)."""

    multiple: int = 1
    least: int = 1
    most: int = 0


def fixed(extent: int) -> Dim:
    """An extent that does not vary."""
    return Dim(least=extent, most=extent)
