"""Sliding windows with global tokens (Beltagy et al. 2020, §3.1); causal ones (Jiang et al. 2023, §2)."""

from __future__ import annotations

import torch
from torch import Tensor

from references.full import queries_keys_values
from references.plain import Options, Place, Weights, attend, linear


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Rows of global tokens by projections of their own, where there are any."""
    g = options.global_tokens

    def reads(n: int, m: int) -> bool:
        steps, rest = divmod(n - m, options.dilation)
        near = 0 <= steps < options.window if options.causal else -options.window <= 2 * steps <= options.window
        return (rest == 0 and near) or n < g or m < g

    q, k, v = queries_keys_values(options, weights.qkv, x)
    read = attend(q, k, v, options.heads, reads)
    if g and options.global_projections is not False:
        keys = linear(weights.global_kv, x)
        half = keys.shape[-1] // 2
        rows = attend(linear(weights.global_q, x[:, :g]), keys[..., :half], keys[..., half:], options.heads)
        read = torch.cat([rows, read[:, g:]], 1)
    return linear(weights.out, read)
