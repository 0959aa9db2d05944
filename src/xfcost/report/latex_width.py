"""How wide cells of LaTeX are in Computer Modern at 10 points, and which columns of a table a page has room for.

Widths are estimates: of the letters of cmr10 (its file of metrics), without kerning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

# \textwidth of article at 10 points, the narrowest of LaTeX's own classes, less the indent of a paragraph, in points.
PAGE: Final = 330.0
# Twice \tabcolsep, between two columns.
GAP: Final = 12.0
# A column of text is not made narrower.
_LEAST: Final = 70.0
# Names in the first column are wrapped to this before a column is left out.
_NAMES: Final = 90.0
# How much narrower than the next one a column becomes at once.
_STEP: Final = 1.0
_ROUNDING: Final = 1e-6
# Headings of columns that a page may have no room for, the most wanted first; `--columns` shows them.
_WHERE_THERE_IS_ROOM: Final = (
    "backward MACs", "mixing", "params", "share", "FLOPs", "reads", "traced MACs", "projections", "otherwise",
    "made of", "input", "blocks", "rows", "‖X‖", "cos Δ,X", "cos Δ,Δ", "link", "fp8", "int8",
)  # fmt: skip

# Width in thousandths of 10 points -> the characters of cmr10 that have it.
_CMR10: Final = {
    278: "!',.:;[]`il", 306: "fj", 333: "- ", 361: "I", 389: "()t", 392: "r", 394: "s", 444: "cez",
    500: '*/0123456789"go', 514: "J", 528: "kqvxya", 556: "Sbdhnpu?", 611: "Z", 625: "L", 653: "F", 681: "EP", 708: "B",
    722: "CTw", 736: "R", 750: "AHNUVXY", 764: "D", 778: "&+=@KOQ<>|", 785: "G", 833: "#%m", 917: "M", 1028: "W",
}  # fmt: skip
_WIDTHS: Final = {character: width / 100 for width, characters in _CMR10.items() for character in characters}
# Signs of operations in formulas have space on both sides.
_OPERATIONS: Final = {"+": 12.3, "-": 12.3, r"\cdot": 7.3, r"\times": 12.3, r"\leq": 13.4, r"\geq": 13.4}
_COMMANDS: Final = {
    r"\,": 1.7, r"\ ": 3.4, r"\quad": 10.0, r"\rightarrow": 10.0, r"\leftarrow": 10.0, r"\ldots": 12.0, r"\%": 8.4,
    r"\#": 8.4, r"\&": 7.8, r"\_": 5.1, r"\$": 5.0, r"\{": 5.0, r"\}": 5.0, r"\|": 5.0, r"\sqrt": 8.4, r"\surd": 8.4,
    r"\textbackslash": 5.0, r"\S": 4.5, r"\textasciicircum": 5.0, r"\textasciitilde": 5.0, r"\Delta": 8.4,
    r"\Sigma": 7.3, r"\log": 14.0, r"\min": 18.0, r"\max": 20.0,
}  # fmt: skip
# Commands that only change their argument.
_NO_WIDTH: Final = {r"\mathrm", r"\mbox", r"\textit", r"\frac"}
_ACCENTS: Final = {rf"\{mark}" for mark in "`'^~=.\""}
_OTHER: Final = 7.8
_SCRIPT: Final = 0.72
_ITALIC: Final = 1.12
_SIGNS: Final = re.compile(r"\\[A-Za-z]+|\\.|.")


def width(cell: str) -> float:
    """The width in points of a cell as `latex`, `number`, `title` and `formula` write it."""
    total, scale, scales, formula, script = 0.0, 1.0, list[float](), False, False
    for sign in _SIGNS.findall(cell):
        if sign == "$":
            formula = not formula
        elif formula and sign in ("^", "_"):
            script = True
        elif sign == "{":
            scales.append(scale)
            scale *= _SCRIPT if script else 1.0
            script = False
        elif sign == "}":
            scale = scales.pop()
        else:
            total += scale * _one(sign, formula=formula)
    return total


def _one(sign: str, *, formula: bool) -> float:
    if sign in _NO_WIDTH or sign in _ACCENTS or (formula and sign == " "):
        return 0.0
    if formula and sign in _OPERATIONS:
        return _OPERATIONS[sign]
    if sign in _COMMANDS:
        return _COMMANDS[sign]
    letter = _WIDTHS.get(" " if sign == "~" else sign, _OTHER)
    return letter * _ITALIC if formula and sign.isalpha() else letter


class Part(NamedTuple):
    """Columns of a table that stand side by side on a page."""

    places: Sequence[int]
    wrapped: dict[int, float]
    """Place -> points of the columns whose text is wrapped."""

    def points(self, widths: Sequence[float]) -> float:
        """Their width."""
        return _points(self.places, [self.wrapped.get(place, points) for place, points in enumerate(widths)])


def parts(
    heads: Sequence[str], widths: Sequence[float], right: Sequence[bool], chosen: Sequence[int] | None
) -> list[Part]:
    """The columns for a page, in several tables where one is too wide, each with the first column.

    Of columns that nobody has chosen some are left out; then text is wrapped; or else the table is divided.
    """
    places = list(chosen or ())
    if chosen is None:
        names_wrapped = [min(widths[0], _NAMES), *widths[1:]] if widths else []
        places = [place for place, head in enumerate(heads) if head not in _WHERE_THERE_IS_ROOM]
        for head in _WHERE_THERE_IS_ROOM:
            if head in heads and _points(more := sorted([*places, heads.index(head)]), names_wrapped) <= PAGE:
                places = more
    narrowest = [points if one else min(points, _LEAST) for points, one in zip(widths, right, strict=True)]
    divided = [places] if _points(places, narrowest) <= PAGE else _divided(places, narrowest)
    return [Part(some, _wrapped(some, widths, right)) for some in divided]


def _wrapped(places: Sequence[int], widths: Sequence[float], right: Sequence[bool]) -> dict[int, float]:
    """The widths of columns of text that are narrowed, the widest first, as far as the others."""
    texts = [place for place in places if not right[place]]
    fitting = {place: widths[place] for place in places}
    while texts and (excess := sum(fitting.values()) + GAP * (len(places) - 1) - PAGE) > _ROUNDING:
        widest = max(texts, key=fitting.__getitem__)
        next_widest = max((fitting[place] for place in texts if fitting[place] < fitting[widest]), default=0.0)
        fitting[widest] = max(fitting[widest] - excess, next_widest - _STEP, _LEAST)
        if fitting[widest] == _LEAST:
            texts.remove(widest)
    return {place: points for place, points in fitting.items() if points < widths[place]}


def _divided(places: Sequence[int], widths: Sequence[float]) -> list[list[int]]:
    first, *others = places
    found = [[first]]
    for place in others:
        if len(found[-1]) > 1 and _points([*found[-1], place], widths) > PAGE:
            found.append([first])
        found[-1].append(place)
    return found


def _points(places: Iterable[int], widths: Sequence[float]) -> float:
    """The width of a table, without space at its sides."""
    some = [widths[place] for place in places]
    return sum(some) + GAP * (len(some) - 1)
