"""Optimizers: states of a parameter, and FLOPs of its update."""

from __future__ import annotations

from typing import Final

import msgspec


class Optimizer(msgspec.Struct, frozen=True):
    """State and work of an optimizer per parameter."""

    numbers: int | None
    """Numbers of state per parameter, in float32; None if it depends on the parameters' shapes."""
    flops: int
    """FLOPs of one update per parameter."""
    source: str


# FLOPs per parameter of each update; the learning rate, betas and their powers cost nothing per parameter
OPTIMIZERS: Final[dict[str, Optimizer]] = {
    # the mean: 3, the mean square: 4, both without bias: 2, root, ε, division: 3, rate, subtraction: 2, decay: 1
    "adamw": Optimizer(2, 15, "Kingma and Ba 2015, algorithm 1; decoupled decay: Loshchilov and Hutter 2019"),
    "sgd": Optimizer(0, 2, "rate, subtraction"),
    "momentum": Optimizer(1, 4, "Polyak 1964, as torch: the mean 2, rate, subtraction 2"),
    # the square and ε: 2, means of rows and columns: 2, their product and its division: 2, root, division: 2,
    # the update's mean square and clipping: 3, rate, subtraction: 2
    "adafactor": Optimizer(None, 13, "Shazeer and Stern 2018, algorithm 4: rows + columns of a matrix, without β₁"),
    # the sign's mean: 3, its sign: 1, decay: 2, rate, subtraction: 2, the momentum: 3
    "lion": Optimizer(1, 11, "Chen et al. 2023, algorithm 2"),
}
# Bytes per number of optimizer states and master copies. Mixed precision stores them in float32, whatever the model's
# dtype (Micikevicius et al. 2018, §3.1; Rajbhandari et al. 2020, §3.1: 16 bytes per parameter with Adam).
STATE_BYTES: Final = 4
