"""Figures of an operation besides its counted costs: a small struct for each account (traced, cached, trained, …).

Reports use one flat name per figure (`traced_macs`, `kept_bytes`); `FIGURES` maps it to its struct and field.
"""

from __future__ import annotations

from typing import Final

import msgspec

from xfcost.ledger.units import Number

# Quantities of an operation as it runs, by which the dispatcher sees it; and of the trace, which has parameters too.
RUN: Final = ("macs", "flops", "comparisons", "moved")
MEASURED: Final = ("params", *RUN, "cached")


class AccountFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The costs of an operation in the running model; None where the account does not measure them."""

    params: int | None = None
    macs: int | None = None
    flops: int | None = None
    comparisons: int | None = None
    moved: int | None = None
    cached: int | None = None


class Cached(msgspec.Struct, frozen=True):
    """The part of the KV cache, or of the recurrent state, that an operation writes."""

    elements: Number
    """Elements, of the whole batch."""
    per_token: Number = 0
    """Elements that each further token of a sample adds; 0 of a recurrent state or a full window."""
    recurrent: bool = False
    """Is it a recurrent state, or the last inputs of a convolution, and not keys and values of tokens?"""
    cross_attention: bool = False
    """Is it of an encoder's tokens, which cross-attention reads?"""
    tokens: Number = 0
    """Tokens of a sample whose keys and values it has; 0 of a recurrent state."""


class WeightsRead(msgspec.Struct, frozen=True):
    """Weights that an operation reads, where these are not all its parameters: table rows, experts, shared tables."""

    elements: Number
    at_most: Number = None
    """The most that a batch can read; None where samples share no weights."""
    routed: Number = None
    """Of experts, the tokens that choose among them; `elements` is then the most that they can choose."""

    def batched(self, batch: Number) -> WeightsRead:
        """The weights that `batch` samples read."""
        read = self.elements * batch
        routed = None if self.routed is None else self.routed * batch
        return WeightsRead(read if self.at_most is None else min(read, self.at_most), self.at_most, routed)


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that an attention core reads from and writes to main memory."""

    plain: int
    """With every matrix in main memory."""
    tiled: int
    """Tiled for the on-chip memory (FlashAttention)."""


class TrainingFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of an operation in a training step, in addition to the MACs of its backward pass."""

    saved_macs: int = 0
    """Backward MACs that the first of several blocks save: the model's input needs no gradient, nor what is frozen."""
    recomputed_macs: int = 0
    """The backward MACs of all its blocks that run its forward again, as checkpoints do."""
    traced_backward_macs: int | None = None
    kept_bytes: int | None = None
    """Saved activations of all its blocks; those that an earlier row saved already are not counted again."""
    kept_masks: int = 0
    """Those of them in closed form that are masks, the same for all samples and heads."""
    kept_inputs: int = 0
    """Those of them in closed form that are the inputs of its blocks."""


TRACED: Final = tuple(f"traced_{quantity}" for quantity in MEASURED)
DISPATCHED: Final = tuple(f"dispatched_{quantity}" for quantity in RUN)
# How an operation of a module ran.
RAN: Final = ("aten", "input_shapes", "output_shapes", "calls", "uncounted", "computed_tokens", "kept_tokens")
TRAFFIC: Final = ("plain_traffic_bytes", "tiled_traffic_bytes")
# Figures of a training step.
LEARNING: Final = ("backward_macs", "traced_backward_macs", "kept_bytes")

# Flat name of a figure -> (field of the row, field of its struct, value without the struct).
FIGURES: Final[dict[str, tuple[str, str, int | None]]] = {
    **{f"traced_{quantity}": ("traced", quantity, None) for quantity in MEASURED},
    **{f"dispatched_{quantity}": ("dispatched", quantity, None) for quantity in RUN},
    **{name: ("ran", name, None) for name in RAN},
    "cached": ("cache", "elements", 0),
    "cached_per_token": ("cache", "per_token", 0),
    "read": ("weights_read", "elements", None),
    "plain_traffic_bytes": ("traffic", "plain", None),
    "tiled_traffic_bytes": ("traffic", "tiled", None),
    "backward_saved": ("training", "saved_macs", 0),
    "recomputed_macs": ("training", "recomputed_macs", 0),
    "traced_backward_macs": ("training", "traced_backward_macs", None),
    "kept_bytes": ("training", "kept_bytes", None),
}
