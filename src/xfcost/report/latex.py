"""Tables of LaTeX: booktabs, numbers to the right, characters that pdflatex sets in any document.

A character that is in no table is written as its code point, so that nothing stops pdflatex.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap
from typing import Final, NamedTuple

from xfcost.ledger.visible import one_line
from xfcost.report.output import divided

# Characters of a line of a comment.
_COMMENT: Final = 80
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


# Rows of a table that a page has room for, with a caption; and columns.
MOST_ROWS: Final = 40
MOST_COLUMNS: Final = 6
# Headings of columns that are left out where there are more, the most wanted first; `--columns` shows them.
_SECONDARY: Final = (
    "backward MACs", "mixing", "params", "share", "FLOPs", "reads", "traced MACs", "projections", "otherwise",
    "made of", "input", "blocks", "rows", "‖X‖", "cos Δ,X", "cos Δ,Δ", "link", "fp8", "int8",
)  # fmt: skip
# Characters of a cell of text that is wrapped.
_LONG_TEXT: Final = 60


def latex_table(
    heads: Sequence[str],
    right: Sequence[bool],
    groups: Iterable[RowGroup],
    total: Sequence[str] = (),
    picked: Sequence[int] | None = None,
    keys: Sequence[str] = (),
) -> str:
    r"""A `tabular` with the rules of booktabs: headings in italics, the total below a rule.

    With more rows than a page has room for, it is a `longtable`, which repeats its heads on every page. Of more than
    `MOST_COLUMNS` columns the secondary ones are left out, unless `--columns` chooses them (`picked`: their places);
    still more are divided into several tables, each with the column that names the rows. A comment lists what is left
    out, by the `keys` that `--columns` takes: those of the columns, then those of others that a choice adds.
    """
    groups, titles = list(groups), list(map(latex, heads))
    places = _usual_columns(heads) if picked is None else picked
    found = divided(places, [1] * len(heads), MOST_COLUMNS, 0, places[0])
    tables = ["\n".join(_tabular(some, right, titles, groups, total)) for some in found]
    left_out = [key for place, key in enumerate(keys or heads) if place not in places]
    long = sum(len(group.rows) for group in groups) > MOST_ROWS
    notes = [rf"% needs \usepackage{{booktabs{',longtable' if long else ''}}}"]
    if left_out and picked is None:
        keyed = ", ".join(key if key.isascii() else latex(key) for key in left_out)
        more = f"more columns, with --columns: {keyed}"
        notes += wrap(more, _COMMENT, initial_indent="% ", subsequent_indent="%   ", break_on_hyphens=False)
    return "\n".join([*notes, "\n\n".join(tables)]) + "\n"


def _usual_columns(heads: Sequence[str]) -> list[int]:
    """The places of the primary columns, and of as many secondary ones as there is room for."""
    primary = [place for place, head in enumerate(heads) if head not in _SECONDARY]
    secondary = [heads.index(head) for head in _SECONDARY if head in heads]
    return sorted([*primary, *secondary[: max(MOST_COLUMNS - len(primary), 0)]])


def _tabular(
    places: Sequence[int],
    right: Sequence[bool],
    titles: Sequence[str],
    groups: Sequence[RowGroup],
    total: Sequence[str],
) -> Iterator[str]:
    def line(cells: Sequence[str]) -> str:
        return rf"{' & '.join(cells[place] for place in places)} \\"

    long = sum(len(group.rows) for group in groups) > MOST_ROWS
    environment = "longtable" if long else "tabular"
    longest = [
        max(len(row[place]) for row in (titles, *(row for group in groups for row in group.rows))) for place in places
    ]
    kinds = (
        "r" if right[place] else r"p{0.4\linewidth}" if length > _LONG_TEXT else "l"
        for place, length in zip(places, longest, strict=True)
    )
    yield rf"\begin{{{environment}}}{{@{{}}{''.join(kinds)}@{{}}}}"
    yield from (r"\toprule", line(titles), r"\midrule", *([r"\endhead"] if long else []))
    for number, group in enumerate(groups):
        if number:
            yield r"\addlinespace"
        if group.heading:
            yield rf"\multicolumn{{{len(places)}}}{{@{{}}l@{{}}}}{{\textit{{{group.heading}}}}} \\"
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
