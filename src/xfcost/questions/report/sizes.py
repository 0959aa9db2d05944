"""The costs of a system at many N, each counted; and the closed forms of its totals, with the N at which they hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from math import isqrt
from typing import Any, Final, NamedTuple

from xfcost.comparing.sweep import TOKENS, SizedSystem
from xfcost.counting.forward import count
from xfcost.counting.system import System, mixing_macs
from xfcost.formulas.exact_form import CHECKS, ExactForms, Form
from xfcost.formulas.letters import lettered
from xfcost.ledger.errors import XfcostError
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.operation import KINDS, Operation
from xfcost.spec.inputs import image_size_for_grid
from xfcost.spec.placement import place
from xfcost.spec.run import Run

# Of every operation, over all its blocks.
ROW_QUANTITIES: Final = ("params", "macs", "attention_bytes")
# Of the whole.
TOTALS: Final = ("macs", "mixing_macs", "attention_bytes", "cache_bytes", "params")
# The path of an operation, or a word instead of it, and the quantity.
Key = tuple[str, str]
TOTAL: Final = "total"
BY_KIND: Final = ("macs", "params")
_WHOLE: Final = frozenset((TOTAL, *KINDS))
# 1 at an N where the operations are those of the own N, else 0.
OWN_OPERATIONS: Final[Key] = (TOTAL, "own_operations")


class TotalForm(NamedTuple):
    """A total in letters."""

    text: str
    first: int
    """The first place in the list of N from which on, up to the last, it gives what is counted."""
    last: int


class SizeFigures(NamedTuple):
    """A system's costs at the N of a list."""

    steps: int
    """N over s², the time steps of a video, where N is a square grid of side s; else 0."""
    figures: dict[Key, list[int | None]]
    """At every N; None where the system can't have it, or, of an operation, has other operations there."""
    forms: dict[str, TotalForm]
    """Of the totals that follow one at the N of the page and at two further ones or more beside it."""


def counted_sizes(system: System, run: Run, tokens: Sequence[int], own: Ledger, place: int) -> SizeFigures:
    """The costs of `system` at every N of `tokens`, and the closed forms of its totals at the one at `place`.

    Operations are those of `own`, its ledger. Where other ones run at an N (a window that holds all tokens), the totals
    are counted there, and the operations have no figures.

    Raises:
        XfcostError: its inputs have no N.
    """
    steps = system.time_steps() if system.axes(run) > 1 else 0
    sized, of_spec = SizedSystem(system, run), system.loaded is not None
    # counting some modules takes too long; their costs say so
    ledgers, _ = sized.ledgers(n for n in tokens if of_spec or sized.costs(n))
    counted = [_figures(ledgers.get(n), own) for n in tokens]
    keys = dict.fromkeys(key for found in counted for key in found or ())
    figures = {key: [_value(key, found) for found in counted] for key in keys}
    return SizeFigures(steps, figures, dict(_closed_forms(system, run, tokens, steps, figures, place)))


def _value(key: Key, figures: Mapping[Key, int | None] | None) -> int | None:
    """A figure; None where the system, or its operation, is not there. An operation's zeros are not listed."""
    if figures is None or (key[0] not in _WHOLE and not figures[OWN_OPERATIONS]):
        return None
    return figures.get(key, 0)


def _closed_forms(
    system: System, run: Run, tokens: Sequence[int], steps: int, figures: Mapping[Key, Sequence[int | None]], place: int
) -> Iterator[tuple[str, TotalForm]]:
    """Read from the formulas of a spec, evaluated in a letter at one N, and compared with the counts at the others."""
    forms, letters = ExactForms(), [isqrt(n // steps) if steps else n for n in tokens]
    if (ledger := _lettered_ledger(system, run, letters[place], steps, forms)) is None:
        return
    totals = _figures(ledger, ledger) or {}
    known: list[dict[int, int]] = [{} for _ in tokens]  # what parts of the forms give at each N
    for name in TOTALS:
        form = forms.of(totals[TOTAL, name] or 0)
        if not any(product for product, _ in form):
            continue
        given = [_value_of(forms, form, *at) for at in zip(letters, known, strict=True)]
        holds = [value == figure for value, figure in zip(given, figures[TOTAL, name], strict=True)]
        before, after = (len(list(takewhile(bool, side))) for side in (holds[place::-1], holds[place:]))
        if before + after - 2 >= CHECKS:
            text = forms.text(form, "s" if steps else "N", square="N" if steps else None)
            yield name, TotalForm(text, place - before + 1, place + after - 1)


def _value_of(forms: ExactForms, form: Form, letter: int, known: dict[int, int]) -> int | None:
    """What a form gives; None where it divides by 0, and stands for nothing."""
    try:
        return forms.value(form, letter, known)
    except ZeroDivisionError:
        return None


def _lettered_ledger(system: System, run: Run, size: int, steps: int, forms: ExactForms) -> Ledger | None:
    if (loaded := system.loaded) is None:
        return None
    letter = lettered(size, "N")
    forms.add_letter(letter)
    try:
        at = TOKENS.run(run, letter)
        if steps:
            height, width = image_size_for_grid(loaded, run, (letter, letter))
            at = run._replace(tokens=None, size=(height, width))
        return count(place(loaded, at), orders=False)
    except XfcostError:
        return None


def _figures(ledger: Ledger | None, own: Ledger) -> dict[Key, int | None] | None:
    """The totals, and every figure of every operation where these are those of `own`."""
    if ledger is None:
        return None
    found: dict[Key, Any] = {(TOTAL, name): 0 for name in TOTALS}
    found |= {(kind, name): 0 for kind in KINDS for name in BY_KIND}
    found[OWN_OPERATIONS] = alike = int(_operations(ledger) == _operations(own))
    for row in ledger.rows:
        figures = row_figures(row, ledger.bytes_per_element)
        for name, value in (*figures.items(), ("cache_bytes", ledger.cached_bytes_of(row))):
            found[TOTAL, name] = found[TOTAL, name] + value
        for name in BY_KIND:
            found[row.mixing, name] = found[row.mixing, name] + figures[name]
        if alike:
            found |= {(row.path, name): value for name, value in figures.items() if value}
    found[TOTAL, "mixing_macs"] = mixing_macs(ledger)
    return found


def _operations(ledger: Ledger) -> dict[str, str]:
    return {row.path: row.mixing for row in ledger.rows}


def row_figures(row: Operation, bytes_per_element: int) -> dict[str, int]:
    """What an operation costs in all its blocks."""
    saved = row.matrix.kept(bytes_per_element) if row.matrix is not None else 0
    return {"params": row.params * row.times, "macs": row.macs * row.times, "attention_bytes": saved * row.times}
