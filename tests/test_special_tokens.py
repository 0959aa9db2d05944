"""Every kind that stands among special tokens ([CLS], distillation) runs with one and with two, or refuses them."""

from __future__ import annotations

import re

import pytest

from cases import CASES
from cases.layers import LAYER_CASES, LayerCase
from contract import LAYERS, agree, joined
from strategies import place_for
from xfcost.formulas.component import Component, Mixer, Place, tag_of
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid
from xfcost.mechanisms import MECHANISMS


def ways(grid: Grid) -> list[Grid]:
    """The grid with a class token, and with a distillation token too."""
    return [grid._replace(special=grid.special + more) for more in (1, 2)]


def refuses(component: Component, place: Place) -> bool:
    """Does it refuse the place, in words that tell of special tokens?"""
    try:
        component.check(place)
    except ComponentError as error:
        refusal = str(error)
    else:
        return False
    special = place.grid.special
    told = re.search(rf"\+ {special}\b|got {special}\b|{place.grid.total} tokens", refusal)
    assert told, f"{component} among {special} special tokens: expected their number in the refusal, got {refusal!r}"
    return True


@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=tag_of)
def test_a_mechanism_runs_among_special_tokens_or_refuses_them(mechanism: type[Mixer]) -> None:
    for component in CASES[mechanism].examples:
        for grid in ways(CASES[mechanism].growth(component)[0]):
            place = place_for(component, grid)
            if refuses(component, place):
                continue
            found = joined(component, place, 2, "none").agreement
            assert found is not None
            assert found.exact, (component, grid, found.differences, found.uncounted)
            listed = [component.reads(grid, token, place.memory) for token in range(component.out(place)[0].total)]
            assert sum(map(len, listed)) == component.pairs(grid, place.memory), (component, grid, "pairs")


@pytest.mark.parametrize("layer", LAYERS, ids=tag_of)
def test_a_layer_runs_among_special_tokens_or_refuses_them(layer: type[Component]) -> None:
    # every configuration where it first stands
    configurations = {str(case.layer): case for case in reversed(LAYER_CASES) if type(case.layer) is layer}
    for case in configurations.values():
        for grid in ways(case.grid):
            other = case.other and (case.other[0]._replace(special=grid.special), case.other[1])
            among = LayerCase(case.layer, grid, case.out_dim, other)
            if not refuses(among.layer, among.place):
                agree(among)
