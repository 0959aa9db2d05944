"""Which files a spec may extend: presets, and what lies in the folder of the file that the user named."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from xfcost.ledger.errors import UsageError

_ALLOWED: ContextVar[bool] = ContextVar("_ALLOWED", default=False)


@contextmanager
def allow_outside() -> Iterator[None]:
    """Inside the block, specs may extend files of any folder: `xfcost --allow-outside`."""
    token = _ALLOWED.set(True)
    try:
        yield
    finally:
        _ALLOWED.reset(token)


def check_inside(path: Path, shown: str, first: Path, first_shown: str) -> None:
    """Refuse a file that isn't in the folder of `first`, links and `..` followed, before anything is read of it.

    Raises:
        UsageError: it lies outside, and that isn't allowed.
    """
    folder = os.path.realpath(first.parent)
    if _ALLOWED.get() or Path(os.path.realpath(path)).is_relative_to(folder):
        return
    raise UsageError(
        f"{shown} lies outside the folder of {first_shown}, and is not read; copy it there, or where you trust the "
        "spec write `xfcost --allow-outside` before the command"
    )
