"""Operations at a glance: every named operation of some systems once, by mixing kind; and where the parameters live."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from xfcost.counting.comparison import distinct
from xfcost.ledger import units
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.metadata import Metadata
from xfcost.ledger.operation import Mixing, Operation
from xfcost.report.inputs import circumstances, image_cell, input_object, input_warnings
from xfcost.report.style import TERMINAL, WORDS, letters_text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from xfcost.report.output import Format

# Mixing first: it is what the page is about.
_ORDER: Final[tuple[Mixing, ...]] = ("global", "local", "per-token")
_MEANING: Final[dict[Mixing, str]] = {
    "global": "a token reads a set that grows with N",
    "local": "a token reads a set that does not grow with N",
    "per-token": "a token reads itself alone; merging and pooling make new tokens",
}


class Occurrence(msgspec.Struct, frozen=True, kw_only=True):
    """An operation in one system."""

    system: str
    stages: tuple[str, ...]
    times: int
    """How often it stands in the whole model."""
    params: int
    macs: int


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One named operation; two of one title but another kind or order are two."""

    title: str
    mixing: Mixing
    order: str | None
    content_dependent: bool
    reads: str | None
    occurrences: tuple[Occurrence, ...]


class Glance(msgspec.Struct, frozen=True, kw_only=True):
    """The page."""

    systems: tuple[str, ...]
    inputs: dict[str, Metadata]
    """System -> what it was counted for: tokens, image, batch."""
    entries: tuple[Entry, ...]
    moves: tuple[str, ...]
    """Operations that only move or choose data: no arithmetic, no parameters."""
    params: dict[str, int]
    """System -> all its parameters."""
    sentence: str
    """Where the parameters live, as the counts have it."""


def glance(ledgers: Sequence[Ledger]) -> Glance:
    """The page of some counted systems."""
    names = distinct(ledger.metadata.name for ledger in ledgers)
    groups: dict[tuple[Mixing, str, str | None], dict[str, list[Operation]]] = {}
    moves: dict[str, None] = {}
    for name, ledger in zip(names, ledgers, strict=True):
        for row in ledger.rows:
            if row.only_moves:
                moves[row.title] = None
                continue
            groups.setdefault((row.mixing, row.title, row.order), {}).setdefault(name, []).append(row)
    entries = [_entry(*key, found) for key, found in groups.items()]
    entries.sort(key=lambda entry: _ORDER.index(entry.mixing))
    return Glance(
        systems=tuple(names),
        inputs={name: ledger.metadata for name, ledger in zip(names, ledgers, strict=True)},
        entries=tuple(entries),
        moves=tuple(moves),
        params={name: ledger.total("params") or 0 for name, ledger in zip(names, ledgers, strict=True)},
        sentence=parameter_sentence(dict(zip(names, ledgers, strict=True))),
    )


def _entry(mixing: Mixing, title: str, order: str | None, found: dict[str, list[Operation]]) -> Entry:
    first = next(iter(found.values()))[0]
    occurrences = []
    for system, rows in found.items():
        params = sum(row.times_over("params") or 0 for row in rows)
        macs = sum(row.times_over("macs") or 0 for row in rows)
        stages = tuple(dict.fromkeys(row.stage for row in rows))
        times = sum(row.times for row in rows)
        occurrences.append(Occurrence(system=system, stages=stages, times=times, params=params, macs=macs))
    return Entry(
        title=title,
        mixing=mixing,
        order=order,
        content_dependent=first.content_dependent,
        reads=first.reads,
        occurrences=tuple(occurrences),
    )


def parameter_sentence(ledgers: dict[str, Ledger]) -> str:
    """Do mixing operations hold parameters here? As the counts of these systems say, exceptions and all."""
    rows = [(name, row) for name, ledger in ledgers.items() for row in ledger.rows]
    mixers = [(name, row) for name, row in rows if row.mixes and not row.only_moves]
    holders = [(name, row) for name, row in mixers if row.params]
    if not mixers:
        return "No operation here mixes tokens."
    if not holders:
        return f"Mixing operations hold no parameters: all {_shares(ledgers)} stand in per-token operations."
    titles = dict.fromkeys(row.title for _, row in holders)
    if len(titles) > len({row.title for _, row in mixers} - titles.keys()):
        return f"Here mixing operations do hold parameters ({_held(holders, ledgers)}), in: {', '.join(titles)}."
    exceptions = [
        f"the {_lowered(title)} ({_held([one for one in holders if one[1].title == title], ledgers)})"
        for title in titles
    ]
    number = "one exception" if len(exceptions) == 1 else f"{len(exceptions)} exceptions"
    return (
        f"Mixing operations hold no parameters, with {number}: {' and '.join(exceptions)}. "
        "All other parameters stand in per-token operations."
    )


def _lowered(title: str) -> str:
    """`Relative position bias` -> `relative position bias`; `QKᵀ` stays."""
    return title[:1].lower() + title[1:] if title[1:2].islower() else title


def _shares(ledgers: dict[str, Ledger]) -> str:
    return " and ".join(f"{units.exact(ledger.total('params'))} of {name}" for name, ledger in ledgers.items())


def _held(rows: Iterable[tuple[str, Operation]], ledgers: dict[str, Ledger]) -> str:
    """`Swin-T: 23,322 of 28,288,354, 0.1 %`."""
    held: dict[str, int] = {}
    for name, row in rows:
        held[name] = held.get(name, 0) + (row.times_over("params") or 0)
    parts = []
    for name, params in held.items():
        whole = ledgers[name].total("params") or 0
        parts.append(f"{name}: {params:,} of {whole:,}, {units.percent(params, whole)}")
    return "; ".join(parts)


def stages_text(stages: Sequence[str]) -> str:
    """`stage 1`, `stage 2`, `stage 3`, `head` -> `stages 1–3, head`."""
    runs: list[tuple[str, list[int]]] = []
    for stage in stages:
        words, _, number = stage.rpartition(" ")
        if not number.isdecimal():
            runs.append((stage, []))
        elif runs and runs[-1][0] == words and runs[-1][1] and runs[-1][1][-1] + 1 == int(number):
            runs[-1][1].append(int(number))
        else:
            runs.append((words, [int(number)]))
    return ", ".join(_run_text(words, numbers) for words, numbers in runs)


def _run_text(words: str, numbers: Sequence[int]) -> str:
    if not numbers:
        return words
    return f"{words} {numbers[0]}" if len(numbers) == 1 else f"{words}s {numbers[0]}–{numbers[-1]}"


def print_glance(page: Glance) -> None:
    """The page on the terminal."""
    from xfcost.report.console import show

    show(lambda width: render(page))


def render(page: Glance, _width: int = 0) -> RenderableType:
    """One table: a section per mixing kind, a line per operation and system; the sentence below."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    title = "Operations at a glance: " + ", ".join(page.systems)
    table = Table(title=title, title_style="bold", title_justify="left", box=None, pad_edge=False)
    table.add_column("Operation", no_wrap=True, header_style="bold")
    for name in ("Order", "System", "Where"):
        table.add_column(name, overflow="fold", header_style="bold")
    table.add_column("Parameters", justify="right", no_wrap=True, header_style="bold")
    for kind in _ORDER:
        entries = [entry for entry in page.entries if entry.mixing == kind]
        if not entries:
            continue
        style = TERMINAL[kind]
        table.add_row()
        table.add_row(Text(WORDS[kind].capitalize(), style=f"bold {style}"))
        for entry in entries:
            for number, one in enumerate(entry.occurrences):
                order = (entry.order or units.DASH).replace(" parameters", " params")
                head = (Text(entry.title, style=style), order) if number == 0 else ("", "")
                table.add_row(*head, one.system, stages_text(one.stages), units.count(one.params))
    kinds = [kind for kind in _ORDER if any(entry.mixing == kind for entry in page.entries)]
    notes = [Text(f"{WORDS[kind].capitalize()}: {_MEANING[kind]}.", style=TERMINAL[kind]) for kind in kinds]
    if page.moves:
        notes.append(Text("Data movement and masks, no arithmetic and no parameters: " + "; ".join(page.moves) + "."))
    if letters := letters_text(entry.order for entry in page.entries):
        notes.append(Text(f"Letters: {letters}."))
    totals = ", ".join(f"{name} {units.count(params)}" for name, params in page.params.items())
    notes += [Text(f"All parameters: {totals}."), Text(page.sentence, style="bold")]
    return Group(table, "", *map(Text, _input_lines(page)), *notes)


def _input_lines(page: Glance) -> list[str]:
    """A line per system: what it sees, and how it was run; then how the systems' inputs differ."""
    return [f"{name}: {circumstances(metadata)}" for name, metadata in page.inputs.items()] + [
        *input_warnings(page.inputs)
    ]


def records(page: Glance) -> list[dict[str, Any]]:
    """One plain dict per operation and system, as in the CSV."""
    result = []
    for entry in page.entries:
        for one in entry.occurrences:
            row: dict[str, Any] = {"operation": entry.title, "mixing": entry.mixing, "order": entry.order}
            row |= {"content_dependent": entry.content_dependent, "reads": entry.reads, "system": one.system}
            row |= {"N": page.inputs[one.system].grid_tokens, "image": image_cell(page.inputs[one.system])}
            row |= {"where": stages_text(one.stages), "times": one.times, "params": one.params, "macs": one.macs}
            result.append(row)
    return result


def _object(page: Glance) -> dict[str, Any]:
    """The object of `--format json`."""
    operations = []
    for entry in page.entries:
        row = msgspec.to_builtins(entry)
        operations.append({"operation": row.pop("title")} | row)
    mixing = dict.fromkeys(page.systems, 0)
    for entry in page.entries:
        for one in entry.occurrences:
            mixing[one.system] += one.params if entry.mixing != "per-token" else 0
    return {
        "systems": list(page.systems),
        "inputs": {name: input_object(metadata) for name, metadata in page.inputs.items()},
        "operations": operations,
        "data_movement": list(page.moves),
        "params": page.params,
        "mixing_params": mixing,
        "sentence": page.sentence,
    }


def glance_text(page: Glance, form: Format) -> str:
    """The page in a format."""
    from xfcost.ledger.objects import json_text
    from xfcost.report.export import to_csv, to_markup

    if form == "json":
        return json_text(_object(page))
    if form == "csv":
        return to_csv(records(page))
    if form == "table":
        from xfcost.report.console import plain_text

        return plain_text(lambda width: render(page, width))
    texts = [*_input_lines(page), page.sentence.replace("%", r"\%" if form == "latex" else "%")]
    return to_markup(_rounded(page), form) + "\n" + "\n\n".join(texts) + "\n"


def _rounded(page: Glance) -> list[dict[str, str]]:
    rows = []
    for entry in page.entries:
        found = {one.system: one for one in entry.occurrences}
        row = {"operation": entry.title, "type": WORDS[entry.mixing], "order": entry.order or units.DASH}
        for system in page.systems:
            one = found.get(system)
            row[f"{system}: where"] = stages_text(one.stages) if one else units.DASH
            row[f"{system}: params"] = units.count(one.params) if one else units.DASH
        rows.append(row)
    return rows
