"""The kinds of a ledger's operations, out of what was found of the same operations at small sizes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction
from typing import Final, NamedTuple

from xfcost.ledger.operation import Mixing
from xfcost.torch_models.any_model.work import Work
from xfcost.torch_models.mixing.verdict import FoundOperation

_NOT_RUN: Final = "it did not run at the sizes looked at"
_A_LINE: Final = 3
_VARIES: Final = "its kind differs between inputs"
# Of the parts of an operation, the widest decides.
_WIDENING: Final[tuple[Mixing, ...]] = ("per-token", "local", "global")


class Numbers(NamedTuple):
    """Tokens per token: what it depends on; and where a mask narrows that, what is computed and the median kept."""

    reads: int | None = None
    computed: int | None = None
    kept: int | None = None


class Verdict(NamedTuple):
    """What is found of one operation of the ledger."""

    kind: Mixing
    numbers: Numbers = Numbers()
    content_dependent: bool = False
    missing: str | None = None
    merges_all: bool = False
    """Does it merge all tokens into one vector, and is per-token for that?"""
    filled: Verdict | None = None
    """What it is if its declared window, which holds all tokens, is what bounds it."""


class Seen:
    """What was found in one run."""

    def __init__(self, works: Sequence[Work], found: Sequence[FoundOperation], part: Fraction | None) -> None:
        self.works, self.found, self.part = works, found, part
        self._own = {work.place: work.sequence for work in works}
        self._calls: dict[Hashable, list[int]] = {}
        for work in works:
            self._calls.setdefault(work.call, []).extend(work.sequence)

    def parts(self, work: Work, steps: Sequence[Work]) -> list[FoundOperation]:
        """The ATen operations of the same call as `work`; else those of `steps`, of the loop that `work` is."""
        sequence = self._own.get(work.place) or self._calls.get(work.call)
        if not sequence:
            places = {one.place for one in steps}
            sequence = [number for one in self.works if one.place in places for number in one.sequence]
        return [self.found[number] for number in sequence]

    def lengths(self, work: Work) -> list[int]:
        """The lengths of all axes of the same call as `work`."""
        return next((_lengths(one) for one in self.works if one.place == work.place), [])


class Look(NamedTuple):
    """Runs of several sizes on inputs alike."""

    sizes: list[Seen]
    deciding: int
    """The size whose kinds count: the last but one, which knows what a larger one reads."""
    chooses: bool
    """Are tokens sorted or chosen by what they hold?"""


def fill(works: Sequence[Work], looks: Sequence[Look], window_at: Callable[[str], int], rank: int) -> None:
    """Give every operation its kind; `rank` is the number of axes along which tokens lie."""
    windows = _windows(looks[0].sizes[looks[0].deciding].found, window_at, rank)
    loops = _steps_of_loops(works, looks[0].sizes[looks[0].deciding].works)
    found = [
        (work, _together([_verdict(work, look, loops.get(work.path, []), windows) for look in looks])) for work in works
    ]
    local = {(work.site, verdict.numbers) for work, verdict in found if verdict.kind == "local"}
    for work, of_sizes in found:
        alone = of_sizes.filled
        # does this line have the window among more tokens too?
        verdict = alone if alone is not None and (work.site, alone.numbers) in local else of_sizes
        work.mixing, work.content_dependent = verdict.kind, verdict.content_dependent
        work.kind_missing, work.merges_all = verdict.missing, verdict.merges_all
        work.reads_tokens, work.computed_tokens, work.kept_tokens = verdict.numbers


def _windows(found: Sequence[FoundOperation], window_at: Callable[[str], int], rank: int) -> dict[str, tuple[int, int]]:
    """Module path -> its declared window, and that along all axes of tokens, of what reads all tokens at this size."""
    reads: dict[str, int] = {}
    for one in found:
        if one.kind == "global" and one.reads is not None:
            reads[one.module] = min(reads.get(one.module, one.reads.largest), one.reads.largest)
    windows = {path: window_at(path) for path in reads}
    return {path: (one, one**rank) for path, one in windows.items() if one and reads[path] <= one**rank}


def _steps_of_loops(works: Sequence[Work], small: Sequence[Work]) -> dict[str, list[Work]]:
    """Module path -> what ran there at the small size alone: the steps of a loop that counts as one operation."""
    places = {work.place for work in works}
    loops: dict[str, list[Work]] = {work.path: [] for work in works if work.operation.startswith("xfcost::")}
    for work in small:
        if work.path in loops and work.place not in places:
            loops[work.path].append(work)
    return loops


def _together(verdicts: Sequence[Verdict]) -> Verdict:
    """What holds of the same operation on several inputs."""
    ran = [one for one in verdicts if one.missing != _NOT_RUN] or verdicts[:1]
    if len({one.kind for one in ran}) > 1:
        return next((one for one in ran if one.missing), Verdict("unknown", missing=_VARIES))
    numbers = ran[0].numbers if len({one.numbers for one in ran}) == 1 else Numbers()
    return ran[0]._replace(numbers=numbers, content_dependent=any(one.content_dependent for one in ran))


def _verdict(work: Work, look: Look, steps: Sequence[Work], windows: dict[str, tuple[int, int]]) -> Verdict:
    """Of several ATen operations that count as one."""
    parts = look.sizes[look.deciding].parts(work, steps)
    if not parts:
        return Verdict("unknown", missing=_NOT_RUN)
    for one in parts:
        if one.kind == "unknown":
            return Verdict("unknown", missing=one.reason)
    widest: Mixing = max((one.kind or "per-token" for one in parts), key=_WIDENING.index)
    if widest == "per-token":
        return Verdict("per-token", merges_all=any(one.merges_all for one in parts))
    deciding = [one for one in parts if one.kind == widest]
    path = deciding[0].module
    if widest == "global" and path in windows:
        reason = f"its window of {windows[path][0]} tokens is wider than the sizes looked at"
        fills = all(one.reads and one.reads.largest in windows[path] for one in deciding)
        local = Verdict("local", _numbers(deciding), any(one.content_dependent for one in deciding))
        return Verdict("unknown", missing=reason, filled=local if fills else None)
    seen = [(one.part, _numbers(one.parts(work, steps))) for one in look.sizes]
    numbers = _at_full_size(seen, look.deciding, widest)
    if numbers.reads is None:
        lengths = [one.lengths(work) for one in look.sizes]
        numbers = Numbers(_as_an_axis(lengths, [one.reads for _, one in seen], _lengths(work)))
    return Verdict(widest, numbers, any(one.content_dependent for one in deciding))


def _numbers(parts: Sequence[FoundOperation]) -> Numbers:
    """Of the part that reads most."""
    most = max((one for one in parts if one.reads), key=lambda one: one.reads or (), default=None)
    if most is None or most.reads is None:
        return Numbers()
    if most.computed is None or most.kept is None:
        return Numbers(most.reads.largest)
    return Numbers(most.reads.largest, most.computed.largest, most.kept.median)


def _at_full_size(seen: Sequence[tuple[Fraction | None, Numbers]], deciding: int, kind: Mixing) -> Numbers:
    """The numbers at the given size. What does not grow is as at the deciding size."""
    here, after = seen[deciding][1], seen[-1][1]
    found = [at_full_size([(part, one[field]) for part, one in seen]) for field in range(len(Numbers._fields))]
    reads, computed, kept = found
    if kind == "local":
        reads, kept = here.reads, here.kept if here.kept == after.kept else kept
    kept = None if reads is None else kept
    return Numbers(reads, computed, kept) if here.computed is not None else Numbers(reads)


def _lengths(work: Work) -> list[int]:
    return [length for shape in (*work.inputs, *work.outputs) for length in shape]


def _as_an_axis(lengths: Sequence[list[int]], seen: Sequence[int | None], full: list[int]) -> int | None:
    """The length at the given size of the axis whose length was the number that was `seen`, at each of three sizes."""
    alike = len(seen) >= _A_LINE and {*map(len, lengths)} == {len(full)}
    axes = zip(full, *lengths, strict=True) if alike else ()
    found = {own for own, *others in axes if others == list(seen)}
    return found.pop() if len(found) == 1 else None


def at_full_size(seen: Sequence[tuple[Fraction | None, int | None]]) -> int | None:
    """A number at the given size, from those `seen` at sizes that are parts of it: there, or on a line of three."""
    own = next((number for part, number in seen if part == 1), None)
    if own is not None:
        return own
    points = [(part, number) for part, number in seen if part is not None and number is not None]
    if len(points) < max(_A_LINE, len(seen)):
        return None
    (first, start), (second, end), *others = points
    slope = (end - start) / (second - first)
    value = start + slope * (1 - first)
    confirmed = all(start + slope * (part - first) == number for part, number in others)
    return int(value) if confirmed and value.denominator == 1 else None
