"""`python -m xfcost`, and the console script. An interrupt ends it without traceback from the first import on."""

from __future__ import annotations

import atexit
import gc
from typing import Final

from xfcost.report.messages import end_on_interrupt

# Imports and answers make this many objects and hardly any garbage, so collecting it earlier only costs time.
OBJECTS: Final = 100_000


def main() -> None:
    """Run the command line."""
    end_on_interrupt()
    atexit.register(gc.freeze)  # nothing to collect in a process that ends; to look for it takes 0.4 s with torch
    gc.set_threshold(OBJECTS)
    from xfcost.cli import main as run

    run()


if __name__ == "__main__":
    main()
