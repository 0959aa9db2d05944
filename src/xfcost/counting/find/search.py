"""Which configurations of a spec's keys fit, and which presets: over arrays, a chunk at a time."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import product
from math import ceil, prod
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from xfcost.counting.find.costs import (
    Costs,
    ModelTotals,
    Term,
    check_asked,
    exact_array,
    joined,
    ledger_costs,
    model_costs,
    most_bytes,
    totals,
)
from xfcost.counting.find.result import (
    FindResult,
    FoundModel,
    LeftOut,
    NotFitting,
    Question,
    checked_on,
    figures_of,
    limited,
    without_time,
)
from xfcost.counting.find.space import Builder, ReasonNumbers, Space, message
from xfcost.counting.find.variables import PRESET, RUN_KEYS, Variable, is_structural
from xfcost.counting.on_devices import FLOPS_PER_MAC
from xfcost.counting.recorded import RecordedModel
from xfcost.counting.system import SpecSystem, System
from xfcost.ledger import units
from xfcost.ledger.device import DeviceGroup
from xfcost.ledger.errors import UsageError, XfcostError, nearest, printable, shown
from xfcost.ledger.quantization import WeightFormat
from xfcost.spec.grammar import ImageInput, Spec
from xfcost.spec.inputs import takes_images
from xfcost.spec.load import expanded, is_path, load, preset_files
from xfcost.spec.models import models
from xfcost.spec.run import Run, chosen_for, weights_of, with_defaults

Array = Any
# Models of a part, and of the whole search, that are drawn in addition to the front.
_DRAWN: Final = 500
_MOST_DRAWN: Final = 4000


class Candidate(NamedTuple):
    """A model among all that are searched."""

    number: int
    """Its place in the search."""
    figures: dict[str, Any]


class FindPart(NamedTuple):
    """What a part of the search found."""

    searched: int = 0
    fits: int = 0
    first: tuple[Candidate, ...] = ()
    front: tuple[Candidate, ...] = ()
    cloud: tuple[tuple[Any, Any], ...] = ()
    """Of some that fit: both quantities of the front."""
    over: tuple[tuple[int, int, Candidate | None], ...] = ()
    """Of every budget: how many are over it, how many over it alone, and the nearest of these."""
    reasons: Counter[str] = Counter()  # noqa: RUF012 - never written to
    """Reason -> how many models it refuses."""


class NumberedReasons(NamedTuple):
    """Why some models can't be."""

    numbers: Array
    """Of each model: 0 where it can be, else a number in `texts`."""
    texts: Sequence[str]


def selected(
    totals: ModelTotals, reasons: NumberedReasons, number: Callable[[int], int], question: Question
) -> FindPart:
    """The answer for some models; `number` is the place in the whole search of a place among these."""
    valid = reasons.numbers == 0
    values = figures_of(totals)
    over = [valid & ~budget.allows(values[limited(budget)]) for budget in question.budgets]
    excesses = sum((one.astype(np.int8) for one in over), np.zeros(len(valid), np.int8))
    fits = np.flatnonzero(valid & (excesses == 0))

    def candidates(places: Iterable[int]) -> tuple[Candidate, ...]:
        return tuple(
            Candidate(number(int(at)), {name: value.item(at) for name, value in values.items()}) for at in places
        )

    nearest = []
    for budget, one in zip(question.budgets, over, strict=True):
        alone = np.flatnonzero(one & (excesses == 1))
        best = candidates([alone[np.argmin(values[limited(budget)][alone])]]) if len(alone) else (None,)
        nearest.append((int(one.sum()), len(alone), best[0]))
    keys = ranks(values[question.sort][fits])
    more, less = (ranks(values[name][fits]) for name in question.front)
    drawn = fits[:: len(fits) // _DRAWN + 1]
    refused = np.bincount(reasons.numbers[~valid]).tolist()
    return FindPart(
        searched=len(valid),
        fits=len(fits),
        first=candidates(fits[first_places(-keys if question.descending else keys, question.top)]),
        front=candidates(fits[front_places(more, less)]),
        cloud=tuple(zip(*(values[name][drawn].tolist() for name in question.front), strict=True)),
        over=tuple(nearest),
        reasons=Counter({reasons.texts[one]: count for one, count in enumerate(refused) if count}),
    )


def ranks(values: Array) -> Array:
    """Numbers in the order of `values`: themselves, or where they are Python's, their ranks."""
    return values if values.dtype != object else np.unique(values, return_inverse=True)[1]


def first_places(keys: Array, top: int) -> Array:
    """The places of the `top` least keys, in order; of equal ones the earlier first."""
    places = np.arange(len(keys))
    if len(keys) > top:
        places = np.flatnonzero(keys <= np.partition(keys, top - 1)[top - 1])
    return places[np.argsort(keys[places], kind="stable")][:top]


def front_places(more: Array, less: Array) -> Array:
    """The places of the front, from the least to the most: none other has as much for as little."""
    order = np.lexsort((-more, less))
    if not len(order):
        return order
    best = np.maximum.accumulate(more[order])
    return order[np.concatenate([[True], best[1:] > best[:-1]])]


def merged(one: FindPart, other: FindPart, question: Question) -> FindPart:
    """The answer of two parts together."""
    sign = -1 if question.descending else 1
    first = sorted([*one.first, *other.first], key=lambda row: (sign * row.figures[question.sort], row.number))
    more, less = question.front
    front: list[Candidate] = []
    by_price = sorted([*one.front, *other.front], key=lambda row: (row.figures[less], -row.figures[more], row.number))
    for row in by_price:
        if not front or row.figures[more] > front[-1].figures[more]:
            front.append(row)
    over = one.over or other.over
    if one.over and other.over:
        found = []
        for budget, ours, theirs in zip(question.budgets, one.over, other.over, strict=True):
            both, quantity = [row for row in (ours[2], theirs[2]) if row is not None], limited(budget)
            best = min(both, key=lambda row, of=quantity: (row.figures[of], row.number), default=None)  # type: ignore[misc]
            found.append((ours[0] + theirs[0], ours[1] + theirs[1], best))
        over = tuple(found)
    cloud = (*one.cloud, *other.cloud)
    return FindPart(
        one.searched + other.searched,
        one.fits + other.fits,
        tuple({row.number: row for row in first}.values())[: question.top],  # a sample may draw one twice
        tuple(front),
        cloud[:: len(cloud) // _MOST_DRAWN + 1],
        over,
        one.reasons + other.reasons,
    )


def left_out(part: FindPart, question: Question, row: Callable[[Candidate], FoundModel]) -> list[LeftOut]:
    """Why models don't fit: every budget with its nearest, then errors, the most frequent first."""
    found = []
    for budget, (count, alone, best) in zip(question.budgets, part.over, strict=bool(part.over)):
        excess = None if best is None else budget.excess(best.figures[limited(budget)])
        near = None if best is None else row(best._replace(figures=without_time(best.figures, [budget])))
        found.append(LeftOut(reason=budget.text(), count=count, alone=alone, nearest=near, excess=excess, budget=True))
    errors = sorted(part.reasons.items(), key=lambda item: (-item[1], item[0]))
    return [*found, *(LeftOut(reason=text, count=count) for text, count in errors)]


MOST_CONFIGURATIONS: Final = 10**12
# Values that are lists or mappings make another spec each, with tables of its own.
MOST_SPECS: Final = 10_000
_CHUNK: Final = 2**16


def spec_system(name: str, settings: Sequence[str], batch: int) -> System:
    """A preset or the spec of a YAML file; its errors are those of `load`."""
    return SpecSystem(load(name, settings))


class Varied(NamedTuple):
    """Systems, and what is varied: the keys of one spec, and N and batch of the run."""

    names: tuple[str, ...]
    settings: tuple[str, ...]
    variables: tuple[Variable, ...]
    """Of several systems the first is `PRESET`, with their names."""
    opened: Callable[[str, Sequence[str], int], System] = spec_system
    """(name, settings, batch) -> the system."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of values of every key."""
        return tuple(len(variable.values) for variable in self.variables)

    @property
    def size(self) -> int:
        """All configurations."""
        return prod(self.sizes)


class Chunk(NamedTuple):
    """Some configurations of one spec."""

    spec: int
    start: int
    """The first of them; of a sample, its first draw."""
    length: int
    sampled: bool


class Specs(NamedTuple):
    """A system with one N and batch, and of a spec one choice of the keys whose values are lists or mappings."""

    fixed: tuple[int | None, ...]
    """The number of the value of each of these keys, and of those of the run; None of the others."""
    space: Space | None
    cache: Space | None
    """The decode steps of a prefill, for the cache that it leaves."""
    weights: tuple[str, WeightFormat | None] = ("", None)
    """The system's name, and the format of its weights."""
    refused: str | None = None
    """Why there is no such spec."""


class FindWork(msgspec.Struct, frozen=True):
    """Answers for chunks; can be sent to other processes."""

    sizes: tuple[int, ...]
    specs: tuple[Specs, ...]
    dtype: str
    question: Question
    on: DeviceGroup | None = None

    def __call__(self, chunk: Chunk) -> FindPart:
        """The answer for one chunk."""
        spec = self.specs[chunk.spec]
        if spec.space is None:
            return FindPart(searched=chunk.length, reasons=Counter({spec.refused or "": chunk.length}))
        indices = self._places(spec, chunk)
        costs, numbers = spec.space.terms.at(indices)
        if spec.cache is not None:
            steps, refused = spec.cache.terms.at(indices)
            costs = costs._replace(cache=np.where(refused == 0, steps.cache, 0))

        def number(place: int) -> int:
            return reduce(
                lambda so_far, one: so_far * one[1] + int(one[0][place]), zip(indices, self.sizes, strict=True), 0
            )

        found = totals(costs, self.dtype, self.on)
        return selected(found, NumberedReasons(numbers, spec.space.reasons), number, self.question)

    def _places(self, spec: Specs, chunk: Chunk) -> list[Any]:
        """For every key the numbers of its values, in the configurations of a chunk."""
        free = [size if fixed is None else 1 for size, fixed in zip(self.sizes, spec.fixed, strict=True)]
        if chunk.sampled:
            draw = np.random.default_rng((chunk.spec, chunk.start))
            found = [draw.integers(size, size=chunk.length) for size in free]
        else:
            rest, found = np.arange(chunk.start, chunk.start + chunk.length), []
            for size in reversed(free):
                rest, last = np.divmod(rest, size) if size > 1 else (rest, np.zeros(chunk.length, np.int64))
                found.insert(0, last)
        return [
            one if fixed is None else np.full(chunk.length, fixed) for one, fixed in zip(found, spec.fixed, strict=True)
        ]


# Work on chunks, in any order.
Mapper = Callable[[Callable[[Chunk], FindPart], Iterable[Chunk]], Iterable[FindPart]]


class FindProgress(NamedTuple):
    """What is reported during a search."""

    said: Callable[[str], None] = lambda text: None
    done: Callable[[int, int], None] = lambda done, total: None
    """Configurations so far, and all."""


def find_in_ranges(
    varied: Varied, run: Run, question: Question, limit: int | None = None,
    mapper: Mapper = map, progress: FindProgress = FindProgress(),  # noqa: B008 - immutable
) -> FindResult:  # fmt: skip
    """Which configurations fit.

    Args:
        varied: the spec and its keys.
        run: the run options.
        question: budgets, order and front.
        limit: at most so many configurations; of a larger space as many are drawn at random, always the same.
        mapper: does the work on chunks.
        progress: what is reported meanwhile.

    Raises:
        UsageError: the space is too large without `limit`, or a key leads nowhere.
    """
    check_asked(run, question.budgets)
    total = varied.size
    keys = units.number_of(len(varied.variables), "key")
    if limit is None and total > MOST_CONFIGURATIONS:
        raise UsageError(
            f"--vary: {total:,} configurations of {keys}, more than {MOST_CONFIGURATIONS:,}; take longer steps, or "
            "--limit 1M for a random sample of a million"
        )
    sampled = limit is not None and limit < total
    searched = limit if sampled and limit is not None else total
    drawn = f", {searched:,} drawn at random" if sampled else ""
    progress.said(f"{units.number_of(total, 'configuration')} of {keys}{drawn}")
    run = with_defaults(run, ())
    dtype = chosen_for((), run).dtype
    question = checked_on(run.on, dtype, question)
    specs = tuple(_specs(varied, run, dtype, progress.said))
    work = FindWork(sizes=varied.sizes, specs=specs, dtype=dtype, question=question, on=run.on)
    part = FindPart()
    for one in mapper(work, _chunks(varied, specs, limit if sampled else None)):
        part = merged(part, one, question)
        progress.done(part.searched, searched)
    return _find_result(varied, part, run, question, _formats(one.weights for one in specs))


def _formats(weights: Iterable[tuple[str, WeightFormat | None]]) -> dict[str, WeightFormat]:
    return {name: one for name, one in weights if one is not None}


def _specs(varied: Varied, run: Run, dtype: str, said: Callable[[str], None]) -> Iterator[Specs]:
    """The systems with every N and batch, and every choice of the keys whose values are lists or mappings.

    Raises:
        UsageError: these are too many, or a key is of no spec.
    """
    structural, first = [], varied.opened(varied.names[0], varied.settings, run.batch)
    for one in varied.variables:
        if one.key in (*RUN_KEYS, PRESET):
            structural.append(True)
        elif isinstance(first, SpecSystem):
            structural.append(is_structural(json.loads(json.dumps(first.loaded.data)), one))
        else:
            raise UsageError(
                f"--vary {printable(one.key)}: it is a key of specs, and {printable(varied.names[0], 80)} has none; "
                "expected --vary N=4k,32k or --vary batch=1,16"
            )
    choices = [
        range(len(variable.values)) if own else (None,)
        for variable, own in zip(varied.variables, structural, strict=True)
    ]
    if prod(map(len, choices)) > MOST_SPECS:
        raise UsageError(
            f"--vary: more than {MOST_SPECS:,} combinations of N, batch and values that are lists; vary fewer of them"
        )
    free = [(number, one) for number, one in enumerate(varied.variables) if not structural[number]]
    for fixed in product(*choices):
        values = {
            variable.key: variable.values[number]
            for variable, number in zip(varied.variables, fixed, strict=True)
            if number is not None
        }
        name = values.pop(PRESET, varied.names[0])
        tokens, batch = values.pop("N", None), values.pop("batch", run.batch)
        own = run._replace(tokens=run.tokens if tokens is None else (tokens,), batch=batch)
        texts = [f"{key}={json.dumps(value)}" for key, value in values.items()]
        try:
            system = varied.opened(name, (*varied.settings, *texts), batch)
            counted = None if isinstance(system, SpecSystem) else _system_costs(system, own, dtype)
        except XfcostError as error:
            yield Specs(fixed, None, None, refused=message(error).partition("\n")[0].replace(name, "it"))
            continue
        cache = None
        if counted is not None:
            space, weights = _constant(counted[0], varied), counted[1]
        elif isinstance(system, SpecSystem):
            weights = weights_of(own, system.loaded.weights)[0]
            if run.mode == "prefill":
                cache = Builder(system.loaded, own._replace(mode="decode"), free, varied.sizes, said).space()
            space = Builder(system.loaded, own, free, varied.sizes, said).space()
        yield Specs(fixed, space, cache, (name, weights))


def _constant(costs: Costs, varied: Varied) -> Space:
    """The space of a system without a spec: no key of one changes its costs."""
    cell = Term((), Costs(*(exact_array([one])[0] for one in costs)), np.zeros((), np.int64))
    return Space(joined([cell], varied.sizes), ("",))


def _chunks(varied: Varied, specs: Sequence[Specs], sample: int | None) -> Iterator[Chunk]:
    """All configurations, or the draws of a sample, the same number of each spec."""
    every = varied.size // len(specs)
    length = every if sample is None else ceil(sample / len(specs))
    for number in range(len(specs)):
        own = length if sample is None else max(min(length, sample - number * length), 0)
        for start in range(0, own, _CHUNK):
            yield Chunk(number, start, min(_CHUNK, own - start), sample is not None)


def _find_result(
    varied: Varied, part: FindPart, run: Run, question: Question, weights: dict[str, WeightFormat]
) -> FindResult:
    on_front = {candidate.number for candidate in part.front}

    def row(candidate: Candidate) -> FoundModel:
        values: list[Any] = []
        rest = candidate.number
        for variable in reversed(varied.variables):
            rest, number = divmod(rest, len(variable.values))
            values.insert(0, variable.values[number])
        name = " ".join(
            f"{variable.key}={value_text(value)}" for variable, value in zip(varied.variables, values, strict=True)
        )
        return FoundModel(
            name=name, values=tuple(values), figures=candidate.figures, front=candidate.number in on_front
        )

    keys, names = tuple(variable.key for variable in varied.variables), ", ".join(varied.names)
    more = {"spec": names, "keys": keys, "space": varied.size, "weights": weights}
    return _result(part, question, run, row, cloud=part.cloud, **more)


def _result(
    part: FindPart, question: Question, run: Run, row: Callable[[Candidate], FoundModel], **more: Any
) -> FindResult:
    return FindResult(
        question=question,
        run=run,
        searched=part.searched,
        fits=part.fits,
        rows=tuple(map(row, part.first)),
        front=tuple(map(row, part.front)),
        left_out=tuple(left_out(part, question, row)),
        **more,
    )


def value_text(value: Any) -> str:
    """A value as `--set` takes it, without spaces."""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


# A spectrogram: not every image is a picture.
_FOLDED: Final = "--size: it keeps one side of its image, folded into the width; give --N"


class _CountedPreset(NamedTuple):
    name: str
    family: str | None
    costs: Costs
    weights: WeightFormat | None
    more_work: bool = False
    """Does it do more than a server of it?"""
    refused: str | None = None


def presets_of(names: Sequence[str], families: Collection[str]) -> list[str]:
    """The presets called `names` (all, where there are none), of some families.

    Raises:
        UsageError: there is no such preset or family, or none that is both.
    """
    files = preset_files()
    known = {file.parent.name for file in files.values()}
    for family in families:
        if family not in known:
            raise UsageError(f"--family {shown(family)}: {nearest(family, known)}")
    chosen = expanded(names, models()) if names else list(files)
    found = [name for name in chosen if not families or _family(name) in families]
    if not found:
        raise UsageError(f"--family {','.join(families)}: none of {shown(', '.join(chosen))} is of it; leave it out")
    return found


def _family(name: str) -> str | None:
    file = preset_files().get(name)
    return None if file is None or is_path(name) else file.parent.name


def _system_costs(system: System, run: Run, dtype: str) -> tuple[Costs, WeightFormat | None, bool]:
    """What a system costs in a run of this dtype, the format of its weights, and whether it does more than a server.

    Raises:
        XfcostError: it can't be run so, or it has another dtype.
    """
    if not isinstance(system, SpecSystem):
        ledger = system.ledger(run)
        if (own := ledger.metadata.dtype) != dtype:
            raise UsageError(f"it is counted in {own}; give --dtype {own}")
        more_work = ledger.reads_all_experts or (isinstance(system, RecordedModel) and system.remakes_keys)
        return ledger_costs(ledger), ledger.metadata.weight_format, more_work
    if run.size is not None and isinstance(system.loaded.spec.input, ImageInput) and not takes_images(system.loaded):
        raise UsageError(_FOLDED)
    return model_costs(system.loaded, run), weights_of(run, system.loaded.weights)[0], False


def find_in_gallery(
    systems: Mapping[str, System], kinds: Sequence[Spec | bool], run: Run, question: Question
) -> FindResult:
    """Which of these systems fit, by name; `kinds` are their specs, or say of those without whether they write text.

    Raises:
        UsageError: the mode has several passes.
    """
    check_asked(run, question.budgets)
    run = with_defaults(run, kinds)
    dtype = chosen_for([], run).dtype
    question = checked_on(run.on, dtype, question)
    counted = []
    for name, one in systems.items():
        try:
            counted.append(_CountedPreset(name, _family(name), *_system_costs(one, run, dtype)))
        except XfcostError as error:
            refused = message(error).replace(one.name, "it")
            counted.append(_CountedPreset(name, _family(name), Costs(), None, refused=refused))
    reasons = ReasonNumbers()
    numbers = np.array([reasons.number(one.refused) for one in counted], dtype=np.int64)
    costs = Costs(*(exact_array(column) for column in zip(*(one.costs for one in counted), strict=True)))
    largest = {name: int(column.max()) for name, column in costs._asdict().items()}
    if max(most_bytes(largest), FLOPS_PER_MAC * largest["kept_macs"]) >= 2**63:  # more than int64 holds
        costs = Costs(*(column.astype(object) for column in costs))
    all_totals = totals(costs, dtype, run.on)
    every = question._replace(top=max(len(systems), 1))  # the report lists the first of them
    part = selected(all_totals, NumberedReasons(numbers, reasons.texts), lambda place: place, every)
    on_front = {candidate.number for candidate in part.front}

    def row(candidate: Candidate) -> FoundModel:
        one = counted[candidate.number]
        return FoundModel(
            name=one.name, family=one.family, figures=candidate.figures, front=candidate.number in on_front
        )

    more, less = question.front
    cloud = tuple((one.figures[more], one.figures[less]) for one in part.first)
    left, formats = _not_fitting(counted, run, question), _formats((one.name, one.weights) for one in counted)
    more_work = tuple(one.name for one in counted if one.more_work)
    return _result(part, question, run, row, cloud=cloud, not_fitting=tuple(left), weights=formats, more_work=more_work)


def _over(excess: float) -> str:
    """`4.27 % over`; an excess that reads better as a factor, `12.3× as much as`."""
    return f"{100 * excess:.3g} % over" if excess < _FAR else f"{units.ratio(1 + excess)} as much as"


_FAR: Final = 10


def _not_fitting(counted: Sequence[_CountedPreset], run: Run, question: Question) -> list[NotFitting]:
    dtype, found = chosen_for([], run).dtype, []
    for one in counted:
        family = one.family or ""
        if one.refused is not None:
            found.append(NotFitting(name=one.name, family=family, reason=one.refused))
            continue
        figures = figures_of(totals(one.costs, dtype, run.on))
        over = [budget for budget in question.budgets if not budget.allows(figures[limited(budget)])]
        if over:
            reason = "; ".join(f"{_over(budget.excess(figures[limited(budget)]))} {budget.text()}" for budget in over)
            found.append(NotFitting(name=one.name, family=family, reason=reason, figures=without_time(figures, over)))
    return found
