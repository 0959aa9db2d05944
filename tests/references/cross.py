"""Cross-attention (Vaswani et al. 2017, §3.2.3): queries of one stream, keys and values of another."""

from __future__ import annotations

import math

from torch import Tensor

from references.plain import Options, Place, Weights, attend, linear


def reference(options: Options, place: Place, weights: Weights, x: Tensor, memory: Tensor) -> Tensor:
    q, both = linear(weights.q, x), linear(weights.kv, memory)
    keys = q.shape[-1]
    if not options.scaled:
        q = q * math.sqrt(keys // options.heads)
    return linear(weights.out, attend(q, both[..., :keys], both[..., keys:], options.heads))
