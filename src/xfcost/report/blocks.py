"""Architectures -> boxes: one block of each, sub-layer by sub-layer, laid side by side so that equal boxes meet.

A block is the first of the first stage that mixes tokens (the first, where none does); an encoder-decoder gives two
columns. Both drawings, the terminal's and the figure's, are made from this.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Final, NamedTuple

from xfcost.counting.comparison import distinct
from xfcost.counting.forward import count
from xfcost.formulas.component import Mixer, Residual, tag_of
from xfcost.ledger.operation import Mixing, Operation
from xfcost.spec.architecture import Architecture, Block, Part, Stage

_SUBSCRIPTS: Final = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
# The slots of the rows around a component.
_NORM: Final = "norm of the residual"
_ADD: Final = "residual add"
_NORMS: Final = {"layer_norm": "LayerNorm"}
_ACTIVATIONS: Final = {
    "gelu": "GELU",
    "gelu_quick": "GELU (quick)",
    "gelu_tanh": "GELU (tanh)",
    "relu": "ReLU",
    "none": "",
}


class Box(NamedTuple):
    """One box of a block."""

    slot: str
    """What it is in any block: boxes of one slot stand side by side."""
    title: str
    detail: str
    mixing: Mixing | None
    """None for the input and the output, which compute nothing."""
    order: str | None
    macs: int | None
    """Of one block and the whole batch."""
    sublayer: int | None = None

    @property
    def core(self) -> bool:
        """Does it mix tokens?"""
        return self.mixing not in (None, "per-token")

    @property
    def adds(self) -> bool:
        """Does the residual path end here?"""
        return self.slot == _ADD

    def alike(self, other: Box | None) -> bool:
        """Is `other` the same operation? Widths, and so figures, may differ."""
        if self.mixing is None:
            return other is not None and other.mixing is None
        mine = (self.slot, self.title.rstrip("₀₁₂₃₄₅₆₇₈₉"), self.detail, self.mixing, self.order)
        return other is not None and mine == (
            other.slot, other.title.rstrip("₀₁₂₃₄₅₆₇₈₉"), other.detail, other.mixing, other.order,
        )  # fmt: skip


class Column(NamedTuple):
    """A block with its boxes, from input to output."""

    name: str
    where: str
    boxes: tuple[Box, ...]
    note: str | None


class Diagram(NamedTuple):
    """Columns whose boxes were laid side by side."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Box | None, ...], ...]
    """One row of boxes: None where a column has none to set beside the others."""
    differing: tuple[int, ...]
    """The rows whose boxes are not all alike."""

    @property
    def notes(self) -> list[str]:
        """What must be said below the drawing."""
        notes = [column.note for column in self.columns if column.note]
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
        return "only here" if missing == len(self.columns) - 1 else "not in all"

    @property
    def kinds(self) -> list[Mixing]:
        """The mixing kinds that occur, per-token first."""
        there = {box.mixing for column in self.columns for box in column.boxes}
        kinds: tuple[Mixing, ...] = ("per-token", "global", "local")
        return [kind for kind in kinds if kind in there]


def diagram(architectures: Sequence[Architecture]) -> Diagram:
    """The first block of each architecture's streams, side by side."""
    names = distinct(architecture.spec.name for architecture in architectures)
    columns = [
        column
        for name, architecture in zip(names, architectures, strict=True)
        for column in _columns(name, architecture)
    ]
    rows = _aligned([column.boxes for column in columns])
    differing = [number for number, row in enumerate(rows) if not all(_alike(row[0], box) for box in row)]
    return Diagram(tuple(columns), tuple(rows), tuple(differing))


def _alike(first: Box | None, other: Box | None) -> bool:
    return first.alike(other) if first else other is None


def _columns(name: str, architecture: Architecture) -> Iterator[Column]:
    rows = count(architecture).rows
    for stream in architecture.streams:
        stage = stream.stages[0]
        # blocks stand in the order in which they first run
        mixers = (one for one in stage.blocks if any(isinstance(part.component, Mixer) for part in one.parts))
        block = next(mixers, stage.blocks[0])
        title = f"{name} · {stream.name}" if stream.name else name
        number = f"stage 1 of {len(stream.stages)} · " if len(stream.stages) > 1 else ""
        where = f"{number}N = {stage.grid.shape_text()} · d = {stage.dim:,}"
        yield Column(title, where, tuple(_boxes(block, rows)), _note(title, stage, block))


def _note(name: str, stage: Stage, block: Block) -> str | None:
    """How the block is repeated, and which others stand in its stage."""
    labels = [other.label for other in stage.blocks]
    if len(labels) == 1:
        return f"{name}: this block stands {block.times} times." if block.times > 1 else None
    drawn = "the first" if block is stage.blocks[0] else block.label
    if all(number == place % len(labels) for place, number in enumerate(stage.order)):
        return f"{name}: blocks of {' and '.join(labels)} alternate; {drawn} is drawn."
    return f"{name}: blocks of {' and '.join(labels)} stand in this stage; {drawn} is drawn."


def _boxes(block: Block, rows: Sequence[Operation]) -> Iterator[Box]:
    first, last = block.parts[0], block.parts[-1]
    yield Box("input", "Input X", f"{first.place.grid.total:,} × {first.place.dim:,}", None, None, None)
    norms = 0
    for number, part in enumerate(block.parts):
        mine = [row for row in rows if row.component == part.path]
        for box in _sublayer(part, mine, number):
            if box.slot == _NORM:
                norms += 1
                yield box._replace(title=box.title + str(norms).translate(_SUBSCRIPTS))
            else:
                yield box
    grid, width = last.component.out(last.place)
    yield Box("output", "Output X", f"{grid.total:,} × {width:,}", None, None, None)


def _sublayer(part: Part, rows: Sequence[Operation], number: int) -> Iterator[Box]:
    """A sub-layer's boxes: its norm and residual as they stand, a mixer's core as one box, anything else as one."""
    around = [row for row in rows if row.role and part.residual != "none"]
    inside = [row for row in rows if row not in around]
    pre = isinstance(part.residual, Residual) and part.residual.place == "pre"
    boxes = [_wrapper(part, row) for row in around if pre and row.role == "norm"]
    boxes += _mixer(part.component, inside) if isinstance(part.component, Mixer) else _per_token(part, inside)
    boxes += [_wrapper(part, row) for row in around if not (pre and row.role == "norm")]
    yield from (box._replace(sublayer=number) for box in boxes)


def _wrapper(part: Part, row: Operation) -> Box:
    if row.role == "add":
        reversible = isinstance(part.residual, Residual) and part.residual.form == "reversible"
        return _box(_ADD, "+ Other stream" if reversible else "+ Residual", "", [row])
    kind = part.residual.norm if isinstance(part.residual, Residual) else ""
    return _box(_NORM, _NORMS.get(kind, row.title), "", [row])


def _mixer(component: Mixer, rows: Sequence[Operation]) -> Iterator[Box]:
    """From the first mixing row to the last, all is the core (where none mixes, all is); what only moves joins it.

    Before and behind it every row with MACs is a box, with the norms and activations that follow it.
    """
    mixing = [number for number, row in enumerate(rows) if row.mixes] or [0, len(rows) - 1]
    inner = range(mixing[0], mixing[-1] + 1)
    core = [row for number, row in enumerate(rows) if number in inner or row.only_moves or row.symbol is not None]
    yield from _steps([row for row in rows[: inner.start] if row not in core], "before")
    steps = [row.title if row.symbol is None else row.symbol for row in core]
    behind = [row for row in rows[inner.stop :] if row not in core]
    joined = list(takewhile(_follows, behind))
    steps += [row.title for row in joined]
    detail = " / ".join(filter(None, steps)).replace(" / + bias", " + bias")
    yield _box("core", component.label(), detail, [*core, *joined])
    yield from _steps(behind[len(joined) :], "after")


def _steps(rows: Sequence[Operation], where: str) -> Iterator[Box]:
    """Boxes of the rows around a core; a residual add that the mixer does itself is the end of its residual path."""
    groups: list[list[Operation]] = []
    for row in rows:
        if groups and _follows(row):
            groups[-1].append(row)
        else:
            groups.append([row])
    for first, *others in groups:
        detail = " / ".join(row.title for row in others)
        if first.role == "add":
            yield _box(_ADD, "+ Residual", detail, [first, *others])
        else:
            yield _box(f"{where} {first.operation}", first.title, detail, [first, *others])


def _follows(row: Operation) -> bool:
    """Is it a norm or an activation, said beside what it follows?"""
    return not row.macs and row.role != "add"


def _per_token(part: Part, rows: Sequence[Operation]) -> Iterator[Box]:
    tag = tag_of(type(part.component))
    act = getattr(part.component, "act", None)
    title = tag.upper() if len(tag) <= 3 else tag.replace("_", " ").capitalize()  # noqa: PLR2004 - MLP, MoE
    yield _box(tag, title, _ACTIVATIONS.get(act, str(act)) if act else "", rows)


def _box(slot: str, title: str, detail: str, rows: Sequence[Operation]) -> Box:
    """A box of some rows: the order of the dearest of them (of those that mix, where any does), the MACs of all."""
    dearest = max(
        [row for row in rows if row.mixes] or rows, key=lambda row: (row.macs, row.flops, row.params), default=None
    )
    kind: Mixing = dearest.mixing if dearest else "per-token"
    return Box(slot, title, detail, kind, dearest.order if dearest else None, sum(row.macs for row in rows))


def _aligned(columns: Sequence[Sequence[Box]]) -> list[tuple[Box | None, ...]]:
    """Rows of boxes: each further column is laid along those before it, slot by slot."""
    rows: list[list[Box | None]] = [[box] for box in columns[0]]
    for number, boxes in enumerate(columns[1:], start=1):
        slots = [next(box.slot for box in row if box) for row in rows]
        merged: list[list[Box | None]] = []
        for above, below in _pairs(slots, [box.slot for box in boxes]):
            before = rows[above] if above is not None else [None] * number
            merged.append([*before, boxes[below] if below is not None else None])
        rows = merged
    return [tuple(row) for row in rows]


def _pairs(first: Sequence[str], second: Sequence[str]) -> Iterator[tuple[int | None, int | None]]:
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
