"""Nyström attention: the exact branch, padding, the inverse, and transformers' Nystromformer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor, nn

from places import at
from refused import refusals
from strategies import placed
from transformers_models import transformers
from xfcost.mechanisms.full import Full
from xfcost.mechanisms.nystrom import Nystrom
from xfcost.torch_models.build import build
from xfcost.torch_models.mechanisms.full import FullAttention
from xfcost.torch_models.mechanisms.nystrom import NystromAttention, PseudoInverse


def noise(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("n", [3, 4, 5])
@pytest.mark.parametrize("fused", [False, True])
def test_no_more_tokens_than_landmarks_are_attended_over_exactly(n: int, *, fused: bool) -> None:
    component, spots = Nystrom(heads=2, landmarks=4, conv=None), at(n, fused=fused)
    mine, full = NystromAttention(component, spots).double(), FullAttention(Full(heads=2), spots).double()
    full.load_state_dict(mine.state_dict())
    x = noise(2, n, 6)
    same = torch.allclose(mine(x), full(x), rtol=1e-12, atol=1e-13)
    # which row takes the input itself, by what name: a mechanism says it only where it isn't the first with parameters
    mine_rows, full_rows = (
        [msgspec.structs.replace(row, takes_input=None, tensors=None) for row in each.operations(spots)]
        for each in (component, Full(heads=2))
    )
    rows = mine_rows == full_rows
    assert same == rows == (n <= 4)
    told = next(iter(component.notes(spots)), "")
    assert ("attention is exact, quadratic in N" in told) == (n <= 4)
    assert ("5 tokens padded at the front to 8, 4 segments of 2: 3 padding tokens" in told) == (n == 5)


def test_nothing_is_padded_where_segments_are_whole() -> None:
    component = Nystrom(heads=2, landmarks=4)
    assert list(component.notes(at(8))) == []
    pad = next(iter(component.operations(at(8))))
    assert pad.path == "pad"
    assert pad.only_moves
    assert pad.moved == 0


def test_the_iteration_comes_to_the_inverse() -> None:
    torch.manual_seed(0)
    a = (3 * torch.randn(2, 3, 8, 8, dtype=torch.float64)).softmax(-1)
    errors = [float((PseudoInverse(8, steps).double()(a) @ a - torch.eye(8)).abs().amax()) for steps in (1, 6, 12, 30)]
    assert errors[0] > 0.5
    assert errors[-1] < 1e-8
    assert errors == sorted(errors, reverse=True)


test_options_that_can_not_be = refusals(
    [
        (Nystrom(heads=2, conv=64), "conv", "64 is even, and the kernel is centred; try 63 or 65"),
        (Nystrom(heads=2, causal=True), "causal", "'nystrom' has no causal form: every landmark is a mean of tokens"),
    ],
    at(6),
)


def test_counting_is_quick_whatever_n() -> None:
    rows = list(Nystrom(heads=2).operations(at(2**32)))
    assert sum(row.macs for row in rows) > 2**40


# transformers ────────────────────────────────────────────────────────────────────────────────────────────────────────


def spec(n: int, landmarks: int, *, dim: int = 12, heads: int = 3, conv: int = 5) -> dict[str, Any]:
    mixer = {"kind": "nystrom", "heads": heads, "landmarks": landmarks, "conv": conv}
    return {
        "input": {"kind": "tokens", "vocabulary": 31, "length": n},
        "residual": {"place": "post"},
        "embed": [{"kind": "token"}, {"kind": "position", "length": n + 2}, {"kind": "token_type"}, {"kind": "norm"}],
        "stages": [{"dim": dim, "depth": 2, "block": [mixer, {"kind": "mlp", "hidden": 20}]}],
    }


def theirs(n: int, landmarks: int, *, heads: int = 3, conv: int = 5) -> nn.Module:
    config = transformers.NystromformerConfig(
        vocab_size=31,
        hidden_size=12,
        num_hidden_layers=2,
        num_attention_heads=heads,
        intermediate_size=20,
        max_position_embeddings=n,
        num_landmarks=landmarks,
        segment_means_seq_len=n,
        conv_kernel_size=conv,
        hidden_act="gelu",
    )
    torch.manual_seed(0)
    return transformers.NystromformerModel(config).eval().requires_grad_(requires_grad=False)


@pytest.mark.parametrize(("n", "landmarks"), [(16, 4), (8, 8)])
def test_outputs_are_transformers_s(n: int, landmarks: int, tmp_path: Path) -> None:
    # One head and one sample: transformers starts its iteration from the largest column sum of all heads and samples.
    model = theirs(n, landmarks, heads=1).double()
    ours = build(placed(spec(n, landmarks, heads=1), tmp_path), "cpu").model.double()
    copy_weights(model, ours)
    numbers = torch.arange(n)[None] % 31
    mine, other = ours(numbers), model(numbers).last_hidden_state
    torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-9)


def copy_weights(theirs: Any, ours: Any) -> None:
    """Theirs into ours, by place; the norms' ε too, which costs nothing."""
    stream = ours.streams[0]
    token, position, kind, norm = stream.embed
    for mine, other in (
        (token.lookup.weight, theirs.embeddings.word_embeddings.weight),
        (kind.lookup.weight, theirs.embeddings.token_type_embeddings.weight),
    ):
        mine.copy_(other)
    # ours takes the first rows, theirs begins at the third
    position.table.weight.copy_(theirs.embeddings.position_embeddings.weight.roll(-2, 0))
    norm.norm.load_state_dict(theirs.embeddings.LayerNorm.state_dict())
    norm.norm.eps = theirs.embeddings.LayerNorm.eps
    for block, layer in zip(stream.stages[0].run, theirs.encoder.layer, strict=True):
        attention, mlp = block
        mine, other = attention.inner, layer.attention.self
        mine.qkv.weight.copy_(torch.cat([part.weight for part in (other.query, other.key, other.value)]))
        mine.qkv.bias.copy_(torch.cat([part.bias for part in (other.query, other.key, other.value)]))
        mine.conv.weight.copy_(other.conv.weight)
        mine.out.load_state_dict(layer.attention.output.dense.state_dict())
        mlp.inner.fc1.load_state_dict(layer.intermediate.dense.state_dict())
        mlp.inner.fc2.load_state_dict(layer.output.dense.state_dict())
        for sub, norm_theirs in ((attention, layer.attention.output.LayerNorm), (mlp, layer.output.LayerNorm)):
            sub.residual_norm.load_state_dict(norm_theirs.state_dict())
            sub.residual_norm.eps = norm_theirs.eps
