"""torch's threads on the CPU."""

from __future__ import annotations

import torch


def threads() -> int:
    """How many threads torch uses within an operation."""
    return torch.get_num_threads()


def use_threads(number: int) -> None:
    """Let torch use so many."""
    torch.set_num_threads(number)
