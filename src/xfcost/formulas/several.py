"""Numbers at several sizes at once: one run of a program counts a component at all of them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any, NoReturn

from xfcost.ledger.units import Number


class DiffersError(ArithmeticError):
    """A comparison whose answer differs from size to size."""

    def __init__(self, answers: Sequence[bool]) -> None:
        self.answers = answers
        """One for each size."""


class Several:
    """A number at each of several sizes.

    Arithmetic is size by size; what is the same at all sizes becomes a plain int. It is no int itself, so that what
    needs a plain one raises an error.

    Raises:
        DiffersError: the answer of a comparison differs from size to size.
        ArithmeticError: the number is written into a text.
    """

    __slots__ = ("values",)

    def __init__(self, values: Sequence[int]) -> None:
        self.values = values

    # no set and no table would find it
    __hash__ = None  # type: ignore[assignment]

    def __neg__(self) -> Number:
        return several([-value for value in self.values])

    def __abs__(self) -> Number:
        return several([abs(value) for value in self.values])

    def __bool__(self) -> bool:
        return _common([value != 0 for value in self.values])

    def __repr__(self) -> NoReturn:
        raise ArithmeticError("expected one number, found one for each of several sizes")


def several(values: Sequence[int]) -> Number:
    """A number that has these values, each at its size."""
    return values[0] if values.count(values[0]) == len(values) else Several(values)


def _common(answers: Sequence[bool]) -> bool:
    if answers.count(answers[0]) < len(answers):
        raise DiffersError(answers)
    return answers[0]


def _by_size(work: Callable[[Any, Any], Any], result: Callable[[Any], Any], *, turned: bool = False) -> Any:
    """The method of an operator: `result` of what it gives at each size."""

    def method(number: Several, other: Any) -> Any:
        if type(other) is Several:
            return result([*map(work, number.values, other.values)])
        if type(other) is not int:
            return NotImplemented
        pair = (repeat(other), number.values) if turned else (number.values, repeat(other))
        return result([*map(work, *pair)])

    return method


for _name in ("add", "sub", "mul", "floordiv", "mod", "pow"):
    setattr(Several, f"__{_name}__", _by_size(getattr(operator, _name), several))
    setattr(Several, f"__r{_name}__", _by_size(getattr(operator, _name), several, turned=True))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Several, f"__{_name}__", _by_size(getattr(operator, _name), _common))
