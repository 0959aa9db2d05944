"""Element-wise operations: which of several owners an output has, and whether tokens meet."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from xfcost.torch_models.ownership.call import PER_TOKEN, Call, Finding, History, Outcome, ids
from xfcost.torch_models.ownership.operands import Operand, Relation, new_names, paired_makers, turned
from xfcost.torch_models.ownership.owners import (
    CONSTANT,
    LEARNED,
    any_learned,
    any_owned,
    are_pairs,
    content,
    distinct_pairs,
    everywhere,
    home,
    masked,
    narrowed,
    vectors,
    with_masked,
)
from xfcost.torch_models.ownership.places import pair
from xfcost.torch_models.ownership.positions import PRODUCTS, by_position, follows_keys, masking, reading

_LEARNED, _OWN, _PAIR = range(3)


def pointwise(call: Call) -> Outcome:
    """Owners and finding of an element-wise operation."""
    shape = call.result.shape
    given = [value for value in call.args if isinstance(value, Tensor)]
    given += [value for value in call.kwargs.values() if isinstance(value, Tensor)]
    operands = [(value, call.owners(value).broadcast_to(shape)) for value in given if value.dim() <= len(shape)]
    if not operands:
        return Outcome([everywhere(CONSTANT, shape)], None)
    held = [one for _, one in operands if any_owned(call.places.without_learned(home(one)))]
    owning = [
        (value, one) for value, one in operands if any_owned(one) and (not held or any(one is other for other in held))
    ]
    if not owning:
        learned = any(any_learned(one) for _, one in operands)
        return Outcome([everywhere(LEARNED if learned else CONSTANT, shape)], None)
    if len(owning) == 1 and all(value.numel() == 1 for value, one in operands if one is not owning[0][1]):
        return Outcome([call.run.settled(owning[0][1])], PER_TOKEN)
    settled = [call.run.settled(one) for _, one in owning]
    owned = [
        Operand(
            value,
            value.broadcast_to(shape)[tuple(map(slice, few.shape))],
            few,
            call.run.depth(value),
            call.run.history(value),
        )
        for (value, _), few in zip(owning, narrowed(*settled), strict=True)
    ]
    owners, finding = owned[0].owners, PER_TOKEN
    for one, other in itertools.pairwise(owned):
        owners, finding = _met(call, one._replace(owners=owners), other, finding)
    owners = owners.expand(shape)
    if are_pairs(owners):
        others = [(value, one) for value, one in operands if not any(one is other for _, other in owning)]
        owners, finding = by_position(call, owners, finding, others)
    return Outcome([owners], finding)


def _met(call: Call, left: Operand, right: Operand, before: Finding) -> tuple[Tensor, Finding]:
    """The owners and the finding of two owned operands; `before` is of those before them."""
    one, other = left.owners, right.owners
    both = (one >= 0) & (other >= 0)
    live = both & _not_zero(call, both.shape) if bool((one != other)[both].any()) else both
    if bool((home(one)[live] == home(other)[live]).all() and (content(one)[live] == content(other)[live]).all()):
        owners = with_masked(torch.where(one >= 0, one, other), masked(one) | masked(other))
        owners = torch.where(both & ~live & (one != other), CONSTANT, owners)
        if call.packet in PRODUCTS and are_pairs(one) and left.value is not right.value:
            return owners, masking(call, owners)._replace(content_dependent=True)  # two weights of the same keys
        return owners, before
    owners, finding = _different(call, left, right, live)
    return torch.where(both, owners, torch.where(one >= 0, one, other)), finding if finding.mixes else before


def _not_zero(call: Call, shape: torch.Size) -> Tensor:
    """Where a product leaves anything of a vector; a weight of 0 cancels what was moved there."""
    if call.packet not in PRODUCTS or not shape:
        return torch.ones(shape, dtype=torch.bool)
    spread = {axis for axis, size in enumerate(shape) if size == 1} | {len(shape) - 1}
    return (call.result != 0).any(tuple(spread), keepdim=True).expand(shape)


def _different(call: Call, first: Operand, second: Operand, both: Tensor) -> tuple[Tensor, Finding]:
    """Owners that differ where both operands have one."""
    positional = _positional(call, first, second, both)
    if positional is not None:
        return positional
    if bool((home(first.owners)[both] == home(second.owners)[both]).all()):  # a pair and its query's own vector
        ranks = [_rank(call, one.owners) for one in (first, second)]
        return torch.where(ranks[1] > ranks[0], second.owners, first.owners), PER_TOKEN
    left, right = (second, first) if turned(call, first, second) else (first, second)
    if are_pairs(left.owners):
        weighed = _weighed(call, left.owners, right.owners, both)
        if weighed is not None:
            return weighed
    return _two_places(call, left, right, both)


def _positional(call: Call, first: Operand, second: Operand, both: Tensor) -> tuple[Tensor, Finding] | None:
    """Pairs, and numbers by position for the same queries: learned ones, or ones out of the query alone."""
    ranks = [_rank(call, one.owners) for one in (first, second)]
    same_home = bool((home(first.owners)[both] == home(second.owners)[both]).all())
    for at, one in enumerate((first, second)):
        pairs = (second, first)[at].owners
        if not bool((ranks[1 - at][both] == _PAIR).any()):
            continue
        learned = bool((ranks[at][both] == _LEARNED).all())
        of_query = same_home and bool((ranks[at][both] < _PAIR).all())
        if learned or (of_query and follows_keys(one.wide, pairs)):
            finding = masking(call, pairs)
            call.run.by_position(one.value, finding, with_product=True)
            return pairs, finding
    return None


def _weighed(call: Call, pairs: Tensor, other: Tensor, both: Tensor) -> tuple[Tensor, Finding] | None:
    """Weights of keys, times the keys' own vectors."""
    if bool((content(pairs)[both] == content(other)[both]).all()):
        read = torch.where(both, call.places.without_learned(content(pairs)), -1)
        return pairs, reading(call, home(pairs), read)
    return (pairs, PER_TOKEN) if bool((home(other)[both] == content(pairs)[both]).all()) else None


def _two_places(call: Call, left: Operand, right: Operand, both: Tensor) -> tuple[Tensor, Finding]:
    """Vectors of two places: new names for the same ones, one neighbour or summary for each, or pairs."""
    one, other = left.owners, right.owners
    relation = Relation.of(one, other, both)
    if relation.one_to_one and relation.pairs > 1 and new_names(call, relation):
        call.places.paired_makers += paired_makers(call, relation)
        return torch.minimum(one, other), PER_TOKEN
    if relation.one_each:
        read = torch.where(both, call.places.without_learned(home(other)), -1)
        call.run.queries.meet(home(one), read)
        finding = _one_each(call, home(one), read, right.history)
        return _summed_states(call, one, other, relation) if _are_states(call, relation) else one, finding
    read = torch.where(both, call.places.without_learned(content(other)), -1)
    return pair(home(one), content(other)), reading(call, home(one), read)._replace(content_dependent=True)


def _rank(call: Call, owners: Tensor) -> Tensor:
    """What a number is about: 2 another token, 1 its own, 0 a learned vector."""
    contents = call.places.without_learned(content(owners))
    return torch.where(contents < 0, _LEARNED, torch.where(contents == home(owners), _OWN, _PAIR))


def _one_each(call: Call, homes: Tensor, read: Tensor, history: History) -> Finding:
    """Each home reads one other: a shift, a summary, or the step before of a recurrence."""
    finding = reading(call, homes, read, single=True)
    known = (homes >= 0) & (read >= 0)
    pairs = distinct_pairs(homes[known], read[known]).T.tolist()
    steps = call.run.step(call.packet, pairs, history)
    if not any(steps):
        return finding._replace(step=True)
    return finding._replace(computed=torch.tensor(steps), single=False, step=True, recurs=True)


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
