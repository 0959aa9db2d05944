"""Orders in letters: every row of every preset that costs something has one, of all tokens and of one more."""

from __future__ import annotations

import contextlib

import pytest

from xfcost.counted import count
from xfcost.errors import SpecError, UsageError
from xfcost.mechanisms.base import tag_of
from xfcost.spec.load import load, preset_names
from xfcost.spec.walk import Run, place

# Windows of which queries are pooled with a stride: in letters it isn't known which of their strides is the larger.
UNKNOWN = {("window_pooling", "residual_pool"), ("window_pooling", "residual_projection")}


@pytest.mark.parametrize("mode", ["forward", "decode"])
def test_every_costly_row_of_every_preset_has_an_order(mode: str) -> None:
    without, counted = set(), 0
    for preset in preset_names():
        with contextlib.suppress(SpecError, UsageError):  # many have no step
            architecture = place(load(preset), Run(mode=mode))  # type: ignore[arg-type]
            kinds = {part.path: tag_of(type(part.page)) for part, *_ in architecture.parts()}
            for row in count(architecture).rows:
                part, _, name = row.path.rpartition(".")
                costs = row.macs or row.flops or row.comparisons or row.params
                if costs and part != "shared" and (kinds[part], name) not in UNKNOWN and row.order is None:
                    without.add((preset, row.path))
            counted += 1
    assert counted > {"forward": 400, "decode": 120}[mode]
    assert not without
