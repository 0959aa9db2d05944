"""The inverted residual under the contract."""

from __future__ import annotations

from hypothesis import strategies as st
from torch import Tensor, nn

from cases.base import DIM, MechanismCase, Rows
from cases.conv_block import AWKWARD, convolved, normed, shrunk
from xfcost.grid import Grid
from xfcost.mechanisms import InvertedResidual
from xfcost.mechanisms.base import Place


def reference(page: InvertedResidual, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    """Sandler et al. 2018, table 1, position by position, with Swish."""
    sides, y = place.grid.sides, x_BND
    if page.ratio != 1 or page.hidden:
        y = swish(normed(convolved(y, sides, twin.expand.conv, 1), twin.expand.norm))
    y = swish(normed(convolved(y, sides, twin.conv, page.stride, groups=y.shape[-1]), twin.norm))
    y = normed(convolved(y, shrunk(sides, page.stride), twin.project_conv, 1), twin.project_norm)
    return y + x_BND if page.stride == 1 and place.dim == place.out_dim else y


def swish(x: Tensor) -> Tensor:
    """x·sigmoid(x)."""
    return x / (1 + (-x).exp())


CASE = MechanismCase(
    rows=Rows(grids=lambda page: (Grid((8, 8)), Grid((8, 16)))),
    page=InvertedResidual,
    examples=(
        InvertedResidual(),
        InvertedResidual(ratio=2, stride=2),
        InvertedResidual(ratio=1),
        InvertedResidual(hidden=9),
    ),
    pages=st.builds(
        InvertedResidual,
        ratio=st.sampled_from([1, 1.5, 2, 4]),
        hidden=st.none() | st.integers(1, 40),
        stride=st.sampled_from([1, 2]),
    ),
    reference=reference,
    grids=AWKWARD,
    growth=lambda page: (Grid((12, 2)), Grid((24, 2))),
    fused=False,
    image=True,
    # as wide as it came in, with a stride and without, or wider and so not added
    out_dim=lambda page: DIM + 2 * (page.hidden == 9),
    channels_first=lambda leaf: True,
)
