"""How fast the machine runs at the moment: a product that all threads share, timed for a tenth of a second.

A machine has more than one pace. A virtual machine's cores may move to other cores of the host, for minutes, where
the same product takes a quarter longer; a processor may be throttled. Large products and the bandwidth of memory need
not show it: this one is of the size that models have.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Final

import torch

_ROWS: Final = 196
_WIDTH: Final = 384
_RUNS: Final = 40


class Pace:
    """Called, it gives the seconds of the product now."""

    def __init__(self, device: str, dtype: str, clock: Callable[[], float]) -> None:
        kind = getattr(torch, dtype)
        self._tokens = torch.ones(_ROWS, _WIDTH, dtype=kind, device=device)
        self._weight = torch.ones(_WIDTH, 4 * _WIDTH, dtype=kind, device=device)
        self._clock = clock

    def __call__(self) -> float:
        times = []
        for _ in range(_RUNS):
            started = self._clock()
            torch.mm(self._tokens, self._weight)
            times.append(self._clock() - started)
        return statistics.median(times)
