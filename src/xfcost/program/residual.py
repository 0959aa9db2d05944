"""A sub-layer inside its residual connection, as a program: norm, f, scales, the sum; and the end of two streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import msgspec

from xfcost.formulas.component import (
    Component,
    Grid,
    Joining,
    Mixer,
    Number,
    Operation,
    Place,
    Residual,
    SubLayer,
    behind,
    single_token,
)
from xfcost.ledger.kept import Kept
from xfcost.program.functions import added, average, beside, multiplied, overwritten
from xfcost.program.leaves import Weight
from xfcost.program.operations import Operations
from xfcost.program.symbolic import Tensor
from xfcost.program.tape import Tape


def in_residual(
    t: Operations, component: SubLayer, residual: Joining, place: Place, x: Tensor, *memory: Tensor,
    onto: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """x + f(norm(x)), norm(x + f(x)), x + norm(f(x)) or f(x): (B, N, D) -> (B, N', D').

    An f that pools has x pooled too; where it changes the width, its input is projected instead of x. In a reversible
    stage the sum is with `onto`, the other stream. A component of only special tokens is normed, scaled and added only
    on these (a mixer's norm is on all tokens that it reads), and `residual_rejoin` puts them back before the others.
    """
    special = component.special_tokens_only
    own = x.narrow(1, 0, place.grid.special) if special else x
    read = x if isinstance(component, Mixer) else own
    if residual == "none":
        y = t.component("inner", component, place, read, *memory)
    else:
        given = _norm(t, residual, read) if residual.place == "pre" else read
        y = t.component("inner", component, place, given, *memory)
        stream = component.skip(t, given, own, place) if onto is None else onto
        y = t.leaf("residual_add", added, stream, _scaled(t, residual, y), role="add")
        y = _norm(t, residual, y) if residual.place == "post" else y
    return t.leaf("residual_rejoin", overwritten, y, x) if special else y


def branch(
    t: Operations, component: SubLayer, residual: Residual, place: Place, x: Tensor, *memory: Tensor
) -> Tensor:  # fmt: skip
    """The residual branch of a reversible stage: f(norm(x)) or norm(f(x)), scaled."""
    given = _norm(t, residual, x) if residual.place == "pre" else x
    return _scaled(t, residual, t.component("inner", component, place, given, *memory))


def _norm(t: Operations, residual: Residual, x: Tensor) -> Tensor:
    return t.norm("residual_norm", x, residual.norm, role="norm")


def _scaled(t: Operations, residual: Residual, y: Tensor) -> Tensor:
    """What f returns, normed if its norm is there; LayerScale's d learned numbers, a fixed factor, both or none."""
    if residual.place == "res_post":
        y = _norm(t, residual, y)
    if residual.layer_scale is not None:
        scale = Weight((y.shape[-1],), residual.layer_scale)
        y = t.leaf("residual_layer_scale", multiplied, y, weights=(scale,))
    if residual.factor is not None:
        title = f"Scale by {residual.factor:g}"
        y = t.leaf("residual_factor", multiplied, y, options={"factor": residual.factor}, title=title)
    return y


def component_rows(
    component: Component, place: Place, residual: Joining | None = None, *, decodes: bool = False, cached: int = 0
) -> Sequence[Operation]:
    """The rows of a component, of one sample: alone, or as a sub-layer inside its `residual` connection.

    In a decode step, those of the last token of the place's grid, with the earlier tokens cached; or those of all
    tokens behind the first `cached` ones. Rows of plain sizes are kept, as a model and its relatives have the same
    components again and again.

    Raises:
        ComponentError: the component has no decode step, or does not run behind a cached prefix.
    """
    sizes = (place.dim, *place.grid.sides, *(place.memory.sides if place.memory else ()))
    plain = all(type(size) is int for size in sizes)  # letters are equal to the numbers that they stand for
    return (kept_rows if plain else rows_of)(component, place, residual, decodes, cached)


def rows_of(
    component: Component, place: Place, residual: Joining | None, decodes: bool, cached: int = 0
) -> tuple[Operation, ...]:
    """The rows of a run of the program."""
    if decodes:
        component.check_decodes(place)
        place = single_token(place) if component.token_wise else place
    if cached:
        component.check_continues(place)
        whole, place = place.grid.total, behind(place, cached)
    tape = Tape(decodes=decodes, cached=cached)
    tape.lora = place.lora
    x, *memory = tape.inputs(component, place)
    if residual is None or not isinstance(component, SubLayer):
        y = tape.component("", component, place, x, *memory)
    else:
        x = tape.input(1 if decodes else place.grid.total, place.dim)  # of these a class layer reads the special ones
        y = in_residual(tape, component, residual, place, x, *memory)
    rows = tape.rows_with_costs(y)
    if not cached:
        return rows
    # what reads all tokens of the pass reads those of the prefix too, through its cache or state
    of_pass = [row for row in rows if row.mixing == "global" and row.reads_tokens == place.grid.total]
    return tuple(msgspec.structs.replace(row, reads_tokens=whole) if row in of_pass else row for row in rows)


kept_rows = Kept(rows_of)


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

    def forward(self, t: Operations, x: Tensor, place: Place, second: Tensor | None = None) -> Tensor:
        ends: dict[str, tuple[Callable[..., Tensor], str]] = {
            "concatenate": (beside, "Concatenate the two streams"),
            "mean": (average, "Mean of the two streams"),
        }
        function, title = ends[self.join]
        return t.leaf("join", function, x, x if second is None else second, title=title)

    def notes(self, place: Place) -> Iterator[str]:
        saved = 2 * place.grid.total * place.dim
        yield (
            f"reversible: for the backward pass training keeps both streams at the end, 2·N·d = {saved:,} elements per "
            f"sample whatever the depth, and works the {self.blocks} blocks out again one by one, a forward more; "
            f"ordinary residuals keep at least the inputs of all sub-layers, {self.blocks}·2·N·d = "
            f"{self.blocks * saved:,}, and all that is inside them, attention matrices too"
        )
