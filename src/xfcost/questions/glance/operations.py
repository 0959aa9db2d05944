"""The operations of some systems, each named operation once: in which systems and stages, with how many parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from xfcost.comparing.comparison import distinct
from xfcost.ledger import notebook
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.metadata import Metadata
from xfcost.ledger.operation import Mixing, Operation

MIXING_FIRST: Final[tuple[Mixing, ...]] = ("global", "local", "per-token", "unknown")


class Occurrence(msgspec.Struct, frozen=True, kw_only=True):
    """An operation in one system."""

    system: str
    stages: tuple[str, ...]
    times: int
    """How many blocks of the whole model have it."""
    params: int
    macs: int


class GlanceEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One named operation; two of one title but another kind or order are two."""

    title: str
    mixing: Mixing
    order: str | None
    content_dependent: bool
    reads: str | None
    occurrences: tuple[Occurrence, ...]

    @property
    def mixes(self) -> bool:
        """Is it known to mix tokens?"""
        return self.mixing in {"local", "global"}


class Glance(notebook.Reported, msgspec.Struct, frozen=True, kw_only=True):
    """Every operation of some systems once, and what each system has of parameters."""

    systems: tuple[str, ...]
    inputs: dict[str, Metadata]
    """System -> its input: tokens, image, batch."""
    entries: tuple[GlanceEntry, ...]
    moves: tuple[str, ...]
    """Operations that only move or choose data: no arithmetic, no parameters."""
    params: dict[str, int]
    """System -> all its parameters."""
    mixers: dict[str, tuple[str, ...]] = {}
    """System -> the names of what mixes tokens in its blocks (`W-MSA`, `SW-MSA`)."""
    notes: tuple[str, ...] = ()
    """How the kinds of modules were found, and which are not known."""

    def mixing_params(self) -> dict[str, int]:
        """System -> parameters of its mixing operations."""
        found = dict.fromkeys(self.systems, 0)
        for entry in self.entries:
            for one in entry.occurrences:
                found[one.system] += one.params if entry.mixes else 0
        return found


def glance(ledgers: Sequence[Ledger]) -> Glance:
    """The operations of some counted systems."""
    names = distinct(ledger.metadata.name for ledger in ledgers)
    groups: dict[tuple[Mixing, str, str | None], dict[str, list[Operation]]] = {}
    moves: dict[str, None] = {}
    mixers: dict[str, tuple[str, ...]] = {}
    for name, ledger in zip(names, ledgers, strict=True):
        # a shared table that an operation reads to mix tokens is that operation's weights: T5's position biases and
        # Linformer's projections can be shared by all layers
        readers = {row.shared: row.mixing for row in ledger.rows if row.shared is not None and row.mixes}
        tables = {row.path: readers[row.shared] for row in ledger.rows if row.shared in readers and row.params}
        labels = (
            row.block.rpartition(" · ")[2].partition(" #")[0] for row in ledger.rows if row.in_block and row.mixes
        )
        if found_mixers := tuple(dict.fromkeys(mixer for label in labels for mixer in label.split(" + "))):
            mixers[name] = found_mixers
        for row in ledger.rows:
            if row.only_moves:
                moves[row.title] = None
                continue
            mixing = tables.get(row.path, row.mixing)
            groups.setdefault((mixing, row.title, row.order), {}).setdefault(name, []).append(row)
    entries = [_entry(*key, found) for key, found in groups.items()]
    entries.sort(key=lambda entry: MIXING_FIRST.index(entry.mixing))
    return Glance(
        systems=tuple(names),
        inputs={name: ledger.metadata for name, ledger in zip(names, ledgers, strict=True)},
        entries=tuple(entries),
        moves=tuple(moves),
        params={name: ledger.total("params") or 0 for name, ledger in zip(names, ledgers, strict=True)},
        mixers=mixers,
        notes=tuple(
            f"{name}: {note}"
            for name, ledger in zip(names, ledgers, strict=True)
            if ledger.metadata.inputs is not None
            for note in ledger.metadata.notes
        ),
    )


def _entry(mixing: Mixing, title: str, order: str | None, found: dict[str, list[Operation]]) -> GlanceEntry:
    first = next(iter(found.values()))[0]
    occurrences = []
    for system, rows in found.items():
        params = sum(row.times_over("params") or 0 for row in rows)
        macs = sum(row.times_over("macs") or 0 for row in rows)
        stages = tuple(dict.fromkeys(row.stage for row in rows))
        times = sum(row.times for row in rows)
        occurrences.append(Occurrence(system=system, stages=stages, times=times, params=params, macs=macs))
    return GlanceEntry(
        title=title,
        mixing=mixing,
        order=order,
        content_dependent=first.content_dependent,
        reads=first.reads,
        occurrences=tuple(occurrences),
    )
