"""Counted ledgers over a range of N or of image sizes: the numbers behind a scaling plot.

Over N, image specs are swept over square grids, sequence specs over any N; over sizes, image specs over square images.
All in about equal ratios, as log axes want it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from xfcost.counting.comparison import CURVES, GROWING, first_scores
from xfcost.counting.forward import count
from xfcost.ledger.errors import SpecError, UsageError
from xfcost.ledger.grid import near_square
from xfcost.ledger.ledger import Ledger
from xfcost.spec.load import Loaded
from xfcost.spec.walk import Run, input_for, place, time_steps

# Points that a sweep aims at. Windows that don't divide a grid make steps; this many show them as they are.
_POINTS: Final = 97

QUANTITIES: Final[dict[str, Callable[[Ledger], int | None]]] = {
    "params": lambda ledger: ledger.total("params") or 0,
    **CURVES,
    "cache_bytes": GROWING["cache_bytes"],
    "scores": lambda ledger: first_scores(ledger) if ledger.metadata.attention == "eager" else None,
}
"""Name of a figure (as in the CSV) -> how a ledger answers it."""


class Axis(NamedTuple):
    """What costs are swept over."""

    option: str
    word: str
    """As in `at N = 784`."""
    label: str
    guides: tuple[tuple[int, str], tuple[int, str]]
    """(slope, words) of a cost that is quadratic in N, and of a linear one."""

    def run(self, run: Run, x: int) -> Run:
        """`run` at one point."""
        return run._replace(tokens=(x,), size=None) if self is TOKENS else run._replace(tokens=None, size=(x, x))


TOKENS: Final = Axis("--N", "N", "N, tokens of the first stage", ((2, "slope 2 (quadratic)"), (1, "slope 1 (linear)")))
PIXELS: Final = Axis(
    "--size", "side", "side of the image, pixels", ((4, "slope 4 (quadratic in N)"), (2, "slope 2 (linear in N)"))
)


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """One system, counted at ascending N or image sizes."""

    name: str
    loaded: Loaded
    xs: tuple[int, ...]
    """The N, or the image sides, of its points."""
    ledgers: tuple[Ledger, ...]
    axis: Axis = TOKENS
    ended: str | None = None
    """Why the sweep stops short of the range, where it does."""
    skipped: dict[int, str] = {}
    """Points before its last one that it can't have, and why."""

    def at(self, ledger: Ledger) -> int:
        """Where a ledger of this system stands on the axis (one of its own, or measured at the same tokens)."""
        tokens = [one.metadata.grid_tokens for one in self.ledgers]
        return self.xs[tokens.index(ledger.metadata.grid_tokens)]

    def values(self, quantity: str) -> list[int | None]:
        """One figure at every point."""
        return [QUANTITIES[quantity](ledger) for ledger in self.ledgers]


def sweep(
    name: str, loaded: Loaded, run: Run, span: tuple[int, int], extra: Iterable[int] = (), axis: Axis = TOKENS
) -> Sweep:
    """`loaded` counted at every point of `span` that it can have, and at those of `extra`; others are skipped.

    Where N outgrows the spec (a learned position table), the sweep ends at the largest that fits, and says why.

    Raises:
        SpecError: not even two points of the range can be.
        UsageError: the range holds fewer than two square grids or images; or sizes are asked of what has no image.
    """
    points = _points_of(loaded, run, axis)
    steps = _steps(span, points, axis)
    found: dict[int, Ledger] = {}
    refused: dict[int, SpecError] = {}

    def at(x: int) -> Ledger:
        return count(place(loaded, axis.run(run, x)), orders=False)

    for step in steps:
        x = points.at(step)
        try:
            found[x] = at(x)
        except SpecError as error:
            refused[x] = error
    beyond = [x for x in refused if x > max(found, default=0)]
    if found and beyond:
        fits = max(step for step in steps if points.at(step) in found)
        found |= _to_the_limit(at, fits, next(step for step in steps if step > fits), points.at)
    if len(found) < 2:  # noqa: PLR2004 - a line has two ends
        raise next(iter(refused.values()))
    for x in extra:
        if x not in found and min(found) < x < max(found) and points.holds(x):
            found[x] = at(x)
    xs = tuple(sorted(found))
    skipped = {x: str(error) for x, error in refused.items() if x not in beyond}
    ended = str(refused[beyond[0]]) if beyond else None
    ledgers = tuple(found[x] for x in xs)
    return Sweep(name=name, loaded=loaded, xs=xs, ledgers=ledgers, axis=axis, ended=ended, skipped=skipped)


def common_range(sweeps: Sequence[Sweep]) -> list[Sweep]:
    """The points of all sweeps in the range in which every one of them has points.

    Raises:
        UsageError: there is none.
    """
    low, high = max(one.xs[0] for one in sweeps), min(one.xs[-1] for one in sweeps)
    result = [_between(one, low, high) for one in sweeps]
    if any(len(one.xs) < 2 for one in result):  # noqa: PLR2004 - a line has two ends
        each = "; ".join(f"{one.name} from {one.xs[0]:,} to {one.xs[-1]:,}" for one in sweeps)
        raise UsageError(
            f"plot: no range of {sweeps[0].axis.word} is common to all systems ({each}); plot them one by one"
        )
    return result


def span_of(sweeps: Sequence[Sweep]) -> tuple[int, int]:
    """The least and the largest point of any of them."""
    return min(one.xs[0] for one in sweeps), max(one.xs[-1] for one in sweeps)


def range_text(sweeps: Sequence[Sweep]) -> str:
    """Their range as its option takes it, `--N 49:1024`."""
    low, high = span_of(sweeps)
    return f"{sweeps[0].axis.option} {low}:{high}"


def _between(one: Sweep, low: int, high: int) -> Sweep:
    """The part of a sweep from `low` to `high`; that it would end at `high` is no end any more."""
    kept = [(x, ledger) for x, ledger in zip(one.xs, one.ledgers, strict=True) if low <= x <= high]
    xs, ledgers = zip(*kept, strict=True) if kept else ((), ())
    skipped = {x: why for x, why in one.skipped.items() if low < x < high}
    return msgspec.structs.replace(one, xs=xs, ledgers=ledgers, skipped=skipped, ended=None)


class _Points(NamedTuple):
    """Those that a system can have are t·(g·1)ʳ, t·(g·2)ʳ and so on."""

    grain: int = 1
    """Pixels per token."""
    root: int = 1
    """2 where N is a side's square."""
    times: int = 1
    """Time steps of a video, which stay."""

    def at(self, step: int) -> int:
        """The point of a whole number."""
        return self.times * int((step * self.grain) ** self.root)

    def holds(self, x: int) -> bool:
        """Can it be `x`, or so on a grid that is no square?"""
        whole = x % (self.grain * self.times) == 0
        return whole and (self.root == 1 or near_square(x // self.times) is not None)


def _points_of(loaded: Loaded, run: Run, axis: Axis) -> _Points:
    if axis is PIXELS:
        return _Points(grain=max(input_for(loaded, run, (1, 1))))
    grid = len(place(loaded, run).grid.sides) > 1
    return _Points(root=2 if grid else 1, times=time_steps(loaded))


def _steps(span: tuple[int, int], points: _Points, axis: Axis) -> list[int]:
    """Whole numbers in about equal ratios whose points lie in `span`.

    Raises:
        UsageError: there are fewer than two.
    """
    grain = points.grain * points.times
    low, high = -(-span[0] // grain), span[1] // grain
    if points.root > 1:
        low, high = math.isqrt(low - 1) + 1, math.isqrt(high)
    if low >= high:
        near = [points.at(number) for number in (max(low - 1, 1), max(low, high) + 1)]
        squares = "square grids" if points.times == 1 else f"{points.times} square grids each"
        what = squares if axis is TOKENS else f"images whose sides are multiples of {grain} pixels"
        raise UsageError(
            f"{axis.option} {span[0]}:{span[1]}: image specs are swept over {what}, and there are fewer than two "
            f"in this range; try {axis.option} {near[0]}:{near[1]}"
        )
    ratio = high / low
    return sorted({round(low * ratio ** (number / (_POINTS - 1))) for number in range(_POINTS)})


def _to_the_limit(at: Callable[[int], Ledger], fits: int, fails: int, point: Callable[[int], int]) -> dict[int, Ledger]:
    """The largest point that fits, between a step that does and one that doesn't, with its ledger."""
    best: dict[int, Ledger] = {}
    while fails - fits > 1:
        middle = (fits + fails) // 2
        try:
            best = {point(middle): at(point(middle))}
            fits = middle
        except SpecError:
            fails = middle
    return best


def slope(tokens: Sequence[float], values: Sequence[float | None]) -> float | None:
    """The exponent in N: the slope of the least-squares line through the points, both axes logarithmic."""
    points = [(math.log(n), math.log(value)) for n, value in zip(tokens, values, strict=True) if value]
    if len({x for x, _ in points}) < 2:  # noqa: PLR2004 - a line has two ends
        return None
    mean_x = math.fsum(x for x, _ in points) / len(points)
    mean_y = math.fsum(y for _, y in points) / len(points)
    above = math.fsum((x - mean_x) * (y - mean_y) for x, y in points)
    return above / math.fsum((x - mean_x) ** 2 for x, _ in points)


def few(tokens: Sequence[int], most: int) -> list[int]:
    """At most `most` of `tokens`, in about equal ratios, both ends included."""
    if len(tokens) <= most:
        return list(tokens)
    low, ratio = tokens[0], tokens[-1] / tokens[0]
    wanted = [low * ratio ** (number / (most - 1)) for number in range(most)]
    return sorted({min(tokens, key=lambda n, at=at: abs(math.log(n / at))) for at in wanted})  # type: ignore[misc]


def records(one: Sweep, measured: Sequence[Ledger] = ()) -> list[dict[str, Any]]:
    """One plain dict per point, as in the CSV: counts exact, bytes, seconds; what wasn't measured is None."""
    live = {ledger.metadata.grid_tokens: ledger for ledger in measured}
    result = []
    for x, ledger in zip(one.xs, one.ledgers, strict=True):
        metadata, other = ledger.metadata, live.get(ledger.metadata.grid_tokens)
        row: dict[str, Any] = {"system": one.name, "spec": metadata.source, "N": metadata.grid_tokens}
        row |= {"size": x} if one.axis is PIXELS else {}
        row |= {"image": metadata.image and "x".join(map(str, metadata.image[-2:]))}
        row |= {name: getattr(metadata, name) for name in ("extra_tokens", "batch", "dtype", "attention", "mode")}
        row |= {quantity: answer(ledger) for quantity, answer in QUANTITIES.items()}
        row |= {f"traced_{name}": traced(other, name) if other else None for name in ("params", "macs", "mixing_macs")}
        timing = other.timing if other else None
        row |= {name: getattr(timing, name, None) for name in ("seconds", "spread", "runs", "device", "machine")}
        result.append(row)
    return result


def traced(ledger: Ledger, quantity: str) -> int | None:
    """`params`, `macs` or `mixing_macs` as the trace counted them; None where there was no trace."""
    if quantity == "mixing_macs":
        return ledger.total("traced_macs", lambda row: row.mixes)
    return ledger.total(f"traced_{quantity}")
