"""Element-wise operations: which of several owners an output has, and whether tokens meet."""

from __future__ import annotations

import itertools
from typing import Final, NamedTuple

import torch
from torch import Tensor

from xfcost.torch_models.mixing.call import GATED, PER_TOKEN, Call, Finding, History, Outcome, ids
from xfcost.torch_models.mixing.owners import (
    CONSTANT,
    any_chosen,
    any_learned,
    any_owned,
    are_pairs,
    at,
    compact,
    content,
    distinct,
    distinct_pairs,
    everywhere,
    home,
    masked,
    narrowed,
    repetitions,
    varies,
    varying,
    vectors,
    with_chosen,
    with_masked,
)
from xfcost.torch_models.mixing.places import pair

# ── attention matrices and numbers by position: masks and biases, and the keys that each query is left with ──


aten: Final = torch.ops.aten
# A score that much below the others has no weight.
NEGLIGIBLE: Final = -99.0
# Their response to a change depends on the numbers themselves.
NONLINEAR: Final = frozenset((aten.tanh, aten.sigmoid, aten.relu, aten.exp, aten.silu, aten.gelu, aten.elu))
# Of these the output depends on the values of both factors.
PRODUCTS: Final = frozenset((aten.mul, aten.mul_))


def reading(call: Call, homes: Tensor, read: Tensor, *, single: bool = False) -> Finding:
    """A finding that counts the different places of `read` for each of `homes`."""
    homes, read = narrowed(homes, read)
    known = (homes >= 0) & (read >= 0)
    if not known.any():
        return PER_TOKEN
    call.places.meet(homes, read)
    keys = [axis for axis in range(homes.dim()) if varies(read, axis) and not varies(homes, axis)]
    if keys:  # each line of keys for itself: heads may read different ones
        lines = torch.where(known, read, -1).movedim(keys, list(range(-len(keys), 0))).flatten(-len(keys))
        counts = distinct(lines, -1).flatten()
        counts = counts[counts > 0]
    else:
        counts = torch.unique(distinct_pairs(homes[known], read[known])[0], return_counts=True)[1]
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
    owners = compact(owners)  # heads have the same
    if owners.dim() > 2:  # noqa: PLR2004 - and so where they lie on one axis with the batch
        entries = owners.flatten(0, -3)
        repeated = repetitions(entries)
        owners = owners if repeated is None else at(entries, repeated[0])
    contents, gone = call.places.read_by(home(owners), content(owners)), masked(owners)
    finding = reading(call, home(owners), contents)
    if not finding.mixes:
        return finding
    kept = reading(call, home(owners), torch.where(gone, -1, contents)) if gone.any() else finding
    return finding._replace(kept=kept.computed, content_dependent=False)


# ── two operands with owners: which homes meet, and whose tokens the outputs are ──


class Operand(NamedTuple):
    """An operand with owners."""

    value: Tensor
    wide: Tensor
    """Its numbers and their owners, in the same shape."""
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
    step = call.run.step_of(call.packet)
    carries = [any(step in past.operations for past in one.history.values()) for one in (first, second)]
    if carries[0] != carries[1]:
        return carries[0]
    return second.depth < first.depth  # the first state of a recurrence has more behind it than its input


def _decays(call: Call, state: Operand, other: Operand) -> bool:
    """Is a state weighed by one number of a token, which may be so small that it is 0?"""
    owners = [ids(home(one.owners)) for one in (state, other)]
    return other.value.shape[-2:] == (1, 1) and owners[0] <= call.places.states and not owners[1] & call.places.states


def _only_broadcast(call: Call, fewer: Tensor, more: Tensor) -> bool:
    """Is `fewer` a summary or a neighbour that the tokens of `more` read, and not a query that reads several keys?

    Keys that were gathered for each query are in `more` several times.
    """
    few, many = ids(home(fewer)), ids(home(more))
    members = frozenset[int]().union(*(call.places.members.get(place, frozenset()) for place in few))
    if members & many:
        return True
    if not few & many:
        return len(few) > 1
    return _each_once(more)


def _each_once(owners: Tensor) -> bool:
    """Is each home at one index of the axes along which homes differ?"""
    axes = varying(owners)
    places = home(owners)
    for axis in range(places.dim() - 1, -1, -1):
        if axis not in axes:
            places = places.amax(axis)
    places = places[places >= 0]
    return len(torch.unique(places)) == places.numel()


def renamed_by(call: Call, relation: Relation) -> list[tuple[int, int]] | None:
    """The operations that made both sides, in pairs; None unless one has new names for the places of the other."""
    lefts, rights = set(relation.lefts.tolist()), set(relation.rights.tolist())
    makers = [{call.places.makers.get(place) for place in side} for side in (lefts, rights)]
    if lefts & rights or makers[0] == makers[1] or all(None in side for side in makers):
        return None
    return [(one, other) for one in makers[0] for other in makers[1] if one is not None and other is not None]


# ── element-wise operations: which of several owners an output has, and whether tokens meet ──


_LEARNED, _OWN, _PAIR = range(3)


def pointwise(call: Call) -> Outcome:
    """Owners and finding of an element-wise operation."""
    shape = call.result.shape
    given = [value for value in call.args if isinstance(value, Tensor)]
    given += [value for value in call.kwargs.values() if isinstance(value, Tensor)]
    operands = [(value, call.owners(value).broadcast_to(shape)) for value in given if value.dim() <= len(shape)]
    if not operands:
        return Outcome([everywhere(CONSTANT, shape)], None)
    if call.packet in PRODUCTS and any(
        not any_owned(one) and not any_learned(one) and not value.any() for value, one in operands
    ):
        return Outcome([everywhere(CONSTANT, shape)], None)  # nothing is left of what zeros weigh
    held = [one for _, one in operands if any_owned(call.places.without_learned(home(one)))]
    owning = [
        (value, one) for value, one in operands if any_owned(one) and (not held or any(one is other for other in held))
    ]
    if len(owning) == 1 and all(value.numel() == 1 for value, one in operands if one is not owning[0][1]):
        alone = call.run.settled(owning[0][1])
        if not are_pairs(alone):
            return Outcome([alone], PER_TOKEN)
        return Outcome([alone], masking(call, alone)._replace(content_dependent=call.packet in NONLINEAR))
    owning = _states(call, owning)
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
        if not finding.mixes:
            finding = masking(call, owners)._replace(content_dependent=finding.content_dependent)
    return Outcome([owners], finding)


def _states(call: Call, owning: list[tuple[Tensor, Tensor]]) -> list[tuple[Tensor, Tensor]]:
    """The operands; what is added to a state is a state that decayed, though a product with a token made it."""
    states = [ids(home(one)) <= call.places.states for _, one in owning]
    if call.packet is aten.add and any(states):
        return [(value, call.run.decayed.get(value, one).broadcast_to(one.shape)) for value, one in owning]
    if call.packet in PRODUCTS and states.count(True) == 1:
        value, one = owning[states.index(True)]
        if value.shape == call.result.shape:
            call.run.decays(call.result, one)
    return owning


def _met(call: Call, left: Operand, right: Operand, before: Finding) -> tuple[Tensor, Finding]:
    """The owners and the finding of two owned operands; `before` is of those before them."""
    one, other = left.owners, right.owners
    both = (one >= 0) & (other >= 0)
    differ = (one != other) & both
    kept = not bool(differ.any()) or _decays(call, left, right) or _decays(call, right, left)
    live = both if kept else both & _not_zero(call, both.shape)
    apart = differ & live & ((home(one) != home(other)) | (content(one) != content(other)))
    if not bool(apart.any()):
        owners = with_masked(torch.where(one >= 0, one, other), masked(one) | masked(other))
        owners = with_chosen(owners) if any_chosen(one) or any_chosen(other) else owners
        owners = torch.where(both & ~live & (one != other), CONSTANT, owners)
        if call.packet in PRODUCTS and are_pairs(one) and left.value is not right.value:
            owners = torch.where(both | _not_zero(call, both.shape), owners, CONSTANT)  # of padding
            return owners, masking(call, owners)._replace(content_dependent=True)  # two weights of the same keys
        return owners, GATED if call.packet in PRODUCTS else before
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
        counts = [one.value.numel() if are_pairs(one.owners) else 0 for one in (first, second)]
        if all(counts) and counts[0] != counts[1]:  # scores, and one of them for each query
            return max((first, second), key=lambda one: one.value.numel()).owners, GATED
        return torch.where(ranks[1] > ranks[0], second.owners, first.owners), GATED
    left, right = (second, first) if turned(call, first, second) else (first, second)
    if are_pairs(left.owners):
        weighed = _weighed(call, left.owners, right.owners, both)
        if weighed is not None:
            return weighed
    return _two_places(call, left, right, both)


def _positional(call: Call, first: Operand, second: Operand, both: Tensor) -> tuple[Tensor, Finding] | None:
    """Pairs, and numbers by position for the same queries: learned ones, or ones out of the query only."""
    ranks = [_rank(call, one.owners) for one in (first, second)]
    same_home = bool((home(first.owners)[both] == home(second.owners)[both]).all())
    for number, one in enumerate((first, second)):
        pairs = (second, first)[number].owners
        if not bool((ranks[1 - number][both] == _PAIR).any()):
            continue
        learned = bool((ranks[number][both] == _LEARNED).all())
        of_query = same_home and bool((ranks[number][both] < _PAIR).all())
        if learned or (of_query and follows_keys(one.wide, pairs)):
            hidden = _hidden(call, one.wide)
            chosen = of_query and bool(hidden.any())
            pairs = with_chosen(with_masked(pairs, hidden)) if chosen else pairs
            finding = masking(call, pairs)._replace(chosen=chosen)
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
    call.places.check_acquainted(ids(home(one)[both]) | ids(home(other)[both]))
    renamed = Relation.of(one, other, both & (home(one) != home(other)))
    makers = renamed_by(call, renamed) if renamed.one_to_one and renamed.pairs > 1 else None
    if makers is not None:
        call.places.paired_makers += makers
        return torch.minimum(one, other), PER_TOKEN
    relation = Relation.of(one, other, both)
    if relation.one_each:
        read = torch.where(both, call.places.without_learned(home(other)), -1)
        call.run.queries.meet(home(one), read)
        finding = _one_each(call, home(one), read, right)
        if {*relation.lefts.tolist(), *relation.rights.tolist()} <= call.places.states:
            one = _summed_states(call, one, other, relation)
        return one, finding
    read = torch.where(both, call.places.without_learned(content(other)), -1)
    return pair(home(one), content(other)), reading(call, home(one), read)._replace(content_dependent=True)


def _rank(call: Call, owners: Tensor) -> Tensor:
    """What a number is about: 2 another token, 1 its own, 0 a learned vector."""
    contents = call.places.without_learned(content(owners))
    return torch.where(contents < 0, _LEARNED, torch.where(contents == home(owners), _OWN, _PAIR))


def _one_each(call: Call, homes: Tensor, read: Tensor, other: Operand) -> Finding:
    """Each home reads one other: a shift, a summary, or the step before of a recurrence."""
    finding = reading(call, homes, read, single=True)
    finding = finding._replace(places=finding.places | (ids(homes) & call.places.states))  # what decays, or is added to
    known = (homes >= 0) & (read >= 0)
    pairs = distinct_pairs(homes[known], read[known]).T.tolist()
    steps = call.run.step(call.packet, pairs, other.history)
    if not any(steps):
        return finding._replace(step=True)
    finding = finding._replace(computed=torch.tensor(steps), single=False, step=True, recurs=True)
    call.run.carried_on(call.packet, other.value, finding)
    return finding


def _summed_states(call: Call, left: Tensor, right: Tensor, relation: Relation) -> Tensor:
    """Sums of two states each: new states."""
    owners = left
    for one in relation.lefts.tolist():
        others = ids(home(right)[(home(left) == one) & (right >= 0)])
        made = call.places.merged(call.sequence, frozenset((one,)) | others)
        call.places.states.add(made)
        owners = torch.where(home(left) == one, vectors(torch.tensor(made)), owners)
    return owners
