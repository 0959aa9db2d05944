"""Measured rows as series: which rows are meant, what is read of each, one series per system and way to run it."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Final, NamedTuple

import msgspec

from xfcost.comparing.sweep import PIXELS, TOKENS, SizeAxis
from xfcost.ledger import units
from xfcost.ledger.errors import UsageError, near_names, nearest, printable
from xfcost.ledger.measurements import Configuration, Counted, Measurement
from xfcost.ledger.metadata import Lane
from xfcost.ledger.statistics import Estimate, Interval
from xfcost.ledger.timing_plan import in_lane
from xfcost.ledger.units import BYTES_PER_ELEMENT


class MeasuredMetric(NamedTuple):
    """One metric of measured rows."""

    title: str
    label: str
    measured: Callable[[Measurement], Estimate | None]
    """None where the row has no such figure."""
    beside: Callable[[Measurement], float | None]
    """What it is compared with: a count, or a prediction in the same unit."""
    beside_word: str
    predicted: bool = False
    """Is that a prediction, in the metric's own unit?"""


def mixing_macs_of(counted: Counted) -> int:
    """MACs of the operations that mix tokens."""
    return sum(costs.get("macs", 0) for kind, costs in counted.by_mixing.items() if kind != "per-token")


def work_of(counted: Counted) -> tuple[int, str]:
    """What time is expected to grow with: FLOPs, or MACs where those are not counted (a training step)."""
    return (counted.macs, "MACs") if counted.flops is None else (counted.flops, "FLOPs")


def _time(row: Measurement) -> Estimate | None:
    timing = row.outcome.timing
    if timing is None or timing.seconds <= 0:
        return None
    interval = timing.interval
    return Estimate(timing.seconds, Interval(*interval) if interval is not None and interval[0] > 0 else None)


def _mixing_time(row: Measurement) -> Estimate | None:
    by_mixing = row.outcome.seconds_by_mixing
    if by_mixing is None:
        return None
    seconds = sum(spent for kind, spent in by_mixing.items() if kind != "per-token")
    return Estimate(seconds, None) if seconds > 0 else None


def _peak(row: Measurement) -> Estimate | None:
    memory = row.outcome.memory
    held = None if memory is None else memory.measured
    return Estimate(held, None) if held is not None and held > 0 else None


def _predicted_peak(row: Measurement) -> float | None:
    return row.outcome.memory.predicted if row.outcome.memory is not None else None


def _less_weights(row: Measurement, bytes_: float | None) -> float | None:
    """A peak less the weights, which do not grow with N; None where that is nothing."""
    weights = row.counted.params * BYTES_PER_ELEMENT.get(row.configuration.dtype, 0)
    return bytes_ - weights if bytes_ is not None and bytes_ > weights > 0 else None


def _activations(row: Measurement) -> Estimate | None:
    peak = _peak(row)
    rest = _less_weights(row, peak and peak.value)
    return None if rest is None else Estimate(rest, None)


METRICS: Final = {
    "time": MeasuredMetric("Time", "time", _time, lambda row: row.counted.macs, "MACs"),
    "mixing-time": MeasuredMetric(
        "Time of token mixing",
        "time of the operations that mix tokens",
        _mixing_time,
        lambda row: mixing_macs_of(row.counted),
        "mixing MACs",
    ),
    "memory": MeasuredMetric("Peak memory", "peak memory", _peak, _predicted_peak, "predicted", predicted=True),
    "activations": MeasuredMetric(
        "Peak memory less weights",
        "peak memory less weights",
        _activations,
        lambda row: _less_weights(row, _predicted_peak(row)),
        "predicted",
        predicted=True,
    ),
}


class SeriesPoint(NamedTuple):
    """A measured figure of a row."""

    x: int
    """N, or the image's side."""
    estimate: Estimate
    row: Measurement


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of one system that were run in one way on one machine."""

    name: str
    """Distinct: the system, and in what this series differs from others."""
    axis: SizeAxis
    rows: tuple[Measurement, ...]
    """The measured ones, ascending on the axis."""
    missing: tuple[Measurement, ...] = ()
    """Those skipped, failed or timed out, ascending."""

    @property
    def configuration(self) -> Configuration:
        """That of its first row: all rows share all of it but the size."""
        return (self.rows or self.missing)[0].configuration

    @property
    def row(self) -> Measurement:
        """Its first row."""
        return (self.rows or self.missing)[0]

    def points(self, reading: MeasuredMetric) -> list[SeriesPoint]:
        """One metric at every N that has it."""
        read = ((row, reading.measured(row)) for row in self.rows)
        return [SeriesPoint(at(row, self.axis), estimate, row) for row, estimate in read if estimate is not None]


def at(row: Measurement, axis: SizeAxis) -> int:
    """The place of a row on the axis."""
    size = row.configuration.size
    return row.configuration.N if axis is TOKENS or size is None else size[0]


def axis_of_rows(rows: Iterable[Measurement]) -> SizeAxis:
    """The image's side, where all rows are of square images; else N."""
    sizes = [row.configuration.size for row in rows]
    return PIXELS if all(size is not None and size[0] == size[1] for size in sizes) else TOKENS


# What one row can differ in from another, with its words in a series' name. The place is one thing: a machine has its
# devices and threads.
Trait = Callable[[Measurement], tuple[str, ...]]


def _options(row: Measurement) -> tuple[str, ...]:
    more = row.configuration.run_options.items()
    return (row.configuration.mode, *(f"{name.replace('_', ' ')} {value}" for name, value in sorted(more)))


PLACE: Final[tuple[Trait, ...]] = (
    lambda row: (row.configuration.device,),
    lambda row: (row.device_name,),
    lambda row: (f"on {row.machine.host}",),
    lambda row: (row.machine.processor, f"{row.machine.cores} cores"),
    lambda row: (units.number_of(row.configuration.threads, "thread"),),
)
RUN: Final[tuple[Trait, ...]] = (
    lambda row: ("no attention" if row.configuration.attention == "no" else row.configuration.attention,),
    lambda row: (f"batch {row.configuration.batch}",),
    lambda row: (row.configuration.dtype,),
    _options,
    lambda row: ("compiled",) if row.configuration.compiled else ("not compiled",),
    lambda row: ("composed",) if row.configuration.composed else ("not composed",),
)


def spec_of(row: Measurement) -> tuple[str, ...]:
    """The system: two specs of one name are two."""
    return row.configuration.system, row.configuration.spec_hash


def place_of(row: Measurement) -> tuple[str, ...]:
    """Machine, device and threads."""
    return tuple(word for trait in PLACE for word in trait(row))


def identity(row: Measurement) -> tuple[tuple[str, ...], ...]:
    """What rows of one series share: the system, the place, and every trait of the run."""
    return spec_of(row), place_of(row), *(trait(row) for trait in RUN)


class Grouped(NamedTuple):
    """The series of some rows."""

    series: list[Series]
    """In the order of their first rows."""
    double: list[Measurement]
    """Rows at a place where their series has a later one: an N and an image size can be the same input."""


def grouped(rows: Sequence[Measurement], axis: SizeAxis) -> Grouped:
    """The rows as series."""
    groups: dict[tuple[tuple[str, ...], ...], dict[int, Measurement]] = {}
    double = []
    for row in rows:
        group = groups.setdefault(identity(row), {})
        if (earlier := group.get(at(row, axis))) is not None:
            double.append(min(earlier, row, key=lambda one: one.ended))
            row = max(earlier, row, key=lambda one: one.ended)  # noqa: PLW2901 - the later one is kept
        group[at(row, axis)] = row
    firsts = [next(iter(group.values())) for group in groups.values()]
    series = []
    for name, group in zip(names_of(firsts), groups.values(), strict=True):
        ordered = [group[x] for x in sorted(group)]
        done = tuple(row for row in ordered if row.outcome.status == "measured")
        missing = tuple(row for row in ordered if row.outcome.status != "measured")
        series.append(Series(name=name, axis=axis, rows=done, missing=missing))
    return Grouped(series, double)


def names_of(firsts: Sequence[Measurement]) -> list[str]:
    """`ViT-S/8 fused, batch 8`: the system, and those words in which some series differ."""
    traits = [trait for trait in (*RUN, *PLACE) if len({trait(row) for row in firsts}) > 1]
    words = [", ".join(dict.fromkeys(word for trait in traits for word in trait(row))) for row in firsts]
    names = [f"{row.configuration.system} {more}".rstrip() for row, more in zip(firsts, words, strict=True)]
    return [
        f"{name} (spec {row.configuration.spec_hash[:8]})" if names.count(name) > 1 else name
        for name, row in zip(names, firsts, strict=True)
    ]


def shared_words(series: Sequence[Series]) -> list[str]:
    """What all series share of their run and place, in words."""
    rows = [one.row for one in series]
    words: list[str] = []
    for trait in (*RUN, *PLACE):
        if len({trait(row) for row in rows}) == 1:
            words += trait(rows[0])
    return [word for word in dict.fromkeys(words) if word not in {"not compiled", "not composed"}]


def pairs_of(series: Sequence[Series], most: int) -> list[tuple[int, int]]:
    """The series that are compared: those that differ in one thing, which is not the mode; where none do, all.

    Where more than `most` series differ in the same thing, each is compared with the first.
    """
    # a torch module has its own attention and dtype: compared with a spec they are no difference in the run
    own, its_own = {RUN[0], RUN[2]}, ("its own",)
    traits = []
    for row in (one.row for one in series):
        owned = own if row.configuration.is_module else set()
        ways = (its_own if trait in owned else trait(row) for trait in RUN if trait is not _options)
        traits.append((_options(row), spec_of(row), place_of(row), *ways))

    def differing(one: int, other: int) -> set[int]:
        pairs = enumerate(zip(traits[one], traits[other], strict=True))
        return {number for number, both in pairs if both[0] != both[1] and its_own not in both}

    numbers = range(len(series))
    groups = dict.fromkeys(
        tuple(other for other in numbers if differing(other, one) <= {trait})
        for one in numbers
        for trait in range(1, len(traits[one]))
    )
    pairs = {pair for group in groups for pair in _pairs_in(group, most) if len(differing(*pair)) <= 1}
    return sorted(pairs or _pairs_in(tuple(range(len(series))), most))


def _pairs_in(group: Sequence[int], most: int) -> list[tuple[int, int]]:
    """All pairs of a few; of many every one with the first."""
    return [pair for pair in combinations(group, 2) if len(group) <= most or pair[0] == group[0]]


# Words of a message about what a file has.
_MOST_NAMED: Final = 8

# Option -> its word in a row.
FIELDS: Final[Mapping[str, Callable[[Measurement], str]]] = {
    "machine": lambda row: row.machine.host,
    "device": lambda row: row.configuration.device,
    "threads": lambda row: str(row.configuration.threads),
    "dtype": lambda row: row.configuration.dtype,
    "batch": lambda row: str(row.configuration.batch),
    "attention": lambda row: row.configuration.attention,
    "mode": lambda row: row.configuration.mode,
    "compile": lambda row: "compiled" if row.configuration.compiled else "not compiled",
    "composed": lambda row: "composed" if row.configuration.composed else "not composed",
}


class Choice(NamedTuple):
    """The rows that are asked for."""

    systems: tuple[str, ...] = ()
    """Names of systems, presets or files as they were measured, or patterns; () for all."""
    fields: Mapping[str, tuple[str, ...]] = {}
    """Option -> the words that are taken."""
    axis: SizeAxis | None = None
    span: tuple[int, int] | None = None
    """From where to where on that axis."""
    lane: Lane | None = "wall"
    """Of which lane of a GPU the seconds are; None: of its kernels, where all timed rows have them."""


class ChosenRows(NamedTuple):
    """The rows that a choice takes, and what it leaves out."""

    rows: list[Measurement]
    axis: SizeAxis
    left_out: list[str]


def chosen(rows: Sequence[Measurement], choice: Choice, file: str) -> ChosenRows:
    """The rows that `choice` takes.

    Raises:
        UsageError: no row is left by one of the options.
    """
    texts: list[str] = []
    kept = list(rows)
    if choice.systems:
        for name in choice.systems:
            if not any(_is_called(row, name) for row in rows):
                systems = {row.configuration.system for row in rows}
                known = systems | {row.configuration.target for row in rows}
                near = nearest(name, known if near_names(name, known) else systems)
                raise UsageError(f"{file}: has no row of {printable(name)}; {near}")
        kept = _kept_rows(
            kept,
            lambda row: any(_is_called(row, name) for name in choice.systems),
            lambda row: row.configuration.system,
            texts,
        )
    for option, words in choice.fields.items():
        read = FIELDS[option]
        if not any(_is_one_of(option, read(row), words) for row in kept):
            raise UsageError(
                f"--{option} {printable(','.join(words))}: {file} has no such row; its rows have {_listed(kept, read)}"
            )
        kept = _kept_rows(kept, lambda row, o=option, w=words, r=read: _is_one_of(o, r(row), w), read, texts)  # type: ignore[misc]
    kept = _in_lane(kept, choice.lane, texts, file)
    axis = choice.axis or axis_of_rows(kept)
    kept = _on_axis(kept, axis, texts, file)
    return ChosenRows(_in_span(kept, axis, choice.span, texts, file), axis, texts)


def _in_lane(rows: Sequence[Measurement], lane: Lane | None, texts: list[str], file: str) -> list[Measurement]:
    """The rows with the seconds of a lane of the GPU; timed rows without it are left out."""
    timed = [row for row in rows if row.outcome.timing is not None]
    have = [row for row in timed if row.outcome.timing and row.outcome.timing.lanes and row.outcome.timing.lanes.wall]
    chosen_lane: Lane = lane or ("device" if have and len(have) == len(timed) else "wall")
    if chosen_lane == "wall":
        return list(rows)
    if not have:
        raise UsageError(
            f"--lane {chosen_lane}: {file} has no row with lanes, which rows timed on a GPU have; leave --lane out"
        )
    if len(have) < len(timed):
        texts.append(f"{units.number_of(len(timed) - len(have), 'row')} without lanes")
    found = []
    for row in rows:
        if (timing := row.outcome.timing) is None:
            found.append(row)
        elif row in have:
            outcome = msgspec.structs.replace(row.outcome, timing=in_lane(timing, chosen_lane))
            found.append(msgspec.structs.replace(row, outcome=outcome))
    return found


def _is_called(row: Measurement, name: str) -> bool:
    words = (row.configuration.system, row.configuration.target)
    return name in words or any(fnmatch.fnmatchcase(word, name) for word in words)


def _is_one_of(option: str, word: str, words: Sequence[str]) -> bool:
    """Is it one of the words? `cuda` is every cuda device."""
    return word in words or (option == "device" and word.partition(":")[0] in words)


def _kept_rows(
    rows: Sequence[Measurement],
    is_kept: Callable[[Measurement], bool],
    read: Callable[[Measurement], str],
    texts: list[str],
) -> list[Measurement]:
    """The rows that are kept; of the others a text."""
    others = [row for row in rows if not is_kept(row)]
    if others:
        texts.append(f"{units.number_of(len(others), 'row')} of {_listed(others, read)}")
    return [row for row in rows if is_kept(row)]


def _on_axis(rows: Sequence[Measurement], axis: SizeAxis, texts: list[str], file: str) -> list[Measurement]:
    """The rows that have a place on the axis."""
    if axis is TOKENS:
        known = [row for row in rows if row.configuration.N]
        if not known:
            raise UsageError(f"--N: {file} has no such row whose tokens are known; give --size LOW:HIGH")
        if len(known) < len(rows):
            texts.append(
                f"{units.number_of(len(rows) - len(known), 'row')} of modules on images, whose tokens are not known"
            )
        return known
    square = [row for row in rows if axis_of_rows([row]) is PIXELS]
    if not square:
        raise UsageError(f"--size: {file} has no such row of a square image; leave --size out, or give --N LOW:HIGH")
    if len(square) < len(rows):
        texts.append(f"{units.number_of(len(rows) - len(square), 'row')} without the side of a square image")
    return square


def _in_span(
    rows: Sequence[Measurement], axis: SizeAxis, span: tuple[int, int] | None, texts: list[str], file: str
) -> list[Measurement]:
    if span is None:
        return list(rows)
    inside = [row for row in rows if span[0] <= at(row, axis) <= span[1]]
    if not inside:
        xs = sorted({at(row, axis) for row in rows})
        given = f"{span[0]}:{span[1]}" if span[0] < span[1] else f"{span[0]}"
        raise UsageError(f"{axis.option} {given}: {file} has rows at {axis.word} = {_named([f'{x:,}' for x in xs])}")
    if len(inside) < len(rows):
        texts.append(
            f"{units.number_of(len(rows) - len(inside), 'row')} outside {axis.word} = {span[0]:,} to {span[1]:,}"
        )
    return inside


def _listed(rows: Sequence[Measurement], read: Callable[[Measurement], str]) -> str:
    return _named(list(dict.fromkeys(read(row) for row in rows)))


def _named(words: Sequence[str]) -> str:
    more = [f"and {len(words) - _MOST_NAMED} more"] if len(words) > _MOST_NAMED else []
    return ", ".join([*(printable(word) for word in words[:_MOST_NAMED]), *more])
