"""Presets and files, placed and counted."""

from __future__ import annotations

from typing import Any

from xfcost.counting.forward import count
from xfcost.ledger.ledger import Ledger
from xfcost.spec.architecture import Architecture
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.spec.run import Run


def architecture_of(name: str, *settings: str, **run: Any) -> Architecture:
    """The spec of this name with `--set` options, and the options of a run."""
    return place(load(name, settings), Run(**run))


def counted(name: str, *settings: str, **run: Any) -> Ledger:
    """Its counted account."""
    return count(architecture_of(name, *settings, **run))
