"""Counted ledgers over a range of N or of image sizes: the numbers of a scaling plot.

A sweep over N takes square grids for image specs and any N for sequence specs; a sweep over sizes takes square images.
Points have about equal ratios, for log axes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from xfcost.counting.comparison import CURVES, GROWING
from xfcost.counting.on_devices.bounds import step_bound
from xfcost.counting.system import System, first_scores
from xfcost.ledger.device import DeviceGroup
from xfcost.ledger.errors import SizeError, SpecError, UsageError
from xfcost.ledger.grid import near_square
from xfcost.ledger.ledger import Ledger
from xfcost.spec.run import Run

_NoSize = SpecError | SizeError
"""A system can't have a point of the sweep."""

QUANTITIES: Final[dict[str, Callable[[Ledger], int | None]]] = {
    "params": lambda ledger: ledger.total("params") or 0,
    **CURVES,
    "cache_bytes": GROWING["cache_bytes"],
    "scores": lambda ledger: first_scores(ledger) if ledger.module or ledger.metadata.attention == "eager" else None,
}
"""Name of a figure (as in the CSV) -> its value of a ledger."""


# The lower bound of the time, which needs devices.
LEAST_SECONDS: Final = "least_seconds"
TF32_LEAST_SECONDS: Final = "tf32_least_seconds"


class Axis(NamedTuple):
    """The horizontal axis: N or the image size."""

    option: str
    word: str
    """As in `at N = 784`."""
    label: str
    guides: tuple[tuple[int, str], tuple[int, str]]
    """(slope, label) of a cost quadratic in N and of a linear one."""

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
    system: System
    xs: tuple[int, ...]
    """The N, or the image sides, of its points."""
    ledgers: tuple[Ledger, ...]
    axis: Axis = TOKENS
    ended: str | None = None
    """Why the sweep ends before the range does."""
    skipped: dict[int, str] = {}
    """Skipped points before the last one -> why the system can't have them."""
    on: DeviceGroup | None = None
    """The devices of its lower bounds, with `--on`."""

    def at(self, ledger: Ledger) -> int:
        """The point of a ledger of this system on the axis (its own, or measured at the same input)."""
        if self.axis is PIXELS and ledger.module is not None and ledger.metadata.image is not None:
            return ledger.metadata.image[0]  # the tokens of a module's image are not known
        tokens = [own.metadata.grid_tokens for own in self.ledgers]
        return self.xs[tokens.index(ledger.metadata.grid_tokens)]

    def least_seconds(self, ledger: Ledger) -> dict[str, float]:
        """The lower bound of the time at a point, of float32 also with TF32; nothing without devices."""
        if self.on is None:
            return {}
        bound, tf32 = step_bound(ledger, self.on), self.on.tf32_peak(ledger.metadata.dtype)
        found = {LEAST_SECONDS: bound.seconds}
        if tf32 is not None:
            found[TF32_LEAST_SECONDS] = msgspec.structs.replace(bound, peak=tf32).seconds
        return found

    def values(self, quantity: str) -> Sequence[float | None]:
        """One figure at every point."""
        if quantity in {LEAST_SECONDS, TF32_LEAST_SECONDS}:
            return [self.least_seconds(ledger).get(quantity) for ledger in self.ledgers]
        return [QUANTITIES[quantity](ledger) for ledger in self.ledgers]


def sweep(
    name: str, system: System, run: Run, span: tuple[int, int], extra: Iterable[int] = (), axis: Axis = TOKENS
) -> Sweep:
    """`system` counted at every possible point of `span` and of `extra`.

    Where N exceeds the spec's maximum (a learned position table), the sweep ends there, and `ended` says why.

    Raises:
        SpecError: fewer than two points of the range are possible.
        UsageError: the range has fewer than two square grids or images; or sizes are given for a spec without image.
    """
    points = points_of(system, run, axis)
    steps = _steps(span, points, axis, system.points)
    ledger_at = _ledger_at(system, run, axis)
    ledgers, errors = _counted([points.value(step) for step in steps], ledger_at)
    beyond = [x for x in errors if x > max(ledgers, default=0)]
    if ledgers and beyond:
        fits = max(step for step in steps if points.value(step) in ledgers)
        ledgers |= _largest(ledger_at, fits, next(step for step in steps if step > fits), points.value)
    if len(ledgers) < 2:  # noqa: PLR2004 - a line has two ends
        raise next(iter(errors.values()))
    xs = tuple(sorted(ledgers))
    found = Sweep(
        name=name,
        system=system,
        xs=xs,
        ledgers=tuple(ledgers[x] for x in xs),
        axis=axis,
        ended=str(errors[beyond[0]]) if beyond else None,
        skipped={x: str(error) for x, error in errors.items() if x not in beyond},
        on=run.on,
    )
    return counted_at(found, extra, run)


def _counted(xs: Iterable[int], ledger_at: Callable[[int], Ledger]) -> tuple[dict[int, Ledger], dict[int, _NoSize]]:
    """The ledgers at the possible points, and the errors at the others."""
    ledgers: dict[int, Ledger] = {}
    errors: dict[int, _NoSize] = {}
    for x in xs:
        try:
            ledgers[x] = ledger_at(x)
        except (SpecError, SizeError) as error:
            errors[x] = error
    return ledgers, errors


def common_range(sweeps: Sequence[Sweep], run: Run) -> list[Sweep]:
    """The sweeps cut to the range that all of them cover, every one counted at its ends where it has these points.

    Raises:
        UsageError: there is no such range.
    """
    result = list(sweeps)
    for _ in range(2):  # the second time at ends that were no squares for some
        low, high = max(each.xs[0] for each in result), min(each.xs[-1] for each in result)
        result = [_between(counted_at(each, (low, high), run, only_squares=True), low, high) for each in result]
        if not all(each.xs for each in result):
            break
    if any(len(each.xs) < 2 for each in result):  # noqa: PLR2004 - a line has two ends
        ranges = "; ".join(f"{each.name} from {each.xs[0]:,} to {each.xs[-1]:,}" for each in sweeps)
        raise UsageError(
            f"plot: no range of {sweeps[0].axis.word} is common to all systems ({ranges}); plot them one by one"
        )
    return result


def span_of(sweeps: Sequence[Sweep]) -> tuple[int, int]:
    """The least and the largest point of any sweep."""
    return min(each.xs[0] for each in sweeps), max(each.xs[-1] for each in sweeps)


def counted_at(each: Sweep, xs: Iterable[int], run: Run, *, only_squares: bool = False) -> Sweep:
    """The sweep with the points `xs` inside it that the system can have (of an image spec, on a square grid)."""
    points = points_of(each.system, run, each.axis)
    fits = points.is_step if only_squares else points.includes
    missing = [x for x in xs if each.xs[0] < x < each.xs[-1] and x not in each.xs and fits(x)]
    ledgers, _ = _counted(missing, _ledger_at(each.system, run, each.axis))
    ledgers |= dict(zip(each.xs, each.ledgers, strict=True))
    ordered = tuple(sorted(ledgers))
    return msgspec.structs.replace(each, xs=ordered, ledgers=tuple(ledgers[x] for x in ordered))


def _ledger_at(system: System, run: Run, axis: Axis) -> Callable[[int], Ledger]:
    return lambda x: system.ledger(axis.run(run, x))


def _between(whole: Sweep, low: int, high: int) -> Sweep:
    """The part of a sweep from `low` to `high`."""
    points = [(x, ledger) for x, ledger in zip(whole.xs, whole.ledgers, strict=True) if low <= x <= high]
    xs, ledgers = zip(*points, strict=True) if points else ((), ())
    skipped = {x: why for x, why in whole.skipped.items() if low < x < high}
    return msgspec.structs.replace(whole, xs=xs, ledgers=ledgers, skipped=skipped, ended=None)


class Points(NamedTuple):
    """The possible points of a system: t·(g·1)ʳ, t·(g·2)ʳ and so on."""

    grain: int = 1
    """g: pixels per token."""
    root: int = 1
    """r: 2 where N is the square of a side."""
    times: int = 1
    """t: time steps of a video, which are fixed."""

    def value(self, step: int) -> int:
        """The point number `step`."""
        return self.times * int((step * self.grain) ** self.root)

    def is_step(self, x: int) -> bool:
        """Is `x` the point of some step?"""
        return self.value(round((x // self.times) ** (1 / self.root) / self.grain)) == x

    def includes(self, x: int) -> bool:
        """Is `x` possible, on any grid near to a square?"""
        whole = x % (self.grain * self.times) == 0
        return whole and (self.root == 1 or near_square(x // self.times) is not None)


def points_of(system: System, run: Run, axis: Axis) -> Points:
    """The possible points of a system on an axis, as far as its input decides."""
    if axis is PIXELS:
        return Points(grain=system.pixels(run))
    if system.axes(run) > 1:
        return Points(root=2, times=system.time_steps())
    return Points(grain=system.token_step(), times=system.time_steps())


def _steps(span: tuple[int, int], points: Points, axis: Axis, most: int) -> list[int]:
    """The numbers of points in `span`, in about equal ratios, at `most` so many.

    Raises:
        UsageError: there are fewer than two.
    """
    grain = points.grain * points.times
    low, high = -(-span[0] // grain), span[1] // grain
    if points.root > 1:
        low, high = math.isqrt(low - 1) + 1, math.isqrt(high)
    if low >= high:
        near = [points.value(number) for number in (max(low - 1, 1), max(low, high) + 1)]
        raise UsageError(
            f"{axis.option} {span[0]}:{span[1]}: {_kind(points, axis, grain)}, and there are fewer than two "
            f"in this range; try {axis.option} {near[0]}:{near[1]}"
        )
    ratio = high / low
    return sorted({round(low * ratio ** (number / (most - 1))) for number in range(most)})


def _kind(points: Points, axis: Axis, grain: int) -> str:
    """What a system is swept over, where that is not every N."""
    if axis is TOKENS and points.root == 1:
        return f"it runs at multiples of {grain}"
    squares = "square grids" if points.times == 1 else f"{points.times} square grids each"
    kinds = squares if axis is TOKENS else f"images whose sides are multiples of {grain} pixels"
    return f"image specs are swept over {kinds}"


def _largest(
    ledger_at: Callable[[int], Ledger], fits: int, fails: int, value: Callable[[int], int]
) -> dict[int, Ledger]:
    """The largest possible point between step `fits` and the impossible step `fails`, with its ledger."""
    best: dict[int, Ledger] = {}
    while fails - fits > 1:
        middle = (fits + fails) // 2
        try:
            best = {value(middle): ledger_at(value(middle))}
            fits = middle
        except (SpecError, SizeError):
            fails = middle
    return best


def slope(tokens: Sequence[float], values: Sequence[float | None]) -> float | None:
    """The exponent in N: the slope of the least-squares line through the points, both axes logarithmic."""
    points = [(math.log(n), math.log(value)) for n, value in zip(tokens, values, strict=True) if value]
    if len({x for x, _ in points}) < 2:  # noqa: PLR2004 - a line has two ends
        return None
    mean_x = math.fsum(x for x, _ in points) / len(points)
    mean_y = math.fsum(y for _, y in points) / len(points)
    covariance = math.fsum((x - mean_x) * (y - mean_y) for x, y in points)
    return covariance / math.fsum((x - mean_x) ** 2 for x, _ in points)


def thinned(tokens: Sequence[int], most: int) -> list[int]:
    """At most `most` of `tokens`, in about equal ratios, both ends included."""
    if len(tokens) <= most:
        return list(tokens)
    low, ratio = tokens[0], tokens[-1] / tokens[0]
    targets = [low * ratio ** (number / (most - 1)) for number in range(most)]
    return sorted({min(tokens, key=lambda n, target=target: abs(math.log(n / target))) for target in targets})  # type: ignore[misc]
