"""Module of `layers/positions.py`: a learned vector per row and per column.

B batch, N tokens on a Y×X grid, D width.
"""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.layers.positions import AxisPosition
from xfcost.torch_models.shared.leaves import NO_TABLES, Add, Table, Tables


class AxisPositionEmbedding(nn.Module):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: AxisPosition, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__()
        height, width = place.grid.sides
        shared = tuple(tables[name] for name in config.tables(place))
        self.tables = RowsAndColumns(height, width, place.dim, shared)
        self.add = Add()

    def forward(self, x_BND: Tensor) -> Tensor:
        return self.add(x_BND, self.tables())


class RowsAndColumns(nn.Module):
    """-> (N, D): the vector of each position's row plus that of its column. `shared` are shared tables."""

    def __init__(self, height: int, width: int, dim: int, shared: tuple[Table, ...]) -> None:
        super().__init__()
        owned = () if shared else (Table(height, dim), Table(width, dim))
        for name, table in zip(("rows", "columns"), owned, strict=False):
            self.register_parameter(name, table.weight)
        self.shared_tables = shared  # in a tuple, so that torch does not register them

    def forward(self) -> Tensor:
        rows_YD, columns_XD = [table.weight for table in self.shared_tables] or self.parameters()
        return (rows_YD.unsqueeze(1) + columns_XD).flatten(0, 1)
