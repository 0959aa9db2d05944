"""Operations at a glance: every named operation of some systems once, by mixing kind; and where the parameters are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final

import msgspec

from xfcost.ledger import units
from xfcost.ledger.json_objects import json_text
from xfcost.ledger.operation import Mixing
from xfcost.questions.glance.operations import MIXING_FIRST, Glance, GlanceEntry
from xfcost.report.document import Cell, DataTable, Document, Gap, Part, TableColumn, TextLines
from xfcost.report.input_description import circumstances, image_cell, input_object, input_warnings
from xfcost.report.style import TERMINAL, WORDS, letters_text, lowered

_MEANING: Final[dict[Mixing, str]] = {
    "global": "a token reads a set that grows with N",
    "local": "a token reads a set that does not grow with N",
    "per-token": "a token reads only itself; merging and pooling create new tokens",
    "unknown": "the mixing kind was not found",
}


def stages_text(stages: Sequence[str]) -> str:
    """`stage 1`, `stage 2`, `stage 3`, `head` -> `stages 1–3, head`."""

    def run(numbered: tuple[int, str]) -> tuple[str, int | None]:
        """The same for stages whose numbers follow one another."""
        words, _, number = numbered[1].rpartition(" ")
        return (words, int(number) - numbered[0]) if number.isdecimal() else (numbered[1], None)

    texts = []
    for (words, offset), several in groupby(enumerate(stages), key=run):
        first, *others = [stage.rpartition(" ")[2] for _, stage in several]
        numbers = f"s {first}–{others[-1]}" if others else f" {first}"
        texts.append(words if offset is None else f"{words}{numbers}")
    return ", ".join(texts)


def document(page: Glance) -> Document:
    """One table: a section per mixing kind, a line per operation and system; the sentence below."""
    return Document(
        parts=lambda: _parts(page), records=lambda: records(page), json=lambda: json_text(_object(page)), prose=True
    )


def _parts(page: Glance) -> Iterator[Part]:
    yield _sections(page)
    yield _rounded(page)
    inputs = [f"{name}: {circumstances(metadata)}" for name, metadata in page.inputs.items()]
    yield from (Gap(), TextLines([*inputs, *input_warnings(page.inputs)]))
    kinds = [kind for kind in MIXING_FIRST if any(entry.mixing == kind for entry in page.entries)]
    for kind in kinds:
        yield TextLines([f"{WORDS[kind].capitalize()}: {_MEANING[kind]}."], TERMINAL[kind])
    yield TextLines(list(_mixing_lines(page)))
    if page.moves:
        yield TextLines(["Data movement and masks, no arithmetic and no parameters: " + "; ".join(page.moves) + "."])
    if letters := letters_text(entry.order for entry in page.entries):
        yield TextLines([f"Letters: {letters}."])
    totals = ", ".join(f"{name} {units.count(params)}" for name, params in page.params.items())
    yield TextLines([f"All parameters: {totals}."])
    yield TextLines([parameter_sentence(page)], "bold")
    yield TextLines([f"note: {note}" for note in page.notes])


def _sections(page: Glance) -> DataTable:
    several = len(page.systems) > 1
    words = ("Order", "Reads", *(("System",) if several else ()), "Where")
    columns = [
        TableColumn("Operation"),
        *(TableColumn(head, fold=6) for head in words),
        TableColumn("Parameters", right=True),
    ]
    rows: list[list[str | Cell]] = []
    for kind in MIXING_FIRST:
        entries = [entry for entry in page.entries if entry.mixing == kind]
        style = TERMINAL[kind]
        blank: list[str | Cell] = [""] * len(columns)
        if entries:
            rows += [blank, [Cell(WORDS[kind].capitalize(), f"bold {style}"), *blank[1:]]]
        for entry in entries:
            order = (entry.order or units.DASH).replace(" parameters", " params")
            names: list[str | Cell] = [Cell(entry.title, style), order, entry.reads or ""]
            for one in entry.occurrences:
                system = [one.system] if several else []
                rows.append([*names, *system, stages_text(one.stages), units.count(one.params)])
                names = ["", "", ""]
    title = "Operations at a glance: " + ", ".join(page.systems)
    return DataTable(columns, rows, title=title, only="terminal")


def _mixing_lines(page: Glance) -> Iterator[str]:
    """What mixes in each system, and which weights of mixing are computed from the content."""
    if page.mixers:
        several = len(page.systems) > 1
        texts = [f"{name + ' ' if several else ''}{', '.join(mixers)}" for name, mixers in page.mixers.items()]
        yield f"Mixers: {'; '.join(texts)}."
    kinds = {"computed from the content": True, "learned or fixed": False}
    found = []
    for words, content in kinds.items():
        titles = dict.fromkeys(
            entry.title for entry in page.entries if entry.mixes and entry.content_dependent == content
        )
        found += [f"{words} in {', '.join(titles)}"] if titles else []
    if found:
        yield f"Weights of mixing: {'; '.join(found)}."


def records(page: Glance) -> list[dict[str, Any]]:
    """One plain dict per operation and system, as in the CSV."""
    return [
        {"operation": entry.title, "mixing": entry.mixing, "order": entry.order}
        | {"content_dependent": entry.content_dependent, "reads": entry.reads, "system": one.system}
        | {"N": page.inputs[one.system].grid_tokens, "image": image_cell(page.inputs[one.system])}
        | {"where": stages_text(one.stages), "times": one.times, "params": one.params, "macs": one.macs}
        for entry in page.entries
        for one in entry.occurrences
    ]


def _object(page: Glance) -> dict[str, Any]:
    """The object of `--format json`."""
    operations = [msgspec.to_builtins(entry) for entry in page.entries]
    return {
        "systems": list(page.systems),
        "inputs": {name: input_object(metadata) for name, metadata in page.inputs.items()},
        "operations": [{"operation": row.pop("title")} | row for row in operations],
        "data_movement": list(page.moves),
        "mixers": {name: list(mixers) for name, mixers in page.mixers.items()},
        **({"notes": list(page.notes)} if page.notes else {}),
        "params": page.params,
        "mixing_params": page.mixing_params(),
        "sentence": parameter_sentence(page),
    }


def _rounded(page: Glance) -> DataTable:
    """A line per operation, for papers."""
    rows = []
    for entry in page.entries:
        found = {one.system: one for one in entry.occurrences}
        row = {"operation": entry.title, "type": WORDS[entry.mixing], "order": entry.order or units.DASH}
        row["reads"] = entry.reads or units.DASH
        for system in page.systems:
            one = found.get(system)
            row[f"{system}: where"] = stages_text(one.stages) if one else units.DASH
            row[f"{system}: params"] = units.count(one.params) if one else units.DASH
        rows.append(row)
    columns = [TableColumn(head, kind="formula" if head == "order" else "") for head in rows[0]]
    return DataTable(columns, [list(row.values()) for row in rows], only="paper")


def parameter_sentence(page: Glance) -> str:
    """Which mixing operations hold parameters in these systems, and how many."""
    mixing = [entry for entry in page.entries if entry.mixes]
    if not mixing and any(entry.mixing == "unknown" for entry in page.entries):
        return "Which operations mix tokens is not known."
    holders = [entry for entry in mixing if any(one.params for one in entry.occurrences)]
    if not mixing:
        return "No operation here mixes tokens."
    if not holders:
        all_params = " and ".join(f"{units.exact(params)} of {name}" for name, params in page.params.items())
        return f"Mixing operations hold no parameters: all {all_params} belong to per-token operations."
    titles = dict.fromkeys(entry.title for entry in holders)
    if len(titles) > len({entry.title for entry in mixing} - titles.keys()):
        return f"Here mixing operations do hold parameters ({_shares(holders, page)}), in: {', '.join(titles)}."
    exceptions = [
        f"the {lowered(title)} ({_shares([entry for entry in holders if entry.title == title], page)})"
        for title in titles
    ]
    number = "one exception" if len(exceptions) == 1 else f"{len(exceptions)} exceptions"
    return (
        f"Mixing operations hold no parameters, with {number}: {' and '.join(exceptions)}. "
        "All other parameters belong to per-token operations."
    )


def _shares(entries: Iterable[GlanceEntry], page: Glance) -> str:
    """`Swin-T: 23,322 of 28,288,354, 0.1 %`."""
    params: dict[str, int] = {}
    for entry in entries:
        for one in entry.occurrences:
            if one.params:
                params[one.system] = params.get(one.system, 0) + one.params
    return "; ".join(
        f"{name}: {params[name]:,} of {total:,}, {units.percent(params[name], total)}"
        for name, total in page.params.items()
        if name in params
    )
