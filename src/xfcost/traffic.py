"""What an attention core reads from and writes to a device's main memory (HBM), plain and tiled as FlashAttention.

Dao et al. 2022, "FlashAttention", §3: the same MACs, another traffic. n queries, m keys, d their width, M elements of
on-chip memory (SRAM). The tiled formula is Θ(n·m·d²/M), the plain one Θ((n + m)·d + n·m).
"""

from __future__ import annotations

from typing import NamedTuple

from xfcost.arithmetic import Number, ceil_div


class Core(NamedTuple):
    """softmax(QKᵀ)V, so many times over: heads × groups × samples."""

    times: Number
    queries: Number
    keys: Number
    width: Number

    @property
    def least_on_chip(self) -> Number:
        """Elements below which not even one key's tile fits: M/4d must be at least 1."""
        return 4 * self.width


def plain(core: Core) -> Number:
    """Elements read and written where every step keeps its matrix (Dao et al. 2022, algorithm 0).

    S = QKᵀ reads Q and K and writes S; softmax reads S and writes P; PV reads P and V and writes the output.
    """
    vectors = 2 * core.queries * core.width + 2 * core.keys * core.width
    return core.times * (vectors + 4 * core.queries * core.keys)


def tiled(core: Core, on_chip: Number) -> Number:
    """Elements read and written by FlashAttention (Dao et al. 2022, algorithm 1) with `on_chip` elements of SRAM.

    Keys and values are read once, in ⌈m / B⌉ blocks of B = ⌈M / 4d⌉; for each of them all queries, outputs and the two
    statistics per query are read, and outputs and statistics written.
    """
    blocks = ceil_div(core.keys, ceil_div(on_chip, 4 * core.width))
    per_block = 3 * core.queries * core.width + 4 * core.queries
    return core.times * (2 * core.keys * core.width + blocks * per_block)
