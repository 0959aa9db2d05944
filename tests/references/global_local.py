"""Global-local attention (Ainslie et al. 2020, §3.1)."""

from __future__ import annotations

import torch
from torch import Tensor

from references.plain import Options, Place, Weights, attend, linear, thirds


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Four parts: global to all, all to global, and text to its r neighbours on each side."""
    g = place.special
    glob, text = x[:, :g], x[:, g:]
    if weights.qkv is not None:
        q, k, v = thirds(weights.qkv, x)
        asked_g, asked_t, of_global, of_text = q[:, :g], q[:, g:], (k, v), (k, v)
    else:
        asked_g, *g2g = thirds(weights.global_qkv, glob)
        asked_t, *l2l = thirds(weights.long_qkv, text)
        g2l, l2g = thirds(weights.g2l_kv, text, 2), thirds(weights.l2g_kv, glob, 2)
        of_global = [torch.cat(pair, 1) for pair in zip(g2g, g2l, strict=True)]
        of_text = [torch.cat(pair, 1) for pair in zip(l2g, l2l, strict=True)]

    def near(n: int, m: int) -> bool:
        return m < g or -options.radius <= m - g - n <= options.radius

    read = linear(weights.out, attend(asked_t, *of_text, options.heads, near))
    if not g:
        return read
    rows = attend(asked_g, *of_global, options.heads)
    return torch.cat([linear(weights.global_out or weights.out, rows), read], 1)
