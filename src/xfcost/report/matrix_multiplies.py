"""The line that says how many matrix multiplies a block is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.text import Text

from xfcost.ledger.ledger import Ledger
from xfcost.ledger.matrix_multiplies import matrix_multiplies

# Kinds of blocks that are listed; more of them would fill the screen.
_MOST_BLOCKS: Final = 3


def matrix_multiply_texts(ledger: Ledger) -> Iterator[Text]:
    """One line per kind of block: its matrix multiplies in the order they run, sub-layer by sub-layer."""
    blocks = list(matrix_multiplies(ledger))
    if len(blocks) > _MOST_BLOCKS:
        return
    for block in blocks:
        total = f"{block.number} = " if len(block.sublayers) > 1 else ""
        name = f" ({block.block})" if len(blocks) > 1 else ""
        parts = " + ".join(f"{one.number} ({' · '.join(one.titles)})" for one in block.sublayers)
        yield Text.assemble(("matrix multiplies", "bold"), f" of a block{name}: {total}{parts}")
