"""Every row of every mechanism against its running leaf: kind, tokens read, the text of `reads`, content-dependence."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import pytest

from cases import CASES
from cases.base import Case
from cases.letters import LETTERS
from growth import sequential_steps
from strategies import examples, place_for
from test_every_mechanism import example, make
from xfcost.formulas.component import Mixer, Place, tag_of
from xfcost.ledger.grid import Grid
from xfcost.ledger.operation import Operation
from xfcost.torch_models.probing.reading import Reading, kind_of_rows
from xfcost.torch_models.probing.rows import probe_rows
from xfcost.torch_models.probing.steps import longest_chain, steps_between
from xfcost.torch_models.tracing.rows import row_path

EXAMPLES = list(examples())
IDS = [f"{component}-fused" if fused else str(component) for component, fused in EXAMPLES]


class Row(NamedTuple):
    """A row at a small and at a larger place, and what its leaf was seen to read there."""

    told: tuple[Operation, Operation]
    seen: tuple[Reading, Reading]
    places: tuple[Place, Place]

    @property
    def path(self) -> str:
        return self.told[0].path


def places_of(component: Mixer, *, fused: bool) -> tuple[Place, Place]:
    """Two places, with more tokens at the second; of the memory too where one is read."""
    case = CASES[type(component)]
    small, large = (
        place_for(component, grid, fused=fused, dim=case.rows.dim)
        for grid in (case.rows.grids or case.growth)(component)
    )
    if large.memory:
        large = msgspec.structs.replace(large, memory=Grid((2 * large.memory.total,)))
    return small, large


def readings(component: Mixer, place: Place) -> dict[str, Reading]:
    """What the leaves of its module read, by the row's own name."""
    case, module = CASES[type(component)], make(Case(component, place))
    names = {name: row_path(f"it.{name}", {"it": "it"})[3:] for name, _ in module.named_modules() if name}
    positional = case.rows.positional(component) | (case.rows.masks if place.fused else frozenset())
    seen = probe_rows(
        module,
        (*example(place, 1), *case.rows.past(component, place)),
        positional=frozenset(name for name, row in names.items() if row in positional),
        states=frozenset(name for name, row in names.items() if row in case.rows.states),
        apart=case.rows.apart,
        fresh_weights=case.frozen is None,
        rounding=case.rounding,
    )
    return {names[name]: reading for name, reading in seen.items()}


@functools.cache
def rows_of(number: int) -> tuple[Row, ...]:
    """The rows of an example whose leaves give floats."""
    component, fused = EXAMPLES[number]
    places = places_of(component, fused=fused)
    seen = [readings(component, place) for place in places]
    told = zip(*(component.operations(place) for place in places), strict=True)
    return tuple(
        Row((small, large), (seen[0][small.path], seen[1][small.path]), places)
        for small, large in told
        if small.path in seen[0]
    )


def expected(component: Mixer, row: Row, at: int) -> int:
    """What the probe should count where the row says `reads_tokens`."""
    hints = CASES[type(component)].rows
    nothing = lambda component, place: 0  # noqa: E731
    fewer, more = (table.get(row.path, nothing)(component, row.places[at]) for table in (hints.fewer, hints.more))
    return row.told[at].reads_tokens - fewer + more


def counted(component: Mixer, row: Row, at: int) -> int:
    seen = row.seen[at]
    return seen.tokens if row.path in CASES[type(component)].rows.in_tokens else seen.number


def differences(number: int) -> Iterator[str]:
    """Where rows say other than what is seen."""
    component, _ = EXAMPLES[number]
    for row in rows_of(number):
        small, large = row.told
        kind = kind_of_rows(*row.seen)
        if row.path in CASES[type(component)].rows.left_out(component):
            continue
        if max((small.reads_tokens or 0), (large.reads_tokens or 0)) == 1:
            continue  # of one number, a softmax is 1 whatever it is
        if kind != small.mixing:
            yield f"{row.path}: told {small.mixing}, seen {kind} {row.seen}"
            continue
        if not small.mixes:
            continue
        if row.path in CASES[type(component)].rows.uncounted:
            continue
        told = [expected(component, row, at) for at in (0, 1)]
        seen = [counted(component, row, at) for at in (0, 1)]
        if row.path in CASES[type(component)].rows.at_most:
            told = [min(pair) for pair in zip(told, seen, strict=True)]
        if told != seen:
            yield f"{row.path}: told {small.reads} {told}, seen {seen} {row.seen}"
        if small.content_dependent != row.seen[1].content_dependent:
            yield f"{row.path}: content-dependent told {small.content_dependent}, seen {row.seen[1].content_dependent}"


@pytest.mark.parametrize("number", range(len(EXAMPLES)), ids=IDS)
def test_every_row_reads_what_it_says(number: int) -> None:
    assert list(differences(number)) == []
    known = {row.path for row in rows_of(number)}
    component, fused = EXAMPLES[number]
    mixing = {row.path for row in component.operations(places_of(component, fused=fused)[0]) if row.mixes}
    assert mixing <= known, "no leaf was seen to run for these"


# The text of `reads` is a formula, and gives the number ─────────────────────────────────────────────────────────────


def evaluated(text: str, letters: dict[str, int | float]) -> float:
    """`(5+r)·b`, `N/k`, `√N`, `W²`, each letter (its power with it) being what `letters` says.

    Raises:
        KeyError: it holds a letter that isn't known.
    """
    names = sorted(letters, key=len, reverse=True)
    words = re.findall("|".join([*map(re.escape, names), r"\d+", r"[-+/()·]", r"[^\s]"]), text)
    python = [str(letters[word]) if word in letters else word.replace("·", "*") for word in words]
    # a number right before a letter or a bracket multiplies it: 2r, 2(a+b)
    for at, (before, after) in enumerate(itertools.pairwise(words)):
        if before.isdigit() and (after in letters or after == "("):
            python[at] += "*"
    left = [word for word in words if word not in letters and not re.fullmatch(r"\d+|[-+/()·]", word)]
    if left:
        raise KeyError(f"{left} in {text!r} are none of {names}")
    return eval("".join(python), {"__builtins__": {}})  # noqa: S307 - numbers and signs alone


def letters_of(component: Mixer, place: Place) -> dict[str, float]:
    n, sides = place.grid.total, place.grid.sides
    known = {"N": n, "√N": sides[-1], "∛N": round(n ** (1 / 3)), "M": place.memory.total if place.memory else 0}
    letters = LETTERS.get(tag_of(type(component)))
    return known | (letters(component, place) if letters else {})


def test_formulas_are_read() -> None:
    letters = {"N": 12, "k": 3, "r": 2, "b": 5, "W²": 9, "g": 1, "√N": 4}
    texts = {"N": 12, "N/k": 4, "(5+r)·b": 35, "2r+g+1": 6, "W²": 9, "√N": 4, "2·b·r": 20, "b + g": 6, "2": 2}
    assert {text: evaluated(text, letters) for text in texts} == texts
    with pytest.raises(KeyError, match="q"):
        evaluated("(5+q)·b", letters)


@pytest.mark.parametrize("number", range(len(EXAMPLES)), ids=IDS)
def test_the_text_of_reads_gives_its_number(number: int) -> None:
    component, fused = EXAMPLES[number]
    for place in places_of(component, fused=fused):
        letters = letters_of(component, place)
        for row in component.operations(place):
            assert (row.reads is None) == (row.reads_tokens is None) == (not row.mixes), row.path
            if row.reads is not None:
                assert row.reads_tokens == evaluated(row.reads, letters), (row.path, row.reads, row.reads_tokens)


# Steps that wait for each other ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("number", range(len(EXAMPLES)), ids=IDS)
def test_steps_are_as_many_as_the_running_module_waits_for(number: int) -> None:
    component, fused = EXAMPLES[number]
    places = places_of(component, fused=fused)
    small, large = (longest_chain(make(Case(component, place)), example(place, 1)) for place in places)
    told = [sequential_steps(component, place) for place in places]
    if told[1] == told[0]:
        # at other sizes torch may take one product for another and a sum, and no step takes fewer operations than two
        assert told == [1, 1]
        assert large.length - small.length <= 2
        return
    assert steps_between(small, large) == told[1] - told[0]
    once = [name for name in large.operations if large.operations[name] - small.operations[name] == told[1] - told[0]]
    # what stands in every step once may stand before or behind the steps too, or be spared where a state is zeros
    assert abs(min(small.operations[name] for name in once) - told[0]) <= 2
