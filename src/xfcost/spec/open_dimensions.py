"""The letters of the open dimensions of a program's inputs: exported programs and ONNX files have names for them.

A program says which lengths are open, and not what they are: which is the batch, which are tokens, and which are the
height and width of an image follows from their places, and from their names where these say something.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

OpenLetter = Literal["B", "N", "H", "W"]
Sides = Sequence[int | str]
"""The lengths of an input; an open one is a text, empty where it has no name of its own."""

_BATCH: Final = re.compile(r"batch|^(b|bs|n_?samples)$", re.IGNORECASE)
_TOKENS: Final = re.compile(r"seq|len|token|time|frame|^[ntls]$", re.IGNORECASE)
# Lengths of what is there before, and of all together.
_OTHERS: Final = re.compile(r"past|total|cache|mem|kv|^k(ey)?_", re.IGNORECASE)
_IMAGE: Final = 4
_MOST_CHANNELS: Final = 4


def open_letters(inputs: Mapping[str, Sides]) -> dict[str, OpenLetter]:
    """Open dimension -> its letter; those that have none are left out.

    H and W are the open sides of a (B, C, H, W) or (B, H, W, C) with up to four channels, if no other input has them;
    of a square image both are one dimension, H. B leads images, or is named so, or only ever leads inputs of several
    axes. N is the first of the others whose name speaks of a sequence, or the first of all others.
    """
    found: dict[str, OpenLetter] = {}
    dimensions = list(
        dict.fromkeys(side for sides in inputs.values() for side in sides if isinstance(side, str) and side)
    )
    for name, own in inputs.items():
        elsewhere = {side for other, theirs in inputs.items() if other != name for side in theirs}
        found |= {side: letter for side, letter in _of_image(own).items() if side not in elsewhere}
    rest = [one for one in dimensions if one not in found]
    of_images = [sides[0] for sides in inputs.values() if _has_channels(sides) and sides[0] in rest]
    named = of_images or [one for one in rest if _BATCH.search(one)]
    leading = [one for one in rest if _only_leads(one, inputs.values()) and not _TOKENS.search(one)]
    if batch := next(iter(named or leading), None):
        found[batch] = "B"
        rest.remove(batch)
    tokens = [one for one in rest if not _OTHERS.search(one) and one not in named]
    first = next((one for one in tokens if _TOKENS.search(one)), next(iter(tokens), None))
    return found if first is None or found.keys() & set(_images(found)) else {**found, first: "N"}


def _images(found: Mapping[str, OpenLetter]) -> list[str]:
    return [side for side, letter in found.items() if letter in ("H", "W")]


def _of_image(sides: Sides) -> dict[str, OpenLetter]:
    """The open height and width of an image; {} of any other input."""
    if len(sides) != _IMAGE:
        return {}
    for channels, (height, width) in ((sides[1], sides[2:]), (sides[3], sides[1:3])):
        is_image = isinstance(channels, int) and channels <= _MOST_CHANNELS
        if is_image and isinstance(height, str) and isinstance(width, str) and height and width:
            return {width: "W", height: "H"}
    return {}


def _has_channels(sides: Sides) -> bool:
    """Is it an image, by the number of its channels?"""
    return len(sides) == _IMAGE and any(isinstance(one, int) and one <= _MOST_CHANNELS for one in (sides[1], sides[3]))


def _only_leads(dimension: str, inputs: Iterable[Sides]) -> bool:
    """Is it the first axis wherever it is, of an input of several axes at least once?"""
    having = [sides for sides in inputs if dimension in sides]
    return all(dimension not in sides[1:] for sides in having) and any(len(sides) > 1 for sides in having)
