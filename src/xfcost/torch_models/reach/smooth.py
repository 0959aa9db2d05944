"""Functions under which no change hides, in place of those that hide some: a rectifier where it is 0, a maximum."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

_RECTIFIERS: Final = frozenset(("relu", "relu6", "hardtanh", "hardswish", "threshold"))
_MEANS: Final[Mapping[str, Callable[..., Tensor]]] = {
    "max_pool1d": F.avg_pool1d,
    "max_pool2d": F.avg_pool2d,
    "max_pool3d": F.avg_pool3d,
}


class Smooth(TorchFunctionMode):
    """Inside it rectifiers are smooth and rise everywhere, and maxima over windows are means.

    What can influence an output stays the same: a rectifier lets through what is above 0, and any number of a window
    can be its maximum.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name, given = getattr(func, "__name__", ""), dict(kwargs or {})
        if name.rstrip("_") in _RECTIFIERS and args and isinstance(args[0], Tensor):
            smooth = args[0] + torch.tanh(args[0])
            return args[0].copy_(smooth) if name.endswith("_") or given.get("inplace") else smooth
        if name in _MEANS and _plain(args, given):
            return _mean(_MEANS[name], args, given)
        return func(*args, **given)


def _mean(pool: Callable[..., Tensor], args: tuple[Any, ...], given: Mapping[str, Any]) -> Tensor:
    order = ("input", "kernel_size", "stride", "padding", "dilation", "ceil_mode")
    named = {**dict(zip(order, args, strict=False)), **given}
    names = ("input", "kernel_size", "stride", "padding", "ceil_mode")
    return pool(**{name: named[name] for name in names if name in named})


def _plain(args: tuple[Any, ...], given: Mapping[str, Any]) -> bool:
    """Is it a window without gaps, whose places are not asked for?"""
    dilations = (*args[4:5], *([given["dilation"]] if "dilation" in given else []))
    gaps = any(one != 1 for each in dilations for one in (each if isinstance(each, tuple | list) else (each,)))
    return not gaps and not given.get("return_indices")
