"""Synthetic attention: the paper's parameters, what stays as drawn, what is done once, options that can't be."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from places import at
from refused import refusals
from xfcost.counting.forward import batched
from xfcost.formulas.arithmetic import root_divisor
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.synthesizer import Synthesizer
from xfcost.torch_models.mechanisms.synthesizer import SynthesizerAttention

FORMS: tuple[Any, ...] = ("dense", "random", "factorized_dense", "factorized_random")


def noise(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize(
    ("form", "params"),
    [
        # Table 1 of the paper, for one head as wide as the model: d² + dN, d(d + k₁ + k₂), N², 2Nk.
        ("dense", 6 * 6 + 6 * 12),
        ("factorized_dense", 6 * (6 + 3 + 4)),
        ("random", 12 * 12),
        ("factorized_random", 2 * 12 * 8),
    ],
)
def test_parameters_are_those_of_the_paper(form: Any, params: int) -> None:
    component = Synthesizer(heads=1, form=form, projection_bias=False)
    rows = {row.path: row.params for row in component.operations(at(12))}
    assert sum(rows.values()) - rows["value"] - rows["out"] == params


def test_tables_are_worked_on_once_for_the_whole_batch() -> None:
    for form in FORMS:
        rows = {row.path: row for row in Synthesizer(heads=2, form=form, causal=True).operations(at(12))}
        once = {path for path, row in rows.items() if row.once}
        assert once == (set() if "dense" in form else {"synthesis", "mask", "softmax"})
        assert {row.content_dependent for row in rows.values() if row.mixes} == {"dense" in form}
        for path in ("synthesis", "softmax"):
            times = 1 if path in once else 5
            assert batched(rows[path], 5).flops == times * rows[path].flops


def test_random_weights_do_not_see_the_input_and_can_stay_as_drawn() -> None:
    torch.manual_seed(0)
    module = SynthesizerAttention(Synthesizer(heads=2, form="random", trainable=False), at(12)).double()
    assert [name for name, _ in module.named_parameters() if "core" in name] == []
    assert "core.synthesis.weight" in module.state_dict()
    weights = []
    module.softmax.register_forward_hook(lambda *call: weights.append(call[-1]))
    module(noise(3, 12, 6))
    module(2 * noise(3, 12, 6))
    assert torch.equal(*weights)
    assert weights[0].shape == (2, 12, 12)


test_options_that_can_not_be = refusals(
    [
        (Synthesizer(heads=2, trainable=False), "trainable", "only `form: random` has fixed weights.* is 'dense'"),
        (Synthesizer(heads=2, factor=2), "factor", "only 'factorized_dense' has factors, and the form is 'dense'"),
        (Synthesizer(heads=2, rank=2), "rank", "only 'factorized_random' has a rank, and the form is 'dense'"),
        (
            Synthesizer(heads=2, form="factorized_dense", factor=5),
            "factor",
            "5 does not divide the 12 tokens; it could be 1, 2, 3, 4, 6",
        ),
    ],
    at(12),
)


def test_what_is_bound_to_n_is_told() -> None:
    told = {form: next(iter(Synthesizer(heads=2, form=form).notes(at(12)))) for form in FORMS}
    assert "makes attention weights has one output per token (12): another N needs" in told["dense"]
    assert "the weights have one row per token (12): another N needs" in told["random"]


@pytest.mark.parametrize(("n", "divisor"), [(1, 1), (13, 1), (12, 3), (36, 6), (2**20, 2**10), (6 * 2**20, 2**11)])
def test_the_divisor_nearest_below_the_root(n: int, divisor: int) -> None:
    assert root_divisor(n) == divisor
    assert Synthesizer(heads=2, form="factorized_dense").factors(Grid((n,))) == (divisor, n // divisor)
