"""Detects work outside torch: no account counts what numpy does with a tensor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from torch import Tensor

TO_NUMPY: Final = "Tensor.numpy (work outside torch is not seen)"


@contextmanager
def handed_to_numpy(found: Counter[str]) -> Iterator[None]:
    """Count conversions of float tensors to numpy in `found`. Integers are indices and sizes and cost nothing.

    `numpy.asarray` calls Tensor.numpy, so it counts too.
    """
    own, to_numpy = vars(Tensor).get("numpy"), Tensor.numpy

    inside = False

    def counted(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        nonlocal inside
        if inside:  # a TorchFunctionMode repeats the call
            return to_numpy(tensor, *args, **kwargs)
        if tensor.is_floating_point() or tensor.is_complex():
            found[TO_NUMPY] += 1
        inside = True
        try:
            return to_numpy(tensor, *args, **kwargs)
        finally:
            inside = False

    setattr(Tensor, "numpy", counted)  # noqa: B010 - a plain assignment is refused for its type
    try:
        yield
    finally:
        if own is None:  # torch's method is defined in the base class
            delattr(Tensor, "numpy")
        else:
            setattr(Tensor, "numpy", own)  # noqa: B010
