"""One forward pass of a module with a follower: which inputs hold tokens, and which module is running."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from xfcost.torch_models.ownership.follower import Follower
from xfcost.torch_models.shared.private_torch import pytree

TokenAxes = Mapping[str | int, tuple[int, ...]]


def token_axes_of(tensor: Tensor) -> tuple[int, ...]:
    """The axes along which tokens lie.

    Words (B, N) and vectors (B, N, D) lie along axis 1, pixels of images (B, C, Y, X) and videos along the last axes.
    Of vectors (B, D) each is a token.
    """
    vector, image = 2, 4
    if tensor.dim() >= image and tensor.is_floating_point():
        return tuple(range(2, tensor.dim()))
    if tensor.dim() == vector and tensor.is_floating_point():
        return (0,)
    return (1,) if tensor.dim() >= vector else ()


def own_inputs(
    follower: Follower, args: tuple[Any, ...], kwargs: dict[str, Any], axes: TokenAxes | None = None
) -> None:
    """Tell `follower` the tokens of the inputs."""
    named = dict(enumerate(args)) | kwargs
    for name, value in named.items():
        for tensor in pytree.tree_leaves(value):
            if isinstance(tensor, Tensor) and tensor.dtype != torch.bool:
                chosen = (axes or {}).get(name, token_axes_of(tensor))
                if chosen:
                    follower.own(tensor, chosen)
                elif tensor.is_floating_point():
                    follower.condition(tensor)
