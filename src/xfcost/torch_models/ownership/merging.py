"""Several tokens in one line of numbers, mapped or summed by fixed weights: new tokens, summaries, or static mixing."""

from __future__ import annotations

import torch
from torch import Tensor

from xfcost.torch_models.ownership.call import Call, Finding, ids
from xfcost.torch_models.ownership.owners import CONSTANT, distinct, home, vectors


def merged_lines(
    call: Call, lines_bmk: Tensor, outputs: int, *, channels: bool = False, overlapping: bool = False
) -> tuple[Tensor, Finding]:
    """Lines along k of several homes, to `outputs` numbers each: (b, m, k) -> (b, m, n).

    Where all lines of a sample hold the same tokens, the lines are channels and the outputs new places. `channels`
    says that outputs are channels all the same, `overlapping` that groups make new places even where they overlap.
    """
    batch, rows, _ = lines_bmk.shape
    homes = call.places.without_learned(home(lines_bmk))
    groups = call.places.groups(homes.reshape(batch * rows, -1))
    counts = distinct(homes, -1)
    finding = Finding(mixes=True, computed=counts[counts > 0], places=ids(homes))
    several = set(filter(None, groups))
    alike = all(len(set(filter(None, groups[at * rows : (at + 1) * rows]))) <= 1 for at in range(batch))
    if alike and rows > 1 and outputs >= 1 and not channels:
        return _new_places(call, groups, (batch, rows, outputs)), finding
    disjoint = sum(map(len, several)) == len(frozenset[int]().union(*several))
    if disjoint or overlapping:
        made = [one_place(call, group) for group in groups]
        owners = vectors(torch.tensor(made)).reshape(batch, rows, 1).expand(batch, rows, outputs)
        whole = len(several) == len({call.places.samples[min(group)] for group in several})
        return owners, finding._replace(merges=disjoint, whole=whole)
    homes_bm = complete_tap(home(lines_bmk))
    return vectors(homes_bm).unsqueeze(-1).expand(batch, rows, outputs), finding


def one_place(call: Call, group: frozenset[int]) -> int:
    """The place of a merged group; a group of one is the token itself."""
    if len(group) <= 1:
        return next(iter(group), CONSTANT)
    return call.places.merged(call.sequence, group)


def _new_places(call: Call, groups: list[frozenset[int]], shape: tuple[int, ...]) -> Tensor:
    """One place for each set of tokens and each output: (b, m, n)."""
    table = [
        [call.places.merged(call.sequence, group, part) if group else CONSTANT for part in range(shape[-1])]
        for group in groups
    ]
    return vectors(torch.tensor(table)).reshape(shape)


def complete_tap(taps: Tensor) -> Tensor:
    """The home of each line of overlapping groups (…, taps): the middle one of those that no padding hides.

    A centred kernel has paddings on both sides, and all middles; a causal one has them before, and all last taps.
    """
    owned = (taps >= 0).flatten(0, -2).sum(0)
    best = (owned == owned.max()).nonzero().flatten()
    middle = best[(best.to(torch.float64) - (taps.shape[-1] - 1) / 2).abs().argmin()]
    return taps[..., int(middle)]
