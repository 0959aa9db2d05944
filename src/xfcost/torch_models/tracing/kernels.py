"""Fused attention on `meta`, forward and backward, as the same products that the kernels run.

H heads of queries, N queries, M keys, K width of keys, V width of values.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode


class KernelOnMeta(TorchFunctionMode):
    """`scaled_dot_product_attention` on `meta` as one autograd function, like the kernels.

    With `products` the products run, so that a counter sees them; without, only saved tensors exist. Kernels differ for
    masks, so a masked call keeps torch's plain formula, the worst case for memory.
    """

    def __init__(self, *, products: bool) -> None:
        super().__init__()
        self.products = products

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if func is not F.scaled_dot_product_attention:
            return func(*args, **given)
        operands = attention_operands(args, given)
        bias, q = operands.get("attn_mask"), operands["query"]
        if not runs_in_kernel(q) or not (self.products or bias is None):
            return func(*args, **given)
        if bias is not None and bias.dtype == torch.bool:  # torch gives kernels zeros and -∞ in its place
            bias = torch.zeros_like(bias, dtype=q.dtype)
        return Kernel.apply(q, operands["key"], operands["value"], bias, self.products)


def runs_in_kernel(q: Tensor) -> bool:
    """Does a kernel stand for this attention on `meta`? All kernels take (B, H, N, K) alone."""
    return q.is_meta and q.ndim == _KERNEL_RANK


_KERNEL_RANK: Final = 4


def attention_operands(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """`query`, `key`, `value` and, if given, `attn_mask` of a call of `scaled_dot_product_attention`."""
    return dict(zip(("query", "key", "value", "attn_mask"), args, strict=False)) | kwargs


class NumbersOnMeta(TorchFunctionMode):
    """On `meta`, `item` returns 1, so that an optimizer that reads a number can run."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.item and args[0].is_meta:
            return 1.0
        return func(*args, **(kwargs or {}))


class Kernel(Function):
    """Saves queries, keys, values, the output and a log-sum-exp per query (Dao et al. 2022, algorithms 2 and 4).

    Recomputes the scores: five products instead of the four of the plain formula. Only shapes are correct.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, products: bool) -> Tensor:
        ctx.products = products
        if products:
            k_all, v_all = (_for_every_head(part, q) for part in (k, v))
            _ = (q @ k_all.transpose(-2, -1)) @ v_all
        output = laid_out(q, v)
        ctx.save_for_backward(q, k, v, bias, output, statistics(q))
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, bias, *_ = ctx.saved_tensors
        if ctx.products:
            k_all, v_all = (_for_every_head(part, q) for part in (k, v))
            weights = q @ k_all.transpose(-2, -1)
            _ = weights.transpose(-2, -1) @ gradient
            to_scores = gradient @ v_all.transpose(-2, -1)
            _ = to_scores @ k_all
            _ = to_scores.transpose(-2, -1) @ q
        to_bias = torch.empty_like(bias) if ctx.needs_input_grad[3] else None
        return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v), to_bias, None


def statistics(q: Tensor) -> Tensor:
    """A log-sum-exp per query and head, in float32 or wider."""
    return q.new_empty(q.shape[:-1], dtype=torch.promote_types(q.dtype, torch.float32))


def laid_out(q: Tensor, v: Tensor) -> Tensor:
    """The kernels' output: it lies in memory as the queries do; of values of another width, (B, N, H, V).

    torch's kernels for the CPU and flash attention make it like the queries, memory-efficient attention, which alone
    takes other widths, token by token (torch/_meta_registrations.py).
    """
    if q.shape[-1] == v.shape[-1]:
        return torch.empty_like(q)
    by_token = q.transpose(1, -2)
    return q.new_empty(*by_token.shape[:-1], v.shape[-1]).transpose(1, -2)


def _for_every_head(part: Tensor, q: Tensor) -> Tensor:
    """Keys or values repeated to the number of query heads."""
    return part if part.shape[:-2] == q.shape[:-2] else part.repeat_interleave(q.shape[-3] // part.shape[-3], dim=-3)
