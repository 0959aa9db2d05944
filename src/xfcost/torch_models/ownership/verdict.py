"""The kinds of all operations of a run, from what they read at one or two sizes."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from torch import Tensor, nn

from xfcost.torch_models.ownership.call import Finding
from xfcost.torch_models.ownership.follower import Follower, Noted, TokenAxes, run_followed
from xfcost.torch_models.ownership.found import FoundOperation, Kind, Reads

Inputs = tuple[tuple[Any, ...], dict[str, Any]]


def follow(
    module: nn.Module,
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    token_axes: TokenAxes | None = None,
    larger: Inputs | None = None,
) -> list[FoundOperation]:
    """The operations of a forward pass in the order they run, each with the mixing kind that is found.

    Args:
        module: any module, on the CPU, with real weights: masks are found by their values.
        args: its positional arguments.
        kwargs: its keyword arguments.
        token_axes: the axes along which the tokens of an argument lie, by its position or name; () for none.
        larger: the arguments of a second run with more tokens. Without it, what reads neither all tokens nor a fixed
            kernel is unknown.
    """
    runs = [run_followed(module, args, kwargs or {}, token_axes)]
    if larger is not None:
        runs.append(run_followed(module, *larger, token_axes))
    return verdicts(*runs)


def verdicts(run: Follower, larger: Follower | None = None) -> list[FoundOperation]:
    """The found operations of `run`; `larger` is the same module, or the same of its kind, with more tokens."""
    mixing: set[int] = set()
    for noted in run.noted:
        finding = noted.finding
        if finding is not None and finding.mixes and _stays_mixing(noted, run):
            mixing.add(noted.sequence)
    pairs = _aligned(run.noted, larger.noted) if larger else [None] * len(run.noted)
    larger_mixing = frozenset(
        noted.sequence for noted in (larger.noted if larger else []) if noted.finding and noted.finding.mixes
        and _stays_mixing(noted, larger)  # type: ignore[arg-type]
    )
    found: list[FoundOperation] = []
    global_makers: set[int] = set()
    for noted, other in zip(run.noted, pairs, strict=True):
        numbers = _numbers(noted.finding, run, frozenset(mixing)) if noted.sequence in mixing else None
        others = _numbers(other.finding, larger, larger_mixing) if other and other.finding and larger else None
        kind, reason = _kind(noted, run, numbers, others, global_makers, mixing)
        if kind == "global":
            global_makers.add(noted.sequence)
        found.append(_found(noted, kind, reason, numbers))
    return found


class _Numbers:
    def __init__(self, kept: Reads, computed: Reads, behind: int) -> None:
        self.kept, self.computed, self.behind = kept, computed, behind


def _stays_mixing(noted: Noted, run: Follower) -> bool:
    """Is a merge of disjoint groups read by, or beside, what it merged? Otherwise the groups are the new tokens."""
    finding = noted.finding
    return finding is not None and not (finding.merges and run.places.replacing(noted.sequence))


def _numbers(finding: Finding | None, run: Follower, mixing: frozenset[int]) -> _Numbers | None:
    if finding is None or not finding.mixes or finding.computed is None:
        return None
    computed = _reads(finding.computed)
    kept = computed if finding.kept is None else _reads(finding.kept)
    behind = run.places.tokens_behind(finding.places, mixing)
    made = [place for place in finding.places if run.places.makers.get(place) in mixing]
    if made and (finding.single or finding.places <= run.places.states):
        each = max(run.places.tokens_behind([place], mixing) for place in made)
        kept, computed = (Reads(*(min(each * number, behind) for number in one)) for one in (kept, computed))
    return _Numbers(kept, computed, behind)


def _reads(counts: Tensor) -> Reads:
    counts = counts.flatten().sort().values
    counts = counts[counts > 0]
    if not counts.numel():
        return Reads(0, 0, 0)
    return Reads(int(counts[0]), int(counts[counts.numel() // 2]), int(counts[-1]))


def _kind(  # noqa: PLR0913 - one decision
    noted: Noted,
    run: Follower,
    numbers: _Numbers | None,
    others: _Numbers | None,
    global_makers: set[int],
    mixing: set[int],
) -> tuple[Kind | None, str | None]:
    finding = noted.finding
    if finding is None:
        return None, None
    if finding.mixes is None:
        return "unknown", finding.reason
    if numbers is None:
        return "per-token", None
    if any(run.places.makers.get(place) in global_makers for place in finding.places):
        return "global", None
    if others is not None:
        return ("global" if others.kept.largest > numbers.kept.largest else "local"), None
    if finding.bounded:
        return "local", None
    if numbers.kept.largest >= _all_of(finding, run):
        return "global", None
    return "unknown", "whether it grows with N is not known from one size"


def _all_of(finding: Finding, run: Follower) -> int:
    """The number of all places of a sample that the operation reads for any output."""
    counts = Counter(run.places.samples[place] for place in finding.places)
    return max(2, *counts.values())


def _aligned(small: list[Noted], large: list[Noted]) -> list[Noted | None]:
    """For each operation of a run, the same one of the other; of a longer loop, the step at the same part of it."""
    of_large: dict[tuple[str, str], list[Noted]] = defaultdict(list)
    of_small: dict[tuple[str, str], int] = defaultdict(int)
    for noted in large:
        of_large[noted.module, noted.name].append(noted)
    for noted in small:
        of_small[noted.module, noted.name] += 1
    seen: dict[tuple[str, str], int] = defaultdict(int)
    found: list[Noted | None] = []
    for noted in small:
        key = (noted.module, noted.name)
        at, here, there = seen[key], of_small[key], of_large[key]
        seen[key] += 1
        last = len(there) - 1
        index = at if here == len(there) else (last - (here - 1 - at) if at > here // 2 else at)
        found.append(there[index] if 0 <= index <= last else None)
    return found


def _found(noted: Noted, kind: Kind | None, reason: str | None, numbers: _Numbers | None) -> FoundOperation:
    finding = noted.finding
    found = FoundOperation(noted.sequence, noted.module, noted.name, noted.inputs, noted.outputs, kind, reason=reason)
    if numbers is None or finding is None or kind not in {"local", "global", "unknown"}:
        return found
    return found._replace(
        reads=numbers.kept,
        computed=numbers.computed if numbers.computed != numbers.kept else None,
        represents=numbers.behind,
        content_dependent=finding.content_dependent,
    )


