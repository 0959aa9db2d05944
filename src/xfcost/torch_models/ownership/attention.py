"""Attention in one kernel: softmax(QKᵀ·scale + mask)V, as `scaled_dot_product_attention` runs it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from xfcost.torch_models.ownership.call import PER_TOKEN, Call, Outcome, ids, reads
from xfcost.torch_models.ownership.owners import (
    CONSTANT,
    along,
    any_owned,
    content,
    everywhere,
    home,
    narrowed,
    vectors,
)
from xfcost.torch_models.ownership.positions import NEGLIGIBLE


def fused(call: Call) -> Outcome:
    """Queries (…, N, K), keys (…, M, K), values (…, M, V) -> (…, N, V) and statistics."""
    return _attended(call, lambda shape: _hidden(call, shape))


def by_blocks(call: Call) -> Outcome:
    """FlexAttention: the pairs that its mask function leaves out, in whichever blocks, have no weight."""
    blocks, function = call.args[4][2], call.args[4][-1]  # how many of each row of blocks, (B, H, rows); the mask

    def hidden(shape: tuple[int, ...]) -> Tensor:
        batch, heads, queries, keys = shape
        numbers = [torch.arange(size) for size in (blocks.shape[0], blocks.shape[1], queries, keys)]
        kept = function
        for axis in range(3, -1, -1):
            kept = torch.vmap(kept, in_dims=tuple(0 if at == axis else None for at in range(4)))
        return ~kept(*numbers).expand(batch, heads, queries, keys)

    return _attended(call, hidden)


def _attended(call: Call, hidden_in: Callable[[tuple[int, ...]], Tensor]) -> Outcome:
    query, key, value = (along(call.owners(one), -1) for one in call.args[:3])
    homes = home(query)
    rest = [everywhere(CONSTANT, out.shape) for out in call.results[1:]]
    if not any_owned(key) and not any_owned(value):
        owners = query.unsqueeze(-1).expand(call.result.shape)
        return Outcome([owners, *rest], PER_TOKEN if any_owned(query) else None)
    groups = (*key.shape[:2], homes.shape[1] // key.shape[1], *key.shape[2:])  # queries that share a key
    read = call.places.read_by(homes, content(key)).unsqueeze(2).expand(groups).flatten(1, 2)
    hidden = hidden_in((*homes.shape, key.shape[-1]))
    homes, read, hidden = narrowed(
        homes.unsqueeze(-1).expand(hidden.shape), read.unsqueeze(-2).expand(hidden.shape), hidden
    )
    read = torch.where(homes >= 0, read, -1)
    kept = torch.where(hidden, -1, read)
    call.places.meet(homes.expand(kept.shape), kept)
    line = homes[..., 0]
    call.places.has_read(call.sequence, line, ids(kept))
    finding = reads(read, kept, line.expand(read.shape[:-1]) >= 0, content_dependent=True)
    return Outcome([vectors(line).unsqueeze(-1).expand(call.result.shape), *rest], finding)


def _hidden(call: Call, shape: tuple[int, ...]) -> Tensor:
    """The pairs that a mask leaves out: (B, H, N, M)."""
    hidden = torch.zeros(shape[-2:], dtype=torch.bool)
    if call.argument("is_causal"):
        hidden = torch.ones(shape[-2:], dtype=torch.bool).triu(1)
    mask = call.argument("attn_mask")
    mask = call.argument("attn_bias") if mask is None else mask
    if isinstance(mask, Tensor):
        hidden = hidden | (~mask if mask.dtype == torch.bool else mask <= NEGLIGIBLE)
    return hidden.expand(shape)
