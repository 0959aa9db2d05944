"""Convolutions and pooling: an output reads the tokens under its kernel."""

from __future__ import annotations

from itertools import product
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional as F

from xfcost.torch_models.mixing.call import PER_TOKEN, Call, Finding, Outcome, ids, unknown
from xfcost.torch_models.mixing.contraction import complete_tap, merged_lines
from xfcost.torch_models.mixing.owners import CONSTANT, along, distinct, everywhere, home, varies, vectors

# Channels of a convolution that hold different tokens at one position.
_MOST_MAPS: Final = 64


class TapKernel:
    """The geometry of a kernel, one number for each axis."""

    def __init__(self, sides: list[int], stride: list[int], padding: list[int], dilation: list[int]) -> None:
        rank = len(sides)
        self.sides, self.rank = sides, rank
        self.stride, self.padding, self.dilation = (
            list(one) * rank if len(one) == 1 else list(one) for one in (stride or sides, padding, dilation)
        )

    def of_transposed(self) -> TapKernel:
        """The kernel that reads, from an input with gaps, what the transposed convolution adds up."""
        padding = [
            wide * (side - 1) - pad for side, pad, wide in zip(self.sides, self.padding, self.dilation, strict=True)
        ]
        return TapKernel(self.sides, [1] * self.rank, padding, self.dilation)

    def taps(self, places: Tensor, out: tuple[int, ...]) -> Tensor:
        """The places under each tap: (B, *S) -> (B, *out, taps); -1 on paddings."""
        after = [
            max(0, (size - 1) * step + (side - 1) * wide + 1 - length - pad)
            for size, step, side, wide, length, pad in zip(
                out, self.stride, self.sides, self.dilation, places.shape[1:], self.padding, strict=True
            )
        ]
        edges = [one for pair in reversed(list(zip(self.padding, after, strict=True))) for one in pair]
        padded = F.pad(places, edges, value=-1)
        found = []
        for tap in product(*(range(side) for side in self.sides)):
            cut = tuple(
                slice(at * wide, at * wide + (size - 1) * step + 1, step)
                for at, wide, size, step in zip(tap, self.dilation, out, self.stride, strict=True)
            )
            found.append(padded[(slice(None), *cut)])
        return torch.stack(found, -1)


def convolved(call: Call, owners: Tensor, kernel: TapKernel, *, transposed: bool, groups: int) -> Outcome:
    """Owners (B, C, *S) -> (B, C', *S')."""
    shape = call.result.shape
    if varies(home(owners), 1):
        return _over_channels(call, owners, kernel, groups, transposed=transposed)
    if transposed:  # an output reads the inputs whose kernels, laid `stride` apart, cover it
        owners, kernel = _spread(owners, kernel.stride), kernel.of_transposed()
    outcome = _placed(call, owners, kernel, shape)
    finding = outcome.finding
    return outcome._replace(finding=None if finding is None else finding._replace(kernel=True))


def _spread(owners: Tensor, stride: list[int]) -> Tensor:
    """Owners with gaps of constants in between, `stride` apart."""
    sides = [(side - 1) * step + 1 for side, step in zip(owners.shape[2:], stride, strict=True)]
    wide = torch.full((*owners.shape[:2], *sides), CONSTANT)
    wide[(slice(None), slice(None), *(slice(None, None, step) for step in stride))] = owners
    return wide


def pooled(call: Call, owners: Tensor, kernel: TapKernel, *, dependent: bool) -> Outcome:
    """Owners (B, C, *S) -> (B, C, *S'), the same for all outputs of the call."""
    if owners.dim() == kernel.rank + 1:
        owners = owners.unsqueeze(0)
    shape = call.result.shape if call.result.dim() == kernel.rank + 2 else (1, *call.result.shape)
    outcome = _placed(call, owners, kernel, torch.Size(shape))
    finding = outcome.finding
    if finding is not None and finding.mixes:
        finding = finding._replace(content_dependent=dependent)
    return Outcome([outcome.owners[0].reshape(out.shape) for out in call.results], finding)


def adaptively_pooled(call: Call, owners: Tensor, out: list[int]) -> Outcome:
    """Means of about equal groups, as many as `out` says: (B, C, *S) -> (B, C, *out)."""
    shape = call.result.shape
    places = home(along(owners, 1))
    for axis, size in enumerate(out, start=1):
        length = owners.shape[axis + 1]
        groups = [range(at * length // size, -((at + 1) * length // -size)) for at in range(size)]
        most = max(map(len, groups))
        table = torch.tensor([[*group, *[group[-1]] * (most - len(group))] for group in groups])
        places = places.index_select(axis, table.flatten()).unflatten(axis, (size, most)).movedim(axis + 1, -1)
    lines = vectors(places.reshape(shape[0], -1, places.shape[1 + len(out) :].numel()))
    made, finding = merged_lines(call, lines, 1, channels=True, overlapping=True)
    return Outcome([made.reshape(shape[0], 1, *out).expand(shape)], finding)


def _placed(call: Call, owners: Tensor, kernel: TapKernel, shape: torch.Size) -> Outcome:
    one = along(owners, 1)
    taps = kernel.taps(call.places.without_learned(home(one)), tuple(shape[2:]))
    counts = distinct(taps, -1)
    if int(counts.max()) <= 1:
        vector = vectors(taps.amax(-1)).unsqueeze(1).expand(shape)
        return Outcome([vector], PER_TOKEN)
    batch = shape[0]
    lines = vectors(taps.reshape(batch, -1, taps.shape[-1]))
    apart = all(
        step >= (side - 1) * wide + 1
        for step, side, wide in zip(kernel.stride, kernel.sides, kernel.dilation, strict=True)
    )
    if apart:
        made, finding = merged_lines(call, lines, 1, channels=True)
        places = made.reshape(batch, *shape[2:])
    else:
        places = vectors(_home_of(taps, kernel))
        finding = Finding(mixes=True, computed=counts.flatten(), places=ids(taps), bounded=True)
    return Outcome([places.unsqueeze(1).expand(shape)], finding._replace(bounded=True))


def _home_of(taps: Tensor, kernel: TapKernel) -> Tensor:
    """The token that an output stands for: the one under the tap at index 0 of the input, as the padding is cut off.

    Without padding it is the tap that no earlier padding hides. Where no token is there, it is any that is read.
    """
    found = complete_tap(taps)
    if any(kernel.padding):
        tap = 0
        for side, pad, wide in zip(kernel.sides, kernel.padding, kernel.dilation, strict=True):
            tap = tap * side + min(pad // wide, side - 1)
        found = taps[..., tap]
    return torch.where(found >= 0, found, taps.amax(-1))


def _over_channels(call: Call, owners: Tensor, kernel: TapKernel, groups: int, *, transposed: bool) -> Outcome:
    """Tokens lie on the channel axis: an output channel reads all tokens of its group."""
    shape = call.result.shape
    if transposed:
        owners, kernel = _spread(owners, kernel.stride), kernel.of_transposed()
    several = groups > 1 or any(side != 1 for side in kernel.sides)
    if several and are_varied(owners):
        return _over_several(call, owners, kernel, groups, transposed=transposed)
    made, findings = [], []
    for part in owners.chunk(groups, 1):
        taps = [kernel.taps(places, tuple(shape[2:])).flatten(1, -2) for places in home(part).unbind(1)]
        lines = vectors(torch.cat(taps, -1))
        of_part, finding = merged_lines(call, lines, shape[1] // groups)
        made.append(of_part.transpose(1, 2))
        findings.append(finding)
    return Outcome([torch.cat(made, 1).reshape(shape)], _together(findings))


def _over_several(call: Call, owners: Tensor, kernel: TapKernel, groups: int, *, transposed: bool) -> Outcome:
    """Channels hold different tokens at the same position: a coarser map beside a finer one, pixels of a patch.

    The output's token is the one under the tap at its position, of the channel that tells most tokens apart.
    """
    shape = call.result.shape
    homes = torch.unique(call.places.without_learned(home(owners)), dim=1)
    if transposed or groups > 1 or homes.shape[1] > _MOST_MAPS:
        return Outcome([everywhere(CONSTANT, shape)], unknown("a convolution over two axes of tokens"))
    taps = [kernel.taps(one, tuple(shape[2:])) for one in homes.unbind(1)]
    finest = max(taps, key=lambda one: len(ids(one)))
    counts = distinct(torch.cat(taps, -1), -1)
    finding = Finding(mixes=True, computed=counts.flatten(), places=ids(homes), bounded=True)
    return Outcome([vectors(_home_of(finest, kernel)).unsqueeze(1).expand(shape)], finding)


def _together(findings: list[Finding]) -> Finding:
    """The finding of all groups of channels."""
    first = findings[0]
    if len(findings) == 1:
        return first
    counts = [one.computed for one in findings if one.computed is not None]
    places = frozenset[int]().union(*(one.places for one in findings))
    return first._replace(computed=torch.cat(counts) if counts else None, places=places)


def are_varied(owners: Tensor) -> bool:
    """Do homes differ along any spatial axis?"""
    return any(varies(home(owners), axis) for axis in range(2, owners.dim()))
