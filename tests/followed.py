"""A module's forward pass with the owners of its numbers followed."""

from typing import Any

import torch
from torch import nn

from xfcost.torch_models.mixing.follower import Follower, TokenAxes, own_inputs
from xfcost.torch_models.mixing.verdict import FoundOperation, verdicts
from xfcost.torch_models.running.surroundings import without_fast_path
from xfcost.torch_models.shared.running_modules import running_modules

Inputs = tuple[tuple[Any, ...], dict[str, Any]]


def follow(
    module: nn.Module,
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    token_axes: TokenAxes | None = None,
    larger: Inputs | None = None,
) -> list[FoundOperation]:
    """The operations of a forward pass in the order they run, each with the mixing kind that is found.

    Args:
        module: any module, on the CPU, with real weights: masks are found by their values.
        args: its positional arguments.
        kwargs: its keyword arguments.
        token_axes: the axes along which the tokens of an argument lie, by its position or name; () for none.
        larger: the arguments of a second run with more tokens. Without it, what reads neither all tokens nor a fixed
            kernel is unknown.
    """
    runs = [run_followed(module, args, kwargs or {}, token_axes)]
    if larger is not None:
        runs.append(run_followed(module, *larger, token_axes))
    return verdicts(*runs)


def run_followed(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], axes: TokenAxes | None = None
) -> Follower:
    """One forward pass of `module`, followed."""
    follower = Follower()
    own_inputs(follower, args, kwargs, axes)
    with without_fast_path(), torch.no_grad(), running_modules(module, follower.running), follower:
        module(*args, **kwargs)
    return follower
