"""Funnel attention: where it shortens and where it doesn't, and transformers' model with its weights."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn

import places
from refused import refusals
from transformers_models import TheirWeights, compare, ours_of, theirs_of
from xfcost.formulas.component import Place
from xfcost.layers.stage_entries import Upsample
from xfcost.ledger.errors import ComponentError, SpecError
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.funnel import Funnel

VOCABULARY, DIM, HIDDEN = 29, 12, 20


spot = partial(places.at, dim=4)


@pytest.mark.parametrize(
    ("component", "lengths"),
    [
        # [CLS] apart, the last token left out: [CLS], (1, 2), (3, 4), …
        (Funnel(heads=1, stride=2), {1: 1, 2: 2, 3: 2, 4: 2, 5: 3, 8: 4, 512: 256}),
        # [CLS] apart, all tokens: the last may stand alone
        (Funnel(heads=1, stride=2, truncate_seq=False), {1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 8: 5, 512: 257}),
        (Funnel(heads=1, stride=2, separate_cls=False), {1: 1, 2: 1, 3: 2, 4: 2, 5: 3, 8: 4, 512: 256}),
        (Funnel(heads=1), {1: 1, 2: 2, 512: 512}),
    ],
    ids=str,
)
def test_how_many_tokens_go_out(component: Funnel, lengths: dict[int, int]) -> None:
    assert {n: component.out(spot(n))[0].total for n in lengths} == lengths


def test_notes_tell_what_is_left_out_and_what_is_too_short() -> None:
    component = Funnel(heads=1, stride=2)
    assert list(component.notes(spot(8))) == ["8 tokens pooled to 4; the last is left out of the pooling"]
    assert list(component.notes(spot(2))) == ["2 tokens are too few to be pooled, and go on as they are"]
    assert list(Funnel(heads=1).notes(spot(8))) == []


@pytest.mark.parametrize("grid", [Grid((4, 4)), Grid((8,), 1)])
def test_only_a_sequence_is_pooled(grid: Grid) -> None:
    where = Place(grid=grid, dim=4, out_dim=4)
    Funnel(heads=1).check(where)
    with pytest.raises(ComponentError, match=r"2 pools a sequence, got .* tokens; use 1") as refused:
        Funnel(heads=1, stride=2).check(where)
    assert refused.value.field == "stride"


def test_it_is_never_causal() -> None:
    with pytest.raises(ComponentError, match="stands for two tokens") as refused:
        Funnel(heads=1, causal=True).check(spot(8))
    assert refused.value.field == "causal"


# transformers' model ─────────────────────────────────────────────────────────────────────────────────────────────────


def funnel_spec(length: int, **options: Any) -> dict[str, Any]:
    """Three stages of two layers; the first of the second and of the third is pooled."""

    def block(**more: Any) -> list[dict[str, Any]]:
        mixer = {"kind": "funnel", "heads": 3, "token_types": True} | options | more
        return [mixer, {"kind": "mlp", "hidden": HIDDEN, "act": "gelu_tanh"}]

    stages: list[dict[str, Any]] = [{"dim": DIM, "depth": 2, "block": block()}]
    stages += [{"dim": DIM, "blocks": [block(stride=2, spacing=n), block(spacing=2 * n)]} for n in (1, 2)]
    return {
        "input": {"kind": "tokens", "vocabulary": VOCABULARY, "length": length},
        "embed": [{"kind": "token"}, {"kind": "norm"}],
        "residual": {"place": "post"},
        "stages": stages,
    }


def decoder(**options: Any) -> dict[str, Any]:
    """Two layers at the first stage's length."""
    mixer = {"kind": "funnel", "heads": 3, "token_types": True} | options
    upsample = {"kind": "upsample", "factor": 4, "skip": 1, "separate_cls": options.get("separate_cls", True)}
    block = [mixer, {"kind": "mlp", "hidden": HIDDEN, "act": "gelu_tanh"}]
    return {"enter": [upsample], "dim": DIM, "depth": 2, "block": block}


def theirs_funnel(*, decoder: int = 0, **settings: Any) -> nn.Module:
    return theirs_of(
        "FunnelModel" if decoder else "FunnelBaseModel",
        vocab_size=VOCABULARY,
        block_sizes=[2, 2, 2],
        num_decoder_layers=decoder,
        d_model=DIM,
        n_head=3,
        d_head=4,
        d_inner=HIDDEN,
        layer_norm_eps=1e-5,
        **settings,
    )


def copied(theirs: nn.Module, ours: Any) -> None:
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
    layer, inner, core = f"{block}{number}.", mixer.inner, mixer.inner.core
    theirs = f"{layer}attention."
    weights.put(inner.q, f"{theirs}q_head")
    weights.put_joined(inner.kv, *(f"{theirs}{letter}_head" for letter in "kv"))
    core.r.weight.copy_(weights.take(f"{theirs}r_kernel").flatten(1).T)
    core.content_bias.weight.copy_(weights.take(f"{theirs}r_w_bias").reshape(1, -1))
    core.position_bias.weight.copy_(weights.take(f"{theirs}r_r_bias").reshape(1, -1))
    core.type_bias.weight.copy_(weights.take(f"{theirs}r_s_bias").reshape(1, -1))
    core.types.weight.copy_(weights.take(f"{theirs}seg_embed").flatten(1))
    weights.put(inner.out, f"{theirs}post_proj")
    weights.put(mixer.residual_norm, f"{theirs}layer_norm")
    weights.put(mlp.inner.fc1, f"{layer}ffn.linear_1")
    weights.put(mlp.inner.fc2, f"{layer}ffn.linear_2")
    weights.put(mlp.residual_norm, f"{layer}ffn.layer_norm")


@pytest.mark.parametrize("attention", ["eager", "fused"])
@pytest.mark.parametrize(
    ("length", "theirs", "options"),
    [
        (16, {}, {}),
        (13, {}, {}),
        (13, {"truncate_seq": False}, {"truncate_seq": False}),
        (12, {"separate_cls": False}, {"separate_cls": False}),
        (16, {"pool_q_only": False}, {"pool_q_only": False}),
        (9, {"pooling_type": "max"}, {"pool": "max"}),
    ],
    ids=str,
)
def test_funnel_with_their_weights(
    length: int, theirs: dict[str, Any], options: dict[str, Any], attention: str, tmp_path: Path
) -> None:
    ours = ours_of(funnel_spec(length, **options), tmp_path, batch=2, dtype="float64", attention=attention)
    compare(theirs_funnel(**theirs), ours, copied, last_state, tolerance=1e-6)  # their scores are in float32


@pytest.mark.parametrize(
    ("length", "theirs", "options"),
    [
        (16, {}, {}),
        (13, {}, {}),
        (13, {"truncate_seq": False}, {"truncate_seq": False}),
        (14, {"separate_cls": False}, {"separate_cls": False}),
    ],
    ids=str,
)
def test_funnel_and_its_decoder_with_their_weights(
    length: int, theirs: dict[str, Any], options: dict[str, Any], tmp_path: Path
) -> None:
    spec = funnel_spec(length, **options)
    spec["stages"].append(decoder(**options))
    ours = ours_of(spec, tmp_path, batch=2, dtype="float64")
    compare(theirs_funnel(decoder=2, **theirs), ours, copied, last_state, tolerance=1e-6)


def last_state(model: nn.Module, tokens: Tensor) -> Tensor:
    return model(tokens).last_hidden_state


# Back to the full length ─────────────────────────────────────────────────────────────────────────────────────────────


def back(tokens: int, there: int | None, dim: int = 4) -> Place:
    memory = {} if there is None else {"memory": Grid((there,)), "memory_dim": 4}
    return Place(grid=Grid((tokens,)), dim=dim, out_dim=dim, **memory)


test_upsampling_refuses_what_can_not_be = refusals(
    [
        (Upsample(factor=4, skip=2), back(4, None), "skip", "2 is not an earlier stage"),
        (Upsample(factor=4), back(4, 13, 6), "skip", "stage 1 is 4 wide and this one 6"),
        (Upsample(factor=2), back(4, 13), "factor", "4 tokens 2 times over are fewer .* 13; expected at least 4"),
    ]
)


def test_a_stage_can_not_read_itself(tmp_path: Path) -> None:
    spec = funnel_spec(16)
    spec["stages"].append(decoder() | {"enter": [{"kind": "upsample", "factor": 4, "skip": 4}]})
    with pytest.raises(SpecError, match=r"spec\.yaml:\d+ stages\[3\]\.enter\[0\]\.skip: 4 is not an earlier stage"):
        ours_of(spec, tmp_path)
