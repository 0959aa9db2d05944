"""Deformable attention: at its edges, on feature maps of any sizes, and beside transformers' encoder."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cases.base import Case
from cases.chosen import several
from contract import example, make
from specs import architecture_of, counted
from transformers_models import TheirWeights, transformers
from xfcost.formulas.component import Place
from xfcost.ledger.errors import ComponentError, SpecError, UsageError
from xfcost.ledger.grid import Grid, largest_map, map_levels
from xfcost.mechanisms.deformable import Deformable
from xfcost.torch_models.build import build

PRESET = "deformable-detr-encoder"
MAPS = ((4, 6), (2, 3))


def at(grid: Grid, dim: int = 6) -> Place:
    return Place(grid=grid, dim=dim, out_dim=dim)


# By hand ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("points", "grid", "most"),
    # four cells of one point; of one point in each of two maps; of two points
    [(1, Grid((9, 9)), 4), (1, several((12, 12), (6, 6)), 8), (2, Grid((16, 16)), 8)],
)
def test_a_head_reads_as_many_tokens_as_it_says(points: int, grid: Grid, most: int) -> None:
    component, spot = Deformable(heads=2, points=points), at(grid)
    module, given = make(Case(component, spot)), []
    module.sample.register_forward_pre_hook(lambda _, inputs: given.extend(inputs))
    module(*example(spot, 1))
    places, values = given[:2]
    before = module.sample(places, values)
    without = (values.index_fill(1, torch.tensor(token), 0) for token in range(grid.total))
    read = sum((module.sample(places, values) != before).any(-1).any(-1).int() for values in without)
    (declared,) = (row.reads_tokens for row in component.operations(spot) if row.path == "sample")
    assert read.max() == declared == most


# Places ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("component", "grid", "field", "text"),
    [
        (Deformable(heads=4), Grid((4, 4)), "heads", "4 does not divide the width 6"),
        (Deformable(heads=2), Grid((4, 4), 1), "kind", "points lie on feature maps: expected no special tokens, got 1"),
        (Deformable(heads=2), Grid((16,)), "kind", "an image's grid or an input of kind feature_maps, got 16 tokens"),
        (Deformable(heads=2), Grid((2, 3, 4)), "kind", "of two axes: .* got 24 .2×3×4. tokens"),
        (Deformable(heads=2, causal=True), Grid((4, 4)), "causal", "its points lie on all sides of a token"),
    ],
)
def test_places_where_it_can_not_stand(component: Deformable, grid: Grid, field: str, text: str) -> None:
    with pytest.raises(ComponentError, match=text) as refused:
        component.check(at(grid))
    assert refused.value.field == field


def test_it_has_no_decode_step() -> None:
    with pytest.raises(SpecError, match="'deformable' reads later tokens, so nothing can be cached"):
        architecture_of(PRESET, mode="decode")


def test_a_class_token_between_maps_and_points_is_refused() -> None:
    with pytest.raises(SpecError, match="expected no special tokens, got 1"):
        architecture_of(PRESET, 'embed=[{"kind": "class_token"}]')


# Feature maps as an input ────────────────────────────────────────────────────────────────────────────────────────────


def test_maps_are_halved_and_rounded_up() -> None:
    assert map_levels((100, 167), 4) == ((100, 167), (50, 84), (25, 42), (13, 21))
    grid = architecture_of(PRESET).grid
    assert grid.total == 100 * 167 + 50 * 84 + 25 * 42 + 13 * 21
    assert grid.shape_text() == "22,223 (100×167, 50×84, 25×42, 13×21)"
    assert architecture_of(PRESET, "input.levels=1").grid == Grid((100, 167))


def test_n_is_the_tokens_of_all_maps() -> None:
    by_tokens = {}
    for sides in itertools.product(range(1, 25), repeat=2):
        if sides[0] <= sides[1] <= 2 * sides[0]:
            tokens = sum(height * width for height, width in map_levels(sides, 3))
            # nearest to a square: the shorter side as long as can be
            by_tokens[tokens] = max(by_tokens.get(tokens, sides), sides)
    for tokens in range(1, 400):
        if tokens in by_tokens:
            assert largest_map(tokens, 3) == by_tokens[tokens]
        else:
            with pytest.raises(UsageError, match=f"--N {tokens}: no 3 feature maps") as refused:
                largest_map(tokens, 3)
            below = max((n for n in by_tokens if n < tokens), default=None)
            near = [str(n) for n in (below, min(n for n in by_tokens if n > tokens)) if n]
            assert str(refused.value).endswith(f"the nearest that do: {' or '.join(near)}")


def test_sizes_of_the_largest_map() -> None:
    ledgers = [
        counted(PRESET, "input.size=[16,24]"),
        counted(PRESET, tokens=(510,)),
    ]
    assert {ledger.metadata.tokens for ledger in ledgers} == {"510 (16×24, 8×12, 4×6, 2×3)"}
    assert ledgers[0].rows == ledgers[1].rows
    # the size of an image is none of a map
    with pytest.raises(UsageError, match="--size: Deformable DETR encoder takes feature maps, not the image behind"):
        architecture_of(PRESET, size=(512, 512))


# Beside transformers ─────────────────────────────────────────────────────────────────────────────────────────────────


def theirs(maps: tuple[tuple[int, int], ...], device: str = "cpu", **settings: Any) -> nn.Module:
    deformable = transformers.models.deformable_detr.modeling_deformable_detr
    backbone = transformers.ResNetConfig(out_features=["stage4"])
    config = transformers.DeformableDetrConfig(backbone_config=backbone, num_feature_levels=len(maps), **settings)
    with torch.device(device):
        model: nn.Module = deformable.DeformableDetrEncoder(config).eval().requires_grad_(requires_grad=False)
    return model


def run(model: nn.Module, x: Tensor, maps: tuple[tuple[int, int], ...]) -> Tensor:
    """Without positions and padding."""
    sizes = {"spatial_shapes": torch.tensor(maps, device=x.device), "spatial_shapes_list": list(maps)}
    ratios = torch.ones(len(x), len(maps), 2, dtype=x.dtype, device=x.device)
    given = {"inputs_embeds": x, "attention_mask": torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)}
    output: Tensor = model(**given, **sizes, level_start_index=None, valid_ratios=ratios).last_hidden_state
    return output


@pytest.mark.parametrize("maps", [MAPS, ((5, 4),)])
def test_outputs_are_those_of_transformers(maps: tuple[tuple[int, int], ...]) -> None:
    torch.manual_seed(0)
    settings = {"d_model": 8, "encoder_attention_heads": 2, "encoder_ffn_dim": 12, "encoder_layers": 2}
    model = theirs(maps, **settings, encoder_n_points=3).double()
    for parameter in model.parameters():  # theirs begin with offsets of whole cells and weights of zero
        parameter.add_(0.3 * torch.randn_like(parameter))
    small = [
        f"input.size=[{maps[0][0]},{maps[0][1]}]", f"input.levels={len(maps)}", "input.channels=8", "stages.0.dim=8",
        "stages.0.depth=2", "stages.0.block.0.heads=2", "stages.0.block.0.points=3", "stages.0.block.1.hidden=12",
    ]  # fmt: skip
    architecture = architecture_of(PRESET, *tuple(small), dtype="float64")
    ours, weights = build(architecture, "cpu").model, TheirWeights(model)
    with torch.no_grad():
        for number, (mixer, mlp) in enumerate(ours.streams[0].stages[0].run):
            names = {"value": "value_proj", "offsets": "sampling_offsets", "weights": "attention_weights"}
            for leaf, name in (names | {"out": "output_proj"}).items():
                weights.put(getattr(mixer.inner, leaf), f"layers.{number}.self_attn.{name}")
            weights.put(mixer.residual_norm, f"layers.{number}.self_attn_layer_norm")
            weights.put(mlp.inner.fc1, f"layers.{number}.mlp.fc1")
            weights.put(mlp.inner.fc2, f"layers.{number}.mlp.fc2")
            weights.put(mlp.residual_norm, f"layers.{number}.final_layer_norm")
        x = torch.randn(2, architecture.grid.total, 8, dtype=torch.float64)
        torch.testing.assert_close(ours(x), run(model, x, maps), rtol=1e-10, atol=1e-10)
    assert not weights
