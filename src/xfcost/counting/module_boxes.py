"""The boxes of a torch module: those of a repeated block, child by child, or of the whole model where none repeats."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from math import prod
from typing import Final, NamedTuple

from xfcost.counting.boxes import ADD, NORM, Box, box_of
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.operation import Operation

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

    def boxes(self) -> tuple[Box, ...]:
        """Its boxes, from its input to its output."""
        start, end = (Box(slot, f"{slot.capitalize()} X", shape, None, None, None) for slot, shape in _ends(self.rows))
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


def _boxes(block: ModuleBlock) -> Iterator[Box]:
    """A box per child, and per operation of the block itself; a child that mixes has one for its core."""
    groups = [(child, list(rows)) for child, rows in groupby(block.rows, lambda row: _child(row, block.path))]
    boxes: list[tuple[str, list[Operation]]] = []
    for child, rows in groups:
        if not child:
            boxes += [("", [row]) for row in rows]
        else:
            boxes.append((child, rows))
    for child, rows in boxes:
        if any(row.mixes for row in rows):
            yield from _mixing(child, rows, block.path)
        elif _adds(child, rows):
            yield box_of(ADD, "Add", "", rows)
        else:
            yield _per_token(child, rows, block.path)


def _adds(child: str, rows: Sequence[Operation]) -> bool:
    """Is it an addition of two tensors of one shape, by the block itself?"""
    ran = rows[0].ran
    shapes = ran.input_shapes.split(", ") if ran is not None else []
    return not child and ran is not None and ran.aten.startswith("aten::add") and len(set(shapes)) == 1 < len(shapes)


def _per_token(child: str, rows: Sequence[Operation], path: str) -> Box:
    names = [_name(row, path) for row in rows]
    if len(rows) == 1 and not child:
        return box_of(names[0], names[0], "", rows)
    steps = " / ".join(row.operation for row in rows)
    if not any(row.macs for row in rows) and any("norm" in row.operation for row in rows):
        return box_of(NORM, child, steps, rows)
    return box_of("mlp" if any(row.macs for row in rows) else child, child, steps, rows)


def _mixing(child: str, rows: Sequence[Operation], path: str) -> Iterator[Box]:
    """From the first mixing row to the last, all is the core; before and behind it every row with MACs is a box."""
    places = [number for number, row in enumerate(rows) if row.mixes]
    before, core, behind = rows[: places[0]], rows[places[0] : places[-1] + 1], rows[places[-1] + 1 :]
    yield from _steps(before, path, _PROJECTIONS)
    yield box_of("core", child or _name(core[0], path), " / ".join(row.operation for row in core), core)
    yield from _steps(behind, path, {1: (_OUTPUT,)})


def _steps(rows: Sequence[Operation], path: str, slots: dict[int, tuple[str, ...]]) -> Iterator[Box]:
    """Boxes of the rows around a core; what has no MACs joins the box before it."""
    groups: list[list[Operation]] = []
    for row in rows:
        if groups and not row.macs:
            groups[-1].append(row)
        else:
            groups.append([row])
    names = [_name(first, path) for first, *_ in groups]
    for slot, name, (_, *others), group in zip(slots.get(len(groups), names), names, groups, groups, strict=True):
        yield box_of(slot, name, " / ".join(row.operation for row in others), group)


def _name(row: Operation, path: str) -> str:
    """`self_attn.q_proj`; `self_attn bmm` of an operation among others of its module."""
    rest = row.component.removeprefix(path).removeprefix(".")
    return rest if "." in rest else f"{rest} {row.operation}".strip()


def _ends(rows: Sequence[Operation]) -> list[tuple[str, str]]:
    """The slots of the input and the output, and the largest tensor of the first and of the last operation."""
    first, last = (row.ran for row in (rows[0], rows[-1]))
    texts = {"input": first.input_shapes if first else "", "output": last.output_shapes if last else ""}
    return [(slot, _largest(text)) for slot, text in texts.items()]


def _largest(shapes: str) -> str:
    texts = shapes.removesuffix(" (first call)").split(", ")
    return max(texts, key=lambda text: (text.count("×"), prod(map(int, re.findall(r"\d+", text)))))
