"""Which kernel an ATen call runs, and the layouts of its tensors: on `meta` as on the CPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from xfcost.torch_models.predicting.call import Layout
from xfcost.torch_models.shared.private_torch import pytree, schema_of

FUSED_ATTENTION: Final = "xfcost.scaled_dot_product_attention"
FLASH_ATTENTION: Final = "aten._scaled_dot_product_flash_attention_for_cpu"
"""What fused attention runs on the CPU where a gradient is needed."""
# Calls that return their input's memory, although their schema does not say so; and one that asks where a tensor is.
_FREE: Final = frozenset(("aten._unsafe_view", "aten.lift_fresh", "aten.detach", "prim.device"))
# Arguments that decide how an operation runs.
_CONVOLUTION: Final = ("stride", "padding", "dilation", "transposed", "groups")
_OPTIONS: Final[dict[str, tuple[str, ...]]] = {
    "aten.convolution": _CONVOLUTION,
    "aten.convolution_backward": (*_CONVOLUTION, "output_mask"),
    FLASH_ATTENTION: ("is_causal",),
    f"{FLASH_ATTENTION}_backward": ("is_causal",),
    "aten.index": ("indices",),
    "aten.max_pool2d_with_indices": ("kernel_size",),
    "aten.max_pool3d_with_indices": ("kernel_size",),
    "aten.avg_pool2d": ("kernel_size",),
}
# On the CPU their first result is contiguous, also where the input is not.
_DENSE: Final = frozenset((
    "aten.native_batch_norm", "aten.native_batch_norm_backward", "aten.native_layer_norm",
    "aten.native_layer_norm_backward",
))  # fmt: skip
_IMAGE: Final = 4  # axes: batch, channels, height, width
INDICES: Final = "indices"
"""Stands for a tensor among the options of a call: one that an axis is indexed by."""


class Kernel(NamedTuple):
    """What a call runs, whatever it runs on."""

    operation: str
    options: tuple[Any, ...]


def kernel_of(func: Any, args: tuple[Any, ...], given: Mapping[str, Any]) -> Kernel | None:
    """The kernel of a call; None of one that only makes another view of a tensor."""
    packet = getattr(func, "overloadpacket", None)
    if packet is None:  # a higher-order operator
        return Kernel(str(func), ())
    name = str(packet)
    if name in _FREE or _is_view(func):
        return None
    return Kernel(name, tuple(_hashable(_argument(func, one, args, given)) for one in _OPTIONS.get(name, ())))


def as_on_cpu(name: str, args: Sequence[Any], result: Any) -> Any:
    """Results on `meta` in the memory format of the CPU, where torch's own shape formulas have another."""
    if name == "aten.softplus_backward" and result.is_meta:
        return torch.empty_like(args[0])
    if name not in _DENSE or not isinstance(result[0], Tensor) or not result[0].is_meta:
        return result
    first = result[0]
    last = first.ndim == _IMAGE and first.is_contiguous(memory_format=torch.channels_last)
    memory_format = torch.channels_last if last and not first.is_contiguous() else torch.contiguous_format
    return torch.empty(first.shape, dtype=first.dtype, device="meta", memory_format=memory_format), *result[1:]


def _is_view(func: Any) -> bool:
    """Does a result of `func` share an argument's memory, unwritten?"""
    return any(one.alias_info is not None and not one.alias_info.is_write for one in schema_of(func).returns)


def _argument(func: Any, name: str, args: Sequence[Any], given: Mapping[str, Any]) -> Any:
    """An argument by its name; trailing ones that are as their defaults are left out of a call."""
    declared = {one.name: (place, one) for place, one in enumerate(schema_of(func).arguments)}
    place, one = declared[name]
    return args[place] if place < len(args) else given.get(name, one.default_value)


def layouts(tree: Any) -> tuple[Layout, ...]:
    """The layouts of the tensors in a structure."""
    return tuple(_layout(tensor) for tensor in _tensors(tree))


def _tensors(tree: Any) -> Iterable[Tensor]:
    return (leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor))


def _layout(tensor: Tensor) -> Layout:
    """Of one tensor.

    Raises:
        TypeError: it is nested.
    """
    if tensor.is_nested:
        raise TypeError("a nested tensor has rows of several sizes")
    return Layout(tuple(tensor.shape), _strides(tensor), str(tensor.dtype).removeprefix("torch."))


def _strides(tensor: Tensor) -> tuple[int, ...]:
    """As it lies in memory; of a sparse one as if it were dense."""
    dense = tensor if tensor.layout is torch.strided else torch.empty(tensor.shape, device="meta")
    return tuple(dense.stride())


def _hashable(value: Any) -> Any:
    if isinstance(value, Tensor):
        return INDICES
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value
