"""The hidden width of a feed-forward network: `hidden`, or `ratio` times the input width."""

from __future__ import annotations

from typing import Annotated

import msgspec

from xfcost.ledger.errors import ComponentError
from xfcost.ledger.number import Number

Ratio = Annotated[float, msgspec.Meta(gt=0, le=1024)]


def hidden_width(hidden: int | None, ratio: float, width: Number) -> Number:
    """`hidden`, else ratio·width in decimal arithmetic: 1.1 is eleven tenths, not the nearest float.

    An int where the product is whole.
    """
    if hidden is not None:
        return hidden
    integer = int(ratio)
    if integer == ratio:
        return integer * width
    from fractions import Fraction

    exact = Fraction(str(ratio))
    product = exact.numerator * width
    return product / exact.denominator if product % exact.denominator else product // exact.denominator


def check_hidden(hidden: int | None, ratio: float, width: Number) -> None:
    """Raise ComponentError where `ratio` gives no whole width."""
    inner = hidden_width(hidden, ratio, width)
    if not (isinstance(inner, int) and inner > 0):
        raise ComponentError("ratio", f"{ratio}·{width} is not a whole width; give `hidden` instead")
