"""Images and patches in a config: a size is one number or two."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from xfcost.formulas.component import Side
from xfcost.ledger.errors import ComponentError

# Not a tuple of two: msgspec 0.22 corrupts memory on a union of a bounded int and a fixed-length tuple.
STAGES: Final = msgspec.Meta(min_length=1, max_length=12)
Size = Side | Annotated[list[Side], msgspec.Meta(min_length=2, max_length=2)]


def sides(size: int | list[int]) -> tuple[int, int]:
    """(height, width)."""
    height, width = (size, size) if isinstance(size, int) else size
    return height, width


def square(size: int | list[int]) -> int:
    """The side of a square patch."""
    return sides(size)[0]


def image(size: int | list[int], channels: int) -> dict[str, Any]:
    """The input of a spec."""
    height, width = sides(size)
    return {"kind": "image", "size": height if height == width else [height, width], "channels": channels}


def check_lengths(config: msgspec.Struct, stages_field: str, *fields: str) -> None:
    """Raise ComponentError if a list has not one item per stage; `stages_field` has their number, or one for each."""
    given = getattr(config, stages_field)
    stages = given if isinstance(given, int) else len(given)
    for field in fields:
        items = len(getattr(config, field))
        if items != stages:
            raise ComponentError(field, f"expected {stages} items, one per stage ({stages_field}), got {items}")


def check_patches(size: int | list[int], patch: int | list[int]) -> None:
    """Raise ComponentError if patches are not square or don't tile the image."""
    height, width = sides(patch)
    if height != width:
        raise ComponentError("patch_size", f"expected square patches, got {height}×{width}")
    if any(side % height for side in sides(size)):
        shown = "×".join(str(side) for side in sides(size))
        raise ComponentError("patch_size", f"{height} does not divide the image {shown} (image_size)")
