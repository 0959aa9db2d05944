"""Global-local attention: counts worked by hand, sharing of projections, and what the component refuses and tells."""

from __future__ import annotations

from typing import Any

import pytest

from xfcost.formulas.component import Place
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.global_local import GlobalLocal


def at(tokens: int, special: int, **more: Any) -> Place:
    return Place(grid=Grid((tokens,), special), dim=8, out_dim=8, **more)


def rows(component: GlobalLocal, spot: Place) -> dict[str, Any]:
    return {row.path: row for row in component.operations(spot)}


def test_who_reads_whom() -> None:
    component, grid = GlobalLocal(heads=1, radius=2), Grid((10,), 3)
    assert list(component.reads(grid, 2)) == list(range(13))
    assert list(component.reads(grid, 3)) == [0, 1, 2, 3, 4, 5]  # the first of the text, and two after it
    assert list(component.reads(grid, 8)) == [0, 1, 2, 6, 7, 8, 9, 10]
    assert list(component.reads(grid, 12)) == [0, 1, 2, 10, 11, 12]


def test_pairs_by_hand() -> None:
    # 3 global tokens read 13 and are read by 10; the text: 5 keys each, less 2 and 1 at both ends, 50 - 6
    assert GlobalLocal(heads=1, radius=2).pairs(Grid((10,), 3)) == 39 + 30 + 44
    # as n_g² + 2·n_g·n_l + n_l·(2r+1) - r(r+1)
    assert 39 + 30 + 44 == 9 + 2 * 30 + 10 * 5 - 6


def test_rows_by_hand() -> None:
    # 10 tokens of text in blocks of r+1 = 3: 4 of them, 12 queries by 9 keys; 2 global tokens beside
    found = rows(GlobalLocal(heads=2, radius=2), at(10, 2))
    assert found["qkv"].macs == 12 * 8 * 24
    assert found["pad"].moved == 12 * 8
    assert found["scores"].macs == found["weighted_sum"].macs == 12 * 9 * 8
    # keys with a block before them and one behind
    assert found["scores"].moved == found["weighted_sum"].moved == (12 + 6) * 8
    assert found["scores"].attention_entries == 2 * 12 * 9
    assert found["global_key_scores"].macs == found["global_key_weighted_sum"].macs == 12 * 2 * 8
    assert found["join"].moved == 2 * 12 * 11
    assert found["softmax"].flops == 5 * 2 * 12 * 11
    assert found["global_scores"].macs == found["global_weighted_sum"].macs == 2 * 12 * 8
    assert found["concat"].moved == 12 * 8
    assert [found[name].reads for name in ("scores", "global_key_scores", "global_scores")] == ["2r+1", "g", "N"]
    assert [found[name].mixing for name in ("scores", "global_key_scores", "global_scores")] == [
        "local",
        "local",
        "global",
    ]


def test_queries_that_fill_their_blocks_are_not_moved() -> None:
    assert rows(GlobalLocal(heads=2, radius=2), at(12, 2))["pad"].moved == 0


def test_projections_of_their_own() -> None:
    shared = rows(GlobalLocal(heads=2, radius=2), at(10, 2))
    apart = rows(GlobalLocal(heads=2, radius=2, share_projections=False, share_output=False), at(10, 2))
    # 3·d² + d² parameters become 10·d² + 2·d², each with its biases
    assert sum(row.params for row in shared.values()) == 4 * 8 * 8 + 4 * 8
    assert sum(row.params for row in apart.values()) == 12 * 8 * 8 + 12 * 8
    # 12 tokens through 5·d²: the text's q, k, v and its k, v for global tokens; likewise the global tokens'
    names = ("long_qkv", "g2l_kv", "global_qkv", "l2g_kv")
    assert sum(apart[name].macs for name in names) == 12 * 5 * 8 * 8
    assert apart["global_kv"].moved == 2 * 12 * 8
    assert (apart["out"].macs, apart["global_out"].macs) == (10 * 64, 2 * 64)


def test_without_global_tokens_it_is_a_band() -> None:
    component = GlobalLocal(heads=2, radius=2, share_projections=False, share_output=False)
    found = rows(component, at(12, 0))
    assert [*found] == ["qkv", "pad", "scale", "scores", "mask", "softmax", "weighted_sum", "out"]
    assert any(note.startswith("no global tokens, only a band") for note in component.notes(at(12, 0)))


def test_notes() -> None:
    component = GlobalLocal(heads=2, radius=2)
    assert list(component.notes(at(12, 1))) == ["ETC's relative position labels are left out"]
    _, padded = component.notes(at(10, 1))
    assert padded.startswith("the queries of 10 tokens are padded to 12 for blocks of 3: 2 more are attended for")
    *_, fused = component.notes(at(12, 1, fused=True))
    assert "no fused form" in fused


def test_there_is_no_causal_form() -> None:
    with pytest.raises(ComponentError, match="no causal form: global tokens read the whole text") as refused:
        GlobalLocal(heads=2, radius=2, causal=True).check(at(10, 1))
    assert refused.value.field == "causal"
