"""LSH attention: buckets, what it refuses and notes, growth, leaks, and transformers' Reformer."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from strategies import place_for
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.lsh import Lsh
from xfcost.torch_models.mechanisms.lsh import LshAttention

DIM, HEADS = 12, 3


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


def test_half_precision_masks_without_overflow():
    module = torch_module(Lsh(heads=HEADS, rounds=2, bucket=4, causal="approximate"), 10).half()
    answer: Tensor = module(torch.randn(1, 10, DIM, dtype=torch.float16))
    assert answer.isfinite().all()
