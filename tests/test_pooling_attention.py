"""The entry that pools by attention, under the contract of mixers (rows, trace, probe, reference, growth); vectors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cases.layers import POOLING_ATTENTION
from contract import LargestTensor
from growth import exponent, orders_at
from strategies import exact, loaded
from whole_probe import probe
from xfcost.counting.comparison import compared
from xfcost.counting.diagram import diagram
from xfcost.counting.forward import count
from xfcost.counting.system import SpecSystem
from xfcost.formulas.component import Place
from xfcost.layers.pooling_attention import PoolingAttention
from xfcost.ledger.errors import ComponentError, SpecError
from xfcost.ledger.grid import Grid
from xfcost.ledger.ledger import Ledger
from xfcost.report.console import plain_text
from xfcost.report.diagram import render
from xfcost.spec.architecture import Architecture
from xfcost.spec.placement import place
from xfcost.spec.run import Run
from xfcost.torch_models.accounts import reconciled
from xfcost.torch_models.build import build
from xfcost.torch_models.modules import MODULES

WIDTH, OUT = 5, 6
GRIDS = (Grid((1,)), Grid((7,)), Grid((3, 5)), Grid((2, 2), 1))
CASES = [(component, grid, fused) for component in POOLING_ATTENTION for grid in GRIDS for fused in (False, True)]
every_case = pytest.mark.parametrize(("component", "grid", "fused"), CASES, ids=str)
every_component = pytest.mark.parametrize("component", POOLING_ATTENTION, ids=str)


def spot(grid: Grid, *, fused: bool = False) -> Place:
    return Place(grid=grid, dim=WIDTH, out_dim=OUT, fused=fused)


def made(component: PoolingAttention, where: Place, device: str = "cpu") -> nn.Module:
    torch.manual_seed(0)
    with torch.device(device):
        return MODULES[PoolingAttention](component, where).double().eval().requires_grad_(requires_grad=False)


def tokens(grid: Grid, batch: int = 2) -> Tensor:
    noise = torch.Generator().manual_seed(1)
    return torch.randn(batch, grid.total, WIDTH, generator=noise, dtype=torch.float64)


# The contract ────────────────────────────────────────────────────────────────────────────────────────────────────────


@every_case
def test_every_query_reads_every_token(component: PoolingAttention, grid: Grid, *, fused: bool) -> None:
    seen = probe(made(component, spot(grid, fused=fused)), (tokens(grid),))
    assert seen.reads == tuple(frozenset(component.reads(grid, query)) for query in range(component.count))
    assert seen.pairs == component.pairs(grid) == component.count * grid.total
    mixing = [row for row in component.operations(spot(grid, fused=fused)) if row.mixes]
    assert {(row.mixing, row.reads, row.reads_tokens) for row in mixing} == {("global", "N", grid.total)}
    assert sum(row.pairs or 0 for row in mixing) == component.pairs(grid)


@every_component
def test_the_order_of_a_set_changes_nothing(component: PoolingAttention) -> None:
    grid = Grid((11,))
    x, order = tokens(grid), torch.randperm(11, generator=torch.Generator().manual_seed(3))
    for fused in (False, True):
        module = made(component, spot(grid, fused=fused))
        torch.testing.assert_close(module(x[:, order]), module(x), rtol=1e-12, atol=1e-13)
        assert not torch.allclose(module(x), module(x.roll(1, -1)))


@every_component
def test_more_tokens_cost_what_the_orders_say(component: PoolingAttention) -> None:
    for fused in (False, True):
        small, large = (list(component.operations(spot(Grid((n,)), fused=fused))) for n in (2**20, 2**21))
        for before, after in zip(small, large, strict=True):
            order = orders_at(component, spot(Grid((4,)), fused=fused))[before.path]
            costs = [row.macs or row.flops or row.params for row in (before, after)]
            assert costs[1] / costs[0] == 2 ** exponent(order), (before.path, order)


@every_component
def test_no_tensor_grows_faster_than_the_tokens(component: PoolingAttention) -> None:
    largest = []
    for n in (1024, 2048):
        with LargestTensor() as seen:
            made(component, spot(Grid((n,))), "meta")(tokens(Grid((n,))).to("meta"))
        largest.append(seen.elements)
    assert math.log2(largest[1] / largest[0]) <= 1.01


def test_refusals() -> None:
    where = spot(Grid((4,)))
    with pytest.raises(ComponentError, match="4 does not divide the width 6") as refused:
        PoolingAttention(count=2, heads=4).check(where)
    assert refused.value.field == "heads"
    with pytest.raises(ComponentError, match=r"have the output's width 6, and they have 5;") as refused:
        PoolingAttention(count=2, heads=1, head_dim=5, output_projection=False).check(where)
    assert refused.value.field == "output_projection"


# In a whole spec ─────────────────────────────────────────────────────────────────────────────────────────────────────

ENTRY_LAYER = {"kind": "pooling_attention", "count": 4, "heads": 2}
BLOCK = [{"kind": "full", "heads": 2}, {"kind": "mlp", "hidden": 9}]
HEAD = {"kind": "classifier", "pool": "mean", "classes": 3}
VECTORS = {"kind": "vectors", "channels": 3, "length": 20}


def spec(*, first: bool, **more: Any) -> dict[str, Any]:
    """A pool of 4 at the entry of the first stage, or of the second."""
    pooled = {"enter": [ENTRY_LAYER], "dim": 6, "depth": 2, "block": BLOCK}
    stages = [pooled] if first else [{"dim": 4, "depth": 1, "block": [{"kind": "mlp"}]}, pooled]
    embed = [] if first else [{"kind": "projection"}]
    return {"name": "pooled", "input": VECTORS, "embed": embed, "stages": stages, "head": HEAD} | more


def accounts(architecture: Architecture) -> Iterator[Ledger]:
    for device in ("meta", "cpu"):
        live = build(architecture, device)
        assert live.model(*live.inputs).shape == (architecture.batch, 3)
        yield reconciled(count(architecture), *live)


@pytest.mark.parametrize("first", [True, False])
def test_n_counts_what_comes_to_the_entry_and_heads_stand_on_what_leaves(tmp_path: Path, *, first: bool) -> None:
    for run in (Run(), Run(batch=2, attention="fused"), Run(tokens=(50,))):
        architecture = place(loaded(spec(first=first), tmp_path), run)
        n = run.tokens[0] if run.tokens else 20
        assert architecture.grid == Grid((n,))
        for ledger in accounts(architecture):
            exact(ledger)
            assert ledger.metadata.grid_tokens == n
            assert any(f"{n} tokens are pooled into 4" in note for note in ledger.metadata.notes)
        last = architecture.streams[0].stages[-1]
        assert (last.grid, last.blocks[0].parts[0].place.grid) == (Grid((4,)), Grid((4,)))


def test_growth_is_the_stem_layers_alone_and_crossovers_are_found(tmp_path: Path) -> None:
    pooled = loaded(spec(first=True), tmp_path)
    plain = spec(first=True)
    plain["stages"][0]["enter"] = []
    plain["embed"] = [{"kind": "projection"}]
    full = loaded(plain, tmp_path)
    run = Run(tokens=(4096,))
    said = compared([SpecSystem(full), SpecSystem(pooled)], [count(place(one, run)) for one in (full, pooled)], run)
    quadratic, linear = said.growth.values()
    assert quadratic["mixing_macs"] == 2
    assert linear["mixing_macs"] == pytest.approx(1, abs=1e-2)
    assert linear["attention_bytes"] == pytest.approx(1, abs=1e-2)
    assert {found["quantity"] for found in said.crossovers} <= {"macs", "mixing_macs", "attention_bytes"}
    # 4·N keys at the entry and 2·4² behind it, against N² twice: the first sub-layer that keeps scores
    names = list(said.figures)
    assert [said.figures[name]["score_dot_products"] for name in names] == [4096**2, 4 * 4096]


def test_a_diagram_draws_the_first_block_that_mixes(tmp_path: Path) -> None:
    data = spec(first=True)
    data["stages"][0] = {
        "enter": [ENTRY_LAYER],
        "dim": 6,
        "blocks": [[{"kind": "mlp"}], {"repeat": 2, "blocks": [BLOCK]}],
    }
    text = plain_text(partial(render, diagram([place(loaded(data, tmp_path), Run())])))
    assert "QKᵀ / softmax / AV" in text
    assert "N = 4 · d = 6" in text
    assert "pooled: blocks of no mixer and Self-attention are in this stage; Self-attention is drawn." in text


# Vectors ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_vectors_need_no_entry_where_they_are_as_wide_as_the_stage(tmp_path: Path) -> None:
    stage = {"dim": 4, "depth": 1, "block": [{"kind": "full", "heads": 2}]}
    data = {"name": "bare", "input": {"kind": "vectors", "channels": 4}, "stages": [stage], "head": HEAD}
    architecture = place(loaded(data, tmp_path), Run())
    assert architecture.grid == Grid((512,))
    assert build(architecture).inputs[0].shape == (1, 512, 4)
    for ledger in accounts(architecture):
        exact(ledger)
    data["input"] = VECTORS
    with pytest.raises(SpecError, match="the width is 3 here and nothing in `embed` brings it to 4"):
        place(loaded(data, tmp_path), Run())


@pytest.mark.parametrize(
    ("entry", "embed", "said"),
    [
        (VECTORS, [{"kind": "token"}], "of kind 'vectors', and 'token' comes first; expected {kind: projection}"),
        (VECTORS, [{"kind": "patch", "size": 2}], "of kind 'vectors', and 'patch' comes first"),
        (VECTORS, [{"kind": "projection"}, {"kind": "pixels"}], "'pixels' can only be the first step"),
        ({"kind": "image"}, [{"kind": "projection"}], "of kind 'image', and 'projection' comes first; expected"),
        ({"kind": "image"}, [], "of kind 'image'; expected {kind: patch, …} or {kind: pixels, …}"),
        ({"kind": "tokens", "vocabulary": 7}, [], "of kind 'tokens'; expected {kind: token, …} as the first step"),
    ],
)
def test_each_input_has_its_first_step(tmp_path: Path, entry: Any, embed: Any, said: str) -> None:
    data = spec(first=True, input=entry, embed=embed)
    with pytest.raises(SpecError) as refused:
        place(loaded(data, tmp_path), Run())
    assert said in str(refused.value)


def test_vectors_can_not_be_scored_as_words(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="'language_model' scores a vocabulary, and the input has none"):
        place(loaded(spec(first=True, head={"kind": "language_model"}), tmp_path), Run())
