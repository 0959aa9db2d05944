"""The boxes of a block diagram: one block's rows, sub-layer by sub-layer, each box with its kind, order and MACs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Final, NamedTuple

from xfcost.formulas.component import Component, Mixer, Residual, tag_of
from xfcost.ledger.operation import Mixing, Operation
from xfcost.spec.architecture import Block, Part

_SUBSCRIPTS: Final = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
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


class Box(NamedTuple):
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
    sublayer: int | None = None
    """The number of its sub-layer in the block."""
    number: int | None = None
    """Of the block's norms, the first is 1; None of other boxes."""
    mixing_macs: int = 0
    """The MACs of its rows that mix tokens; a core may have per-token rows between them."""
    of_module: bool = False
    """Is it of a torch module, whose names and orders are written otherwise than a spec's?"""

    @property
    def title(self) -> str:
        """Its name, a norm's number behind it: `LayerNorm₁`."""
        return self.name if self.number is None else self.name + str(self.number).translate(_SUBSCRIPTS)

    @property
    def core(self) -> bool:
        """Does it mix tokens?"""
        return self.mixing in {"local", "global"}

    @property
    def adds(self) -> bool:
        """Does the residual path end at this box?"""
        return self.slot == ADD

    def alike(self, other: Box | None) -> bool:
        """Is `other` the same operation? Widths, and so figures, may differ; of a module and a spec names too."""
        if self.mixing is None:
            return other is not None and other.mixing is None
        if other is None:
            return False
        if self.of_module != other.of_module:
            return (self.slot, self.mixing) == (other.slot, other.mixing)
        mine, its = ((one.slot, one.name, one.detail, one.mixing, one.order) for one in (self, other))
        return mine == its


def boxes_of(block: Block, rows: Sequence[Operation]) -> Iterator[Box]:
    """The boxes of a block, from its input to its output; `rows` are the whole model's."""
    first, last = block.parts[0], block.parts[-1]
    yield Box("input", "Input X", f"{first.place.grid.total:,} × {first.place.dim:,}", None, None, None)
    norms = 0
    for number, part in enumerate(block.parts):
        for box in sublayer_boxes(part, [row for row in rows if row.component == part.path], number):
            norms += box.slot == NORM
            yield box._replace(number=norms) if box.slot == NORM else box
    grid, width = last.component.out(last.place)
    yield Box("output", "Output X", f"{grid.total:,} × {width:,}", None, None, None)


def sublayer_boxes(part: Part, rows: Sequence[Operation], number: int) -> Iterator[Box]:
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
        return box_of(ADD, "+ Other stream" if reversible else "+ Residual", "", [row])
    kind = part.residual.norm if isinstance(part.residual, Residual) else ""
    return box_of(NORM, _NORMS.get(kind, row.title), "", [row])


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
    yield box_of("core", component.label(), detail, [*core, *joined])
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
            yield box_of(ADD, "+ Residual", detail, [first, *others])
        else:
            yield box_of(f"{where} {first.operation}", first.title, detail, [first, *others])


def _follows(row: Operation) -> bool:
    """Is it a norm or an activation, part of the box before it?"""
    return not row.macs and row.role != "add"


def _per_token(part: Part, rows: Sequence[Operation]) -> Iterator[Box]:
    act = getattr(part.component, "act", None)
    tag, title = tag_of(type(part.component)), component_title(part.component)
    yield box_of(tag, title, _ACTIVATIONS.get(act, str(act)) if act else "", rows)


_ABBREVIATIONS: Final = {"mlp": "MLP", "moe": "MoE", "swiglu": "SwiGLU", "geglu": "GEGLU"}


def component_title(component: Component) -> str:
    """A sub-layer in a word or two: a mixer's short name in the literature (`W-MSA`), another's kind (`MLP`)."""
    if isinstance(component, Mixer):
        return component.label()
    tag = tag_of(type(component))
    return _ABBREVIATIONS.get(tag) or tag.replace("_", " ").capitalize()


def box_of(slot: str, title: str, detail: str, rows: Sequence[Operation]) -> Box:
    """A box of some rows: the order of the costliest of them (of those that mix, where any does), the MACs of all."""
    costliest = max(
        [row for row in rows if row.mixes] or rows, key=lambda row: (row.macs, row.flops, row.params), default=None
    )
    kind: Mixing = costliest.mixing if costliest else "per-token"
    macs, mixing = (sum(row.macs for row in some) for some in (rows, [row for row in rows if row.mixes]))
    return Box(slot, title, detail, kind, costliest.order if costliest else None, macs, mixing_macs=mixing)
