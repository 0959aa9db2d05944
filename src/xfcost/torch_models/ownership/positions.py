"""Attention matrices and numbers by position: masks and biases, and the keys that each query is left with."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from xfcost.torch_models.ownership.call import PER_TOKEN, Call, Finding, Outcome, ids
from xfcost.torch_models.ownership.owners import (
    CONSTANT,
    content,
    distinct,
    distinct_pairs,
    home,
    masked,
    narrowed,
    varies,
    varying,
    vectors,
    with_masked,
)

aten: Final = torch.ops.aten
# A score that much below the others has no weight.
NEGLIGIBLE: Final = -99.0
# Of these the output depends on the values of both factors.
PRODUCTS: Final = frozenset((aten.mul, aten.mul_))


def reading(call: Call, homes: Tensor, read: Tensor, *, single: bool = False) -> Finding:
    """A finding that counts the different places of `read` for each of `homes`."""
    homes, read = narrowed(homes, read)
    known = (homes >= 0) & (read >= 0)
    pairs = distinct_pairs(homes[known], read[known])
    if not pairs.numel():
        return PER_TOKEN
    call.places.meet(pairs[0], pairs[1])
    keys = [axis for axis in range(homes.dim()) if varies(read, axis) and not varies(homes, axis)]
    if keys:  # each line of keys for itself: heads may read different ones
        lines = torch.where(known, read, -1).movedim(keys, list(range(-len(keys), 0))).flatten(-len(keys))
        counts = distinct(lines, -1).flatten()
        counts = counts[counts > 0]
    else:
        counts = torch.unique(pairs[0], return_counts=True)[1]
    if single:
        counts = counts + 1
    return Finding(
        mixes=True, computed=counts, places=ids(read), content_dependent=call.packet in PRODUCTS, single=single
    )


def by_position(
    call: Call, owners: Tensor, finding: Finding, others: list[tuple[Tensor, Tensor]]
) -> tuple[Tensor, Finding]:
    """Pairs that meet numbers of no token: masks, and biases by position."""
    for value, one in others:
        wide = value.broadcast_to(owners.shape)
        if value.numel() > 1 and follows_keys(wide, owners):
            few, wide = narrowed(owners, wide)
            owners = with_masked(few, _hidden(call, wide)).expand(owners.shape)
            finding = masking(call, owners)
            if finding.mixes and (one != CONSTANT).any():
                call.run.by_position(value, finding, with_product=False)
    return owners, finding


def _hidden(call: Call, wide: Tensor) -> Tensor:
    if call.packet in PRODUCTS:
        return wide == 0
    return torch.zeros_like(wide) if wide.dtype == torch.bool else wide <= NEGLIGIBLE


def follows_keys(wide: Tensor, owners: Tensor) -> bool:
    """Does `wide` differ along an axis of the keys?"""
    return any(wide.stride(axis) and wide.shape[axis] > 1 for axis in varying(vectors(content(owners))))


def hidden_by(call: Call, owners: Tensor, where: Tensor) -> Outcome:
    """Pairs filled by a constant `where`: masked, and still pairs."""
    shape = owners.shape
    owners = with_masked(*narrowed(owners, where)).expand(shape)
    return Outcome([owners], masking(call, owners))


def masking(call: Call, owners: Tensor) -> Finding:
    """Of pairs by position: the keys of each query, and those that are not masked."""
    contents = call.places.without_learned(content(owners))
    finding = reading(call, home(owners), contents)
    if not finding.mixes:
        return finding
    kept = reading(call, home(owners), torch.where(masked(owners), -1, contents))
    return finding._replace(kept=kept.computed, content_dependent=False)
