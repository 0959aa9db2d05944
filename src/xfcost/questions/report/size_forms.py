"""The costs of a system at many N, and closed forms that give exactly these.

Every N is counted. A form is read from the same formulas, evaluated in a letter (`formulas/exact_form.py`), and stands
for the N at which it gives the counted integer; where none does, the integer itself stands. So a reader who evaluates
them at one of these N gets what was counted there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isqrt
from typing import Any, Final, NamedTuple

from xfcost.counting.forward import count
from xfcost.counting.sweep import TOKENS, SizedSystem
from xfcost.counting.system import System, mixing_macs
from xfcost.formulas.exact_form import ExactForms, Form, constant
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


class Piece(NamedTuple):
    """The N at which one form holds: from this place in the list of N on, to the next piece."""

    first: int
    form: Form | None
    """None where the system can't have these N, or, of an operation, has other operations there."""


class SizeForms(NamedTuple):
    """A system's costs at the N of a list."""

    letter: str
    """`N`, or `s`, the side of a square grid."""
    letters: tuple[int, ...]
    """The letter at every N."""
    steps: int
    """N over s², the time steps of a video; 0 where the letter is N."""
    forms: ExactForms
    pieces: dict[Key, tuple[Piece, ...]]

    def value(self, key: Key, place: int) -> int | None:
        """The figure at the N at `place`; None where the system can't have it."""
        form = self._piece(key, place).form
        return None if form is None else self.forms.value(form, self.letters[place], {})

    def form_text(self, key: Key, place: int) -> str | None:
        """The form that holds at `place`, in letters; None where it is a number."""
        form = self._piece(key, place).form
        if form is None or not any(product for product, _ in form):
            return None
        return self.forms.text(form, self.letter, square="N" if self.letter == "s" else None)

    def held(self, key: Key, place: int) -> tuple[int, int]:
        """The first and the last place at which the form of `place` holds."""
        pieces, piece = self.pieces[key], self._piece(key, place)
        number = pieces.index(piece)
        return piece.first, pieces[number + 1].first - 1 if number + 1 < len(pieces) else len(self.letters) - 1

    def _piece(self, key: Key, place: int) -> Piece:
        return next(piece for piece in reversed(self.pieces[key]) if piece.first <= place)


def size_forms(system: System, run: Run, tokens: Sequence[int], own: Ledger) -> SizeForms:
    """The costs of `system` at every N of `tokens`, in as few forms as give them.

    Operations are those of `own`, its ledger. Where other ones run at an N (a window that holds all tokens), the totals
    are counted there, and the operations have no figures.

    Raises:
        XfcostError: its inputs have no N.
    """
    steps = system.time_steps() if system.axes(run) > 1 else 0
    letters = tuple(isqrt(n // steps) if steps else n for n in tokens)
    sized, of_spec = SizedSystem(system, run), system.loaded is not None
    # counting some modules takes too long; their costs say so
    possible = ([n] if of_spec or sized.costs(n) else [] for n in tokens)
    counted = [_figures(next(iter(sized.ledgers(sizes)[0].values()), None), own) for sizes in possible]
    read = _Forms(system, run, steps)
    for n in (own.metadata.grid_tokens, *tokens[-1:]):
        read.at(n)
    keys = dict.fromkeys(key for figures in counted for key in figures or ())
    pieces: dict[Key, list[Piece]] = {key: [] for key in keys}
    for number, (n, letter, figures) in enumerate(zip(tokens, letters, counted, strict=True)):
        parts: dict[int, int] = {}
        for key, found in pieces.items():
            value, last = _value(key, figures), found[-1].form if found else None
            given = None if last is None or value is None else read.value(last, letter, parts)
            if not found or (last is None) != (value is None) or given != value:
                found.append(Piece(number, None if value is None else read.form(key, n, letter, parts, value)))
    for key, found in pieces.items():
        ends = [*(piece.first for piece in found[1:]), len(counted)]
        for number, (piece, end) in enumerate(zip(found, ends, strict=True)):
            value = _value(key, counted[piece.first])
            if end - piece.first == 1 and value is not None:  # a form that holds at a single N is no form
                found[number] = Piece(piece.first, constant(value))
    all_pieces = {key: tuple(found) for key, found in pieces.items()}
    return SizeForms("s" if steps else "N", letters, steps, read.forms, all_pieces)


def _value(key: Key, figures: Mapping[Key, int | None] | None) -> int | None:
    """A figure; None where the system, or its operation, is not there. An operation's zeros are not listed."""
    if figures is None or (key[0] not in _WHOLE and not figures[OWN_OPERATIONS]):
        return None
    return figures.get(key, 0)


class _Forms:
    """The forms of a system's figures, read at some of its N; all share their parts."""

    def __init__(self, system: System, run: Run, steps: int) -> None:
        self.forms = ExactForms()
        self._system, self._run, self._steps = system, run, steps
        self._read: dict[int, dict[Key, Form]] = {}

    def form(self, key: Key, n: int, letter: int, parts: dict[int, int], value: int) -> Form:
        """A form that gives `value` at N = `n`: one that was read at another N, or here; else `value` itself."""
        for figures in [*self._read.values(), self.at(n)]:
            form = figures.get(key, ())
            if self.value(form, letter, parts) == value:
                return form
        return constant(value)

    def value(self, form: Form, letter: int, parts: dict[int, int]) -> int | None:
        """What a form gives at a letter; None where it divides by 0 there, and stands for nothing."""
        try:
            return self.forms.value(form, letter, parts)
        except ZeroDivisionError:
            return None

    def at(self, n: int) -> dict[Key, Form]:
        """The forms of all figures, read at N = `n`; nothing where that is no size for letters."""
        if n not in self._read:
            ledger = self._lettered_ledger(n)
            figures = {} if ledger is None else _figures(ledger, ledger) or {}
            self._read[n] = {key: self.forms.of(number) for key, number in figures.items() if number is not None}
        return self._read[n]

    def _lettered_ledger(self, n: int) -> Ledger | None:
        if (loaded := self._system.loaded) is None:
            return None
        letter = lettered(isqrt(n // self._steps) if self._steps else n, "N")
        if self._steps and self._steps * letter * letter != n:
            return None
        self.forms.add_letter(letter)
        try:
            at = TOKENS.run(self._run, letter)
            if self._steps:
                height, width = image_size_for_grid(loaded, self._run, (letter, letter))
                at = self._run._replace(tokens=None, size=(height, width))
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
