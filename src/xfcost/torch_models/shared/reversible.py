"""Reversible residual connections: two streams through blocks, with no saved activations inside.

B batch, N tokens, D width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class ReversibleRun(nn.ModuleList):
    """y₁ = x₁ + f(x₂), y₂ = x₂ + g(y₁) in each block: two of (B, N, D) -> two of (B, N, D).

    Blocks are pairs of `SubLayerModel`. With gradients, all blocks are one autograd function, which saves its two
    outputs and recomputes the rest (Gomez et al. 2017, algorithm 1).
    """

    def forward(self, x1_BND: Tensor, x2_BND: Tensor, memory_BMD: Tensor | None) -> tuple[Tensor, Tensor]:
        weights = [weight for block in self.blocks() for sublayer in block for weight in sublayer.weights()]
        if torch.is_grad_enabled():
            return Recomputed.apply(self, x1_BND, x2_BND, memory_BMD, *weights)
        return self.through(x1_BND, x2_BND, memory_BMD)

    def through(self, x1_BND: Tensor, x2_BND: Tensor, memory_BMD: Tensor | None) -> tuple[Tensor, Tensor]:
        """The blocks in sequence."""
        for f, g in self.blocks():
            x1_BND = f(x2_BND, memory_BMD, x1_BND)
            x2_BND = g(x1_BND, memory_BMD, x2_BND)
        return x1_BND, x2_BND

    def blocks(self) -> list[Any]:
        """Pairs of sub-layers."""
        return list(self.children())


class Recomputed(Function):
    """A run whose backward pass goes through the blocks in reverse and recomputes each.

    Recomputed streams have rounding errors, so that a discrete choice (a hash, a top-k) close to a tie may differ.
    """

    @staticmethod
    def forward(
        ctx: Any, run: ReversibleRun, x1_BND: Tensor, x2_BND: Tensor, memory_BMD: Tensor | None, *weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        y1_BND, y2_BND = run.through(x1_BND, x2_BND, memory_BMD)
        ctx.run, ctx.weights = run, weights
        ctx.save_for_backward(y1_BND, y2_BND, memory_BMD)
        return y1_BND, y2_BND

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad1_BND: Tensor, grad2_BND: Tensor) -> tuple[Tensor | None, ...]:
        y1_BND, y2_BND, memory_BMD = ctx.saved_tensors
        memory_BMD = None if memory_BMD is None else memory_BMD.detach().requires_grad_(ctx.needs_input_grad[3])
        sums: dict[int, Tensor] = {}
        for f, g in reversed(ctx.run.blocks()):
            y2_BND, more = _undone(g, y1_BND, y2_BND, memory_BMD, grad2_BND, sums)
            grad1_BND = grad1_BND + more
            y1_BND, more = _undone(f, y2_BND, y1_BND, memory_BMD, grad1_BND, sums)
            grad2_BND = grad2_BND + more
        to_memory = None if memory_BMD is None else sums.get(id(memory_BMD))
        return None, grad1_BND, grad2_BND, to_memory, *(sums.pop(id(weight), None) for weight in ctx.weights)


def _undone(
    half: Any, x_BND: Tensor, y_BND: Tensor, memory_BMD: Tensor | None, grad_BND: Tensor, sums: dict[int, Tensor]
) -> tuple[Tensor, Tensor]:
    """Inverts y = z + f(x): returns z and the gradient that f adds to x's.

    Gradients of weights and memory are added to `sums`.
    """
    x_BND = x_BND.detach().requires_grad_()
    with torch.enable_grad():
        added_BND = half.branch(x_BND, memory_BMD)
    learned = [tensor for tensor in (*half.weights(), memory_BMD) if tensor is not None and tensor.requires_grad]
    more, *gradients = torch.autograd.grad(added_BND, [x_BND, *learned], grad_BND, allow_unused=True)
    for tensor, gradient in zip(learned, gradients, strict=True):
        if gradient is not None:
            sums[id(tensor)] = sums[id(tensor)] + gradient if id(tensor) in sums else gradient
    return y_BND - added_BND.detach(), torch.zeros_like(x_BND) if more is None else more
