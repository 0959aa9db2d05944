"""Gated feed-forward networks: the width that three must divide."""

from __future__ import annotations

import pytest

from places import at
from xfcost.layers.swiglu import Swiglu
from xfcost.ledger.errors import ComponentError


def test_a_width_that_three_does_not_divide_is_refused() -> None:
    with pytest.raises(
        ComponentError, match=r"8·512/3 is not a whole width; give `hidden`, such as 1365 or 1366"
    ) as refused:
        Swiglu().check(at(3, dim=512))
    assert refused.value.field == "hidden"
    Swiglu(hidden=1376).check(at(3, dim=512))
