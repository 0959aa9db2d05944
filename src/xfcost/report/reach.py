"""How far information travels, as a table per system: of each block how many input tokens can influence a token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from xfcost.counting.reach.result import BlockReach, InputGrid, Met, Reach
from xfcost.ledger import units
from xfcost.ledger.grid import sides_text
from xfcost.report.console import bare_table
from xfcost.report.formats import formatted

if TYPE_CHECKING:
    from rich.console import Group
    from rich.text import Text

    from xfcost.report.output import Format


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


def report(reaches: Sequence[Reach], width: int) -> Group:
    """Of each system the answer, then its blocks, then notes."""
    from rich.console import Group
    from rich.text import Text

    parts: list[Any] = []
    for number, one in enumerate(reaches):
        parts += [Text()] if number else []
        parts += [_head(one), *(Text(text, style="bold") for text in answers(one)), Text(), *_table(one, width)]
        parts += [Text(text) for text in _details(one)]
        parts += [Text(f"note: {note}") for note in one.notes]
    return Group(*parts)


def _head(found: Reach) -> Text:
    from rich.text import Text

    return Text.assemble((found.name, "bold"), f"   {inputs_text(found)}")


def inputs_text(found: Reach) -> str:
    """`3,136 (56×56) tokens`, `encoder 512 tokens + decoder 512 tokens`."""
    several = len(found.inputs) > 1
    return " + ".join((f"{one.name} " if several else "") + input_text(one) for one in found.inputs)


def input_text(one: InputGrid) -> str:
    """`3,136 (56×56) tokens`."""
    sides = f" ({sides_text(one.sides)})" if len(one.sides) > 1 else ""
    return f"{one.units:,}{sides} {one.unit}s"


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
        met = steps[-1].met[0]
        counts = f"{met.smallest:,}" + (f" to {met.largest:,}" if met.largest != met.smallest else "")
        after = "its one block" if len(blocks) == 1 else f"all {len(blocks):,} blocks"
        return f"not every token depends on {every}: after {after} a token depends on {counts} of {met.units:,} {unit}s"
    when = f"after block {length} of {len(blocks)}" if length else "before the first block"
    return f"every token depends on {every} {when}"


def _details(found: Reach) -> Iterator[str]:
    for one in found.inputs:
        if one.unit == "pixel" and one.read < one.units:
            yield f"the stem reads {one.read:,} of the {one.units:,} pixels; its kernels leave out the others"
    if found.receptive_field is not None:
        field, sides = sides_text(found.receptive_field), found.inputs[0].sides
        beyond = any(one > side for one, side in zip(found.receptive_field, sides, strict=False))
        wider = f", wider than the input's {sides_text(sides)}" if beyond else ""
        yield f"receptive field of the last block, where no border cuts it off: {field} {found.inputs[0].unit}s{wider}"
    if found.sequential > 1:
        yield f"a recurrent layer takes {found.sequential:,} sequential steps"


# Columns of numbers that a narrow table leaves out, the first first.
_LEFT_OUT: Final = ("tokens", "no.", "share", "median")
# Letters that the column of what a block is made of has at least.
_LEAST_MADE_OF: Final = 16
_GAP: Final = 2


def _table(found: Reach, width: int) -> Iterator[Any]:
    """The table, and a line on the columns that do not fit."""
    from rich.text import Text

    rows = [_cells(line, several=len(found.inputs) > 1, stages=_stages(found)) for line in lines(found)]
    columns, hidden = list(rows[0]), []
    for name in _LEFT_OUT:
        wide = {column: max(len(column), *(len(row[column]) for row in rows)) for column in columns}
        wide["made of"] = min(wide["made of"], _LEAST_MADE_OF)
        if name in columns and sum(wide.values()) + _GAP * len(columns) > width:
            columns.remove(name)
            hidden.append(name)
    table = bare_table()
    for column in columns:
        if column == "made of":
            table.add_column(column, overflow="fold")
        else:
            table.add_column(column, justify="left" if column in ("block", "input") else "right", no_wrap=True)
    for line, row in zip(lines(found), rows, strict=True):
        table.add_row(*(row[column] for column in columns), style="bold" if line.met.whole else "")
    yield table
    if hidden:
        yield Text(f"hidden at this width: {', '.join(hidden)}", style="dim")


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
        | {"median": median_text(met), "largest": f"{met.largest:,}", "share": share}
    )


def median_text(met: Met) -> str:
    """`588`, `512.5`."""
    return f"{met.median:,.0f}" if float(met.median).is_integer() else f"{met.median:,.1f}"


def records(reaches: Sequence[Reach]) -> list[dict[str, Any]]:
    """One plain dict per system, block and input, as in the CSV."""
    return [
        {
            "system": one.name,
            "block": step.label,
            "path": step.path,
            "stream": step.stream,
            "number": step.number,
            "kinds": ", ".join(step.kinds),
            "tokens": step.tokens,
            "input": met.input,
            "units": met.units,
            "smallest": met.smallest,
            "median": met.median,
            "largest": met.largest,
            "share": met.share,
            "whole": met.whole,
            "sequential": step.sequential,
        }
        for one in reaches
        for step in one.steps
        for met in step.met
    ]


def objects(reaches: Sequence[Reach]) -> dict[str, Any]:
    """The object of `--format json`."""
    return {"systems": [_object(one) for one in reaches]}


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


def reach_text(reaches: Sequence[Reach], form: Format) -> str:
    """The report in a format."""
    from xfcost.ledger.objects import json_text

    return formatted(
        form,
        json=lambda: json_text(objects(reaches)),
        rows=lambda: records(reaches),
        table=lambda width: report(reaches, width),
        markup=lambda: _markup(reaches, form),
    )


def _markup(reaches: Sequence[Reach], form: Format) -> str:
    from xfcost.report.export import to_markup
    from xfcost.report.latex import latex

    texts = [f"{one.name}, {inputs_text(one)}: {'; '.join(answers(one))}" for one in reaches]
    texts = [latex(text) for text in texts] if form == "latex" else texts
    return "\n\n".join(texts) + "\n\n" + to_markup(_rounded(reaches), form)


def _rounded(reaches: Sequence[Reach]) -> list[dict[str, str]]:
    several = any(len(one.inputs) > 1 for one in reaches)
    return [
        ({"system": one.name} if len(reaches) > 1 else {})
        | {"block": line.label, "made of": ", ".join(line.first.kinds)}
        | ({"input": line.met.input} if several else {})
        | {"smallest": f"{line.met.smallest:,}", "median": median_text(line.met), "largest": f"{line.met.largest:,}"}
        | {"share of N": units.percent(line.met.median, line.met.units)}
        for one in reaches
        for line in lines(one)
    ]
