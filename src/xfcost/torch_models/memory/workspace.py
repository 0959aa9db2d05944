"""Blocks that kernels on the CPU take and free besides their results: oneDNN's own layouts, dense copies.

Observed call by call in the C library's allocations (torch 2.13, a processor with AVX-512, one thread).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from xfcost.torch_models.shared.memory_format import seen_as_channels_last

# oneDNN's layouts round channels up to these.
CHANNEL_BLOCK: Final = 16
# Axes of a feature map: (B, C, Y, X).
_MAP_AXES: Final = 4
# An image's channels: a convolution of no more reads them as they are.
IMAGE_CHANNELS: Final = 3


class Blocks(NamedTuple):
    """Bytes of blocks that one result of a kernel needs: all are taken before the result."""

    passing: tuple[int, ...] = ()
    """Freed before the result is taken."""
    kept: tuple[int, ...] = ()
    """Freed after."""


Workspace = Mapping[int, Blocks]
"""The blocks of each result by its index."""


def workspace(operator: str, args: Any) -> Workspace:
    """The blocks of a call of `operator`, for example `aten::convolution`; none for most."""
    found = _OF_OPERATOR.get(operator)
    return {} if found is None else found(args)


def _dense_copies(*indices: int) -> Callable[[Any], Workspace]:
    """Dense copies of the operands that are strided otherwise."""

    def blocks(args: Any) -> Workspace:
        return {0: Blocks(kept=tuple(args[index].nbytes for index in indices if not args[index].is_contiguous()))}

    return blocks


def _product(args: Any) -> Workspace:
    """Copies of matrices that BLAS can't read: neither rows nor columns are dense, as of a sum's gradient."""
    matrices = [one for one in args if isinstance(one, Tensor) and one.ndim > 1]
    return {0: Blocks(kept=tuple(one.nbytes for one in matrices if 1 not in one.stride()))}


def _roll(args: Any) -> Workspace:
    """Several axes are rolled one after the other."""
    return {0: Blocks(kept=(args[0].nbytes,))} if len(args[2]) > 1 else {}


def _batch_norm_backward(args: Any) -> Workspace:
    """One more gradient of the input, where both operands have the same layout."""
    gradient, x = args[:2]
    return {0: Blocks(kept=(x.nbytes,))} if gradient.stride() == x.stride() else {}


def _convolution(args: Any) -> Workspace:
    x, weight, _, *how = args
    backend = _backend(x, weight, how)
    if backend in _COLUMNS:
        return {0: Blocks(kept=(_columns(x, weight, how),))}
    if backend != "Mkldnn" or how[3]:
        return {}
    weights = _blocked_weight(weight, how[5])
    if _channels_last(x):
        return {0: Blocks(kept=(weights,))}
    y = _blocked(_output(x, weight, how), weight, how[5])
    return {0: Blocks((*_read(x, weight, how[5]), weights), (*_dense_maps(x), y))}


def _convolution_backward(args: Any) -> Workspace:
    gradient, x, weight, _, *how, mask = args
    groups = how[5]
    backend = _backend(x, weight, how)
    if backend in _COLUMNS:
        columns = _columns(x, weight, how)
        of_sample = Blocks(passing=(columns // x.shape[0],), kept=())
        return _asked(mask, of_sample, Blocks(passing=(columns,)))
    if backend != "Mkldnn" or how[3]:
        return {}
    weights = _blocked_weight(weight, groups)
    if _channels_last(x):
        return _asked(mask, Blocks(kept=(weights,)), Blocks(kept=(weights, weights)))
    dy = _blocked(tuple(gradient.shape), weight, groups)
    dx = _blocked(tuple(x.shape), weight, groups)
    strided = any(step > 1 for step in how[0]) and not _depthwise(weight, groups)
    dense = _dense_maps(x, gradient)
    to_input = Blocks((dy, weights), (*dense, dx, x.nbytes) if strided else (*dense, dx))
    if _copies_for_weight(weight, how):
        return _asked(mask, to_input, Blocks((dy, *_read(x, weight, groups)), (*dense, weights)))
    return _asked(mask, to_input, Blocks(kept=(*dense, weights)))


def _dense_maps(*operands: Tensor) -> tuple[int, ...]:
    """Bytes of dense copies of feature maps that are neither contiguous nor channels-last.

    Such are sequences (B, C, X), which as images of height 1 have no layout with channels last, and tokens that are
    looked at as an image.
    """
    return tuple(one.nbytes for one in operands if not (one.is_contiguous() or _channels_last(one)))


def _pool(args: Any) -> Workspace:
    return {0: Blocks(kept=_dense_maps(args[0]))}


def _asked(mask: list[bool], to_input: Blocks, to_weight: Blocks) -> Workspace:
    return {index: blocks for index, blocks in ((0, to_input), (1, to_weight)) if mask[index]}


def _copies_for_weight(weight: Tensor, how: list[Any]) -> bool:
    """Does the weight's gradient read blocked copies? Groups of few channels and wide depthwise kernels don't."""
    if _depthwise(weight, how[5]):
        return max(weight.shape[2:]) <= IMAGE_CHANNELS and max(how[0]) == 1
    return how[5] == 1 or int(weight.shape[1]) >= CHANNEL_BLOCK // 2


def _read(x: Tensor, weight: Tensor, groups: int) -> tuple[int, ...]:
    """The copy of a convolution's input."""
    return () if x.shape[1] <= IMAGE_CHANNELS else (_blocked(tuple(x.shape), weight, groups),)


def _blocked(shape: tuple[int, ...], weight: Tensor, groups: int) -> int:
    """Bytes of a feature map (B, C, Y, X) in oneDNN's layout; groups keep their channels as they are."""
    channels = shape[1] if groups > 1 and not _depthwise(weight, groups) else _up(shape[1])
    channels = shape[1] if shape[1] <= IMAGE_CHANNELS else channels
    return int(shape[0] * channels * prod(shape[2:]) * weight.element_size())


def _blocked_weight(weight: Tensor, groups: int) -> int:
    outputs, inputs, *kernel = weight.shape
    if groups > 1:
        return int(weight.nbytes)
    return int(_up(outputs) * (inputs if inputs <= IMAGE_CHANNELS else _up(inputs)) * prod(kernel)) * (
        weight.element_size()
    )


def _up(channels: int) -> int:
    return -(-channels // CHANNEL_BLOCK) * CHANNEL_BLOCK


def _depthwise(weight: Tensor, groups: int) -> bool:
    return groups > 1 and int(weight.shape[1]) == 1


def _channels_last(x: Tensor) -> bool:
    return x.ndim == _MAP_AXES and not x.is_contiguous() and seen_as_channels_last(x.shape, x.stride())


# torch's own convolutions unfold the input, unless the kernel has one position; the names are of torch's enumeration.
_COLUMNS: Final = ("Slow2d", "Slow3d")


def _columns(x: Tensor, weight: Tensor, how: list[Any]) -> int:
    if prod(weight.shape[2:]) == 1:
        return 0
    positions = prod(_output(x, weight, how)[2:])
    return int(x.shape[0] * prod(weight.shape[1:]) * positions * x.element_size())


def _output(x: Tensor, weight: Tensor, how: list[Any]) -> tuple[int, ...]:
    stride, padding, dilation = how[:3]
    rules = zip(x.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True)
    sides = [(side + 2 * pad - gap * (kernel - 1) - 1) // step + 1 for side, kernel, step, pad, gap in rules]
    return (int(x.shape[0]), int(weight.shape[0]), *map(int, sides))


def _backend(x: Tensor, weight: Tensor, how: list[Any]) -> str:
    """The name of the kernel that torch takes on the CPU with so many threads; nothing is allocated."""
    on_cpu = [torch.empty(1, dtype=one.dtype, device="cpu").expand(one.shape) for one in (x, weight)]
    return str(torch._C._select_conv_backend(*on_cpu, None, *how, None).name)  # noqa: SLF001 - torch's own choice


_OF_OPERATOR: Final[dict[str, Callable[[Any], Workspace]]] = {
    "aten::convolution": _convolution,
    "aten::convolution_backward": _convolution_backward,
    "aten::native_layer_norm": _dense_copies(0),
    "aten::native_layer_norm_backward": _dense_copies(0, 1),
    "aten::_softmax": _dense_copies(0),
    "aten::_softmax_backward_data": _dense_copies(0, 1),
    "aten::native_batch_norm_backward": _batch_norm_backward,
    "aten::max_pool2d_with_indices": _pool,
    "aten::avg_pool2d": _pool,
    "aten::upsample_bilinear2d": _pool,
    "aten::roll": _roll,
    "aten::mm": _product,
    "aten::addmm": _product,
}
