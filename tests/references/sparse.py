"""Sparse Transformers' factorised attention (Child et al. 2019, §4.3 and §5.1)."""

from __future__ import annotations

import torch
from torch import Tensor

from references.plain import Options, Place, Weights, attend, linear


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Equations 6 to 8; `heads` projects one factor after the other, with half of the heads each."""
    factors = {"local": local, "long": long}
    patterns = list(factors.values()) if options.integration == "heads" else [factors.get(options.integration, either)]
    heads = options.heads // len(patterns)
    wide = linear(weights.qkv, x)
    each = wide.shape[-1] // len(patterns)
    width = options.head_dim or place.dim // options.heads
    keys = heads * (options.key_dim or width)
    answers = []
    for number, pattern in enumerate(patterns):
        mine = wide[..., number * each : (number + 1) * each]
        q, k, v = mine[..., :keys], mine[..., keys : 2 * keys], mine[..., 2 * keys :]

        def reads(n: int, m: int, pattern=pattern) -> bool:
            return pattern(options, n, m) and (m <= n or not options.causal)

        answers.append(attend(q, k, v, heads, reads))
    return linear(weights.out, torch.cat(answers, -1))


def local(options: Options, n: int, m: int) -> bool:
    """The last l tokens, or those of a token's own block."""
    stride = options.stride
    return abs(n - m) <= stride if options.pattern == "strided" else n // stride == m // stride


def long(options: Options, n: int, m: int) -> bool:
    """Every l-th token, or the last c of every block."""
    stride = options.stride
    return (n - m) % stride == 0 if options.pattern == "strided" else m % stride >= stride - options.summary


def either(options: Options, n: int, m: int) -> bool:
    return local(options, n, m) or long(options, n, m)
