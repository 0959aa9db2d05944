"""One system on the page, as plain values for the templates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from xfcost.counting.size_forms import TOTAL, SizeForms
from xfcost.ledger import units
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.operation import KINDS, Mixing
from xfcost.report.operations import order_cell
from xfcost.report.page.answer import system_lines
from xfcost.report.page.content import PageContent, Sizes
from xfcost.report.page.figures import TOTAL_WORDS, Figure, Figures
from xfcost.report.page.tree import Node, tree
from xfcost.report.style import WORDS, letters_text


class OperationLine(NamedTuple):
    """A line of the table of operations; figures are over all its blocks."""

    title: str
    block: str
    times: int
    kind: Mixing
    kind_word: str
    order: str
    reads: str
    params: Figure
    macs: Figure
    memory: Figure


class KindLine(NamedTuple):
    """A line of the table by mixing kind."""

    kind: Mixing
    word: str
    macs: Figure
    params: Figure


class FormLine(NamedTuple):
    """A closed form in letters, and where it holds."""

    word: str
    text: str
    where: str


class SystemView(NamedTuple):
    """One system on the page."""

    place: int
    name: str
    paper: str
    source: str
    lines: list[str]
    totals: dict[str, Figure]
    kinds: list[KindLine]
    operations: list[OperationLine]
    letters: str
    tree: tuple[Node, ...]
    forms: list[FormLine]
    notes: list[str]
    moved: int
    """Operations that only move data, which the tables leave out."""


def system_view(content: PageContent, place: int) -> SystemView:
    """The view of the system at `place`."""
    comparison = content.comparison
    ledger, figures = comparison.ledgers[place], Figures(comparison.ledgers[place], place)
    operations = list(_operations(ledger, figures))
    sizes = content.sizes
    return SystemView(
        place=place,
        name=comparison.names[place],
        paper=ledger.metadata.paper or "",
        source=ledger.metadata.source,
        lines=system_lines(comparison, place),
        totals={quantity: figures.total(quantity) for quantity in TOTAL_WORDS},
        kinds=list(_kinds(ledger, figures)),
        operations=operations,
        letters=letters_text(row.order for row in ledger.rows),
        tree=tree(ledger, figures),
        forms=[] if isinstance(sizes, str) else list(_forms(sizes, sizes.systems[place])),
        notes=list(ledger.metadata.notes),
        moved=len(ledger.rows) - len(operations),
    )


def _operations(ledger: Ledger, figures: Figures) -> Iterator[OperationLine]:
    for place, row in enumerate(ledger.rows):
        if row.only_moves:
            continue
        yield OperationLine(
            title=row.title,
            block=row.block,
            times=row.times,
            kind=row.mixing,
            kind_word=WORDS[row.mixing],
            order=order_cell(row),
            reads=row.reads or units.DASH,
            params=figures.of_rows("params", [place]),
            macs=figures.of_rows("macs", [place]),
            memory=figures.of_rows("attention_bytes", [place]),
        )


def _kinds(ledger: Ledger, figures: Figures) -> Iterator[KindLine]:
    """All three kinds; operations whose kind is not known where there are any."""
    for kind in KINDS:
        if kind != "unknown" or any(row.mixing == kind for row in ledger.rows):
            yield KindLine(kind, WORDS[kind], figures.of_kind("macs", kind), figures.of_kind("params", kind))


def _forms(sizes: Sizes, found: SizeForms) -> Iterator[FormLine]:
    """The forms of the totals that hold at the page's own N."""
    for quantity, word in TOTAL_WORDS.items():
        text = found.form_text((TOTAL, quantity), sizes.own)
        if text is not None:
            first, last = found.held((TOTAL, quantity), sizes.own)
            where = (
                f"counted and equal at {last - first + 1:,} N from {sizes.tokens[first]:,} to {sizes.tokens[last]:,}"
            )
            yield FormLine(word, text, where)
