"""Leaves that run one after the other."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn


class Chain(nn.Sequential):
    """Leaves by name, one after the other; an option that is off is None, and no leaf."""

    def __init__(self, **leaves: nn.Module | None) -> None:
        super().__init__(OrderedDict((name, leaf) for name, leaf in leaves.items() if leaf is not None))
