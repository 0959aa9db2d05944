"""Rows whose kind, found without the spec, is known to differ from the declared one, with the reason."""

from __future__ import annotations

from fnmatch import fnmatch
from typing import Final


def reason_for(kind: str, row: str) -> str | None:
    """Why this row of a component differs, or None."""
    for pattern, reason in KNOWN.items():
        if any(fnmatch(f"{kind}.{row}", one) for one in pattern.split()):
            return reason
    return None


KNOWN: Final = {}
