"""Systems over a range of N or of image sizes: counted for a plot, chosen to be measured, offered to a reader.

A sweep over N takes square grids for image specs and any N for sequence specs; a sweep over sizes takes square images.
Points have about equal ratios, for log axes.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec

from xfcost.counting.sums import last_true
from xfcost.counting.system import CURVES, GROWING, System, first_scores, without_steps
from xfcost.ledger.device import DeviceGroup
from xfcost.ledger.errors import UsageError, XfcostError
from xfcost.ledger.grid import near_square
from xfcost.ledger.ledger import Ledger
from xfcost.parts.serving.bounds import step_bound
from xfcost.spec.placement import place
from xfcost.spec.run import Run

QUANTITIES: Final[dict[str, Callable[[Ledger], int | None]]] = {
    "params": lambda ledger: ledger.total("params") or 0,
    **CURVES,
    "flops": lambda ledger: ledger.total("flops") or 0,
    "cache_bytes": GROWING["cache_bytes"],
    "scores": first_scores,
}
"""Name of a figure (as in the CSV) -> its value of a ledger."""


# Sizes whose components are counted together: enough to gain, few enough for what is kept.
_TOGETHER: Final = 32
# The lower bound of the time, which needs devices.
LEAST_SECONDS: Final = "least_seconds"


class SizeAxis(NamedTuple):
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


TOKENS: Final = SizeAxis("--N", "N", "N, tokens", ((2, "slope 2 (quadratic)"), (1, "slope 1 (linear)")))
PIXELS: Final = SizeAxis(
    "--size", "side", "side of the image, pixels", ((4, "slope 4 (quadratic in N)"), (2, "slope 2 (linear in N)"))
)


class PossibleSizes(NamedTuple):
    """The N or image sides that a system can have, as far as its input decides: t·(g·1)ʳ, t·(g·2)ʳ and so on."""

    grain: int = 1
    """g: pixels per token."""
    root: int = 1
    """r: 2 where N is the square of a side."""
    times: int = 1
    """t: time steps of a video, which are fixed."""

    @property
    def squares(self) -> bool:
        return self.root > 1

    def value(self, step: int) -> int:
        """The point number `step`."""
        return self.times * int((step * self.grain) ** self.root)

    def step(self, x: int) -> float:
        """The number of the point `x`, between two whole ones where it is no point."""
        return float((x / self.times) ** (1 / self.root) / self.grain)

    def step_below(self, x: int) -> int:
        """The number of the largest point up to `x`."""
        return (math.isqrt(x // self.times) if self.squares else x // self.times) // self.grain

    def is_step(self, x: int) -> bool:
        """Is `x` the point of some step?"""
        return self.value(self.step_below(x)) == x

    def includes(self, x: int) -> bool:
        """Is `x` possible, on any grid near to a square?"""
        whole = x % (self.grain * self.times) == 0
        return whole and (not self.squares or near_square(x // self.times) is not None)


class SizedSystem(msgspec.Struct, frozen=True):
    """A system at the sizes of an axis: searches, plots and closed forms all count it here."""

    system: System
    run: Run
    axis: SizeAxis = TOKENS
    counted: dict[Hashable, tuple[int, dict[str, int]] | None] = msgspec.field(default_factory=dict)
    """Input -> its N and costs; the same system on another axis may share them."""

    @property
    def sizes(self) -> PossibleSizes:
        """Those that its input allows."""
        if self.axis is PIXELS:
            return PossibleSizes(grain=self.system.pixels(self.run))
        if self.system.axes(self.run) > 1:
            return PossibleSizes(root=2, times=self.system.time_steps())
        return PossibleSizes(grain=self.system.token_step(), times=self.system.time_steps())

    def costs(self, x: int) -> tuple[int, dict[str, int]] | None:
        """N and the figures of `CURVES`, counted once; None where it can't have that size."""
        try:
            run = self.axis.run(self.run, x)
            key = self.system.input_key(run)
            if key not in self.counted:
                self.counted[key] = None
                self.counted[key] = self.system.costs(run)
        except XfcostError:
            return None
        return self.counted[key]

    def ledgers(self, xs: Iterable[int]) -> tuple[dict[int, Ledger], dict[int, XfcostError]]:
        """The ledgers at the sizes that it can have, and the errors at the others."""
        ledgers: dict[int, Ledger] = {}
        errors: dict[int, XfcostError] = {}
        left = iter(xs)
        while some := [*islice(left, _TOGETHER)]:
            self.prepare(some)
            for x in some:
                try:
                    ledgers[x] = self.system.ledger(self.axis.run(self.run, x))
                except XfcostError as error:
                    errors[x] = error
        return ledgers, errors

    def prepare(self, xs: Iterable[int]) -> None:
        """Let the system do at once what is quicker so for these sizes, which are counted next; of one nothing is."""
        runs = []
        for run in (self.axis.run(self.run, x) for x in xs):
            with suppress(XfcostError):
                if self.system.input_key(run) not in self.counted:
                    runs.append(run)
        if len(runs) > 1:
            self.system.prepare(runs)

    def first_possible(self, xs: Iterable[int]) -> tuple[int | None, XfcostError | None]:
        """The first of `xs` that it can have; else why it can't have the first of all. A spec is not counted for it."""
        why: XfcostError | None = None
        for x in xs:
            run = self.axis.run(self.run, x)
            loaded = self.system.loaded
            try:
                self.system.ledger(run) if loaded is None else place(loaded, run)
            except XfcostError as error:
                why = why or error
            else:
                return x, None
        return None, why


class CountedSweep(msgspec.Struct, frozen=True, kw_only=True):
    """One system, counted at ascending N or image sizes."""

    name: str
    system: System
    xs: tuple[int, ...]
    """The N, or the image sides, of its points."""
    ledgers: tuple[Ledger, ...]
    axis: SizeAxis = TOKENS
    ended: str | None = None
    """Why the sweep ends before the range does."""
    skipped: dict[int, str] = {}
    """Skipped points before the last one -> why the system can't have them."""
    on: DeviceGroup | None = None
    """The devices of its lower bounds, with `--on`."""
    unpadded: dict[int, Ledger] = {}
    """Two sizes without padding where it pads at others: in the range, else beyond it."""

    def at(self, ledger: Ledger) -> int:
        """The point of a ledger of this system on the axis (its own, or measured at the same input)."""
        size = attrgetter("image" if self.axis is PIXELS else "grid_tokens")  # an image's tokens may not be known
        return self.xs[[size(own.metadata) for own in self.ledgers].index(size(ledger.metadata))]

    def least_seconds(self, ledger: Ledger) -> float | None:
        """The lower bound of the time at a point; None without devices."""
        return None if self.on is None else step_bound(ledger, self.on).seconds

    def values(self, quantity: str) -> Sequence[float | None]:
        """One figure at every point."""
        return [self._value(ledger, quantity) for ledger in self.ledgers]

    def _value(self, ledger: Ledger, quantity: str) -> float | None:
        if quantity == LEAST_SECONDS:
            return self.least_seconds(ledger)
        return QUANTITIES[quantity](ledger)

    @property
    def slope_points(self) -> dict[int, Ledger]:
        """The sizes that a slope is of, the largest, down to a fourth of its tokens or to the next size below.

        They are of those without padding (and without tokens that are left out), where the system has two; else of all.
        """
        points = dict(zip(self.xs, self.ledgers, strict=True))
        whole = {x: ledger for x, ledger in points.items() if without_steps(ledger)}
        whole |= self.unpadded if len(whole) < 2 else {}  # noqa: PLR2004 - a line has two ends
        every = sorted(whole if len(whole) > 1 else points)
        least = min(every[-1] // (2 if self.axis is PIXELS else 4), every[-2])
        return {x: (whole | points)[x] for x in every if x >= least}

    def slope(self, quantity: str) -> float | None:
        """The exponent in N of a figure, through `slope_points`."""
        points = self.slope_points
        return slope(list(points), [self._value(ledger, quantity) for ledger in points.values()])


def sweep(  # noqa: PLR0913 - what is swept
    name: str,
    system: System,
    run: Run,
    span: tuple[int, int],
    extra: Iterable[int] = (),
    axis: SizeAxis = TOKENS,
    *,
    listed: Sequence[int] = (),
) -> CountedSweep:
    """`system` counted at every possible point of `span` and of `extra`, or at those of `listed` alone.

    Where N exceeds the spec's maximum (a learned position table), the sweep ends there, and `ended` says why.

    Raises:
        SpecError: fewer than two points of the range are possible.
        UsageError: the range has fewer than two square grids or images; or sizes are given for a spec without image.
    """
    if run.parallelism is not None:
        raise UsageError(
            "--tensor-parallel, --pipeline, --expert-parallel: a plot divides work perfectly among devices; leave them "
            "out, or give `xfcost analyze` one N"
        )
    sized = SizedSystem(system, run, axis)
    sizes = sized.sizes
    steps = [] if listed else _steps(span, sizes, axis, system.points)
    ledgers, errors = sized.ledgers(listed or map(sizes.value, steps))
    beyond = [x for x in errors if x > max(ledgers, default=0)]
    if ledgers and beyond and not listed:
        fits = max(step for step in steps if sizes.value(step) in ledgers)
        fails = next(step for step in steps if step > fits)
        largest = sizes.value(last_true(lambda step: bool(sized.ledgers([sizes.value(step)])[0]), fits, fails))
        ledgers |= {} if largest in ledgers else sized.ledgers([largest])[0]
    if len(ledgers) < 2:  # noqa: PLR2004 - a line has two ends
        raise next(iter(errors.values()))
    unpadded = _without_padding(ledgers, sized)
    ledgers |= {x: ledger for x, ledger in unpadded.items() if x <= max(ledgers) and not listed}
    xs = tuple(sorted(ledgers))
    found = CountedSweep(
        name=name,
        system=system,
        xs=xs,
        ledgers=tuple(ledgers[x] for x in xs),
        axis=axis,
        ended=str(errors[beyond[-1]]) if beyond else None,
        skipped={x: str(error) for x, error in errors.items() if x not in beyond},
        on=run.on,
        unpadded=unpadded,
    )
    return counted_at(found, extra, run)


def common_range(sweeps: Sequence[CountedSweep], run: Run) -> list[CountedSweep]:
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


def span_of(sweeps: Sequence[CountedSweep]) -> tuple[int, int]:
    """The least and the largest point of any sweep."""
    return min(each.xs[0] for each in sweeps), max(each.xs[-1] for each in sweeps)


def counted_at(each: CountedSweep, xs: Iterable[int], run: Run, *, only_squares: bool = False) -> CountedSweep:
    """The sweep with the points `xs` inside it that the system can have (of an image spec, on a square grid)."""
    sized = SizedSystem(each.system, run, each.axis)
    fits = sized.sizes.is_step if only_squares else sized.sizes.includes
    missing = [x for x in xs if each.xs[0] < x < each.xs[-1] and x not in each.xs and fits(x)]
    ledgers, _ = sized.ledgers(missing)
    ledgers |= dict(zip(each.xs, each.ledgers, strict=True))
    ordered = tuple(sorted(ledgers))
    return msgspec.structs.replace(each, xs=ordered, ledgers=tuple(ledgers[x] for x in ordered))


# Sizes tried from each end of a range for one that needs no padding.
_MOST_TRIED: Final = 120


def _without_padding(ledgers: Mapping[int, Ledger], sized: SizedSystem) -> dict[int, Ledger]:
    """The least and the largest size without padding near the ends, or larger ones; none where all pad."""
    if without_steps(*ledgers.values()):
        return {}

    def first(steps: Iterable[int]) -> dict[int, Ledger]:
        counted = ((x, ledgers.get(x) or sized.ledgers([x])[0].get(x)) for x in map(sized.sizes.value, steps))
        return dict(islice(((x, one) for x, one in counted if one and without_steps(one)), 1))

    low, high = (sized.sizes.step_below(x) for x in (min(ledgers), max(ledgers)))
    found = first(range(low, high + 1)[:_MOST_TRIED]) | first(range(high, low - 1, -1)[:_MOST_TRIED])
    found = found or first(range(high + 1, high + 1 + _MOST_TRIED))
    if len(found) == 1:
        powers = [step for step in (2**power for power in range(high.bit_length())) if step >= low]  # of most blocks
        found |= first([*powers, 2 * sized.sizes.step_below(min(found))])
    return found


def _between(whole: CountedSweep, low: int, high: int) -> CountedSweep:
    points = [(x, ledger) for x, ledger in zip(whole.xs, whole.ledgers, strict=True) if low <= x <= high]
    xs, ledgers = zip(*points, strict=True) if points else ((), ())
    skipped = {x: why for x, why in whole.skipped.items() if low < x < high}
    return msgspec.structs.replace(whole, xs=xs, ledgers=ledgers, skipped=skipped, ended=None)


def _steps(span: tuple[int, int], sizes: PossibleSizes, axis: SizeAxis, most: int) -> list[int]:
    """The numbers of points in `span`, in about equal ratios, at `most` so many."""
    grain = sizes.grain * sizes.times
    low, high = -(-span[0] // grain), span[1] // grain
    if sizes.squares:
        low, high = math.isqrt(low - 1) + 1, math.isqrt(high)
    if low < high:
        return targets_of((low, high), most)
    if axis is PIXELS:
        kind = f"image specs are swept over images whose sides are multiples of {grain} pixels"
    elif not sizes.squares:
        kind = f"it runs at multiples of {grain}"
    else:
        squares = "square grids" if sizes.times == 1 else f"{sizes.times} square grids each"
        kind = f"image specs are swept over {squares}"
    near = [sizes.value(number) for number in (max(low - 1, 1), max(low, high) + 1)]
    raise UsageError(
        f"{axis.option} {span[0]}:{span[1]}: {kind}, and there are fewer than two in this range; "
        f"try {axis.option} {near[0]}:{near[1]}"
    )


def slope(tokens: Sequence[float], values: Sequence[float | None]) -> float | None:
    """The exponent in N: the slope of the least-squares line through the points, both axes logarithmic."""
    points = [(math.log(n), math.log(value)) for n, value in zip(tokens, values, strict=True) if value]
    if len({x for x, _ in points}) < 2:  # noqa: PLR2004 - a line has two ends
        return None
    return statistics.linear_regression(*zip(*points, strict=True)).slope


def thinned(tokens: Sequence[int], most: int) -> list[int]:
    """At most `most` of `tokens`, in about equal ratios, both ends included."""
    if len(tokens) <= most:
        return list(tokens)
    low, ratio = tokens[0], tokens[-1] / tokens[0]
    targets = [low * ratio ** (number / (most - 1)) for number in range(most)]
    return sorted({min(tokens, key=lambda n, target=target: abs(math.log(n / target))) for target in targets})  # type: ignore[misc]


_TIMED: Final = ("seconds", "spread", "runs", "device", "machine", "threads", "noisy")


def records(system: CountedSweep, measured: Sequence[Ledger] = ()) -> list[dict[str, Any]]:
    """One plain dict per point, as in the CSV: counts exact, bytes, seconds; what wasn't measured is None."""
    measured_at = {system.at(ledger): ledger for ledger in measured}
    result = []
    for x, ledger in zip(system.xs, system.ledgers, strict=True):
        metadata, run = ledger.metadata, measured_at.get(x)
        row: dict[str, Any] = {"system": system.name, "spec": metadata.source, "N": metadata.grid_tokens or None}
        row |= {"size": x} if system.axis is PIXELS else {}
        row |= {"image": metadata.image and "x".join(map(str, metadata.image[-2:]))}
        row |= {name: getattr(metadata, name) for name in ("extra_tokens", "batch", "dtype", "attention", "mode")}
        row |= {quantity: value(ledger) for quantity, value in QUANTITIES.items()}
        row |= {} if system.on is None else {LEAST_SECONDS: system.least_seconds(ledger)}
        row |= {f"traced_{name}": traced(run, name) if run else None for name in ("params", "macs", "mixing_macs")}
        timing = run.timing if run else None
        row |= {name: getattr(timing, name, None) for name in _TIMED}
        low, high = (timing.interval if timing else None) or (None, None)
        row |= {"seconds_low": low, "seconds_high": high}
        result.append(row)
    return result


def traced(ledger: Ledger, quantity: str) -> int | None:
    """`params`, `macs` or `mixing_macs` as the trace counted them; None where there was no trace."""
    if quantity == "mixing_macs":
        return ledger.total("traced_macs", lambda row: row.mixes)
    return ledger.total(f"traced_{quantity}")


class SharedPoints(NamedTuple):
    """A sweep, counted also at the points that it shares with others, and where it is measured."""

    sweep: CountedSweep
    xs: tuple[int, ...]


def shared_points(sweeps: Sequence[CountedSweep], run: Run, most: int) -> list[SharedPoints]:
    """At most `most` points that all sweeps have, and the ends of each; without common ones, points of its own."""
    sizes = [SizedSystem(one.system, run, one.axis).sizes for one in sweeps]

    def has(one: CountedSweep, its: PossibleSizes, x: int) -> bool:
        return x in one.xs or (one.xs[0] < x < one.xs[-1] and x not in one.skipped and its.is_step(x))

    every = sorted({x for one in sweeps for x in one.xs})
    common = thinned([x for x in every if all(has(*one, x) for one in zip(sweeps, sizes, strict=True))], most)
    found = []
    for one in sweeps:
        counted = counted_at(one, common, run, only_squares=True)
        shared = {x for x in common if x in counted.xs}
        if len(shared) < 2:  # noqa: PLR2004 - a line has two ends
            found.append(SharedPoints(counted, tuple(thinned(one.xs, most))))
        else:
            found.append(SharedPoints(counted, tuple(sorted({*shared, one.xs[0], one.xs[-1]}))))
    return found


# Points on either side of a target that are tried: some systems can have every other one, or every 32nd.
_MOST_STEPS: Final = 32


class MeasuredSizes(NamedTuple):
    """The points of one system."""

    points: dict[int, int]
    """Number of the target -> N or the image's side, ascending; targets without a point are left out."""
    refused: dict[int, str]
    """N or side of a target without a point -> why the system can't have any near it."""


def targets_of(span: tuple[int, int], number: int) -> list[int]:
    """`number` points over `span` in about equal ratios, both ends included; of a span of one point, that one."""
    low, high = span
    if low == high:
        return [low]
    ratio = (high / low) ** (1 / max(number - 1, 1))
    return sorted({round(low * ratio**step) for step in range(number)})


def measured_grids(
    systems: Sequence[System], run: Run, axis: SizeAxis, span: tuple[int, int], targets: Sequence[int]
) -> list[MeasuredSizes]:
    """The points of every system near the targets, ascending, in `span`.

    Raises:
        SpecError: a system can have no point.
        UsageError: as well, where the input is the reason.
    """
    spacing = targets[1] / targets[0] if len(targets) > 1 else 1.0
    sized = [SizedSystem(one, run, axis) for one in systems]
    sizes = [one.sizes for one in sized]
    chosen: list[list[int]] = [[] for _ in targets]
    grids: dict[int, MeasuredSizes] = {}
    # those with the fewest possible points first: the others can follow them
    for system in sorted(range(len(systems)), key=lambda at: (-sizes[at].root, -sizes[at].grain * sizes[at].times)):
        grid, error = MeasuredSizes({}, {}), None
        for at, target in enumerate(targets):
            near = _near_target(sizes[system], target, span, spacing)
            shared = [x for x in chosen[at] if sizes[system].includes(x)]
            x, why = sized[system].first_possible([*shared, *near])
            if x is None:
                error = error or why
                grid.refused[target] = str(why) if why else f"it has no point near {axis.word} = {target:,}"
            elif x not in grid.points.values():
                grid.points[at] = x
                chosen[at].append(x)
        if not grid.points:
            own, text = sizes[system], f"{span[0]}:{span[1]}" if span[0] < span[1] else f"{span[0]}"
            kinds = "square grids" if own.squares else f"multiples of {own.grain * own.times:,}"
            below = own.step_below(span[0])
            closest = sorted({own.value(max(step, 1)) for step in (below, below + 1)})
            raise error or UsageError(
                f"{axis.option} {text}: {systems[system].name} is measured at {kinds}, and there is none; the nearest "
                f"are {' and '.join(f'{x:,}' for x in closest)}"
            )
        grids[system] = grid
    return [grids[system] for system in range(len(systems))]


def _near_target(sizes: PossibleSizes, target: int, span: tuple[int, int], spacing: float) -> list[int]:
    """The possible sizes that are nearer to `target` than to its neighbours, the nearest first."""
    step = round(sizes.step(target))
    around = map(sizes.value, range(max(step - _MOST_STEPS, 1), step + _MOST_STEPS + 1))
    reach = math.log(spacing) / 2
    distances = {x: abs(math.log(x / target)) for x in around if span[0] <= x <= span[1]}
    if sizes.includes(target):  # also where it is no square
        distances.setdefault(target, reach)
    return sorted((x for x in distances if distances[x] <= reach), key=distances.__getitem__)


# Lengths, and sides of grids, between one and twice it.
_LENGTHS: Final = 16
_SIDES: Final = 32
# So many sides are all listed.
_ALL_SIDES: Final = 240
# The default range: from the own N over this to the own N times that, no further than _MOST.
_BELOW: Final = 16
_ABOVE: Final = 64
_MOST: Final = 2**20


def default_span(own: Sequence[int]) -> tuple[int, int]:
    """The range of N around the systems' own."""
    return max(min(own) // _BELOW, 1), max(min(max(own) * _ABOVE, _MOST), *own)


def size_list(systems: Sequence[System], run: Run, own: Sequence[int], span: tuple[int, int]) -> list[int]:
    """Ascending N in `span`, and the systems' own."""
    grids = [one for one in systems if one.axes(run) > 1]
    steps = math.lcm(*(one.time_steps() for one in grids))
    low, high = span
    found = set(own)
    if grids:
        first, last = math.isqrt(max(low - 1, 0) // steps) + 1, math.isqrt(high // steps)
        sides = range(first, last + 1) if last - first < _ALL_SIDES else _round(first, last, _SIDES)
        found |= {steps * side * side for side in sides}
    else:
        grain = math.lcm(*(one.token_step() for one in systems))
        found |= {length * grain for length in _round(-(-low // grain), high // grain, _LENGTHS)}
    return sorted(found)


def _round(first: int, last: int, between: int) -> Iterator[int]:
    """Numbers with few binary digits, and so multiples of most chunks and windows; both ends of the range too."""
    yield from {first, last} if first <= last else ()
    step = 1
    while step * between <= last:
        # the multiples of `step` up to twice as many as `between`; of 1 all
        octave = (step * digits for digits in range(between if step > 1 else 1, 2 * between))
        yield from (number for number in octave if first <= number <= last)
        step *= 2
