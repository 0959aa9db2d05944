"""Which rows of a file are meant: by system, size, run and place. What is left out is said."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from xfcost.counting.measured.series import at, axis_of_rows
from xfcost.counting.sweep import PIXELS, TOKENS, Axis
from xfcost.ledger.errors import UsageError, near_names, nearest, printable
from xfcost.ledger.measurements import Measurement

# Words of a message about what a file has.
_MOST_NAMED: Final = 8

# Option -> its word in a row.
FIELDS: Final[Mapping[str, Callable[[Measurement], str]]] = {
    "machine": lambda row: row.machine.host,
    "device": lambda row: row.configuration.device,
    "threads": lambda row: str(row.configuration.threads),
    "dtype": lambda row: row.configuration.dtype,
    "batch": lambda row: str(row.configuration.batch),
    "attention": lambda row: row.configuration.attention,
    "mode": lambda row: row.configuration.mode,
    "compile": lambda row: "compiled" if row.configuration.compiled else "not compiled",
    "composed": lambda row: "composed" if row.configuration.composed else "not composed",
}


class Choice(NamedTuple):
    """The rows that are asked for."""

    systems: tuple[str, ...] = ()
    """Names of systems, presets or files as they were measured, or patterns; () for all."""
    fields: Mapping[str, tuple[str, ...]] = {}
    """Option -> the words that are taken."""
    axis: Axis | None = None
    span: tuple[int, int] | None = None
    """From where to where on that axis."""


class Chosen(NamedTuple):
    """The rows that a choice takes, and what it leaves out."""

    rows: list[Measurement]
    axis: Axis
    left_out: list[str]


def chosen(rows: Sequence[Measurement], choice: Choice, file: str) -> Chosen:
    """The rows that `choice` takes.

    Raises:
        UsageError: no row is left by one of the options.
    """
    texts: list[str] = []
    kept = list(rows)
    if choice.systems:
        for name in choice.systems:
            if not any(_is_called(row, name) for row in rows):
                raise UsageError(f"{file}: has no row of {printable(name)}; {_nearest(name, rows)}")
        kept = _kept(kept, lambda row: any(_is_called(row, name) for name in choice.systems), _system_of, texts)
    for option, words in choice.fields.items():
        read = FIELDS[option]
        if not any(_is_one_of(option, read(row), words) for row in kept):
            raise UsageError(
                f"--{option} {printable(','.join(words))}: {file} has no such row; its rows have {_listed(kept, read)}"
            )
        kept = _kept(kept, lambda row, o=option, w=words, r=read: _is_one_of(o, r(row), w), read, texts)  # type: ignore[misc]
    axis = choice.axis or axis_of_rows(kept)
    kept = _on_axis(kept, axis, texts, file)
    return Chosen(_in_span(kept, axis, choice.span, texts, file), axis, texts)


def _nearest(name: str, rows: Sequence[Measurement]) -> str:
    """Systems or files of a similar name, or else all systems."""
    systems = {row.configuration.system for row in rows}
    known = systems | {row.configuration.target for row in rows}
    return nearest(name, known if near_names(name, known) else systems)


def _is_called(row: Measurement, name: str) -> bool:
    words = (row.configuration.system, row.configuration.target)
    return name in words or any(fnmatch.fnmatchcase(word, name) for word in words)


def _is_one_of(option: str, word: str, words: Sequence[str]) -> bool:
    """Is it one of the words? `cuda` is every cuda device."""
    return word in words or (option == "device" and word.partition(":")[0] in words)


def _system_of(row: Measurement) -> str:
    return row.configuration.system


def _kept(
    rows: Sequence[Measurement],
    is_kept: Callable[[Measurement], bool],
    read: Callable[[Measurement], str],
    texts: list[str],
) -> list[Measurement]:
    """The rows that are kept; of the others a text."""
    others = [row for row in rows if not is_kept(row)]
    if others:
        texts.append(f"{_rows_text(len(others))} of {_listed(others, read)}")
    return [row for row in rows if is_kept(row)]


def _on_axis(rows: Sequence[Measurement], axis: Axis, texts: list[str], file: str) -> list[Measurement]:
    """The rows that have a place on the axis.

    Raises:
        UsageError: none has.
    """
    if axis is TOKENS:
        known = [row for row in rows if row.configuration.N]
        if not known:
            raise UsageError(f"--N: {file} has no such row whose tokens are known; give --size LOW:HIGH")
        if len(known) < len(rows):
            texts.append(f"{_rows_text(len(rows) - len(known))} of modules on images, whose tokens are not known")
        return known
    square = [row for row in rows if axis_of_rows([row]) is PIXELS]
    if not square:
        raise UsageError(f"--size: {file} has no such row of a square image; leave --size out, or give --N LOW:HIGH")
    if len(square) < len(rows):
        texts.append(f"{_rows_text(len(rows) - len(square))} without the side of a square image")
    return square


def _in_span(
    rows: Sequence[Measurement], axis: Axis, span: tuple[int, int] | None, texts: list[str], file: str
) -> list[Measurement]:
    if span is None:
        return list(rows)
    inside = [row for row in rows if span[0] <= at(row, axis) <= span[1]]
    if not inside:
        xs = sorted({at(row, axis) for row in rows})
        given = f"{span[0]}:{span[1]}" if span[0] < span[1] else f"{span[0]}"
        raise UsageError(f"{axis.option} {given}: {file} has rows at {axis.word} = {_named([f'{x:,}' for x in xs])}")
    if len(inside) < len(rows):
        texts.append(f"{_rows_text(len(rows) - len(inside))} outside {axis.word} = {span[0]:,} to {span[1]:,}")
    return inside


def _rows_text(number: int) -> str:
    return f"{number:,} row{'s' if number > 1 else ''}"


def _listed(rows: Sequence[Measurement], read: Callable[[Measurement], str]) -> str:
    return _named(list(dict.fromkeys(read(row) for row in rows)))


def _named(words: Sequence[str]) -> str:
    more = [f"and {len(words) - _MOST_NAMED} more"] if len(words) > _MOST_NAMED else []
    return ", ".join([*(printable(word) for word in words[:_MOST_NAMED]), *more])
