"""The non-local block and SAGAN's layer: the rows in print, options that can't stand."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from places import at
from refused import refusals
from xfcost.formulas.component import Mixer, Place
from xfcost.ledger.operation import Operation
from xfcost.mechanisms.non_local import NonLocal, Sagan
from xfcost.torch_models.modules import MODULES
from xfcost.torch_models.tracing.trace import trace


def rows(component: Mixer, place: Place) -> dict[str, Operation]:
    component.check(place)
    return {row.path: row for row in component.operations(place)}


def totals(component: Mixer, place: Place) -> tuple[int, int, int]:
    every = rows(component, place).values()
    return tuple(sum(getattr(row, what) for row in every) for what in ("params", "macs", "attention_entries"))  # type: ignore[return-value]


# Wang et al. 2018: SlowFast's Nonlocal module by torch's counter on meta.
NON_LOCAL: list[tuple[str, tuple[int, ...], int, Any, int, tuple[int, int, int]]] = [
    ("res4", (14, 14), 1024, 1, 512, (2101760, 450379776, 38416)),
    ("res4, pooled", (14, 14), 1024, 2, 512, (2101760, 266735616, 9604)),
    ("res3", (28, 28), 512, 1, 256, (526592, 725745664, 614656)),
    ("res3, pooled", (28, 28), 512, 2, 256, (526592, 335577088, 153664)),
    ("spacetime, T = 4", (4, 14, 14), 1024, 1, 512, (2101760, 2273574912, 614656)),
]


@pytest.mark.parametrize(("sides", "dim", "pool", "width", "expected"), [row[1:] for row in NON_LOCAL])
def test_non_local_blocks_to_the_unit(sides, dim, pool, width, expected):
    component, place = NonLocal(width=width, pool=pool), at(*sides, dim=dim)
    assert totals(component, place) == expected
    with torch.device("meta"):
        torch_module = MODULES[NonLocal](component, place)
        traced = trace(torch_module.eval(), (torch.randn(1, place.grid.total, dim),))
    assert (traced.params, traced.macs) == expected[:2]
    assert traced.unsupported == {}


def test_what_fills_no_pool_is_not_read_and_told():
    # 3×5 in pools of 2: one row of two pools; the last row and the last column go into no key.
    component, place = NonLocal(width=2, pool=2), at(3, 5, dim=6)
    assert list(component.reads(place.grid, 0)) == [0, 1, 2, 3, 5, 6, 7, 8]
    assert component.pairs(place.grid) == 15 * 8
    assert rows(component, place)["scores"].attention_entries == 15 * 2
    assert "the last 1×1 positions along its axes go into no output" in next(component.notes(place))
    assert list(NonLocal(width=2).notes(place)) == []


SAGAN: list[tuple[dict[str, Any], int, int, tuple[int, int, int]]] = [
    ({"value_reduction": 1, "output_projection": False}, 32, 256, (81921, 385875968, 1048576)),
    ({}, 32, 256, (32769, 100663296, 1048576)),
    ({"value_reduction": 2, "pool": 2}, 32, 256, (81921, 125829120, 262144)),
    ({"value_reduction": 1, "output_projection": False}, 64, 128, (20481, 2499805184, 16777216)),
    ({}, 64, 128, (8193, 570425344, 16777216)),
    ({"value_reduction": 2, "pool": 2}, 64, 128, (20481, 419430400, 4194304)),
]


@pytest.mark.parametrize(("options", "side", "dim", "expected"), SAGAN)
def test_sagan_layers_to_the_unit(options, side, dim, expected):
    assert totals(Sagan(**options), at(side, side, dim=dim)) == expected


REFUSED: list[tuple[Mixer, Place, str, str]] = [
    (NonLocal(), at(3, dim=7), "width", "7 is odd"),
    (NonLocal(pool=2), at(1, 4, dim=8), "pool", "a kernel of 2×2 .* does not fit the grid 1×4"),
    (NonLocal(pool=[2, 2]), at(1, 4, 4, dim=8), "pool", "expected one number, or 3"),
    (NonLocal(pool=2), at(4, 4, dim=8, special=1), "pool", "expected no special tokens, got 1"),
    (Sagan(), at(4, 4, dim=12), "reduction", "8 does not divide the width 12; it could be 1, 2, 3, 4, 6"),
    (Sagan(reduction=2), at(4, 4, dim=12), "value_reduction", "8 does not divide the width 12"),
    (
        Sagan(output_projection=False),
        at(4, 4, dim=16),
        "output_projection",
        "they are 2 wide; write value_reduction: 1",
    ),
]


test_what_can_not_stand_is_refused = refusals(REFUSED)
