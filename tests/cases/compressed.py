"""Memory-compressed attention under the contract."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from cases.base import HEADS, MechanismCase, Rows, masked_attention
from xfcost.grid import Grid
from xfcost.mechanisms import Compressed
from xfcost.mechanisms.base import Place


def reference(page: Compressed, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    """Block by block, the last of them ending at the last token, and every block ending c tokens after another."""
    tokens = place.grid.total
    q, k, v = F.linear(x_BND, twin.qkv.weight, twin.qkv.bias).chunk(3, dim=-1)
    ends = range(tokens - 1, -1, -page.compression)[::-1]
    keys, values = ([compressed(page, twin, part, end) for end in ends] for part in (k, v))
    may_read = torch.tensor([[end <= token or not page.causal for end in ends] for token in range(tokens)])
    if page.null_key:
        first = torch.ones(tokens, 1, dtype=torch.bool)
        may_read = torch.cat([first, may_read], dim=1)
        keys, values = (
            [null_1I.expand(x_BND.shape[0], -1), *parts]
            for null_1I, parts in zip(twin.null.weight, (keys, values), strict=True)
        )
    attended = masked_attention(q, torch.stack(keys, 1), torch.stack(values, 1), page.heads, may_read)
    return F.linear(attended, twin.out.weight, twin.out.bias)


def compressed(page: Compressed, twin: nn.Module, x_BNI: Tensor, end: int) -> Tensor:
    """(B, I): the tokens of one block, made one; before the first token nothing stands."""
    block_BSI = x_BNI[:, max(end + 1 - page.span, 0) : end + 1]
    if page.function == "max":
        return block_BSI.amax(1)
    if page.function == "mean":
        return block_BSI.sum(1) / page.span
    weight_OIS = twin.compress.weight[:, :, page.span - block_BSI.shape[1] :]
    return (
        torch.cat(
            [
                torch.einsum("bsi,ois->bo", part, weight)
                for part, weight in zip(block_BSI.chunk(page.groups, -1), weight_OIS.chunk(page.groups, 0), strict=True)
            ],
            -1,
        )
        + twin.compress.bias
    )


@st.composite
def pages(draw: st.DrawFn) -> Compressed:
    compression, causal = draw(st.integers(1, 6)), draw(st.none() | st.booleans())
    return Compressed(
        heads=draw(HEADS),
        compression=compression,
        kernel=draw(st.none() | st.integers(compression, 9)),
        groups=draw(st.sampled_from([1, 2, 3])),
        causal=causal,
        null_key=draw(st.booleans()) or bool(causal),
        projection_bias=draw(st.booleans()),
    )


def null_key(page: Compressed, place: Place) -> int:
    """1 where a learned key stands before the others."""
    return 1 if page.null_key else 0


CASE = MechanismCase(
    rows=Rows(
        masks=frozenset(("compressed_mask",)),
        grids=lambda page: (Grid((6 * page.compression,)), Grid((12 * page.compression,))),
        # the null key is no token; a mask alone has its place
        fewer=dict.fromkeys(
            ("compressed_scores", "compressed_softmax", "compressed_weighted_sum", "compressed_attention"), null_key
        )
        | {"compressed_mask": lambda page, place: 0 if place.fused else null_key(page, place)},
    ),
    page=Compressed,
    examples=(
        Compressed(heads=2, causal=True),
        Compressed(heads=3, compression=2, kernel=5, groups=3, causal=True, projection_bias=False),
        Compressed(heads=2, compression=4, null_key=False),
        Compressed(heads=2, compression=2, function="mean"),
        Compressed(heads=1, head_dim=16, function="max", kernel=4, causal=True),
    ),
    pages=pages(),
    reference=reference,
    growth=lambda page: (Grid((2 * page.compression,)), Grid((4 * page.compression,))),
    # One token, two, a prime, whole blocks and not, a class token and a grid's tokens in raster order.
    grids=(*(Grid((n,)) for n in (1, 2, 5, 12)), Grid((2, 3), 1)),
    sides=st.lists(st.integers(1, 40), min_size=1, max_size=2).map(tuple),
    length=7,
)
