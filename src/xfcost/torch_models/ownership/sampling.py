"""`grid_sample`: an output reads the cells around a point, which the input may choose."""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor

from xfcost.torch_models.ownership.call import PER_TOKEN, Call, Finding, Outcome, ids
from xfcost.torch_models.ownership.owners import CONSTANT, along, any_owned, distinct, home, varies, vectors

_NEAREST, _BICUBIC = 1, 2
_ZEROS = 0
# A cell whose weight is smaller is not read: points in the middle of a cell are no nearer to it after rounding.
_NEGLIGIBLE = 1e-4


def sampled(call: Call) -> Outcome:
    """(x (B, C, *S), points (B, *S', axes), mode, padding, aligned) -> (B, C, *S')."""
    x, points = call.args[:2]
    owners, asks = call.owners(x), call.owners(points)
    if varies(home(owners), 1) or varies(home(asks), -1):
        raise NotImplementedError("tokens lie on the axis of channels")
    query = call.places.without_learned(home(along(asks, -1)))
    if not any_owned(owners):
        return _of(call, query, PER_TOKEN)
    mode, chosen = call.args[2], any_owned(asks)
    cells = _cells(call, list(x.shape[2:]), chosen=chosen)
    # the cells of every point, by the homes of x, which are the same for all channels
    homes = call.places.without_learned(home(along(owners, 1))).flatten(1)
    read = homes.gather(1, cells.clamp(min=0).flatten(1)).reshape(cells.shape)
    read = torch.where(cells >= 0, read, CONSTANT)
    nearest = read.amax(-1)
    if mode == _NEAREST:
        return _of(call, nearest, None)
    counts = distinct(read, -1)
    if not chosen:
        if int(counts.max()) <= 1:
            return _of(call, nearest, PER_TOKEN)
        return _of(call, nearest, Finding(mixes=True, computed=counts, places=ids(read), bounded=True))
    # off the border all of them are read
    most = torch.where(counts > 0, read.shape[-1], 0)
    places = ids(read) | ids(query)
    finding = Finding(mixes=True, computed=most, places=places, content_dependent=True, bounded=True)
    return _of(call, torch.where(query >= 0, query, nearest), finding)


def _of(call: Call, places: Tensor, finding: Finding | None) -> Outcome:
    return Outcome([vectors(places).unsqueeze(1).expand(call.result.shape)], finding)


def _cells(call: Call, sides: list[int], *, chosen: bool) -> Tensor:
    """The numbers of the cells around every point: (B, *S', cells); -1 of what is not read."""
    points, mode, padding, aligned = call.args[1].double(), *call.args[2:5]
    steps = {_NEAREST: (0,), _BICUBIC: (-1, 0, 1, 2)}.get(mode, (0, 1))
    along_axes = []
    for side, part in zip(sides, reversed(points.unbind(-1)), strict=True):  # x, the last axis, comes first
        place = (part + 1) / 2 * (side - 1) if aligned else ((part + 1) * side - 1) / 2
        first = place.round() if mode == _NEAREST else place.floor()
        at = torch.stack([first + step for step in steps], -1)
        weightless = (at - place.unsqueeze(-1)).abs() > 1 - _NEGLIGIBLE
        if padding != _ZEROS:
            at = at.clamp(0, side - 1)
        out = (at < 0) | (at >= side)
        if not chosen and mode not in {_NEAREST, _BICUBIC}:
            out |= weightless
        along_axes.append((at.long(), out, side))
    numbers = []
    for steps_of in product(range(len(steps)), repeat=len(sides)):
        number = torch.zeros_like(along_axes[0][0][..., 0])
        missing = torch.zeros_like(number, dtype=torch.bool)
        for (at, out, side), step in zip(along_axes, steps_of, strict=True):
            number, missing = number * side + at[..., step], missing | out[..., step]
        numbers.append(torch.where(missing, -1, number))
    return torch.stack(numbers, -1)
