"""`xfcost plot`."""

from __future__ import annotations

from typing import Annotated

import typer

from xfcost.errors import UsageError


def run(specs: Annotated[list[str], typer.Argument(help="Presets or paths.")]) -> None:
    """How the cost of systems grows with N, as a log-log figure."""
    raise UsageError(f"plot {' '.join(specs)}: not written yet")
