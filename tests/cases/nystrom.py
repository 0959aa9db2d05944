"""Nyström attention under the contract."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from cases.base import HEADS, SEQUENCES, MechanismCase
from xfcost.grid import Grid
from xfcost.mechanisms import Nystrom
from xfcost.mechanisms.base import Place


def reference(page: Nystrom, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    """Equation 13, one head after the other; exact attention where there are no more tokens than landmarks."""
    n, m = x_BND.shape[1], page.landmarks
    zeros = 0 if n <= m else -n % m
    x_BPD = torch.cat([x_BND.new_zeros(x_BND.shape[0], zeros, place.dim), x_BND], dim=1)
    projected = F.linear(x_BPD, twin.qkv.weight, twin.qkv.bias).chunk(3, dim=-1)
    answers = []
    heads = zip(*(part.chunk(page.heads, dim=-1) for part in projected), strict=True)
    for head, (q_BPK, k_BPK, v_BPK) in enumerate(heads):
        y_BPK = exact(q_BPK, k_BPK) @ v_BPK if n <= m else rebuilt(page, q_BPK, k_BPK, v_BPK)
        if page.conv:
            y_BPK = y_BPK + convolved(v_BPK, twin.conv.weight[head].flatten())
        answers.append(y_BPK[:, zeros:])
    return F.linear(torch.cat(answers, dim=-1), twin.out.weight, twin.out.bias)


def exact(q: Tensor, k: Tensor) -> Tensor:
    return torch.einsum("bnk,bmk->bnm", q, k).div(q.shape[-1] ** 0.5).softmax(-1)


def rebuilt(page: Nystrom, q_BPK: Tensor, k_BPK: Tensor, v_BPK: Tensor) -> Tensor:
    q_BMK, k_BMK = (
        torch.stack([part.mean(1) for part in x_BPK.chunk(page.landmarks, dim=1)], dim=1) for x_BPK in (q_BPK, k_BPK)
    )
    middle = exact(q_BMK, k_BMK)
    return exact(q_BPK, k_BMK) @ (inverse(middle, page.iterations) @ (exact(q_BMK, k_BPK) @ v_BPK))


def inverse(a: Tensor, iterations: int) -> Tensor:
    """Equation 11, sample by sample, multiplied out: ¼Z(13I - 15AZ + 7(AZ)² - (AZ)³)."""
    answers = []
    for one in a:
        z = one.T / one.sum(0).max()
        for _ in range(iterations):
            az = one @ z
            z = z @ (13 * torch.eye(len(az), dtype=az.dtype) - 15 * az + 7 * az @ az - az @ az @ az) / 4
        answers.append(z)
    return torch.stack(answers)


def convolved(v_BPK: Tensor, weights: Tensor) -> Tensor:
    """Σ over w tokens around each, zeros outside."""
    size, tokens = len(weights), v_BPK.shape[1]
    around = F.pad(v_BPK, (0, 0, size // 2, size // 2))
    return sum(weight * around[:, shift : shift + tokens] for shift, weight in enumerate(weights))


EXAMPLES = (
    Nystrom(heads=2, landmarks=4, conv=3),
    Nystrom(heads=3, landmarks=2, conv=None, iterations=2),
    Nystrom(heads=1, head_dim=5, landmarks=5, conv=7, projection_bias=False),
)

CASE = MechanismCase(
    page=Nystrom,
    examples=EXAMPLES,
    pages=st.builds(
        Nystrom,
        heads=HEADS,
        head_dim=st.none() | st.integers(1, 64),
        landmarks=st.integers(1, 99),
        conv=st.none() | st.integers(0, 9).map(lambda half: 2 * half + 1),
        iterations=st.integers(1, 9),
        projection_bias=st.booleans(),
    ),
    reference=reference,
    growth=lambda page: (Grid((2 * page.landmarks,)), Grid((4 * page.landmarks,))),
    grids=SEQUENCES,
)
