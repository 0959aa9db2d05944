"""The kinds of all operations of a run, from what they read at one or two sizes."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from typing import Final, Literal, NamedTuple

from torch import Tensor

from xfcost.torch_models.mixing.call import Finding, Shape
from xfcost.torch_models.mixing.follower import BEHIND, Follower, Noted
from xfcost.torch_models.mixing.pointwise import NONLINEAR

# ── what is found of one operation that ran ──


Kind = Literal["per-token", "local", "global", "unknown"]


class Reads(NamedTuple):
    """Tokens read per output token: the smallest, the (lower) median and the largest number."""

    smallest: int
    median: int
    largest: int


class FoundOperation(NamedTuple):
    """One ATen operation that ran, and what its outputs read."""

    sequence: int
    """Its number in the order they ran."""
    module: str
    """Dotted path of the innermost running module; the model itself is ""."""
    name: str
    """`aten.bmm`."""
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    kind: Kind | None
    """None of data movement, and of operations on parameters and constants only."""
    reads: Reads | None = None
    """What a token depends on; None of operations that don't mix tokens."""
    computed: Reads | None = None
    """What is computed for it, where a mask keeps fewer."""
    kept: Reads | None = None
    """What the mask keeps of that: `reads`, unless the mask itself depends on all that is computed."""
    represents: int | None = None
    """The most tokens behind the places that a token reads, where they are groups or states."""
    places: int | None = None
    """The most places that a token reads; of a per-token operation, the tokens that it merges into a new one."""
    merges_all: bool = False
    """Of a per-token operation: does it merge all tokens of a sample into a single new one?"""
    content_dependent: bool | None = None
    """Are the weights computed from the input? Of one that mixes no tokens: does it multiply two activations?"""
    reason: str | None = None
    """Why it is unknown."""


# ── the kinds of all operations of a run, from what they read at one or two sizes ──


_NONLINEAR: Final = frozenset(map(str, NONLINEAR))
_ONE: Final = Reads(1, 1, 1)
# Of one size: a set of fixed size is at most this part of all tokens.
_MOST_PARTS: Final = 4


def verdicts(run: Follower, larger: Follower | None = None) -> list[FoundOperation]:
    """The found operations of `run`; `larger` is the same module, or the same of its kind, with more tokens."""
    small = _read_by_all(run)
    large = _read_by_all(larger) if larger else {}
    others = _aligned(run, larger) if larger else [None] * len(run.noted)
    divided = (run.places.divided, larger.places.divided if larger else set[int]())
    found: list[FoundOperation] = []
    global_makers: set[int] = set()
    for noted, other in zip(run.noted, others, strict=True):
        numbers = small.get(noted.sequence)
        others_numbers = large.get(other.sequence) if other else None
        parted = noted.sequence in divided[0] or (other and other.sequence in divided[1])
        if parted and other and None in {numbers, others_numbers}:  # axes of one length by chance, at one size alone
            numbers = others_numbers = None
        if numbers is None and noted.finding and other and other.finding and other.finding.recurs:  # two steps
            numbers = _Numbers(_ONE, _ONE, 1, other.finding.content_dependent)
        kind, reason = _kind(noted, run, numbers, others_numbers, global_makers)
        if kind and other and other.finding and other.finding.reason == BEHIND:  # an axis of tokens by chance, at one
            kind, reason = "unknown", BEHIND
        if kind == "global" and other is not None and _same_kernel(noted, other):
            kind, numbers = "local", _filling(noted, others_numbers)
        if kind == "global":
            global_makers.add(noted.sequence)
        of_all = kind == "per-token" and noted.finding is not None and _merges_all(noted.finding, run)
        found.append(_found(noted, kind, reason, numbers)._replace(merges_all=of_all))
    return found


def _read_by_all(run: Follower) -> dict[int, _Numbers]:
    """What each mixing operation reads; the steps of a recurrence all read what the last one does."""
    mixing = frozenset(noted.sequence for noted in run.noted if _mixes(noted, run))
    found = {
        sequence: _numbers(finding, run, mixing) for sequence in mixing if (finding := run.noted[sequence].finding)
    }
    loops: dict[Hashable, list[int]] = defaultdict(list)
    for sequence in sorted(mixing):
        noted = run.noted[sequence]
        if noted.finding is not None and noted.finding.step:
            loops[noted.module, noted.name, noted.site].append(sequence)
    for steps in loops.values():
        if any(finding.recurs for step in steps if (finding := run.noted[step].finding) is not None):
            most = max((found[step] for step in steps), key=lambda one: one.kept.largest)
            dependent = any(found[step].content_dependent for step in steps) or _nonlinear(run, steps)
            found |= dict.fromkeys(steps, most._replace(content_dependent=dependent))
    return found


def _nonlinear(run: Follower, steps: list[int]) -> bool:
    """Does it, or a module that it is in, apply a function to its state, so that its weights are not fixed?"""
    module = run.noted[steps[0]].module
    return any(
        noted.finding is not None
        and noted.name.removesuffix("_") in _NONLINEAR
        and f"{module}.".startswith(f"{noted.module}." if noted.module else "")
        for noted in run.noted[steps[0] : steps[-1]]
    )


class _Numbers(NamedTuple):
    kept: Reads
    computed: Reads
    behind: int
    content_dependent: bool
    chosen: bool = False

    @property
    def reads(self) -> Reads:
        """What a token depends on: of a mask out of the input all that is computed, else what the mask keeps."""
        return self.computed if self.chosen else self.kept


def _mixes(noted: Noted, run: Follower) -> bool:
    """Does it mix tokens? Merged disjoint groups that nothing older meets are new tokens, and no mixing."""
    finding = noted.finding
    if finding is None or not finding.mixes or finding.computed is None:
        return False
    return not (finding.merges and run.places.replacing(noted.sequence))


def _numbers(finding: Finding, run: Follower, mixing: frozenset[int]) -> _Numbers:
    idle = 0 if finding.sums or finding.kernel else len(finding.places & (run.places.added - run.places.readers))
    computed = _reads(finding.computed, idle)
    kept = computed if finding.kept is None else _reads(finding.kept, idle)
    made = [place for place in finding.places if run.places.makers.get(place) in mixing]
    if not made:
        return _Numbers(kept, computed, kept.largest, finding.content_dependent, finding.chosen)
    each = max(run.places.tokens_behind([place], mixing) for place in made)
    behind = run.places.tokens_behind(finding.places, mixing)
    if finding.single:
        kept = Reads(each, each, each)
        return _Numbers(kept, kept, each, finding.content_dependent)
    if finding.places <= run.places.states or (finding.sums and len(made) == len(finding.places)):
        kept, computed = (Reads(*(min(each * number, behind) for number in one)) for one in (kept, computed))
    return _Numbers(kept, computed, min(each * kept.largest, behind), finding.content_dependent, finding.chosen)


def _reads(counts: Tensor | None, idle: int = 0) -> Reads:
    """Of the places that each line reads, all but the `idle` ones, which are learned keys and no tokens."""
    if counts is None:
        return Reads(0, 0, 0)
    counts = counts.flatten().sort().values - idle
    counts = counts[counts > 0]
    if not counts.numel():
        return Reads(0, 0, 0)
    return Reads(int(counts[0]), int(counts[(counts.numel() - 1) // 2]), int(counts[-1]))


def _kind(
    noted: Noted, run: Follower, numbers: _Numbers | None, others: _Numbers | None, global_makers: set[int]
) -> tuple[Kind | None, str | None]:
    """The kind, and the reason of an unknown one."""
    finding = noted.finding
    if finding is None:
        return None, None
    if finding.mixes is None:
        return "unknown", finding.reason
    if numbers is None:
        return ("per-token", None) if others is None else ("unknown", "at the smaller size it reads only one token")
    fixed = finding.kernel or finding.latents
    if not fixed and any(run.places.makers.get(place) in global_makers for place in finding.places):
        return "global", None
    grows = _grows(finding, run, numbers, others)
    if grows is None:
        return "unknown", "whether it grows with N is not known from one size"
    return "global" if grows else "local", None


def _same_kernel(noted: Noted, other: Noted) -> bool:
    """Is it a convolution by the same number of weights at both sizes, which reads no more than its kernel holds?"""
    finding = noted.finding
    return finding is not None and finding.kernel and noted.inputs[1:2] == other.inputs[1:2]


def _filling(noted: Noted, numbers: _Numbers | None) -> _Numbers | None:
    """What is read at the larger size, if that fills the kernel."""
    return numbers if numbers is not None and numbers.kept.largest == math.prod(noted.inputs[1][2:]) else None


def _grows(finding: Finding, run: Follower, numbers: _Numbers, others: _Numbers | None) -> bool | None:
    """Does what is read grow with N? By a second size, or where one is enough; else None."""
    if others is not None:
        return others.reads.largest > numbers.reads.largest
    if _merges_all(finding, run):
        return True  # by a kernel that is as large as the map, say
    if finding.bounded or finding.latents or _far_fewer(numbers, _all_of(finding, run)):
        return False
    return True if numbers.reads.largest >= _all_of(finding, run) else None


def _merges_all(finding: Finding, run: Follower) -> bool:
    """Does it merge all tokens of a sample into one?"""
    return finding.merges and _reads(finding.computed).largest >= _all_of(finding, run)


def _far_fewer(numbers: _Numbers, places: int) -> bool:
    """Is the same number computed for all inner tokens, and at most a quarter of what is read by any?"""
    return numbers.computed.median == numbers.computed.largest and _MOST_PARTS * numbers.computed.largest <= places


def _all_of(finding: Finding, run: Follower) -> int:
    """The number of all places of a sample that the operation reads for any output."""
    counts = Counter(run.places.samples[place] for place in finding.places)
    return max([2, *counts.values()])


def _aligned(run: Follower, larger: Follower) -> list[Noted | None]:
    """For each operation of a run, the same one of a larger run; of a longer loop, the step at the same part of it.

    Steps that mix no tokens, such as the first of each direction of a recurrence, are those that mix none in the other.
    """
    sites: tuple[dict[Hashable, list[Noted]], ...] = (defaultdict(list), defaultdict(list))
    for one, of_site in zip((run, larger), sites, strict=True):
        for noted in one.noted:
            of_site[noted.module, noted.name, noted.site].append(noted)
    found: dict[int, Noted] = {}
    for site, here in sites[0].items():
        there = sites[1].get(site, [])
        parts: list[Sequence[list[Noted]]] = [(here, there)]
        if len(here) != len(there):
            mixing, alone = (
                tuple(
                    [noted for noted in part if _mixes(noted, one) == mixes]
                    for part, one in ((here, run), (there, larger))
                )
                for mixes in (True, False)
            )
            parts = [mixing, alone] if mixing[0] and len(alone[1]) >= len(alone[0]) else parts
        for few, many in parts:
            found |= _of_loop(few, many)
    return [found.get(noted.sequence) for noted in run.noted]


def _of_loop(here: list[Noted], there: list[Noted]) -> dict[int, Noted]:
    """The number of each step of a loop -> the step of a longer one at the same part of it."""
    longer = len(there) - len(here)
    places = [at + longer if 2 * at >= len(here) else at for at in range(len(here))]
    return {noted.sequence: there[at] for noted, at in zip(here, places, strict=True) if 0 <= at < len(there)}


def _found(noted: Noted, kind: Kind | None, reason: str | None, numbers: _Numbers | None) -> FoundOperation:
    finding = noted.finding
    found = FoundOperation(noted.sequence, noted.module, noted.name, noted.inputs, noted.outputs, kind, reason=reason)
    if finding is None:
        return found
    found = found._replace(places=_reads(finding.computed).largest or None, content_dependent=finding.content_dependent)
    if numbers is None or kind not in {"local", "global", "unknown"}:
        return found
    return found._replace(
        reads=numbers.reads,
        computed=numbers.computed if numbers.computed != numbers.kept else None,
        kept=numbers.kept if numbers.computed != numbers.kept else None,
        represents=numbers.behind,
        content_dependent=numbers.content_dependent,
    )
