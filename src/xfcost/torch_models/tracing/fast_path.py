"""torch's fast path of encoders."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def without_fast_path() -> Iterator[None]:
    """torch runs an encoder in evaluation mode as one operation on nested tensors. An account needs its parts."""
    was_on = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(was_on)
