"""`xfcost glance`."""

from __future__ import annotations

from typing import Annotated

import typer

from xfcost.errors import UsageError


def run(specs: Annotated[list[str], typer.Argument(help="Presets or paths.")]) -> None:
    """Every named operation of these systems on one page: its kind, its order, where it occurs, its parameters."""
    raise UsageError(f"glance {' '.join(specs)}: not written yet")
