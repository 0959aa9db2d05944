"""What a module costs as polynomials in N, recovered from its counts at several N."""

from __future__ import annotations

from typing import Literal

import msgspec


class ClosedForm(msgspec.Struct, frozen=True, kw_only=True):
    """The costs of a module as polynomials in N, and how they grow.

    They meet the counts at all `sizes`, more than determine them. Where padding steps, they are those of every N with
    the `remainder` of this one.
    """

    N: int
    """The N of the ledger; of images their pixels."""
    letter: Literal["N", "P"] = "N"
    """What the forms are in: N, or the pixels P = H·W of square images."""
    macs: str | None = None
    """All MACs: `256·N² + 32768·N`; None where no polynomial fits."""
    flops: str | None = None
    rows: dict[str, str] = {}
    """Path -> the MACs of one block, of every row that has MACs and a polynomial."""
    sizes: tuple[int, ...] = ()
    """The N at which it was counted."""
    period: int = 1
    """Costs step with this period: forms are of N (or √N) with the same remainder."""
    remainder: int = 0
    counted_in: Literal["N", "√N", "√P"] = "N"
    """What the period is of: N, or the side of a square grid or image."""
    others: dict[int, str] = {}
    """The MACs at other remainders, of short periods."""
    growth: dict[str, float | None] = {}
    """`macs`, `attention_bytes`: the exponent in N between N and N·`factor`."""
    refused: str | None = None
    """Why there is none."""
