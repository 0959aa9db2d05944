"""The types of arguments that no reader of options checks: texts, names of quantities, callbacks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import wraps
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

from xfcost.ledger.errors import UsageError, shown

P = ParamSpec("P")
R = TypeVar("R")


class _Expected(NamedTuple):
    what: str
    fits: Callable[[Any], bool]


def _are_texts(given: Any) -> bool:
    """Texts, or an iterator, which is read once only."""
    if given is None or isinstance(given, str | Iterator):
        return True
    return isinstance(given, Collection) and all(isinstance(one, str) for one in given)


_QUANTITY: Final = _Expected("the name of a quantity, as in 'params'", lambda given: isinstance(given, str))
_EXPECTED: Final = {
    "settings": _Expected("texts like 'stages.0.depth=4'", _are_texts),
    "inputs": _Expected("texts like '1x3x224x224'", _are_texts),
    "build": _Expected("texts like 'depth=12'", _are_texts),
    "family": _Expected("names of families, as in 'swin'", _are_texts),
    "vary": _Expected(
        "keys of the spec with their values, as in {'stages.2.depth': [2, 6]}, or texts like 'stages.2.depth=2,6'",
        lambda given: isinstance(given, Mapping) or _are_texts(given),
    ),
    "sort": _QUANTITY,
    "front": _Expected("two quantities, as in 'params,macs'", lambda given: isinstance(given, str)),
    "scheduler": _Expected(
        "an address, as in 'tcp://host:8786'", lambda given: given is None or isinstance(given, str)
    ),
    "progress": _Expected(
        "a function of a line of text, as in progress=print", lambda given: given is None or callable(given)
    ),
}


def arguments_checked(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, which refuses keyword arguments of another type."""

    @wraps(function)
    def checked(*given: P.args, **options: P.kwargs) -> R:
        for name, value in options.items():
            expected = _EXPECTED.get(name)
            if expected is not None and not expected.fits(value):
                raise UsageError(f"{name}: expected {expected.what}, got {shown(value)}")
        return function(*given, **options)

    return checked
