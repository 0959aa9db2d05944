"""gMLP's block under the contract."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from cases.base import MechanismCase
from cases.token_mlp import ACTS, mapped
from xfcost.mechanisms import Gmlp
from xfcost.mechanisms.base import Place


def reference(page: Gmlp, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    """Z = σ(XU), Y = (Z₁ ⊙ f(Z₂))V, f(Z) = W Z + b over the tokens (equations 1 to 5), one channel after the other."""
    z = ACTS[page.act](x_BND @ twin.fc1.weight.T + twin.fc1.bias)
    half = z.shape[-1] // 2
    gates = z[..., half:]
    if page.norm == "layer_norm":
        centred = gates - gates.mean(-1, keepdim=True)
        gates = centred / (centred.square().mean(-1, keepdim=True) + twin.gate.norm.eps).sqrt()
        gates = gates * twin.gate.norm.weight + twin.gate.norm.bias
    mixed = torch.stack([mapped(twin.gate.spatial, x_BN) for x_BN in gates.unbind(-1)], dim=-1)
    return (z[..., :half] * mixed) @ twin.fc2.weight.T + twin.fc2.bias


CASE = MechanismCase(
    page=Gmlp,
    examples=(Gmlp(), Gmlp(ratio=1, norm="none"), Gmlp(hidden=4), Gmlp(hidden=10, act="silu")),
    pages=st.one_of(
        st.builds(Gmlp, ratio=st.sampled_from([1, 2, 6]), act=st.sampled_from(["gelu", "silu"])),
        st.builds(Gmlp, hidden=st.integers(1, 40).map(lambda half: 2 * half), norm=st.sampled_from(["affine", "none"])),
    ),
    reference=reference,
    fused=False,
)
