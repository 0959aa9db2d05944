"""Results on `meta` as kernels make them, where torch's own shape formulas make others.

Fused attention is one operation with a kernel's output, layout and saved tensors; torch would decompose it.

H heads of queries, N queries, M keys, K width of keys, V width of values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import inf
from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import Parameter
from torch.nn import functional as F

from xfcost.torch_models.shared.private_torch import (
    DispatchMode,
    aten_operation,
    aten_operations,
    pytree,
    schema_of,
    storage_identity,
)

_KERNEL_RANK: Final = 4


# Operation -> the place of its indices, and what the CPU's kernel says of other types than int32 and int64.
_INDICES: Final[dict[Any, tuple[int, str]]] = {
    aten_operation("embedding").default: (
        1, "Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got {}"
    ),
    aten_operation("index_select").default: (2, "index_select(): Expected dtype int32 or int64 for index, not {}"),
}  # fmt: skip


def check_indices(func: Any, args: Sequence[Any]) -> None:
    """Refuse indices that kernels refuse; torch's shape formulas take them (of embeddings in old versions alone)."""
    place, message = _INDICES.get(func, (None, ""))
    if place is not None and args[place].dtype not in (torch.int32, torch.int64):
        raise RuntimeError(message.format(args[place].dtype))


class TooManyCallsError(Exception):
    """A run makes more calls than it may."""


class RepeatedShapes(DispatchMode):
    """Operations on `meta` whose inputs have the shapes, strides and dtypes of a call before make such results again.

    Many of torch's shape formulas are written in Python and take 0.1 ms; a model calls them with the same shapes in
    every layer. Views, and what writes to its inputs, always run. As a mode it refuses more than `most` calls.
    """

    def __init__(self, most: float = inf) -> None:
        super().__init__()
        self._left = most
        self._layouts: dict[Any, list[Layout] | None] = {}
        """Operation and inputs -> how what it makes is laid out; None where it runs again."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._left -= 1
        if self._left < 0:
            raise TooManyCallsError
        return self.result(func, args, kwargs or {})

    def result(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """What `func(*args, **kwargs)` returns."""
        if func in _INTERPOLATIONS and args[0].is_meta:
            return _NEAREST.default(*args[:2])
        given: list[Any] = [func, torch.get_default_dtype()]
        if not _makes_tensors(func) or not (_described(args, given) and _described(tuple(kwargs.items()), given)):
            return func(*args, **kwargs)
        key = tuple(given)
        layouts = self._layouts.get(key, [])
        if layouts:
            made = tuple(map(_laid_out_as, layouts))
            return made if len(schema_of(func).returns) > 1 else made[0]
        result = func(*args, **kwargs)
        if layouts is not None:
            self._layouts[key] = _layouts(result, (*args, *kwargs.values()))
        return result


@cache
def _makes_tensors(func: Any) -> bool:
    """Does it declare that it makes only tensors, with memory of their own?"""
    if not hasattr(func, "overloadpacket"):  # a higher-order operator
        return False
    schema = schema_of(func)
    own = [one.alias_info is None and str(one.type) == "Tensor" for one in schema.returns]
    return all(own) and len(own) > 0 and not schema.is_mutable


_CONSTANTS: Final = frozenset((
    bool, int, float, complex, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format
))  # fmt: skip


def _described(value: Any, found: list[Any]) -> bool:
    """Add to `found` what of an argument decides how results on `meta` are laid out. False where that is not known."""
    kind = type(value)
    if kind is Tensor or kind is Parameter:
        if not value.is_meta or value.layout is not torch.strided or value.is_conj() or value.is_neg():
            return False
        found += (value.shape, value.stride(), value.dtype)
        return True
    if kind is tuple or kind is list:
        found.append(len(value))
        return all(_described(one, found) for one in value)
    found += (kind, value)  # 1, 1.0 and True are equal, and make results of other dtypes
    return kind in _CONSTANTS


# Their shape formulas compute every number, of no numbers, in 10 ms; the nearest pixel's does not.
_INTERPOLATIONS: Final = frozenset(
    getattr(packet, "default", None) for packet in aten_operations("upsample_bilinear2d upsample_bicubic2d")
)
_NEAREST: Final = aten_operation("upsample_nearest2d")


Layout = tuple[torch.Size, tuple[int, ...], torch.dtype]


def _laid_out_as(layout: Layout) -> Tensor:
    shape, strides, dtype = layout
    return torch.empty_strided(shape, strides, dtype=dtype, device="meta")


def _layouts(result: Any, inputs: Sequence[Any]) -> list[Layout] | None:
    """Of the tensors of a result; None where they share memory, or have more than they fill."""
    there = {storage_identity(one.untyped_storage()) for one in pytree.tree_iter(inputs) if isinstance(one, Tensor)}
    layouts = list[Layout]()
    for one in result if isinstance(result, tuple) else (result,):
        if type(one) is not Tensor or not one.is_meta or one.layout is not torch.strided:
            return None
        layouts.append((one.shape, one.stride(), one.dtype))
        storage, alike = one.untyped_storage(), _laid_out_as(layouts[-1]).untyped_storage()
        if storage_identity(storage) in there or storage.nbytes() != alike.nbytes():
            return None
    return layouts


def attention_operands(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """`query`, `key`, `value` and, if given, `attn_mask` of a call of `scaled_dot_product_attention`."""
    return dict(zip(("query", "key", "value", "attn_mask", "dropout_p", "is_causal"), args, strict=False)) | kwargs


def attention_backward_macs(q: Tensor, k: Tensor, v: Tensor) -> int:
    """The scores once more, and the gradients of V, the weights, Q and K (Dao et al. 2022, algorithm 4)."""
    return q.shape[:-1].numel() * k.shape[-2] * (3 * k.shape[-1] + 2 * v.shape[-1])


def attention(args: tuple[Any, ...], kwargs: dict[str, Any], differentiated: Callable[[int], None]) -> Any:
    """`scaled_dot_product_attention`, on `meta` as a kernel does it; `differentiated` gets the backward pass's MACs.

    All kernels take (B, H, N, K) alone, of as many samples and heads: others are decomposed on every device.
    """
    operands = attention_operands(args, kwargs)
    q, k, v, bias = *(operands[name] for name in ("query", "key", "value")), operands.get("attn_mask")
    if not q.is_meta or q.ndim != _KERNEL_RANK or not (q.is_nested or _are_alike(operands)):
        return F.scaled_dot_product_attention(*args, **kwargs)
    if bias is not None and bias.dtype == torch.bool:  # torch gives kernels zeros and -∞ in its place
        bias = torch.zeros_like(bias, dtype=q.dtype)
    return _Kernel.apply(q, k, v, bias, differentiated)


def _are_alike(operands: Mapping[str, Any]) -> bool:
    """Have queries, keys and values as many samples and, unless several heads share these, as many heads?"""
    q, k, v = (operands[name] for name in ("query", "key", "value"))
    own = 1 if operands.get("enable_gqa") else 2
    return q.ndim == k.ndim == v.ndim == _KERNEL_RANK and q.shape[:own] == k.shape[:own] == v.shape[:own]


class _Kernel(Function):
    """Saves queries, keys, values, the output and a log-sum-exp per query. Only shapes are correct."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, differentiated: Callable[[int], None]
    ) -> Tensor:
        ctx.differentiated = differentiated
        statistics = q.new_empty(q.shape[:-1], dtype=torch.promote_types(q.dtype, torch.float32))
        output = _laid_out(q, v)
        ctx.save_for_backward(q, k, v, bias, output, statistics)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, bias, *_ = ctx.saved_tensors
        ctx.differentiated(attention_backward_macs(q, k, v))
        to_bias = torch.empty_like(bias) if ctx.needs_input_grad[3] else None
        return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v), to_bias, None


def _laid_out(q: Tensor, v: Tensor) -> Tensor:
    """The kernels' output: it lies in memory as the queries do; of values of another width, (B, N, H, V).

    torch's kernels for the CPU and flash attention make it like the queries, memory-efficient attention, which alone
    takes other widths, token by token (torch/_meta_registrations.py).
    """
    if q.shape[-1] == v.shape[-1]:
        return torch.empty_like(q)
    by_token = q.transpose(1, -2)
    return q.new_empty(*by_token.shape[:-1], v.shape[-1]).transpose(1, -2)


def attention_on_cpu(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`scaled_dot_product_attention` with a gradient as the CPU runs it: in its kernel where that takes the tensors."""
    operands = attention_operands(args, kwargs)
    q, k, v, mask = *(operands[name] for name in ("query", "key", "value")), operands.get("attn_mask")
    if not (q.is_meta and _are_alike(operands) and _has_kernel(q, k, v, mask, operands.get("dropout_p", 0.0))):
        return F.scaled_dot_product_attention(*args, **kwargs)
    kernel = aten_operation("_scaled_dot_product_flash_attention_for_cpu")
    return kernel(q, k, v, 0.0, operands.get("is_causal", False), attn_mask=mask, scale=operands.get("scale"))[0]


def _has_kernel(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float) -> bool:
    """Does the CPU compute such attention, with a gradient, in one kernel?"""
    dense = all(one.stride(-1) == 1 and one.numel() for one in (q, k, v))
    masked = mask is None or (
        mask.dtype is not torch.bool and not mask.requires_grad and mask.ndim in (2, _KERNEL_RANK)
    )
    return dense and masked and q.shape[-1] == k.shape[-1] == v.shape[-1] and not dropout


# On the CPU their first result is contiguous, also where the input is not.
_DENSE: Final = frozenset((
    "aten.native_batch_norm", "aten.native_batch_norm_backward", "aten.native_layer_norm",
    "aten.native_layer_norm_backward",
))  # fmt: skip
_IMAGE: Final = 4  # axes: batch, channels, height, width


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
