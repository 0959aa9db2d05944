"""Kernel attention under the contract."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from cases.base import HEADS, SEQUENCES, MechanismCase, Rows, readable
from xfcost.grid import Grid
from xfcost.mechanisms import Kernel
from xfcost.mechanisms.base import Place
from xfcost.mechanisms.kernel import EluPlusOne, RandomFeatures


def reference(page: Kernel, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    """Σ φ(q)·φ(k) v / Σ φ(q)·φ(k) over the tokens that are read, by the whole matrix, one head after the other."""
    projected = F.linear(x_BND, twin.qkv.weight, twin.qkv.bias).chunk(3, dim=-1)
    answers = []
    for q_BNK, k_BNK, v_BNK in zip(*(part.chunk(page.heads, dim=-1) for part in projected), strict=True):
        q_BNF, k_BNF = features(page, twin, q_BNK, queries=True), features(page, twin, k_BNK, queries=False)
        weights_BNN = torch.einsum("bnf,bmf->bnm", q_BNF, k_BNF) * readable(page, place.grid)
        epsilon = 1e-6 if isinstance(page.features, EluPlusOne) else 0
        answers.append(weights_BNN @ v_BNK / (weights_BNN.sum(-1, keepdim=True) + epsilon))
    return F.linear(torch.cat(answers, dim=-1), twin.out.weight, twin.out.bias)


def features(page: Kernel, twin: nn.Module, x_BNK: Tensor, *, queries: bool) -> Tensor:
    """φ(x) by the papers' formulas."""
    if isinstance(page.features, EluPlusOne):
        return torch.where(x_BNK > 0, x_BNK + 1, x_BNK.exp())
    x_BNK = x_BNK / x_BNK.shape[-1] ** 0.25
    dots_BNF = torch.einsum("fk,bnk->bnf", twin.project.features_FK, x_BNK)
    if page.features.function == "relu":
        return dots_BNF.clamp(min=0) + 1e-3
    most = dots_BNF.max(-1, keepdim=True).values if queries else dots_BNF.flatten(1).max(-1).values[:, None, None]
    most = torch.zeros(()) if page.causal and not queries else most.detach()
    exponent_BNF = dots_BNF - x_BNK.square().sum(-1, keepdim=True) / 2 - most
    return (exponent_BNF.exp() + 1e-4) / page.features.count**0.5


EXAMPLES = (
    Kernel(heads=2),
    Kernel(heads=3, features=RandomFeatures(count=4)),
    Kernel(heads=2, causal=True, chunk=4),
    Kernel(heads=1, head_dim=3, causal=True, form="parallel", features=RandomFeatures(count=4, function="relu")),
    Kernel(heads=2, causal=True, form="chunked", chunk=3, features=RandomFeatures(count=7)),
    Kernel(heads=2, causal=True, form="recurrent", features=RandomFeatures(count=5), projection_bias=False),
)


@st.composite
def pages(draw: st.DrawFn) -> Kernel:
    causal = draw(st.none() | st.booleans())
    form = draw(st.sampled_from([None, "parallel", "chunked", "recurrent"])) if causal else None
    chunked = causal and form in (None, "chunked")
    return Kernel(
        heads=draw(HEADS),
        head_dim=draw(st.none() | st.integers(1, 64)),
        causal=causal,
        form=form,
        chunk=draw(st.none() | st.integers(1, 9)) if chunked else None,
        features=draw(
            st.just(EluPlusOne())
            | st.builds(RandomFeatures, count=st.integers(1, 99), function=st.sampled_from(["softmax", "relu"]))
        ),
        projection_bias=draw(st.booleans()),
    )


def own_chunk(page: Kernel, place: Place) -> int:
    """Tokens of the last chunk, which a state of the chunks before it doesn't hold."""
    return page.chunk if page.chunk and page.causal else 0


CASE = MechanismCase(
    rows=Rows(
        grids=lambda page: (Grid((12,)), Grid((24,))),
        states=frozenset(("prefix_sum",)),
        in_tokens=frozenset(("prefix_sum",)),
        fewer=dict.fromkeys(("prefix_sum", "read", "normaliser"), own_chunk),
    ),
    page=Kernel,
    examples=EXAMPLES,
    pages=pages(),
    reference=reference,
    growth=lambda page: (Grid((page.chunk or 6,)), Grid((2 * (page.chunk or 6),))),
    grids=SEQUENCES,
    fused=False,
    symbolic=EXAMPLES[:2],
)
