# SPDX-License-Identifier: Apache-2.0
"""The program `ampcheck`: `verify` and `serve` in Python, everything else in the program that comes with this package."""

from __future__ import annotations

import os
import sys

from ._program import program


def main() -> int:
    if len(sys.argv) > 1 and sys.argv[1] == "verify":
        from .verify import main as verify

        return verify(sys.argv[2:])
    if len(sys.argv) > 1 and sys.argv[1] == "serve":
        from .serve import main as serve

        return serve(sys.argv[2:])
    os.execv(program(), ["ampcheck", *sys.argv[1:]])


if __name__ == "__main__":
    raise SystemExit(main())
