"""A preset's module looked at without its spec costs what the spec's formulas say."""

from __future__ import annotations

import pytest

from specs import architecture_of
from xfcost.counting.forward import count
from xfcost.torch_models.any_model.ledger import module_ledger
from xfcost.torch_models.build import build

TOTALS = ("params", "macs", "flops", "comparisons", "moved", "attention_entries")


@pytest.mark.parametrize("attention", ["eager", "fused"])
@pytest.mark.parametrize("preset", ["vit-ti16", "swin", "gpt2", "t5-small", "convnext-t"])
def test_totals_and_attention_memory_are_the_formulas(preset, attention):
    architecture = architecture_of(preset, attention=attention)
    counted, live = count(architecture, orders=False), build(architecture)
    found = module_ledger(live.model, tuple(live.inputs), strict=True, trace=False)
    assert {name: found.total(name) for name in TOTALS} == {name: counted.total(name) for name in TOTALS}
    for name in ("all_layers", "peak"):
        assert found.attention_memory()[name] == counted.attention_memory()[name]
