"""How far information travels, as a table per system: of each block how many input tokens can influence a token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from xfcost.counting.reach.result import BlockReach, InputGrid, Met, Reach
from xfcost.ledger import units
from xfcost.ledger.grid import sides_text
from xfcost.ledger.json_objects import json_text
from xfcost.report.document import DataTable, Document, Gap, Part, TextLines, table_of


class Line(NamedTuple):
    """Neighbouring blocks of a stage that say the same, and what they say of one input."""

    first: BlockReach
    last: BlockReach
    met: Met

    @property
    def number(self) -> str:
        """`3`, `2–12`; nothing of a stem or a stage's entry."""
        if self.first.number is None:
            return ""
        return str(self.first.number) if self.first is self.last else f"{self.first.number}–{self.last.number}"

    @property
    def label(self) -> str:
        """`stage 1 · block 1`, `stage 1 · blocks 2–12`."""
        if self.first is self.last:
            return self.first.label
        number = self.last.part.rpartition(" ")[2]
        return f"{self.first.label.replace(' · block ', ' · blocks ')}–{number}"


def lines(found: Reach) -> Iterator[Line]:
    """The lines of its table."""
    first: BlockReach | None = None
    last: BlockReach | None = None
    for step in (*found.steps, None):
        if first is not None and last is not None and step is not None and _alike(last, step):
            last = step
            continue
        if first is not None and last is not None:
            yield from (Line(first, last, met) for met in last.met)
        first = last = step


def _alike(one: BlockReach, other: BlockReach) -> bool:
    """Can they be one line?"""
    blocks = one.number is not None and other.number is not None
    return blocks and (one.group, one.kinds, one.met) == (other.group, other.kinds, other.met)


def document(reaches: Sequence[Reach]) -> Document:
    """Of each system the answer, then its blocks, then notes."""
    return Document(
        parts=lambda: _parts(reaches),
        records=lambda: records(reaches),
        json=lambda: json_text({"systems": [_object(one) for one in reaches]}),
        prose=True,
    )


def _parts(reaches: Sequence[Reach]) -> Iterator[Part]:
    for number, one in enumerate(reaches):
        yield from [Gap()] if number else []
        yield TextLines([f"   {inputs_text(one)}"], head=one.name, only="terminal")
        yield TextLines(answers(one), "bold", only="terminal")
        yield TextLines([f"{one.name}, {inputs_text(one)}: {'; '.join(answers(one))}"], only="paper")
        yield from (Gap(), _table(one), TextLines([*_details(one), *(f"note: {note}" for note in one.notes)]))


def inputs_text(found: Reach) -> str:
    """`3,136 (56×56) tokens`, `encoder 512 tokens + decoder 512 tokens`."""
    several = len(found.inputs) > 1
    return " + ".join((f"{one.name} " if several else "") + input_text(one) for one in found.inputs)


def input_text(one: InputGrid) -> str:
    """`3,136 (56×56) tokens`."""
    sides = f" ({sides_text(one.sides)})" if len(one.sides) > 1 else ""
    return f"{one.units:,}{sides} {one.unit}{'s' if one.units != 1 else ''}"


def answers(found: Reach) -> list[str]:
    """The answer for each stream: the block after which every token depends on every other, or how far it gets."""
    streams = list(dict.fromkeys(step.stream for step in found.steps))
    several = len(streams) > 1
    return [(f"{stream}: " if several else "") + _answer(found, stream) for stream in streams]


def _answer(found: Reach, stream: str) -> str:
    steps = [step for step in found.steps if step.stream == stream]
    blocks = [step for step in steps if step.number is not None]
    length = found.path_length_of(stream)
    unit = found.input_of(stream).unit
    every = "every earlier one" if found.is_causal(stream) else "every other" if unit == "token" else f"every {unit}"
    others = [one.input for one in steps[-1].met if one.input != stream]
    every += "".join(f" and all {other} tokens" for other in others)
    if length is None:
        met = next((one for one in steps[-1].met if not one.whole), steps[-1].met[0])
        counts = f"{met.smallest:,}" + (f" to {met.largest:,}" if met.largest != met.smallest else "")
        after = "its one block" if len(blocks) == 1 else f"all {len(blocks):,} blocks"
        of = f"{met.units:,}{'' if met.input == stream else f' {met.input}'} {unit}{'s' if met.units != 1 else ''}"
        return f"not every token depends on {every}: after {after} a token depends on {counts} of {of}"
    when = f"after block {length} of {len(blocks)}" if length else "before the first block"
    return f"every token depends on {every} {when}"


def _details(found: Reach) -> Iterator[str]:
    for one in found.inputs:
        if one.unit == "pixel" and one.read < one.units:
            yield f"the stem reads {one.read:,} of the {one.units:,} pixels; its kernels skip the others"
    if found.receptive_field is not None:
        field, sides = sides_text(found.receptive_field), found.inputs[0].sides
        beyond = any(one > side for one, side in zip(found.receptive_field, sides, strict=False))
        wider = f", wider than the input's {sides_text(sides)}" if beyond else ""
        yield f"receptive field of the last block, where no border cuts it off: {field} {found.inputs[0].unit}s{wider}"
    if found.sequential > 1:
        yield f"a recurrent layer takes {found.sequential:,} sequential steps"


# Columns of numbers that a narrow table leaves out, the first first.
_LEFT_OUT: Final = ("tokens", "no.", "share", "median")
_TEXT: Final = {"block": 0, "input": 0, "made of": 16}


def _table(found: Reach) -> DataTable:
    every = list(lines(found))
    rows = [_cells(line, several=len(found.inputs) > 1, stages=_stages(found)) for line in every]
    table = table_of(rows, _TEXT, _LEFT_OUT, styles=["bold" if line.met.whole else "" for line in every])
    named = [one._replace(named="share of N") if one.head == "share" else one for one in table.columns]
    return table._replace(columns=named)


def _stages(found: Reach) -> bool:
    """Are the blocks of any stream numbered anew, stage by stage?"""
    groups = {(step.stream, step.group) for step in found.steps if step.number is not None}
    return len(groups) > len({stream for stream, _ in groups})


def _cells(line: Line, *, several: bool, stages: bool) -> dict[str, str]:
    met = line.met
    share = units.percent(met.median, met.units)
    if met.whole:
        share = "all" if met.smallest == met.largest else "all earlier"
    return (
        ({"no.": line.number} if stages else {})
        | {"block": line.label, "made of": ", ".join(line.first.kinds)}
        | ({"input": met.input} if several else {})
        | {"tokens": f"{line.last.tokens:,}", "smallest": f"{met.smallest:,}"}
        | {"median": f"{met.median:,.1f}".removesuffix(".0"), "largest": f"{met.largest:,}", "share": share}
    )


def records(reaches: Sequence[Reach]) -> list[dict[str, Any]]:
    """One plain dict per system, block and input, as in the CSV."""
    return [
        {"system": one.name, "block": step.label}
        | {name: getattr(step, name) for name in ("path", "stream", "number")}
        | {"kinds": ", ".join(step.kinds), "tokens": step.tokens}
        | {name: getattr(met, name) for name in ("input", "units", "smallest", "median", "largest", "share", "whole")}
        | {"sequential": step.sequential}
        for one in reaches
        for step in one.steps
        for met in step.met
    ]


def _object(found: Reach) -> dict[str, Any]:
    rows = [{name: cell for name, cell in row.items() if name != "system"} for row in records([found])]
    return {
        "name": found.name,
        "inputs": [{"name": one.name, "unit": one.unit, "sides": list(one.sides)} for one in found.inputs],
        "path_length": found.path_length,
        "answers": answers(found),
        "causal": found.causal,
        "sequential": found.sequential,
        "receptive_field": None if found.receptive_field is None else list(found.receptive_field),
        "notes": list(found.notes),
        "blocks": rows,
        "maps": [
            {"stream": one.stream, "input": one.input, "token": list(one.token), "reached": _reached(one.first)}
            for one in found.maps
        ],
    }


def _reached(first: np.ndarray) -> dict[str, int]:
    """Step -> how many units first influence the token after it; 0 is itself, -1 those that never do."""
    numbers, counts = np.unique(first, return_counts=True)
    return {str(number): int(count) for number, count in zip(numbers.tolist(), counts.tolist(), strict=True)}
