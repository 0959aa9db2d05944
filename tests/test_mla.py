"""Latent attention: rows by hand, what is refused, and its cost beside multi-head attention's."""

from __future__ import annotations

import pytest

from cases.base import Case
from test_every_mechanism import example, make
from xfcost.errors import PageError
from xfcost.grid import Grid
from xfcost.mechanisms import Full, Mla
from xfcost.mechanisms.base import Place


def at(tokens: int, dim: int) -> Place:
    return Place(grid=Grid((tokens,)), dim=dim, out_dim=dim)


def test_rows_by_hand() -> None:
    # 7 tokens of width 12, 3 heads of 4 + 2 columns and values of 5, latents of 10 and 8
    page = Mla(heads=3, rope_dim=2, value_dim=5, kv_rank=10, q_rank=8, causal=True)
    rows = {row.path: row for row in page.operations(at(7, 12))}
    assert (rows["q_down"].params, rows["q_up"].params) == (12 * 8, 8 * 3 * 6)
    assert (rows["q_norm"].params, rows["kv_norm"].params) == (8, 10)
    assert (rows["kv_down"].params, rows["kv_down"].macs) == (12 * 12, 7 * 12 * 12)
    assert (rows["kv_up"].params, rows["kv_up"].macs) == (10 * 3 * 9, 7 * 10 * 3 * 9)
    # 3 heads of queries and one key are turned, 2 columns each
    assert (rows["rotary"].flops, rows["rotary"].moved) == (3 * 7 * 4 * 2, 7 * 4 * 2)
    assert rows["join"].moved == 2 * 7 * 3 * 6
    assert (rows["scores"].macs, rows["scores"].attention_entries, rows["scores"].pairs) == (49 * 18, 3 * 49, 28)
    assert rows["weighted_sum"].macs == 49 * 15
    assert (rows["out"].params, rows["out"].macs) == (15 * 12, 7 * 15 * 12)


def test_without_a_rank_queries_are_projected_straight() -> None:
    rows = {row.path: row for row in Mla(heads=3, rope_dim=2, kv_rank=10).operations(at(7, 12))}
    assert rows["q"].params == 12 * 3 * 6
    assert not {"q_down", "q_norm", "q_up"} & set(rows)
    # a value is as wide as a head's content where nothing else is said
    assert rows["weighted_sum"].macs == 49 * 12


def test_biases_are_those_of_what_leaves_the_stream_and_returns_to_it() -> None:
    spot = at(7, 12)
    plain, biased = (
        {
            row.path: row.params
            for row in Mla(heads=3, rope_dim=2, kv_rank=10, q_rank=8, projection_bias=bias).operations(spot)
        }
        for bias in (False, True)
    )
    assert {path: biased[path] - plain[path] for path in plain if biased[path] != plain[path]} == {
        "q_down": 8,
        "kv_down": 12,
        "out": 12,
    }


def test_a_cache_keeps_one_latent_whatever_the_heads() -> None:
    for heads in (1, 4, 16):
        page = Mla(heads=heads, head_dim=16, rope_dim=8, kv_rank=64)
        assert page.latent == 72
        assert next(row for row in page.operations(at(7, 64)) if row.path == "kv_down").macs == 7 * 64 * 72
    # of multi-head attention with 16 such heads it would be 2·16·16 = 512
    assert 2 * Full(heads=16, head_dim=16).kv_inner(64) == 512


def test_keys_of_one_token_share_their_turned_part() -> None:
    page = Mla(heads=2, rope_dim=2, kv_rank=4)
    module, seen = make(Case(page, at(5, 6))), []
    module.join.register_forward_hook(lambda _, inputs, output: seen.append(inputs[1]))
    module(*example(at(5, 6), 1))
    queries, keys = seen
    assert keys[:, 0].equal(keys[:, 1])
    assert not queries[:, 0].allclose(queries[:, 1])
    assert keys.untyped_storage().nbytes() == 5 * 2 * 8, "one copy for all heads, in float64"


@pytest.mark.parametrize(
    ("page", "field", "words"),
    [
        (Mla(heads=5, rope_dim=2, kv_rank=4), "heads", "5 does not divide the width 12"),
        (Mla(heads=3, rope_dim=3, kv_rank=4), "rope_dim", "3 is odd; give an even number"),
    ],
    ids=str,
)
def test_what_can_not_be_is_refused(page: Mla, field: str, words: str) -> None:
    with pytest.raises(PageError, match=words) as refused:
        page.check(at(7, 12))
    assert refused.value.field == field
