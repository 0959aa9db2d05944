"""Closed forms as papers print them (`12·(12·N·d² + 2N²d)`), worked out exactly: parsed, never evaluated as code."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from fractions import Fraction

POWERS = {"²": "**2", "³": "**3", "⁴": "**4"}
TOKEN = re.compile(r"\s*(\d{1,3}(?:,\d{3})+|\d+|\[[a-z0-9.-]+\]|[A-Za-z]+'?|[²³⁴]|[()⌈⌉⌊⌋+/·-])")
OPERATORS: dict[type[ast.operator], Callable[..., Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
ROUNDED = {"⌈": "ceil(", "⌊": "floor("}
Letters = Mapping[str, int]


class UnreadableError(ValueError):
    """No closed form: prose, or a letter that nobody declared."""


def value(formula: str, letters: Letters, known: Callable[[str], int] | None = None) -> Fraction:
    """`formula` in numbers. `2Nd` is a product of declared letters; `[preset]` is what `known` says of it."""
    text = _as_python(formula, letters, known)
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError as wrong:
        raise UnreadableError(f"no formula: {formula!r}") from wrong
    return _value(tree)


def _as_python(formula: str, letters: Letters, known: Callable[[str], int] | None) -> str:
    pieces: list[str] = []
    at = 0
    formula = formula.strip()
    while at < len(formula):
        found = TOKEN.match(formula, at)
        if found is None:
            raise UnreadableError(f"{formula[at:]!r} of {formula!r} is no formula")
        at = found.end()
        for piece in _pieces(found[1], letters, known):
            if pieces and _ends_a_factor(pieces[-1]) and _begins_a_factor(piece):
                pieces.append("*")
            pieces.append(piece)
    return "".join(pieces)


def _pieces(token: str, letters: Letters, known: Callable[[str], int] | None) -> list[str]:
    if token[0] in "0123456789":
        return [token.replace(",", "")]
    if token.startswith("["):
        if known is None:
            raise UnreadableError(f"{token} is not known here")
        return [str(known(token[1:-1]))]
    if token[0].isalpha():
        names = [token] if token in letters else re.findall(r"[A-Za-z]'?", token)
        missing = [name for name in names if name not in letters]
        if missing:
            raise UnreadableError(f"{missing[0]!r} of {token!r} is no declared letter")
        return [str(letters[name]) for name in names]
    fixed = {"·": "*", "⌉": ")", "⌋": ")"} | POWERS | ROUNDED
    return [fixed.get(token, token)]


def _ends_a_factor(piece: str) -> bool:
    return piece[-1].isdigit() or piece.endswith(")")


def _begins_a_factor(piece: str) -> bool:
    return piece[0].isdigit() or piece.endswith("(")


def _value(node: ast.expr) -> Fraction:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return Fraction(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 1:
        rounded = {"ceil": math.ceil, "floor": math.floor}.get(node.func.id)
        if rounded is not None:
            return Fraction(rounded(_value(node.args[0])))
    raise UnreadableError(f"no arithmetic: {ast.dump(node)[:80]}")
