"""Where a sub-layer adds to the residual stream, and the tensors that meet there.

B batch, N tokens, D width, Y and X the grid's sides.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor, nn

from xfcost.formulas.conv_block import ConvBlock
from xfcost.ledger.residual_stream import Joins
from xfcost.spec.architecture import Part
from xfcost.torch_models.shared.convolution import TOKENS, in_rows
from xfcost.torch_models.sublayer import SubLayerModel


class Added(NamedTuple):
    """The operands of a residual add, and their sum: (B, N, D) each."""

    onto_BND: Tensor
    delta_BND: Tensor
    sum_BND: Tensor


class ResidualAdd(NamedTuple):
    """The residual add of a sub-layer."""

    joins: Joins
    leaf: nn.Module | None = None
    """None where f(X) replaces X."""
    behind: tuple[nn.Module, ...] = ()
    """What follows the sum."""
    shortcut: bool = False
    """Is X brought to another grid or width before?"""


def residual_add(part: Part, sublayer: SubLayerModel) -> ResidualAdd:
    """The residual add of `sublayer`: around its component, or inside it as in residual networks."""
    if part.residual == "none":
        return _inside(part, sublayer.inner)
    residual = part.residual
    norm = sublayer.residual_norm
    return ResidualAdd(
        "reversible" if residual.form == "reversible" else residual.place,
        sublayer.residual_add,
        (norm,) if residual.place == "post" and norm is not None else (),
        shortcut=sublayer.residual_projection is not None or sublayer.residual_pool is not None,
    )


def _inside(part: Part, component: nn.Module) -> ResidualAdd:
    """The residual add of the component's own, with the leaves that follow it."""
    paths = [(row.path, row.role) for row in part.component.operations(part.place)]
    adds = [number for number, (_, role) in enumerate(paths) if role == "add"]
    if not adds:
        return ResidualAdd("none")
    leaf, *behind = (component.get_submodule(path) for path, _ in paths[adds[-1] :])
    block = part.component
    return ResidualAdd("inside", leaf, tuple(behind), isinstance(block, ConvBlock) and block.projects(part.place))


class Tap:
    """Keeps the operands of the latest call of a residual add."""

    def __init__(self, leaf: nn.Module | None) -> None:
        self._latest: Added | None = None
        self._hook = None if leaf is None else leaf.register_forward_hook(self._keep)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tap:
        """Itself: a copy of the leaf is heard too."""
        return self

    def _keep(self, leaf: nn.Module, operands: Any, output: Tensor) -> None:
        onto, delta = operands
        self._latest = Added(*(in_rows(one) if one.dim() > TOKENS else one for one in (onto, delta, output)))

    def taken(self) -> Added | None:
        """The operands of the latest call, once; None without an add."""
        latest, self._latest = self._latest, None
        return latest

    def remove(self) -> None:
        """Take the hook off."""
        if self._hook is not None:
            self._hook.remove()
