"""The closed forms as plain data, for the page's script: integers as texts, for they may pass 2⁵³."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from xfcost.counting.size_forms import BY_KIND, OWN_OPERATIONS, ROW_QUANTITIES, TOTAL, TOTALS, Piece, SizeForms
from xfcost.formulas.exact_form import LETTER, ExactForms, Form
from xfcost.ledger.grid import near_square, sides_text
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.operation import KINDS
from xfcost.ledger.visible import visible
from xfcost.report.page.content import PageContent, Sizes


def script_data(content: PageContent) -> dict[str, Any]:
    """The N that can be chosen, and of every system its forms; {} where there is no choice."""
    if isinstance(content.sizes, str):
        return {}
    ledgers, names = content.comparison.ledgers, content.comparison.names
    systems = zip(names, ledgers, content.sizes.systems, strict=True)
    return {
        "sizes": list(content.sizes.tokens),
        "labels": [size_label(n, content.sizes) for n in content.sizes.tokens],
        "common": content.sizes.common,
        "systems": [_system(*one) for one in systems],
    }


def size_label(tokens: int, sizes: Sizes) -> str:
    """`784 (28×28)`; `784` where no system takes a grid."""
    grid = near_square(tokens) if any(one.letter == "s" for one in sizes.systems) else None
    return f"{tokens:,}" + ("" if grid is None else f" ({sides_text(grid)})")


def shown_totals(sizes: Sizes) -> list[str]:
    """The totals that are not zero throughout."""
    return [name for name in TOTALS if any(_ever(one.pieces[TOTAL, name]) for one in sizes.systems)]


def _ever(pieces: Sequence[Piece]) -> bool:
    return any(piece.form for piece in pieces)


def _system(name: str, ledger: Ledger, found: SizeForms) -> dict[str, Any]:
    parts = _Parts(found.forms)
    rows = [
        {quantity: parts.pieces(found.pieces.get((row.path, quantity), ())) for quantity in ROW_QUANTITIES}
        for row in ledger.rows
    ]
    totals = [(TOTAL, quantity) for quantity in TOTALS]
    whole = {TOTAL: {key[1]: parts.pieces(found.pieces[key]) for key in (*totals, OWN_OPERATIONS)}}
    whole |= {kind: {name: parts.pieces(found.pieces[kind, name]) for name in BY_KIND} for kind in KINDS}
    forms = {"letters": list(found.letters), "parts": parts.listed(), "rows": rows, "whole": whole}
    return {"name": visible(name)} | forms


class _Parts:
    """The parts that are used, numbered anew from 1; every part comes after those that it is made of."""

    def __init__(self, forms: ExactForms) -> None:
        self._forms = forms
        self._numbers: dict[int, int] = {}
        self._listed: list[list[Any]] = []

    def pieces(self, pieces: Iterable[Piece]) -> list[list[Any]]:
        """[first place, form] each."""
        return [[piece.first, None if piece.form is None else self.form(piece.form)] for piece in pieces]

    def form(self, form: Form) -> list[list[Any]]:
        """[coefficient, [factor, power], …] each."""
        return [[str(each), *([self._number(factor), power] for factor, power in product)] for product, each in form]

    def listed(self) -> list[list[Any]]:
        """[kind, form, form] each."""
        return self._listed

    def _number(self, factor: int) -> int:
        if factor == LETTER:
            return LETTER
        if factor not in self._numbers:
            kind, first, second = self._forms.parts[factor - 1]
            made = [kind, self.form(first), self.form(second)]
            self._listed.append(made)
            self._numbers[factor] = len(self._listed)
        return self._numbers[factor]
