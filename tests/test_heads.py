"""The exits that fine-tuned models have: a pooler with classes, every token classified; rows by hand, and refusals."""

from __future__ import annotations

import pytest

from xfcost.formulas.component import Place
from xfcost.layers.classifier import Classifier
from xfcost.layers.pooler import Pooler
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid

SPOT = Place(grid=Grid((7,)), dim=4, out_dim=4)


def test_a_pooler_with_classes_by_hand() -> None:
    rows = {row.path: row for row in Pooler(norm="layer_norm", width=3, act="relu", classes=5).operations(SPOT)}
    assert list(rows) == ["norm", "pool", "linear", "act", "classify"]
    # all 7·4 elements at 5 each; 4·3 + 3 parameters, one token's 12 MACs
    assert (rows["norm"].params, rows["norm"].flops) == (8, 140)
    assert (rows["linear"].params, rows["linear"].macs) == (15, 12)
    # ReLU of 3; 3·5 + 5 parameters, 15 MACs, twice that and 5 biases
    assert rows["act"].flops == 3
    assert (rows["classify"].params, rows["classify"].macs, rows["classify"].flops) == (20, 15, 35)
    assert [row.path for row in Pooler().operations(SPOT)] == ["pool", "linear", "act"]


def test_every_token_classified_by_hand() -> None:
    rows = {row.path: row for row in Classifier(pool="none", norm="rms_norm", classes=5).operations(SPOT)}
    assert list(rows) == ["norm", "linear"]
    # 4·5 + 5 parameters, 7·20 MACs
    assert (rows["linear"].params, rows["linear"].macs) == (25, 140)
    (bare,) = Classifier(pool="none", norm="none", bias=False, classes=5).operations(SPOT)
    assert (bare.params, bare.macs, bare.flops) == (20, 140, 280)


def test_one_vector_without_a_bias() -> None:
    rows = {row.path: row for row in Classifier(bias=False, classes=5).operations(SPOT)}
    assert (rows["linear"].params, rows["linear"].macs) == (20, 20)


def test_there_is_no_pooled_vector_to_normalise() -> None:
    with pytest.raises(ComponentError, match="classifies every token"):
        Classifier(pool="none", norm_after_pool=True).check(SPOT)


def test_without_extra_tokens_every_token_is_classified_as_before() -> None:
    component = Classifier(pool="none")
    component.check(SPOT)
    assert component.without_extra_tokens() == component
