"""How many matrix multiplies a block is, sub-layer by sub-layer: self-attention four, a transformer's block six."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from xfcost.ledger.ledger import Ledger
from xfcost.ledger.operation import Operation


class SubLayerMultiplies(msgspec.Struct, frozen=True):
    """The matrix multiplies of one sub-layer."""

    number: int
    titles: tuple[str, ...]


class BlockMultiplies(msgspec.Struct, frozen=True):
    """The matrix multiplies of one block; sub-layers that multiply no matrices are left out."""

    block: str
    sublayers: tuple[SubLayerMultiplies, ...]

    @property
    def number(self) -> int:
        """Those of all its sub-layers."""
        return sum(sublayer.number for sublayer in self.sublayers)


def matrix_multiplies(ledger: Ledger) -> Iterator[BlockMultiplies]:
    """Every kind of block that multiplies matrices, in the order of the rows; no stem and no head."""
    for name, rows in ledger.by("block").items():
        groups: dict[str, list[Operation]] = {}
        for row in rows:
            if row.macs and row.in_block:
                groups.setdefault(row.component, []).append(row)
        if groups:
            # a grouped convolution is one; a fused kernel is two, QKᵀ and AV
            counted = (
                SubLayerMultiplies(sum(2 if row.fused else 1 for row in several), tuple(row.title for row in several))
                for several in groups.values()
            )
            yield BlockMultiplies(name, tuple(counted))
