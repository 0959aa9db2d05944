"""Element-wise operations: which of several owners an output has, and whether tokens meet."""

from __future__ import annotations

import itertools
from typing import Final, NamedTuple

import torch
from torch import Tensor

from xfcost.torch_models.ownership.call import PER_TOKEN, Call, Finding, History, Outcome, ids
from xfcost.torch_models.ownership.contraction import scored
from xfcost.torch_models.ownership.owners import (
    CONSTANT,
    LEARNED,
    any_owned,
    are_pairs,
    content,
    home,
    masked,
    vectors,
    with_masked,
)

aten: Final = torch.ops.aten
# A score that much below the others has no weight.
NEGLIGIBLE: Final = -99.0
_PAIR: Final = 2
_PRODUCTS: Final = frozenset((aten.mul, aten.mul_))


def pointwise(call: Call) -> Outcome:
    """Owners and finding of an element-wise operation."""
    shape = call.result.shape
    given = [value for value in call.args if isinstance(value, Tensor)]
    given += [value for value in call.kwargs.values() if isinstance(value, Tensor)]
    operands = [(value, call.owners(value).broadcast_to(shape)) for value in given if _fits(value, shape)]
    if not operands:
        return Outcome([torch.full(shape, CONSTANT)], None)
    held = [one for _, one in operands if any_owned(call.places.without_learned(home(one)))]
    owned = [
        Operand(value, one, call.run.depth(value), call.run.history(value))
        for value, one in operands
        if any_owned(one) and (not held or any(one is other for other in held))
    ]
    if not owned:
        learned = any((one == LEARNED).any() for _, one in operands)
        return Outcome([operands[0][1].new_full(shape, LEARNED if learned else CONSTANT)], None)
    owners, finding = owned[0].owners, PER_TOKEN
    for one, other in itertools.pairwise(owned):
        owners, finding = _met(call, one._replace(owners=owners), other, finding)
    others = [(value, one) for value, one in operands if not any(one is other.owners for other in owned)]
    if are_pairs(owners):
        owners, finding = _by_position(call, owners, finding, others)
    return Outcome([owners], finding)


def _fits(value: Tensor, shape: torch.Size) -> bool:
    return value.dim() <= len(shape)


class Operand(NamedTuple):
    """An operand with owners."""

    value: Tensor
    owners: Tensor
    depth: int
    """The number of operations behind it."""
    history: History
    """What its places read one after the other, as in a recurrence."""


def _met(call: Call, left: Operand, right: Operand, before: Finding) -> tuple[Tensor, Finding]:
    """The owners and the finding of two owned operands; `before` is of those before them."""
    one, other = left.owners, right.owners
    both = (one >= 0) & (other >= 0)
    if bool((one[both] == other[both]).all()):
        return torch.where(one >= 0, one, other), before
    owners, finding = _different(call, left, right, both)
    return torch.where(both, owners, torch.where(one >= 0, one, other)), finding if finding.mixes else before


def _different(call: Call, first: Operand, second: Operand, both: Tensor) -> tuple[Tensor, Finding]:
    left, right = first.owners, second.owners
    ranks = [_rank(call, one) for one in (left, right)]
    for one, rank, other in ((first, ranks[0], ranks[1]), (second, ranks[1], ranks[0])):
        if bool((rank[both] == 0).all()) and bool((other[both] == _PAIR).any()):  # learned vectors by position
            owners = second.owners if one is first else first.owners
            finding = masking(call, owners)
            call.run.by_position(one.value, finding, with_product=True)
            return owners, finding
    same_home = bool((home(left)[both] == home(right)[both]).all())
    if same_home:  # a pair and its query's own vector, or two weights of one query
        owners = torch.where(ranks[1] > ranks[0], right, left)
        for one, rank, other in ((first, ranks[0], ranks[1]), (second, ranks[1], ranks[0])):
            if bool((rank[both] < _PAIR).all()) and bool((other == _PAIR).any()) and _differs_along_keys(one, owners):
                finding = masking(call, owners)
                call.run.by_position(one.value, finding, with_product=True)
                return owners, finding
        return owners, PER_TOKEN
    turned = _turned(call, first, second)
    left, right = (right, left) if turned else (left, right)
    relation = Relation.of(left, right, both)
    if are_pairs(left) and bool((content(left)[both] == content(right)[both]).all()):
        read = torch.where(both, call.places.without_learned(content(left)), -1)
        return left, _reading(call, home(left), read)  # weights times values
    if are_pairs(left) and bool((home(right)[both] == content(left)[both]).all()):
        return left, PER_TOKEN
    if relation.one_to_one and relation.count > 1 and _new_names(call, relation):
        call.places.twins += _twins(call, relation)
        return torch.minimum(left, right), PER_TOKEN
    if relation.one_each:
        read = torch.where(both, call.places.without_learned(home(right)), -1)
        history = (first if turned else second).history
        finding = _one_each(call, home(left), read, history)
        return _summed_states(call, left, right, relation) if _are_states(call, relation) else left, finding
    owners, finding = scored(call, home(left), content(right))
    return owners, finding._replace(content_dependent=call.packet in _PRODUCTS or finding.content_dependent)


def _reading(call: Call, homes: Tensor, read: Tensor, *, single: bool = False) -> Finding:
    """A finding that counts the different places of `read` for each of `homes`."""
    known = (homes >= 0) & (read >= 0)
    pairs = torch.unique(torch.stack([homes[known], read[known]]), dim=1)
    if not pairs.numel():
        return PER_TOKEN
    call.places.meet(pairs[0], pairs[1])
    counts = torch.unique(pairs[0], return_counts=True)[1]
    if single:
        counts = counts + 1
    return Finding(mixes=True, computed=counts, places=ids(read), content_dependent=call.packet in _PRODUCTS, single=single)


def _are_states(call: Call, relation: Relation) -> bool:
    return set(relation.lefts.tolist()) | set(relation.rights.tolist()) <= call.places.states


def _summed_states(call: Call, left: Tensor, right: Tensor, relation: Relation) -> Tensor:
    """Sums of two states each: new states."""
    owners = left
    for one in relation.lefts.tolist():
        others = ids(home(right)[(home(left) == one) & (right >= 0)])
        made = call.places.merged(call.sequence, frozenset((one,)) | others)
        call.places.states.add(made)
        owners = torch.where(home(left) == one, vectors(torch.tensor(made)), owners)
    return owners


def _one_each(call: Call, homes: Tensor, read: Tensor, history: History) -> Finding:
    """Each home reads one other: a shift, a summary, or the step before of a recurrence."""
    finding = _reading(call, homes, read, single=True)
    known = (homes >= 0) & (read >= 0)
    pairs = torch.unique(torch.stack([homes[known], read[known]]), dim=1).T.tolist()
    steps = call.run.step(call.packet, pairs, history)
    if not any(steps):
        return finding._replace(step=True)
    return finding._replace(computed=torch.tensor(steps), single=False, content_dependent=True, step=True, recurs=True)


class Relation(NamedTuple):
    """Which homes of one operand meet which of the other."""

    lefts: Tensor
    rights: Tensor
    count: int
    one_each: bool
    """Does each left one meet one right one?"""
    one_to_one: bool

    @classmethod
    def of(cls, left: Tensor, right: Tensor, both: Tensor) -> Relation:
        pairs = torch.unique(torch.stack([home(left)[both], home(right)[both]]), dim=1)
        lefts, rights = torch.unique(pairs[0]), torch.unique(pairs[1])
        count = pairs.shape[1]
        return cls(lefts, rights, count, count == len(lefts), count == len(lefts) == len(rights))


def _new_names(call: Call, relation: Relation) -> bool:
    """Are the ones new names for the others: places that an operation made, in as many positions?"""
    lefts, rights = set(relation.lefts.tolist()), set(relation.rights.tolist())
    if lefts & rights:
        return False
    makers = [{call.places.makers.get(place) for place in side} for side in (lefts, rights)]
    return makers[0] != makers[1] and any(None not in side for side in makers)


def _only_broadcast(call: Call, fewer: Tensor, more: Tensor) -> bool:
    """Is `fewer` a summary or a neighbour that the tokens of `more` read, and not a query that reads several keys?

    Keys that were gathered for each query stand in `more` several times.
    """
    few, many = ids(home(fewer)), ids(home(more))
    members = frozenset[int]().union(*(call.places.members.get(place, frozenset()) for place in few))
    if members & many:
        return True
    if not few & many:
        return len(few) > 1
    return _each_once(more)


def _each_once(owners: Tensor) -> bool:
    """Does each home stand at one index of the axes along which homes differ?"""
    axes = _varying(owners)
    places = home(owners)
    for axis in range(places.dim() - 1, -1, -1):
        if axis not in axes:
            places = places.amax(axis)
    places = places[places >= 0]
    return len(torch.unique(places)) == places.numel()


def _twins(call: Call, relation: Relation) -> list[tuple[int, int]]:
    makers = [
        {maker for place in side.tolist() if (maker := call.places.makers.get(place)) is not None}
        for side in (relation.lefts, relation.rights)
    ]
    return [(one, other) for one in makers[0] for other in makers[1]]


def _rank(call: Call, owners: Tensor) -> Tensor:
    """What a number is about: 2 another token, 1 its own, 0 a learned vector."""
    contents = call.places.without_learned(content(owners))
    return torch.where(contents < 0, 0, torch.where(contents == home(owners), 1, _PAIR))


def _differs_along_keys(one: Operand, owners: Tensor) -> bool:
    return _follows_keys(one.value.broadcast_to(owners.shape), owners)


def _turned(call: Call, first: Operand, second: Operand) -> bool:
    """Are the outputs' tokens those of the second operand: is it the query, or what was not moved?"""
    left, right = first.owners, second.owners
    if are_pairs(left) or are_pairs(right):
        return not are_pairs(left)
    axes = _varying(left), _varying(right)
    if len(axes[0]) != len(axes[1]):
        fewer, more = (left, right) if len(axes[0]) < len(axes[1]) else (right, left)
        return _only_broadcast(call, fewer, more) == (fewer is left)
    if axes[0] != axes[1]:
        return axes[0] > axes[1]
    complete = [int((one >= 0).sum()) for one in (left, right)]
    if complete[0] != complete[1]:
        return complete[1] > complete[0]
    return second.depth < first.depth  # the state of a recurrence has more behind it than its input


def _varying(owners: Tensor) -> list[int]:
    homes = home(owners)
    return [
        axis
        for axis in range(homes.dim())
        if homes.shape[axis] > 1 and bool((homes.narrow(axis, 1, homes.shape[axis] - 1) != homes.narrow(axis, 0, 1)).any())
    ]


def _by_position(
    call: Call, owners: Tensor, finding: Finding, others: list[tuple[Tensor, Tensor]]
) -> tuple[Tensor, Finding]:
    """Pairs that meet numbers of no token: masks, and biases by position."""
    for value, one in others:
        wide = value.broadcast_to(owners.shape)
        if value.numel() > 1 and _follows_keys(wide, owners):
            owners = with_masked(owners, _hidden(call, wide))
            finding = masking(call, owners)
            if finding.mixes and (one != CONSTANT).any():
                call.run.by_position(value, finding, with_product=False)
    return owners, finding


def _hidden(call: Call, wide: Tensor) -> Tensor:
    if wide.dtype == torch.bool:
        return torch.zeros_like(wide)
    return wide == 0 if call.packet in _PRODUCTS else wide <= NEGLIGIBLE


def _follows_keys(wide: Tensor, owners: Tensor) -> bool:
    """Does `wide` differ along an axis of the keys?"""
    keys = [axis for axis in _varying(vectors(content(owners)))]
    return any(wide.stride(axis) and wide.shape[axis] > 1 for axis in keys)


def hidden_by(call: Call, owners: Tensor, where: Tensor) -> Outcome:
    """Pairs filled by a constant `where`: masked, and still pairs."""
    owners = with_masked(owners, where)
    return Outcome([owners], masking(call, owners))


def masking(call: Call, owners: Tensor) -> Finding:
    """Of pairs by position: the keys of each query, and those that are not masked."""
    contents = call.places.without_learned(content(owners))
    finding = _reading(call, home(owners), contents)
    if not finding.mixes:
        return finding
    kept = _reading(call, home(owners), torch.where(masked(owners), -1, contents))
    return finding._replace(kept=kept.computed, content_dependent=False)
