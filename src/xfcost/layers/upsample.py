"""The way back from a pooled sequence: every token repeated, and an earlier stage's output added."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec

from xfcost.formulas.component import ComponentError, Grid, Letter, Number, Operation, Place, Side, Sources
from xfcost.formulas.layer import Enter
from xfcost.formulas.rows import elementwise, move
from xfcost.formulas.sources import itself
from xfcost.formulas.tensors import copied
from xfcost.ledger.tensors import BEFORE, MEMORY


class Upsample(Enter, frozen=True, kw_only=True, tag="upsample"):
    """Tokens repeated `factor` times in place, cut to the length N of an earlier stage, whose output is added.

    The first step of the Funnel Transformer's decoder (Dai et al. 2020, §2.3), from P to N tokens. A separate [CLS] is
    not repeated, and zeros fill positions that the pooling dropped. P·factor·d and N·d elements are written, N·d
    are added.
    """

    factor: Annotated[Side, Letter(None)]
    """How many times each token is repeated."""
    skip: Annotated[int, msgspec.Meta(ge=1, le=2**16)] = 1
    """Number of the earlier stage whose output is added; 1 is the first."""
    separate_cls: bool = True
    """Whether the first token is [CLS], which is not repeated."""

    @property
    def reads_stage(self) -> int | None:
        return self.skip

    def check(self, place: Place) -> None:
        if place.memory is None:
            raise ComponentError("skip", f"{self.skip} is not an earlier stage")
        if (len(place.grid.sides), place.grid.special) != (1, 0):
            raise ComponentError(
                "kind", f"'upsample' needs a sequence without special tokens, got {place.grid.shape_text()} tokens"
            )
        if place.memory_dim != place.dim:
            raise ComponentError("skip", f"stage {self.skip} is {place.memory_dim} wide and this one {place.dim}")
        if place.grid.total * self.factor < place.memory.total:
            raise ComponentError(
                "factor",
                f"{place.grid.total} tokens {self.factor} times over are fewer than stage {self.skip}'s "
                f"{place.memory.total}; expected at least {-(-place.memory.total // place.grid.total)}",
            )

    def out(self, place: Place) -> tuple[Grid, Number]:
        return place.memory or place.grid, place.dim

    def sources(self, place: Place) -> Sources:
        first, pooled = 1 if self.separate_cls else 0, place.grid.total

        def repeated(token: int) -> Sequence[int]:
            read = token if token < first else first + (token - first) // self.factor
            return (read,) if read < pooled else ()

        return Sources(repeated, memory=itself)

    def operations(self, place: Place) -> Iterator[Operation]:
        skip_tokens, d = (place.memory or place.grid).total, place.dim
        separate = 1 if self.separate_cls else 0
        repeated = (place.grid.total - separate) * self.factor * d
        moved = repeated + separate * skip_tokens * d
        tensors = copied((place.grid.total, d), (skip_tokens, d))
        yield move("repeat", f"Repeat tokens {self.factor} times", moved, tensors=tensors)
        yield elementwise("add", f"Add stage {self.skip}", "add", skip_tokens * d, of=(BEFORE, MEMORY))
