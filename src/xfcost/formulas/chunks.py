"""Sequences in chunks of one size, the last one padded."""

from __future__ import annotations

from typing import Any

from xfcost.formulas.arithmetic import lesser
from xfcost.formulas.component import Number, Operation
from xfcost.formulas.rows import move
from xfcost.ledger.tensors import Tensors


def chunk_mixing(size: Number) -> dict[str, Any]:
    """Attributes of a content-dependent row that mixes the tokens of a chunk."""
    return {"mixing": "local", "reads": "b", "reads_tokens": size, "content_dependent": True}


def pairs_in_chunks(tokens: Number, chunks: Number, size: Number) -> Number:
    """Pairs of a token with itself and with the earlier ones of its chunk, without padding."""
    last_tokens = tokens - (chunks - 1) * size
    return (chunks - 1) * (size * (size + 1) // 2) + last_tokens * (last_tokens + 1) // 2


def pad_to_chunks(tokens: Number, padded: Number, width: Number, tensors: Tensors | None = None) -> Operation:
    """`padded` tokens of `width` written, where these are not the tokens themselves."""
    return move("pad", "Pad to whole chunks", lesser(1, padded - tokens) * padded * width, tensors=tensors)
