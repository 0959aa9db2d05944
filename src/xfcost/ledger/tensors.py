"""Types of the elements of tensors, and their widths."""

from __future__ import annotations

from typing import Final, Literal

Type = Literal["model", "statistic", "float32", "float64", "int64", "bool", "complex"]
"""Type of a tensor's elements: the model's, float32 or the model's if that is wider (`statistic`), two of these
(`complex`), or a fixed one."""
_FIXED: Final = {"float32": 4, "float64": 8, "int64": 8, "bool": 1}
_STATISTIC: Final = 4


def width_of(kind: Type, element: int) -> int:
    """Bytes of an element of this type, in a model whose elements have `element` bytes."""
    if kind == "model":
        return element
    wide = max(_STATISTIC, element)
    return {"statistic": wide, "complex": 2 * wide}.get(kind) or _FIXED[kind]
