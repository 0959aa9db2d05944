"""Full attention (Vaswani et al. 2017, §3.2) and what later models changed of it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from references.plain import Options, Place, Weights, attend, everything, linear, up_to_itself

# ALiBi's slopes by the number of heads (Press et al. 2022, §3; other numbers than powers of two as in its code).
SLOPES = {
    1: [1 / 256],
    2: [1 / 16, 1 / 256],
    3: [1 / 16, 1 / 256, 1 / 4],
    6: [1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8],
}


def turned(x: Tensor, width: int, base: float) -> Tensor:
    """Rotary positions (Su et al. 2021, equation 34), one head and one pair of columns i, i + K/2 after the other."""
    columns = list(x.unbind(-1))
    for first in range(0, len(columns), width):
        for pair in range(width // 2):
            one, other = first + pair, first + pair + width // 2
            angles = [at * base ** (-2 * pair / width) for at in range(x.shape[1])]
            cos, sin = single([math.cos(angle) for angle in angles]), single([math.sin(angle) for angle in angles])
            a, b = columns[one], columns[other]
            columns[one], columns[other] = a * cos - b * sin, b * cos + a * sin
    return torch.stack(columns, -1)


def single(numbers: list[float]) -> Tensor:
    """As a table in single precision holds them."""
    return torch.tensor(numbers, dtype=torch.float32).double()


def queries_keys_values(options: Options, leaf: Weights, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of every head of queries; head h reads the keys of head ⌊h/shared⌋ (Ainslie et al. 2023, §2.2)."""
    groups = options.kv_heads or options.heads
    width = options.head_dim or x.shape[-1] // options.heads
    values = getattr(options, "value_dim", None) or width
    wide = linear(leaf, x)
    asks, keys = options.heads * width, groups * width
    q, k, v = wide[..., :asks], wide[..., asks : asks + keys], wide[..., asks + keys :]
    if options.position == "rope":
        q, k = (turned(part, width, options.rope_base) for part in (q, k))
    of = [head * groups // options.heads for head in range(options.heads)]
    k = torch.cat([k[..., group * width : (group + 1) * width] for group in of], -1)
    v = torch.cat([v[..., group * values : (group + 1) * values] for group in of], -1)
    return q, k, v


def bucket(away: int, count: int, distance: int, *, causal: bool) -> int:
    """T5's bucket of a key `away` tokens after its query, by whole numbers alone (no logarithm is rounded).

    Of the buckets that are not exact, the i-th begins at exact·(distance/exact)^(i/more).
    """
    side = count if causal else count // 2
    first = side if away > 0 and not causal else 0
    away = max(-away, 0) if causal else abs(away)
    exact = side // 2
    if away < exact:
        return first + away
    more = side - exact
    begun = sum(away**more * exact**i >= exact**more * distance**i for i in range(1, more))
    return first + exact + begun


def bias(options: Options, weights: Weights, tokens: int) -> Tensor | None:
    """(H, N, N), pair by pair."""
    if options.bias:
        count, distance = options.bias.count, options.bias.distance
        rows = [
            [bucket(j - i, count, distance, causal=bool(options.causal)) for j in range(tokens)] for i in range(tokens)
        ]
        return torch.stack([torch.stack([weights.relative_bias.weight[row] for row in line]) for line in rows]).permute(
            2, 0, 1
        )
    if options.position == "alibi":
        back = torch.tensor([[float(i - j) for j in range(tokens)] for i in range(tokens)], dtype=torch.float64)
        return torch.stack([-slope * back for slope in SLOPES[options.heads]])
    return None


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    q, k, v = queries_keys_values(options, weights.qkv, x)
    if not options.scaled:
        q = q * math.sqrt(q.shape[-1] // options.heads)
    reads = up_to_itself if options.causal else everything
    if options.talking_heads:
        y = talking(options.heads, weights.core, (q, k, v))
    else:
        y = attend(q, k, v, options.heads, reads, bias(options, weights, place.total))
    return linear(weights.out, y) if options.output_projection else y


def talking(heads: int, core: Weights, parts: tuple[Tensor, ...]) -> Tensor:
    """Every head's scores are a sum of all heads' with P_l, its weights one with P_w (Shazeer et al. 2020, §2)."""
    q, k, v = (part.chunk(heads, -1) for part in parts)
    scores = [torch.einsum("bnk,bmk->bnm", q[h], k[h]) / math.sqrt(q[h].shape[-1]) for h in range(heads)]
    mixed = [
        sum(core.proj_l.weight[i, h] * scores[h] for h in range(heads)) + core.proj_l.bias[i] for i in range(heads)
    ]
    given = [one.softmax(-1) for one in mixed]
    back = [sum(core.proj_w.weight[i, h] * given[h] for h in range(heads)) + core.proj_w.bias[i] for i in range(heads)]
    return torch.cat([back[h] @ v[h] for h in range(heads)], -1)
