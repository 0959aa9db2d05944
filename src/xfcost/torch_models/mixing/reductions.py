"""Sums, maxima, norms, softmax, cumulative sums and Fourier transforms along axes."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from xfcost.torch_models.mixing.call import PER_TOKEN, Call, Finding, Outcome, ids, reads
from xfcost.torch_models.mixing.contraction import merged_lines, normal
from xfcost.torch_models.mixing.owners import (
    CONSTANT,
    along,
    any_owned,
    are_pairs,
    at,
    compact,
    content,
    distinct,
    everywhere,
    home,
    masked,
    narrow,
    repetitions,
    varies,
    vectors,
    with_masked,
    with_weights,
)
from xfcost.torch_models.mixing.places import pair
from xfcost.torch_models.mixing.pointwise import masking


def reduced(call: Call, owners: Tensor, axes: list[int], *, keeps: bool, dependent: bool = False) -> Outcome:
    """One number for each line along `axes`."""
    axes = sorted(axis % max(owners.dim(), 1) for axis in axes) or list(range(owners.dim()))
    shape = [1 if axis in axes else size for axis, size in enumerate(owners.shape)]
    owners = narrow(owners)
    kept_axes = [axis for axis in range(owners.dim()) if axis not in axes]
    whole = all(owners.shape[axis] == shape[axis] for axis in kept_axes)  # no channels beside the lines
    kept_shape = [owners.shape[axis] for axis in kept_axes]
    lines = (
        owners.permute(*kept_axes, *axes).reshape(1, prod(kept_shape), -1) if owners.dim() else owners.reshape(1, 1, 1)
    )
    made, finding = _of_lines(call, lines, whole=whole, dependent=dependent)
    wide = made.reshape([1 if axis in axes else size for axis, size in enumerate(owners.shape)]).expand(shape)
    return Outcome(
        [wide if keeps else wide.reshape([size for axis, size in enumerate(shape) if axis not in axes])], finding
    )


def _of_lines(call: Call, lines: Tensor, *, whole: bool, dependent: bool) -> tuple[Tensor, Finding | None]:
    """One owner for each line; `whole` vectors become tokens."""
    lines = normal(call.run.settled(lines))
    if varies(home(lines), -1):
        made, finding = merged_lines(call, lines, 1, channels=True)
        if whole:
            call.run.settle(lines, made.squeeze(-1))
        return made.squeeze(-1), finding._replace(content_dependent=dependent)
    one = along(lines, -1)
    contents = call.places.without_learned(content(lines))
    if not varies(contents, -1):
        return one, masking(call, one) if are_pairs(one) else PER_TOKEN
    finding = reads(contents, torch.where(masked(lines), -1, contents), content_dependent=dependent)
    return vectors(home(one)), finding


def normalised(call: Call, owners: Tensor, axes: list[int]) -> Outcome:
    """Every number scaled by statistics of its line along `axes`: the shape stays."""
    axes = sorted(axis % owners.dim() for axis in axes)
    shape, owners = owners.shape, narrow(owners)
    others = [axis for axis in range(owners.dim()) if axis not in axes]
    order = [*others, *axes]
    moved = owners.permute(order)
    lines = moved.reshape(1, prod(moved.shape[: len(others)]), -1)
    back = [order.index(axis) for axis in range(owners.dim())]
    made, finding = _normalised_lines(call, lines)
    return Outcome([made.reshape(moved.shape).permute(back).expand(shape)], finding)


def _normalised_lines(call: Call, lines: Tensor) -> tuple[Tensor, Finding | None]:
    lines = call.run.settled(lines)
    turned = normal(lines)
    homes = home(turned)
    contents = call.places.read_by(homes, content(turned))
    if not varies(homes, -1):
        if not varies(contents, -1):
            return lines, PER_TOKEN
        finding = reads(contents, torch.where(masked(turned), -1, contents), content_dependent=True)
        return turned, finding
    groups = set(call.places.groups(call.places.without_learned(homes).reshape(-1, homes.shape[-1])))
    groups.discard(frozenset())
    samples = {call.places.samples[min(group)] for group in groups}
    if len(groups) > len(samples) and sum(map(len, groups)) == len(frozenset[int]().union(*groups)):
        made, finding = merged_lines(call, turned, 1, channels=True)
        return made.expand(lines.shape), finding._replace(content_dependent=True)
    read = call.places.without_learned(homes)
    counts = distinct(read, -1)
    return turned, Finding(mixes=True, computed=counts[counts > 0], places=ids(read), content_dependent=True)


def softmax(call: Call, owners: Tensor, axis: int) -> Outcome:
    """Softmax along `axis`; entries whose weight is 0 are masked."""
    query = call.run.queries.of(call.args[0], home(owners)) if varies(home(owners), axis) else None
    if query is not None:
        owners = torch.where(owners >= 0, pair(query, home(owners)), owners)
    shape, gone = owners.shape, call.result == 0
    repeated = None
    if owners.dim() > 2 and axis % owners.dim() == owners.dim() - 1:  # noqa: PLR2004 - matrices, and not one
        owners, gone = owners.flatten(0, -3), gone.flatten(0, -3)
        repeated = repetitions(owners, gone)
    if repeated is not None:
        owners, gone = at(owners, repeated[0]), at(gone, repeated[0])
    outcome = normalised(call, owners, [axis])
    if query is not None and outcome.finding is not None:
        call.run.were_scores(call.args[0], outcome.finding)
    found, finding = outcome.owners[0], outcome.finding
    if call.result.is_floating_point() and bool(gone.any()) and are_pairs(found):
        found = compact(with_masked(found, gone))
        if finding is not None and finding.mixes:
            finding = normalised(call, found, [axis]).finding
    if repeated is not None:
        found = at(found, repeated[1])
    if query is None and varies(home(found), axis):
        found = with_weights(found)
    return Outcome([found.reshape(shape)], finding)


def accumulated(call: Call, owners: Tensor, axis: int) -> Outcome:
    """Each number with all before it along `axis`."""
    lines = owners.movedim(axis, -1)
    homes = call.places.without_learned(home(lines))
    if not varies(homes, -1):
        return Outcome([owners], PER_TOKEN)
    flat = homes.reshape(-1, homes.shape[-1])
    finding = Finding(mixes=True, computed=_so_far(torch.unique(flat, dim=0)), places=ids(homes), sums=True)
    if not ids(homes) <= call.places.makers.keys():
        return Outcome([owners], finding)
    made = _prefixes(call, flat).reshape(homes.shape).movedim(-1, axis)
    return Outcome([vectors(made)], finding)


def recurrent(call: Call, owners: Tensor, *, reverse: bool) -> Outcome:
    """A recurrence over axis 0 in one kernel: each output reads all before it, or all after it."""
    line = along(owners, -1)
    rest = [everywhere(CONSTANT, out.shape) for out in call.results[1:]]
    found = line.unsqueeze(-1).expand(call.result.shape)
    if not any_owned(line):
        return Outcome([found, *rest], None)
    homes = call.places.without_learned(home(line)).movedim(0, -1).reshape(-1, line.shape[0])
    if reverse:
        homes = homes.flip(-1)
    finding = Finding(mixes=True, computed=_so_far(homes), places=ids(homes), content_dependent=True)
    return Outcome([found, *rest], finding)


def _so_far(lines: Tensor) -> Tensor:
    """The number of distinct places in each line up to each index."""
    counts = [
        [len({place for place in row[: at + 1] if place >= 0}) for at in range(len(row))] for row in lines.tolist()
    ]
    return torch.tensor(counts).flatten()


def _prefixes(call: Call, lines: Tensor) -> Tensor:
    """States summed up from the first to each: new states."""
    groups = [
        frozenset(place for place in line[: at + 1] if place >= 0) for line in lines.tolist() for at in range(len(line))
    ]
    made = call.made(groups)
    call.places.states |= ids(made)
    return made


def spectrum(call: Call, owners: Tensor, axes: list[int], shape: torch.Size) -> Outcome:
    """A Fourier transform: each frequency is a new place of all tokens, and each position of all frequencies."""
    for axis in (axis % owners.dim() for axis in axes):
        if not varies(home(owners), axis):
            owners = along(owners, axis).unsqueeze(axis)
    axes = [axis % owners.dim() for axis in axes if owners.shape[axis] > 1]
    if not axes:
        return Outcome([owners.expand(shape)], PER_TOKEN)
    last, sizes = [*range(-len(axes), 0)], [shape[axis] for axis in axes]
    lines = owners.movedim(axes, last).flatten(-len(axes))
    homes = call.places.without_learned(home(lines).reshape(-1, lines.shape[-1]))
    groups = call.places.groups(homes)
    places = call.made(groups, prod(sizes)).reshape(*lines.shape[:-1], *sizes)
    made = vectors(places).movedim(last, axes).expand(shape)
    counts = distinct(homes, -1)
    if not int(counts.max()):
        return Outcome([made], None)
    single = all(len({call.places.members.get(place) for place in group} - {None}) == 1 for group in groups if group)
    return Outcome([made], Finding(mixes=True, computed=counts[counts > 0], places=ids(homes), single=single))
