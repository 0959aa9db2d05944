"""CaiT beside a plain implementation out of the paper: talking heads, LayerScale, a stage for the class token alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from strategies import placed
from whole_probe import probe
from xfcost.counting.comparison import compared
from xfcost.counting.forward import count
from xfcost.counting.system import SpecSystem
from xfcost.formulas.component import Place, Residual
from xfcost.layers.mlp import Mlp
from xfcost.ledger.errors import ComponentError, SpecError
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.class_attention import ClassAttention
from xfcost.mechanisms.full import Full
from xfcost.report.table import memory_text
from xfcost.spec.architecture import Part
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.spec.run import Run
from xfcost.torch_models.build import SubLayerModel
from xfcost.torch_models.modules import ModuleMaker

# Ours beside it ──────────────────────────────────────────────────────────────────────────────────────────────────────


def cait_spec(**more: Any) -> dict[str, Any]:
    return {
        "name": "a small CaiT",
        "input": {"kind": "image", "size": 24},
        "residual": {"layer_scale": 0.5},
        "embed": [{"kind": "patch", "size": 8}, {"kind": "position"}],
        "stages": [
            {"dim": 12, "depth": 3, "block": [{"kind": "full", "heads": 3, "talking_heads": True}, {"kind": "mlp"}]},
            {
                "enter": [{"kind": "class_token"}],
                "dim": 12,
                "depth": 2,
                "block": [{"kind": "class_attention", "heads": 3}, {"kind": "mlp", "tokens": "class_token"}],
            },
        ],
        "head": {"kind": "classifier", "pool": "class_token", "classes": 7},
    } | more


@pytest.mark.parametrize("residual", ["none", Residual(), Residual(place="post"), Residual(place="res_post")], ids=str)
@pytest.mark.parametrize("special", [1, 2])
@pytest.mark.parametrize(
    "component", [ClassAttention(heads=2), Mlp(tokens="class_token"), Mlp(tokens="class_token", chunks=2)]
)
def test_the_grid_s_tokens_pass_by_as_they_are(component: Any, special: int, residual: Any) -> None:
    spot = Place(grid=Grid((3, 4), special), dim=6, out_dim=6)
    model = SubLayerModel(Part("it", component, spot, residual), ModuleMaker({})).double().eval()
    x = torch.randn(2, 12 + special, 6, dtype=torch.float64)
    with torch.no_grad():
        found = model(x)
    torch.testing.assert_close(found[:, special:], x[:, special:], rtol=0, atol=0)
    assert not torch.isclose(found[:, :special], x[:, :special]).all(-1).any()
    reads = [
        frozenset(range(12 + special)) if isinstance(component, ClassAttention) else frozenset({n})
        for n in range(special)
    ]
    assert probe(model, (x[:1],)).reads == (*reads, *(frozenset({n}) for n in range(special, 12 + special)))


def test_asked_for_fused_talking_heads_run_eager_and_say_so(tmp_path: Path) -> None:
    eager, fused = (count(placed(cait_spec(), tmp_path, attention=way)) for way in ("eager", "fused"))
    kept = [[row.path for row in ledger.rows if row.attention_entries] for ledger in (eager, fused)]
    assert kept[0] == ["stages.0.block.0.scores", "stages.1.block.0.scores"]
    assert kept[1] == ["stages.0.block.0.scores", "stages.1.block.0.attention"]
    for ledger in (eager, fused):
        assert any(
            "which no fused kernel does: this attention always runs eager" in note for note in ledger.metadata.notes
        )
    assert memory_text(fused).plain.startswith("attention matrices, float32, and float32 statistics where fused")
    assert memory_text(eager).plain.startswith("attention matrices, float32")
    # nor is it told what a tiled kernel would move, for there is none
    told = count(placed(cait_spec(), tmp_path, memory_level=2**20))
    assert [row.path for row in told.rows if row.traffic] == ["stages.1.block.0.scores"]


def test_where_no_class_token_stands_they_are_refused(tmp_path: Path) -> None:
    spot = Place(grid=Grid((4,)), dim=4, out_dim=4)
    for component, field in ((ClassAttention(heads=2), "kind"), (Mlp(tokens="class_token"), "tokens")):
        with pytest.raises(ComponentError, match="there is no class token") as refused:
            component.check(spot)
        assert refused.value.field == field
    stages = cait_spec()["stages"]
    stages[1].pop("enter")
    with pytest.raises(SpecError, match=r"stages\[1\]\.block\[0\]\.kind: there is no class token; add"):
        placed(cait_spec(stages=stages), tmp_path)


def test_causal_and_reversible_are_refused(tmp_path: Path) -> None:
    spot = Place(grid=Grid((4,), 1), dim=4, out_dim=4)
    with pytest.raises(ComponentError, match="the class token reads every token"):
        ClassAttention(heads=2, causal=True).check(spot)
    with pytest.raises(ComponentError, match="gives later tokens a weight"):
        Full(heads=2, causal=True, talking_heads=True).check(spot)
    stages = cait_spec()["stages"]
    stages[1]["residual"] = {"form": "reversible"}
    with pytest.raises(SpecError, match="'class_attention' changes the class token alone; reversible blocks add"):
        placed(cait_spec(stages=stages), tmp_path)


def test_on_the_grid_alone_what_works_on_the_class_token_is_left_out(tmp_path: Path) -> None:
    for data in (
        cait_spec(),
        # the class token from the first: it is an special token of the first stage too
        cait_spec(embed=[{"kind": "patch", "size": 8}, {"kind": "class_token"}, {"kind": "position"}])
        | {"stages": [cait_spec()["stages"][0], cait_spec()["stages"][1] | {"enter": []}]},
    ):
        alone = placed(data, tmp_path, extra_tokens=False)
        assert [part.component for block in alone.streams[0].stages[1].blocks for part in block.parts] == []
        assert {row.path.split(".")[1] for row in count(alone).rows if row.path.startswith("stages.")} == {"0"}
        assert alone.head.component.pool == "mean"
        loaded = load(str(tmp_path / "spec.yaml"))
        figures = compared([SpecSystem(loaded)], [count(place(loaded, Run()))], Run()).figures["a small CaiT"]
        assert figures["score_dot_products"] == 9**2
