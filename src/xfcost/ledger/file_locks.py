"""A lock on an open file, which the system takes away when the process that has it ends."""

from __future__ import annotations

import os
import sys
from typing import Final

if sys.platform == "win32":
    import msvcrt

    # A byte far behind the rows: Windows refuses others even to read what is locked.
    _LOCKED: Final = 2**40

    def lock(descriptor: int, *, wait: bool = False) -> None:
        """Lock it until it is closed or the process ends; without `wait` a BlockingIOError where another has it."""
        before = os.lseek(descriptor, 0, os.SEEK_CUR)
        os.lseek(descriptor, _LOCKED, os.SEEK_SET)
        try:
            while not _taken(descriptor, wait=wait):
                pass
        finally:
            os.lseek(descriptor, before, os.SEEK_SET)

    def _taken(descriptor: int, *, wait: bool) -> bool:
        """Windows waits for ten seconds at most."""
        try:
            msvcrt.locking(descriptor, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
        except PermissionError as error:
            raise BlockingIOError from error
        except OSError:
            if not wait:
                raise
            return False
        return True

else:
    import fcntl

    def lock(descriptor: int, *, wait: bool = False) -> None:
        """Lock it until it is closed or the process ends; without `wait` a BlockingIOError where another has it."""
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
