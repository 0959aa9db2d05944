"""`xfcost diagram`."""

from __future__ import annotations

from typing import Annotated

import typer

from xfcost.errors import UsageError


def run(specs: Annotated[list[str], typer.Argument(help="Presets or paths.")]) -> None:
    """One block of each system, sub-layer by sub-layer, side by side."""
    raise UsageError(f"diagram {' '.join(specs)}: not written yet")
