"""Values that are wider, or narrower, than keys: caches, traffic, and what is refused."""

from __future__ import annotations

from functools import partial

import pytest

import places
from places import rows_of
from xfcost.api.analysis import analyze
from xfcost.formulas.component import Mixer
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.full import Cross, Full

at = partial(places.at, dim=12)


def test_caches_keep_both_widths() -> None:
    own = {row.path: row for row in Full(heads=6, kv_heads=3, value_dim=5, causal=True).decoding(at(10))}
    assert (own["cache"].cache.per_token, own["cache"].cached) == (3 * (2 + 5), 10 * 3 * (2 + 5))
    other = Cross(heads=3, head_dim=2, value_dim=5).decoding(at(10, memory=Grid((7,)), memory_dim=4))
    assert next(row for row in other if row.path == "cache").cached == 7 * 3 * (2 + 5)


def test_the_bias_of_the_output_is_the_same_in_a_step() -> None:
    for bias in (True, False):
        component = Full(heads=2, causal=True, projection_bias=not bias, output_bias=bias)
        step = {row.path: row.params for row in component.decoding(at(10))}
        assert step["out"] == rows_of(component, at(10))["out"].params == 144 + 12 * bias


@pytest.mark.parametrize("mixer", [Full(heads=3), Cross(heads=3)])
def test_as_wide_as_keys_is_the_default(mixer: Mixer) -> None:
    said = type(mixer)(heads=3, value_dim=4)
    spot = at(10, memory=Grid((7,)), memory_dim=12)
    assert list(mixer.operations(spot)) == list(said.operations(spot))


def test_without_an_output_projection_values_must_fill_the_stream() -> None:
    Full(heads=3, head_dim=2, value_dim=4, output_projection=False).check(at(10))
    with pytest.raises(ComponentError, match="the heads together must have the output's width 12, and they have 15"):
        Full(heads=3, value_dim=5, output_projection=False).check(at(10))


def test_traffic_reads_both_widths() -> None:
    # Table 3 (B): 18 cores of 8 heads, 512 queries and keys, d_k = 16, d_v = 64; plain: Q, K of d_k, V, O of d_v, and
    # the matrix four times, in 4 bytes
    ledger = analyze("transformer-base-dk16", memory_level="192KiB", trace=False)
    assert ledger.total("plain_traffic_bytes") == 4 * 18 * 8 * (2 * 512 * (16 + 64) + 4 * 512**2)
    # 49,152 elements hold ⌈49,152/160⌉ = 308 keys at a time: two passes over queries, outputs twice, and statistics
    tiled = 512 * (16 + 64) + 2 * (512 * (16 + 2 * 64) + 4 * 512)
    assert ledger.total("tiled_traffic_bytes") == 4 * 18 * 8 * tiled
