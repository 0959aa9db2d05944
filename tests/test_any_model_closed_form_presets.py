"""The closed forms of presets, recovered from their modules alone, are those of their formulas."""

from __future__ import annotations

from math import isqrt

import pytest

from polynomials import read
from xfcost.counting.fitted import closed_form
from xfcost.counting.forward import count
from xfcost.ledger.errors import XfcostError
from xfcost.ledger.ledger import Ledger
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.spec.run import Run
from xfcost.torch_models.any_model.ledger import module_ledger
from xfcost.torch_models.build import build


def check_preset(preset: str) -> None:
    """Recovered from the module alone, it is what the spec's formulas give."""
    loaded = load(preset)

    def ledger_at(N: int) -> Ledger:
        live = build(place(loaded, Run(tokens=(N,))))
        return module_ledger(live.model, tuple(live.inputs), trace=False)

    def formulas_at(N: int) -> int | None:
        try:
            return count(place(loaded, Run(tokens=(N,))), orders=False).total("macs")
        except XfcostError:
            return None

    own = place(loaded, Run()).grid.tokens
    module = closed_form(own, ledger_at(own), ledger_at).module
    assert module is not None
    found = module.closed_form
    assert found is not None
    assert found.macs is not None
    points = range(own if found.counted_in == "N" else isqrt(own), 1 << 20, found.period)
    sizes = [point if found.counted_in == "N" else point * point for point in points[:100:11]]
    known = {N: formulas_at(N) for N in [*sizes, own // 4, own // 2, own - found.period] if min(found.sizes) <= N}
    expected = {N: macs for N, macs in known.items() if macs is not None}
    assert len(expected) > 2
    assert {N: read(found.macs, N) for N in expected} == expected


@pytest.mark.parametrize("preset", ["vit-ti16"])
def test_presets_have_the_closed_forms_of_their_formulas(preset: str) -> None:
    check_preset(preset)


@pytest.mark.rest
@pytest.mark.parametrize(
    "preset", ["gpt2", "t5-small", "bert-base", "swin", "convnext-t", "mamba-130m", "common-axial"]
)
def test_more_presets_have_the_closed_forms_of_their_formulas(preset: str) -> None:
    check_preset(preset)
