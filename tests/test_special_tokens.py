"""Every kind that stands among special tokens ([CLS], distillation) runs with one and with two, or refuses them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from cases import CASES
from cases.layers import LAYER_CASES, LayerCase
from contract import LAYERS, agree, joined
from strategies import exact, place_for, placed
from xfcost.counting.forward import count
from xfcost.formulas.component import Component, Mixer, Place, tag_of
from xfcost.layers.tokens import MemoryTokens
from xfcost.ledger.errors import ComponentError, SpecError
from xfcost.ledger.grid import Grid
from xfcost.ledger.ledger import Ledger
from xfcost.mechanisms import MECHANISMS
from xfcost.spec.architecture import Architecture
from xfcost.torch_models.accounts import reconciled
from xfcost.torch_models.build import BuiltModel, build


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


# Memory tokens: learned tokens before the grid's, counted by every layer that follows ─────────────────────────────────


def test_memory_tokens_never_take_the_class_token_s_place() -> None:
    with pytest.raises(ComponentError, match="put it before 'class_token'"):
        MemoryTokens(count=2).check(Place(grid=Grid((5,), 1), dim=4, out_dim=4))


ENTRY_LAYER = {"kind": "memory_tokens", "count": 3}


def spec(*stem_layers: dict[str, Any], **more: Any) -> dict[str, Any]:
    block = [{"kind": "full", "heads": 2}, {"kind": "mlp", "hidden": 5}]
    return {
        "name": "with a memory",
        "input": {"kind": "tokens", "vocabulary": 7, "length": 10},
        "embed": [{"kind": "token"}, *stem_layers],
        "stages": [{"dim": 4, "depth": 2, "block": block}],
    } | more


def agreed(architecture: Architecture) -> tuple[Ledger, BuiltModel]:
    live = build(architecture)
    return reconciled(count(architecture), *live), live


def test_every_layer_works_on_the_memory_too(tmp_path: Path) -> None:
    architecture = placed(spec(ENTRY_LAYER), tmp_path, batch=2)
    ledger, _ = agreed(architecture)
    rows = {row.path: row for row in ledger.rows}
    assert architecture.grid == Grid((10,), 3)
    exact(ledger)
    # 3 tokens of width 4; 13 tokens are written for each of 2 samples
    assert (rows["embed.1.prepend"].params, rows["embed.1.prepend"].moved) == (12, 2 * 13 * 4)
    assert rows["embed.1.prepend"].order == "O(m·d) parameters"
    assert rows["stages.0.block.0.scores"].macs == 2 * 13 * 13 * 4
    assert rows["stages.0.block.0.scores"].attention_entries == 2 * 2 * 13 * 13
    assert rows["stages.0.block.1.fc1"].macs == 2 * 13 * 4 * 5


def test_the_grid_alone_is_compared_without_them(tmp_path: Path) -> None:
    ledger, _ = agreed(placed(spec(ENTRY_LAYER), tmp_path, extra_tokens=False))
    plain, _ = agreed(placed(spec(), tmp_path))
    assert ledger.totals() == plain.totals()


def test_memory_and_class_token_add_up_and_the_later_layer_stands_first(tmp_path: Path) -> None:
    head = {"kind": "classifier", "pool": "class_token", "norm": "none", "classes": 2}
    architecture = placed(spec(ENTRY_LAYER, {"kind": "class_token"}, {"kind": "position"}, head=head), tmp_path)
    assert architecture.grid == Grid((10,), 4)
    live = build(architecture, "cpu")
    stem_layers = live.model.get_submodule("streams.0.embed")
    assert isinstance(stem_layers, nn.ModuleList)
    x = live.inputs[0]
    for entry in stem_layers[:3]:
        x = entry(x)
    torch.testing.assert_close(x[0, :1], stem_layers[2].prepend.weight[0])
    torch.testing.assert_close(x[0, 1:4], stem_layers[1].prepend.weight[0])
    # a position for each of the 14
    assert {row.path: row.params for row in count(architecture).rows}["embed.3.table"] == 14 * 4


@pytest.mark.parametrize(("count_", "said"), [(0, "at least 1"), (2**17, "at most 65,536"), (None, "missing")])
def test_how_many_must_be_said_and_be_sensible(tmp_path: Path, count_: int | None, said: str) -> None:
    entry = {"kind": "memory_tokens"} | ({} if count_ is None else {"count": count_})
    with pytest.raises(SpecError, match=said):
        placed(spec(entry), tmp_path)
