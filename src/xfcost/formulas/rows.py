"""Facts of rows that many mechanisms state."""

from __future__ import annotations

from typing import Any

import msgspec

from xfcost.ledger.accounts import WeightsRead
from xfcost.ledger.operation import Operation
from xfcost.ledger.units import Number


def letter_power(letter: str, rank: int) -> str:
    """`W`, `W²`, `W³`: the tokens of a window or kernel on a grid of `rank` axes, in letters."""
    return letter + {1: "", 2: "²", 3: "³"}.get(rank, f"^{rank}")


def global_mixing(tokens: Number) -> dict[str, Any]:
    """Attributes of a globally mixing, content-dependent row."""
    return {"mixing": "global", "reads": "N", "reads_tokens": tokens, "content_dependent": True}


def static_weights(positions: dict[str, Any]) -> dict[str, Any]:
    """`mixing` with static weights: a sum, a mask, learned or constant factors."""
    return positions | {"content_dependent": False}


def without_work(row: Operation) -> Operation:
    """`row` with its parameters only: it does not run in this pass."""
    nothing = dict.fromkeys(("macs", "flops", "attention_entries", "comparisons", "moved"), 0)
    return msgspec.structs.replace(row, weights_read=WeightsRead(0), pairs=None, core=None, matrix=None, **nothing)
