"""Written polynomials read back."""

import re
from fractions import Fraction
from math import isqrt

_RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹"


def read(text: str, N: int) -> Fraction:
    """The number that a written polynomial is at N."""
    result = Fraction(0)
    for term in text.replace(" - ", " + -").split(" + "):
        factor, _, letters = term.rpartition("·") if "·" in term or "N" in term else (term, "", "")
        whole = re.match(f"N([{_RAISED}]*)", letters)
        raised = "".join(str(_RAISED.index(digit)) for digit in whole[1]) if whole else "0"
        result += Fraction(factor or 1) * N ** int(raised or 1) * (isqrt(N) if "√" in letters else 1)
    return result
