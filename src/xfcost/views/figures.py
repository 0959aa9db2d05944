"""The figures of a comparison as a table, ratios against the first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from xfcost.comparing.comparison import Comparison
from xfcost.comparing.quantities import QUANTITIES, figure_text
from xfcost.ledger import units
from xfcost.ledger.ledger import Ledger
from xfcost.parts.serving.text import cache_name
from xfcost.report.document import DataTable, TableColumn
from xfcost.views.header import at_least

PAIRS: Final = "score_dot_products_with_extra_tokens"
# Of a module with operations that nothing counts these are lower bounds.
_BOUNDED: Final = ("macs", "macs_per-token", "macs_local", "macs_global", "macs_unknown", "flops")
# A quantity that is listed only if it differs from another.
_ONLY_BESIDE: Final = {
    PAIRS: "score_dot_products",
    "active_params": "params",
}
# Listed only where a system has a recurrence.
_OF_RECURRENCES: Final = ("sequential_steps", "parallel_width")
# Listed only where systems differ in them.
_ONLY_DIFFERENT: Final = ("tokens", "token_pairs")
# A smaller ratio reads better as a fraction.
_SMALL: Final = 0.01
# Listed where systems have the same too: that they have is an answer.
_ALWAYS: Final = ("params", "macs", "flops")
_ONLY_NONZERO: Final = ("macs_per-token", "macs_local", "macs_global")


def figure_lines(comparison: Comparison) -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """Quantity, its words, and per system its figure and the ratio to the first system's."""
    for quantity, declared in QUANTITIES.items():
        if not declared.line:
            continue
        values = [comparison.figures[name].get(quantity) for name in comparison.names]
        if all(value is None for value in values) or (quantity in _ONLY_NONZERO and not any(values)):
            continue
        if quantity in _OF_RECURRENCES and not any(map(recurs, comparison.ledgers)):
            continue
        if quantity in _ONLY_DIFFERENT and len(set(values)) == 1:
            continue
        if not differs(comparison, quantity):
            continue
        ratios = [None, *(_ratio(comparison, name, quantity) for name in comparison.names[1:])]
        texts = [
            f"{bounded(ledger, quantity) if value else ''}{figure_text(quantity, value)}"
            for value, ledger in zip(values, comparison.ledgers, strict=True)
        ]
        plain = _ONLY_BESIDE.get(quantity)
        alone = plain and all(comparison.figures[name].get(plain) is None for name in comparison.names)
        words = declared.line
        told = f"{QUANTITIES[plain].name}, {words.strip()}" if plain and alone else words
        told = cache_name(*(ledger.cache for ledger in comparison.ledgers)) if quantity == "cache_bytes" else told
        yield quantity, told, list(zip(texts, map(_against, ratios), strict=True))


def differs(comparison: Comparison, quantity: str) -> bool:
    """Does it say more than the quantity that it is listed beside, if it is listed beside one?"""
    plain = _ONLY_BESIDE.get(quantity)
    return plain is None or any(one.get(quantity) != one[plain] for one in comparison.figures.values())


def bounded(ledger: Ledger, quantity: str) -> str:
    """`at least ` before a figure that is a lower bound."""
    return at_least(ledger) if quantity in _BOUNDED else ""


def _ratio(comparison: Comparison, name: str, quantity: str) -> float | None:
    """Against the first system; of times whose difference is not seen, or that are noisy, none."""
    if quantity == "seconds_not_attributed":
        return None
    found = comparison.time_ratios.get(name)
    unseen = found is not None and quantity == "seconds" and not found.seen  # the times of kinds have no interval
    if found is not None and quantity.startswith("seconds") and (found.noisy or unseen):
        return None
    return comparison.ratios[name].get(quantity)


def recurs(ledger: Ledger) -> bool:
    """Does a token wait for the one before it, as in a recurrence?"""
    return ledger.metadata.sequential_steps > ledger.metadata.mixers


def _against(ratio: float | None) -> str:
    """`(0.25×)`, `(1.283×)`, `(hardly more)`, `(same)`: a figure relative to the first system's."""
    if ratio is None or ratio <= 0:
        return ""
    if ratio == 1:
        return "(same)"
    if (text := units.ratio(ratio)) == "1×":
        return f"(hardly {'less' if ratio < 1 else 'more'})"
    return f"({text})" if ratio > _SMALL else f"(1/{units.ratio(1 / ratio)[:-1]})"


def figures_table(comparison: Comparison, *, verbose: bool) -> DataTable:
    """Figures side by side, ratios next to them, or below them on a narrow screen.

    Rows that differ and those of parameters, MACs and FLOPs; with `verbose` all.
    """
    every = list(figure_lines(comparison))
    figures = comparison.figures.values()
    shown = {row[0] for row in every if verbose or row[0] in _ALWAYS or len({one.get(row[0]) for one in figures}) > 1}
    whole = ""
    for quantity, words, _ in every:
        if not words.startswith(" "):
            whole = quantity
        elif quantity in shown:
            shown.add(whole)  # a part stands below what it is a part of
    rows = [row for row in every if row[0] in shown] or every
    styles = [QUANTITIES[quantity].style for quantity, _, _ in rows]
    widths = [
        tuple(max(len(cells[system][part]) for _, _, cells in rows) for part in (0, 1))
        for system in range(len(comparison.names))
    ]
    beside = [
        [words, *(f"{one:>{wide}} {ratio}".rstrip() for (one, ratio), (wide, _) in zip(cells, widths, strict=True))]
        for _, words, cells in rows
    ]
    below = [[words, *(f"{one}\n{ratio}".rstrip() for one, ratio in cells)] for _, words, cells in rows]
    names = zip(comparison.names, widths, strict=True)
    columns = [TableColumn("", fold=20), *(TableColumn(name.rjust(wide), fold_head=12) for name, (wide, _) in names)]
    stacked = [TableColumn("", fold=20), *(TableColumn(name, right=True, fold_head=12) for name in comparison.names)]
    return DataTable(columns, beside, styles, narrow=[DataTable(stacked, below, styles)])
