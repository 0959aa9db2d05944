"""Low-rank attention under the contract."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from cases.base import HEADS, SEQUENCES, MechanismCase
from xfcost.mechanisms import LowRank
from xfcost.mechanisms.base import Place


def reference(page: LowRank, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    """Equation 7, one head after the other."""
    projected = F.linear(x_BND, twin.qkv.weight, twin.qkv.bias).chunk(3, dim=-1)
    answers = []
    for head, (q_BNK, k_BNK, v_BNK) in enumerate(
        zip(*(part.chunk(page.heads, dim=-1) for part in projected), strict=True)
    ):
        e_NR, f_NR = tables(page, twin, head)
        keys_BRK, values_BRK = (torch.einsum("nr,bnk->brk", *pair) for pair in ((e_NR, k_BNK), (f_NR, v_BNK)))
        scores_BNR = torch.einsum("bnk,brk->bnr", q_BNK, keys_BRK) / q_BNK.shape[-1] ** 0.5
        answers.append(scores_BNR.softmax(-1) @ values_BRK)
    return F.linear(torch.cat(answers, dim=-1), twin.out.weight, twin.out.bias)


def tables(page: LowRank, twin: nn.Module, head: int) -> tuple[Tensor, Tensor]:
    """E and F of a head."""
    if page.share == "key_value":
        return twin.projection.weight, twin.projection.weight
    both = twin.key_projection.weight, twin.value_projection.weight
    return (both[0][head], both[1][head]) if page.share == "none" else both


EXAMPLES = (
    LowRank(heads=2, rank=4),
    LowRank(heads=3, rank=1, share="none"),
    LowRank(heads=1, head_dim=5, rank=7, share="key_value", projection_bias=False),
)

CASE = MechanismCase(
    page=LowRank,
    examples=EXAMPLES,
    pages=st.builds(
        LowRank,
        heads=HEADS,
        head_dim=st.none() | st.integers(1, 64),
        rank=st.integers(1, 99),
        share=st.sampled_from(["none", "headwise", "key_value", "layerwise"]),
        projection_bias=st.booleans(),
    ),
    reference=reference,
    grids=SEQUENCES,
)
