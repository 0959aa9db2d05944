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
from contract import LAYERS
from strategies import place_for
from written import Letters, Line, found_in, lines_of, said, value
from xfcost.formulas.component import Place, tag_of

FUSED = re.compile("scores|add_bias|mask|softmax|weighted_sum")
"""Rows that a fused kernel has as one."""


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


def macs_of_core(kind: Any, core: str, letters: Letters) -> set[Fraction]:
    """Of a fused `core`: those of its scores and of its weighted sum together."""
    rows = (core.removesuffix("attention") + row for row in ("scores", "weighted_sum"))
    parts = [[value(formula, letters) for _, formula in said(documents(kind), row)["macs"]] for row in rows]
    return {sum(each) for each in product(*parts)}


@pytest.mark.parametrize("kind", [*CASES, *LAYERS], ids=lambda kind: f"{tag_of(kind)}-{kind.__name__}")
def test_rows_cost_what_the_docstring_says(kind: Any) -> None:
    tried = set[Line]()
    cases = list(examples(kind))
    assert cases
    for component, place in cases:
        letters = {name: Fraction(number) for name, number in letters_of(component, place).items()}
        at = f"{component} at {place.grid.shape_text()}, {'fused' if place.fused else 'eager'}"
        rows = list(component.operations(place))
        for row in rows:
            told, figures = f"{row.path} of {at}", said(documents(kind), row.path)
            if row.fused:
                expected = macs_of_core(kind, row.path, letters)
                assert row.macs in expected, f"{told}: {row.macs} MACs, not {expected}"
                continue
            unnamed = any(re.fullmatch(name, row.path) for name in UNNAMED.get(kind, {}))
            for figure in () if unnamed else ("macs", "params"):
                assert figure in figures or not getattr(row, figure), f"{told}: no line says its {figure}"
            for figure, formulas in figures.items():
                values = {formula: value(formula, letters) for _, formula in formulas}
                found = found_in(row, figure, " ".join([*(str(line) for line, _ in formulas), told]))
                assert found & {*values.values()}, f"{told}: {figure} {[*map(str, found)]}, not {values}"
                tried.update(line for line, _ in formulas)
        for line in lines_of(kind):
            if line.unconditional:
                names = [name for name in line.names if not (place.fused and FUSED.search(name))]
                absent = [name for name in names if not any(Line((name,), "", ()).of(row.path) for row in rows)]
                assert not absent, f"{at} has no row {absent}"
    untried = [str(line) for line in lines_of(kind) if line.formulas and line not in tried]
    assert not untried, f"lines that no example has a row of: {untried}"
