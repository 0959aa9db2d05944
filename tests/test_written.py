"""What the docstring of a kind says that its rows cost, evaluated, is what they cost: it shares nothing with them."""

import re
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

import pytest

from cases import CASES
from cases.layers import LAYER_CASES
from cases.written import MORE_EXAMPLES, UNNAMED, documents, letters_of
from contract import LAYERS
from strategies import place_for
from written import Letters, Line, found_in, lines_of, said, value
from xfcost.formulas.component import Place, tag_of
from xfcost.program.residual import component_rows

FUSED = re.compile("scores|add_bias|mask|softmax|weighted_sum")
"""Rows that a fused kernel has as one."""


def examples(kind: Any) -> Iterator[tuple[Any, Place]]:
    """Every example at every place of its case, eager and fused."""
    yield from (example for example in MORE_EXAMPLES if type(example[0]) is kind)
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


COMPONENTS: tuple[Any, ...] = (*CASES, *LAYERS)
FURTHER = dict.fromkeys(
    each for kind in COMPONENTS for each in documents(kind) if each not in COMPONENTS and lines_of(each)
)
"""Bases, and what else gives rows of kinds and says so in a table."""


@cache
def found_true(kind: Any) -> frozenset[tuple[Line, str]]:
    """(line, formula): what the docstrings of a kind say that an example's row costs, no row costing anything else."""
    true = set[tuple[Line, str]]()
    for component, place in examples(kind):
        letters = {name: Fraction(number) for name, number in letters_of(component, place).items()}
        at = f"{component} at {place.grid.shape_text()}, {'fused' if place.fused else 'eager'}"
        rows = list(component_rows(component, place))
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
                true.update((line, formula) for line, formula in formulas if values[formula] in found)
        for line in (line for each in kind.__mro__ for line in lines_of(each) if line.unconditional):
            names = [name for name in line.names if not (place.fused and FUSED.search(name))]
            absent = [name for name in names if not any(Line((name,), "", ()).of(row.path) for row in rows)]
            assert not absent, f"{at} has no row {absent}"
    return frozenset(true)


def without_an_example(document: object, true: frozenset[tuple[Line, str]]) -> list[str]:
    """Formulas of a docstring's table that are true of no row."""
    return [
        f"{line}: {formula}"
        for line in lines_of(document)
        for _, formula in line.formulas
        if (line, formula) not in true
    ]


@pytest.mark.parametrize("kind", COMPONENTS, ids=lambda kind: f"{tag_of(kind)}-{kind.__name__}")
def test_rows_cost_what_the_docstring_says(kind: Any) -> None:
    assert next(examples(kind), None)
    assert not without_an_example(kind, found_true(kind))


@pytest.mark.parametrize("document", FURTHER, ids=lambda document: document.__name__)
def test_every_formula_of_a_shared_table_is_true_of_a_row(document: object) -> None:
    users = [kind for kind in COMPONENTS if document in documents(kind)]
    assert not without_an_example(document, frozenset(each for kind in users for each in found_true(kind)))
