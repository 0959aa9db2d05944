"""Two operands with owners: which homes meet, and whose tokens the outputs are."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from xfcost.torch_models.ownership.call import Call, History, ids
from xfcost.torch_models.ownership.owners import are_pairs, distinct_pairs, home, varying


class Operand(NamedTuple):
    """An operand with owners."""

    value: Tensor
    wide: Tensor
    """Its numbers beside their owners, in the same shape."""
    owners: Tensor
    depth: int
    """The number of operations behind it."""
    history: History
    """What its places read one after the other, as in a recurrence."""


class Relation(NamedTuple):
    """Which homes of one operand meet which of the other."""

    lefts: Tensor
    rights: Tensor
    pairs: int
    one_each: bool
    """Does each left one meet one right one?"""
    one_to_one: bool

    @classmethod
    def of(cls, left: Tensor, right: Tensor, both: Tensor) -> Relation:
        pairs = distinct_pairs(home(left)[both], home(right)[both])
        lefts, rights = torch.unique(pairs[0]), torch.unique(pairs[1])
        count = pairs.shape[1]
        return cls(lefts, rights, count, count == len(lefts), count == len(lefts) == len(rights))


def turned(call: Call, first: Operand, second: Operand) -> bool:
    """Are the outputs' tokens those of the second operand: is it the query, or what was not moved?"""
    left, right = first.owners, second.owners
    if are_pairs(left) or are_pairs(right):
        return not are_pairs(left)
    axes = varying(left), varying(right)
    if len(axes[0]) != len(axes[1]):
        fewer, more = (left, right) if len(axes[0]) < len(axes[1]) else (right, left)
        return _only_broadcast(call, fewer, more) == (fewer is left)
    if axes[0] != axes[1]:
        return axes[0] > axes[1]
    complete = [int((one >= 0).sum()) for one in (left, right)]
    if complete[0] != complete[1]:
        return complete[1] > complete[0]
    return second.depth < first.depth  # the state of a recurrence has more behind it than its input


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
    axes = varying(owners)
    places = home(owners)
    for axis in range(places.dim() - 1, -1, -1):
        if axis not in axes:
            places = places.amax(axis)
    places = places[places >= 0]
    return len(torch.unique(places)) == places.numel()


def new_names(call: Call, relation: Relation) -> bool:
    """Are the ones new names for the others: places that an operation made, in as many positions?"""
    lefts, rights = set(relation.lefts.tolist()), set(relation.rights.tolist())
    if lefts & rights:
        return False
    makers = [{call.places.makers.get(place) for place in side} for side in (lefts, rights)]
    return makers[0] != makers[1] and any(None not in side for side in makers)


def paired_makers(call: Call, relation: Relation) -> list[tuple[int, int]]:
    """The operations that made the places of both sides, in pairs."""
    makers = [
        {maker for place in side.tolist() if (maker := call.places.makers.get(place)) is not None}
        for side in (relation.lefts, relation.rights)
    ]
    return [(one, other) for one in makers[0] for other in makers[1]]
