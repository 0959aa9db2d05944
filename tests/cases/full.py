"""Full attention under the contract."""

from __future__ import annotations

import math

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from cases.base import HEADS, MechanismCase, Rows, masked_attention, readable
from xfcost.mechanisms import Full
from xfcost.mechanisms.base import Place
from xfcost.mechanisms.buckets import Buckets
from xfcost.mechanisms.grouped import Grouped


def turned(x_BND: Tensor, head_dim: int, base: float) -> Tensor:
    """Rotary positions, one head and one pair of columns after the other: each pair is a complex number."""
    columns = list(x_BND.unbind(-1))
    for first in range(0, len(columns), head_dim):
        for pair in range(head_dim // 2):
            one, other = first + pair, first + pair + head_dim // 2
            angles = [place * base ** (-2 * pair / head_dim) for place in range(x_BND.shape[1])]
            # the twin's tables are kept in float32
            cos = torch.tensor([math.cos(angle) for angle in angles], dtype=torch.float32).double()
            sin = torch.tensor([math.sin(angle) for angle in angles], dtype=torch.float32).double()
            a, b = columns[one], columns[other]
            columns[one], columns[other] = a * cos - b * sin, b * cos + a * sin
    return torch.stack(columns, dim=-1)


def repeated(x_BNE: Tensor, heads: int, shared: int) -> Tensor:
    """Every head of keys (or values) once for each head of queries that reads it."""
    parts = x_BNE.chunk(heads // shared, dim=-1)
    return torch.cat([part for part in parts for _ in range(shared)], dim=-1)


def projected(page: Grouped, place: Place, twin: nn.Module, x_BND: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, of all heads of queries, turned where they are."""
    keys, kv_heads = page.inner(place.dim), page.kv_heads or page.heads
    width = keys // page.heads
    values = getattr(page, "value_dim", None) or width
    widths = [keys, kv_heads * width, kv_heads * values]
    q, k, v = F.linear(x_BND, twin.qkv.weight, twin.qkv.bias).split(widths, dim=-1)
    if page.position == "rope":
        q, k = (turned(part, width, page.rope_base) for part in (q, k))
    return q, repeated(k, page.heads, page.shared), repeated(v, page.heads, page.shared)


def bucket(away: int, buckets: Buckets, *, causal: bool) -> int:
    """The bucket of a key `away` tokens after its query, by whole numbers alone (no logarithm is rounded).

    Of the buckets that are not exact, the i-th begins at exact·(distance/exact)^(i/more).
    """
    side = buckets.count if causal else buckets.count // 2
    first = side if away > 0 and not causal else 0
    away = max(-away, 0) if causal else abs(away)
    exact = side // 2
    if away < exact:
        return first + away
    more = side - exact
    begun = sum(away**more * exact**i >= exact**more * buckets.distance**i for i in range(1, more))
    return first + exact + begun


def bias(page: Full, twin: nn.Module, tokens: int) -> Tensor | None:
    """(H, N, N), pair by pair."""
    if page.bias:
        rows = [[bucket(j - i, page.bias, causal=bool(page.causal)) for j in range(tokens)] for i in range(tokens)]
        return torch.stack([torch.stack([twin.relative_bias.weight[row] for row in line]) for line in rows]).permute(
            2, 0, 1
        )
    if page.position == "alibi":
        slopes = {
            1: [1 / 256],
            2: [1 / 16, 1 / 256],
            3: [1 / 16, 1 / 256, 1 / 4],
            6: [1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8],
        }
        back = torch.arange(tokens)[:, None] - torch.arange(tokens)
        return torch.stack([-slope * back.double() for slope in slopes[page.heads]])
    return None


def reference(page: Full, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    q, k, v = projected(page, place, twin, x_BND)
    tokens = place.grid.total
    if not page.scaled:
        q = q * (q.shape[-1] // page.heads) ** 0.5
    may_read = readable(page, place.grid)
    if page.talking_heads:
        attended = talking(page, twin.core, (q, k, v), may_read)
    else:
        attended = masked_attention(q, k, v, page.heads, may_read, bias(page, twin, tokens))
    return F.linear(attended, twin.out.weight, twin.out.bias) if page.output_projection else attended


def talking(page: Full, core: nn.Module, parts: tuple[Tensor, ...], may_read_NN: Tensor) -> Tensor:
    """Every head's scores are a sum of all heads' with P_l, its weights one with P_w (Shazeer et al. 2020, §2)."""
    heads = range(page.heads)
    q, k, v = (part.chunk(page.heads, dim=-1) for part in parts)
    scores = [torch.einsum("bnk,bmk->bnm", q[h], k[h]) / q[h].shape[-1] ** 0.5 for h in heads]
    mixed = [sum(core.proj_l.weight[i, h] * scores[h] for h in heads) + core.proj_l.bias[i] for i in heads]
    weights = [one.masked_fill(~may_read_NN, -torch.inf).softmax(-1) for one in mixed]
    given = [sum(core.proj_w.weight[i, h] * weights[h] for h in heads) + core.proj_w.bias[i] for i in heads]
    return torch.cat([given[h] @ v[h] for h in heads], dim=-1)


PLAIN = (
    Full(heads=2),
    Full(heads=3, causal=True),
    Full(heads=1, head_dim=5, projection_bias=False),
    Full(heads=2, output_projection=False),
    Full(heads=2, projection_bias=False, output_bias=True),
    Full(heads=6, kv_heads=2, scaled=False),
    Full(heads=3, kv_heads=1, causal=True, projection_bias=False),
    Full(heads=3, value_dim=5),
    Full(heads=3, head_dim=4, value_dim=2, causal=True),
    Full(heads=6, kv_heads=2, value_dim=3, causal=True, output_bias=False),
)
TALKING = (  # a linear map of n·n pairs has ⌊n²/n⌋ rows: no closed form of torch's
    Full(heads=3, talking_heads=True),
    Full(heads=2, head_dim=4, talking_heads=True, position="rope", projection_bias=False),
    Full(heads=3, value_dim=4, talking_heads=True),
)
# Their tables are as long as the input.
POSITIONED = (
    Full(heads=3, position="rope"),
    Full(heads=3, kv_heads=1, causal=True, position="rope", output_bias=False, head_dim=4),
    Full(heads=4, head_dim=4, kv_heads=2, causal=True, position="rope", rope_base=50.0),
    Full(heads=4, head_dim=4, value_dim=3, kv_heads=2, causal=True, position="rope"),
    Full(heads=6, kv_heads=3, causal=True, position="alibi"),
    Full(heads=2, value_dim=4, causal=True, position="alibi"),
    Full(heads=2, bias=Buckets(count=8, distance=20), scaled=False),
    Full(heads=4, kv_heads=2, head_dim=3, causal=True, bias=Buckets(count=6, distance=9)),
)


@st.composite
def pages(draw: st.DrawFn) -> Full:
    heads = draw(HEADS)
    causal = draw(st.none() | st.booleans())
    position = draw(st.sampled_from(["none", "rope", *(["alibi"] if causal else [])]))
    count = draw(st.integers(4, 40))
    biased = position != "alibi" and draw(st.booleans())
    if not causal and draw(st.booleans()):
        values = draw(st.none() | st.integers(1, 64))
        return Full(heads=heads, causal=causal, position=position, talking_heads=True, value_dim=values)
    return Full(
        heads=heads,
        kv_heads=draw(st.none() | st.sampled_from([few for few in range(1, heads + 1) if heads % few == 0])),
        head_dim=draw(st.none() | st.integers(1, 64)),
        value_dim=draw(st.none() | st.integers(1, 64)),
        causal=causal,
        position=position,
        rope_base=draw(st.sampled_from([10000.0, 500000.0])),
        scaled=draw(st.booleans()),
        bias=Buckets(count=count, distance=draw(st.integers(count, 300))) if biased else None,
        projection_bias=draw(st.booleans()),
        output_bias=draw(st.none() | st.booleans()),
    )


CASE = MechanismCase(
    rows=Rows(positional=lambda page: frozenset(("relative_bias",)), masks=frozenset(("mask",))),
    page=Full,
    examples=(*PLAIN, *TALKING, *POSITIONED),
    pages=pages(),
    reference=reference,
    symbolic=PLAIN,
)
