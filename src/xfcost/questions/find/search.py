"""Which configurations of a spec's keys fit, counted one after another, and which presets."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice, product
from math import prod
from typing import Any, Final, NamedTuple

import msgspec

from xfcost.counting.system import System
from xfcost.ledger import units
from xfcost.ledger.errors import UsageError, XfcostError, nearest, printable, shown
from xfcost.ledger.quantization import WeightFormat
from xfcost.parts.serving.cache_blocks import in_blocks
from xfcost.questions.find.costs import Costs, check_asked, figures_of, ledger_costs, model_costs
from xfcost.questions.find.result import (
    FindResult,
    FoundModel,
    NotFitting,
    Question,
    checked_on,
    limited,
    without_time,
)
from xfcost.questions.find.selection import Candidate, FindPart, left_out, merged, reason, selected
from xfcost.questions.find.variables import PRESET, RUN_KEYS, Variable, VariedSpec, is_structural
from xfcost.spec.grammar import ImageInput, Spec
from xfcost.spec.inputs import takes_images
from xfcost.spec.load import Loaded, expanded, is_path, preset_files
from xfcost.spec.models import models
from xfcost.spec.run import Run, chosen_for, weights_of, with_defaults

MOST_CONFIGURATIONS: Final = 10**9
# Combinations of N and batch: systems without a spec are counted in each of them before the search begins.
_MOST_RUNS: Final = 10_000
_CHUNK: Final = 2**8


class Varied(NamedTuple):
    """Systems, and what is varied: the keys of one spec, and N and batch of the run."""

    names: tuple[str, ...]
    variables: tuple[Variable, ...]
    """Of several systems the first is `PRESET`, with their names."""
    opened: Callable[[str, int], System]
    """(name, batch) -> the system."""

    @property
    def size(self) -> int:
        """All configurations."""
        return prod(len(variable.values) for variable in self.variables)


def values_of(variables: Sequence[Variable], number: int) -> dict[str, Any]:
    """Key -> its value in a configuration, given by its number; that of the last key changes first."""
    found: dict[str, Any] = {}
    for variable in reversed(variables):
        number, place = divmod(number, len(variable.values))
        found[variable.key] = variable.values[place]
    return dict(reversed(found.items()))


class CountedSystem(NamedTuple):
    """A system in one run, or why it can't be run so."""

    costs: Costs = Costs()
    weights: WeightFormat | None = None
    more_work: bool = False
    """Does it do more than a server of it?"""
    refused: str | None = None


class FindWork(msgspec.Struct, frozen=True):
    """Answers for configurations, given by their numbers; can be sent to other processes."""

    variables: tuple[Variable, ...]
    structural: tuple[str, ...]
    """The keys whose values are lists or mappings."""
    specs: dict[str, Loaded]
    """By name."""
    counted: dict[tuple[str, int | None, int], CountedSystem]
    """The systems without a spec: name, N, batch -> what it costs."""
    name: str
    """Of the system, where there is only one."""
    run: Run
    dtype: str
    question: Question

    def __call__(self, numbers: Sequence[int]) -> FindPart:
        """The answer for some of them."""
        varied: dict[str, VariedSpec] = {}
        return selected(((number, self._figures(number, varied)) for number in numbers), self.question)

    def _figures(self, number: int, varied: dict[str, VariedSpec]) -> dict[str, Any] | str:
        """The figures of a configuration, or why it is refused."""
        values = values_of(self.variables, number)
        name, run = values.pop(PRESET, self.name), self.run
        tokens, batch = values.pop("N", None), values.pop("batch", run.batch)
        if name not in self.specs:
            counted = self.counted[name, tokens, batch]
            return counted.refused or figures_of(counted.costs, self.dtype, run.on)
        written = {key: values.pop(key) for key in self.structural}
        place = f"{name} {written}"
        try:
            if place not in varied:
                varied[place] = VariedSpec(self.specs[name], written, values)
            own = run._replace(tokens=run.tokens if tokens is None else (tokens,), batch=batch)
            costs = model_costs(varied[place].at(values), own)
        except XfcostError as error:
            return reason(error)
        return figures_of(costs, self.dtype, run.on)


# Work on configurations, a few at a time, in any order.
Mapper = Callable[[Callable[[Sequence[int]], FindPart], Iterable[Sequence[int]]], Iterable[FindPart]]


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
        mapper: does the work on some configurations after others.
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
    sample = limit if limit is not None and limit < total else None
    searched = total if sample is None else sample
    drawn = "" if sample is None else f", {sample:,} drawn at random"
    progress.said(f"{units.number_of(total, 'configuration')} of {keys}{drawn}")
    run = with_defaults(run, ())
    dtype = chosen_for((), run).dtype
    question = checked_on(run.on, dtype, question)
    work, weights = _work(varied, run, dtype, question)
    part = FindPart()
    for one in mapper(work, _chunks(total, sample)):
        part = merged(part, one, question)
        progress.done(part.searched, searched)
    on_front = {candidate.number for candidate in part.front}

    def row(candidate: Candidate) -> FoundModel:
        values = values_of(varied.variables, candidate.number)
        return FoundModel(
            name=" ".join(f"{key}={value_text(value)}" for key, value in values.items()),
            values=tuple(values.values()),
            figures=candidate.figures,
            front=candidate.number in on_front,
        )

    return _result(
        part, sorted(part.drawn, key=lambda one: one.number), question, run, row,
        spec=", ".join(varied.names), keys=tuple(one.key for one in varied.variables), space=varied.size,
        weights=weights,
    )  # fmt: skip


def _work(varied: Varied, run: Run, dtype: str, question: Question) -> tuple[FindWork, dict[str, WeightFormat]]:
    """The work on configurations, and the formats of the systems' weights.

    Raises:
        UsageError: a key is of no spec, or leads nowhere; or the runs of a system without a spec are too many.
    """
    first = varied.opened(varied.names[0], run.batch)
    of_spec = [one for one in varied.variables if one.key not in (*RUN_KEYS, PRESET)]
    structural: tuple[str, ...] = ()
    if first.loaded is not None:
        structural = tuple(one.key for one in of_spec if is_structural(first.loaded, one))
        values = {one.key: one.values[0] for one in of_spec}
        VariedSpec(first.loaded, {key: values.pop(key) for key in structural}, values)
    elif of_spec:
        raise UsageError(
            f"--vary {printable(of_spec[0].key)}: it is a key of specs, and {printable(varied.names[0], 80)} has none; "
            "expected --vary N=4k,32k or --vary batch=1,16"
        )
    values_of_run = {one.key: one.values for one in varied.variables if one.key in RUN_KEYS}
    runs = [*product(values_of_run.get("N", (None,)), values_of_run.get("batch", (run.batch,)))]
    if len(runs) > _MOST_RUNS:
        raise UsageError(f"--vary: more than {_MOST_RUNS:,} combinations of N and batch; vary fewer of them")
    specs: dict[str, Loaded] = {}
    counted: dict[tuple[str, int | None, int], CountedSystem] = {}
    for name, (tokens, batch) in product(varied.names, runs):
        if name in specs:
            continue
        own = run._replace(tokens=run.tokens if tokens is None else (tokens,), batch=batch)
        try:
            system = varied.opened(name, batch)
            if system.loaded is not None:
                specs[name] = system.loaded
            else:
                counted[name, tokens, batch] = _counted(system, own, dtype)
        except XfcostError as error:
            refused = reason(error).partition("\n")[0].replace(name, "it")
            counted[name, tokens, batch] = CountedSystem(refused=refused)
    work = FindWork(varied.variables, structural, specs, counted, varied.names[0], run, dtype, question)
    formats = {name: weights_of(run, loaded.weights)[0] for name, loaded in specs.items()}
    formats |= {name: one.weights for (name, *_), one in counted.items()}
    return work, {name: one for name, one in formats.items() if one is not None}


def _chunks(total: int, sample: int | None) -> Iterator[Sequence[int]]:
    """The numbers of all configurations, or those of a sample, some at a time."""
    if sample is None:
        for start in range(0, total, _CHUNK):
            yield range(start, min(start + _CHUNK, total))
        return
    draw = random.Random(0)  # noqa: S311 - no secret
    drawn = (draw.randrange(total) for _ in range(sample))
    while chunk := list(islice(drawn, _CHUNK)):
        yield chunk


def _result(
    part: FindPart, drawn: Iterable[Candidate], question: Question, run: Run, row: Callable[[Candidate], FoundModel],
    **more: Any,
) -> FindResult:  # fmt: skip
    return FindResult(
        question=question,
        run=run,
        searched=part.searched,
        fits=part.fits,
        rows=tuple(map(row, part.first)),
        front=tuple(map(row, part.front)),
        left_out=tuple(left_out(part, question, row)),
        cloud=tuple(tuple(one.figures[name] for name in question.front) for one in drawn),
        **more,
    )


def value_text(value: Any) -> str:
    """A value as `--set` takes it, without spaces."""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


# A spectrogram: not every image is a picture.
_FOLDED: Final = "--size: it keeps one side of its image, folded into the width; give --N"


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


def _counted(system: System, run: Run, dtype: str) -> CountedSystem:
    """A system in a run of this dtype.

    Raises:
        XfcostError: it can't be run so, or it has another dtype.
    """
    if (loaded := system.loaded) is not None:
        if run.size is not None and isinstance(loaded.spec.input, ImageInput) and not takes_images(loaded):
            raise UsageError(_FOLDED)
        return CountedSystem(model_costs(loaded, run), weights_of(run, loaded.weights)[0])
    ledger = system.ledger(run)
    if (own := ledger.metadata.dtype) != dtype:
        raise UsageError(f"it is counted in {own}; give --dtype {own}")
    more_work = ledger.reads_all_experts or system.remakes_keys
    ledger = in_blocks(ledger, run.cache_blocks, lambda tokens, *_: system.ledger(run._replace(tokens=(tokens,))))
    return CountedSystem(ledger_costs(ledger), ledger.metadata.weight_format, more_work)


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
    counted: dict[str, CountedSystem] = {}
    for name, one in systems.items():
        try:
            counted[name] = _counted(one, run, dtype)
        except XfcostError as error:
            counted[name] = CountedSystem(refused=reason(error).replace(one.name, "it"))
    figures = {name: one.refused or figures_of(one.costs, dtype, run.on) for name, one in counted.items()}
    every = question._replace(top=max(len(systems), 1))  # the report lists the first of them
    part, names = selected(enumerate(figures.values()), every), [*systems]
    on_front = {candidate.number for candidate in part.front}

    def row(candidate: Candidate) -> FoundModel:
        name = names[candidate.number]
        return FoundModel(
            name=name, family=_family(name), figures=candidate.figures, front=candidate.number in on_front
        )

    return _result(
        part, part.first, question, run, row,
        not_fitting=tuple(_not_fitting(figures, question)),
        weights={name: one.weights for name, one in counted.items() if one.weights is not None},
        more_work=tuple(name for name, one in counted.items() if one.more_work),
    )  # fmt: skip


def _over(excess: float) -> str:
    """`4.27 % over`; an excess that reads better as a factor, `12.3× as much as`."""
    return f"{100 * excess:.3g} % over" if excess < _FAR else f"{units.ratio(1 + excess)} as much as"


_FAR: Final = 10


def _not_fitting(models: Mapping[str, dict[str, Any] | str], question: Question) -> Iterator[NotFitting]:
    for name, found in models.items():
        family = _family(name) or ""
        if isinstance(found, str):
            yield NotFitting(name=name, family=family, reason=found)
        elif over := [budget for budget in question.budgets if not budget.allows(found[limited(budget)])]:
            reasons = (f"{_over(budget.excess(found[limited(budget)]))} {budget.text()}" for budget in over)
            figures = without_time(found, over)
            yield NotFitting(name=name, family=family, reason="; ".join(reasons), figures=figures)
