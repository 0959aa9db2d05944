"""Places where a component can't stand, as one table a file: each refused for a field, in words."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from xfcost.formulas.component import Place
from xfcost.ledger.errors import ComponentError


def refusals(table: Sequence[tuple[Any, ...]], everywhere: Place | None = None) -> Callable[..., None]:
    """The test of (component, place, field, words); of (component, field, words) where all stand at one place."""
    rows = [row if everywhere is None else (row[0], everywhere, *row[1:]) for row in table]

    @pytest.mark.parametrize(("component", "place", "field", "words"), rows, ids=str)
    def refused(component: Any, place: Place, field: str, words: str) -> None:
        with pytest.raises(ComponentError, match=words) as error:
            component.check(place)
        assert error.value.field == field

    return refused
