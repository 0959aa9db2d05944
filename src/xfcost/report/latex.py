"""Tables of LaTeX: booktabs, numbers to the right, characters that pdflatex sets in any document, no wider than a page.

A character that is in no table is written as its code point, so that nothing stops pdflatex. Widths are estimates: of
the letters of cmr10 (its file of metrics) at 10 points, without kerning.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from xfcost.ledger.visible import one_line
from xfcost.report.output import chosen, divided

_SPECIAL: Final = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": "$<$", ">": "$>$", "|": "$|$", '"': "''",
}  # fmt: skip
# Characters that are set as mathematics.
_MATH: Final = {
    "α": r"\alpha", "β": r"\beta", "γ": r"\gamma", "δ": r"\delta", "ε": r"\varepsilon", "ζ": r"\zeta", "η": r"\eta",
    "θ": r"\theta", "κ": r"\kappa", "λ": r"\lambda", "μ": r"\mu", "µ": r"\mu", "ν": r"\nu", "ξ": r"\xi", "π": r"\pi",
    "ρ": r"\rho", "σ": r"\sigma", "τ": r"\tau", "φ": r"\varphi", "χ": r"\chi", "ψ": r"\psi", "ω": r"\omega",
    "Γ": r"\Gamma", "Δ": r"\Delta", "Θ": r"\Theta", "Λ": r"\Lambda", "Ξ": r"\Xi", "Π": r"\Pi", "Σ": r"\Sigma",
    "Φ": r"\Phi", "Ψ": r"\Psi", "Ω": r"\Omega", "×": r"\times", "·": r"\cdot", "√": r"\surd", "∛": r"\sqrt[3]{\,}",
    "∜": r"\sqrt[4]{\,}", "±": r"\pm", "−": "-", "≤": r"\leq", "≥": r"\geq", "≠": r"\neq", "≈": r"\approx",
    "∞": r"\infty", "∘": r"\circ", "⊗": r"\otimes", "⊙": r"\odot", "∏": r"\prod", "∑": r"\sum", "∩": r"\cap",
    "→": r"\rightarrow", "←": r"\leftarrow", "⌈": r"\lceil", "⌉": r"\rceil", "⌊": r"\lfloor", "⌋": r"\rfloor",
    "‖": r"\|", "½": r"\frac{1}{2}", "¼": r"\frac{1}{4}", "∈": r"\in", "∂": r"\partial",
    "′": "'", "⟨": r"\langle", "⟩": r"\rangle",
}  # fmt: skip
_SUPER: Final = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ʳ", "0123456789+-()r", strict=True)) | {"ᵀ": r"\top"}
_SUB: Final = dict(zip("₀₁₂₃₄₅₆₇₈₉ₖₐᵢₙ", "0123456789kain", strict=True))
_TEXT: Final = _SPECIAL | {
    "–": "--", "—": "---", "…": r"\ldots{}", "‘": "`", "’": "'", "“": "``", "”": "''", "§": r"\S{}", "\xa0": "~",
    "ß": r"\ss{}", "ø": r"\o{}", "Ø": r"\O{}", "æ": r"\ae{}", "Æ": r"\AE{}", "ł": r"\l{}", "Ł": r"\L{}", "ı": r"\i{}",
}  # fmt: skip
# One character -> how it is set in text.
_SET: Final = (
    {character: f"${formula}$" for character, formula in _MATH.items()}
    | {character: f"$^{{{raised}}}$" for character, raised in _SUPER.items()}
    | {character: f"$_{{{lowered}}}$" for character, lowered in _SUB.items()}
    | _TEXT
)
_ACCENTS: Final = {
    "\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0304": "=", "\u0306": "u", "\u0307": ".",
    "\u0308": '"', "\u030a": "r", "\u030b": "H", "\u030c": "v", "\u0327": "c",
}  # fmt: skip
# No command of a plain document (OT1) sets it: the letter has none.
_OGONEK: Final = "\u0328"
_MATH_SPECIAL: Final = {
    "%": r"\%", "#": r"\#", "&": r"\&", "$": r"\$", "{": r"\{", "}": r"\}", "_": r"\_", "\\": r"\backslash ",
    "^": r"\wedge ", "~": r"\sim ",
}  # fmt: skip
_PARTS: Final = re.compile(
    rf"√[A-Za-z]|_[A-Za-z0-9]+|[A-Za-z]{{2,}}|[{''.join(map(re.escape, _SUPER))}]+|[{''.join(_SUB)}]+|."
)


class RowGroup(NamedTuple):
    """Rows under a heading; cells and heading are LaTeX already."""

    heading: str
    rows: Sequence[Sequence[str]]


def latex_table(
    heads: Sequence[str], right: Sequence[bool], groups: Iterable[RowGroup], total: Sequence[str] = ()
) -> str:
    r"""A `tabular` with the rules of booktabs: headings in italics, the total below a rule.

    With more rows than a page has room for, it is a `longtable`, which repeats its heads on every page. It is no wider
    than the text of a page: columns for which there is no room are left out, unless `--columns` chooses them, text is
    wrapped, and what is still too wide becomes several tables.
    """
    groups, titles, picked = list(groups), list(map(latex, heads)), chosen(heads)
    rows = [titles, *(row for group in groups for row in group.rows), *([total] if total else [])]
    widths = [max(width(row[place]) for row in rows) for place in range(len(heads))]
    found = parts(heads, widths, right, picked)
    tables = ["\n".join(_tabular(part, part.points(widths), right, rows[0], groups, total)) for part in found]
    shown = {place for part in found for place in part.places}
    left_out = [title for place, title in enumerate(titles) if place not in shown]
    long = sum(len(group.rows) for group in groups) > MOST_ROWS
    notes = [rf"% needs \usepackage{{booktabs{',longtable' if long else ''}}}"]
    if left_out and picked is None:
        notes.append(f"% no room for {', '.join(left_out)}: --columns chooses the columns")
    return "\n".join([*notes, "\n\n".join(tables)]) + "\n"


def _tabular(
    part: PagePart,
    points: float,
    right: Sequence[bool],
    titles: Sequence[str],
    groups: Sequence[RowGroup],
    total: Sequence[str],
) -> Iterator[str]:
    headings = [rf"\textit{{{group.heading}}}" if group.heading else "" for group in groups]
    narrow = part.wrapped or any(width(heading) > points for heading in headings)
    end = r"\tabularnewline" if narrow else r"\\"  # behind \raggedright, \\ is another command

    def line(cells: Sequence[str]) -> str:
        texts = (rf"\raggedright {cells[place]}" if place in part.wrapped else cells[place] for place in part.places)
        return f"{' & '.join(texts)} {end}"

    kinds = (
        f"p{{{part.wrapped[place]:.1f}pt}}" if place in part.wrapped else "r" if right[place] else "l"
        for place in part.places
    )
    long = sum(len(group.rows) for group in groups) > MOST_ROWS
    environment = "longtable" if long else "tabular"
    yield rf"\begin{{{environment}}}{{@{{}}{''.join(kinds)}@{{}}}}"
    yield from (r"\toprule", line(titles), r"\midrule", *([r"\endhead"] if long else []))
    for number, (group, heading) in enumerate(zip(groups, headings, strict=True)):
        if number:
            yield r"\addlinespace"
        if heading:
            kind = "l" if width(heading) <= points else rf"p{{{points:.1f}pt}}"
            yield rf"\multicolumn{{{len(part.places)}}}{{@{{}}{kind}@{{}}}}{{{heading}}} {end}"
        yield from map(line, group.rows)
    if total:
        yield from (r"\midrule", line(total))
    yield from (r"\bottomrule", rf"\end{{{environment}}}")


def number(text: str) -> str:
    r"""A number with its unit, a thin space between them: `22.41\,G`."""
    return latex(text).replace(" ", r"\,")


def latex(text: str) -> str:
    r"""`text` in LaTeX, whatever its characters: `QKᵀ` is `QK$^{\top}$`."""
    pieces = re.split("(?<=-)(?=-)", unicodedata.normalize("NFC", one_line(text)))  # two hyphens would be a dash
    return "{}".join("".join(map(_written, piece)) for piece in pieces)


def title(text: str) -> str:
    r"""The title of an operation, its indexed letters as formulas: `1/√d_k` is `1/$\sqrt{d_{k}}$`."""
    parts = re.split(r"(√?\b[A-Za-z]_[A-Za-z]\b)", text)  # every second one is a letter with its index
    return "".join(_indexed(part) if number % 2 else latex(part) for number, part in enumerate(parts))


def _indexed(part: str) -> str:
    letter, index = part[-3], part[-1]
    written = f"{letter}_{{{index}}}"
    return rf"$\sqrt{{{written}}}$" if len(part) > len("d_k") else f"${written}$"


def formula(text: str) -> str:
    r"""An order or a number of tokens as a formula: `O(N·d²)` is `$O(N\cdot d^{2})$`; a dash stays text."""
    if not re.search(r"[A-Za-z0-9]", text):
        return latex(text)
    written = "".join(map(_in_formula, _PARTS.findall(one_line(text)))).strip()
    return f"${written.replace('}_{', '}{}_{')}$"  # two indices on one letter would stop pdflatex


def _in_formula(part: str) -> str:
    """A root of one letter, an index, a word, a run of raised or lowered characters, or any one character."""
    first = part[0]
    if first == "√" and len(part) > 1:
        return rf"\sqrt{{{part[1]}}}"
    if first in _SUPER:
        return f"^{{{''.join(_SUPER[one] for one in part)}}}"
    if first in _SUB or (first == "_" and len(part) > 1):
        return f"_{{{''.join(_SUB.get(one, one) for one in part.removeprefix('_'))}}}"
    if len(part) > 1:
        return rf"\{part} " if part in ("log", "min", "max") else rf"\ \mathrm{{{part}}}"
    if part.isascii():
        return _MATH_SPECIAL.get(part, part)
    return f"{_MATH[part]} " if part in _MATH else rf"\mbox{{{_written(part)}}}"


def _written(character: str) -> str:
    """One character of text."""
    if character in _SET:
        return _SET[character]
    return character if character.isascii() else _accented(character)


def _accented(character: str) -> str:
    r"""`é` -> `\'{e}`; a character that pdflatex may not know, as its code point."""
    base, *marks = list(unicodedata.normalize("NFD", character).replace(_OGONEK, "")) or [""]
    if character != base and base.isascii() and all(mark in _ACCENTS for mark in marks):
        for mark in marks:
            base = rf"\{_ACCENTS[mark]}{{{base}}}"
        return base
    if character in _ACCENTS:  # after a letter with which it makes no character
        return rf"\{_ACCENTS[character]}{{}}"
    return f"[U+{ord(character):04X}]"


# ── how wide cells are, and which columns a page has room for ─────────────────────────────────────────────────────────

# \textwidth of article at 10 points, the narrowest of LaTeX's own classes, less the indent of a paragraph, in points.
PAGE: Final = 330.0
# Rows of a table that a page has room for, with a caption.
MOST_ROWS: Final = 40
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
_ACCENT_COMMANDS: Final = {rf"\{mark}" for mark in "`'^~=.\""}
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
    if sign in _NO_WIDTH or sign in _ACCENT_COMMANDS or (formula and sign == " "):
        return 0.0
    if formula and sign in _OPERATIONS:
        return _OPERATIONS[sign]
    if sign in _COMMANDS:
        return _COMMANDS[sign]
    letter = _WIDTHS.get(" " if sign == "~" else sign, _OTHER)
    return letter * _ITALIC if formula and sign.isalpha() else letter


class PagePart(NamedTuple):
    """Columns of a table that are side by side on a page."""

    places: Sequence[int]
    wrapped: dict[int, float]
    """Place -> points of the columns whose text is wrapped."""

    def points(self, widths: Sequence[float]) -> float:
        """Their width."""
        return _points(self.places, [self.wrapped.get(place, points) for place, points in enumerate(widths)])


def parts(
    heads: Sequence[str], widths: Sequence[float], right: Sequence[bool], chosen: Sequence[int] | None
) -> list[PagePart]:
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
    found = divided(places, narrowest, PAGE, GAP, places[0])
    return [PagePart(some, _wrapped(some, widths, right)) for some in found]


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


def _points(places: Iterable[int], widths: Sequence[float]) -> float:
    """The width of a table, without space at its sides."""
    some = [widths[place] for place in places]
    return sum(some) + GAP * (len(some) - 1)
