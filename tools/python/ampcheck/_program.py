# SPDX-License-Identifier: Apache-2.0
"""The program that comes with this package."""

from __future__ import annotations

import os


def program() -> str:
    """Its path."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "ampcheck")
