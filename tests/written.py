"""The tables of docstrings, `scores  N²·h·d_k MACs, h·N² entries kept`: read and evaluated.

A line names rows (`…` in a name stands for anything), and says what each costs, formulas before their units. Several
formulas of one unit are alternatives. A line without an option's words (`with`, `where`, `without`, `of a`) is
unconditional: its rows stand in every example. What a class's docstring says of a row, those of its bases do not.
"""

import inspect
import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import cache
from math import ceil, floor
from types import CodeType
from typing import NamedTuple

from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.ledger.operation import Operation

Letters = Mapping[str, Fraction]

# A number of `elements` is one of FLOPs by the convention of what is done to each; see `found_in`.
UNITS = {
    "MACs": "macs", "parameters": "params", "parameter": "params", "entries": "attention_entries",
    "FLOPs": "work", "element-wise FLOPs": "work", "additions": "work", "multiplications": "work",
    "comparisons": "comparisons", "elements written": "moved", "elements": "elements",
}  # fmt: skip
_UNIT = re.compile(rf"(?<= )({'|'.join(sorted(UNITS, key=len, reverse=True))})\b")
_LINE = re.compile(r"^( *)([\w…]+(?:, [\w…]+)*)  +(\S.*(?:\n\1 {3,}\S.*)*)", re.MULTILINE)
_OPTION = re.compile(r"\b(with|where|without|of a)\b")

# A letter may have a subscript and a prime; in words there are none. Beside each other only capitals are multiplied.
_TOKENS = {
    r"\d+": "F({0})", r"(?<![a-z])[√∛]?[A-Za-zβδκ](?:_[a-z]+|[₀-₉]+)?'?(?![a-z_])": "v[{0!r}]",
    r" ?([+-]) ?": "{1}", "·": "*", "/": "/", r"\(": "(", r"\)": ")", "²": "**2", "³": "**3", r"\^": "**",
    r"⌈log₂ ?": "log(", "⌈": "up(", "⌊": "down(", "[⌉⌋]": ")",
}  # fmt: skip
_TOKEN = re.compile("|".join(f"(?P<t{number}>{pattern})" for number, pattern in enumerate(_TOKENS)))


class MalformedError(Exception):
    """A text that is no formula."""


def ceil_log2(value: Fraction) -> int:
    """⌈log₂ n⌉ of a whole number n ≥ 1."""
    return (ceil(value) - 1).bit_length()


@cache
def parsed(formula: str) -> CodeType:
    """`formula` as an expression of Python, token by token; raises MalformedError."""
    python, at, operand = [], 0, False
    while at < len(formula):
        token = _TOKEN.match(formula, at)
        if token is None:
            raise MalformedError(formula)
        text = list(_TOKENS.values())[int(str(token.lastgroup)[1:])].format(token[0], token[0].strip())
        opens = text[-1] == "(" or text[0] in "Fv"
        python += ["*", text] if operand and opens else [text]
        operand, at = text[0] in "Fv)" or text[:3] in ("**2", "**3"), token.end()
    try:
        return compile("".join(python), __file__, "eval")
    except SyntaxError:
        raise MalformedError(formula) from None


def value(formula: str, letters: Letters) -> Fraction:
    """What `formula` comes to; raises KeyError of a letter that is not given."""
    known = {"F": Fraction, "v": letters, "up": ceil, "down": floor, "log": ceil_log2, "__builtins__": {}}
    try:
        return Fraction(eval(parsed(formula), known))  # noqa: S307 - of nothing but these names, numbers and operators
    except KeyError as missing:
        raise KeyError(f"{formula}: what is {missing}?") from None


def before(text: str) -> str | None:
    """The longest formula that `text` ends with; None where it ends with a word. Raises MalformedError."""
    for start in sorted({0, *(found.end() for found in re.finditer(r"\s|(?=\()|\(", text))}):
        try:
            parsed(text[start:])
        except MalformedError:
            continue
        return text[start:]
    if re.search(r"[·\d]\S*$", text):
        raise MalformedError(text)
    return None


class Line(NamedTuple):
    """One line of a docstring's table."""

    names: tuple[str, ...]
    text: str
    formulas: tuple[tuple[str, str], ...]
    """(figure, formula) in turn."""

    def __str__(self) -> str:
        return f"{', '.join(self.names)}  {self.text}"

    @property
    def unconditional(self) -> bool:
        return not _OPTION.search(self.text)

    def of(self, path: str) -> bool:
        """Does it name the row `path`?"""
        return any(re.fullmatch(name.replace("…", ".*"), path) for name in self.names)


@cache
def lines_of(documented: object) -> tuple[Line, ...]:
    """The lines of its own docstring."""
    lines = []
    for _, names, text in _LINE.findall(inspect.cleandoc(documented.__doc__ or "")):
        joined = re.sub(r"\n *", " ", text)
        found = ((UNITS[unit[1]], before(joined[: unit.start() - 1])) for unit in _UNIT.finditer(joined))
        formulas = tuple((figure, formula) for figure, formula in found if formula)
        lines.append(Line(tuple(names.split(", ")), joined, formulas))
    return tuple(lines)


def found_in(row: Operation, figure: str, told: str) -> set[Fraction]:
    """The `figure` of a row; of elements, by each convention of FLOPs per element that is named in what is `told`."""
    if figure == "work":
        return {Fraction(row.flops - 2 * row.macs)}
    if figure != "elements":
        return {Fraction(getattr(row, figure))}
    kinds = (
        each
        for each in FLOPS_PER_ELEMENT
        if each != "norm" and re.search(rf"\b{each.replace('_', '[ _]')}\b", told, re.IGNORECASE)
    )
    return {Fraction(row.flops, FLOPS_PER_ELEMENT[kind]) for kind in kinds}


def said(documents: Iterable[object], path: str) -> dict[str, list[tuple[Line, str]]]:
    """What the row `path` costs, by figure: formulas with their lines, of the first docstring that names the two."""
    figures: dict[str, list[tuple[Line, str]]] = {}
    for document in documents:
        here: dict[str, list[tuple[Line, str]]] = {}
        for line in lines_of(document):
            for figure, formula in line.formulas if line.of(path) else ():
                here.setdefault(figure, []).append((line, formula))
        figures = here | figures
    return figures
