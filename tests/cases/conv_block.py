"""Where the blocks of residual networks are tried."""

from __future__ import annotations

from xfcost.ledger.grid import Grid

# So many channels that no token has a rectified one alone.
WIDE = 24
# One token, one row, grids smaller than a kernel, odd ones under a stride, a volume.
AWKWARD = tuple(Grid(sides) for sides in [(1,), (2,), (5,), (1, 1), (1, 4), (7, 9), (8, 6), (2, 3, 4)])
