# SPDX-License-Identifier: Apache-2.0
"""Extents as dims= writes them: a dimension symbol, or + - * / ( ) over symbols, attributes and whole numbers ("D/2"). A
division rounds down. src/extent.h reads the same."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from ._core import UsageError


def extents_in(dims: str) -> list[str]:
    """The extents of "N D/2"; blanks beside operators are none between extents."""
    depth, out = 0, [""]
    for c in re.sub(r"\s*([-+*/)])\s*", r"\1", re.sub(r"([-+*/(])\s*", r"\1", dims)).strip():
        depth += (c == "(") - (c == ")")
        if c.isspace() and depth <= 0:
            out.append("")
        elif not c.isspace():
            out[-1] += c
    return [extent for extent in out if extent]


def _value(node: ast.AST, names: Mapping[str, float]) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name):
        return int(names[node.id])
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, names)
    if isinstance(node, ast.BinOp):
        a, b = _value(node.left, names), _value(node.right, names)
        if isinstance(node.op, ast.Add):
            return a + b
        if isinstance(node.op, ast.Sub):
            return a - b
        if isinstance(node.op, ast.Mult):
            return a * b
        if isinstance(node.op, ast.Div):
            return a // b
    raise ValueError("an operator that extents have not")


def extent_value(extent: str, names: Mapping[str, float]) -> int:
    """Its value at these extents and attributes."""
    if extent in names:
        return int(names[extent])
    try:
        return _value(ast.parse(extent, mode="eval").body, names)
    except KeyError as error:
        raise UsageError(f"[dims] got '{extent}' with the unknown name {error}, want one of {', '.join(names)}") from None
    except (SyntaxError, ValueError, ZeroDivisionError) as error:
        raise UsageError(f"[dims] got '{extent}', want + - * / ( ) over dimensions, attributes and whole numbers: "
                         f"{error}") from None
