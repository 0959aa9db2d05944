"""Compressive attention: positions evicted from Transformer-XL's memory are compressed into a second memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec

from xfcost.formulas.arithmetic import lesser
from xfcost.formulas.component import Length, Letter, Number, Operation, Place
from xfcost.formulas.rows import elementwise, linear, maximum, with_gradient_operands
from xfcost.formulas.tensors import NOTHING
from xfcost.ledger.tensors import OUTPUT, Saved, Strided, Tensor, Tensors
from xfcost.mechanisms.relative import Relative


class Compressive(Relative, frozen=True, kw_only=True, tag="compressive"):
    """Attention over a compressed memory, a memory and the segment (Compressive Transformer, Rae et al. 2020, §3).

    n tokens of this segment, n_m positions of the memory and n_cm of the compressed memory before them: m = n_m + n_cm
    positions in all, over which attention goes as in Transformer-XL. A segment drives the n oldest positions out of the
    memory; every c of them are compressed to one, ⌊n/c⌋ in all, and as many of the oldest compressed ones are dropped.

        compress (conv)  ⌊n/c⌋·c·d² MACs, c·d² + d parameters: a convolution of kernel and stride c
        compress (mean)  ⌊n/c⌋·c·d elements
        compress (max)   ⌊n/c⌋·c·d comparisons

    and `relative`'s rows. The paper compresses at a segment's end what the next one reads; here the next one does at
    its beginning, which gives the same numbers. The attention-reconstruction loss (§3.2) is of training alone.
    """

    compressed_memory: Annotated[Length, Letter("m")]
    """Positions n_cm of the compressed memory."""
    compression: Annotated[int, msgspec.Meta(ge=1, le=2**20), Letter("c")] = 4
    """Compression rate c: positions of the memory per compressed one."""
    function: Literal["conv", "mean", "max"] = "conv"
    """How positions are compressed: a convolution, or the mean or maximum of each window."""

    def label(self) -> str:
        return "Causal compressive attention" if self.causal else "Compressive attention"

    @property
    def past(self) -> Number:
        return self.memory + self.compressed_memory

    def compressed(self, place: Place) -> Number:
        """⌊n/c⌋, the positions that a segment adds to the compressed memory."""
        return place.grid.total // self.compression

    def learned_past(self, place: Place) -> bool:
        return self.function == "conv" and self.compressed(place) > 0

    def memory_rows(self, place: Place) -> Iterator[Operation]:
        made, c, d = self.compressed(place), self.compression, place.dim
        title = f"Compress evicted memories ({self.function})"
        mixing: dict[str, Any] = {"mixing": "local", "reads": "c", "reads_tokens": c, "tensors": self._made(place)}
        if self.function == "conv":
            # what was evicted is of another segment, and no gradient goes back there
            yield msgspec.structs.replace(
                with_gradient_operands(linear("compress", title, made, c * d, d), 1), **mixing
            )
        elif self.function == "mean":
            yield elementwise("compress", title, "mean", made * c * d, **mixing)
        else:
            yield maximum("compress", title, made * c * d, **mixing, content_dependent=True)
        yield from super().memory_rows(place)

    def _made(self, place: Place) -> Tensors:
        """What was evicted is a buffer, the same for all samples; the convolution saves a copy for each."""
        n, made, c, d = place.grid.total, self.compressed(place), self.compression, place.dim
        if not made:
            return NOTHING
        saves = (
            (Saved("evicted", copied=Strided((made, c, d), 1, ((made, 0, 1),), repeated=True)),)
            if self.function == "conv"
            else ()
        )
        return Tensors((Tensor("evicted", (n, d), held=True),), (Tensor(OUTPUT, (made, d)),), saves)

    def remembered(self, place: Place) -> tuple[Tensor, ...]:
        made, slots, d = self.compressed(place), self.compressed_memory, place.dim
        kept = [Tensor("compressed", (slots - made, d), held=True)] if made < slots else []
        if made:
            kept += [Tensor("compress", (lesser(made, slots), d))]
        return (*kept, Tensor("memory", (self.memory, d), held=True))

    def notes(self, place: Place) -> Iterator[str]:
        n, c = place.grid.total, self.compression
        yield (
            f"costs are of one segment: its {n} tokens attend over themselves, {self.memory} positions of the memory "
            f"and {self.compressed_memory} of the compressed memory, which a long text has filled; training's "
            "reconstruction loss is not counted"
        )
        if n < c:
            yield f"a segment of {n} evicts fewer positions than the {c} that make a compressed one: nothing is kept"
        elif n % c:
            yield f"{n} evicted positions make {n // c} compressed ones of {c} each; the other {n % c} are dropped"
