"""Sorting and choosing by value: numbers, the keys of each query, or whole tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from xfcost.torch_models.ownership.call import PER_TOKEN, Call, Finding, Outcome, ids, reads
from xfcost.torch_models.ownership.owners import any_owned, content, distinct, home, masked, varies, vectors


def ordered(call: Call) -> Outcome:
    """`sort(x, axis)`, `topk(x, k, axis)`: values move, and their indices with them.

    Among keys each query reads all of them. Tokens that are ordered as wholes are moved; where every channel is
    ordered for itself, a position holds numbers of several tokens, and depends on all.
    """
    x, axis = call.args[0], call.argument("dim", -1)
    owners = call.owners(x)
    if not owners.dim() or not any_owned(owners):
        return Outcome([owners.expand(result.shape) for result in call.results], None)
    axis %= owners.dim()
    taken = owners.gather(axis, call.results[-1])
    homes, contents = home(owners), call.places.without_learned(content(owners))
    if not varies(homes, axis):
        if not varies(contents, axis):
            return Outcome([taken for _ in call.results], PER_TOKEN)
        lines = owners.movedim(axis, -1)
        read = call.places.without_learned(content(lines))
        finding = reads(read, torch.where(masked(lines), -1, read), content_dependent=True)
        return Outcome([taken for _ in call.results], finding)
    if not _parted(owners, taken, axis):
        return Outcome([taken for _ in call.results], PER_TOKEN)
    if not call.result.is_floating_point():
        return Outcome([taken for _ in call.results], PER_TOKEN)
    made, finding = _positions(call, homes.movedim(axis, -1), taken.shape[axis])
    made = made.movedim(-1, axis)
    return Outcome([made for _ in call.results], finding)


def _parted(owners: Tensor, taken: Tensor, axis: int) -> bool:
    """Do numbers of one token go to different positions?"""
    whole = [at for at in range(owners.dim()) if at != axis and not varies(home(owners), at)]
    return any(varies(home(taken), at) for at in whole)


def _positions(call: Call, homes: Tensor, count: int) -> tuple[Tensor, Finding]:
    """A new place for each of `count` positions, out of all places along the last axis."""
    lines = call.places.without_learned(homes).reshape(-1, homes.shape[-1])
    table = [
        [call.places.merged(call.sequence, group, part) if group else -1 for part in range(count)]
        for group in call.places.groups(lines)
    ]
    counts = distinct(lines, -1)
    finding = Finding(mixes=True, computed=counts[counts > 0], places=ids(lines), content_dependent=True, orders=True)
    return vectors(torch.tensor(table)).reshape(*homes.shape[:-1], count), finding
