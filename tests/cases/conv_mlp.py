"""The convolutional feed-forward network under the contract."""

from __future__ import annotations

from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from cases.base import GRIDS, VOLUME, MechanismCase
from cases.depthwise_conv import ODD, convolved
from cases.token_mlp import ACTS
from xfcost.grid import Grid
from xfcost.mechanisms import ConvMlp
from xfcost.mechanisms.base import Place


def reference(page: ConvMlp, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    h_BNE = F.linear(x_BND, twin.fc1.weight, twin.fc1.bias)
    h_BNE = h_BNE * (h_BNE > 0) if page.hidden_act == "relu" else h_BNE
    h_BNE = ACTS[page.act](convolved(h_BNE, place.grid, twin.conv, page.size))
    return F.linear(h_BNE, twin.fc2.weight, twin.fc2.bias)


CASE = MechanismCase(
    page=ConvMlp,
    examples=(ConvMlp(), ConvMlp(size=5, hidden=11, act="silu"), ConvMlp(hidden_act="relu"), ConvMlp(size=1)),
    pages=st.builds(
        ConvMlp,
        size=ODD,
        ratio=st.sampled_from([0.5, 2, 4]),
        act=st.sampled_from(["gelu", "silu"]),
        hidden_act=st.sampled_from(["none", "relu"]),
    ),
    reference=reference,
    growth=lambda page: (Grid((page.size, page.size)), Grid((2 * page.size, page.size))),
    grids=(*GRIDS, VOLUME),
    fused=False,
    image=True,
)
