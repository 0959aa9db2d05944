"""A plugin of pytest, found by its entry point: the fixture `assert_cost`. pytest imports it at every start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from typing_extensions import Protocol, Unpack

    from xfcost.questions.check.answer import CheckOptions

    class AssertCost(Protocol):
        """`xfcost.check`, which fails the test instead of returning a result."""

        def __call__(self, target: Any, /, *, against: Any = None, **options: Unpack[CheckOptions]) -> None: ...


@pytest.fixture(scope="session")
def assert_cost() -> AssertCost:
    """`assert_cost(model, max_macs="5G", example_inputs=…)` fails the test where the model is over a budget.

    It takes what `xfcost.check` takes; the failure has the report of `xfcost check`.
    """
    return _assert_cost


def _assert_cost(target: Any, /, *, against: Any = None, **options: Unpack[CheckOptions]) -> None:
    __tracebackhide__ = True
    from xfcost.questions.check.answer import check
    from xfcost.questions.check.text import document

    found = check(target, against=against, **options)
    if not found.within:
        raise AssertionError(document(found).text("table").rstrip())
