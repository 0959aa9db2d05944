"""Which rows of what a sub-layer adds change, where one token of its input does. B batch, N tokens, D width."""

from __future__ import annotations

import copy
from typing import Any, Final

import torch
from torch import Tensor, nn

from xfcost.formulas.component import Mixer, SubLayer
from xfcost.ledger.grid import Grid
from xfcost.ledger.residual_stream import ChangedRows
from xfcost.spec.architecture import Part
from xfcost.torch_models.shared.leaves import Table
from xfcost.torch_models.shared.recurrent import RecurrentLayer

# A row has changed where a number of it did by more than this share of the largest number. Both runs are in float64: a
# fast Fourier transform leaks less by rounding.
LEAST: Final = 2.0**-36


def in_float64(sublayer: nn.Module) -> nn.Module:
    """A copy in float64, with the shared tables that it uses and the state that a recurrence starts from.

    Rounding in the model's own dtype would hide a small influence, and show rounding as one.
    """
    copies: dict[int, Any] = {}
    doubled = copy.deepcopy(sublayer, copies).double()
    for one in list(copies.values()):
        if isinstance(one, Table):
            one.double()
        if isinstance(one, RecurrentLayer):
            one.last = tuple(tuple(part.double() for part in state) for state in one.last)
    return doubled


def middle(grid: Grid) -> int:
    """The token in the middle of the grid."""
    token = 0
    for side in grid.sides:
        token = token * side + side // 2
    return grid.special + token


def changed_token(part: Part) -> int:
    """The token that is changed: the middle one; the first, where the sub-layer reads the special tokens alone."""
    component = part.component
    alone = isinstance(component, SubLayer) and component.special_tokens_only and not isinstance(component, Mixer)
    return 0 if alone else middle(part.place.grid)


def with_changed(x_BND: Tensor, token: int, generator: torch.Generator) -> Tensor:
    """A copy of x with noise, as large as the token itself, on that token."""
    changed_BND, row_BD = x_BND.clone(), x_BND[:, token]
    size = float(row_BD.square().mean().sqrt()) or 1.0
    noise_BD = torch.randn(row_BD.shape, generator=generator, dtype=torch.float64) * size
    changed_BND[:, token] = row_BD + noise_BD
    return changed_BND


def changed_rows(delta_BND: Tensor, again_BND: Tensor, token: int, *, own_grid: bool) -> ChangedRows:
    """The rows that differ between two runs; `own_grid`: rows are tokens of the grid of the changed one."""
    least = LEAST * max(float(delta_BND.abs().max()), float(again_BND.abs().max()))
    differs = (delta_BND - again_BND).abs().amax(dim=(0, 2)) > least
    rows = int(differs.sum())
    own = int(differs[token]) if token < len(differs) else 0
    return ChangedRows(token=token, rows=rows, of_rows=len(differs), others=rows - own if own_grid else None)


def read_by_others(part: Part, token: int) -> bool:
    """Does a mixer declare that another token reads this one, whatever the content is?"""
    component, place = part.component, part.place
    if not isinstance(component, Mixer):
        return True
    outputs = range(component.out(place)[0].total)
    return not component.content_selects_tokens and any(
        token in component.reads(place.grid, other, place.memory) for other in outputs if other != token
    )


def keeps_grid(part: Part) -> bool:
    """Are the rows that leave the sub-layer tokens of the grid that enters it?"""
    return bool(part.component.out(part.place)[0] == part.place.grid)
