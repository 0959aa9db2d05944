"""Patterns that the content decides: hashed, clustered, sorted, and sampled between cells."""

import itertools
from functools import partial

import pytest
import torch
from torch.nn import functional as F

import places
from cases.base import Case
from cases.chosen import several
from contract import example, make
from modules import noise
from specs import architecture_of
from transformers_models import TheirWeights, transformers
from xfcost.ledger.errors import UsageError
from xfcost.ledger.grid import Grid, largest_map, map_levels
from xfcost.mechanisms.deformable import Deformable
from xfcost.mechanisms.routing import Routing
from xfcost.mechanisms.sorting import Lsh, Sinkhorn
from xfcost.program.residual import component_rows
from xfcost.torch_models.build import build
from xfcost.torch_models.shared.clusters import DECAY

# `--kind` of one of these selects this file
KINDS = ("lsh", "routing", "sinkhorn", "deformable")


# LSH attention ────────────────────────────────────────────────────────────────────────────────────────────────────────

DIM, HEADS = 12, 3


def test_a_decoder_is_approximately_causal():
    assert Lsh(heads=3).with_stream_defaults(decoder=True).causal == "approximate"
    assert Lsh(heads=3).with_stream_defaults(decoder=False).causal is False


def test_equal_queries_share_a_bucket_and_opposite_ones_never():
    module = make(Case(Lsh(heads=1, rounds=8, bucket=4, buckets=[4, 6]), places.at(24, dim=DIM)))
    query = torch.randn(1, 1, 1, DIM, dtype=torch.float64)
    x_BHPK = torch.randn(1, 1, 24, DIM, dtype=torch.float64)
    x_BHPK[:, :, 3], x_BHPK[:, :, 17], x_BHPK[:, :, 20] = query[:, :, 0], 5 * query[:, :, 0], -query[:, :, 0]
    bucket_RP = module.hash(module.rotate(x_BHPK))[0, 0]
    assert torch.equal(bucket_RP[:, 3], bucket_RP[:, 17])
    assert (bucket_RP[:, 3] != bucket_RP[:, 20]).all()
    assert bucket_RP.min() >= 0
    assert bucket_RP.max() < 24  # 4·6 buckets
    assert len(bucket_RP.unique()) > 8


def test_half_precision_masks_without_overflow():
    module = make(Case(Lsh(heads=HEADS, rounds=2, bucket=4, causal="approximate"), places.at(10, dim=DIM))).half()
    answer = module(torch.randn(1, 10, DIM, dtype=torch.float16))
    assert answer.isfinite().all()


# Routing attention ────────────────────────────────────────────────────────────────────────────────────────────────────

at = partial(places.at, dim=8)


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({}, (10, 10)),  # ⌊√100⌋
        ({"window": 16}, (7, 16)),  # ⌈100/16⌉
        ({"clusters": 7}, (7, 15)),  # ⌈100/7⌉
        ({"clusters": 7, "window": 4}, (7, 4)),
        ({"window": 200}, (1, 100)),
        ({"clusters": 200}, (200, 1)),
    ],
)
def test_clusters_and_their_windows(options, sizes):
    assert Routing(heads=2, **options).sizes(Grid((100,)))[:2] == sizes


@pytest.mark.parametrize("shared", [False, True])
def test_centroids_move_in_training_alone_and_are_no_parameters(*, shared):
    module = make(Case(Routing(heads=1, clusters=2, shared_qk=shared), at(6)))
    before = module.distances.centroids_HCK.clone()
    module(noise(1, 6, 8))
    assert torch.equal(module.distances.centroids_HCK, before)
    module.train()
    module(noise(1, 6, 8)).sum().backward()
    members = torch.zeros(2, 8).double()
    sides = module.qv(noise(1, 6, 8)).chunk(2, -1)[:1] if shared else module.qkv(noise(1, 6, 8)).chunk(3, -1)[:2]
    for vector in F.normalize(torch.cat(sides, dim=1)[0], dim=-1):
        members[int((before[0] @ vector).argmax())] += vector
    for was, mean, now in zip(before[0], members, module.distances.centroids_HCK[0], strict=True):
        expected = DECAY * was + (1 - DECAY) * mean / mean.norm() if mean.any() else was
        torch.testing.assert_close(now, expected, rtol=1e-12, atol=1e-12)
    assert not any("centroids" in name for name, _ in module.named_parameters())


# Sinkhorn attention ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_noise_belongs_to_training_alone():
    module = make(Case(Sinkhorn(heads=2, block=4), at(12)))
    assert torch.equal(module(noise(1, 12, 8)), module(noise(1, 12, 8)))
    module.train()
    assert not torch.equal(module(noise(1, 12, 8)), module(noise(1, 12, 8)))


# Deformable attention ─────────────────────────────────────────────────────────────────────────────────────────────────

PRESET = "deformable-detr-encoder"


@pytest.mark.parametrize(
    ("points", "grid", "most"),
    # four cells of one point; of one point in each of two maps; of two points
    [(1, Grid((9, 9)), 4), (1, several((12, 12), (6, 6)), 8), (2, Grid((16, 16)), 8)],
)
def test_a_head_reads_as_many_tokens_as_it_says(points, grid, most):
    component, spot = Deformable(heads=2, points=points), places.on(grid)
    module, given = make(Case(component, spot)), []
    module.sample.register_forward_pre_hook(lambda _, inputs: given.extend(inputs))
    module(*example(spot, 1))
    where, values = given[:2]
    before = module.sample(where, values)
    without = (values.index_fill(1, torch.tensor(token), 0) for token in range(grid.total))
    read = sum((module.sample(where, values) != before).any(-1).any(-1).int() for values in without)
    (declared,) = (row.reads_tokens for row in component_rows(component, spot) if row.path == "sample")
    assert read.max() == declared == most


def test_maps_are_halved_and_rounded_up():
    assert map_levels((100, 167), 4) == ((100, 167), (50, 84), (25, 42), (13, 21))
    grid = architecture_of(PRESET).grid
    assert grid.total == 100 * 167 + 50 * 84 + 25 * 42 + 13 * 21
    assert grid.shape_text() == "22,223 (100×167, 50×84, 25×42, 13×21)"
    assert architecture_of(PRESET, "input.levels=1").grid == Grid((100, 167))


def test_n_is_the_tokens_of_all_maps():
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


def theirs(maps, device="cpu", **settings):
    deformable = transformers.models.deformable_detr.modeling_deformable_detr
    backbone = transformers.ResNetConfig(out_features=["stage4"])
    config = transformers.DeformableDetrConfig(backbone_config=backbone, num_feature_levels=len(maps), **settings)
    with torch.device(device):
        return deformable.DeformableDetrEncoder(config).eval().requires_grad_(requires_grad=False)


def run(model, x, maps):
    """Without positions and padding."""
    sizes = {"spatial_shapes": torch.tensor(maps, device=x.device), "spatial_shapes_list": list(maps)}
    ratios = torch.ones(len(x), len(maps), 2, dtype=x.dtype, device=x.device)
    given = {"inputs_embeds": x, "attention_mask": torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)}
    return model(**given, **sizes, level_start_index=None, valid_ratios=ratios).last_hidden_state


@pytest.mark.parametrize("maps", [((4, 6), (2, 3)), ((5, 4),)])
def test_outputs_are_those_of_transformers(maps):
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
            weights.put_mlp(mlp, *(f"layers.{number}.{name}" for name in ("mlp.fc1", "mlp.fc2", "final_layer_norm")))
        x = torch.randn(2, architecture.grid.total, 8, dtype=torch.float64)
        torch.testing.assert_close(ours(x), run(model, x, maps), rtol=1e-10, atol=1e-10)
    assert not weights
