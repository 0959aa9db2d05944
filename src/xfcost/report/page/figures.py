"""Figures of the page: a text, the exact value, and what the script sums where the reader chooses another N."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

from xfcost.counting.size_forms import TOTAL, row_figures
from xfcost.counting.system import GROWING
from xfcost.ledger import units
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.operation import Mixing
from xfcost.report import figures

Quantity = Literal["params", "macs", "attention_bytes", "mixing_macs", "cache_bytes"]


# The quantities of a whole system, with their words.
TOTAL_WORDS: Final[dict[Quantity, str]] = {
    "params": "parameters",
    "macs": "MACs",
    "mixing_macs": "mixing MACs",
    "attention_bytes": "attention memory",
    "cache_bytes": "KV cache and state",
}


class Figure(NamedTuple):
    """A quantity of a system: of the whole, of a mixing kind, or summed over some rows."""

    text: str
    value: int | None
    quantity: Quantity
    system: int
    """The system's place."""
    whole: str = ""
    """`total`, or the mixing kind."""
    rows: str = ""
    """The places of the rows, `0 3 7`."""
    share: str = ""
    """Of the system's MACs; empty of other quantities."""


class Figures:
    """The figures of one system."""

    def __init__(self, ledger: Ledger, place: int) -> None:
        self._ledger, self._place = ledger, place
        self._rows = [row_figures(row, ledger.bytes_per_element) for row in ledger.rows]
        self._macs = ledger.total("macs") or 0

    def of_rows(self, quantity: Literal["params", "macs", "attention_bytes"], rows: Iterable[int]) -> Figure:
        """`quantity` over the rows at these places."""
        places = list(rows)
        value = sum(self._rows[place][quantity] for place in places)
        return self._figure(quantity, value)._replace(rows=" ".join(map(str, places)))

    def of_kind(self, quantity: Literal["params", "macs"], kind: Mixing) -> Figure:
        """`quantity` of all operations of a mixing kind."""
        value = self._ledger.total(quantity, lambda row: row.mixing == kind) or 0
        return self._figure(quantity, value)._replace(whole=kind)

    def total(self, quantity: Quantity) -> Figure:
        """`quantity` of the whole."""
        value = self._ledger.total("params") or 0 if quantity == "params" else GROWING[quantity](self._ledger)
        return self._figure(quantity, value)._replace(whole=TOTAL)

    def _figure(self, quantity: Quantity, value: int | None) -> Figure:
        share = units.percent(value or 0, self._macs) if quantity == "macs" else ""
        return Figure(figure_text(quantity, value), value, quantity, self._place, share=share)


def figure_text(quantity: str, value: int | None) -> str:
    """`22.41 G`, `112.5 MiB`, `0`, of bytes too; a dash where there is none."""
    return "0" if value == 0 else figures.figure_text(quantity, value)
