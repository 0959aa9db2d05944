"""Notes that are of a kind which reports must know."""

from __future__ import annotations


class PaddingNote(str):
    """A note that tokens are padded to whole windows, blocks or chunks: costs then grow in steps."""

    __slots__ = ()
