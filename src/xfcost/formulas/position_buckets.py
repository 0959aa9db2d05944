"""T5's relative position bias: one learned bias per bucket of distances and head."""

from __future__ import annotations

from typing import Annotated

import msgspec

from xfcost.formulas.component import Letter, Number, Operation, Share
from xfcost.ledger.accounts import WeightsRead
from xfcost.ledger.tensors import OUTPUT, Tensor, Tensors


class Buckets(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="buckets"):
    """T5's relative position bias: a learned number per bucket of distances and head (Raffel et al. 2020, §2.1).

    Half of the buckets hold one distance each, the others ever more, up to `distance`, and the last all beyond. Where
    both directions are read, each has half of the buckets. `count`·h parameters, whatever N is.
    """

    count: Annotated[int, msgspec.Meta(ge=4, le=2**16), Letter("k")] = 32
    """Number of buckets; each has one learned number per head."""
    distance: Annotated[int, msgspec.Meta(ge=2, le=2**31), Letter("k")] = 128
    """Distance from which on all tokens share the last bucket."""
    share: Share | None = None
    """Name of a table that all layers with this name share, as in T5; by default every layer has its own."""


def last_token_buckets(buckets: Buckets, tokens: Number, heads: Number) -> Operation:
    """The table, looked up for the N distances of the last token in a decode step."""
    row, bias = bucket_table(buckets, tokens, heads), Tensor(OUTPUT, (heads, tokens))
    tensors = Tensors((), (bias,), beside=True)
    read = WeightsRead(tokens * heads)
    return msgspec.structs.replace(row, moved=tokens * heads, weights_read=read, tensors=tensors)


def bucket_table(buckets: Buckets, tokens: Number, heads: Number) -> Operation:
    """The table, looked up for the 2N-1 distances between N tokens and laid out for all N² pairs, once for all samples.

    Every layer computes it; public implementations compute it in a stack's first layer and pass h·N² numbers on.
    """
    return Operation(
        path="relative_bias",
        title="Relative position buckets",
        mixing="global",
        reads="N",
        reads_tokens=tokens,
        params=0 if buckets.share else buckets.count * heads,
        shared=buckets.share,
        moved=(tokens * tokens + 2 * tokens - 1) * heads,
        once=True,
        symbol="",
        tensors=Tensors((), (Tensor(OUTPUT, (heads, tokens, tokens)),), beside=True),
    )
