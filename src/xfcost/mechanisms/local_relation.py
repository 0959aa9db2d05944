"""The local relation layer: attention in a window by scalar queries and keys and a geometry prior."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import msgspec

from xfcost.formulas.arithmetic import ceil_div, greater
from xfcost.formulas.component import ComponentError, Grid, Letter, Mixer, Number, Operation, Place, Side, Width
from xfcost.formulas.neighbourhood import Neighbourhood, WindowSide
from xfcost.formulas.rows import elementwise, linear, matmul, move, on_raw_input, with_gradient_operands
from xfcost.formulas.tensors import copied, product
from xfcost.ledger.matrices import matrix
from xfcost.ledger.tensors import BEFORE, INPUT, OUTPUT, RESIDUAL, Tensor, Tensors


class LocalRelation(Mixer, frozen=True, kw_only=True, tag="local_relation"):
    """The local relation layer of LR-Net (Hu et al. 2019, §3.2, equations 3 to 6).

    N positions on a grid of r axes, width d; N' of them leave (N/s^r with the stride s). `share` = m channels have one
    weight: g = ⌈d/m⌉ groups, each with a query and a key of one number. A position's weights over the W^r places of the
    window around it are softmax(-(q - k)² + prior), where the prior is a function of the offset alone.

        q              N'·d·g MACs, k N·d·g MACs, no biases
        gather         keys and values of all windows laid out: N'·W^r·g and N'·W^r·g·m elements
        prior          2 -> g/2 -> g on the W^r offsets (r -> … on r axes): once for the whole batch
        scores         3·N'·g·W^r FLOPs, no MACs: one subtraction, one square, one sign; g·N'·W^r entries kept
        weighted_sum   N'·W^r·g·m MACs: values are the input itself
        out            N'·d² MACs

    Where m does not divide d the last group is filled up with zeros, which are summed up too. Over the border there are
    no keys: the public kernel sets their similarity to -100 before it adds the prior.
    """

    short_name = "Local relation"

    size: Annotated[WindowSide, Letter("W")] = 7
    """Side W of the window around a position, odd."""
    share: Annotated[Width, Letter("dₖ")] = 8
    """Channels m that share one aggregation weight."""
    stride: Annotated[Side, Letter(None)] = 1
    """Stride s along every axis."""

    def check(self, place: Place) -> None:
        self.windows(place.grid).check()
        if self.stride >= self.size:
            raise ComponentError(
                "stride",
                f"windows of {self.size} every {self.stride} positions don't overlap; use {self.size - 1} at most",
            )

    def windows(self, grid: Grid) -> Neighbourhood:
        """The windows around every s-th position."""
        return Neighbourhood(grid, self.size, self.stride)

    def groups(self, width: Number) -> Number:
        """g."""
        return ceil_div(width, self.share)

    def hidden(self, width: Number) -> Number:
        """Hidden width of the geometry prior."""
        return greater(1, self.groups(width) // 2)

    def out(self, place: Place) -> tuple[Grid, Number]:
        return (place.grid if self.stride == 1 else self.windows(place.grid).out), place.dim

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        return self.windows(grid).tokens(token)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        return self.windows(grid).pairs()

    def operations(self, place: Place) -> Iterator[Operation]:
        d, groups, windows = place.dim, self.groups(place.dim), self.windows(place.grid)
        leaving, filled = windows.out.tokens, groups * self.share
        yield self._queries(leaving, d)
        yield on_raw_input(linear("k", "Keys, one number per group", place.grid.tokens, d, groups, bias=False))
        yield windows.gather("gather_keys", "Gather the windows' keys", groups, "k")
        yield windows.gather("gather_values", "Gather the windows' values", d, INPUT, filled)
        yield from self._prior(windows, d)
        yield from self._weights(windows, groups)
        weights = Tensor("softmax", (leaving, groups, windows.places))
        values = Tensor("gather_values", (leaving, windows.places, filled))
        yield matmul(
            "weighted_sum",
            "Weighted sum AV",
            values.elements,
            tensors=product(weights, values, (leaving, filled)),
            content_dependent=True,
            takes_input=True,
            symbol="AV",
            **windows.mixing,
        )
        yield linear("out", "Output projection", leaving, d, d, bias=False)

    def _queries(self, leaving: Number, width: Number) -> Operation:
        """Every s-th position is copied first, and so saved, where s > 1."""
        row = on_raw_input(linear("q", "Queries, one number per group", leaving, width, self.groups(width), bias=False))
        if self.stride == 1 or row.tensors is None:
            return row
        tensors = msgspec.structs.replace(row.tensors, saves=(), makes=(Tensor("centres", (leaving, width)),))
        return msgspec.structs.replace(row, tensors=tensors)

    def _prior(self, windows: Neighbourhood, width: Number) -> Iterator[Operation]:
        """The geometry prior: a two-layer map of the offsets, from weights alone."""
        hidden = self.hidden(width)
        offsets = Tensor("offsets", (windows.places, windows.rank), held=True)
        of_offsets = Tensors((offsets,), (Tensor(OUTPUT, (windows.places, hidden)),))
        first = linear("prior_fc1", "Geometry prior", windows.places, windows.rank, hidden, bias=False)
        rows = (
            with_gradient_operands(msgspec.structs.replace(first, tensors=of_offsets), 1),
            elementwise("prior_act", "Activation", "relu", windows.places * hidden),
            linear("prior_fc2", "Geometry prior", windows.places, hidden, self.groups(width), bias=False),
        )
        yield from (msgspec.structs.replace(row, once=True) for row in rows)

    def _weights(self, windows: Neighbourhood, groups: Number) -> Iterator[Operation]:
        entries = groups * windows.out.tokens * windows.places
        content: dict[str, Any] = windows.mixing | {"content_dependent": True}
        shape = (groups, windows.out.tokens, windows.places)
        yield elementwise(
            "scores",
            "Similarities -(q - k)²",
            "add + multiply + add",
            entries,
            attention_entries=entries,
            matrix=matrix(entries),
            heads=groups,
            pairs=windows.pairs(),
            symbol="QKᵀ",
            tensors=_similarities(*shape),
            **content,
        )
        second, third = matrix(entries, entries), matrix(entries, 2 * entries, saved=True)
        local: dict[str, Any] = windows.mixing | {"matrix": second}
        facts = local | {"symbol": "mask", "tensors": copied(shape, shape)}
        yield Operation(path="mask", title="Mask over the border", **facts)
        summands = Tensor(BEFORE, shape), Tensor("prior_fc2", (groups, windows.places))
        facts = local | {"tensors": Tensors(summands, (Tensor(OUTPUT, shape),))}
        yield elementwise("add_prior", "Add the geometry prior", "add", entries, **facts)
        yield elementwise("softmax", "Softmax", "softmax", entries, matrix=third, symbol="softmax", **content)

    def shortcut(self, place: Place) -> Iterator[Operation]:
        if self.stride > 1:
            tensors = copied((place.grid.tokens, place.dim), (self.windows(place.grid).out.tokens, place.dim), RESIDUAL)
            yield move("residual_pool", f"Each {self.stride}-th position of the residual stream", tensors=tensors)

    def notes(self, place: Place) -> Iterator[str]:
        yield from self.windows(place.grid).notes("masked")
        filled = self.groups(place.dim) * self.share
        if filled != place.dim:
            yield (
                f"{place.dim} channels filled up to {filled} for groups of {self.share}: "
                f"{filled - place.dim} channels of zeros are summed up too, and counted"
            )
        if place.fused:
            yield "local relation has no dot products of queries and keys: there is no fused form of it"


def _similarities(groups: Number, queries: Number, places: Number) -> Tensors:
    """-(q - k)²: the differences are saved."""
    shape = (groups, queries, places)
    operands = Tensor("q", (groups, queries)), Tensor("gather_keys", shape)
    return Tensors(operands, (Tensor(OUTPUT, shape),), (), (Tensor("differences", shape),))
