"""A classifier of every token: what it refuses, and without special tokens."""

from __future__ import annotations

import pytest

from xfcost.formulas.component import Place
from xfcost.layers.classifier import Classifier
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid

SPOT = Place(grid=Grid((7,)), dim=4, out_dim=4)


def test_there_is_no_pooled_vector_to_normalise() -> None:
    with pytest.raises(ComponentError, match="classifies every token"):
        Classifier(pool="none", norm_after_pool=True).check(SPOT)


def test_without_extra_tokens_every_token_is_classified_as_before() -> None:
    component = Classifier(pool="none")
    component.check(SPOT)
    assert component.without_extra_tokens() == component
