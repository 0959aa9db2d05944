"""Closed form of a module -> the lines on its costs in N."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.text import Text

from xfcost.ledger.ledger import Ledger
from xfcost.ledger.ran import ClosedForm

# Other remainders that are listed; json has all.
_MOST_LISTED: Final = 3


def closed_form_texts(ledger: Ledger, at_least: str) -> Iterator[Text]:
    """The MACs as a polynomial in N, where it holds, how they grow; or why there is no polynomial.

    `at_least` stands before it where operations are not counted.
    """
    form = None if ledger.module is None else ledger.module.closed_form
    if form is None:
        return
    of = "N" if form.letter == "N" else "P = H·W"
    if form.macs is None:
        yield Text(f"in {of}: no closed form; {form.refused}", style="dim")
        return
    counted = ", ".join(f"{size:,}" for size in form.sizes)
    yield Text.assemble(
        (f"in {of}: {at_least}{form.macs} MACs", "bold"), _where(form), f"   counted at {form.letter} = {counted}"
    )
    if growth := _growth(form):
        yield Text(growth)


def _where(form: ClosedForm) -> str:
    if form.period == 1:
        return ""
    of = f"{form.counted_in} mod {form.period}"
    others = [f"{macs} where it is {remainder}" for remainder, macs in form.others.items()]
    rest = "; " + ", ".join(others) if 0 < len(others) <= _MOST_LISTED else ""
    return f" where {of} = {form.remainder}{rest}"


def _growth(form: ClosedForm) -> str:
    words = {"macs": "MACs", "attention_bytes": "attention memory"}
    known = {word: form.growth[name] for name, word in words.items() if form.growth.get(name) is not None}
    if not known:
        return ""
    told = ", ".join(f"{word} {exponent:.2f}" for word, exponent in known.items())
    more = form.N * (form.growth["factor"] or 1)
    return f"growth, e of cost ~ {form.letter}^e between {form.letter} = {form.N:,} and {more:,.0f}: {told}"
