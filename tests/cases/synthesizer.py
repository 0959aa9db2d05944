"""Synthetic attention under the contract."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from cases.base import HEADS, SEQUENCES, MechanismCase, Rows, readable
from xfcost.grid import Grid
from xfcost.mechanisms import Synthesizer
from xfcost.mechanisms.base import Place


def reference(page: Synthesizer, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    """softmax(B)V, one head after the other, -∞ where nothing may be read."""
    n, may_read = x_BND.shape[1], readable(page, place.grid)
    answers = []
    for head, v_BNK in enumerate(F.linear(x_BND, twin.value.weight, twin.value.bias).chunk(page.heads, dim=-1)):
        logits = torch.stack([row(page, twin, x_BND[:, token], head, token, n) for token in range(n)], dim=1)
        answers.append(logits.masked_fill(~may_read, -torch.inf).softmax(-1) @ v_BNK)
    return F.linear(torch.cat(answers, dim=-1), twin.out.weight, twin.out.bias)


def row(page: Synthesizer, twin: nn.Module, x_BD: Tensor, head: int, token: int, n: int) -> Tensor:
    """(B, N): what one token gives to all before the softmax."""
    core = twin.core
    if page.form == "random":
        return core.synthesis.weight[head, token].expand(len(x_BD), n)
    if page.form == "factorized_random":
        return (core.synthesis.right[head] @ core.synthesis.left[head, token]).expand(len(x_BD), n)
    hidden_BK = F.linear(x_BD, core.hidden.weight, core.hidden.bias).clamp(min=0).chunk(page.heads, dim=-1)[head]
    if page.form == "dense":
        return mapped(core.synthesis, hidden_BK, head)
    a_BP, b_BQ = (mapped(part, hidden_BK, head) for part in (core.factor_a, core.factor_b))
    return torch.stack([a_BP[:, at // b_BQ.shape[1]] * b_BQ[:, at % b_BQ.shape[1]] for at in range(n)], dim=1)


def mapped(part: nn.Module, x_BK: Tensor, head: int) -> Tensor:
    y = torch.einsum("bk,km->bm", x_BK, part.weight[head])
    return y if part.bias is None else y + part.bias[head]


EXAMPLES = (
    Synthesizer(heads=2),
    Synthesizer(heads=3, form="factorized_dense", causal=True, projection_bias=False),
    Synthesizer(heads=2, form="random", causal=True, head_dim=5),
    Synthesizer(heads=2, form="random", trainable=False),
    Synthesizer(heads=2, form="factorized_random", rank=3),
)


@st.composite
def pages(draw: st.DrawFn) -> Synthesizer:
    form = draw(st.sampled_from(["dense", "random", "factorized_dense", "factorized_random"]))
    return Synthesizer(
        heads=draw(HEADS),
        head_dim=draw(st.none() | st.integers(1, 64)),
        causal=draw(st.none() | st.booleans()),
        form=form,
        trainable=draw(st.booleans()) if form == "random" else True,
        factor=draw(st.sampled_from([None, 1])) if form == "factorized_dense" else None,
        rank=draw(st.none() | st.integers(1, 9)) if form == "factorized_random" else None,
        projection_bias=draw(st.booleans()),
    )


CASE = MechanismCase(
    rows=Rows(
        positional=lambda page: frozenset(("mask", "softmax", *(() if "dense" in page.form else ("synthesis",))))
    ),
    page=Synthesizer,
    examples=EXAMPLES,
    pages=pages(),
    reference=reference,
    # Squares, whose root divides them.
    growth=lambda page: (Grid((4, 4)), Grid((8, 8))) if page.form == "factorized_dense" else (Grid((6,)), Grid((12,))),
    grids=SEQUENCES,
    fused=False,
)
