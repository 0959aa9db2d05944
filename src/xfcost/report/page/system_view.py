"""One system on the page, as plain values for the templates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from xfcost.counting.size_forms import TOTAL, SizeForms, row_figures
from xfcost.counting.system import GROWING
from xfcost.ledger import units
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.operation import KINDS, Mixing, Operation
from xfcost.report import compare
from xfcost.report.page.answer import TOTAL_WORDS, Quantity, system_lines
from xfcost.report.page.content import PageContent, Sizes
from xfcost.report.style import WORDS, letters_text
from xfcost.report.table import order_cell


class OperationLine(NamedTuple):
    """A line of the table of operations; figures are over all its blocks."""

    title: str
    block: str
    times: int
    kind: Mixing
    kind_word: str
    order: str
    reads: str
    params: PageFigure
    macs: PageFigure
    memory: PageFigure


class KindLine(NamedTuple):
    """A line of the table by mixing kind."""

    kind: Mixing
    word: str
    macs: PageFigure
    params: PageFigure


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
    totals: dict[str, PageFigure]
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


class PageFigure(NamedTuple):
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

    def of_rows(self, quantity: Literal["params", "macs", "attention_bytes"], rows: Iterable[int]) -> PageFigure:
        """`quantity` over the rows at these places."""
        places = list(rows)
        value = sum(self._rows[place][quantity] for place in places)
        return self._figure(quantity, value)._replace(rows=" ".join(map(str, places)))

    def of_kind(self, quantity: Literal["params", "macs"], kind: Mixing) -> PageFigure:
        """`quantity` of all operations of a mixing kind."""
        value = self._ledger.total(quantity, lambda row: row.mixing == kind) or 0
        return self._figure(quantity, value)._replace(whole=kind)

    def total(self, quantity: Quantity) -> PageFigure:
        """`quantity` of the whole."""
        value = self._ledger.total("params") or 0 if quantity == "params" else GROWING[quantity](self._ledger)
        return self._figure(quantity, value)._replace(whole=TOTAL)

    def _figure(self, quantity: Quantity, value: int | None) -> PageFigure:
        share = units.percent(value or 0, self._macs) if quantity == "macs" else ""
        return PageFigure(figure_text(quantity, value), value, quantity, self._place, share=share)


def figure_text(quantity: str, value: int | None) -> str:
    """`22.41 G`, `112.5 MiB`, `0`, of bytes too; a dash where there is none."""
    return "0" if value == 0 else compare.figure_text(quantity, value)


class Node(NamedTuple):
    """A stage, a block, a module or an operation."""

    name: str
    times: int
    """How often it stands there; 1 where its operations differ in that."""
    macs: PageFigure
    params: PageFigure
    inside: tuple[Node, ...]
    kind: str = ""
    """The mixing kind, of an operation."""


def tree(ledger: Ledger, figures: Figures) -> tuple[Node, ...]:
    """The nodes below the whole system."""
    places = [(tuple(_parents(row, ledger)), place) for place, row in enumerate(ledger.rows) if not row.only_moves]
    return tuple(_nodes(places, 0, ledger.rows, figures))


def _parents(row: Operation, ledger: Ledger) -> Iterator[str]:
    """The names above an operation, from the outermost."""
    if ledger.module is not None:
        yield from (row.component or ledger.metadata.name).split(".")
        return
    yield row.stage
    if row.block != row.stage:
        yield row.block.removeprefix(f"{row.stage} · ")


def _nodes(
    places: Sequence[tuple[tuple[str, ...], int]], depth: int, rows: Sequence[Operation], figures: Figures
) -> Iterator[Node]:
    """Those at one depth, in order of first appearance; operations where no name is left."""
    groups: dict[str, list[tuple[tuple[str, ...], int]]] = {}
    for parents, place in places:
        if len(parents) > depth:
            groups.setdefault(parents[depth], []).append((parents, place))
            continue
        row = rows[place]
        macs, params = figures.of_rows("macs", [place]), figures.of_rows("params", [place])
        yield Node(row.title, 1, macs, params, (), row.mixing)
    for name, inside in groups.items():
        own = [place for _, place in inside]
        repeated = {rows[place].times for place in own}
        times = repeated.pop() if len(repeated) == 1 else 1
        macs, params = figures.of_rows("macs", own), figures.of_rows("params", own)
        yield Node(name, times, macs, params, tuple(_nodes(inside, depth + 1, rows, figures)))
