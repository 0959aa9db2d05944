"""The blocks of a stage at their places, in the order in which they run."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from xfcost.formulas.component import Joining, Place
from xfcost.ledger.grid import Grid
from xfcost.spec.architecture import Block, Part
from xfcost.spec.block_order import BlockOrder
from xfcost.spec.component_placement import ComponentPlacer
from xfcost.spec.grammar import StageSpec
from xfcost.spec.reader import YamlPath
from xfcost.spec.reversible import check_block
from xfcost.spec.schedule import labels, schedule

Shape = tuple[Grid, int]
"""The tokens between two blocks: their grid and width."""


class BlockPlacer:
    """Places the blocks of one stage. A block that repeats with another grid or width is another block."""

    def __init__(self, components: ComponentPlacer, path: YamlPath, stage: StageSpec, residual: Joining) -> None:
        self._components, self._residual, self._dim = components, residual, stage.dim
        self._written, self._order = schedule(path, stage, components.source)
        self._labels = labels(self._written)
        self._numbers: dict[tuple[int, Grid, int], int] = {}
        self._variants: Counter[int] = Counter()
        self._blocks: list[Block] = []
        self._outputs: list[Shape] = []

    def place(self, entering: Shape) -> tuple[tuple[Block, ...], BlockOrder, Shape]:
        """The distinct blocks, their order, and the shape that leaves the last one."""
        order, leaving = self._order.mapped(entering, self._block)
        times = order.counts()
        blocks = tuple(msgspec.structs.replace(block, times=times[number]) for number, block in enumerate(self._blocks))
        return blocks, order, leaving

    def _block(self, index: int, shape: Shape) -> tuple[int, Shape]:
        """The number of the written block `index` where tokens of this shape enter, and the shape that leaves it."""
        key = (index, *shape)
        if key not in self._numbers:
            self._numbers[key] = len(self._blocks)
            self._variants[index] += 1
            suffix = f"@{self._variants[index]}" if self._variants[index] > 1 else ""
            path, components = self._written[index]
            parts, leaving = self._sublayers(path, components, shape, suffix)
            self._blocks.append(Block(".".join(map(str, path)) + suffix, self._labels[index] + suffix, parts, 0))
            self._outputs.append(leaving)
        number = self._numbers[key]
        return number, self._outputs[number]

    def _sublayers(
        self, path: YamlPath, components: list[Any], shape: Shape, suffix: str
    ) -> tuple[tuple[Part, ...], Shape]:
        place = Place(grid=shape[0], dim=shape[1], out_dim=self._dim)
        parts = []
        for number, component in enumerate(components):
            if component.special_tokens_only and not self._components.run.extra_tokens:
                continue
            part = self._components.sublayer((*path, number), component, place, self._residual)
            if part is None:
                continue
            grid, dim = part.component.out(part.place)
            place = msgspec.structs.replace(place, grid=grid, dim=dim)
            parts.append(part._replace(path=".".join(map(str, (*path[:-1], f"{path[-1]}{suffix}", number)))))
        if not self._components.errors:
            check_block(path, parts, self._residual, self._components.source)
        return tuple(parts), (place.grid, place.dim)
