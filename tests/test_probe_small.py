"""Components made small for the probe: they keep their form, and the two grids hold their whole pattern, unpadded."""

from functools import partial

import pytest

import places
from xfcost.formulas.component import Component, Place
from xfcost.layers.shift import Context
from xfcost.layers.stage_entries import PoolingAttention
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.blockwise import Blockwise
from xfcost.mechanisms.full import Full
from xfcost.mechanisms.kernel import Kernel, RandomFeatures
from xfcost.mechanisms.low_rank import Nystrom
from xfcost.mechanisms.pooling import Pooling, WindowPooling
from xfcost.mechanisms.recurrent import Lstm
from xfcost.mechanisms.residual_blocks import Basic
from xfcost.mechanisms.retention import Retention
from xfcost.mechanisms.sliding import GlobalLocal
from xfcost.mechanisms.window import Window
from xfcost.parts.mixing.result import ProbedRow
from xfcost.program.residual import component_rows
from xfcost.spec.architecture import Part
from xfcost.torch_models.mixing.follower import Budget
from xfcost.torch_models.probing import small as small_module
from xfcost.torch_models.probing.account import probed_part
from xfcost.torch_models.probing.small import made_small

place = partial(places.at, dim=768)


def rows_of(component: Component, at: Place) -> dict[str, ProbedRow]:
    rows = probed_part(Part("it", component, at, "none"), {}, lambda text: None, Budget()).rows
    return {row.path: row for row in rows}


def named(value: object) -> str | None:
    return type(value).__name__ if isinstance(value, Component) else ""


@pytest.mark.parametrize(
    ("component", "at", "smaller"),
    [
        # chunks of 64 by default, whichever N: four tokens each
        (Kernel(heads=8, causal=True), place(784), {"chunk": 4}),
        # not causal, it has none
        (Kernel(heads=8), place(784), {"chunk": None}),
        # a window of odd size keeps its middle, and a shift stays about half of it
        (Window(heads=4, size=7, shift=3), place(56, 56), {"size": 3, "shift": 1}),
        (Window(heads=4, size=12, shift=6), place(96, 96), {"size": 3, "shift": 1}),
        # three heads of queries share one of keys
        (Full(heads=24, kv_heads=8), place(1024), {"heads": 3, "kv_heads": 1}),
        # an odd number of heads stays odd
        (Full(heads=25), place(1024, dim=1600), {"heads": 3}),
        # widths that heads divide
        (Retention(heads=4, value_dim=1728), place(512, dim=1024), {"heads": 2}),
        # strides in a list
        (Pooling(heads=1, kv_stride=[1, 8, 8]), place(8, 56, 56, dim=96), {"kv_stride": [1, 2, 2], "kv_size": 3}),
        # a window of several keys
        (WindowPooling(heads=1, window=56, kv_stride=4), place(56, 56, dim=96), {"window": 4, "kv_stride": 2}),
        (GlobalLocal(heads=12, radius=84), place(4096, special=230), {"radius": 4}),
    ],
    ids=named,
)
def test_a_component_made_small_keeps_its_form(component: Component, at: Place, smaller: dict[str, object]) -> None:
    found = made_small(component, at).component
    assert {name: getattr(found, name) for name in smaller} == smaller


def test_both_grids_have_room_for_what_a_token_reads() -> None:
    component = Blockwise(heads=8, block=[8, 16], above=8, beside=16, causal=True)
    small, *_ = found = made_small(component, place(32, 96, dim=512))
    reads = [[row.reads_tokens for row in component_rows(small, one) if row.mixing == "local"] for one in found.places]
    assert reads[0] == reads[1]
    assert 2 * max(number or 0 for number in reads[0]) <= found.places[0].grid.total


def test_a_row_that_no_small_grid_has_room_for_is_not_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    # chunks of 64 tokens, of which 24 hold no whole one
    monkeypatch.setattr(small_module, "forms", lambda: iter((None,)))
    monkeypatch.setattr(small_module, "MOST_TOKENS", 24)
    monkeypatch.setattr(small_module, "_sides", lambda component, axes: range(8, 24))
    rows = rows_of(Kernel(heads=8, causal=True), place(784))
    reason = "no grid that is small enough has room for the component's pattern"
    assert rows["local_scores"].reason == rows["read"].reason == reason
    assert rows["qkv"].agrees


@pytest.mark.parametrize(
    ("component", "at"),
    [
        (Kernel(heads=8, causal=True), place(784)),
        (Kernel(heads=8, causal=True, features=RandomFeatures(count=256)), place(784)),
        (Nystrom(heads=12), place(784)),
        (GlobalLocal(heads=12, radius=84), place(4096, special=230)),
        # k learned queries read all tokens, and their sets are the same
        (PoolingAttention(count=256, heads=4, residual="none"), place(784, out_dim=512)),
        # one learned query: a single new token of all
        (PoolingAttention(count=1, heads=4, residual="none"), place(784, out_dim=512)),
        # the memory's tokens are the stream's
        (Context(), place(64, memory=Grid((64,)), memory_dim=768)),
        # the one before it, in the row above
        (Context(shift="row"), place(8, 8, memory=Grid((8, 8)), memory_dim=768)),
        # its second convolution stands behind a stride
        (Basic(stride=2), place(56, 56, dim=64, out_dim=128)),
        # alone, it starts from zeros
        (Lstm(hidden=768, start="encoder"), place(50, memory=Grid((50,)), memory_dim=768)),
    ],
    ids=named,
)
def test_what_was_a_false_difference_agrees(component: Component, at: Place) -> None:
    rows = rows_of(component, at)
    assert {path: (row.declared, row.found) for path, row in rows.items() if row.agrees is False} == {}
    assert any(row.agrees for row in rows.values())
