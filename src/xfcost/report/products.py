"""Ledger -> how many matrix multiplies a block is: self-attention four, a Transformer's block six."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.text import Text

from xfcost.ledger.ledger import Ledger
from xfcost.ledger.operation import Operation

# Blocks that are told of; those of more kinds would be a list.
_MOST_BLOCKS: Final = 3


def products_texts(ledger: Ledger) -> Iterator[Text]:
    """One line per kind of block: its matrix multiplies in the order they run, sub-layer by sub-layer."""
    blocks = {name: rows for name, rows in ledger.by("block").items() if is_block(rows) and products(rows)}
    if not blocks or len(blocks) > _MOST_BLOCKS:
        return
    for name, rows in blocks.items():
        groups = list(sub_layers(rows))
        total = f"{products(rows)} = " if len(groups) > 1 else ""
        text = Text("matrix multiplies", style="bold")
        where = f" of a block ({name})" if len(blocks) > 1 else " of a block"
        parts = " + ".join(f"{sum(map(products_of, group))} ({titles(group)})" for group in groups)
        text.append(f"{where}: {total}{parts}", style="not bold")
        yield text


def is_block(rows: Sequence[Operation]) -> bool:
    """Do sub-layers stand there, and no embedding layer or head?"""
    return any(row.in_block for row in rows)


def sub_layers(rows: Sequence[Operation]) -> Iterator[tuple[Operation, ...]]:
    """The rows of every sub-layer that multiplies matrices."""
    groups: dict[str, list[Operation]] = {}
    for row in rows:
        if row.macs:
            groups.setdefault(row.component, []).append(row)
    return (tuple(group) for group in groups.values())


def products_of(row: Operation) -> int:
    """A fused kernel is two: QKᵀ and AV."""
    return 2 if row.fused else 1


def products(rows: Sequence[Operation]) -> int:
    """Rows that multiply matrices; a grouped convolution is one."""
    return sum(products_of(row) for row in rows if row.macs)


def titles(rows: Sequence[Operation]) -> str:
    """What they are called."""
    return " · ".join(row.title for row in rows)
