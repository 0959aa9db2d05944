"""Global-local attention: without global tokens, and what the component refuses and notes."""

from __future__ import annotations

from typing import Any

import pytest

from places import rows_of
from xfcost.formulas.component import Place
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.global_local import GlobalLocal


def at(tokens: int, special: int, **more: Any) -> Place:
    return Place(grid=Grid((tokens,), special), dim=8, out_dim=8, **more)


def test_without_global_tokens_it_is_a_band() -> None:
    component = GlobalLocal(heads=2, radius=2, share_projections=False, share_output=False)
    found = rows_of(component, at(12, 0))
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
