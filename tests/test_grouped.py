"""Heads in groups, rotary positions, ALiBi and buckets: what is read once, what is shared, what is refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest
import torch

import places
from places import rows_of
from refused import refusals
from strategies import counted_spec
from xfcost.formulas.position_buckets import Buckets
from xfcost.ledger.errors import ComponentError
from xfcost.mechanisms.full import Full
from xfcost.mechanisms.sliding import Sliding
from xfcost.torch_models.modules import MODULES
from xfcost.torch_models.shared.attention import Rotary, alibi, bucket_rows

at = partial(places.at, dim=8)


# Groups ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_shared_head_of_keys_is_read_once_from_main_memory() -> None:
    alone, shared = (rows_of(Full(heads=4, kv_heads=few), at(10))["scores"].core for few in (4, 2))
    # 4 cores of 10 queries by 10 keys, or 2 of 20 by 10
    assert (msgspec.structs.astuple(alone), msgspec.structs.astuple(shared)) == ((4, 10, 10, 2, 2), (2, 20, 10, 2, 2))


def test_names() -> None:
    assert Full(heads=4, kv_heads=4).label() == "Self-attention"
    assert Full(heads=4, kv_heads=2).label() == "Grouped-query attention"
    assert Full(heads=4, kv_heads=1, causal=True).label() == "Causal multi-query attention"
    assert (
        Sliding(heads=4, kv_heads=2, window=4, causal=True).label() == "Sliding-window causal grouped-query attention"
    )


# Rotary positions ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_scores_of_rotated_vectors_know_their_distance_alone() -> None:
    rotary = Rotary(12, 6, 10000.0)
    q, k = torch.randn(2, 1, 1, 1, 6, generator=torch.Generator().manual_seed(0)).expand(-1, -1, -1, 12, -1)
    scores = rotary(q) @ rotary(k).transpose(-2, -1)
    for distance in range(-11, 12):
        along = scores[0, 0].diagonal(distance)
        torch.testing.assert_close(along, along[:1].expand_as(along), rtol=1e-4, atol=1e-5)
    assert (scores[0, 0, 0] - scores[0, 0, 0, 0]).abs()[1:].min() > 1e-3
    torch.testing.assert_close(rotary(q).norm(dim=-1), q.norm(dim=-1))


# ALiBi and buckets ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_alibi_s_slopes() -> None:
    # eight heads: 1/2, 1/4, … 1/256 (Press et al. 2022, §3)
    torch.testing.assert_close(alibi(2, 8)[:, 0, 1], 2.0 ** -torch.arange(1, 9))
    # twelve: those of eight, then 2^-0.5, 2^-1.5, …
    torch.testing.assert_close(alibi(2, 12)[8:, 0, 1], 2.0 ** -torch.tensor([0.5, 1.5, 2.5, 3.5]))


def test_bucket_rows_by_hand() -> None:
    component = Full(heads=4, bias=Buckets(count=8, distance=20), scaled=False)
    found = rows_of(component, at(10))
    # 8 buckets of 4 heads; 19 distances looked up, then laid out for 100 pairs
    assert (found["relative_bias"].params, found["relative_bias"].moved) == (32, 4 * (19 + 100))
    assert found["relative_bias"].once
    assert "scale" not in found
    # two directions with 4 buckets each: 0 and 1 exact, then 2 to 6 (2·√10 = 6.3), then the rest
    distances = torch.tensor([0, 1, 2, 6, 7, 20, 99, -1, -2, -6, -7, -99])
    assert bucket_rows(distances, component.bias, causal=False).tolist() == [0, 5, 6, 6, 7, 7, 7, 1, 2, 2, 3, 3]
    # one direction with 8: 0 to 3 exact, then from 4, 4·⁴√5 = 6.0, 8.9 and 13.4 on
    assert bucket_rows(distances, component.bias, causal=True).tolist() == [0] * 7 + [1, 2, 5, 5, 7]


def test_layers_that_share_a_table_count_it_once(tmp_path: Any) -> None:
    def spec(**share: str) -> dict[str, Any]:
        bias = {"kind": "buckets"} | share
        return {
            "input": {"kind": "tokens", "vocabulary": 29, "length": 10},
            "embed": [{"kind": "token"}],
            "stages": [{"dim": 12, "depth": 3, "block": [{"kind": "full", "heads": 3, "bias": bias}, {"kind": "mlp"}]}],
        }

    own, shared = counted_spec(spec(), tmp_path), counted_spec(spec(share="buckets"), tmp_path)
    assert own.total("params") - shared.total("params") == 2 * 32 * 3
    assert own.total("moved") == shared.total("moved")
    assert next(row for row in shared.rows if row.path == "shared.buckets").params == 32 * 3


def test_the_shared_table_is_learned_from_every_layer() -> None:
    table = torch.nn.Module()
    table.weight = torch.nn.Parameter(torch.randn(32, 2, dtype=torch.float64))
    component = Full(heads=2, bias=Buckets(share="one"))
    modules = [MODULES[Full](component, at(6), {"one": table}).double() for _ in range(2)]
    assert all("relative_bias.weight" not in dict(module.named_parameters()) for module in modules)
    x = torch.randn(1, 6, 8, dtype=torch.float64)
    for module in modules:
        table.weight.grad = None
        module(x).sum().backward()
        assert table.weight.grad.abs().sum() > 0


# Refused ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


test_what_can_not_stand_is_refused = refusals(
    [
        (Full(heads=8, kv_heads=3), "kv_heads", "8 heads don't divide into 3 groups; it could be 1, 2, 4, 8"),
        (Full(heads=4, kv_heads=8), "kv_heads", "4 heads don't divide into 8 groups; it could be 1, 2, 4"),
        (Full(heads=8, position="rope"), "position", "expected an even head width, got 1: give an even `head_dim`"),
        (Full(heads=2, position="alibi"), "position", "alibi needs causal attention; write causal: true"),
        (Full(heads=2, causal=True, position="alibi", bias=Buckets()), "bias", "leave one of the two out"),
        (Full(heads=2, bias=Buckets(count=32, distance=8)), "bias", "32 buckets cover more than `distance`, 8"),
        (
            Full(heads=4, kv_heads=2, talking_heads=True),
            "talking_heads",
            "talking heads need scaled scores without a bias",
        ),
        (Full(heads=4, scaled=False, talking_heads=True), "talking_heads", "leave one of the two out"),
        (Sliding(heads=2, window=4, global_tokens=1, position="rope"), "position", "projections of their own"),
        (Sliding(heads=2, window=4, global_tokens=1, kv_heads=1), "kv_heads", "projections of their own"),
        (Sliding(heads=2, window=4, kv_heads=1), "kv_heads", "only causal windows have `kv_heads`"),
    ],
    at(10),
)


def test_the_least_distance_that_stands() -> None:
    # 32 buckets in two directions: 8 exact ones each, so that further ones begin at 8 and end beyond it
    Full(heads=2, bias=Buckets(count=32, distance=9)).check(at(10))
    Full(heads=2, causal=True, bias=Buckets(count=32, distance=17)).check(at(10))
    with pytest.raises(ComponentError):
        Full(heads=2, causal=True, bias=Buckets(count=32, distance=16)).check(at(10))
