"""Data movement: the operation itself is applied to the owners instead of the numbers."""

from __future__ import annotations

from itertools import product
from typing import Any, Final

import torch
from torch import Tensor

from xfcost.torch_models.mixing.call import PER_TOKEN, Call, Finding, Outcome, Shape, ids, reads
from xfcost.torch_models.mixing.owners import (
    CONSTANT,
    LEARNED,
    along,
    any_chosen,
    any_learned,
    any_owned,
    are_pairs,
    compact,
    content,
    distinct,
    everywhere,
    home,
    masked,
    narrow,
    reshaped,
    varies,
    vectors,
    with_chosen,
    with_masked,
)
from xfcost.torch_models.mixing.places import NO_SAMPLE, pair
from xfcost.torch_models.mixing.pointwise import NEGLIGIBLE, hidden_by, masking
from xfcost.torch_models.shared.private_torch import aten_operations, pytree, schema_of

aten: Final = torch.ops.aten


# Their first argument alone is moved.
FIRST: Final = frozenset(
    aten_operations(
        "roll flip gather index index_select repeat constant_pad_nd unfold tril triu _unsafe_view _reshape_alias "
        "as_strided permute_copy take_along_dim masked_select pixel_shuffle pixel_unshuffle channel_shuffle "
        "reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d take view_copy rot90 "
        "unsafe_split unsafe_split_with_sizes split_copy split_with_sizes_copy unbind_copy"
    )
)
# They take floats only.
FLOATS: Final = frozenset(
    aten_operations(
        "im2col upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d "
        "_upsample_nearest_exact2d _upsample_nearest_exact3d reflection_pad1d reflection_pad2d "
        "replication_pad1d replication_pad2d"
    )
)
# Owners are not laid out as their numbers are: what is a view of these may be a copy of those.
_RESHAPING: Final = frozenset(aten_operations("view _unsafe_view _reshape_alias reshape"))
_INDICES: Final = frozenset(("index", "indices", "mask"))
COPIES: Final = frozenset(
    aten_operations("clone _to_copy lift_fresh lift_fresh_copy contiguous alias_copy detach_copy")
)


def moved(call: Call) -> Outcome:
    """The operation on the owners of its first argument."""
    owners = call.owners(call.args[0])
    if call.packet is aten.constant_pad_nd:
        return Outcome([compact(call.func(owners, call.args[1], CONSTANT))], None)
    rest = call.args[1:]
    if call.packet in _RESHAPING:
        return Outcome([reshaped(owners, call.result.shape)], None)
    if call.packet is aten.as_strided:
        owners = call.run.laid(call.args[0])
    if call.packet in {aten.tril, aten.triu}:
        return _triangle(call, owners)
    if call.packet in FLOATS:
        answer = call.func((owners - CONSTANT).to(torch.float64), *rest, **call.kwargs)  # a padding of 0 is a constant
        return Outcome([compact(answer.round().long() + CONSTANT)], None)
    return Outcome([compact(one) for one in _as_list(call.func(owners, *rest, **call.kwargs))], None)


def _triangle(call: Call, owners: Tensor) -> Outcome:
    if not are_pairs(owners):
        return Outcome([owners], None)
    kept = call.func(torch.ones(owners.shape, dtype=torch.bool), *call.args[1:])
    return hidden_by(call, owners, ~kept)


def copied(call: Call) -> Outcome:
    """A copy."""
    return Outcome([call.owners(call.args[0])], None)


def written_over(call: Call) -> Outcome:
    """`copy_(x, y)`: y instead of x."""
    return Outcome([call.owners(call.args[1]).broadcast_to(call.args[0].shape)], None)


def put_together(call: Call) -> Outcome:
    """A concatenation or a stack. What is learned becomes tokens next to tokens."""
    parts, axis = list(call.args[0]), call.argument("dim", 0)
    owners = [call.owners(part) for part in parts]
    if call.packet is aten.cat:
        filled = [part for part in owners if part.numel() or part.dim() > 1]
        axis %= max(part.dim() for part in filled)
        parts = _with_learned_tokens(call, filled, axis)
        spread = [at for at in range(parts[0].dim()) if at != axis and not any(part.stride(at) for part in parts)]
        few = torch.cat(
            [part[tuple(slice(1 if at in spread else None) for at in range(part.dim()))] for part in parts], axis
        )
        joined = few.expand(call.result.shape)
        pairs = any(are_pairs(part) for part in filled) and varies(content(joined), axis)
        return Outcome([joined], masking(call, joined) if pairs else None)
    return Outcome([compact(torch.stack(owners, axis))], None)


def _with_learned_tokens(call: Call, owners: list[Tensor], axis: int) -> list[Tensor]:
    tokens = (call.places.without_learned(home(part)) for part in owners)
    if not any(any_owned(part) and (part.shape[axis] == 1 or varies(part, axis)) for part in tokens):
        return owners
    found = []
    for part in owners:
        if part.numel() and bool((narrow(part) == LEARNED).all()):
            first = call.places.add(part.shape[axis], birth=call.sequence)
            call.places.added.update(range(first, first + part.shape[axis]))
            shape = [part.shape[axis] if at == axis else 1 for at in range(part.dim())]
            numbers = torch.arange(first, first + part.shape[axis]).reshape(shape)
            found.append(vectors(numbers.expand(part.shape)))
            continue
        homes = set(torch.unique(home(narrow(part))).tolist()) & call.places.learned
        call.places.learned -= homes
        found.append(part)
    return found


def chosen(call: Call) -> Outcome:
    """`where(condition, one, other)`: pairs that constants replace are masked."""
    condition, one, other = call.args[:3]
    shape = call.result.shape
    left, right = (
        call.owners(value).broadcast_to(shape) if isinstance(value, Tensor) else everywhere(CONSTANT, shape)
        for value in (one, other)
    )
    wide = condition.broadcast_to(shape)
    for pairs, other, hidden in ((left, right, ~wide), (right, left, wide)):
        if are_pairs(pairs) and not any_owned(other):
            return hidden_by(call, _masked_by(call, pairs, condition), hidden)
    asks = call.owners(condition).broadcast_to(shape)
    picked = torch.where(wide, left, right)
    if not any_owned(picked) and _is_choice(asks):
        return _mask_of(call, asks)
    if not any_owned(picked) and any_owned(asks) and not call.result.is_floating_point():
        return Outcome([asks], PER_TOKEN)
    return Outcome([compact(picked)], None)


def filled(call: Call) -> Outcome:
    """`masked_fill(x, mask, value)`."""
    x, mask, value = call.args[:3]
    owners = call.owners(x).broadcast_to(call.result.shape)
    wide = mask.broadcast_to(call.result.shape)
    number = float(value.item() if isinstance(value, Tensor) else value)
    if are_pairs(owners) and (number == 0 or number <= NEGLIGIBLE):
        return hidden_by(call, _masked_by(call, owners, mask), wide)
    asks = call.owners(mask).broadcast_to(call.result.shape)
    if not any_owned(owners) and _is_choice(asks):
        return _mask_of(call, asks)
    return Outcome([owners], None)


def _is_choice(asks: Tensor) -> bool:
    """Do the owners of a mask say that scores set it?"""
    return are_pairs(asks) or any_chosen(asks)


def _mask_of(call: Call, asks: Tensor) -> Outcome:
    """Constants that a choice among keys sets."""
    hidden = call.result <= NEGLIGIBLE if call.result.is_floating_point() else torch.zeros(asks.shape, dtype=torch.bool)
    return Outcome([with_chosen(with_masked(asks, hidden) if are_pairs(asks) else asks)], PER_TOKEN)


def _masked_by(call: Call, pairs: Tensor, mask: Tensor) -> Tensor:
    """`pairs`, which say whether the mask depends on the input."""
    return with_chosen(pairs) if any_owned(call.owners(mask)) else pairs


def looked_up(call: Call) -> Outcome:
    """`embedding(table, numbers)`: rows for the tokens that the numbers belong to."""
    table, numbers = call.args[:2]
    found = rows_of(call, table, numbers, call.result.shape)
    moved = any_owned(call.owners(table)) or not any_owned(found)
    return Outcome([found], None if moved else PER_TOKEN)


def rows_of(call: Call, table: Tensor, numbers: Tensor, shape: Shape) -> Tensor:
    """The owners of the rows of a table that numbers look up: the tokens in it, or else those of the numbers."""
    asked, rows = call.owners(numbers).unsqueeze(-1).expand(shape), call.owners(table)
    if any_owned(rows):
        return torch.nn.functional.embedding(numbers, rows.to(torch.float64)).long()
    return asked if any_owned(asked) else everywhere(LEARNED if any_learned(rows) else CONSTANT, shape)


def scattered(call: Call) -> Outcome:
    """Numbers written into a copy: `scatter`, `index_put`, `index_copy`, `slice_scatter`, `copy_` and their like."""
    names = [argument.name for argument in schema_of(call.func).arguments]
    given = tuple(
        value if name in _INDICES else pytree.tree_map_only(Tensor, call.owners, value)
        for name, value in zip(names, call.args, strict=False)
    )
    given = (given[0].clone(), *given[1:])  # it may be written in place
    kwargs = {name: value for name, value in call.kwargs.items() if name != "reduce"}
    if call.packet in {aten.scatter, aten.scatter_} and not isinstance(call.args[3], Tensor):
        given = (*given[:3], CONSTANT, *given[4:])
    if call.packet in {aten.scatter_add, aten.scatter_add_, aten.index_add, aten.index_add_}:
        return _added(call, given)
    (written,) = _as_list(call.func(*given, **kwargs))
    choice = None if any_owned(call.owners(call.args[0])) else _choice(call)
    return Outcome([compact(written)], None) if choice is None else _among_keys(call, written, *choice)


def _choice(call: Call) -> tuple[int, Tensor] | None:
    """The axis of the keys that queries chose, and the query of each line along it; None where they chose none."""
    if call.packet is aten.scatter:
        axis, index = call.args[1] % call.args[0].dim(), call.owners(call.args[2])
        return (axis, home(along(index, axis))) if are_pairs(index) else None
    indices = call.args[1] if call.packet is aten.index_put else ()
    chosen = [axis for axis, index in enumerate(indices) if index is not None and are_pairs(call.owners(index))]
    if len(chosen) != 1 or any(index is not None and index.dtype == torch.bool for index in indices):
        return None
    asks = everywhere(CONSTANT, call.args[0].shape).clone().index_put_(indices, home(call.owners(indices[chosen[0]])))
    return chosen[0], along(asks, chosen[0])


def _among_keys(call: Call, written: Tensor, axis: int, asks: Tensor) -> Outcome:
    """What is written at the keys that queries chose, into constants: the rest is masked out, or this is a mask."""
    if not are_pairs(written):
        return Outcome([with_chosen(vectors(asks)).unsqueeze(axis).expand(written.shape)], PER_TOKEN)
    lines = written.movedim(axis, -1).flatten(0, -2)
    keys = _keys_of_columns(call, lines, asks.flatten()).reshape(written.movedim(axis, -1).shape).movedim(-1, axis)
    left_out = written == CONSTANT
    owners = with_chosen(torch.where(left_out, pair(asks.unsqueeze(axis).expand(keys.shape), keys), written))
    outcome = hidden_by(call, owners, left_out)
    return outcome._replace(finding=outcome.finding and outcome.finding._replace(chosen=True))


def _keys_of_columns(call: Call, lines: Tensor, asks: Tensor) -> Tensor:
    """The key of each column (lines, columns) for the queries of a sample; a place of its own where none chose it."""
    samples = torch.tensor([*call.places.samples, NO_SAMPLE])[asks]
    found = torch.empty_like(lines)
    for sample in samples.unique():
        contents = content(lines[samples == sample])
        most, least = contents.amax(0), torch.where(contents >= 0, contents, contents.amax(0)).amin(0)
        first = call.places.add(len(most), NO_SAMPLE, call.sequence)
        found[samples == sample] = torch.where((most >= 0) & (most == least), most, torch.arange(len(most)) + first)
    return found


def _added(call: Call, given: tuple[Any, ...]) -> Outcome:
    target, axis, index, source = given[:4]
    owners = target.clone()
    if call.packet in {aten.index_add, aten.index_add_}:
        owners.index_copy_(axis, index, source)
    else:
        owners.scatter_(axis, index, source)
    owners = torch.where(owners >= 0, owners, target)
    back = owners.index_select(axis, index) if index.dim() == 1 else owners.gather(axis, index)
    meets = (back >= 0) & (source >= 0) & (home(back) != home(source))
    if not bool(meets.any()):
        return Outcome([owners], PER_TOKEN if any_owned(owners) else None)
    axis %= owners.dim()
    groups = _groups_at(owners, axis, index, source)
    if groups is None:
        return Outcome([owners], Finding(mixes=None, reason="several tokens are added at one index"))
    made = [call.places.merged(call.sequence, group, row) if group else CONSTANT for row, group in enumerate(groups)]
    rows = vectors(torch.tensor(made)).reshape([-1 if at == axis else 1 for at in range(owners.dim())])
    counts = torch.tensor([len(group) for group in groups if group])
    finding = Finding(mixes=True, computed=counts, places=frozenset[int]().union(*groups))
    return Outcome([rows.expand(owners.shape)], finding)


def _groups_at(owners: Tensor, axis: int, index: Tensor, source: Tensor) -> list[frozenset[int]] | None:
    """The homes that are added at each row along `axis`; None where rows hold several tokens each."""
    homes = home(source).movedim(axis, 0).flatten(1)
    rows = (index if index.dim() == 1 else index.movedim(axis, 0).flatten(1)).reshape(len(homes), -1)
    if not len(homes) or bool((homes != homes[:, :1]).any()) or bool((rows != rows[:, :1]).any()):
        return None
    groups: list[set[int]] = [set() for _ in range(owners.shape[axis])]
    for row, place in zip(rows[:, 0].tolist(), homes[:, 0].tolist(), strict=True):
        if place >= 0:
            groups[row].add(place)
    return [frozenset(group) for group in groups]


def _as_list(answer: Any) -> list[Tensor]:
    return list(answer) if isinstance(answer, tuple | list) else [answer]


# ── sorting and choosing by value: numbers, the keys of each query, or whole tokens ──


def ordered(call: Call) -> Outcome:
    """`sort(x, axis)`, `topk(x, k, axis)`: values move, and their indices with them.

    Among keys each query reads all of them. Tokens that are ordered as wholes are moved; where every channel is
    ordered for itself, a position holds numbers of several tokens, and depends on all.
    """
    x, axis = call.args[0], call.argument("dim", -1)
    owners = call.owners(x)
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
    made = call.made(call.places.groups(lines), count)
    counts = distinct(lines, -1)
    finding = Finding(mixes=True, computed=counts[counts > 0], places=ids(lines), content_dependent=True, orders=True)
    return vectors(made).reshape(*homes.shape[:-1], count), finding


# ── `grid_sample`: an output reads the cells around a point, which the input may choose ──


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
