"""Architectures -> a block diagram: blocks laid side by side so that equal boxes meet.

Of a stage, the first block that mixes tokens is drawn (the first, where none does); an encoder-decoder gives two
columns. Of a torch module a repeated block is drawn, child by child, or the whole model where none repeats. Both
drawings, the terminal's and the figure's, are made from this.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby, takewhile
from math import prod
from typing import Final, NamedTuple

from xfcost.comparing.comparison import distinct
from xfcost.comparing.differences import best_pairs
from xfcost.counting.forward import count
from xfcost.formulas.component import Component, Mixer, Residual, tag_of
from xfcost.formulas.operation_names import inside_block, own_name
from xfcost.ledger import notebook
from xfcost.ledger.errors import UsageError
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.module_rows import block_of
from xfcost.ledger.operation import Mixing, Operation
from xfcost.spec.architecture import Architecture, Block, Part, Stage

SUBSCRIPTS: Final = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
# Systems whose blocks fit side by side.
MOST_DRAWN: Final = 4
# The slots of the rows around a component.
NORM: Final = "norm of the residual"
ADD: Final = "residual add"
_NORMS: Final = {"layer_norm": "LayerNorm"}
_ACTIVATIONS: Final = {
    "gelu": "GELU",
    "gelu_quick": "GELU (quick)",
    "gelu_tanh": "GELU (tanh)",
    "relu": "ReLU",
    "relu6": "ReLU6",
    "none": "",
}


class BlockBox(NamedTuple):
    """One box of a block."""

    slot: str
    """Its place in any block: boxes of one slot are drawn side by side."""
    name: str
    detail: str
    mixing: Mixing | None
    """None for the input and the output, which compute nothing."""
    order: str | None
    macs: int | None
    """Of one block and the whole batch."""
    around: int | None = None
    """Of a residual add, the boxes before it that its residual path goes around."""
    number: int | None = None
    """Of the block's norms, the first is 1; None of other boxes."""
    mixing_macs: int = 0
    """The MACs of its rows that mix tokens; a core may have per-token rows between them."""
    of_module: bool = False
    """Is it of a torch module, whose names and orders are written otherwise than a spec's?"""

    @property
    def title(self) -> str:
        """Its name, a norm's number behind it: `LayerNorm₁`."""
        return self.name if self.number is None else self.name + str(self.number).translate(SUBSCRIPTS)

    @property
    def core(self) -> bool:
        """Does it mix tokens?"""
        return self.mixing in {"local", "global"}

    @property
    def adds(self) -> bool:
        """Does the residual path end at this box?"""
        return self.slot == ADD

    def alike(self, other: BlockBox | None) -> bool:
        """Is `other` the same operation? Widths, and so figures, may differ; of a module and a spec names too."""
        if self.mixing is None:
            return other is not None and other.mixing is None
        if other is None:
            return False
        if self.of_module != other.of_module:
            return (self.slot, self.mixing) == (other.slot, other.mixing)
        mine, its = ((one.slot, one.name, one.detail, one.mixing, one.order) for one in (self, other))
        return mine == its


def boxes_of(block: Block, rows: Sequence[Operation]) -> Iterator[BlockBox]:
    """The boxes of a block, from its input to its output; `rows` are the whole model's."""
    first, last = block.parts[0], block.parts[-1]
    yield BlockBox("input", "Input X", f"{first.place.grid.total:,} × {first.place.dim:,}", None, None, None)
    norms = 0
    for part in block.parts:
        for box in sublayer_boxes(part, [row for row in rows if row.component == part.path]):
            norms += box.slot == NORM
            yield box._replace(number=norms) if box.slot == NORM else box
    grid, width = last.component.out(last.place)
    yield BlockBox("output", "Output X", f"{grid.total:,} × {width:,}", None, None, None)


def sublayer_boxes(part: Part, rows: Sequence[Operation]) -> Iterator[BlockBox]:
    """A sub-layer's boxes: its norm and residual as they are, a mixer's core as one box, anything else as one."""
    around = [row for row in rows if row.role and part.residual != "none"]
    inside = [row for row in rows if row not in around]
    pre = isinstance(part.residual, Residual) and part.residual.place == "pre"
    boxes = [_wrapper(part, row) for row in around if pre and row.role == "norm"]
    if isinstance(part.component, Mixer):
        boxes += _mixer(part.component, inside)
    else:
        act = getattr(part.component, "act", None)
        detail = _ACTIVATIONS.get(act, str(act)) if act else ""
        boxes.append(box_of(tag_of(type(part.component)), component_title(part.component), detail, inside))
    boxes += [_wrapper(part, row) for row in around if not (pre and row.role == "norm")]
    yield from (box._replace(around=place) if box.adds else box for place, box in enumerate(boxes))


def _wrapper(part: Part, row: Operation) -> BlockBox:
    if row.role == "add":
        reversible = isinstance(part.residual, Residual) and part.residual.form == "reversible"
        return box_of(ADD, "+ Other stream" if reversible else "+ Residual", "", [row])
    kind = part.residual.norm if isinstance(part.residual, Residual) else ""
    return box_of(NORM, _NORMS.get(kind, row.title), "", [row])


def _mixer(component: Mixer, rows: Sequence[Operation]) -> Iterator[BlockBox]:
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
    yield box_of("core", component.label(), detail, [*core, *joined])
    yield from _steps(behind[len(joined) :], "after")


def _steps(rows: Sequence[Operation], where: str) -> Iterator[BlockBox]:
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
            yield box_of(ADD, "+ Residual", detail, [first, *others])
        else:
            yield box_of(f"{where} {first.operation}", first.title, detail, [first, *others])


def _follows(row: Operation) -> bool:
    """Is it a norm or an activation, part of the box before it?"""
    return not row.macs and row.role != "add"


_ABBREVIATIONS: Final = {"mlp": "MLP", "moe": "MoE", "swiglu": "SwiGLU", "geglu": "GEGLU"}


def component_title(component: Component) -> str:
    """A sub-layer in a word or two: a mixer's short name in the literature (`W-MSA`), another's kind (`MLP`)."""
    if isinstance(component, Mixer):
        return component.label()
    tag = tag_of(type(component))
    return _ABBREVIATIONS.get(tag) or tag.replace("_", " ").capitalize()


def box_of(slot: str, title: str, detail: str, rows: Sequence[Operation]) -> BlockBox:
    """A box of some rows: the order of the costliest of them (of those that mix, where any does), the MACs of all."""
    costliest = max(
        [row for row in rows if row.mixes] or rows, key=lambda row: (row.macs, row.flops, row.params), default=None
    )
    kind: Mixing = costliest.mixing if costliest else "per-token"
    macs, mixing = (sum(row.macs for row in some) for some in (rows, [row for row in rows if row.mixes]))
    return BlockBox(slot, title, detail, kind, costliest.order if costliest else None, macs, mixing_macs=mixing)


# A block is looked for inside a part that has this share of the MACs, and all that mixes.
_MOST_OF_ALL: Final = 0.9
_REPEATED: Final = re.compile(r"\*|\d+(-\d+|,\d+).*")
# The slots that a spec's projections have, by their number: of one, and of three.
_PROJECTIONS: Final = {1: ("before qkv",), 3: ("before q", "before k", "before v")}
_OUTPUT: Final = "after out"


class ModuleBlock(NamedTuple):
    """A block of a module, with its rows."""

    path: str
    rows: tuple[Operation, ...]

    @property
    def times(self) -> int:
        """How often it is repeated."""
        return min(row.times for row in self.rows)

    @property
    def mixes(self) -> bool:
        """Does any of its operations mix tokens?"""
        return any(row.mixes for row in self.rows)

    def boxes(self) -> tuple[BlockBox, ...]:
        """Its boxes, from its input to its output."""
        first, last = self.rows[0].ran, self.rows[-1].ran
        given = [row.ran for row in self.rows if row.ran is not None and row.ran.adds_to == ""]
        inputs = given[0].output_shapes if given else first.input_shapes if first else ""  # one of them may be a weight
        shapes = {"input": inputs, "output": last.output_shapes if last else ""}
        largest = {
            slot: max(
                text.removesuffix(" (first call)").split(", "),
                key=lambda one: (one.count("×"), prod(map(int, re.findall(r"\d+", one)))),
            )
            for slot, text in shapes.items()
        }
        start, end = (BlockBox(slot, f"{slot.capitalize()} X", one, None, None, None) for slot, one in largest.items())
        return (start, *(box._replace(of_module=True) for box in _boxes(self)), end)


def module_blocks(ledger: Ledger) -> list[ModuleBlock]:
    """The repeated blocks in the order in which they first run; where none is repeated, the part with most work."""
    rows = [row for row in ledger.rows if row.ran is not None and not row.only_moves]
    found: dict[str, list[Operation]] = {}
    for row in rows:
        parts = row.component.split(".")
        repeated = next((place for place, part in enumerate(parts) if _REPEATED.fullmatch(part)), None)
        if repeated is not None:
            found.setdefault(".".join(parts[: repeated + 1]), []).append(row)
    if not found and rows:
        path = _innermost(rows)
        found[path] = [row for row in rows if _inside(row, path)]
    return [ModuleBlock(path, tuple(several)) for path, several in found.items()]


def _innermost(rows: Sequence[Operation]) -> str:
    """The deepest part that has nearly all MACs, and everything that mixes."""
    path, total = "", sum(row.macs for row in rows)
    while True:
        children = dict.fromkeys(child for row in rows if _inside(row, path) and (child := _child(row, path)))
        inside = {name: [row for row in rows if _inside(row, _joined(path, name))] for name in children}
        deeper = [
            name
            for name, theirs in inside.items()
            if sum(row.macs for row in theirs) > _MOST_OF_ALL * total
            and sum(row.mixes for row in theirs) == sum(row.mixes for row in rows)
            and any(_child(row, _joined(path, name)) for row in theirs)
        ]
        if not deeper:
            return path
        path = _joined(path, deeper[0])


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _inside(row: Operation, path: str) -> bool:
    return not path or row.component == path or row.component.startswith(f"{path}.")


def _child(row: Operation, path: str) -> str:
    """The child of `path` that a row is in; empty of its own operations."""
    rest = row.component.removeprefix(path).removeprefix(".")
    return rest.partition(".")[0]


class _Boxed(NamedTuple):
    """A box with its rows."""

    box: BlockBox
    rows: Sequence[Operation]


def _boxes(block: ModuleBlock) -> Iterator[BlockBox]:
    """A box per child, and per operation of the block itself; a child that mixes has one for its core."""
    found: list[_Boxed] = []
    for child, rows in groupby(block.rows, lambda row: _child(row, block.path)):
        for several in _split(child, list(rows)):
            found += _boxed(child, several, block.path)
    before = 0  # where the residual path begins whose start is not known
    for place, one in enumerate(found):
        if one.box.adds:
            yield one.box._replace(around=place - _start_of(one.rows[0], found[:place], before))
            before = place + 1
        else:
            yield one.box


def _split(child: str, rows: list[Operation]) -> Iterator[list[Operation]]:
    """The rows of a child, cut at residual adds where it does not mix; those of the block itself one by one."""
    if any(row.mixes for row in rows) and child:
        yield rows
    else:
        alone = lambda row: row.path if not child or row.role == "add" else None  # noqa: E731 - one line
        yield from (list(several) for _, several in groupby(rows, alone))


def _boxed(child: str, rows: list[Operation], path: str) -> Iterator[_Boxed]:
    names, steps = [_name(row, path) for row in rows], _steps_text(rows)
    places = [number for number, row in enumerate(rows) if row.mixes]
    works = any(row.macs for row in rows)
    if places:  # from the first mixing row to the last, all is the core
        core = rows[places[0] : places[-1] + 1]
        yield from _module_steps(rows[: places[0]], path, _PROJECTIONS)
        yield _Boxed(box_of("core", child or names[places[0]], _steps_text(core), core), core)
        yield from _module_steps(rows[places[-1] + 1 :], path, {1: (_OUTPUT,)})
    elif rows[0].role == "add":
        yield _Boxed(box_of(ADD, "+ Residual", "", rows), rows)
    elif len(rows) == 1 and not child:
        yield _Boxed(box_of(names[0], names[0], "", rows), rows)
    elif not works and any("norm" in row.operation for row in rows):
        yield _Boxed(box_of(NORM, _common_module(rows, path), steps, rows), rows)
    else:
        yield _Boxed(box_of("mlp" if works else child, child, steps, rows), rows)


def _module_steps(rows: Sequence[Operation], path: str, slots: dict[int, tuple[str, ...]]) -> Iterator[_Boxed]:
    """Boxes of the rows around a core; what has no MACs joins the box before it, but for a residual add."""
    groups: list[list[Operation]] = []
    for row in rows:
        if groups and not row.macs and "add" not in (row.role, groups[-1][-1].role):
            groups[-1].append(row)
        else:
            groups.append([row])
    behind = next((place for place, (first, *_) in enumerate(groups) if first.role == "add"), len(groups))
    names = [_name(first, path) for first, *_ in groups[:behind]]
    for slot, name, group in zip(slots.get(behind, names), names, groups[:behind], strict=True):
        yield _Boxed(box_of(slot, name, _steps_text(group[1:]), group), group)
    for group in groups[behind:]:
        yield from _boxed(_child(group[0], path), group, path)


def _steps_text(rows: Sequence[Operation]) -> str:
    """`q_proj / fused attention`: modules that are one operation by their names, if these are no numbers."""
    names = [row.component.rpartition(".")[2] if row.title == inside_block(row) else own_name(row) for row in rows]
    alone = len(rows) == 1
    return " / ".join(
        str(row.symbol or row.title) if alone or name.isdecimal() else name
        for row, name in zip(rows, names, strict=True)
    )


def _common_module(rows: Sequence[Operation], path: str) -> str:
    """The path in the block of the one module that runs all rows; the child around them where several do."""
    components = {row.component for row in rows}
    return rows[0].component.removeprefix(path).removeprefix(".") if len(components) == 1 else _child(rows[0], path)


def _start_of(add: Operation, boxes: Sequence[_Boxed], before: int) -> int:
    """The place of the first box that a residual path goes around."""
    if add.ran is None or add.ran.adds_to is None:
        return before
    inner = ".".join(block_of(add.component.split(".")))
    source = _joined(inner, add.ran.adds_to)
    for place, one in enumerate(boxes):
        if any(row.path == source for row in one.rows):
            return place + 1
        if not add.ran.adds_to and any(_inside(row, inner) for row in one.rows):
            return place
    return 0


def _name(row: Operation, path: str) -> str:
    """`self_attn.q_proj`; `self_attn softmax` of an operation among others of its module."""
    rest, inner = row.component.removeprefix(path).removeprefix("."), inside_block(row)
    return rest + row.title.removeprefix(inner) if inner else f"{rest} {row.title}".strip()


# Stages of one system that are drawn.
MOST_STAGES: Final = 4


class DiagramColumn(NamedTuple):
    """A block with its boxes, from input to output."""

    name: str
    where: tuple[str, ...]
    """The stage, N, the width, how often the block is repeated."""
    boxes: tuple[BlockBox, ...]
    notes: tuple[str, ...] = ()


class Diagram(NamedTuple):
    """Columns whose boxes were laid side by side."""

    columns: tuple[DiagramColumn, ...]
    rows: tuple[tuple[BlockBox | None, ...], ...]
    """One row of boxes: None where a column has no box that matches the others."""
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

    def _repr_svg_(self) -> str | None:
        return notebook.svg(self)


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


def _columns(name: str, architecture: Architecture, *, alone: bool) -> Iterator[DiagramColumn]:
    rows = count(architecture).rows
    for stream in architecture.streams:
        title = f"{name} · {stream.name}" if stream.name else name
        stages = [
            _DrawnStage(title, number, stage, rows, len(stream.stages)) for number, stage in enumerate(stream.stages)
        ]
        chosen: list[_DrawnStage] = []
        for stage in stages:
            if not chosen or (alone and len(chosen) < MOST_STAGES and not any(map(stage.alike, chosen))):
                chosen.append(stage)
        notes = _left_out(title, chosen, stages, alone=alone)
        for number, stage in enumerate(chosen):
            yield stage.column([*stage.notes(), *(notes if number == len(chosen) - 1 else ())])


def _module_columns(name: str, ledger: Ledger, *, alone: bool) -> Iterator[DiagramColumn]:
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
        yield DiagramColumn(name, tuple(where), boxes, tuple(notes) if number == len(chosen) - 1 else ())


def _same_boxes(first: Sequence[BlockBox], second: Sequence[BlockBox]) -> bool:
    return len(first) == len(second) and all(one.alike(its) for one, its in zip(first, second, strict=True))


class _DrawnStage:
    """The block that is drawn of a stage: the first that mixes tokens, or the first of all."""

    def __init__(self, title: str, number: int, stage: Stage, rows: Sequence[Operation], stages: int) -> None:
        self.title, self.number, self.stage, self.stages = title, number, stage, stages
        # blocks are in the order in which they first run
        mixers = (one for one in stage.blocks if any(isinstance(part.component, Mixer) for part in one.parts))
        self.block = next(mixers, stage.blocks[0])
        self.labels = [block.label for block in stage.blocks]
        self.boxes = tuple(boxes_of(self.block, rows))

    def alike(self, other: _DrawnStage) -> bool:
        """Has it the same kinds of blocks and the same boxes? Widths and figures may differ."""
        return self.labels == other.labels and _same_boxes(self.boxes, other.boxes)

    def column(self, notes: Sequence[str]) -> DiagramColumn:
        """Its column: the stage, N, the width and how often the block is repeated above the boxes."""
        where = [f"stage {self.number + 1} of {self.stages}"] if self.stages > 1 else []
        where += [f"N = {self.stage.grid.shape_text()}", f"d = {self.stage.dim:,}"]
        where += [f"×{self.block.times}"] if self.block.times > 1 else []
        return DiagramColumn(self.title, tuple(where), self.boxes, tuple(notes))

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


def _left_out(title: str, drawn: Sequence[_DrawnStage], stages: Sequence[_DrawnStage], *, alone: bool) -> Iterator[str]:
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


def _numbers(stages: Sequence[_DrawnStage]) -> str:
    """`stage 2`, `stages 2, 3 and 4`."""
    *first, last = [str(stage.number + 1) for stage in stages]
    return f"stages {', '.join(first)} and {last}" if first else f"stage {last}"


def aligned(columns: Sequence[Sequence[BlockBox]]) -> list[tuple[BlockBox | None, ...]]:
    """Rows of boxes: each further column is laid along those before it, slot by slot."""
    rows: list[list[BlockBox | None]] = [[box] for box in columns[0]]
    for number, boxes in enumerate(columns[1:], start=1):
        slots = [next(box.slot for box in row if box) for row in rows]
        merged: list[list[BlockBox | None]] = []
        for above, below in _common(slots, [box.slot for box in boxes]):
            before = rows[above] if above is not None else [None] * number
            merged.append([*before, boxes[below] if below is not None else None])
        rows = merged
    return [tuple(row) for row in rows]


def _common(first: Sequence[str], second: Sequence[str]) -> Iterator[tuple[int | None, int | None]]:
    """Pairs of indices of equal items, as many and as early as possible; None for an item without an equal one."""
    i = j = 0
    for above, below in best_pairs([[float(one == other) for other in second] for one in first]):
        yield from ((alone, None) for alone in range(i, above))
        yield from ((None, alone) for alone in range(j, below))
        yield above, below
        i, j = above + 1, below + 1
    yield from ((alone, None) for alone in range(i, len(first)))
    yield from ((None, alone) for alone in range(j, len(second)))
