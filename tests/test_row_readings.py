"""Every row of every mechanism against its running leaf: kind, tokens read, the text of `reads`, content-dependence."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import pytest

from cases import CASES
from cases.base import DIM, Case
from cases.letters import LETTERS
from chains import longest_chain, steps_between
from contract import example, make
from growth import sequential_steps
from strategies import examples, place_for
from tiers import of_rows, tiered
from xfcost.formulas.component import Mixer, Place, tag_of
from xfcost.ledger.grid import Grid
from xfcost.ledger.probe import ProbedRow
from xfcost.mechanisms.block_sparse import BlockSparse
from xfcost.mechanisms.nystrom import Nystrom
from xfcost.mechanisms.sliding import Sliding
from xfcost.spec.architecture import Part
from xfcost.torch_models.probing.account import probed_rows


class Example(NamedTuple):
    """An example of a mechanism; by its number what was probed is remembered."""

    number: int
    component: Mixer
    fused: bool

    def __str__(self) -> str:
        return f"{self.component}-fused" if self.fused else str(self.component)


EXAMPLES = [Example(number, *example) for number, example in enumerate(examples())]
every_example = pytest.mark.parametrize("of", tiered(EXAMPLES, lambda of: of_rows((of.component, of.fused))), ids=str)


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


def left_out(component: Mixer) -> Mapping[str, str]:
    """Rows of a component that are not held against their leaf, at any of its places."""
    return component.observed(places_of(component, fused=False)[0]).left_out


@functools.cache
def probed(number: int) -> tuple[ProbedRow, ...]:
    """The rows of an example beside what their leaves were seen to read."""
    _, component, fused = EXAMPLES[number]
    return probed_at(component, places_of(component, fused=fused))


def probed_at(component: Mixer, places: tuple[Place, Place]) -> tuple[ProbedRow, ...]:
    small, large = (Part("it", component, place, "none") for place in places)
    return tuple(probed_rows((small, large)))


@every_example
def test_every_row_reads_what_it_says(of: Example) -> None:
    component = of.component
    wrong = [
        f"{row.path}: declared {row.declared}, found {row.found}" for row in probed(of.number) if row.agrees is False
    ]
    assert not wrong, f"{component}: {'; '.join(wrong)}"
    known = {
        "it reads one token alone here: a softmax of one number is 1",
        "it only moves numbers: who reads them shows behind it",
        *left_out(component).values(),
    }
    not_seen = [row for row in probed(of.number) if row.found is None and row.reason not in known]
    assert [row.path for row in not_seen if row.declared.mixing != "per-token"] == [], (
        "no leaf was seen to run for these"
    )


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize(
    ("component", "tokens", "most"),
    [
        (Nystrom(heads=1, landmarks=4, conv=3), (11, 22), {"key_scores": 22}),  # padded to 12 and 24
        # padded to 18 and 36; a block in the middle reads (5 + 1)·2 keys, one of them padding of the last block
        (BlockSparse(heads=1, block=2, random_blocks=1), (17, 35), {"global_scores": 35, "scores": 11}),
        (Sliding(heads=1, window=4, global_tokens=1), (13, 26), {"global_scores": 26}),  # padded to 16 and 28
    ],
    ids=lambda value: tag_of(type(value)) if isinstance(value, Mixer) else "",
)
def test_padding_is_no_token_that_is_read(
    component: Mixer, tokens: tuple[int, int], most: dict[str, int], heads: int
) -> None:
    component = msgspec.structs.replace(component, heads=heads)
    small, large = (place_for(component, Grid((n,)), dim=DIM) for n in tokens)
    rows = probed_at(component, (small, large))
    wrong = [f"{row.path}: declared {row.declared}, found {row.found}" for row in rows if row.agrees is False]
    assert not wrong, "; ".join(wrong)
    assert {row.path: row.reads_tokens for row in component.operations(large) if row.path in most} == most


@every_example
def test_a_row_whose_leaf_shows_no_reading_reads_what_another_row_is_seen_to_read(of: Example) -> None:
    _, component, fused = of
    rows = {row.path: row for row in component.operations(places_of(component, fused=fused)[1]) if row.mixes}
    found = {row.path: row for row in probed(of.number)}
    seen = {(row.mixing, row.reads, row.reads_tokens) for path, row in rows.items() if found[path].agrees}
    for path, row in rows.items():
        if found[path].found is None and row.reads_tokens != 1:
            # as many steps are measured below
            steps = ("global", row.sequential) if row.sequential > 1 else None
            reads = (row.mixing, row.reads, row.reads_tokens)
            assert reads in seen or reads[::2] == steps, f"{path} of {component}: no leaf was seen to read {row.reads}"


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


@every_example
def test_the_text_of_reads_gives_its_number(of: Example) -> None:
    _, component, fused = of
    for place in places_of(component, fused=fused):
        letters = letters_of(component, place)
        for row in component.operations(place):
            assert (row.reads is None) == (row.reads_tokens is None) == (not row.mixes), row.path
            if row.reads is not None:
                found = evaluated(row.reads, letters)
                assert row.reads_tokens == found, f"{row.path}: reads {row.reads} = {found}, reads_tokens differs"


# Steps that wait for each other ──────────────────────────────────────────────────────────────────────────────────────


@every_example
def test_steps_are_as_many_as_the_running_module_waits_for(of: Example) -> None:
    _, component, fused = of
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
