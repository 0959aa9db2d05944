"""Every page in letters: one file per family, each with its EXAMPLES. A page that is missing fails the derivation."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from xfcost.mechanisms.base import Page, Place


def examples() -> dict[type[Page], list[tuple[Page, Place]]]:
    """EXAMPLES of all files of this folder."""
    found: dict[type[Page], list[tuple[Page, Place]]] = {}
    for module in iter_modules(__path__):
        found |= getattr(import_module(f"{__name__}.{module.name}"), "EXAMPLES", {})
    return found
