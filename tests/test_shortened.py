"""What shortens its input: Funnel, Conformer, MViT."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import places
from modules import counted_by_torch
from specs import counted
from strategies import placed, stack
from transformers_models import TheirWeights, compare, last_state, ours_of, scrambled, theirs_of, transformers
from xfcost.comparing.sweep import sweep
from xfcost.counting.forward import count
from xfcost.formulas.component import Residual
from xfcost.layers.feed_forward import Mlp
from xfcost.ledger.grid import Grid
from xfcost.program.residual import component_rows
from xfcost.spec.architecture import Part
from xfcost.spec.inputs import image_size_for_grid
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.spec.run import Run
from xfcost.systems.spec import SpecSystem
from xfcost.torch_models.build import ModuleMaker, SubLayerModel, build

# `--kind` of one of these selects this file
KINDS = ("funnel",)


# Funnel attention ─────────────────────────────────────────────────────────────────────────────────────────────────────

VOCABULARY, DIM, HIDDEN = 29, 12, 20


def funnel_spec(length: int, **options: Any) -> dict[str, Any]:
    """Three stages of two layers; the first of the second and of the third is pooled."""

    def block(**more: Any) -> list[dict[str, Any]]:
        mixer = {"kind": "funnel", "heads": 3, "token_types": True} | options | more
        return [mixer, {"kind": "mlp", "hidden": HIDDEN, "act": "gelu_tanh"}]

    stages: list[dict[str, Any]] = [{"dim": DIM, "depth": 2, "block": block()}]
    stages += [{"dim": DIM, "blocks": [block(stride=2, spacing=n), block(spacing=2 * n)]} for n in (1, 2)]
    over = {"embed": [{"kind": "token"}, {"kind": "norm"}], "residual": {"place": "post"}, "stages": stages}
    return stack(length=length, vocabulary=VOCABULARY, **over)


def decoder(**options: Any) -> dict[str, Any]:
    """Two layers at the first stage's length."""
    mixer = {"kind": "funnel", "heads": 3, "token_types": True} | options
    upsample = {"kind": "upsample", "factor": 4, "skip": 1, "separate_cls": options.get("separate_cls", True)}
    block = [mixer, {"kind": "mlp", "hidden": HIDDEN, "act": "gelu_tanh"}]
    return {"enter": [upsample], "dim": DIM, "depth": 2, "block": block}


def theirs_funnel(*, decoder: int = 0, **settings: Any) -> nn.Module:
    return theirs_of(
        "FunnelModel" if decoder else "FunnelBaseModel", vocab_size=VOCABULARY, block_sizes=[2, 2, 2],
        num_decoder_layers=decoder, d_model=DIM, n_head=3, d_head=4, d_inner=HIDDEN, layer_norm_eps=1e-5, **settings,
    )  # fmt: skip


def funnel_copied(theirs: nn.Module, ours: Any) -> None:
    """Their weights into ours, every one of them."""
    weights, stream = TheirWeights(theirs), ours.streams[0]
    token, normed = stream.embed
    weights.put(token.lookup, "embeddings.word_embeddings")
    weights.put(normed.norm, "embeddings.layer_norm")
    for index, stage in enumerate(stream.stages):
        for number, (mixer, mlp) in enumerate(stage.run):
            copied_layer(weights, f"encoder.blocks.{index}." if index < 3 else "decoder.layers.", number, mixer, mlp)
    assert not weights


def copied_layer(weights: TheirWeights, block: str, number: int, mixer: Any, mlp: Any) -> None:
    layer, inner = f"{block}{number}.", mixer.inner
    theirs = f"{layer}attention."
    weights.put_projections(inner, *(f"{theirs}{letter}_head" for letter in "qkv"))
    inner.r.weight.copy_(weights.take(f"{theirs}r_kernel").flatten(1).T)
    inner.content_bias.weight.copy_(weights.take(f"{theirs}r_w_bias").reshape(1, -1))
    inner.position_bias.weight.copy_(weights.take(f"{theirs}r_r_bias").reshape(1, -1))
    inner.type_bias.weight.copy_(weights.take(f"{theirs}r_s_bias").reshape(1, -1))
    inner.types.weight.copy_(weights.take(f"{theirs}seg_embed").flatten(1))
    weights.put(inner.out, f"{theirs}post_proj")
    weights.put(mixer.residual_norm, f"{theirs}layer_norm")
    weights.put_mlp(mlp, *(f"{layer}ffn.{name}" for name in ("linear_1", "linear_2", "layer_norm")))


@pytest.mark.parametrize("attention", ["eager", "fused"])
@pytest.mark.parametrize(
    ("length", "options"),
    [
        (16, {}),
        (13, {}),
        (13, {"truncate_seq": False}),
        (12, {"separate_cls": False}),
        (16, {"pool_q_only": False}),
        (9, {"pool": "max"}),
    ],
    ids=str,
)
def test_funnel_with_their_weights(length: int, options: dict[str, Any], attention: str, tmp_path: Path) -> None:
    theirs = {"pooling_type" if name == "pool" else name: value for name, value in options.items()}
    ours = ours_of(funnel_spec(length, **options), tmp_path, batch=2, dtype="float64", attention=attention)
    compare(theirs_funnel(**theirs), ours, funnel_copied, last_state, tolerance=1e-6)  # their scores are in float32


@pytest.mark.parametrize(
    ("length", "options"), [(16, {}), (13, {}), (13, {"truncate_seq": False}), (14, {"separate_cls": False})], ids=str
)
def test_funnel_and_its_decoder_with_their_weights(length: int, options: dict[str, Any], tmp_path: Path) -> None:
    spec = funnel_spec(length, **options)
    spec["stages"].append(decoder(**options))
    ours = ours_of(spec, tmp_path, batch=2, dtype="float64")
    compare(theirs_funnel(decoder=2, **options), ours, funnel_copied, last_state, tolerance=1e-6)


# Conformer ────────────────────────────────────────────────────────────────────────────────────────────────────────────

BLOCK: list[dict[str, Any]] = [
    {"kind": "mlp", "act": "silu", "residual": {"factor": 0.5}},
    {"kind": "relative", "heads": 2, "projection_bias": True},
    {"kind": "conv_module", "size": 5},
    {"kind": "mlp", "act": "silu", "residual": {"factor": 0.5}},
    {"kind": "norm"},
]
CONVOLUTION = {"kind": "conv", "size": 3, "stride": 2, "padding": 0, "act": "relu"}
ENTRY_LAYER = [CONVOLUTION, CONVOLUTION, {"kind": "fold_axis"}, {"kind": "projection"}]


def encoder(frames: int) -> dict[str, Any]:
    return stack(*BLOCK, depth=2, input={"kind": "image", "size": [frames, 20], "channels": 1}, embed=ENTRY_LAYER)


@pytest.mark.parametrize("tokens", [1, 2, 7, 249, 1000, 4999])
def test_n_is_the_tokens_of_the_first_stage(tokens: int) -> None:
    ledger = counted("conformer-s", tokens=(tokens,))
    assert (ledger.metadata.grid_tokens, ledger.metadata.tokens) == (tokens, f"{tokens:,}")
    assert ledger.total("params") == 8_692_416  # the frequencies stay, and so do all weights
    assert not any("rebuilt" in note for note in ledger.metadata.notes)
    block = {row.operation: row for row in ledger.rows if ".block.1." in row.path}
    assert block["scores"].macs == tokens * tokens * 144
    assert block["position_scores"].macs == tokens * (2 * tokens - 1) * 144


def test_its_own_n_costs_what_its_own_frames_do_and_frames_can_be_given_too() -> None:
    # 999 frames and 1000 are 499 after the first convolution, and 249 after the second
    assert counted("conformer-s", tokens=(249,)).total("macs") == counted("conformer-s").total("macs")
    assert counted("conformer-s", size=(2000, 80)).metadata.grid_tokens == 499


def parakeet_block(dim: int, heads: int, kernel: int) -> nn.Module:
    config = transformers.ParakeetEncoderConfig(
        hidden_size=dim, num_attention_heads=heads, num_key_value_heads=heads, intermediate_size=4 * dim,
        conv_kernel_size=kernel, attn_implementation="eager",
    )  # fmt: skip
    modeling = transformers.models.parakeet.modeling_parakeet  # takes a second to import
    return modeling.ParakeetEncoderBlock(config, 0).eval().requires_grad_(requires_grad=False)


def conformer_copied(block: nn.Module, theirs: nn.Module) -> None:
    """Their weights into ours."""
    weights = TheirWeights(theirs)
    first, attention, convolution, second, last = block
    for ours, number in ((first, 1), (second, 2)):
        theirs_of_it = f"feed_forward{number}"
        weights.put_mlp(ours, f"{theirs_of_it}.linear1", f"{theirs_of_it}.linear2", f"norm_{theirs_of_it}")
    weights.put(attention.residual_norm, "norm_self_att")
    weights.put_projections(attention.inner, *(f"self_attn.{name}_proj" for name in "qkv"))
    weights.put(attention.inner.out, "self_attn.o_proj")
    attention.inner.r.weight.copy_(beside(weights.take("self_attn.relative_k_proj.weight")))
    attention.inner.content_bias.weight.copy_(weights.take("self_attn.bias_u").flatten()[None])
    attention.inner.position_bias.weight.copy_(weights.take("self_attn.bias_v").flatten()[None])
    weights.put(convolution.residual_norm, "norm_conv")
    for ours, name in ((convolution.inner.pointwise1, "conv1"), (convolution.inner.pointwise2, "conv2")):
        ours.weight.copy_(weights.take(f"conv.pointwise_{name}.weight")[..., 0])
        ours.bias.copy_(weights.take(f"conv.pointwise_{name}.bias"))
    weights.put(convolution.inner.depthwise, "conv.depthwise_conv")
    convolution.inner.norm.load_state_dict(theirs.conv.norm.state_dict())
    weights.put(last.inner.norm, "norm_out")


def beside(interleaved: Tensor) -> Tensor:
    """Their sines and cosines take turns, ours stand one after the other."""
    return torch.cat([interleaved[..., 0::2], interleaved[..., 1::2]], dim=-1)


@pytest.mark.parametrize("attention", ["eager", "fused"])
@pytest.mark.parametrize("frames", [7, 23, 60])
def test_a_block_with_their_weights(frames: int, attention: str, tmp_path: Path) -> None:
    architecture = placed(encoder(frames), tmp_path, dtype="float64", attention=attention)  # type: ignore[arg-type]
    theirs = scrambled(parakeet_block(8, 2, 5)).double()
    block = build(architecture, "cpu").model.streams[0].stages[0].run[0]
    conformer_copied(block, theirs)
    tokens = architecture.grid.total
    x_BND = torch.randn(2, tokens, 8, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    encoding = transformers.models.parakeet.modeling_parakeet.ParakeetEncoderRelPositionalEncoding
    positions = encoding(theirs.self_attn.config)(x_BND)
    expected, macs = counted_by_torch(lambda: theirs(x_BND, position_embeddings=positions))
    with torch.no_grad():
        # both encode positions in single precision, and round angles differently
        torch.testing.assert_close(block(x_BND, None), expected, rtol=1e-5, atol=1e-5)
    encodings = block[1].inner.encodings_1TD
    torch.testing.assert_close(encodings.expand(2, -1, -1), beside(positions), rtol=1e-5, atol=1e-5)
    assert macs == 2 * sum(row.macs for row in count(architecture).rows if ".block." in row.path)


# MViT and MViTv2 ──────────────────────────────────────────────────────────────────────────────────────────────────────

here = partial(places.at, dim=8)


def test_parameters_follow_the_resolution_and_are_marked() -> None:
    # 51,599,464 at 384: the figure of the public code. Tables alone differ.
    small, large = counted("mvitv2-b"), counted("mvitv2-b", size=(384, 384))
    assert (small.total("params"), large.total("params")) == (51_472_744, 51_599_464)
    for before, after in zip(small.rows, large.rows, strict=True):
        assert (before.params != after.params) == after.bound == before.bound
        assert not after.bound or after.operation == "tables"
    before, after = counted("mvit-b-16x4"), counted("mvit-b-16x4", size=(256, 256))
    assert [row.operation for row in after.rows if row.bound] == ["tables"]
    assert after.total("params") - before.total("params") == (64**2 - 56**2) * 96


def test_an_mlp_that_widens_projects_what_it_takes() -> None:
    component, spot = Mlp(out_width=12), here(5)
    torch.manual_seed(0)
    model = SubLayerModel(Part("it", component, spot, Residual()), ModuleMaker({})).double()
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    normed = model.residual_norm(x)
    assert torch.equal(model(x), model.residual_projection(normed) + model.inner(normed))
    after = SubLayerModel(Part("it", component, spot, Residual(place="post")), ModuleMaker({})).double()
    assert torch.equal(after(x), after.residual_norm(after.residual_projection(x) + after.inner(x)))
    for one, expected in ((component, ["residual_projection", "residual_add"]), (Mlp(out_width=8), ["residual_add"])):
        assert [row.path for row in component_rows(one, spot, Residual(norm="none"))][-len(expected) :] == expected


def test_frames_stay_whatever_n() -> None:
    architecture = place(load("mvit-b-16x4"), Run(tokens=(8 * 14 * 14,)))
    assert architecture.streams[0].input.sides == (16, 56, 56)
    assert architecture.grid == Grid((8, 14, 14), 1)
    assert place(load("mvit-b-16x4"), Run(tokens=(8 * 12,))).grid.sides == (8, 3, 4)
    assert place(load("mvit-b-16x4"), Run(size=(112, 224))).grid.sides == (8, 28, 56)
    assert place(load("mvit-b-16x4"), Run(scale=(1, 2))).grid.sides == (4, 28, 28)
    assert image_size_for_grid(load("mvit-b-16x4"), Run(), (14, 20)) == (56, 80)


def test_costs_of_videos_are_swept_over_whole_steps() -> None:
    swept = sweep("mvit", SpecSystem(load("mvit-b-16x4")), Run(), (800, 12800))
    assert all(x % 8 == 0 for x in swept.xs)
    assert (swept.xs[0], swept.xs[-1]) == (800, 12800)
