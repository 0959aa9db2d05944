"""A process that gives no memory back to the system: its calls take no time to fill new pages."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

# Options of glibc's mallopt (malloc.h): blocks that may be mappings, and the free end that is given back.
_MAPPINGS: Final = -4
_TRIMMED: Final = -1
_KEEPING: Final = ((_MAPPINGS, 0), (_TRIMMED, 2**31 - 1))
_USUAL: Final = ((_MAPPINGS, 65536), (_TRIMMED, 64 * 2**20))


@contextmanager
def memory_is_kept() -> Iterator[bool]:
    """While it lasts, this process gives no memory back, and finds what it needs in the pages that it has.

    True where the C library can: glibc, which afterwards keeps to its usual limits without adapting them.
    """
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    option: Any = getattr(library, "mallopt", None)
    trim: Any = getattr(library, "malloc_trim", None)
    if option is None or trim is None:
        yield False
        return
    try:
        taken = [option(*one) for one in _KEEPING]
        yield all(taken)
    finally:
        for one in _USUAL:
            option(*one)
        trim(0)
