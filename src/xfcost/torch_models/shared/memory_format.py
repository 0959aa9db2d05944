"""The memory format that torch's kernels see in an image or a video."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

# Axes of images: batch, channels, height and width; and those of videos.
_AXES: Final = (4, 5)


def seen_as_channels_last(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Do kernels take a tensor that is not contiguous as channels-last? Others they copy.

    They look at the strides alone, also at that of an axis of one image (c10, is_channels_last_strides_2d): tokens that
    are looked at as one image have another there.
    """
    if len(sizes) not in _AXES or strides[1] == 0:
        return False
    least = 0
    for axis in (1, *range(len(sizes) - 1, 1, -1), 0):
        if strides[axis] < least or (axis == 0 and least == strides[1]):
            return False
        least = strides[axis] * max(sizes[axis], 1)
    return True
