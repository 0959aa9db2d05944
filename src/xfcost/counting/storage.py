"""Storages of activations that are followed through a model."""

from __future__ import annotations

from typing import NamedTuple


class Held(NamedTuple):
    """A storage between two components."""

    elements: int
    """Of one sample."""
    width: int
    """Bytes of an element."""
    gradient: bool
    saved: bool = False
    by_channel: bool = False
    """Are its tokens those of a grid that lies channel by channel?"""


class Storage:
    """A storage of activations, and whether autograd has saved it."""

    __slots__ = ("by_channel", "elements", "gradient", "once", "saved", "width")

    def __init__(self, held: Held, *, once: bool = False) -> None:
        self.elements, self.width, self.gradient, self.saved, self.by_channel = held
        self.once = once
        """Is it the same for all samples?"""

    @property
    def held(self) -> Held:
        """What the next component needs to know of it."""
        return Held(self.elements, self.width, self.gradient, self.saved, self.by_channel)
