"""Architectures -> a block diagram: blocks laid side by side so that equal boxes meet.

Of a stage, the first block that mixes tokens is drawn (the first, where none does); an encoder-decoder gives two
columns. Both drawings, the terminal's and the figure's, are made from this.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from xfcost.counting.boxes import Box, boxes_of
from xfcost.counting.comparison import distinct
from xfcost.counting.forward import count
from xfcost.counting.module_boxes import module_blocks
from xfcost.formulas.component import Mixer
from xfcost.ledger.errors import UsageError
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.operation import Mixing, Operation
from xfcost.spec.architecture import Architecture, Stage

# Stages of one system that are drawn.
MOST_STAGES: Final = 4


class Column(NamedTuple):
    """A block with its boxes, from input to output."""

    name: str
    where: tuple[str, ...]
    """The stage, N, the width, how often the block is repeated."""
    boxes: tuple[Box, ...]
    notes: tuple[str, ...] = ()


class Diagram(NamedTuple):
    """Columns whose boxes were laid side by side."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Box | None, ...], ...]
    """One row of boxes: None where a column has none to set beside the others."""
    differing: tuple[int, ...]
    """The rows whose boxes are not all alike."""

    @property
    def notes(self) -> list[str]:
        """The lines below the drawing."""
        notes = [note for column in self.columns for note in column.notes]
        if len(self.columns) > 1 and not self.differing:
            notes.insert(0, "The blocks are alike box by box; their widths and figures may differ.")
        return notes

    def mark(self, row: int) -> str | None:
        """How the boxes of a row differ, in words; None where they are alike."""
        if row not in self.differing:
            return None
        if len(self.differing) == 1:
            return "only difference"
        missing = sum(box is None for box in self.rows[row])
        if not missing:
            return "differs"
        return "no counterpart" if missing == len(self.columns) - 1 else "missing in some"

    @property
    def kinds(self) -> list[Mixing]:
        """The mixing kinds that occur, per-token first."""
        there = {box.mixing for column in self.columns for box in column.boxes}
        kinds: tuple[Mixing, ...] = ("per-token", "global", "local", "unknown")
        return [kind for kind in kinds if kind in there]


def diagram(systems: Sequence[Architecture | Ledger]) -> Diagram:
    """One block of each stream, side by side; of one system alone, one of each stage that is built otherwise.

    A ledger is that of a torch module, of which a repeated block is drawn.
    """
    alone = len(systems) == 1
    names = distinct(one.metadata.name if isinstance(one, Ledger) else one.spec.name for one in systems)
    columns = [
        column
        for name, one in zip(names, systems, strict=True)
        for column in (
            _module_columns(name, one, alone=alone) if isinstance(one, Ledger) else _columns(name, one, alone=alone)
        )
    ]
    rows = aligned([column.boxes for column in columns])
    differing = [
        number
        for number, (first, *others) in enumerate(rows)
        if not all(first.alike(box) if first else box is None for box in others)
    ]
    return Diagram(tuple(columns), tuple(rows), tuple(differing))


def _columns(name: str, architecture: Architecture, *, alone: bool) -> Iterator[Column]:
    rows = count(architecture).rows
    for stream in architecture.streams:
        title = f"{name} · {stream.name}" if stream.name else name
        stages = [_Drawn(title, number, stage, rows, len(stream.stages)) for number, stage in enumerate(stream.stages)]
        chosen: list[_Drawn] = []
        for stage in stages:
            if not chosen or (alone and len(chosen) < MOST_STAGES and not any(map(stage.alike, chosen))):
                chosen.append(stage)
        notes = _left_out(title, chosen, stages, alone=alone)
        for number, stage in enumerate(chosen):
            yield stage.column([*stage.notes(), *(notes if number == len(chosen) - 1 else ())])


def _module_columns(name: str, ledger: Ledger, *, alone: bool) -> Iterator[Column]:
    """The first block that mixes tokens; of one system alone those that are built otherwise too."""
    blocks = [(block, block.boxes()) for block in module_blocks(ledger)]
    if not blocks:
        raise UsageError(f"{name}: it has no operations to draw")
    first = next((one for one in blocks if one[0].mixes), blocks[0])
    chosen = [first]
    for one in blocks if alone else ():
        if len(chosen) < MOST_STAGES and not any(_same_boxes(one[1], other[1]) for other in chosen):
            chosen.append(one)
    chosen.sort(key=blocks.index)
    others = [block.path for block, _ in blocks if all(block is not drawn for drawn, _ in chosen)]
    notes = [f"{name}: other blocks, not drawn: {', '.join(others)}."] if others else []
    notes += [f"{name}: {note}." for note in ledger.metadata.notes]
    for number, (block, boxes) in enumerate(chosen):
        where = [block.path or "the whole model"] + ([f"×{block.times}"] if block.times > 1 else [])
        yield Column(name, tuple(where), boxes, tuple(notes) if number == len(chosen) - 1 else ())


def _same_boxes(first: Sequence[Box], second: Sequence[Box]) -> bool:
    return len(first) == len(second) and all(one.alike(its) for one, its in zip(first, second, strict=True))


class _Drawn:
    """The block that is drawn of a stage: the first that mixes tokens, or the first of all."""

    def __init__(self, title: str, number: int, stage: Stage, rows: Sequence[Operation], stages: int) -> None:
        self.title, self.number, self.stage, self.stages = title, number, stage, stages
        # blocks stand in the order in which they first run
        mixers = (one for one in stage.blocks if any(isinstance(part.component, Mixer) for part in one.parts))
        self.block = next(mixers, stage.blocks[0])
        self.labels = [block.label for block in stage.blocks]
        self.boxes = tuple(boxes_of(self.block, rows))

    def alike(self, other: _Drawn) -> bool:
        """Has it the same kinds of blocks and the same boxes? Widths and figures may differ."""
        return self.labels == other.labels and _same_boxes(self.boxes, other.boxes)

    def column(self, notes: Sequence[str]) -> Column:
        """Its column: the stage, N, the width and how often the block is repeated above the boxes."""
        where = [f"stage {self.number + 1} of {self.stages}"] if self.stages > 1 else []
        where += [f"N = {self.stage.grid.shape_text()}", f"d = {self.stage.dim:,}"]
        where += [f"×{self.block.times}"] if self.block.times > 1 else []
        return Column(self.title, tuple(where), self.boxes, tuple(notes))

    def notes(self) -> Iterator[str]:
        """Which other blocks the stage has."""
        labels = self.labels
        if len(labels) == 1:
            return
        where = f", stage {self.number + 1}" if self.stages > 1 else ""
        drawn = "the first" if self.block is self.stage.blocks[0] else self.block.label
        alternate = all(number == place % len(labels) for place, number in enumerate(self.stage.order))
        words = "alternate" if alternate else "are in this stage"
        yield f"{self.title}{where}: blocks of {' and '.join(labels)} {words}; {drawn} is drawn."


def _left_out(title: str, drawn: Sequence[_Drawn], stages: Sequence[_Drawn], *, alone: bool) -> Iterator[str]:
    """The stages that are not drawn: those with the boxes of one that is, and others."""
    for one in drawn:
        same = [stage for stage in stages if stage not in drawn and stage.alike(one)]
        if same:
            tokens = ", ".join(stage.stage.grid.shape_text() for stage in same)
            widths = ", ".join(f"{stage.stage.dim:,}" for stage in same)
            verb = "have" if len(same) > 1 else "has"
            yield (
                f"{title}: {_numbers(same)} {verb} the boxes of stage {one.number + 1}, at N = {tokens} and "
                f"d = {widths}."
            )
    others = [stage for stage in stages if stage not in drawn and not any(map(stage.alike, drawn))]
    if others:
        verb = "have" if len(others) > 1 else "has"
        more = "" if alone else "; a diagram of this system alone draws them"
        yield f"{title}: {_numbers(others)} {verb} other boxes, not drawn{more}."


def _numbers(stages: Sequence[_Drawn]) -> str:
    """`stage 2`, `stages 2, 3 and 4`."""
    *first, last = [str(stage.number + 1) for stage in stages]
    return f"stages {', '.join(first)} and {last}" if first else f"stage {last}"


def aligned(columns: Sequence[Sequence[Box]]) -> list[tuple[Box | None, ...]]:
    """Rows of boxes: each further column is laid along those before it, slot by slot."""
    rows: list[list[Box | None]] = [[box] for box in columns[0]]
    for number, boxes in enumerate(columns[1:], start=1):
        slots = [next(box.slot for box in row if box) for row in rows]
        merged: list[list[Box | None]] = []
        for above, below in _common(slots, [box.slot for box in boxes]):
            before = rows[above] if above is not None else [None] * number
            merged.append([*before, boxes[below] if below is not None else None])
        rows = merged
    return [tuple(row) for row in rows]


def _common(first: Sequence[str], second: Sequence[str]) -> Iterator[tuple[int | None, int | None]]:
    """Indices of equal items side by side, as many as can be and as early as can be; None beside an item alone."""
    common = [[0] * (len(second) + 1) for _ in range(len(first) + 1)]
    for i in reversed(range(len(first))):
        for j in reversed(range(len(second))):
            equal = first[i] == second[j]
            common[i][j] = 1 + common[i + 1][j + 1] if equal else max(common[i + 1][j], common[i][j + 1])
    i = j = 0
    while i < len(first) or j < len(second):
        if i < len(first) and j < len(second) and first[i] == second[j]:
            yield i, j
            i, j = i + 1, j + 1
        elif j == len(second) or (i < len(first) and common[i + 1][j] >= common[i][j + 1]):
            yield i, None
            i += 1
        else:
            yield None, j
            j += 1
