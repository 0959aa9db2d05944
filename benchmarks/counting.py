"""CPU seconds to count the common family at 100 values of N in one process without torch, best of three.

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
    # square numbers fit every system, folded grids too
    sides = [round(LOW**0.5 * (HIGH / LOW) ** (0.5 * step / (VALUES - 1))) for step in range(VALUES)]
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        for spec in loaded:
            for side in sides:
                count(place(spec, Run(tokens=(side * side,))), orders=False).total("macs")
        best = min(best, time.process_time() - start)
    print(f"{len(loaded)} systems at {VALUES} values of N: {best:.2f} CPU s, torch imported: {'torch' in sys.modules}")


if __name__ == "__main__":
    main()
