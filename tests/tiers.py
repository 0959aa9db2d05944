"""Two tiers of tests: `make test` runs a covering choice of every parametrized contract, `make test-rest` what is left.

A choice is made from what its cases need tried: it holds every need that any case has, in few cases.
`pytest --tier` says which tier runs; without it all do.
"""

import functools
import heapq
import itertools
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import pytest

import tier
from cases import CASES
from cases.base import Case
from strategies import MANY, cases, examples, place_for
from xfcost.formulas.component import Mixer, tag_of
from xfcost.program.residual import component_rows
from xfcost.spec.load import load, preset_files, preset_names

Needs = frozenset[Hashable]
_KIND: Final = re.compile(r"\bkind: *(\w+)")


def covering(needs: Sequence[Needs], taken: Iterable[int] = ()) -> list[int]:
    """The numbers of few cases that together have every need of all cases; those that are `taken` are among them.

    Every time that case is taken which has the most needs that none has yet; of equals, the first.
    """
    chosen = list(taken)
    left = set().union(*needs).difference(*(needs[number] for number in chosen))
    # how many each has was counted earlier, when as many or more were left
    counted = [(-len(mine), number) for number, mine in enumerate(needs)]
    heapq.heapify(counted)
    while left:
        _, number = counted[0]
        now = (-len(left & needs[number]), number)
        if now > counted[0]:
            heapq.heapreplace(counted, now)
            continue
        heapq.heappop(counted)
        chosen.append(number)
        left -= needs[number]
    return sorted(chosen)


def pairs(factors: Mapping[str, Hashable]) -> Needs:
    """Every two of the factors with their values: what pairwise testing has to meet."""
    return frozenset(itertools.combinations(sorted(factors.items(), key=lambda item: item[0]), 2))


def marked(values: Iterable[Any], needs: Callable[[Any], Needs]) -> list[Any]:
    """Parameters of a test: all `values`, those marked `rest` that a covering choice leaves out."""
    values = list(values)
    chosen = set(covering([needs(value) for value in values]))
    marks = [() if number in chosen else (pytest.mark.rest,) for number in range(len(values))]
    return [
        pytest.param(*value, marks=mark) if type(value) is tuple else pytest.param(value, marks=mark)
        for value, mark in zip(values, marks, strict=True)
    ]


def tiered(values: Iterable[Any], needs: Callable[[Any], Needs]) -> list[Any]:
    """Of the `marked` parameters those that run in this tier: what the quick one leaves out isn't collected there.

    The rest tier collects all: it runs what is left out of the choice, too, for the time that a case takes.
    """
    return [one for one in marked(values, needs) if tier.runs(rest=bool(one.marks)) or tier.chosen == "rest"]


# Mechanisms ──────────────────────────────────────────────────────────────────────────────────────────────────────────


_fields: Final = functools.cache(msgspec.structs.fields)


def options(component: Mixer) -> dict[str, Hashable]:
    """The options of a component as factors: a number is its default or another."""
    found: dict[str, Hashable] = {}
    for field in _fields(type(component)):
        value = getattr(component, field.name)
        coarse = isinstance(value, int) and not isinstance(value, bool)
        found[field.name] = value == field.default if coarse else str(value)
    return found


def extent(tokens: int) -> str:
    """One token; fewer than a block or a window of most examples; some blocks; many."""
    return "one" if tokens == 1 else "few" if tokens < 12 else "some" if tokens < 60 else "many"


def of_case(case: Case) -> Needs:
    """Of every mechanism every example (on many tokens, where it stands on as many), every extent, pairs of its place.

    Pairs: the number of axes, special tokens, eager or fused execution.
    """
    grid, tag, component = case.place.grid, tag_of(type(case.component)), str(case.component)
    long = extent(grid.total)
    found: set[Hashable] = {component, long}
    if grid.total >= MANY:
        found.add((component, "many tokens"))
    if grid.total > 1:
        found |= pairs({"axes": len(grid.sides), "special tokens": grid.special, "fused": case.place.fused})
    return frozenset((tag, need) for need in found)


def of_example(example: tuple[Mixer, bool]) -> Needs:
    """Every option of every mechanism; eager and fused."""
    component, fused = example
    tag = tag_of(type(component))
    return frozenset({(tag, fused), *((tag, option) for option in options(component).items())})


def of_rows(example: tuple[Mixer, bool]) -> Needs:
    """Every row of every mechanism, by its path and title."""
    component, fused = example
    place = place_for(component, CASES[type(component)].growth(component)[0], fused=fused)
    return frozenset((tag_of(type(component)), row.path, row.title) for row in component_rows(component, place))


@functools.cache
def tiered_cases(*, fused: tuple[bool, ...] = (False, True)) -> list[Any]:
    """Every case of every mechanism (`strategies.cases`), as parameters."""
    return tiered(cases(fused=fused), of_case)


@functools.cache
def covering_cases() -> list[Any]:
    """Few cases with every need of all (`of_case`), and every example eager and fused, as parameters: for costs.

    What a cost is on the other grids, torch's own counter says of every case.
    """
    known = list(cases())
    needs = [of_case(case) | {(str(case.component), case.place.fused)} for case in known]
    return tiered([known[number] for number in covering(needs)], of_case)


@functools.cache
def distinct_examples() -> list[tuple[Mixer, bool]]:
    """Examples, eager or fused, that together have every option and every row of every mechanism."""
    known = list(examples())
    return [known[number] for number in covering([of_example(one) | of_rows(one) for one in known])]


def tiered_examples(needs: Callable[[tuple[Mixer, bool]], Needs] = of_example) -> list[Any]:
    """Examples of every option and row as parameters, those marked `rest` that `needs` leave out."""
    return tiered(distinct_examples(), needs)


# Presets ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def of_preset(name: str) -> Needs:
    """Every family, and each kind of component that a file names."""
    file = preset_files()[name]
    return frozenset({file.parent, *_KIND.findall(file.read_text(encoding="utf-8"))})


# Keys of a spec that say nothing of what runs.
_WORDS: Final = {"name", "paper", "published", "notes", "extends", "survey"}


def facts(value: Any, kind: str = "") -> Iterator[Hashable]:
    """(kind, option, value) of every component of a spec; a number is 0, 1, or another."""
    if isinstance(value, list):
        for each in value:
            yield from facts(each, kind)
    if not isinstance(value, dict):
        return
    kind = value.get("kind", kind)
    for key, each in value.items():
        if isinstance(each, dict | list) and key not in _WORDS:
            yield from facts(each, kind)
        elif key not in _WORDS:
            other = isinstance(each, int | float) and each not in (0, 1)
            yield kind, key, "other" if other else each


@functools.cache
def covering_presets() -> tuple[str, ...]:
    """Few presets that have every family and each kind."""
    names = list(preset_names())
    return tuple(names[number] for number in covering([of_preset(name) for name in names]))


@functools.cache
def distinct_presets() -> tuple[str, ...]:
    """These, and others with every option of every kind that any preset has."""
    names = list(preset_names())
    options = [frozenset(facts(msgspec.to_builtins(load(name).spec))) for name in names]
    return tuple(names[number] for number in covering(options, map(names.index, covering_presets())))


def of_presets(names: Iterable[str]) -> list[Any]:
    """Presets as parameters, or the one spec of `--spec`."""
    return [pytest.param(name) for name in (names if tier.spec is None else [tier.spec])]


def of_distinct_presets() -> list[Any]:
    """The distinct presets as parameters; those of the rest tier are not looked for in the quick one."""
    if tier.spec is not None or tier.chosen == "quick":
        return of_presets(covering_presets())
    others = sorted({*distinct_presets()} - {*covering_presets()})
    return of_presets(covering_presets()) + [pytest.param(name, marks=pytest.mark.rest) for name in others]
