"""Copies that a run works on, so that the module and its inputs stay as they were.

On `meta` and as fake tensors nothing is computed and nothing allocated; real copies share the parameters' memory.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from xfcost.torch_models.running.record import Lineage, mark
from xfcost.torch_models.shared.private_torch import pytree, tensors_of

How = Literal["meta", "fake", "real"]
Copy = Callable[[Tensor], Tensor]


def copier(how: How, fake_mode: Any = None, device: str | None = None) -> Copy:
    """How a tensor is copied: without its elements, or with them, to `device` if there is one."""
    if device is not None:
        return lambda tensor: _on_device(tensor, device)
    if how == "meta":
        return lambda tensor: tensor if tensor.is_meta else tensor.detach().to("meta")
    if how == "fake":
        return lambda tensor: _faked(tensor.detach(), fake_mode)
    return lambda tensor: tensor.detach().clone()


def learning(made: Copy) -> Copy:
    """Copies that require a gradient as what they are copied from does."""

    def copied(tensor: Tensor) -> Tensor:
        own = made(tensor)
        own = own.detach() if own is tensor else own
        return own.requires_grad_(tensor.requires_grad)

    return copied


def shared_parameters(how: How, device: str | None, *, training: bool) -> Callable[[Tensor], bool]:
    """Which parameters a run needs no copy of: real ones that are where it runs, and that no training step updates."""

    def shares(parameter: Tensor) -> bool:
        if how != "real" or device is None:
            return how == "real"
        return not training and not parameter.is_meta and parameter.device == torch.empty(0, device=device).device

    return shares


def _faked(tensor: Tensor, fake_mode: Any) -> Tensor:
    """A fake tensor; of one on `meta` on the CPU, for code that refuses other devices."""
    if not tensor.is_meta:
        return fake_mode.from_tensor(tensor)
    with fake_mode:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")


def _on_device(tensor: Tensor, device: str) -> Tensor:
    """A copy there; of a tensor on `meta` random numbers, as small as weights usually are, and whole numbers 0."""
    if not tensor.is_meta:
        return tensor.detach().to(device, copy=True)
    made = torch.zeros_like(tensor, device=device)
    return made.normal_(std=0.02) if made.is_floating_point() and made.itemsize > 1 else made


class _Copied(TorchFunctionMode):
    """`copy.deepcopy` copies tensors by `made`, the same tensor once."""

    def __init__(self, made: Copy) -> None:
        super().__init__()
        self.made = made

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.__deepcopy__:
            tensor, memo = args
            if id(tensor) not in memo:
                memo[id(tensor)] = self.made(tensor)
            return memo[id(tensor)]
        return func(*args, **(kwargs or {}))


def copied_inputs(given: Any, made: Copy) -> Any:
    """Inputs of any structure, their tensors copied; caches and dataclasses too. Objects that can't be copied stay."""
    memo: dict[int, Any] = {}
    for leaf in pytree.tree_leaves(given):
        if isinstance(leaf, nn.Parameter):
            memo[id(leaf)] = made(leaf)
    try:
        with _Copied(made):
            result = copy.deepcopy(given, memo)
    except (TypeError, ValueError, RuntimeError, AttributeError):  # a generator, a lock, a file
        result = pytree.tree_map_only(Tensor, made, given)
    for tensor in reached(result):
        mark(tensor, Lineage(varies=True))
    return result


def reached(given: Any, depth: int = 6) -> list[Tensor]:
    """The tensors in a structure, also those in attributes of its objects, such as a cache's layers."""
    found: list[Tensor] = []
    for leaf in pytree.tree_leaves(given):
        if isinstance(leaf, Tensor):
            found.append(leaf)
        elif depth and hasattr(leaf, "__dict__") and not isinstance(leaf, nn.Module | type):
            found += reached(list(vars(leaf).values()), depth - 1)
        elif depth and isinstance(leaf, dict | list | tuple | set):
            found += reached(list(leaf.values()) if isinstance(leaf, dict) else list(leaf), depth - 1)
    return found


def stand_in(model: nn.Module, made: Copy, shares: Callable[[Tensor], bool]) -> None:
    """Give `model` copies of its tensors; each parameter's copy knows its name. `unchanged` takes them back.

    A copy shares a parameter's memory if `shares` says so.
    """
    copies: dict[int, Any] = {}
    for name, parameter in model.named_parameters():
        data = parameter.detach() if shares(parameter) else made(parameter)
        copies[id(parameter)] = parameter_copy = nn.Parameter(data, requires_grad=parameter.requires_grad)
        vars(parameter_copy).update(vars(parameter))
        mark(parameter_copy, Lineage(weights=frozenset((name,))))
    for buffer in model.buffers():
        copies.setdefault(id(buffer), made(buffer))

    def copied(tensor: Tensor) -> Any:
        if id(tensor) not in copies:
            copies[id(tensor)] = learning(made)(tensor) if tensor.is_leaf else made(tensor)
        return copies[id(tensor)]

    for module in model.modules():
        _take(module, copied)


def _take(module: nn.Module, copied: Callable[[Tensor], Any]) -> None:
    """Put copies in the place of a module's parameters, buffers, and tensors in its attributes."""
    own = tensors_of(module)
    for tensors in own:
        tensors.update({name: copied(one) for name, one in tensors.items() if one is not None})
    values = vars(module)
    for name, value in list(values.items()):
        if any(value is tensors for tensors in own):
            continue
        if isinstance(value, Tensor | dict | list | tuple):
            leaves = pytree.tree_leaves(value)
            if any(isinstance(leaf, Tensor) for leaf in leaves):
                values[name] = pytree.tree_map_only(Tensor, copied, value)


def needs_elements(model: nn.Module, inputs: Any) -> str | None:
    """Why `meta` can't stand for the tensors: sparse, nested and quantised ones have no size there; None if it can."""
    for tensor in (*model.parameters(), *model.buffers(), *reached(inputs)):
        if tensor.layout is not torch.strided:
            return f"tensors are {str(tensor.layout).removeprefix('torch.')}"
        if tensor.is_quantized:
            return "tensors are quantised"
    if any(isinstance(value, torch.ScriptObject) for module in model.modules() for value in vars(module).values()):
        return "weights are packed"
    return None
