"""ByteNet's block under the contract: its convolution tap by tap."""

from __future__ import annotations

from hypothesis import strategies as st
from torch import Tensor, nn

from cases.base import SEQUENCES, MechanismCase
from cases.conv import convolved, growth
from xfcost.mechanisms import ByteNet
from xfcost.mechanisms.base import Place


def normed(leaf: nn.Module, x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + leaf.eps).sqrt() * leaf.weight + leaf.bias


def reference(page: ByteNet, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    y = x_BND.clamp_min(0) @ twin.pointwise1.weight.T + twin.pointwise1.bias
    y = normed(twin.norm1, y).clamp_min(0)
    y = normed(twin.norm2, convolved(page, place.grid, twin.conv, y)).clamp_min(0)
    return y @ twin.pointwise2.weight.T + twin.pointwise2.bias


CASE = MechanismCase(
    page=ByteNet,
    examples=(ByteNet(), ByteNet(size=3, dilation=4, causal=True), ByteNet(size=5, dilation=2), ByteNet(size=1)),
    pages=st.builds(
        ByteNet, size=st.integers(0, 4).map(lambda half: 2 * half + 1), dilation=st.integers(1, 5), causal=st.booleans()
    ),
    reference=reference,
    growth=growth,
    grids=SEQUENCES,
    sides=st.integers(1, 60).map(lambda n: (n,)),
    fused=False,
    # a ReLU first: few channels may all be off
    dim=24,
    per_token=True,
    channels_first=lambda leaf: leaf in {"conv", "pad"},
)
