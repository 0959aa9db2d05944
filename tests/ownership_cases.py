"""Small modules whose mixing operations are worked out by hand."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

D = 8


class Module(nn.Module):
    """A function of x and a linear map."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function, self.linear = function, nn.Linear(D, D)

    def forward(self, *x: Tensor) -> Tensor:
        return self.function(self.linear, *x)


SEQUENCE, IMAGE = (1, 6, D), (1, 3, 8, 8)


def causal_mask(n: int) -> Tensor:
    return torch.full((n, n), float("-inf")).triu(1)


def window_mask(n: int) -> Tensor:
    """Each query and the two before it."""
    far = torch.arange(n)[:, None] - torch.arange(n)
    return torch.where((far >= 0) & (far < 3), 0.0, float("-inf"))


def attention(linear: nn.Linear, x: Tensor, mask: Tensor | None = None) -> Tensor:
    scores = linear(x) @ x.transpose(1, 2)
    return (scores if mask is None else scores + mask).softmax(-1) @ x


def biased_by_neighbours(linear: nn.Linear, x: Tensor) -> Tensor:
    """Each query adds to its scores, by position, what a convolution makes of its neighbours."""
    bias = F.conv1d(x.transpose(1, 2), x.new_ones(x.shape[1], D, 3), padding=1).transpose(1, 2)
    return attention(linear, x, bias)


def summed_by_halves(linear: nn.Linear, x: Tensor) -> Tensor:
    """Linear attention whose state is summed up half by half."""
    one, other = x.chunk(2, 1)
    return x @ (one.transpose(1, 2) @ linear(one) + other.transpose(1, 2) @ linear(other))


def windows(linear: nn.Linear, x: Tensor) -> Tensor:
    """Attention inside windows of two, moved by one."""
    cut = x.roll(-1, 1).unflatten(1, (-1, 2))
    return ((linear(cut) @ cut.transpose(-2, -1)).softmax(-1) @ cut).flatten(1, 2).roll(1, 1) + x


def in_place(linear: nn.Linear, x: Tensor) -> Tensor:
    """A shift by slices of a buffer."""
    before = torch.zeros_like(x)
    before[:, 1:] = x[:, :-1]
    return x + before


def squeezed(linear: nn.Linear, x: Tensor) -> Tensor:
    return x * linear(x.mean(1, keepdim=True)).sigmoid()


def linear_attention(linear: nn.Linear, x: Tensor) -> Tensor:
    keys = linear(x).relu()
    return keys @ (keys.transpose(1, 2) @ x)


def summed_by_steps(linear: nn.Linear, x: Tensor) -> Tensor:
    state, steps = x.new_zeros(x.shape[0], D), []
    for token in x.unbind(1):
        state = torch.tanh(token + linear(state))
        steps.append(state)
    return x + torch.stack(steps, 1)


def averaged_by_steps(linear: nn.Linear, x: Tensor) -> Tensor:
    """An exponential moving average: its weights are fixed."""
    state, steps = x.new_zeros(x.shape[0], D), []
    for token in x.unbind(1):
        state = token + 0.9 * state
        steps.append(state)
    return x + torch.stack(steps, 1)


def middles(x: Tensor, part: float) -> Tensor:
    """The middles of all cells of an image, a part of their way from its middle."""
    y, x = ((2 * torch.arange(side, dtype=x.dtype) + 1) / side - 1 for side in x.shape[2:])
    return part * torch.stack(torch.meshgrid(x, y, indexing="xy"), -1)[None]


def near(linear: nn.Linear, x: Tensor) -> Tensor:
    """Points beside a token's own cell, as its channels say."""
    return middles(x, 1) + 0.2 * x[:, :2].movedim(1, -1).tanh()


QK, AV = "bmm", "bmm"
CASES: dict[str, tuple[Any, tuple[tuple[int, ...], ...], list[tuple[str, str, int, bool]]]] = {
    "linear": (lambda linear, x: x + linear(x).relu(), (SEQUENCE,), []),
    "layer norm": (lambda linear, x: F.layer_norm(linear(x), (D,)), (SEQUENCE,), []),
    "softmax over channels": (lambda linear, x: linear(x).softmax(-1), (SEQUENCE,), []),
    "attention": (
        attention,
        (SEQUENCE,),
        [(QK, "global", 6, True), ("_softmax", "global", 6, True), (AV, "global", 6, True)],
    ),
    "attention of a batch": (
        attention,
        ((2, 6, D),),
        [(QK, "global", 6, True), ("_softmax", "global", 6, True), (AV, "global", 6, True)],
    ),
    "causal": (
        lambda linear, x: attention(linear, x, causal_mask(x.shape[1])),
        (SEQUENCE,),
        [
            ("bmm", "global", 6, True),
            ("add", "global", 6, False),
            ("_softmax", "global", 6, True),
            ("bmm", "global", 6, True),
        ],
    ),
    "a window kept of a dense product": (
        lambda linear, x: attention(linear, x, window_mask(x.shape[1])),
        (SEQUENCE,),
        [
            ("bmm", "local", 3, True),
            ("add", "local", 3, False),
            ("_softmax", "local", 3, True),
            ("bmm", "local", 3, True),
        ],
    ),
    "the same in one kernel": (
        lambda linear, x: F.scaled_dot_product_attention(*[x[:, None]] * 3, attn_mask=window_mask(x.shape[1])),
        (SEQUENCE,),
        [("_scaled_dot_product_flash_attention_for_cpu", "local", 3, True)],
    ),
    "windows, shifted": (
        windows,
        (SEQUENCE,),
        [("bmm", "local", 2, True), ("_softmax", "local", 2, True), ("bmm", "local", 2, True)],
    ),
    "element-wise scores": (
        lambda linear, x: (linear(x)[:, :, None] + x[:, None]).tanh().sum(-1).softmax(-1) @ x,
        (SEQUENCE,),
        [(name, "global", 6, name != "sum") for name in ("add", "tanh", "sum", "_softmax", "bmm")],
    ),
    "a state": (linear_attention, (SEQUENCE,), [("bmm", "global", 6, True), ("bmm", "global", 6, True)]),
    "a shift": (
        lambda linear, x: x + F.pad(x, (0, 0, 1, -1)),
        (SEQUENCE,),
        [("add", "local", 2, False)],
    ),
    "a shift, written in place": (in_place, (SEQUENCE,), [("add", "local", 2, False)]),
    "cumulative sum": (lambda linear, x: x.cumsum(1), (SEQUENCE,), [("cumsum", "global", 6, False)]),
    "a recurrence": (summed_by_steps, (SEQUENCE,), [("add", "global", 6, True)] * 5),
    "a moving average": (averaged_by_steps, (SEQUENCE,), [("add", "global", 6, False)] * 5),
    "LSTM": (nn.LSTM(D, D, batch_first=True), (SEQUENCE,), [("mkldnn_rnn_layer", "global", 6, True)]),
    "a mean at the end": (lambda linear, x: linear(x.mean(1)), (SEQUENCE,), []),
    "a mean that tokens read": (squeezed, (SEQUENCE,), [("mean", "global", 6, False), ("mul", "global", 6, True)]),
    "pointwise convolution": (nn.Conv2d(3, 5, 1), (IMAGE,), []),
    "patches": (nn.Conv2d(3, 5, 4, stride=4), (IMAGE,), []),
    "convolution": (nn.Conv2d(3, 5, 3, padding=1), (IMAGE,), [("convolution", "local", 9, False)]),
    "transposed convolution": (
        nn.ConvTranspose2d(3, 5, 4, stride=2, padding=1),
        (IMAGE,),
        [("convolution", "local", 4, False)],
    ),
    "transposed convolution, then a convolution of its finer grid": (
        nn.Sequential(nn.ConvTranspose2d(3, 5, 2, stride=2), nn.Conv2d(5, 3, 3, padding=1)),
        (IMAGE,),
        [("convolution", "local", 4, False)],
    ),
    "transposed convolution, kernels apart": (nn.ConvTranspose2d(3, 5, 2, stride=2), (IMAGE,), []),
    "dilated convolution": (
        nn.Conv2d(3, 3, 3, padding=2, dilation=2, groups=3),
        (IMAGE,),
        [("convolution", "local", 9, False)],
    ),
    "maximum pooling": (nn.MaxPool2d(3, 1, 1), (IMAGE,), [("max_pool2d_with_indices", "local", 9, True)]),
    "an unfolded convolution": (
        lambda linear, x: F.unfold(x, 3, padding=1)[0].T @ torch.ones(27, 2),
        (IMAGE,),
        [("mm", "local", 9, False)],
    ),
    "samples at fixed points": (
        lambda linear, x: F.grid_sample(x, middles(x, 0.9), align_corners=False),
        (IMAGE,),
        [("grid_sampler_2d", "local", 4, False)],
    ),
    "samples in the middle of cells": (
        lambda linear, x: F.grid_sample(x, middles(x, 1), align_corners=False),
        (IMAGE,),
        [],
    ),
    "samples at points that the tokens choose": (
        lambda linear, x: F.grid_sample(x, near(linear, x), padding_mode="border", align_corners=False),
        (IMAGE,),
        [("grid_sampler_2d", "local", 4, True)],
    ),
    "cubic samples at points that the tokens choose": (
        lambda linear, x: F.grid_sample(x, near(linear, x), mode="bicubic", align_corners=True),
        (IMAGE,),
        [("grid_sampler_2d", "local", 16, True)],
    ),
    "cells that are nearest to points, moved": (
        lambda linear, x: F.grid_sample(x, near(linear, x), mode="nearest", align_corners=False),
        (IMAGE,),
        [],
    ),
    "all tokens take a sample at one point, which all choose": (
        lambda linear, x: (
            x + F.grid_sample(x, x.mean((2, 3))[:, None, None, :2].expand(-1, *x.shape[2:], -1), align_corners=True)
        ),
        (IMAGE,),
        # four cells, which the mean of all tokens chooses
        [("mean", "global", 64, False), ("grid_sampler_2d", "global", 4, True), ("add", "global", 64, False)],
    ),
    "group norm": (nn.GroupNorm(1, 3), (IMAGE,), [("native_group_norm", "global", 64, True)]),
    "patch merging": (
        lambda linear, x: F.layer_norm(torch.cat([x[:, ::2], x[:, 1::2]], -1), (2 * D,)) @ torch.ones(2 * D, 3),
        (SEQUENCE,),
        [],
    ),
    "a state of two halves": (
        summed_by_halves,
        (SEQUENCE,),
        [
            *[("bmm", "global", 3, True)] * 2,
            ("add", "global", 3, False),
            ("bmm", "global", 6, True),
        ],
    ),
    "a bias out of neighbours": (
        biased_by_neighbours,
        (SEQUENCE,),
        [
            ("convolution", "local", 3, False),
            *[(name, "global", 6, name != "add") for name in ("bmm", "add", "_softmax", "bmm")],
        ],
    ),
    "merged keys": (
        lambda linear, x: attention_to(linear, x, F.avg_pool1d(x.transpose(1, 2), 2).transpose(1, 2)),
        (SEQUENCE,),
        [("avg_pool2d", "local", 2, False), *[(name, "global", 3, True) for name in ("bmm", "_softmax", "bmm")]],
    ),
}


def attention_to(linear: nn.Linear, x: Tensor, memory: Tensor) -> Tensor:
    return (linear(x) @ memory.transpose(1, 2)).softmax(-1) @ memory
