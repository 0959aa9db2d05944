"""Stand-alone self-attention: a position reads the window around it, in place of a convolution."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Annotated, ClassVar, Literal

import msgspec

from xfcost.formulas.arithmetic import lesser
from xfcost.formulas.attention import DenseAttention
from xfcost.formulas.component import (
    ComponentError,
    Grid,
    Heads,
    Mixer,
    Number,
    Observed,
    Operation,
    Place,
    Side,
    check_heads,
)
from xfcost.formulas.letters import Letter
from xfcost.formulas.neighbourhood import Neighbourhood, WindowSide
from xfcost.formulas.rows import elementwise, letter_power, linear
from xfcost.formulas.tensors import of_input, reading, saving_input
from xfcost.ledger.tensors import OUTPUT, RESIDUAL, Tensor, Tensors


class LocalAttention(Mixer, frozen=True, kw_only=True, tag="local_attention"):
    """Stand-alone self-attention, SASA (Ramachandran et al. 2019, §3.1, equations 2 and 3).

    N positions on a grid of r axes, width d, h heads of d_k = d/h. A position reads the W^r places of the window around
    it (W² on an image), which move with it; softmax is over all of them. Scores are not scaled.

        qkv            N·d·3d MACs, no biases
        gather         keys and values of all windows laid out: N·W^r·d elements each
        positions      an embedding per offset along each axis, d_k/r wide, per head: W·d parameters
        add_positions  N·W^r·d additions to the keys
        scores         N·W^r·d MACs, h·N·W^r entries kept
        weighted_sum   N·W^r·d MACs

    Over the border keys and values are zeros, as a padded 1×1 convolution without bias makes them: such a key is its
    position alone, takes part in the softmax, and brings nothing in. There is no output projection.

    With a stride s attention runs at the input's resolution, and means of s^r positions leave (§4.1); where the grid is
    no multiple of s the last ones are means of fewer. A residual takes the same means of x.
    """

    short_name = "Local self-attention"
    output_projection: ClassVar[bool] = False

    size: Annotated[WindowSide, Letter("W")] = 7
    """Side W of the window around a position, odd."""
    heads: Heads = 8
    """Number of attention heads h."""
    position: Literal["relative", "none"] = "relative"
    """Whether relative position embeddings are added to the keys."""
    stride: Annotated[Side, Letter(None)] = 1
    """Stride s along every axis, taken by average pooling after the attention."""

    def check(self, place: Place) -> None:
        check_heads(self.heads, None, place.dim)
        self.windows(place.grid).check()
        rank, head = len(place.grid.sides), place.dim // self.heads
        if self.position == "relative" and head % rank:
            raise ComponentError(
                "heads",
                f"{self.heads} heads are {head} wide, which the embeddings of {rank} axes can't share equally; "
                "expected a multiple of the axes, or position: none",
            )

    def windows(self, grid: Grid) -> Neighbourhood:
        """The windows around every position."""
        return Neighbourhood(grid, self.size)

    def cells(self, grid: Grid) -> Neighbourhood:
        """The output grid: one cell of s positions along every axis per output."""
        return Neighbourhood(grid, self.size, self.stride)

    def cell(self, grid: Grid) -> tuple[Number, ...]:
        """Sides of a cell, which is averaged."""
        return tuple(lesser(self.stride, side) for side in grid.sides)

    def out(self, place: Place) -> tuple[Grid, Number]:
        return (place.grid if self.stride == 1 else self.cells(place.grid).out), place.dim

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        return self.cells(grid).tokens(token, cell=True)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        return self.cells(grid).pairs(cell=True)

    def observed(self, place: Place) -> Observed:
        table = "it adds a table to keys that are gathered already: nothing in it numbers queries"
        return Observed(left_out=dict.fromkeys(("positions", "add_positions"), table))

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d, windows = place.grid.tokens, place.dim, self.windows(place.grid)
        yield of_input(linear("qkv", "Q, K, V projections", n, d, 3 * d, bias=False))
        yield windows.gather("gather_keys", "Gather the windows' keys", d, "qkv")
        if self.position == "relative":
            table = windows.places * d
            yield Operation(
                path="positions",
                title="Embeddings of offsets",
                params=self.size * d,
                moved=table,
                once=True,
                tensors=Tensors((), (Tensor(OUTPUT, (table,)),), beside=True),
                **windows.mixing,
            )
            summands = Tensor("gather_keys", (n, table)), Tensor("positions", (table,))
            attributes = windows.mixing | {"tensors": Tensors(summands, (Tensor(OUTPUT, (n, table)),))}
            yield elementwise("add_positions", "Add positions to keys", "add", n * table, **attributes)
        yield windows.gather("gather_values", "Gather the windows' values", d, "qkv")
        yield from DenseAttention(
            queries=1,
            keys=windows.places,
            groups=n,
            heads=self.heads,
            inner=d,
            mixing="local",
            reads=windows.mixing["reads"],
            # a mean stands for several queries: what outputs read is then not what queries score
            pairs=windows.pairs() if self.stride == 1 else None,
            fused=place.fused,
            scaled=False,
            operands=("qkv", "gather_keys" if self.position == "none" else "add_positions", "gather_values"),
            gathered=True,
        ).rows()
        if self.stride > 1:
            yield self._pool("pool", "Average pool", place)

    def _pool(self, path: str, title: str, place: Place) -> Operation:
        """Means over cells of s^r positions, clipped to the grid."""
        outputs, rank = self.cells(place.grid).out.tokens, len(place.grid.sides)
        cell = prod(self.cell(place.grid))
        tensors = saving_input(place.grid.tokens * place.dim, outputs * place.dim)
        row = elementwise(path, title, "mean", outputs * cell * place.dim, tensors=tensors)
        return msgspec.structs.replace(row, mixing="local", reads=letter_power("l", rank), reads_tokens=cell)

    def shortcut(self, place: Place) -> Iterator[Operation]:
        if self.stride > 1:
            yield reading(self._pool("residual_pool", "Average pool of the residual stream", place), RESIDUAL)

    def notes(self, place: Place) -> Iterator[str]:
        yield from self.windows(place.grid).notes("zeros that take part in the softmax")
