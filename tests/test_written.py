"""What the docstring of a kind says that its rows cost, evaluated, is what they cost: an account that shares nothing."""

import re
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

from cases import CASES
from cases.layers import LAYER_CASES
from cases.written import UNNAMED, documents, letters_of
from strategies import place_for
from written import Letters, Line, figures, lines_of, naming, value
from xfcost.formulas.component import Place, tag_of
from xfcost.ledger.operation import Operation

LAYERS = dict.fromkeys(type(case.layer) for case in LAYER_CASES)
FUSED = re.compile("scores|add_bias|mask|softmax|weighted_sum")


def examples(kind: Any) -> Iterator[tuple[Any, Place]]:
    """Every example at every place of its case, eager and fused."""
    if kind in LAYERS:
        yield from ((case.layer, case.place) for case in LAYER_CASES if type(case.layer) is kind)
        return
    case = CASES[kind]
    for component in case.examples:
        for grid in case.grids:
            for fused in (False, True) if case.fused else (False,):
                yield component, place_for(component, grid, fused=fused)


def wrong(kind: Any, row: Operation, letters: Letters, told: str) -> Iterator[tuple[Line | None, str, str]]:
    """(line, figure, what is wrong or nothing) of everything that the docstring says of a row."""
    lines = naming(documents(kind), row.path)
    if row.fused:  # a whole core: the scores and the weighted sum
        parts = [
            [value(formula, letters) for line in naming(documents(kind), row.path.replace("attention", part))
             for figure, formula in line.formulas if figure == "macs"]
            for part in ("scores", "weighted_sum")
        ]  # fmt: skip
        sums = {sum(each) for each in product(*parts)}
        yield None, "macs", "" if row.macs in sums else f"{row.macs} is none of {sums}"
    elif not any(line.formulas for line in lines):
        named = not (row.macs or row.params) or any(re.fullmatch(name, row.path) for name in UNNAMED.get(kind, {}))
        yield None, "", "" if named else "no line with a formula names it"
    for line in lines:
        for figure in {figure for figure, _ in line.formulas}:
            expected = {formula: value(formula, letters) for each, formula in line.formulas if each == figure}
            found = figures(row, figure, f"{line} {told}")
            yield line, figure, "" if found & {*expected.values()} else f"{figure} {found} in none of {expected}"


@pytest.mark.parametrize("kind", [*CASES, *LAYERS], ids=lambda kind: f"{tag_of(kind)}-{kind.__name__}")
def test_rows_cost_what_the_docstring_says(kind: Any) -> None:
    tried = set[tuple[Line | None, str]]()
    bases = [each for each in kind.__mro__ if each is kind or each not in {*CASES, *LAYERS}]
    own = [line for each in bases for line in lines_of(each)]
    for component, place in examples(kind):
        letters = {name: Fraction(number) for name, number in letters_of(component, place).items()}
        told = f"{component} at {place.grid.shape_text()}, {'fused' if place.fused else 'eager'}"
        rows = list(component.operations(place))
        for row in rows:
            for line, figure, reason in wrong(kind, row, letters, f"{row.path} of {told}"):
                assert not reason, f"{row.path} of {told}: {reason}"
                tried.add((line, figure))
        for line in own:
            if line.unconditional:
                absent = [
                    name
                    for name in line.names
                    if not any(Line((name,), "", ()).of(row.path) for row in rows)
                    and not (place.fused and FUSED.search(name))
                ]
                assert not absent, f"{told} has no row {absent}"
    untried = [(str(line), figure) for line in own for figure, _ in line.formulas if (line, figure) not in tried]
    assert not untried, f"lines that no example has a row of: {untried}"
