"""FNet's token mixing (Lee-Thorp et al. 2022, equation 3)."""

from __future__ import annotations

import torch
from torch import Tensor

from references.plain import Options, Place, Weights


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """The real part of the transform over the width, then over the tokens."""
    return torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real
