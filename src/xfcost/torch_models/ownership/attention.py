"""Attention in one kernel: softmax(QKᵀ·scale + mask)V, as `scaled_dot_product_attention` runs it."""

from __future__ import annotations

import torch
from torch import Tensor

from xfcost.torch_models.ownership.call import PER_TOKEN, Call, Outcome, ids, reads
from xfcost.torch_models.ownership.owners import CONSTANT, along, any_owned, content, home, vectors
from xfcost.torch_models.ownership.positions import NEGLIGIBLE


def fused(call: Call) -> Outcome:
    """Queries (…, N, K), keys (…, M, K), values (…, M, V) -> (…, N, V) and statistics."""
    query, key, value = (along(call.owners(one), -1) for one in call.args[:3])
    homes = home(query)
    rest = [torch.full(out.shape, CONSTANT) for out in call.results[1:]]
    if not any_owned(key) and not any_owned(value):
        owners = query.unsqueeze(-1).expand(call.result.shape)
        return Outcome([owners, *rest], PER_TOKEN if any_owned(query) else None)
    heads = homes.shape[1] // key.shape[1]
    read = call.places.read_by(homes, content(key)).repeat_interleave(heads, 1)
    read = read.unsqueeze(-2).expand(*homes.shape, key.shape[-1])
    read = torch.where(homes.unsqueeze(-1) >= 0, read, -1)
    kept = torch.where(_hidden(call, read.shape), -1, read)
    call.places.meet(homes.unsqueeze(-1).expand(kept.shape), kept)
    call.places.has_read(call.sequence, homes, ids(kept))
    finding = reads(read, kept, homes >= 0, content_dependent=True)
    return Outcome([vectors(homes).unsqueeze(-1).expand(call.result.shape), *rest], finding)


def _hidden(call: Call, shape: torch.Size) -> Tensor:
    """The pairs that a mask leaves out: (B, H, N, M)."""
    hidden = torch.zeros(shape, dtype=torch.bool)
    if call.argument("is_causal"):
        hidden |= torch.ones(shape[-2:], dtype=torch.bool).triu(1)
    mask = call.argument("attn_mask")
    mask = call.argument("attn_bias") if mask is None else mask
    if isinstance(mask, Tensor):
        hidden |= ~mask if mask.dtype == torch.bool else mask <= NEGLIGIBLE
    return hidden
