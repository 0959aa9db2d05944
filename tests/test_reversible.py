"""Reversible residuals: the same numbers and gradients, no activations kept, rows that agree, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor

from saved import saved_bytes
from strategies import exact, placed
from xfcost.counting.forward import count
from xfcost.formulas.component import Place, Residual
from xfcost.layers.mlp import Mlp
from xfcost.ledger import units
from xfcost.ledger.errors import SpecError
from xfcost.ledger.grid import Grid
from xfcost.ledger.ledger import Ledger
from xfcost.report.table import memory_text
from xfcost.spec.architecture import Architecture, Part
from xfcost.spec.reader import Source
from xfcost.spec.reversible import check_block
from xfcost.torch_models.accounts import reconciled
from xfcost.torch_models.build import BuiltModel, StageModel, build
from xfcost.torch_models.shared.reversible import ReversibleRun

TOKENS, DIM = 6, 12
FULL = {"kind": "full", "heads": 3}
MLP = {"kind": "mlp", "ratio": 2}


def spec(*, depth: int = 3, block: list[Any] | None = None, stage: dict[str, Any] | None = None, **residual: Any):
    return {
        "name": "reversible",
        "input": {"kind": "tokens", "vocabulary": 11, "length": TOKENS},
        "embed": [{"kind": "token"}],
        "residual": {"form": "reversible"} | residual,
        "stages": [{"dim": DIM, "depth": depth, "block": block or [FULL, MLP]} | (stage or {})],
        "head": {"kind": "language_model"},
    }


def learning(architecture: Architecture, device: str = "cpu") -> BuiltModel:
    torch.manual_seed(0)
    live = build(architecture, device)
    return live._replace(model=live.model.double().requires_grad_())


def stage_of(live: BuiltModel, stream: int = 0) -> StageModel:
    return live.model.streams[stream].stages[0]


def refusal(data: dict[str, Any], folder: Path) -> str:
    with pytest.raises(SpecError) as refused:
        placed(data, folder)
    return str(refused.value)


def joined(architecture: Architecture) -> Ledger:
    live = build(architecture)
    return reconciled(count(architecture), *live)


# Numbers ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def plainly(stage: StageModel, x_BND: Tensor, memory_BMD: Tensor | None = None) -> Tensor:
    """y₁ = x₁ + f(norm(x₂)), y₂ = x₂ + g(norm(y₁)), written out."""
    x1, x2 = x_BND, x_BND
    for f, g in stage.run:
        x1 = x1 + f.branch(x2, memory_BMD)
        x2 = x2 + g.branch(x1, memory_BMD)
    return torch.cat([x1, x2], -1) if stage.exit.join.how == "concatenate" else (x1 + x2) / 2


@pytest.mark.parametrize("how", ["concatenate", "mean"])
@pytest.mark.parametrize("where", ["pre", "res_post"])
def test_outputs_and_gradients_are_those_of_the_formula(how, where, tmp_path):
    data = spec(
        place=where, join=how, block=[FULL, {"kind": "mlp", "residual": {"form": "reversible", "norm": "none"}}]
    )
    stage = stage_of(learning(placed(data, tmp_path)))
    x = torch.randn(2, TOKENS, DIM, dtype=torch.float64, requires_grad=True)
    learned = [x, *stage.parameters()]
    answers = stage(x, None), plainly(stage, x)
    weights = torch.randn_like(answers[0])
    gradients = [torch.autograd.grad((answer * weights).sum(), learned) for answer in answers]
    torch.testing.assert_close(*answers, rtol=0, atol=0)
    for ours, plain in zip(*gradients, strict=True):
        assert plain.abs().max() > 0
        torch.testing.assert_close(ours, plain, rtol=1e-9, atol=1e-11)


def test_without_gradients_it_is_the_same(tmp_path):
    stage = stage_of(learning(placed(spec(), tmp_path)))
    x = torch.randn(2, TOKENS, DIM, dtype=torch.float64)
    with torch.no_grad():
        assert torch.equal(stage(x, None), plainly(stage, x))


def test_gradients_reach_shared_tables(tmp_path):
    block = [{"kind": "relative", "heads": 3, "share": "biases"}, MLP]
    live = learning(placed(spec(block=block), tmp_path))
    stage, x = stage_of(live), torch.randn(2, TOKENS, DIM, dtype=torch.float64)
    learned = [*stage.parameters(), *live.model.shared.parameters()]
    assert live.model.shared["biases"].weight.shape == (2, DIM)
    gradients = [torch.autograd.grad(answer.sin().sum(), learned) for answer in (stage(x, None), plainly(stage, x))]
    for ours, plain in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-9, atol=1e-11)
    assert gradients[0][-1].abs().max() > 0


def test_gradients_reach_another_stream(tmp_path):
    data = spec(block=[{"kind": "full", "heads": 3}, {"kind": "cross", "heads": 3}])
    decoder = {"embed": data.pop("embed"), "stages": data.pop("stages")}
    encoder = {
        "embed": [{"kind": "token"}],
        "stages": [{"dim": DIM, "depth": 1, "block": [FULL, MLP], "residual": {"form": "ordinary"}}],
    }
    stage = stage_of(learning(placed(data | {"encoder": encoder, "decoder": decoder}, tmp_path)), 1)
    assert isinstance(stage.run, ReversibleRun)
    x, memory = (torch.randn(2, TOKENS, DIM, dtype=torch.float64, requires_grad=True) for _ in range(2))
    learned = [x, memory, *stage.parameters()]
    gradients = [
        torch.autograd.grad(answer.sin().sum(), learned) for answer in (stage(x, memory), plainly(stage, x, memory))
    ]
    for ours, plain in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-9, atol=1e-11)
    assert gradients[1][1].abs().max() > 0


# What is kept ────────────────────────────────────────────────────────────────────────────────────────────────────────


def kept(folder: Path, depth: int, *, reversible: bool, device: str) -> int:
    data = spec(depth=depth)
    data["residual"] = {"form": "reversible" if reversible else "ordinary"}
    stage = stage_of(learning(placed(data, folder), device))
    return saved_bytes(stage, (torch.empty(2, TOKENS, DIM, dtype=torch.float64, device=device), None))


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_what_training_keeps_does_not_grow_with_depth(device, tmp_path):
    # two streams of N·d float64, of two samples
    assert {kept(tmp_path, depth, reversible=True, device=device) for depth in (1, 4, 16)} == {2 * 2 * TOKENS * DIM * 8}
    one, two, three = (kept(tmp_path, depth, reversible=False, device=device) for depth in (1, 2, 3))
    assert three - two == two - one > 2 * 2 * TOKENS * DIM * 8  # at least the inputs of two sub-layers per block


def test_what_training_keeps_is_told(tmp_path):
    (note,) = count(placed(spec(depth=5), tmp_path)).metadata.notes
    assert note.startswith("stage 1: reversible: ")
    assert f"2·N·d = {2 * TOKENS * DIM:,} elements" in note
    assert f"5·2·N·d = {5 * 2 * TOKENS * DIM:,}" in note


# Rows ────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("how", [None, "concatenate", "mean"])
def test_counted_and_traced_agree_and_the_head_is_wider(how, tmp_path):
    ledger = joined(placed(spec(join=how), tmp_path, batch=2))
    exact(ledger)
    rows = {row.path: row for row in ledger.rows}
    end = rows["stages.0.residual.join"]
    wide = DIM if how == "mean" else 2 * DIM
    assert rows["head.linear"].macs == 2 * TOKENS * wide * 11
    assert rows["head.norm"].params == 2 * wide
    assert (end.moved, end.flops) == ((0, 2 * 2 * TOKENS * DIM) if how == "mean" else (2 * 2 * TOKENS * DIM, 0))
    assert (end.order, end.block) == ("O(N·d)" if how == "mean" else None, "stage 1 · exit")


def test_blocks_cost_what_they_cost_with_ordinary_residuals(tmp_path):
    reversible = spec(join="mean")
    ordinary = reversible | {"residual": {}}
    rows = [count(placed(data, tmp_path)).rows for data in (reversible, ordinary)]
    assert all(row.recomputed == row.path.startswith("stages.0.block") for row in rows[0])
    assert not any(row.recomputed for row in rows[1])
    rows[0] = [msgspec.structs.replace(row, recomputed=False) for row in rows[0]]
    ends = [row for row in rows[0] if row.path.startswith("stages.0.residual")]
    assert [row for row in rows[0] if row not in ends] == list(rows[1])
    assert len(ends) == 1


def test_training_keeps_the_attention_matrices_of_one_layer_at_a_time(tmp_path):
    # 5 layers of 3 heads of 6×6 float32, and 2 layers of another stage that keeps its own
    data = spec(depth=5, join="mean")
    kept = {"dim": DIM, "depth": 2, "block": [FULL, MLP], "residual": {}}
    one, both = (
        count(placed(data | {"stages": stages}, tmp_path, batch=2))
        for stages in (data["stages"], [*data["stages"], kept])
    )
    layer = 2 * 3 * TOKENS**2 * 4
    assert (one.attention_kept_bytes(), one.attention_memory()["all_layers"]) == (layer, 5 * layer)
    assert (both.attention_kept_bytes(), both.attention_memory()["all_layers"]) == (3 * layer, 7 * layer)
    assert f"in all layers ({units.size(layer)} at a time in training)" in memory_text(one).plain


def test_a_stage_can_be_reversible_alone(tmp_path):
    data = spec()
    ordinary = {"dim": DIM, "depth": 1, "block": [FULL, MLP, MLP], "residual": {"norm": "none"}}
    data |= {"stages": [*data["stages"], ordinary]}
    assert "the width is 24 here and nothing in `enter` brings it to 12" in refusal(data, tmp_path)
    data["residual"]["join"] = "mean"
    ledger = joined(placed(data, tmp_path))
    exact(ledger)
    assert [row.path for row in ledger.rows if "residual.join" in row.path] == ["stages.0.residual.join"]


# What is refused ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("sublayers", [1, 3])
def test_a_reversible_block_is_two_sub_layers(sublayers, tmp_path):
    said = refusal(spec(block=[FULL, MLP, MLP][:sublayers]), tmp_path)
    assert "stages[0].block: a reversible block is" in said
    assert said.endswith(f"expected two sub-layers, got {sublayers}")


def test_what_cannot_be_undone_is_refused(tmp_path):
    assert "residual.place: 'post' normalises the sum" in refusal(spec(place="post"), tmp_path)
    said = refusal(spec(stage={"residual": {"form": "reversible", "place": "post"}}), tmp_path)
    assert "stages[0].residual.place: 'post' normalises the sum" in said
    own = FULL | {"residual": {"form": "reversible", "place": "post"}}
    assert "stages[0].block[0].residual.place: 'post' normalises" in refusal(spec(block=[own, MLP]), tmp_path)


def test_the_form_is_the_stage_s(tmp_path):
    ordinary = MLP | {"residual": {"norm": "none"}}
    assert "block[1].residual: the form of the residual is 'reversible' here" in refusal(
        spec(block=[FULL, ordinary]), tmp_path
    )
    assert "block[1].residual: the form of the" in refusal(spec(block=[FULL, MLP | {"residual": "none"}]), tmp_path)
    data = spec(block=[FULL, MLP | {"residual": {"form": "reversible"}}]) | {"residual": {}}
    assert "block[1].residual: the form of the residual is 'ordinary' here" in refusal(data, tmp_path)


def test_the_end_of_two_streams_needs_two(tmp_path):
    data = spec() | {"residual": {"join": "mean"}}
    assert "residual.join: says how two streams end, and there is one" in refusal(data, tmp_path)


class Wider(Mlp, frozen=True, kw_only=True, tag="wider"):
    def out(self, spot: Place) -> tuple[Grid, int]:
        return spot.grid, 2 * spot.dim


def test_a_sub_layer_that_changes_the_width_is_refused():
    spot, residual = Place(grid=Grid((TOKENS,)), dim=DIM, out_dim=DIM), Residual(form="reversible")
    parts = [Part("it", component, spot, residual) for component in (Mlp(), Wider())]
    check_block(("block",), parts[:1] * 2, residual, Source("x.yaml"))
    with pytest.raises(SpecError, match=r"block\[1\].kind: 'wider' changes the grid or the width"):
        check_block(("block",), parts, residual, Source("x.yaml"))
