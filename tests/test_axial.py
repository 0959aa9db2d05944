"""Axial attention: along depth, its public figures, and sequences that are folded to stand on a grid."""

from __future__ import annotations

from functools import partial

import pytest
import torch

import places
from cases.base import DIM, VOLUME, Case
from compared import given, referred
from contract import example, joined, make
from places import total
from refused import refusals
from strategies import place_for
from whole_probe import probe
from xfcost.counting.comparison import compared
from xfcost.counting.forward import count
from xfcost.counting.sweep import slope, sweep
from xfcost.counting.system import SpecSystem
from xfcost.formulas.component import Place
from xfcost.layers.fold import Fold
from xfcost.ledger.errors import SpecError
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.axial import Axial
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.spec.run import Run

at = partial(places.at, dim=DIM)


# Lines -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("fused", [False, True])
def test_attention_along_depth(causal, fused):
    component = Axial(axis="depth", heads=2, causal=causal)
    case = Case(component, place_for(component, VOLUME, fused=fused))
    module, inputs = make(case), example(case.place, 2)
    torch.testing.assert_close(module(*inputs), referred(case, given(module), *inputs), rtol=1e-11, atol=1e-12)
    seen = probe(module, inputs)
    assert seen.reads == tuple(frozenset(component.reads(VOLUME, token)) for token in range(24))
    assert seen.pairs == component.pairs(VOLUME)
    assert joined(component, case.place, 2, "none").agreement.exact


# Costs -------------------------------------------------------------------------------------------------------------


def test_the_public_image_transformer_s_attention_layers():
    # axial-attention 0.6.1, AxialImageTransformer(dim=128, depth=4, heads=8) on 32×32: 9,971,712 parameters,
    # 10,267,656,192 MACs. Of each of its 4·2 layers, the feed-forward is two 3×3 convolutions 128 -> 512 -> 128 under
    # a norm; the attention has a norm, and of its projections the last alone has a bias.
    forward_params = 2 * 128 + 2 * (128 * 512 * 9) + 512 + 128
    forward_macs = 1024 * 2 * (128 * 512 * 9)
    theirs = (9_971_712 - 8 * forward_params, 10_267_656_192 - 8 * forward_macs)
    spot = Place(grid=Grid((32, 32)), dim=128, out_dim=128)
    components = [Axial(axis=axis, heads=8, projection_bias=False) for axis in ("row", "column")]
    params = sum(total(component, spot, "params") + 2 * 128 + 128 for component in components)
    assert (4 * params, 4 * sum(total(component, spot, "macs") for component in components)) == theirs


# Places ------------------------------------------------------------------------------------------------------------


test_places_that_can_not_be = refusals(
    [
        (Axial(axis="row", heads=1), at(5), "kind", "the 5 tokens are not a grid of 2 or 3 axes; lay a sequence"),
        (Axial(axis="all", heads=1), at(2, 2, special=1), "kind", "expected no special tokens, got 1"),
        (Axial(axis="depth", heads=1), at(4, 5), "axis", r"20 \(4×5\) tokens; it could be 'row' or 'column'"),
        (Axial(axis="row", heads=4), at(4, 5), "heads", "4 does not divide the width 6"),
        (Fold(), at(197), "kind", r"197 tokens make no grid between 1:1 and 2:1; .* 196 \(14×14\) or 198 \(11×18\)"),
        (Fold(), at(4, 5), "kind", "tokens are a grid already"),
    ]
)


def test_an_oblong_grid_is_told():
    component = Axial(axis="row", heads=1)
    assert list(component.notes(at(8, 16))) == []
    assert "far from square" in next(component.notes(at(2, 32)))


# Sequences ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("power", range(7, 17))
def test_every_power_of_two_folds_to_at_most_two_to_one(power):
    n = 2**power
    fold = Fold()
    fold.check(at(n))
    height, width = fold.out(at(n))[0].sides
    assert (height * width, height) == (n, 2 ** (power // 2))
    ledger = count(place(load("common-axial"), Run(tokens=(n,))))
    # 6 blocks along rows, 6 along columns.
    scores = sum(row.times * row.macs for row in ledger.rows if row.operation == "scores")
    assert scores == 6 * n * (height + width) * 768


def test_a_length_that_does_not_fold_is_refused_with_its_line():
    with pytest.raises(SpecError, match=r"common-axial.yaml:\d+ embed\[2\].kind: 1009 tokens make no grid"):
        place(load("common-axial"), Run(tokens=(1009,)))


def test_growth_of_a_folded_sequence_is_measured_on_squares():
    # Inputs twice as long in both directions: 4 N, and √4 times the line.
    loaded = load("common-axial")
    ledger = count(place(loaded, Run()))
    (growth,) = compared([SpecSystem(loaded)], [ledger], Run()).growth.values()
    assert growth["factor"] == 4
    assert growth["mixing_macs"] == pytest.approx(1.5)
    ledgers = sweep("common-axial", SpecSystem(loaded), Run(), (128, 65536))
    assert slope(ledgers.xs, ledgers.values("mixing_macs")) == pytest.approx(1.5)
    assert ledgers.ended is None
