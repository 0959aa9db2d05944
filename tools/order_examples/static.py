"""Token mixing with learned, fixed weights or none: Mixer, ResMLP, gMLP, PoolFormer, ConvNeXt."""

from __future__ import annotations

from order_examples.letters import W, d, k, place, s
from xfcost.grid import Grid
from xfcost.mechanisms import AveragePool, ConvNext, Gmlp, TokenLinear, TokenMlp
from xfcost.mechanisms.base import Page, Place

RANKS = [place(grid=Grid(sides)) for sides in ((s * s,), (s, s), (s, s, 1))]

EXAMPLES: dict[type[Page], list[tuple[Page, Place]]] = {
    TokenMlp: [(TokenMlp(hidden=k), place())],
    TokenLinear: [(TokenLinear(), place())],
    Gmlp: [(Gmlp(hidden=2 * d), place())],
    AveragePool: [(AveragePool(size=2 * W + 1), spot) for spot in RANKS],
    ConvNext: [(ConvNext(size=2 * W + 1), spot) for spot in RANKS],
}
