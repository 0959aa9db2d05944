"""One run of a module in which each number is labelled with the place that it belongs to."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from xfcost.torch_models.probing.calls import Call, changes, follows, weights_change
from xfcost.torch_models.probing.labels import NO_PLACE, UNKNOWN, Label, LabelledValues, Places
from xfcost.torch_models.probing.operands import NOWHERE, Changed, Operand, Seen, distinct, learned_places
from xfcost.torch_models.probing.reading import Reading


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
