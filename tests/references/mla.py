"""Multi-head latent attention (DeepSeek-V2, equations 9 to 19)."""

from __future__ import annotations

import torch
from torch import Tensor

from references.full import turned
from references.plain import Options, Place, Weights, attend, everything, linear, rms_norm, up_to_itself


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Head by head: c = x W_D, k = [c W_K, turned(x W_R)], v = c W_V, q likewise."""
    r, base = options.rope_dim, options.rope_base
    width = options.head_dim or place.dim // options.heads
    values = options.value_dim or width
    down = linear(weights.kv_down, x)
    latent = rms_norm(weights.kv_norm, down[..., : options.kv_rank])
    shared = turned(down[..., options.kv_rank :], r, base)
    if options.q_rank:
        queries = linear(weights.q_up, rms_norm(weights.q_norm, linear(weights.q_down, x)))
    else:
        queries = linear(weights.q, x)
    both = linear(weights.kv_up, latent)
    q, k, v = [], [], []
    for head in range(options.heads):
        mine = queries[..., head * (width + r) : (head + 1) * (width + r)]
        made = both[..., head * (width + values) : (head + 1) * (width + values)]
        q += [mine[..., :width], turned(mine[..., width:], r, base)]
        k += [made[..., :width], shared]
        v += [made[..., width:]]
    joined = [torch.cat(parts, -1) for parts in (q, k, v)]
    reads = up_to_itself if options.causal else everything
    return linear(weights.out, attend(*joined, options.heads, reads))
