"""Which configurations of a spec's keys fit: every one, or a sample of them, a chunk at a time."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from itertools import product
from math import ceil, prod
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from xfcost.counting.find.costs import check_asked, totals
from xfcost.counting.find.devices import checked_on
from xfcost.counting.find.result import Found, Question, Row
from xfcost.counting.find.selection import Candidate, Part, Reasons, left_out, merged, selected
from xfcost.counting.find.space import Builder, Space
from xfcost.counting.find.units import message
from xfcost.counting.find.variables import Variable, is_structural
from xfcost.ledger.device import DeviceGroup
from xfcost.ledger.errors import UsageError, XfcostError
from xfcost.spec.default_options import chosen_for, with_defaults
from xfcost.spec.load import Loaded, load
from xfcost.spec.run import Run

MOST_CONFIGURATIONS: Final = 10**12
# Values that are lists or mappings make another spec each, with tables of its own.
MOST_SPECS: Final = 10_000
_CHUNK: Final = 2**16


class Varied(NamedTuple):
    """A spec, and the keys that are varied."""

    name: str
    settings: tuple[str, ...]
    variables: tuple[Variable, ...]

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
    """A spec with one choice of the keys whose values are lists or mappings."""

    fixed: tuple[int | None, ...]
    """The number of the value of each of these keys; None of the others."""
    space: Space | None
    cache: Space | None
    """The decode steps of a prefill, for the cache that it leaves."""
    refused: str | None = None
    """Why there is no such spec."""


class Work(msgspec.Struct, frozen=True):
    """Answers for chunks; can be sent to other processes."""

    sizes: tuple[int, ...]
    specs: tuple[Specs, ...]
    dtype: str
    question: Question
    on: DeviceGroup | None = None

    def __call__(self, chunk: Chunk) -> Part:
        """The answer for one chunk."""
        spec = self.specs[chunk.spec]
        if spec.space is None:
            return Part(searched=chunk.length, reasons=Counter({spec.refused or "": chunk.length}))
        indices = self._indices(spec, chunk)
        costs, numbers = spec.space.terms.at(indices)
        if spec.cache is not None:
            steps, refused = spec.cache.terms.at(indices)
            costs = costs._replace(cache=np.where(refused == 0, steps.cache, 0))

        def number(place: int) -> int:
            return reduce(
                lambda so_far, one: so_far * one[1] + int(one[0][place]), zip(indices, self.sizes, strict=True), 0
            )

        found = totals(costs, self.dtype, self.on)
        return selected(found, Reasons(numbers, spec.space.reasons), number, self.question)

    def _indices(self, spec: Specs, chunk: Chunk) -> list[Any]:
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
Mapper = Callable[[Callable[[Chunk], Part], Iterable[Chunk]], Iterable[Part]]


class Progress(NamedTuple):
    """What is reported during a search."""

    said: Callable[[str], None] = lambda text: None
    done: Callable[[int, int], None] = lambda done, total: None
    """Configurations so far, and all."""


def find_in_ranges(
    varied: Varied, run: Run, question: Question, limit: int | None = None,
    mapper: Mapper = map, progress: Progress = Progress(),  # noqa: B008 - immutable
) -> Found:  # fmt: skip
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
    keys = f"{len(varied.variables)} key{'s' if len(varied.variables) > 1 else ''}"
    if limit is None and total > MOST_CONFIGURATIONS:
        raise UsageError(
            f"--vary: {total:,} configurations of {keys}, more than {MOST_CONFIGURATIONS:,}; take longer steps, or "
            "--limit 1M for a random sample of a million"
        )
    sampled = limit is not None and limit < total
    searched = limit if sampled and limit is not None else total
    progress.said(f"{total:,} configurations of {keys}" + (f", {searched:,} drawn at random" if sampled else ""))
    base = load(varied.name, varied.settings)
    run = with_defaults(run, [base.spec])
    dtype = chosen_for([base.spec], run).dtype
    question = checked_on(run.on, dtype, question)
    specs = tuple(_specs(base, varied, run, progress.said))
    work = Work(sizes=varied.sizes, specs=specs, dtype=dtype, question=question, on=run.on)
    part = Part()
    for one in mapper(work, _chunks(varied, specs, limit if sampled else None)):
        part = merged(part, one, question)
        progress.done(part.searched, searched)
    return _found(varied, part, run, question)


def _specs(base: Loaded, varied: Varied, run: Run, said: Callable[[str], None]) -> Iterator[Specs]:
    """The spec with every choice of the keys whose values are lists or mappings."""
    structural = [is_structural(_copied(base.data), variable) for variable in varied.variables]
    choices = [
        range(len(variable.values)) if own else (None,)
        for variable, own in zip(varied.variables, structural, strict=True)
    ]
    if prod(map(len, choices)) > MOST_SPECS:
        raise UsageError(f"--vary: more than {MOST_SPECS:,} combinations of values that are lists; vary fewer of them")
    free = [(number, one) for number, one in enumerate(varied.variables) if not structural[number]]
    for fixed in product(*choices):
        texts = [
            f"{variable.key}={json.dumps(variable.values[number])}"
            for variable, number in zip(varied.variables, fixed, strict=True)
            if number is not None
        ]
        try:
            loaded = load(varied.name, [*varied.settings, *texts]) if texts else base
        except XfcostError as error:
            yield Specs(fixed, None, None, message(error).partition("\n")[0])
            continue
        cache = None
        if run.mode == "prefill":
            cache = Builder(loaded, run._replace(mode="decode"), free, varied.sizes, said).space()
        yield Specs(fixed, Builder(loaded, run, free, varied.sizes, said).space(), cache)


def _copied(data: dict[str, Any]) -> Any:
    return json.loads(json.dumps(data))


def _chunks(varied: Varied, specs: Sequence[Specs], sample: int | None) -> Iterator[Chunk]:
    """All configurations, or the draws of a sample, the same number of each spec."""
    every = varied.size // len(specs)
    length = every if sample is None else ceil(sample / len(specs))
    for number in range(len(specs)):
        own = length if sample is None else max(min(length, sample - number * length), 0)
        for start in range(0, own, _CHUNK):
            yield Chunk(number, start, min(_CHUNK, own - start), sample is not None)


def _found(varied: Varied, part: Part, run: Run, question: Question) -> Found:
    on_front = {candidate.number for candidate in part.front}

    def row(candidate: Candidate) -> Row:
        values: list[Any] = []
        rest = candidate.number
        for variable in reversed(varied.variables):
            rest, number = divmod(rest, len(variable.values))
            values.insert(0, variable.values[number])
        name = " ".join(
            f"{variable.key}={value_text(value)}" for variable, value in zip(varied.variables, values, strict=True)
        )
        return Row(name=name, values=tuple(values), figures=candidate.figures, front=candidate.number in on_front)

    return Found(
        question=question,
        run=run,
        searched=part.searched,
        fits=part.fits,
        rows=tuple(map(row, part.first)),
        front=tuple(map(row, part.front)),
        left_out=tuple(left_out(part, question, row)),
        cloud=part.cloud,
        spec=varied.name,
        keys=tuple(variable.key for variable in varied.variables),
        space=varied.size,
    )


def value_text(value: Any) -> str:
    """A value as `--set` takes it, without spaces."""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
