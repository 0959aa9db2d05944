"""Functions that count as one operation by convention, but reach the dispatcher as several.

Their contractions are counted as they run. The convention counts the rest from the call's own tensors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional as F

from xfcost.formulas.arithmetic import ceil_log2
from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.torch_models.tracing.elementwise_costs import Costs


def _rms_norm_work(args: tuple[Any, ...], kwargs: dict[str, Any], result: Tensor) -> Costs:
    return Counter(flops=result.numel() * FLOPS_PER_ELEMENT["rms_norm"])


def _to_spectrum_work(args: tuple[Any, ...], kwargs: dict[str, Any], result: Tensor) -> Costs:
    """(x, n, axis): n real numbers along an axis to their spectrum, zero-padding of x to n included."""
    x, (n, axis) = args[0], _length_and_axis(args, kwargs)
    n = x.shape[axis] if n is None else n
    return Counter(flops=x.numel() // x.shape[axis] * _fourier_flops(n))


def _from_spectrum_work(args: tuple[Any, ...], kwargs: dict[str, Any], result: Tensor) -> Costs:
    """(spectrum, n, axis): the spectrum back to n real numbers."""
    axis = _length_and_axis(args, kwargs)[1]
    return Counter(flops=result.numel() // result.shape[axis] * _fourier_flops(result.shape[axis]))


def _length_and_axis(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int | None, int]:
    given = dict(zip(("n", "dim"), args[1:3], strict=False)) | kwargs
    return given.get("n"), given.get("dim", -1)


def _fourier_flops(n: int) -> int:
    """n real numbers cost as much as n/2 complex ones: 5·n/2·⌈log₂ n⌉ FLOPs."""
    return FLOPS_PER_ELEMENT["fft"] * n * ceil_log2(n) // 2


def _repeated(args: tuple[Any, ...], kwargs: dict[str, Any], result: Tensor) -> Costs:
    return Counter(moved=result.numel() if result.is_floating_point() else 0)


WHOLE: Final[dict[Any, Callable[[tuple[Any, ...], dict[str, Any], Tensor], Costs]]] = {
    F.rms_norm: _rms_norm_work,
    torch.rms_norm: _rms_norm_work,
    torch.fft.rfft: _to_spectrum_work,
    torch.fft.irfft: _from_spectrum_work,
    torch.repeat_interleave: _repeated,
    Tensor.repeat_interleave: _repeated,
}
