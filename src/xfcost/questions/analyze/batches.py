"""`analyze --batch 1,2,4,8`: one model at several batches, a line each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from xfcost.comparing.quantities import figure_text
from xfcost.ledger import units
from xfcost.ledger.errors import UsageError, shown
from xfcost.ledger.json_objects import json_text, ledger_object
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.read_numbers import whole
from xfcost.parts.serving.result import output_word
from xfcost.parts.serving.text import included_texts
from xfcost.report.accounts import run_texts
from xfcost.report.document import DataTable, Document, Gap, Part, TableColumn, notes
from xfcost.report.input_description import default_notes

_MOST_BATCHES: Final = 100
# Columns that make room for those of devices.
_OF_COUNTS: Final = ("macs", "flops", "attention_peak_bytes")


class _Column(NamedTuple):
    """A figure of a run."""

    head: str
    key: str
    """In CSV."""
    of: Callable[[Ledger], Any]
    """Its raw value; None where the run has none."""
    text: Callable[[Any], str] | None = None
    """How it is written; None: as the quantity of its key."""


def _on(of: Callable[[Any], Any]) -> Callable[[Ledger], Any]:
    """A figure of the run on devices; None without, and of a time where it does not fit."""
    return lambda ledger: None if ledger.on is None else of(ledger.on)


def _time(of: Callable[[Any], Any]) -> Callable[[Ledger], Any]:
    return lambda ledger: None if ledger.on is None or ledger.no_time is not None else of(ledger.on)


def _step(name: str) -> Callable[[Ledger], Any]:
    return lambda ledger: None if ledger.training is None else getattr(ledger.training.step, name)


def _rounds(ledger: Ledger, name: str) -> Any:
    return None if ledger.speculation is None else getattr(ledger.speculation, name)


def _gain(name: str) -> Callable[[Ledger], Any]:
    """A figure of rounds with the accepted tokens that are given."""

    def of(ledger: Ledger) -> Any:
        one = ledger.speculation
        return None if one is None or one.accepted is None else getattr(one.with_accepted(one.accepted), name)

    return of


def _break_even(ledger: Ledger) -> float | None:
    """With how many accepted tokens rounds take as long as steps, where none are given."""
    even = None if _rounds(ledger, "accepted") is not None else _rounds(ledger, "break_even")
    return None if even is None or even > _rounds(ledger, "draft_tokens") else even


def _columns(ledgers: Sequence[Ledger]) -> Iterator[_Column]:
    """Those that some run has."""
    outputs = output_word(ledgers[0].metadata.mode)
    cache: Callable[[Ledger], Any] = lambda ledger: None if ledger.cache is None else ledger.cache.bytes  # noqa: E731
    memory: Callable[[Ledger], Any] = lambda ledger: ledger.on and (_rounds(ledger, "memory") or ledger.on.memory)  # noqa: E731
    fits: Callable[[Ledger], Any] = lambda ledger: (found := memory(ledger)) and found.fits  # noqa: E731
    every = (
        _Column("MACs", "macs", lambda ledger: ledger.total("macs")),
        _Column("FLOPs", "flops", lambda ledger: ledger.total("flops")),
        _Column("attention", "attention_peak_bytes", lambda one: one.attention_memory()["peak"] or None),
        _Column("cache", "cache_bytes", cache),
        _Column("FLOP/byte", "intensity", lambda one: one.step and one.step.intensity),
        _Column("saved", "kept_bytes", _step("kept_bytes")),
        _Column("step memory", "step_bytes", _step("total_bytes")),
        _Column("memory", "needed_bytes", lambda ledger: (found := memory(ledger)) and found.reserved),
        _Column("fits", "fits", fits, lambda fits: "yes" if fits else "no"),
        _Column("lower bound", "least_seconds", _time(lambda on: on.seconds)),
        _Column("bound by", "bound", _on(lambda on: on.time.bound), lambda bound: bound.removesuffix("-bound")),
        _Column("estimate", "estimated_seconds", _time(lambda on: on.estimate)),
        _Column(f"{outputs}/s", "most_outputs_per_second", _time(lambda on: on.outputs / on.seconds)),
        _Column("with draft", "draft_outputs_per_second", _gain("tokens_per_second"), units.count),
        _Column("speed-up", "draft_speed_up", _gain("speed_up"), lambda ratio: units.ratio(ratio, 3)),
        _Column("even at", "break_even_accepted", _break_even, lambda accepted: f"{accepted:.2f} accepted"),
        _Column("time", "seconds", lambda ledger: ledger.timing and ledger.timing.seconds),
    )
    known = (column for column in every if any(column.of(ledger) is not None for ledger in ledgers))
    yield from (column for column in known if ledgers[0].on is None or column.key not in _OF_COUNTS)


def read_batches(given: str) -> list[int]:
    """`1,2,4,8` -> its numbers, in order.

    Raises:
        UsageError: one is no batch.
    """
    found = [whole(one) for one in given.split(",")]
    if any(one is None or one < 1 for one in found) or len(found) > _MOST_BATCHES:
        raise UsageError(f"--batch {shown(given)}: expected up to {_MOST_BATCHES} whole numbers, as in 1,2,4,8")
    return [one for one in found if one is not None]


def document(ledgers: Sequence[Ledger], *, verbose: bool = False) -> Document:
    """The run, and a line per batch."""
    return Document(
        parts=lambda: _parts(ledgers, verbose=verbose),
        records=lambda: [
            {"batch": ledger.metadata.batch} | {column.key: column.of(ledger) for column in _columns(ledgers)}
            for ledger in ledgers
        ],
        json=lambda: json_text({"batches": [ledger_object(ledger) for ledger in ledgers]}),
    )


def _text(column: _Column, value: Any) -> str:
    return figure_text(column.key, value) if value is None or column.text is None else column.text(value)


def _parts(ledgers: Sequence[Ledger], *, verbose: bool) -> Iterator[Part]:
    columns, first = list(_columns(ledgers)), ledgers[0]
    heads = [TableColumn(one.head, right=one.key not in ("fits", "bound")) for one in columns]
    rows = [
        [
            f"{ledger.metadata.batch:,}",
            *(_text(column, column.of(ledger)) for column in columns),
        ]
        for ledger in ledgers
    ]
    batches = ", ".join(f"{ledger.metadata.batch:,}" for ledger in ledgers)
    for text in run_texts(first.metadata):
        told = [one.replace(f"batch {first.metadata.batch:,} ", f"batch {batches} ") for one in text.texts]
        yield text._replace(texts=told)
    yield from (Gap(), DataTable([TableColumn("batch", right=True), *heads], rows), Gap())
    yield from (text for text in included_texts(first) if not text.plain.startswith(("memory", "bound")))
    yield from notes(default_notes([first.metadata]), verbose=verbose)
    yield from notes(first.metadata.notes, verbose=verbose)
