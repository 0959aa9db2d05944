"""The tree of a system: stages, their blocks and operations; of a torch module its modules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from xfcost.ledger.ledger import Ledger
from xfcost.ledger.operation import Operation
from xfcost.report.page.figures import Figure, Figures


class Node(NamedTuple):
    """A stage, a block, a module or an operation."""

    name: str
    times: int
    """How often it stands there; 1 where its operations differ in that."""
    macs: Figure
    params: Figure
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
