"""Which files a spec may extend: presets, and files in the folder of the spec that the user named."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from xfcost.ledger.errors import UsageError

_ALLOW_OUTSIDE: ContextVar[bool] = ContextVar("_ALLOW_OUTSIDE", default=False)


@contextmanager
def allow_outside() -> Iterator[None]:
    """Inside the block, specs may extend files of any folder: `xfcost --allow-outside`."""
    token = _ALLOW_OUTSIDE.set(True)
    try:
        yield
    finally:
        _ALLOW_OUTSIDE.reset(token)


def outside_allowed() -> bool:
    """May specs extend files of any folder?"""
    return _ALLOW_OUTSIDE.get()


def check_inside(path: Path, path_text: str, spec: Path, spec_text: str) -> None:
    """Refuse a file outside the folder of `spec`, links and `..` resolved, before anything is read of it.

    Raises:
        UsageError: it lies outside, and that isn't allowed.
    """
    folder = os.path.realpath(spec.parent)
    if outside_allowed() or Path(os.path.realpath(path)).is_relative_to(folder):
        return
    raise UsageError(
        f"{path_text} lies outside the folder of {spec_text}, and is not read; copy it there, or where you trust the "
        "spec write `xfcost --allow-outside` before the command"
    )
