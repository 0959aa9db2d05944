"""Attention with convolutional projections and CvT: at its edges, and beside transformers' models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from places import at
from refused import refusals
from specs import counted
from transformers_models import CLASSES, TheirWeights, compare, ours_of, theirs_of
from whole_probe import probe
from xfcost.formulas.component import Place
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.conv_attention import ConvAttention
from xfcost.torch_models.modules import MODULES

# By hand ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_query_is_made_of_its_neighbours() -> None:
    component, spot = ConvAttention(heads=1), at(4, 5, special=1)
    module = MODULES[ConvAttention](component, spot).double().eval()
    seen = probe(module.q, (torch.zeros(1, 21, 6),)).reads
    assert seen[0] == frozenset({0})  # the special token goes round the convolution
    assert seen[1] == frozenset({1, 2, 6, 7})
    keys = probe(module.k, (torch.zeros(1, 21, 6),)).reads
    assert len(keys) == 7
    assert frozenset().union(*keys) == frozenset(range(21))
    assert list(component.notes(spot)) == ["1 special token(s) skip the convolutions, and are concatenated after them"]
    assert list(component.notes(at(4, 5))) == []


test_places_where_it_can_not_stand = refusals(
    [
        (ConvAttention(heads=4), "heads", "4 does not divide the width 6"),
        (ConvAttention(heads=1, size=4), "size", "4 is even, and the kernel is centred; try 3 or 5"),
        (ConvAttention(heads=1, kv_stride=3), "kv_stride", "leave some that no key reads; expected at most 2"),
        (ConvAttention(heads=1, causal=True), "causal", "has no causal form: a query and a key are made of"),
    ],
    at(4, 4),
)


@pytest.mark.parametrize("half", range(4))
def test_up_to_that_stride_the_keys_read_every_token(half: int) -> None:
    for side in range(1, 12):
        component = ConvAttention(heads=1, size=2 * half + 1, kv_stride=half + 1)
        component.check(Place(grid=Grid((side,)), dim=1, out_dim=1))
        kernel = component.kernel(Grid((side,)), component.kv_stride)
        read = {token for key in range(component.keys(Grid((side,))).total) for token in kernel.reads((side,), key)}
        assert read == set(range(side))


def test_cvt_on_other_grids() -> None:
    # 30×30 tokens in the first stage, 15×15 and 8×8 behind: keys at every second position.
    ledger = counted("cvt-13", tokens=(900,))
    assert [row.reads_tokens for row in ledger.rows if row.operation == "scores"] == [225, 64, 17]
    assert ledger.bound_params == 0


# Beside transformers ─────────────────────────────────────────────────────────────────────────────────────────────────

SMALL: dict[str, Any] = {
    "embed_dim": [6, 12, 24],
    "num_heads": [1, 2, 3],
    "depth": [1, 2, 3],  # no fewer than the number of the stage: their drop rates want it
    "mlp_ratio": [4.0, 2.0, 3.0],
}


def cvt_spec(size: int) -> dict[str, Any]:
    def stage(number: int) -> dict[str, Any]:
        stem_layers: list[dict[str, Any]] = [{"kind": "conv", "size": 3, "stride": 2, "norm": "layer_norm"}]
        stem_layers += [{"kind": "class_token"}] if number == 2 else []
        mixer = {"kind": "conv_attention", "heads": SMALL["num_heads"][number]}
        block = [mixer, {"kind": "mlp", "ratio": SMALL["mlp_ratio"][number]}]
        enter = {"enter": stem_layers} if number else {}
        return enter | {"dim": SMALL["embed_dim"][number], "depth": SMALL["depth"][number], "block": block}

    return {
        "input": {"kind": "image", "size": size},
        "embed": [{"kind": "conv", "size": 7, "stride": 4, "padding": 2, "norm": "layer_norm"}],
        "stages": [stage(number) for number in range(3)],
        "head": {"kind": "classifier", "pool": "class_token", "norm_after_pool": True, "classes": CLASSES},
    }


def copied_cvt(theirs: nn.Module, ours: Any) -> None:
    statistics = {name: buffer for name, buffer in theirs.named_buffers() if "running" in name}
    noise = torch.Generator().manual_seed(4)
    for buffer in statistics.values():
        buffer.copy_(torch.rand(buffer.shape, generator=noise) + 0.5)
    weights, stream = TheirWeights(theirs), ours.streams[0]
    weights.update(statistics)
    for index, stage in enumerate(stream.stages):
        there = f"cvt.encoder.stages.{index}"
        entry, *tokens = stage.enter if index else stream.embed
        weights.put(entry.conv, f"{there}.embedding.convolution_embeddings.projection")
        weights.put(entry.norm, f"{there}.embedding.convolution_embeddings.normalization")
        for token in tokens:
            token.prepend.weight.copy_(weights.take(f"{there}.cls_token"))
        for number, (mixer, mlp) in enumerate(stage.run):
            block = f"{there}.layers.{number}"
            weights.put(mixer.residual_norm, f"{block}.layernorm_before")
            for name, word in (("q", "query"), ("k", "key"), ("v", "value")):
                projection = getattr(mixer.inner, name)
                convolved = f"{block}.attention.attention.convolution_projection_{word}.convolution_projection"
                weights.put(projection.conv, f"{convolved}.convolution")
                weights.put(projection.norm, f"{convolved}.normalization")
                for statistic in ("running_mean", "running_var"):
                    taken = weights.take(f"{convolved}.normalization.{statistic}")
                    getattr(projection.norm, statistic).copy_(taken)
                weights.put(projection.linear, f"{block}.attention.attention.projection_{word}")
            weights.put(mixer.inner.out, f"{block}.attention.output.dense")
            weights.put(mlp.residual_norm, f"{block}.layernorm_after")
            weights.put(mlp.inner.fc1, f"{block}.intermediate.dense")
            weights.put(mlp.inner.fc2, f"{block}.output.dense")
    weights.put(ours.head.norm, "layernorm")
    weights.put(ours.head.linear, "classifier")
    assert not weights


@pytest.mark.parametrize("attention", ["eager", "fused"])
@pytest.mark.parametrize("size", [32, 58])  # 8×8, 4×4, 2×2; 14×14, 7×7, 4×4
def test_cvt_with_their_weights(size: int, attention: str, tmp_path: Path) -> None:
    theirs = theirs_of("CvtForImageClassification", **SMALL, num_labels=CLASSES)
    ours = ours_of(cvt_spec(size), tmp_path, batch=2, dtype="float64", attention=attention)
    compare(theirs, ours, copied_cvt, tolerance=1e-10)
