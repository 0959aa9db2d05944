"""Fused attention on `meta` as the kernels do it, forwards and backwards, in plain products that a counter sees.

H heads of queries, N queries, M keys, K width of keys, V of values.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode


class KernelOnMeta(TorchFunctionMode):
    """On `meta`, `scaled_dot_product_attention` as one step of autograd; torch has the plain formula there."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if func is not F.scaled_dot_product_attention or not args[0].is_meta:
            return func(*args, **given)
        return Kernel.apply(*args[:3], given.get("attn_mask"))


class Kernel(Function):
    """Keeps queries, keys, values, its output and a log-sum-exp per query (Dao et al. 2022, algorithms 2 and 4).

    Scores are worked out again: five products where the plain formula has four. Shapes alone are right.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        k_all, v_all = (_for_every_head(part, q) for part in (k, v))
        output = (q @ k_all.transpose(-2, -1)) @ v_all
        ctx.save_for_backward(q, k, v, bias, output, q.new_empty(q.shape[:-1], dtype=torch.float32))
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, bias, *_ = ctx.saved_tensors
        k_all, v_all = (_for_every_head(part, q) for part in (k, v))
        weights = q @ k_all.transpose(-2, -1)
        _ = weights.transpose(-2, -1) @ gradient
        to_scores = gradient @ v_all.transpose(-2, -1)
        to_q = to_scores @ k_all
        _ = to_scores.transpose(-2, -1) @ q
        return to_q, torch.empty_like(k), torch.empty_like(v), None if bias is None else torch.empty_like(bias)


def _for_every_head(part: Tensor, q: Tensor) -> Tensor:
    """Keys or values of fewer heads than the queries', repeated."""
    return part if part.shape[:-2] == q.shape[:-2] else part.repeat_interleave(q.shape[-3] // part.shape[-3], dim=-3)
