"""Compressive attention (Rae et al. 2020, §3.1)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from references.plain import Options, Place, Weights
from references.relative import with_memory


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """With what stands in the module: what was evicted is compressed and pushes out the oldest."""
    slots = options.compressed_memory
    stood = weights.memory_1PD.expand(len(x), -1, -1)
    new = compressed(options, weights, weights.evicted_1ND.expand(len(x), -1, -1))
    kept = torch.cat([stood[:, :slots], new], 1)[:, -slots:]
    return with_memory(options, weights, x, torch.cat([kept, stood[:, slots:]], 1))


def compressed(options: Options, weights: Weights, evicted: Tensor) -> Tensor:
    """Every c of them made one, by torch's own convolution and pooling; a rest is dropped."""
    c, channels = options.compression, evicted.transpose(1, 2)
    if evicted.shape[1] < c:
        return evicted[:, :0]
    if options.function == "conv":
        kernel = weights.compress.weight.unflatten(1, (c, -1)).transpose(1, 2)
        return F.conv1d(channels, kernel, weights.compress.bias, stride=c).transpose(1, 2)
    pool = F.avg_pool1d if options.function == "mean" else F.max_pool1d
    return pool(channels, c).transpose(1, 2)
