"""Counting the whole common family at 100 values of N, in one process without torch: seconds, best of three.

Usage: python benchmarks/counting.py
"""

from __future__ import annotations

import sys
import time

from xfcost.counting.forward import count
from xfcost.spec.load import expanded, load
from xfcost.spec.placement import place
from xfcost.spec.run import Run

LOW, HIGH, VALUES = 128, 65536, 100


def main() -> None:
    """Print the seconds."""
    loaded = [load(name) for name in expanded(["common-*"])]
    # squares, which every system can have: a folded grid too
    sides = [round(LOW**0.5 * (HIGH / LOW) ** (0.5 * step / (VALUES - 1))) for step in range(VALUES)]
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        for one in loaded:
            for side in sides:
                count(place(one, Run(tokens=(side * side,)))).total("macs")
        best = min(best, time.perf_counter() - start)
    print(f"{len(loaded)} systems at {VALUES} values of N: {best:.2f} s, torch imported: {'torch' in sys.modules}")


if __name__ == "__main__":
    main()
