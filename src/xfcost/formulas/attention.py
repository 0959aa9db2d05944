"""The attention core softmax(QKᵀ/√d_k + bias)V, eager or fused, between projections, and with relative positions."""

from __future__ import annotations

from xfcost.formulas.arithmetic import ceil_div
from xfcost.formulas.component import Number
from xfcost.ledger.matrices import AttentionCore

# Main-memory (HBM) traffic of an attention core: plain, and tiled as FlashAttention does it ──────────────────────────
# Dao et al. 2022, "FlashAttention", §3: the same MACs, less traffic. n queries, m keys, width d, M elements of on-chip
# memory (SRAM). Keys and values may have different widths d_k and d_v; d is then their mean. The tiled formula is
# Θ(n·m·d²/M), the plain one Θ((n + m)·d + n·m).


def plain(core: AttentionCore) -> Number:
    """Elements read and written if every step writes its matrix (Dao et al. 2022, algorithm 0).

    S = QKᵀ reads Q and K and writes S; softmax reads S and writes P; PV reads P and V and writes the output.
    """
    return core.times * ((core.queries + core.keys) * core.key_value_width + 4 * core.queries * core.keys)


def tiled(core: AttentionCore, on_chip: Number) -> Number:
    """Elements read and written by FlashAttention (Dao et al. 2022, algorithm 1) with `on_chip` elements of SRAM.

    Keys and values are read once, in ⌈m / B⌉ blocks of B = ⌈M / 4d⌉. For each block all queries, outputs and the two
    statistics per query are read; outputs and statistics are written.
    """
    blocks = ceil_div(core.keys, ceil_div(on_chip, 2 * core.key_value_width))
    per_block = core.queries * (core.key_value_width + core.values) + 4 * core.queries
    return core.times * (core.keys * core.key_value_width + blocks * per_block)
