"""Latents and sets: pooling attention, Set Transformer and Perceiver IO."""

import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cases.base import Case
from cases.layers import POOLING_ATTENTION
from contract import LargestTensor, example, make
from places import at, on
from specs import counted
from strategies import exact, loaded, stack
from transformers_models import TheirWeights, compare, ours_of, parameters, transformers
from whole_probe import probe
from xfcost.comparing.comparison import compared
from xfcost.counting.forward import count
from xfcost.formulas.component import Place, Residual, SubLayer
from xfcost.layers.feed_forward import Dense
from xfcost.layers.stage_entries import PoolingAttention
from xfcost.ledger.grid import Grid
from xfcost.ledger.ledger import Ledger
from xfcost.mechanisms.full import Full
from xfcost.mechanisms.low_rank import Inducing
from xfcost.program.residual import component_rows
from xfcost.spec.architecture import Architecture, Part
from xfcost.spec.placement import place
from xfcost.spec.run import Run
from xfcost.systems.spec import SpecSystem
from xfcost.torch_models.accounts import reconciled
from xfcost.torch_models.build import BlockModel, BuiltModel, ModuleMaker, SubLayerModel, build

# `--kind` of one of these selects this file
KINDS = ("pooling_attention",)


# The entry that pools by attention, and vectors as an input ───────────────────────────────────────────────────────────

POOLING_ATTENTION_WIDTH, OUT = 5, 6
GRIDS = (Grid((1,)), Grid((7,)), Grid((3, 5)), Grid((2, 2), 1))
CASES = [(component, grid, fused) for component in POOLING_ATTENTION for grid in GRIDS for fused in (False, True)]
every_case = pytest.mark.parametrize(("component", "grid", "fused"), CASES, ids=str)
every_component = pytest.mark.parametrize("component", POOLING_ATTENTION, ids=str)


spot = partial(on, dim=POOLING_ATTENTION_WIDTH, out_dim=OUT)


def tokens(grid: Grid) -> Tensor:
    return example(spot(grid), 2)[0]


@every_case
def test_every_query_reads_every_token(component: PoolingAttention, grid: Grid, *, fused: bool) -> None:
    seen = probe(make(Case(component, spot(grid, fused=fused))), (tokens(grid),))
    assert seen.reads == tuple(frozenset(component.reads(grid, query)) for query in range(component.count))
    assert seen.pairs == component.pairs(grid) == component.count * grid.total
    mixing = [row for row in component_rows(component, spot(grid, fused=fused)) if row.mixes]
    assert {(row.mixing, row.reads, row.reads_tokens) for row in mixing} == {("global", "N", grid.total)}
    assert sum(row.pairs or 0 for row in mixing) == component.pairs(grid)


@every_component
def test_the_order_of_a_set_changes_nothing(component: PoolingAttention) -> None:
    grid = Grid((11,))
    x, order = tokens(grid), torch.randperm(11, generator=torch.Generator().manual_seed(3))
    for fused in (False, True):
        module = make(Case(component, spot(grid, fused=fused)))
        torch.testing.assert_close(module(x[:, order]), module(x), rtol=1e-12, atol=1e-13)
        assert not torch.allclose(module(x), module(x.roll(1, -1)))


@every_component
def test_no_tensor_grows_faster_than_the_tokens(component: PoolingAttention) -> None:
    largest = []
    for n in (1024, 2048):
        with LargestTensor() as seen:
            make(Case(component, spot(Grid((n,)))), "meta")(tokens(Grid((n,))).to("meta"))
        largest.append(seen.elements)
    assert math.log2(largest[1] / largest[0]) <= 1.01


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


def test_vectors_need_no_entry_where_they_are_as_wide_as_the_stage(tmp_path: Path) -> None:
    data = stack({"kind": "full", "heads": 2}, dim=4, input={"kind": "vectors", "channels": 4}, embed=[], head=HEAD)
    architecture = place(loaded(data, tmp_path), Run())
    assert architecture.grid == Grid((512,))
    assert build(architecture).inputs[0].shape == (1, 512, 4)
    for ledger in accounts(architecture):
        exact(ledger)


# Set Transformer's blocks ─────────────────────────────────────────────────────────────────────────────────────────────

POST = Residual(place="post")
PLAIN = Residual(place="post", norm="none")
BOTH_EXECUTIONS = pytest.mark.parametrize("fused", [False, True])


def summed(quantity: str, place: Place, residual: Residual | str, *components: SubLayer) -> int:
    rows = (row for component in components for row in component_rows(component, place, residual))
    return sum(getattr(row, quantity) for row in rows)


@BOTH_EXECUTIONS
@pytest.mark.parametrize(("n", "d", "heads", "k"), [(1, 8, 1, 1), (1000, 256, 4, 16), (37, 12, 3, 50)])
def test_paper_and_public_code_differ_by_w_o(n: int, d: int, heads: int, k: int, *, fused: bool) -> None:
    # MAB(a, b), a queries and b keys: Q a·d², K and V 2b·d², QKᵀ and AV 2ab·d, W_O a·d² (paper), rFF a·d².
    def mab(a: int, b: int, *, paper: bool) -> int:
        return a * d * d + 2 * b * d * d + 2 * a * b * d + a * d * d * paper + a * d * d

    place = at(n, dim=d, fused=fused)
    for paper in (True, False):
        sab, isab = Full(heads=heads, output_projection=paper), Inducing(heads=heads, points=k, output_projection=paper)
        macs = (4 + paper) * n * d**2 + 2 * n**2 * d
        assert summed("macs", place, POST, sab, Dense()) == mab(n, n, paper=paper) == macs
        assert summed("macs", place, POST, isab, Dense()) == mab(k, n, paper=paper) + mab(n, k, paper=paper)


@pytest.mark.parametrize("norm", ["none", "layer_norm"])
def test_parameters_of_the_authors_modules(norm: Any) -> None:
    # juho-lee/set_transformer, modules.py: a MAB has fc_q, fc_k, fc_v, fc_o (d·d + d each) and two norms (2d each) with
    # ln=True; SAB is one, ISAB two and m points, for dim_in = dim_out = d.
    d, m = 128, 32
    mab = 4 * (d * d + d) + (2 * 2 * d if norm == "layer_norm" else 0)
    residual = Residual(place="post", norm=norm)
    full, inducing = (
        Full(heads=4, output_projection=False),
        Inducing(heads=4, points=m, output_projection=False, norm=norm),
    )
    assert summed("params", at(5, dim=d), residual, full, Dense()) == mab
    assert summed("params", at(5, dim=d), residual, inducing, Dense()) == 2 * mab + m * d


@pytest.mark.parametrize(("n", "d", "heads", "k"), [(1024, 512, 8, 128), (4096, 512, 8, 128), (50, 96, 2, 7)])
def test_macs_of_the_package_isab_pytorch(n: int, d: int, heads: int, k: int) -> None:
    # isab-pytorch 0.3.0 has no rFF, no norm, no residual, and heads of 64: (4N + 4m)·d·inner + 4mN·inner.
    component = Inducing(heads=heads, head_dim=64, points=k, induce="attention", projection_bias=False)
    inner = heads * 64
    assert summed("macs", at(n, dim=d), "none", component) == (4 * n + 4 * k) * d * inner + 4 * k * n * inner
    assert summed("params", at(n, dim=d), "none", component) == 8 * d * inner + k * d


SET_BLOCKS = [
    (Full(heads=2), Dense()),
    (Full(heads=2, output_projection=False), Dense(act="gelu")),
    (Inducing(heads=2, points=3), Dense()),
    (Inducing(heads=2, points=3, induce="attention"), Dense(act="none")),
]


@BOTH_EXECUTIONS
@pytest.mark.parametrize("residual", [POST, PLAIN, Residual()], ids=["post", "plain", "pre"])
@pytest.mark.parametrize("components", SET_BLOCKS, ids=lambda components: type(components[0]).__name__)
def test_tokens_in_another_order_give_outputs_in_that_order(
    components: tuple[SubLayer, ...], residual: Residual, *, fused: bool
) -> None:
    torch.manual_seed(0)
    parts = [Part("it", component, at(11, dim=6, fused=fused), residual) for component in components]
    module = BlockModel(SubLayerModel(part, ModuleMaker({})) for part in parts).double().eval()
    x, order = torch.randn(2, 11, 6, dtype=torch.float64), torch.randperm(11)
    with torch.no_grad():
        straight, other = module(x, None), module(x[:, order], None)
    torch.testing.assert_close(other, straight[:, order], rtol=1e-12, atol=1e-13)
    assert not torch.allclose(other, straight)


def test_the_point_cloud_preset_is_the_authors_model_but_for_its_first_projections() -> None:
    # juho-lee/set_transformer, main_pointcloud.py: ISAB(3, d), ISAB(d, d), PMA(d), Linear(d, 40), d=256, m=16, n=1000.
    d, m, n, channels = 256, 16, 1000, 3

    def mab(a: int, b: int, queries: int = d, keys: int = d) -> tuple[int, int]:
        """(parameters, MACs) of MAB(dim_Q, dim_K, d) on a queries and b keys."""
        macs = a * queries * d + 2 * b * keys * d + 2 * a * b * d + a * d * d
        return queries * d + 2 * keys * d + d * d + 4 * d, macs

    parts = [
        mab(m, n, keys=channels), mab(n, m, queries=channels), (m * d, 0),  # ISAB(3, d)
        mab(m, n), mab(n, m), (m * d, 0),  # ISAB(d, d)
        mab(1, n), (d, 0),  # PMA, one seed
        (d * 40 + 40, d * 40),
    ]  # fmt: skip
    ledger = counted("set-transformer")
    narrower = d - channels  # of three maps: the first ISAB's K and V of the points' MAB, and Q of the tokens'
    assert ledger.total("params") == sum(p for p, _ in parts) + (channels * d + d) + 3 * narrower * d
    assert ledger.total("macs") == sum(macs for _, macs in parts) + n * channels * d + 3 * n * narrower * d


# Perceiver IO ─────────────────────────────────────────────────────────────────────────────────────────────────────────

LATENTS, PERCEIVER_WIDTH, HEADS, LAYERS, CLASSES = 5, 12, 3, 2, 7
FEATURES = 3 + 2 * (2 * 64 + 1)


def theirs(**settings: Any) -> nn.Module:
    """transformers' Perceiver for ImageNet with Fourier features; one block, whose layers thus share no weights."""
    sizes = {
        "num_latents": LATENTS, "d_latents": PERCEIVER_WIDTH, "d_model": FEATURES, "num_blocks": 1,
        "num_self_attends_per_block": LAYERS, "num_self_attention_heads": HEADS, "num_cross_attention_heads": 1,
        "cross_attention_shape_for_attention": "kv", "self_attention_widening_factor": 1,
        "cross_attention_widening_factor": 1, "num_labels": CLASSES,
    }  # fmt: skip
    config = transformers.PerceiverConfig(**(sizes | settings))
    model = transformers.PerceiverForImageClassificationFourier(config)
    return model.eval().requires_grad_(requires_grad=False)


def ours(folder: Path) -> tuple[Architecture, BuiltModel]:
    pre = {"norm": "layer_norm", "place": "pre"}
    pool = {"kind": "pooling_attention", "heads": 1, "residual": pre}
    layer = [{"kind": "full", "heads": HEADS}, {"kind": "mlp", "ratio": 1}]
    data = {
        "name": "small",
        "input": {"kind": "image", "size": 224},  # the positions of theirs are made for 224×224 alone
        "embed": [{"kind": "pixels"}, {"kind": "fourier"}],
        "stages": [
            {"enter": [pool | {"count": LATENTS, "head_dim": FEATURES}], "blocks": [layer[1:], *[layer] * LAYERS]}
            | {"dim": PERCEIVER_WIDTH},
            {"dim": PERCEIVER_WIDTH, "enter": [pool | {"count": 1}], "depth": 1, "block": layer[1:]},
        ],
        "head": {"kind": "classifier", "pool": "mean", "norm": "none", "classes": CLASSES},
    }
    return ours_of(data, folder, dtype="float64")


def copied(theirs: nn.Module, ours: Any) -> None:
    """Their weights into ours, every one of them."""
    weights = TheirWeights(theirs)

    def put(norms: list[Any], reading: Any, mlp: Any, prefix: str) -> None:
        for number, norm in enumerate(norms, 1):
            weights.put(norm, f"{prefix}.attention.self.layernorm{number}")
        weights.put_projections(reading, *(f"{prefix}.attention.self.{name}" for name in ("query", "key", "value")))
        weights.put(reading.out, f"{prefix}.attention.output.dense")
        weights.put_mlp(mlp, *(f"{prefix}.{name}" for name in ("mlp.dense1", "mlp.dense2", "layernorm")))

    first, second = ours.streams[0].stages
    queries = "perceiver.decoder.decoder.output_position_encodings.position_embeddings"
    stem_layers = {
        "perceiver.encoder.cross_attention": (first, "perceiver.embeddings.latents"),
        "perceiver.decoder.decoder.decoding_cross_attention": (second, queries),
    }
    for prefix, (stage, seeds) in stem_layers.items():
        entry = stage.enter[0]
        entry.seeds.weight.copy_(weights.take(seeds)[None])
        put([entry.seeds_norm, entry.tokens_norm], entry, stage.run[0][0], prefix)
    for number in range(LAYERS):
        mixer, mlp = first.run[1 + number]
        put([mixer.residual_norm], mixer.inner, mlp, f"perceiver.encoder.self_attends.{number}")
    weights.put(ours.head.linear, "perceiver.decoder.decoder.final_layer")
    assert not weights


def test_the_same_parameters_macs_and_numbers(tmp_path: Path) -> None:
    compare(theirs(), ours(tmp_path), copied, lambda model, image: model(inputs=image).logits, tolerance=1e-6)


def test_the_preset_is_the_released_size_with_weights_of_its_own_in_every_layer() -> None:
    # config of deepmind/vision-perceiver-fourier: 512 latents of 1024, 8 blocks of 6 layers, 8 heads; 48.4M parameters
    with torch.device("meta"):
        shared = theirs(num_latents=512, d_latents=1024, num_blocks=8, num_self_attends_per_block=6,
                        num_self_attention_heads=8, num_labels=1000)  # fmt: skip
    released = parameters(shared)
    assert round(released / 1e6, 1) == 48.4
    layer = 6 * 1024**2 + 6 * 1024 + 4 * 1024
    assert counted("perceiver-io").total("params") == released + 42 * layer


def test_the_work_that_grows_with_pixels_is_the_first_reading() -> None:
    small, large = (counted("perceiver-io", tokens=(n,)) for n in (112**2, 224**2))
    grown = {row.path for row, other in zip(small.rows, large.rows, strict=True) if other.macs != row.macs and row.macs}
    assert grown == {f"stages.0.enter.0.{name}" for name in ("kv", "scores", "weighted_sum")}
    assert (small.metadata.grid_tokens, large.metadata.grid_tokens) == (112**2, 224**2)
