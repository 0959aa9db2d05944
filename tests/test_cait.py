"""CaiT beside a plain implementation out of the paper: talking heads, LayerScale, a stage for the class token alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from strategies import exact, placed
from transformers_models import compare, ours_of, same_totals
from whole_probe import probe
from xfcost.counting.comparison import compared
from xfcost.counting.forward import count
from xfcost.counting.system import SpecSystem
from xfcost.formulas.component import Place, Residual
from xfcost.layers.feed_forward import Mlp
from xfcost.ledger.errors import ComponentError, SpecError
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.full import ClassAttention, Full
from xfcost.report.table import memory_text
from xfcost.spec.architecture import Part
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.spec.run import Run
from xfcost.torch_models.accounts import reconciled
from xfcost.torch_models.build import BuiltModel, SubLayerModel, build
from xfcost.torch_models.modules import ModuleMaker

# A plain CaiT ────────────────────────────────────────────────────────────────────────────────────────────────────────


def heads_apart(x: Tensor, heads: int) -> Tensor:
    return x.reshape(x.shape[0], x.shape[1], heads, -1).permute(0, 2, 1, 3)


class TalkingAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.proj_l, self.proj_w = nn.Linear(heads, heads), nn.Linear(heads, heads)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (heads_apart(part, self.heads) for part in self.qkv(x).split(x.shape[-1], dim=-1))
        scores = torch.matmul(q / q.shape[-1] ** 0.5, k.transpose(2, 3))
        mixed = self.proj_l(scores.permute(0, 2, 3, 1)).softmax(dim=2)
        weights = self.proj_w(mixed).permute(0, 3, 1, 2)
        return self.proj(torch.matmul(weights, v).permute(0, 2, 1, 3).reshape(x.shape))


class ClassReads(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in "qkv")
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (heads_apart(part, self.heads) for part in (self.q(x[:, :1]), self.k(x), self.v(x)))
        weights = torch.matmul(q / q.shape[-1] ** 0.5, k.transpose(2, 3)).softmax(dim=3)
        return self.proj(torch.matmul(weights, v).permute(0, 2, 1, 3).reshape(x.shape[0], 1, -1))


class PlainBlock(nn.Module):
    """x + γ₁·f(norm(x)), then x + γ₂·FFN(norm(x)); with `token`, on the class token alone."""

    def __init__(self, attention: nn.Module, width: int) -> None:
        super().__init__()
        self.attention = attention
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.gammas = nn.ParameterList(torch.ones(width) for _ in range(2))

    def forward(self, x: Tensor, token: Tensor | None = None) -> Tensor:
        read = x if token is None else torch.cat([token, x], dim=1)
        y = x if token is None else token
        y = y + self.gammas[0] * self.attention(self.norms[0](read))
        return y + self.gammas[1] * self.fc2(nn.functional.gelu(self.fc1(self.norms[1](y))))


class PlainCait(nn.Module):
    def __init__(self, width: int, depth: int, heads: int, size: int, patch: int = 16, classes: int = 1000) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, patch, patch)
        self.position = nn.Parameter(torch.zeros(1, (size // patch) ** 2, width))
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.blocks = nn.ModuleList(PlainBlock(TalkingAttention(width, heads), width) for _ in range(depth))
        self.last = nn.ModuleList(PlainBlock(ClassReads(width, heads), width) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, image: Tensor) -> Tensor:
        x = self.patch(image).flatten(2).mT + self.position
        for block in self.blocks:
            x = block(x)
        token = self.token.repeat(x.shape[0], 1, 1)
        for block in self.last:
            token = block(x, token)
        return self.head(self.norm(torch.cat([token, x], dim=1))[:, 0])


def copied(plain: PlainCait, ours: Any) -> None:
    """Their tensors in ours, every one once."""
    weights = dict(plain.named_parameters())

    def put(module: nn.Module, name: str) -> None:
        for kind, parameter in module.named_parameters(recurse=False):
            parameter.copy_(weights.pop(f"{name}.{kind}"))

    stream = ours.streams[0]
    put(stream.embed[0].projection, "patch")
    stream.embed[1].table.weight.copy_(weights.pop("position")[0])
    stream.stages[1].enter[0].prepend.weight.copy_(weights.pop("token"))
    for stage, there, parts in (
        (stream.stages[0], "blocks", {"qkv": "qkv", "out": "proj", "core.proj_l": "proj_l", "core.proj_w": "proj_w"}),
        (stream.stages[1], "last", {"q": "q", "k": "k", "v": "v", "out": "proj"}),
    ):
        for number, (mixer, mlp) in enumerate(stage.run):
            for mine, theirs in parts.items():
                put(mixer.inner.get_submodule(mine), f"{there}.{number}.attention.{theirs}")
            put(mlp.inner.fc1, f"{there}.{number}.fc1")
            put(mlp.inner.fc2, f"{there}.{number}.fc2")
            for index, sublayer in enumerate((mixer, mlp)):
                put(sublayer.residual_norm, f"{there}.{number}.norms.{index}")
                sublayer.residual_layer_scale.weight.copy_(weights.pop(f"{there}.{number}.gammas.{index}"))
    put(ours.head.norm, "norm")
    put(ours.head.linear, "head")
    assert not weights


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


@pytest.mark.parametrize("attention", ["eager", "fused"])
def test_a_small_cait_gives_the_plain_one_s_numbers(attention: str, tmp_path: Path) -> None:
    ours = ours_of(cait_spec(), tmp_path, batch=2, dtype="float64", attention=attention)
    plain = PlainCait(12, 3, 3, 24, patch=8, classes=7).eval().requires_grad_(requires_grad=False)
    compare(plain, ours, copied, lambda model, image: model(image), tolerance=1e-10)


SIZES = {
    "xxs24": (192, 24, 4),
    "xxs36": (192, 36, 4),
    "xs24": (288, 24, 6),
    "xs36": (288, 36, 6),
    "s24": (384, 24, 8),
    "s36": (384, 36, 8),
    "s48": (384, 48, 8),
    "m24": (768, 24, 16),
    "m36": (768, 36, 16),
    "m48": (768, 48, 16),
}
RESOLUTIONS = [(name, side) for name in SIZES for side in (224, 384)] + [("m36", 448), ("m48", 448)]


@pytest.mark.parametrize(("name", "side"), RESOLUTIONS)
def test_every_preset_has_the_plain_one_s_parameters_and_macs(name: str, side: int) -> None:
    same_totals(f"cait-{name}" + (f"-{side}" if side != 224 else ""), lambda: PlainCait(*SIZES[name], side))


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


@pytest.mark.parametrize("where", ["none", "pre", "post", "res_post"])
@pytest.mark.parametrize("attention", ["eager", "fused"])
def test_the_trace_agrees_however_they_join(attention: str, where: str, tmp_path: Path) -> None:
    residual = "none" if where == "none" else {"place": where, "layer_scale": 0.1, "factor": 0.5}
    architecture = placed(cait_spec(residual=residual), tmp_path, batch=2, attention=attention)
    live: BuiltModel = build(architecture)
    exact(reconciled(count(architecture), *live))


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
