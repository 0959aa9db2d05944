"""Pooling attention within windows under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import MechanismCase
from cases.pooling import GRIDS_FEW, SMALL_VOLUME, options
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.window_pooling import WindowPooling

CASE = MechanismCase(
    component=WindowPooling,
    examples=(
        WindowPooling(heads=2, window=4, kv_stride=2, bias="decomposed", residual_pooling="all"),
        WindowPooling(heads=1, window=4, q_stride=2, kv_stride=4, kv_size=1, out_width=12),
        WindowPooling(heads=2, window=3, q_size=1, function="mean"),
    ),
    components=st.builds(
        lambda given, window: WindowPooling(window=window, **given), options(), st.sampled_from([4, 8, 12])
    ),
    growth=lambda component: (
        Grid((3 * component.window, component.window)),
        Grid((6 * component.window, component.window)),
    ),
    grids=(*GRIDS_FEW, SMALL_VOLUME),
    image=True,
    dim=24,
)
