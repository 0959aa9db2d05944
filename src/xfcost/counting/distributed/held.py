"""What one device of a tensor-parallel group holds of blocks and layers: parameters, and saved activations.

Tensor parallelism (Shoeybi et al. 2019) divides linear maps, attention heads and the vocabulary by t. What stands
outside these, norms and the inputs of a sub-layer's first map, every device holds whole, unless sequence parallelism
divides tokens there (Korthikanti et al. 2022, §4.2.2). A mask that all heads share every device holds whole too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

from xfcost.ledger.distributed import Mesh
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.operation import Operation
from xfcost.ledger.tensors import width_of
from xfcost.spec.architecture import Architecture, Block, Part


class Held(NamedTuple):
    """Of a block once, or of a layer, on one device."""

    params: Fraction
    saved: Fraction
    """Bytes saved for the backward pass of one micro-batch."""
    matrices: Fraction
    """Those of `saved` that are attention matrices and their masks, which selective recomputation does not save."""
    inputs: Fraction = Fraction(0)
    """Bytes of a block's input, all that full recomputation saves."""


class Holdings:
    """The rows of a ledger by component, and what a device holds of them."""

    def __init__(self, ledger: Ledger, architecture: Architecture, mesh: Mesh) -> None:
        self.mesh, self.element, self.batch = mesh, ledger.bytes_per_element, ledger.metadata.batch
        self.rows: dict[str, list[Operation]] = defaultdict(list)
        for row in ledger.rows:
            self.rows[row.component].append(row)
        self.tables = {row.shared: row.params for row in self.rows.get("shared", ()) if row.shared}
        self.vocabulary = {
            labelled.part.path
            for labelled in architecture.parts()
            if labelled.part.component.__struct_config__.tag == "token" or labelled.part is architecture.head
        }

    def block(self, block: Block) -> Held:
        """Of `block` once."""
        rows = [row for part in block.parts for row in self.rows.get(part.path, ())]
        held = self._held(rows, block.times)
        if not block.parts:
            return held
        place = block.parts[0].place
        inputs = Fraction(place.grid.total * place.dim * self.batch * self.element)
        return held._replace(inputs=inputs / self.mesh.tensor if self.mesh.sequence_parallel else inputs)

    def layer(self, part: Part) -> Held:
        """Of an embedding, a stage's entry or exit, or the head."""
        return self._held(self.rows.get(part.path, ()), 1)

    def shared_tables(self, layers: Iterable[Part], blocks: Iterable[Block]) -> Fraction:
        """Parameters of the shared tables that any of them uses: each pipeline stage has a copy."""
        parts = [*layers, *(part for block in blocks for part in block.parts)]
        used = {name for part in parts for name in part.component.tables(part.place)}
        return sum((Fraction(self.tables[name], self.mesh.tensor) for name in used), Fraction(0))

    def _held(self, rows: Sequence[Operation], times: int) -> Held:
        params = saved = matrices = Fraction(0)
        first = _first_maps(rows)
        cores = {row.component for row in rows if row.matrix is not None and row.in_block and not row.fused}
        for row in rows:
            params += Fraction(row.params * row.times, times * (self.mesh.tensor if self._divided(row) else 1))
            whole = row.role is not None or not row.in_block or id(row) in first
            share = 1 if whole and not (self.mesh.sequence_parallel and row.in_block) else self.mesh.tensor
            kept = row.figure("kept_bytes") or 0
            masks = min(self._masks(row) * row.times, kept)
            saved += Fraction(kept - masks, times * share) + Fraction(masks, times)
            if row.component in cores:
                matrices += Fraction(row.matrix_kept * self.element * row.times, times * self.mesh.tensor)
                matrices += Fraction(masks, times)
        return Held(params, saved, matrices)

    def _masks(self, row: Operation) -> int:
        """Bytes of the masks that one block's `row` makes and saves: the same for all samples, and for all heads."""
        made = row.tensors.makes if row.tensors is not None else ()
        return sum(one.elements * width_of(one.type, self.element) for one in made if one.once and one.type == "bool")

    def _divided(self, row: Operation) -> bool:
        """Are its parameters divided by t?"""
        if row.in_block:
            return row.macs > 0
        return row.component in self.vocabulary and row.role is None and (row.macs > 0 or row.weights_read is not None)


def _first_maps(rows: Sequence[Operation]) -> set[int]:
    """The rows that save the input of their sub-layer: the first with parameters behind its norm."""
    first: dict[str, int] = {}
    for row in rows:
        if row.role is None and (row.params or row.shared):
            first.setdefault(row.component, id(row))
    return set(first.values())
