"""What one account says of an operation, beside what is counted: a small struct for each.

Reports call these figures by one flat name (`traced_macs`, `kept_bytes`); `FIGURES` says where each stands.
"""

from __future__ import annotations

from typing import Final

import msgspec

from xfcost.ledger.number import Number

# What the trace and the dispatcher measure of a row. The dispatcher sees what ran, and not what a module holds.
MEASURED: Final = ("params", "macs", "flops", "comparisons", "moved", "cached")
RUN: Final = ("macs", "flops", "comparisons", "moved")


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The costs of an operation as the running model has them; None where the account does not measure it."""

    params: int | None = None
    macs: int | None = None
    flops: int | None = None
    comparisons: int | None = None
    moved: int | None = None
    cached: int | None = None


class Cached(msgspec.Struct, frozen=True):
    """What an operation keeps of the past for the tokens to come: keys and values, or a state."""

    elements: Number
    """Of the whole batch."""
    per_token: Number = 0
    """How many of them a further token of a sample adds; 0 where a state is rewritten, or a window is full."""


class WeightsRead(msgspec.Struct, frozen=True):
    """Weights that are read, where they are not all parameters of the row: rows looked up, experts, a shared table."""

    elements: Number
    at_most: Number = None
    """What a batch can ask for at most; where it isn't given, samples share none."""

    def batched(self, batch: int) -> WeightsRead:
        """The same for `batch` samples."""
        read = self.elements * batch
        return WeightsRead(read if self.at_most is None else min(read, self.at_most), self.at_most)


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that an attention core reads from and writes to main memory."""

    plain: int
    """Every matrix kept."""
    tiled: int
    """Tiled for the on-chip memory (FlashAttention)."""


class TrainingFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What a training step says of an operation, beside the MACs of its backward pass."""

    saved_macs: int = 0
    """Of the backward pass, what the first of several blocks saves: it needs no gradient of the model's input."""
    traced_backward_macs: int | None = None
    kept_bytes: int | None = None
    """Activations that autograd saves for it, in all blocks together; what an earlier row saves already isn't here."""


TRACED: Final = tuple(f"traced_{quantity}" for quantity in MEASURED)
DISPATCHED: Final = tuple(f"dispatched_{quantity}" for quantity in RUN)
TRAFFIC: Final = ("plain_traffic_bytes", "tiled_traffic_bytes")
# Of a training step.
LEARNING: Final = ("backward_macs", "traced_backward_macs", "kept_bytes")

# The flat name of a figure -> the account that has it, the figure's name there, and what it is without that account.
FIGURES: Final[dict[str, tuple[str, str, int | None]]] = {
    **{f"traced_{quantity}": ("traced", quantity, None) for quantity in MEASURED},
    **{f"dispatched_{quantity}": ("dispatched", quantity, None) for quantity in RUN},
    "cached": ("cache", "elements", 0),
    "cached_per_token": ("cache", "per_token", 0),
    "read": ("weights_read", "elements", None),
    "plain_traffic_bytes": ("traffic", "plain", None),
    "tiled_traffic_bytes": ("traffic", "tiled", None),
    "backward_saved": ("training", "saved_macs", 0),
    "traced_backward_macs": ("training", "traced_backward_macs", None),
    "kept_bytes": ("training", "kept_bytes", None),
}
