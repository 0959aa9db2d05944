"""The places of one run: tokens, and groups of tokens that an operation merged."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable
from itertools import repeat
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from xfcost.torch_models.mixing.owners import CONSTANT, LEARNED, distinct_pairs, packed, present

# Of places that belong to none, such as learned ones.
NO_SAMPLE: Final = -2
_NOWHERE: Final = frozenset((CONSTANT, LEARNED))


class Places:
    """All places of one run, by number. The first ones are the tokens of the inputs."""

    def __init__(self) -> None:
        self.samples = array("q")
        """Of each place, the sample that it belongs to; every input has its own."""
        self.births = array("q")
        """Of each place, the number of the operation that made it, or -1."""
        self.members: dict[int, frozenset[int]] = {}
        """Of a merged place, the places that it stands for."""
        self.makers: dict[int, int] = {}
        """Of a merged place, the number of the operation that made it."""
        self.learned: set[int] = set()
        """Vectors out of parameters only, such as learned queries. They are no tokens."""
        self.latents: set[int] = set()
        """Those that were learned at first, such as queries that have read tokens since. They don't grow in number."""
        self.rows: set[int] = set()
        """Those latents that are weighted sums of all tokens: also the rows of one state."""
        self.added: set[int] = set()
        """Learned vectors next to tokens, such as a [CLS] token; or learned keys, which read nothing."""
        self.readers: set[int] = set()
        """Places that have read others."""
        self.combined: dict[int, int] = {}
        """Operations whose merged places met older ones, and when the oldest of these was made."""
        self.paired_makers: list[tuple[int, int]] = []
        """Pairs of operations whose places turned out to be the same."""
        self.states: set[int] = set()
        """Places that are sums over tokens: who reads one reads all tokens in it."""
        self.renewed: dict[int, int] = {}
        """Tokens of a result of unknown kind -> the first of them: which tokens they were before is not known."""
        self.divided: set[int] = set()
        """Operations whose merged places were divided into several tokens again: they mix these."""
        self.parts: set[int] = set()
        """The tokens that merged places were divided into."""
        self._before: dict[int, set[int]] = {}
        """Which operations made the places that an operation merged."""
        self._merged: dict[tuple[int, frozenset[int], int], int] = {}

    def add(self, count: int, sample: int = 0, birth: int = -1) -> int:
        """The first of `count` new places."""
        first = len(self.samples)
        self.samples.extend(repeat(sample, count))
        self.births.extend(repeat(birth, count))
        return first

    def add_learned(self, count: int, birth: int) -> int:
        """The first of `count` new vectors that are learned."""
        first = self.add(count, NO_SAMPLE, birth)
        self.learned.update(range(first, first + count))
        self.latents.update(range(first, first + count))
        return first

    def merged(self, operation: int, members: frozenset[int], part: int = 0) -> int:
        """The place that `operation` makes of `members`, one for each `part`."""
        key = (operation, members, part)
        if key not in self._merged:
            place = self.add(1, self.samples[min(members)], operation)
            self._merged[key] = place
            self.members[place], self.makers[place] = members, operation
            if self.renewed and (renewed := [self.renewed[one] for one in members if one in self.renewed]):
                self.renewed[place] = min(renewed)
            made = {self.makers[member] for member in members if member in self.makers}
            self._before.setdefault(operation, set()).update(made - {operation})
        return self._merged[key]

    def divide(self, homes: Tensor) -> Tensor:
        """`homes`, which were merged, with a token of its own for each index."""
        seen: Counter[int] = Counter()
        tokens = []
        for place in homes.flatten().tolist():
            seen[place] += 1
            tokens.append(self.merged(self.makers[place], self.members[place], seen[place]))
        self.parts.update(tokens)
        self.divided.update(self.makers[place] for place in seen)
        return torch.tensor(tokens).reshape(homes.shape)

    def renew(self, homes: Tensor, operation: int) -> Tensor:
        """`homes` with a new place for each: `operation`, of unknown kind, returned what they hold."""
        places, which = torch.unique(homes, return_inverse=True)
        first = self.add(len(places), birth=operation)
        for place, before in enumerate(places.tolist(), start=first):
            self.samples[place] = self.samples[before] if before >= 0 else NO_SAMPLE
            self.renewed[place] = first
        return torch.where(homes >= 0, which + first, homes)

    def check_acquainted(self, places: Iterable[int]) -> None:
        """Refuse to say which are the same tokens before and after an operation of unknown kind.

        Raises:
            NotImplementedError: there are some of both.
        """
        if self.renewed and len({self.renewed.get(place) for place in places if place >= 0}) > 1:
            raise NotImplementedError("it combines tokens with the output of an operation of unknown kind")

    def groups(self, places: Tensor) -> list[frozenset[int]]:
        """The distinct places of each row."""
        return [frozenset(row) - _NOWHERE for row in places.tolist()]

    def with_members(self, group: frozenset[int]) -> frozenset[int]:
        """A group, with all that its summaries of others of it stand for in their place."""
        summaries = frozenset(place for place in group if self.members.get(place, frozenset()) & group)
        return group.union(*(self.members[place] for place in summaries)) - summaries

    def meet(self, homes: Tensor, read: Tensor) -> None:
        """Each of `homes` reads the place next to it. Merged places that meet older ones did not replace them."""
        readers = present(homes)
        self.readers.update(readers.tolist())
        births, samples = (torch.frombuffer(one, dtype=torch.int64).clone() for one in (self.births, self.samples))
        born = births[torch.cat([readers, present(read)])]
        if not len(born) or born.min() == born.max():  # none is older than another
            return
        known = (homes >= 0) & (read >= 0)
        ours, theirs = homes[known], read[known]
        apart = births[ours] != births[theirs]
        ours, theirs = ours[apart], theirs[apart]
        same = samples[ours] == samples[theirs]
        met = distinct_pairs(births[ours[same]] + 1, births[theirs[same]] + 1) - 1  # -1: an input's token
        for maker, other in zip(met.amax(0).tolist(), met.amin(0).tolist(), strict=True):
            self._combine(maker, other)

    def _combine(self, maker: int, other: int) -> None:
        """Places that `maker` merged met one made by `other`, and so did what they stand for."""
        if other >= maker or self.combined.get(maker, maker) <= other:
            return
        self.combined[maker] = other
        for before in self._before.get(maker, ()):
            self._combine(before, other)

    def replacing(self, operation: int) -> bool:
        """Did the places that `operation` merged replace the old ones, so that nothing met both, nor divided them?"""
        same = {operation}
        while more := {other for pair in self.paired_makers if same & set(pair) for other in pair} - same:
            same |= more
        return not same & (self.combined.keys() | self.divided)

    def without_learned(self, owners: Tensor) -> Tensor:
        """The places `owners` with -1 for those that are learned."""
        return self._without(self.learned, owners)

    def _without(self, left_out: set[int], owners: Tensor) -> Tensor:
        if not left_out:
            return owners
        table = torch.zeros(len(self.samples) + 1, dtype=torch.bool)
        table[list(left_out)] = True
        return torch.where(table[owners.clamp(min=0)], -1, owners)

    def read_by(self, homes: Tensor, contents: Tensor) -> Tensor:
        """What `homes` read of `contents`: -1 for learned places, unless learned ones read nothing but each other."""
        if not self.all_latent(homes):
            return self.without_learned(contents)
        return contents if self.all_latent(contents) else self._without(self.latents, contents)

    def all_latent(self, places: Tensor) -> bool:
        """Is every place one that was learned at first?"""
        if not self.latents:
            return False
        found = set(places.unique().tolist()) - _NOWHERE
        return bool(found) and found <= self.latents

    def has_read(self, operation: int, homes: Tensor, read: Iterable[int]) -> None:
        """Learned vectors that read tokens become places made by `operation`."""
        if not self.learned:
            return
        members = frozenset(read) - self.learned
        for place in set(homes.unique().tolist()) & self.learned:
            if members:
                self.learned.discard(place)
                self.members[place], self.makers[place] = members, operation
                self.births[place], self.samples[place] = operation, self.samples[min(members)]

    def tokens_behind(self, places: Iterable[int], mixing: frozenset[int]) -> int:
        """The number of tokens that `places` stand for; those made by operations not in `mixing` are tokens."""
        found: set[int] = set()
        waiting, seen = list(places), set()
        while waiting:
            place = waiting.pop()
            if place in seen:
                continue
            seen.add(place)
            if self.makers.get(place) in mixing:
                waiting += self.members[place]
            else:
                found.add(place)
        return len(found)


def pair(homes: Tensor, contents: Tensor) -> Tensor:
    """Owners of pairs, from homes and contents or their absence.

    A learned vector has no place: the number belongs to the other. What meets a constant is a constant.
    """
    found = packed(torch.where(homes >= 0, homes, contents), torch.where(contents >= 0, contents, homes))
    return torch.where((homes == CONSTANT) | (contents == CONSTANT), CONSTANT, found)


# ── one query for all tokens of a sample, as in a decoder's loop: told from a summary by a softmax over the tokens ──


class Query(NamedTuple):
    """The place that all tokens of each sample met, and the operations since."""

    of_sample: dict[int, int]
    operations: frozenset[int]
    """That in which they met, and those on what it gave."""


class Queries:
    """The possible single queries behind the tensors of a run."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._behind: Any = WeakTensorKeyDictionary()
        self._met: dict[int, int] = {}

    def meet(self, homes: Tensor, read: Tensor) -> None:
        """Each of `homes` met the place of `read` next to it, in the running operation."""
        known = (homes >= 0) & (read >= 0)
        pairs = distinct_pairs(homes[known], read[known]).T.tolist()
        found: dict[int, set[int]] = {}
        tokens: dict[int, set[int]] = {}
        for place, other in pairs:
            sample = self._places.samples[place]
            found.setdefault(sample, set()).add(other)
            tokens.setdefault(sample, set()).add(place)
        if all(len(found[sample]) == 1 < len(tokens[sample]) for sample in found):
            self._met = {sample: min(others) for sample, others in found.items()}

    @property
    def met(self) -> bool:
        """Did all tokens meet one place in the running operation?"""
        return bool(self._met)

    def are_behind(self, tensor: Tensor) -> bool:
        """May single queries be behind a tensor?"""
        return tensor in self._behind

    def follow(self, sequence: int, given: list[Tensor], results: list[Tensor], *, mixes: bool) -> None:
        """After an operation: its results may be scores if they met one query, or are made of what may be."""
        behind = [query for value in given if (query := self._behind.get(value)) is not None]
        found = Query(self._met, frozenset((sequence,))) if self._met else None
        if behind and not mixes:
            found = behind[0]._replace(operations=behind[0].operations | {sequence})
        self._met = {}
        for result in results:
            if found is not None and result.is_floating_point():
                self._behind[result] = found

    def of(self, tensor: Tensor, homes: Tensor) -> Tensor | None:
        """The query of each of `homes`, if all have one."""
        query = self._behind.get(tensor)
        if query is None:
            return None
        table = [query.of_sample.get(sample, -1) for sample in self._places.samples]
        found = torch.tensor([*table, -1])[homes.clamp(min=-1)]
        return found if bool((found >= 0)[homes >= 0].all()) else None

    def operations(self, tensor: Tensor) -> frozenset[int]:
        """Where the tokens behind `tensor` met the query."""
        query = self._behind.get(tensor)
        return frozenset() if query is None else query.operations
