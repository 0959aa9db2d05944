"""One run of a module in which each number is labelled with the place that it belongs to."""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from xfcost.ledger.operation import Mixing
from xfcost.torch_models.probing.calls import Call, changes, follows, weights_change

# ── the tokens that one operation reads ──


class Reading(NamedTuple):
    """The tokens that one operation reads."""

    places: int
    """The most places that one token's output reads: tokens, or summaries (landmarks, pooled keys, states)."""
    tokens: int
    """The most tokens that these places represent."""
    apiece: int
    """The most places that one number of the output reads: those of one head or one list of keys."""
    content_dependent: bool
    """Are the mixing weights computed from the input?"""
    mixes: bool
    """Does any output read more than its own token?"""
    disjoint: bool = False
    """Is each token read by at most one output?"""

    @property
    def number(self) -> int:
        """The number of places read; for a single summary (a state), the number of tokens that it represents."""
        return self.places if self.places > 1 else self.tokens


def kind_of_rows(small: Reading, large: Reading) -> Mixing:
    """The mixing kind of an operation, from its readings at few tokens and at more."""
    if large.places > small.places or large.tokens > small.tokens:
        return "global"
    return "local" if small.mixes or large.mixes else "per-token"


# ── labels each number of a running module, and follows it by its value from operation to operation ──


# The label of numbers without a place: parameters, padding, masks.
UNKNOWN: Final = -1
# The place of such numbers.
NO_PLACE: Final = -1


class Label(NamedTuple):
    """The meaning of a number. Places are tokens, or summaries of them: landmarks, pooled keys, states."""

    home: int
    """The place of its vector, or of its row of weights."""
    content: int
    """The place of its content: `home` itself in a vector, the key in a row of weights."""
    position: bool = False
    """Is it a weight by position, independent of the key's content?"""


class Places:
    """All places of one run, and the tokens that each represents. The first places are the tokens themselves."""

    def __init__(self, tokens: int) -> None:
        self.tokens = [frozenset((token,)) for token in range(tokens)]

    def add(self, tokens: frozenset[int]) -> int:
        """A new place that represents `tokens`."""
        self.tokens.append(tokens)
        return len(self.tokens) - 1

    def grow(self, place: int, tokens: frozenset[int]) -> None:
        """Add `tokens` to those of a summary."""
        self.tokens[place] |= tokens

    def represented(self, places: frozenset[int]) -> frozenset[int]:
        """The tokens that `places` represent."""
        return frozenset[int]().union(*(self.tokens[place] for place in places))


class _Stored(NamedTuple):
    maker: str
    values: np.ndarray
    """In ascending order."""
    labels: np.ndarray


class LabelledValues:
    """All labelled numbers of one run, indexed by value."""

    def __init__(self) -> None:
        self.labels: list[Label] = []
        self._numbers: dict[Label, int] = {}
        self._stored: list[_Stored] = []

    def number(self, label: Label) -> int:
        """The index of `label`."""
        if label not in self._numbers:
            self._numbers[label] = len(self.labels)
            self.labels.append(label)
        return self._numbers[label]

    def remember(self, maker: str, values: Tensor, labels: np.ndarray) -> None:
        """Store that the operation `maker` made `values`, with `labels` of the same shape."""
        flat = values.detach().flatten().numpy()
        order = np.argsort(flat, kind="stable")
        self._stored.append(_Stored(maker, flat[order], labels.ravel()[order]))

    def look_up(self, values: Tensor) -> tuple[np.ndarray, frozenset[str]]:
        """The labels of `values`, in their shape, UNKNOWN by default; and the operations that made them."""
        flat = values.detach().contiguous().flatten().numpy()
        found = np.full(flat.shape, UNKNOWN)
        makers = set()
        wanted = np.flatnonzero(np.isfinite(flat) & (flat != 0))
        for made in reversed(self._stored):
            if not wanted.size:
                break
            slot = np.searchsorted(made.values, flat[wanted])
            hit = made.values[np.minimum(slot, made.values.size - 1)] == flat[wanted] if made.values.size else slot < 0
            if hit.any():
                found[wanted[hit]] = made.labels[slot[hit]]
                makers.add(made.maker)
            wanted = wanted[~hit]
        return found.reshape(values.shape), frozenset(makers)


# ── for each number of an operation's output: the places that it reads, and the place that it belongs to ──


# Of a number that reads the vectors of several places and belongs to none of them: a mean, a state, a landmark.
NOWHERE = -2
# What only moves tokens and leaves no more than this part of them along an axis takes every second one, or fewer: these
# are new tokens. What leaves more cuts off paddings.
CROPPED = 2 / 3


class Operand(NamedTuple):
    """An argument with labelled numbers, and the outputs that change with each of its places."""

    labels: np.ndarray
    """In the argument's shape."""
    homes: np.ndarray
    contents: np.ndarray
    own: bool
    """Did the operation itself make it in an earlier call: is it a recurrent state?"""
    by_home: Changed
    by_content: Changed

    @property
    def holds_weights(self) -> bool:
        """Are its numbers weights of keys, not vectors?"""
        return bool(((self.homes != self.contents) & (self.contents != NO_PLACE)).any())

    @property
    def holds_vectors(self) -> bool:
        """Does any number have content from a place?"""
        return bool((self.contents != NO_PLACE).any())


class Changed(NamedTuple):
    """The output numbers that change with all numbers of one place."""

    places: list[int]
    outputs: list[np.ndarray]
    """Of every output, (places, numbers)."""


class Seen(NamedTuple):
    """Numbers of an output that belong to one place and have the same reading."""

    home: int
    sets: tuple[frozenset[int], ...]
    """Of every operand, the places that they read."""
    where: int
    """The summary that they are part of, where an axis of tokens has become one of summaries."""
    list: int
    """The list of keys (a head's, a cluster's) that they read, where these are counted apart."""


def distinct(shape: tuple[int, ...], at: int, operands: list[Operand], apart: int) -> tuple[list[Seen], np.ndarray]:
    """The readings of the output `at`: each distinct reading once, and the index of each number's reading.

    The first `apart` axes after the batch index lists of keys.
    """
    homes, where = _homes(shape, at, operands), _where(shape, at, operands)
    homes = np.where((where != NO_PLACE) & (homes != NO_PLACE), NOWHERE, homes)
    where = np.where(homes == NOWHERE, where, NO_PLACE)
    lists = np.zeros_like(homes)
    apart = min(apart, len(shape) - 3)
    if apart > 0:
        lists = np.ravel_multi_index(list(np.indices(shape)[1 : apart + 1]), shape[1 : apart + 1]).ravel()
    bits = [np.packbits(operand.by_content.outputs[at], axis=0).T for operand in operands]
    # one row of bytes per number
    table = np.concatenate([*(one[:, None].view(np.uint8) for one in (homes, where, lists)), *bits], axis=1)
    rows = np.ascontiguousarray(table).view(np.dtype((np.void, table.shape[1]))).ravel()
    _, first, which = np.unique(rows, return_index=True, return_inverse=True)
    seen = [Seen(int(homes[one]), _sets(one, at, operands), int(where[one]), int(lists[one])) for one in first]
    return seen, which.ravel()


def _sets(number: int, at: int, operands: list[Operand]) -> tuple[frozenset[int], ...]:
    return tuple(
        frozenset(np.array(changed.places)[changed.outputs[at][:, number]].tolist()) - {NO_PLACE}
        for changed in (operand.by_content for operand in operands)
    )


def _homes(shape: tuple[int, ...], at: int, operands: list[Operand]) -> np.ndarray:
    """For each output number, the single home in the first operand that it reads.

    With several homes, and if the output has the operand's token axes, its tokens are the same. This also holds if a
    query reads nothing because it has a single key.
    """
    homes = np.full(int(np.prod(shape)), NO_PLACE)
    for number, operand in enumerate(operands):
        seen, free = operand.by_home.outputs[at], homes == NO_PLACE
        several = seen.sum(0)
        one = np.array(operand.by_home.places)[seen.argmax(0)]
        aligned = _aligned(shape, operand.homes, may_grow=len(operands) == 1)
        fits = (aligned != NOWHERE).any()
        if fits and (several > 1).any():
            one = aligned
        homes = np.where(free & (several == 1), one, homes)
        homes = np.where(free & (several > 1), aligned, homes)
        if fits and number == 0 and len(operands) > 1 and (several == 1).any() and (one == aligned)[several == 1].all():
            homes = np.where(several == 0, aligned, homes)
    return homes


def token_axes(homes: np.ndarray) -> list[int]:
    """The axes along which the homes differ, without padding."""
    axes = []
    padding = np.iinfo(homes.dtype).max
    for axis in range(homes.ndim):
        last, first = homes.max(axis), np.where(homes == NO_PLACE, padding, homes).min(axis)
        if ((first != last) & (first != padding)).any():
            axes.append(axis)
    return axes


def _aligned(shape: tuple[int, ...], homes: np.ndarray, *, may_grow: bool) -> np.ndarray:
    axes = token_axes(homes)
    may_grow &= not _summed(shape, homes, axes)
    if (
        not axes
        or len(shape) != homes.ndim
        or any(shape[axis] < homes.shape[axis] or (shape[axis] > homes.shape[axis] and not may_grow) for axis in axes)
    ):
        return np.full(int(np.prod(shape)), NOWHERE)
    others = tuple(axis for axis in range(homes.ndim) if axis not in axes)
    longer = [(0, shape[axis] - homes.shape[axis] if axis in axes else 0) for axis in range(len(shape))]
    padded = np.pad(homes.max(axis=others, keepdims=True), longer, constant_values=NOWHERE)
    return np.broadcast_to(padded, shape).ravel()


def _summed(shape: tuple[int, ...], homes: np.ndarray, axes: list[int]) -> bool:
    """Is an axis that is not of tokens summed to size 1? Other axes may then have moved."""
    if len(shape) != homes.ndim:
        return False
    return any(shape[axis] == 1 < homes.shape[axis] for axis in range(len(shape)) if axis not in axes)


def _where(shape: tuple[int, ...], at: int, operands: list[Operand]) -> np.ndarray:
    """For each number, its index on the axes whose tokens were reduced to fewer summaries."""
    nothing = np.full(int(np.prod(shape)), NO_PLACE)
    if len(operands) != 1 or operands[0].homes.ndim != len(shape):
        return nothing
    before = operands[0].homes
    axes = token_axes(before)
    combines = (operands[0].by_home.outputs[at].sum(0) > 1).any()
    if any(shape[axis] > before.shape[axis] for axis in range(len(shape)) if not combines):
        return nothing
    fewer = [shape[axis] / before.shape[axis] for axis in axes if shape[axis] < before.shape[axis]]
    if _summed(shape, before, axes) or not fewer or not (combines or min(fewer) <= CROPPED):
        return nothing
    along = np.indices(shape)
    return np.ravel_multi_index([along[axis] for axis in axes], [shape[axis] for axis in axes]).ravel()


def learned_places(shape: tuple[int, ...]) -> int:
    """The number of vectors without a token, such as learned queries: the last axis but one."""
    return shape[-2] if len(shape) > 1 else 0


# ── one run of a module in which each number is labelled with the place that it belongs to ──


class Beforehand(NamedTuple):
    """What is known of a module beforehand: `probe_rows` says what each is."""

    positional: frozenset[str] = frozenset()
    states: frozenset[str] = frozenset()
    apart: int = 0
    rounding: float = 0
    paired: bool = False


class LabelledRun:
    """Analyses the calls of a module's leaves, in the order of the run."""

    def __init__(self, inputs: list[Tensor], beforehand: Beforehand, noise: torch.Generator) -> None:
        self.positional, self.states, self.apart = beforehand.positional, beforehand.states, beforehand.apart
        self.rounding, self.noise = beforehand.rounding, noise
        self.tokens = (max if beforehand.paired else sum)(tensor.shape[1] for tensor in inputs)
        self.places, self.labels = Places(self.tokens), LabelledValues()
        self._read: dict[str, dict[tuple[object, int], tuple[set[int], set[int], set[int]]]] = {}
        self._keys: dict[str, int] = {}
        self._apiece: Counter[str] = Counter()
        self._dependent: dict[str, bool] = {}
        self._recurs: set[str] = set()
        self._state_of: dict[int, int] = {}
        self._queries: set[object] = set()
        self._calls = 0
        self._summaries: dict[object, int] = {}
        token = 0
        for tensor in inputs:
            numbers = np.array([self.labels.number(Label(token + n, token + n)) for n in range(tensor.shape[1])])
            self.labels.remember("", tensor, np.broadcast_to(numbers[None, :, None], tensor.shape))
            token += 0 if beforehand.paired else tensor.shape[1]

    @property
    def names(self) -> list[str]:
        """The leaves that have a reading."""
        return list(self._dependent)

    def read(self, name: str) -> Reading:
        """The reading of the leaf."""
        if name in self._keys:
            return Reading(self._keys[name], self._keys[name], self._apiece[name], self._dependent[name], mixes=True)
        places, tokens, mixes = 1, 1, False
        # tokens that are put beside each other in one new token read the same; two learned queries that do are two
        groups = {
            (frozenset(content), home if home in self._queries else None)
            for (home, _), (_, content, _) in self._read[name].items()
            if content
        }
        sets = [content for content, _ in groups]
        disjoint = sum(map(len, sets)) == len(frozenset[int]().union(*sets))
        for (home, _), (counted, content, tokens_read) in self._read[name].items():
            if content - {home} if isinstance(home, int) else len(content) > 1:
                mixes = True
                places = max(places, 1 if name in self._recurs else len(counted or content))
                tokens = max(tokens, len(tokens_read))
        return Reading(places, tokens, self._apiece[name], self._dependent[name], mixes=mixes, disjoint=disjoint)

    def look(self, name: str, call: Call, other: Call) -> None:
        """At one call of a leaf; `other` is the same call on another sample."""
        self._calls += 1
        if name in self.positional:
            keys = max(out.shape[-1] for out in call.outputs)
            self._keys[name] = max(self._keys.get(name, 0), keys)
            self._dependent.setdefault(name, False)
        floats = [at for at, out in enumerate(call.outputs) if out.is_floating_point()]
        if not floats:
            return
        found = {at: self.labels.look_up(call.values[at]) for at in call.floats}
        labelled = [at for at, (labels, _) in found.items() if (labels != UNKNOWN).any()]
        operands = [self._operand(name, call, at, *found[at]) for at in labelled]
        operands.sort(key=lambda operand: operand.own)  # a state doesn't ask
        if any(operand.own for operand in operands):
            self._recurs.add(name)
        self._read.setdefault(name, {})
        for at in floats:
            labels = self._labels(name, call.outputs[at], at, operands)
            self.labels.remember(name, call.outputs[at], labels)
        with_content = {at: found[at][0] for at in labelled if self._has_content(found[at][0])}
        self._compare(name, call, other, with_content)

    def _compare(self, name: str, call: Call, other: Call, labelled: dict[int, np.ndarray]) -> None:
        """Do the weights depend on the input, in this call or an earlier one?"""
        if name not in self.positional:
            made_anew = bool(labelled) and weights_change(call, other, list(labelled), self.noise)
        else:
            vectors = [at for at, labels in labelled.items() if self._are_vectors(labels)]
            made_anew = bool(vectors) and follows(call, other, vectors)
            made_anew = made_anew or (bool(labelled) and weights_change(call, other, list(labelled), self.noise))
        self._dependent[name] = self._dependent.get(name, False) or made_anew

    def _has_content(self, labels: np.ndarray) -> bool:
        """Has any number content from a place that is not learned?"""
        return any(self.labels.labels[number].content != NO_PLACE for number in np.unique(labels[labels != UNKNOWN]))

    def _are_positional(self, labels: np.ndarray) -> bool:
        return any(self.labels.labels[number].position for number in np.unique(labels[labels != UNKNOWN]))

    def _are_vectors(self, labels: np.ndarray) -> bool:
        """Are these neither weights of keys nor weights by position?"""
        found = [self.labels.labels[number] for number in np.unique(labels[labels != UNKNOWN])]
        return not any(label.position or label.content not in {NO_PLACE, label.home} for label in found)

    def _only_weights(self, operands: list[Operand], seen: list[Seen]) -> bool:
        """Are weights of keys changed, without combining other vectors?"""
        others = [
            at
            for at, one in enumerate(operands)
            if at and not one.holds_weights and one.holds_vectors and not self._are_positional(one.labels)
        ]
        return operands[0].holds_weights and all(one.sets[at] <= {one.home} for one in seen for at in others)

    def _operand(self, name: str, call: Call, at: int, labels: np.ndarray, makers: frozenset[str]) -> Operand:
        table = np.array([(label.home, label.content) for label in self.labels.labels] + [(NO_PLACE, NO_PLACE)])
        homes, contents = table[labels, 0], table[labels, 1]
        by_home = self._changed(call, at, homes)
        by_content = by_home if (homes == contents).all() else self._changed(call, at, contents)
        return Operand(labels, homes, contents, name in makers, by_home, by_content)

    def _changed(self, call: Call, at: int, places: np.ndarray) -> Changed:
        used = np.unique(places[places != NO_PLACE])
        groups = torch.from_numpy(places.ravel()[None] == used[:, None])
        if not len(used):
            return Changed([], [np.zeros((0, out.numel()), dtype=bool) for out in call.outputs])
        seen = changes(call, at, groups, self.noise, self.rounding)
        return Changed(used.tolist(), [one.numpy() for one in seen])

    def _labels(self, name: str, out: Tensor, at: int, operands: list[Operand]) -> np.ndarray:
        """The labels of an output's numbers. Their readings are recorded."""
        shape = tuple(out.shape)
        if not operands:
            return self._learned(shape)
        seen, which = distinct(shape, at, operands, self.apart)
        weighs, only_weights = operands[0].holds_weights, self._only_weights(operands, seen)
        read = [self._read_and_content(one, asks=not weighs, weighs=weighs and not only_weights) for one in seen]
        for one, (counted, content) in zip(seen, read, strict=True):
            if one.home != NO_PLACE:
                reader: tuple[object, int] = (one.home, one.list)
                if one.home == NOWHERE:  # all channels of a new token are its own, whichever maximum each of them takes
                    reader = (content if one.where == NO_PLACE else ("call", self._calls), one.where)
                sets = self._read[name].setdefault(reader, (set(), set(), set()))
                sets[0].update(counted)
                self._apiece[name] = max(self._apiece[name], len(counted))
                sets[1].update(content)
                sets[2].update(self.places.represented(content | {one.home} if name in self._recurs else content))
        if only_weights and operands[0].labels.shape == shape:
            read_any = np.array([bool(content) for _, content in read])[which].reshape(shape)
            return np.where(read_any, operands[0].labels, UNKNOWN)  # weights stay weights of the same keys
        contents = [content for _, content in read]
        several, count = _several(seen, contents), max(one.where for one in seen)
        numbers = [
            self._number(name, one, content, several=one.home in several, count=count)
            for one, content in zip(seen, contents, strict=True)
        ]
        alike = all(operand.labels.shape == shape for operand in operands)
        third = [operand for operand in operands if operand.holds_vectors][2:]  # the third operand holds the values
        vectors = name in self._recurs or (weighs and not only_weights) or bool(third)
        if not vectors and self._are_weights(seen, contents, alike=alike):
            self._dependent[name] = self._dependent.get(name, False) or not weighs
            keys = [
                next(iter(counted or content - {one.home}), NO_PLACE)
                for one, (counted, content) in zip(seen, read, strict=True)
            ]
            numbers = [
                self.labels.number(Label(one.home, key)) if one.home != NO_PLACE else UNKNOWN
                for one, key in zip(seen, keys, strict=True)
            ]
        return np.array(numbers)[which].reshape(shape)

    def _read_and_content(self, seen: Seen, *, asks: bool, weighs: bool) -> tuple[frozenset[int], frozenset[int]]:
        """The places that are read, and all contents; a vector that is only a query does not count as read."""
        at_home = {seen.home} | {state for state, home in self._state_of.items() if home == seen.home}
        sets = [one for one in seen.sets if one]
        if not sets:
            return frozenset(), frozenset()
        if weighs and len(sets) > 1:
            sets = sets[1:]
        if asks and sets[0] <= at_home:
            sets = sets[1:]
            if not sets:  # a query of learned keys, or a vector that is only mapped
                return frozenset(), frozenset((seen.home,))
        return max(sets, key=len), frozenset[int]().union(*sets)

    def _are_weights(self, seen: list[Seen], contents: list[frozenset[int]], *, alike: bool) -> bool:
        """Is the content of each number one key, and that of a place several keys or another token?

        With outputs of the operands' shape (`alike`), the latter is a mixture of two vectors.
        """
        of_home: dict[int, set[frozenset[int]]] = {}
        for one, content in zip(seen, contents, strict=True):
            if len(content) > 1 or one.home == NOWHERE:
                return False
            if content:
                of_home.setdefault(one.home, set()).add(content)
        several = any(len(sets) > 1 for sets in of_home.values())
        others = any(sets != {frozenset((home,))} for home, sets in of_home.items())
        tokens = all(place < self.tokens for sets in of_home.values() for content in sets for place in content)
        return several or (others and tokens and not alike)

    def _number(self, name: str, seen: Seen, content: frozenset[int], *, several: bool, count: int) -> int:
        """The label of a vector with this content; `several` vectors may share its place."""
        position = name in self.positional
        home = seen.home
        if home == NO_PLACE:
            return UNKNOWN
        if home == NOWHERE or (name in self.states and content):
            alone = seen.where == NO_PLACE or name in self.states
            place = self._summary((name, content) if alone else (count, seen.where), content)
            return self.labels.number(Label(place, place, position))
        if name in self._recurs:
            state = self._summary((name, home, "state"), content | {home})
            self._state_of[state] = home
            return self.labels.number(Label(home, state, position))
        if home < self.tokens or not content:
            return self.labels.number(Label(home, home if home < self.tokens else NO_PLACE, position))
        if several:  # several vectors share a place
            home = self._summary((name, home, content), content)
        self.places.grow(home, self.places.represented(content))
        return self.labels.number(Label(home, home, position))

    def _summary(self, key: object, content: frozenset[int]) -> int:
        """The place that represents all of `content`, one per key."""
        if key not in self._summaries:
            self._summaries[key] = self.places.add(frozenset())
        self.places.grow(self._summaries[key], self.places.represented(content))
        return self._summaries[key]

    def _learned(self, shape: tuple[int, ...]) -> np.ndarray:
        """Vectors without tokens get places of their own, without content."""
        count = learned_places(shape)
        if not count:
            return np.full(shape, UNKNOWN)
        learned = [self.places.add(frozenset()) for _ in range(count)]
        self._queries.update(learned)
        numbers = [self.labels.number(Label(place, NO_PLACE)) for place in learned]
        return np.broadcast_to(np.array(numbers)[:, None], shape)


def _several(seen: list[Seen], contents: list[frozenset[int]]) -> set[int]:
    """The places whose numbers form groups with disjoint contents."""
    of_home: dict[int, set[frozenset[int]]] = {}
    for one, content in zip(seen, contents, strict=True):
        if content:
            of_home.setdefault(one.home, set()).add(content)
    return {
        home
        for home, groups in of_home.items()
        if len(groups) > 1 and sum(map(len, groups)) == len(frozenset[int]().union(*groups))
    }
