"""Rows of residual connections: norm, scale, add, and the end of reversible streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from xfcost.formulas.component import Component, Grid, Joining, Mixer, Number, Operation, Place, Residual, SubLayer
from xfcost.formulas.rows import elementwise, move, norm
from xfcost.formulas.tensors import reading, scaled_by_weights
from xfcost.ledger.tensors import BEFORE, INPUT, MEMORY, OUTPUT, RESIDUAL, SECOND, Saved, Tensor, Tensors


def component_rows(
    component: Component, residual: Joining, place: Place, rows: Iterable[Operation] | None = None
) -> Iterable[Operation]:
    """The rows of any component (or `rows`): those of a sub-layer inside its residual connection."""
    if isinstance(component, SubLayer):
        return residual_rows(component, residual, place, rows)
    return component.operations(place) if rows is None else rows


def residual_rows(
    component: SubLayer, residual: Joining, place: Place, rows: Iterable[Operation] | None = None
) -> Iterator[Operation]:
    """The rows of `component` (or `rows`) inside its residual connection: `residual_norm`, scales, `residual_add`.

    A component of special tokens alone is normed, scaled and added on them alone (a mixer's norm is on all tokens that
    it reads), and `residual_rejoin` concatenates them with the others.
    """
    rows = component.operations(place) if rows is None else rows
    rejoined = [_rejoin(place)] if component.special_tokens_only else []
    if residual == "none":
        yield from [*rows, *rejoined]
        return
    grid, width = component.out(place)
    tokens = grid.special if component.special_tokens_only else grid.total
    elements = tokens * width
    rows, shortcut = list(rows), list(component.shortcut(place))
    stream = shortcut[-1].path if shortcut else RESIDUAL
    inner = next((row.path for row in reversed(rows) if row.tensors is None or not row.tensors.beside), INPUT)
    scaled = [*_scales(residual, width, elements)]
    if residual.place == "pre":
        read = place.grid.total if isinstance(component, Mixer) or not component.special_tokens_only else tokens
        yield from (reading(row, becomes_input=True) for row in _norm(residual, read, place.dim))
        normed = []
    else:
        normed = list(_norm(residual, tokens, width))
    yield from rows
    yield from shortcut
    branch = [*normed, *scaled] if residual.place == "res_post" else scaled
    if branch:
        branch[0] = reading(branch[0], inner)
    add = elementwise(
        "residual_add", "Residual add", "add", elements, of=(stream, BEFORE if branch else inner), role="add"
    )
    yield from [*branch, add, *(normed if residual.place == "post" else []), *rejoined]


def _rejoin(place: Place) -> Operation:
    shape = (place.grid.total, place.dim)
    special = Tensor(BEFORE, (place.grid.special, place.dim))
    tensors = Tensors((special, Tensor(RESIDUAL, shape)), (Tensor(OUTPUT, shape),))
    title = "Extra tokens back before the others"
    return move("residual_rejoin", title, place.grid.total * place.dim, tensors=tensors)


def _norm(residual: Residual, tokens: Number, width: Number) -> Iterator[Operation]:
    rows = norm(residual.norm, "residual_norm", tokens, width)
    yield from (msgspec.structs.replace(row, role="norm") for row in rows)


def _scales(residual: Residual, width: Number, elements: Number) -> Iterator[Operation]:
    """Scales of f(x): LayerScale's d learned numbers, a fixed factor, both or none."""
    if residual.layer_scale is not None:
        tensors = scaled_by_weights(elements)
        row = elementwise("residual_layer_scale", "LayerScale", "multiply", elements, tensors=tensors)
        yield msgspec.structs.replace(row, params=width)
    if residual.factor is not None:
        yield elementwise("residual_factor", f"Scale by {residual.factor:g}", "multiply", elements)


class TwoStreams(Component, frozen=True, kw_only=True, tag="two_streams"):
    """The end of a reversible stage, added by the stage itself: two streams of N·d become one.

    concatenate  2·N·d elements written; the width is then 2d
    mean         N·d additions and halvings

    At the stage's start both streams are the input: nothing is copied.
    """

    join: Literal["concatenate", "mean"]
    blocks: int
    """L, the blocks of the stage."""

    def out(self, place: Place) -> tuple[Grid, Number]:
        return place.grid, 2 * place.dim if self.join == "concatenate" else place.dim

    def operations(self, place: Place) -> Iterator[Operation]:
        elements = place.grid.total * place.dim
        both = (Tensor(INPUT, (elements,)), Tensor(SECOND, (elements,)))
        saves = (Saved(INPUT), Saved(SECOND), Saved(MEMORY))  # by the blocks, which all are one function
        written = 2 * elements if self.join == "concatenate" else elements
        tensors = Tensors(both, (Tensor(OUTPUT, (written,)),), saves)
        if self.join == "concatenate":
            yield move("join", "Concatenate the two streams", 2 * elements, tensors=tensors)
        else:
            yield elementwise("join", "Mean of the two streams", "add + multiply", elements, tensors=tensors)

    def notes(self, place: Place) -> Iterator[str]:
        saved = 2 * place.grid.total * place.dim
        yield (
            f"reversible: for the backward pass training keeps both streams at the end, 2·N·d = {saved:,} elements per "
            f"sample whatever the depth, and works the {self.blocks} blocks out again one by one, a forward more; "
            f"ordinary residuals keep at least the inputs of all sub-layers, {self.blocks}·2·N·d = "
            f"{self.blocks * saved:,}, and all that is inside them, attention matrices too"
        )
