"""LSH attention: buckets, what it refuses and notes, growth, leaks, and transformers' Reformer."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from strategies import place_for
from transformers_models import parameters, transformers
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.lsh import Lsh
from xfcost.torch_models.mechanisms.lsh import LshAttention

DIM, HEADS = 12, 3


def rows(component: Lsh, tokens: int, dim: int = DIM) -> dict[str, Any]:
    return {row.path: row for row in component.operations(place_for(component, Grid((tokens,)), dim=dim))}


def torch_module(component: Lsh, tokens: int, device: str = "cpu") -> LshAttention:
    torch.manual_seed(0)
    with torch.device(device):
        return LshAttention(component, place_for(component, Grid((tokens,)), dim=DIM)).double().eval()


# What is refused, what is told ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("buckets", "odd"), [(7, 7), ([4, 9], 9)])
def test_odd_buckets_are_refused(buckets, odd):
    component = Lsh(heads=3, buckets=buckets)
    with pytest.raises(ComponentError, match=rf"{odd} is odd.*it could be {odd - 1} or {odd + 1}") as refused:
        component.check(place_for(component, Grid((128,)), dim=DIM))
    assert refused.value.field == "buckets"


def test_exact_causality_is_refused_and_a_decoder_is_approximate():
    component = Lsh(heads=3, causal=True)
    with pytest.raises(ComponentError, match="later tokens are hashed and sorted too") as refused:
        component.check(place_for(component, Grid((128,)), dim=DIM))
    assert refused.value.field == "causal"
    assert Lsh(heads=3).with_stream_defaults(decoder=True).causal == "approximate"
    assert Lsh(heads=3).with_stream_defaults(decoder=False).causal is False


def notes(component: Lsh, tokens: int) -> list[str]:
    return list(component.notes(place_for(component, Grid((tokens,)), dim=DIM)))


def test_padding_fallback_and_quadratic_hashing_are_told():
    component = Lsh(heads=3, bucket=64, buckets=[4, 8])
    assert notes(component, 128) == []
    assert notes(component, 64) == ["64 tokens fit one chunk of 64: nothing is hashed or sorted, attention is full"]
    (padding,) = notes(component, 130)
    assert padding.startswith("130 tokens padded to 192 for chunks of 64: 62 padding tokens")
    (quadratic,) = notes(Lsh(heads=3, bucket=64), 256)
    assert quadratic.startswith("2N/64 = 8 buckets: hashing multiplies every token by 4 columns")
    (leak,) = notes(Lsh(heads=3, bucket=64, buckets=8, causal="approximate"), 256)
    assert leak.startswith("causal: approximate")


# What it does ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_equal_queries_share_a_bucket_and_opposite_ones_never():
    module = torch_module(Lsh(heads=1, rounds=8, bucket=4, buckets=[4, 6]), 24)
    query = torch.randn(1, 1, 1, DIM, dtype=torch.float64)
    x_BHPK = torch.randn(1, 1, 24, DIM, dtype=torch.float64)
    x_BHPK[:, :, 3], x_BHPK[:, :, 17], x_BHPK[:, :, 20] = query[:, :, 0], 5 * query[:, :, 0], -query[:, :, 0]
    bucket_RP = module.hash(module.rotate(x_BHPK))[0, 0]
    assert torch.equal(bucket_RP[:, 3], bucket_RP[:, 17])
    assert (bucket_RP[:, 3] != bucket_RP[:, 20]).all()
    assert bucket_RP.min() >= 0
    assert bucket_RP.max() < 24  # 4·6 buckets
    assert len(bucket_RP.unique()) > 8


# transformers ────────────────────────────────────────────────────────────────────────────────────────────────────────


def theirs_of(component: Lsh) -> nn.Module:
    """transformers' layer: norm, LSH attention, output; the norm is taken out."""
    modeling = pytest.importorskip("transformers.models.reformer.modeling_reformer")
    config = transformers.ReformerConfig(
        hidden_size=DIM,
        num_attention_heads=component.heads,
        attention_head_size=component.head_dim or DIM // component.heads,
        attn_layers=["lsh"],
        lsh_attn_chunk_length=component.bucket,
        num_buckets=component.buckets,
        num_hashes=component.rounds,
        is_decoder=bool(component.causal),
        hash_seed=7,
    )
    layer = modeling.ReformerAttention(config).double().eval().requires_grad_(requires_grad=False)
    layer.layer_norm = nn.Identity()
    return layer


def with_their_weights(component: Lsh, tokens: int, theirs: nn.Module) -> LshAttention:
    ours = torch_module(component, tokens).requires_grad_(requires_grad=False)
    ours.query_key.weight.copy_(theirs.self_attention.query_key.weight)
    ours.value.weight.copy_(theirs.self_attention.value.weight)
    ours.out.weight.copy_(theirs.output.dense.weight)
    if not ours.whole:
        torch.manual_seed(7)  # as they draw their rotations
        columns = sum(component.factors(Grid((tokens,)))) // 2
        width = component.head_dim or DIM // component.heads
        drawn = torch.randn(component.heads, width, component.rounds, columns, dtype=torch.float64)
        ours.rotate.columns_HKr.copy_(drawn.flatten(2))
    return ours


THEIRS = [
    (Lsh(heads=3, rounds=1, bucket=4, buckets=8), 16),
    (Lsh(heads=3, rounds=4, bucket=4, buckets=8, causal="approximate"), 32),
    (Lsh(heads=2, rounds=2, bucket=8, buckets=[4, 6], head_dim=5, causal="approximate"), 64),
    (Lsh(heads=2, rounds=3, bucket=4, buckets=[2, 4, 6]), 22),
    (Lsh(heads=3, rounds=2, bucket=16, buckets=8, causal="approximate"), 11),
]


@pytest.mark.parametrize(("component", "tokens"), THEIRS, ids=str)
def test_outputs_parameters_and_macs_are_those_of_transformers(component: Lsh, tokens: int) -> None:
    theirs = theirs_of(component)
    ours = with_their_weights(component, tokens, theirs)
    x = torch.randn(2, tokens, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    more = component.padded(Grid((tokens,))) - tokens
    padded, mask = nn.functional.pad(x, (0, 0, 0, more)), None
    if more:  # they pad the whole model's input, and hand every layer a mask
        mask = torch.cat([torch.ones(2, tokens), torch.zeros(2, more)], 1)
    with FlopCounterMode(display=False) as counter:
        expected = theirs(padded, attention_mask=mask).hidden_states[:, :tokens]
    torch.testing.assert_close(ours(x), expected, rtol=1e-11, atol=1e-12)
    assert parameters(theirs) == sum(row.params for row in rows(component, tokens).values())
    macs = sum(row.macs for row in rows(component, tokens).values())
    assert counter.get_total_flops() == 2 * 2 * macs  # a MAC is two FLOPs, and there are two samples


def test_the_layer_of_reformer_enwik8_is_the_public_count():
    # transformers' enwik8 layer at N = 8192: 3·N·d² + rounds·N·d·(256 + 2·512) MACs, 3·d² parameters.
    component = Lsh(heads=8, rounds=4, bucket=256, buckets=512, causal="approximate")
    found = rows(component, 8192, dim=1024).values()
    assert sum(row.macs for row in found) == 8192 * (3 * 1024**2 + 4 * 1024 * (256 + 2 * 512))
    assert sum(row.params for row in found) == 3 * 1024**2
    one = msgspec.structs.replace(component, rounds=1)
    assert sum(row.macs for row in rows(one, 8192, dim=1024).values()) == 8192 * 4_456_448


def test_half_precision_masks_without_overflow():
    module = torch_module(Lsh(heads=HEADS, rounds=2, bucket=4, causal="approximate"), 10).half()
    answer: Tensor = module(torch.randn(1, 10, DIM, dtype=torch.float16))
    assert answer.isfinite().all()
