"""Small modules whose mixing operations are worked out by hand."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from modules import Module

D = 8


def mapping(function: Callable[..., Tensor]) -> nn.Module:
    """A function of a linear map and x."""
    return Module(lambda self, *x: function(self.linear, *x), linear=nn.Linear(D, D))


SEQUENCE, IMAGE = (1, 6, D), (1, 3, 8, 8)


class Buffered(nn.Module):
    """Attention whose keys are written into the first columns of a buffer, beside columns of zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(1, 16, 2 * D))

    def forward(self, x: Tensor) -> Tensor:
        self.keys[..., :D].index_copy_(1, torch.arange(x.shape[1]), x)
        keys = self.keys[:, : x.shape[1], :D]
        return (x @ keys.mT).softmax(-1) @ keys


def kernel_and_residual(taps: int, before: int, after: int) -> Callable[..., Tensor]:
    """A token and what a kernel makes of it and of so many tokens on either side."""
    return lambda linear, x: x + F.conv1d(F.pad(x.mT, (before, after)), x.new_ones(D, D, taps)).mT


def signs(x: Tensor) -> Tensor:
    """A number of a row for each token, by its first channel."""
    return (x[..., 0] > 0).long()


def ring(n: int) -> Tensor:
    """The numbers of each of n tokens in a ring and of the ones beside it."""
    return (torch.arange(n)[:, None] + torch.arange(-1, 2)) % n


def causal_mask(n: int) -> Tensor:
    return torch.full((n, n), float("-inf")).triu(1)


def window_mask(n: int) -> Tensor:
    """Each query and the two before it."""
    far = torch.arange(n)[:, None] - torch.arange(n)
    return torch.where((far >= 0) & (far < 3), 0.0, float("-inf"))


def spectrum(x: Tensor) -> Tensor:
    return torch.fft.rfft(x, dim=1)


def ramp(x: Tensor) -> Tensor:
    """A factor for every frequency."""
    return torch.arange(x.shape[1], dtype=x.dtype)[:, None]


def fourier_blocks(linear: nn.Linear, x: Tensor) -> Tensor:
    """FNet as its public implementations write it: every block adds the frequencies to its tokens."""
    for _ in range(2):
        x = linear(x + torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real)
    return x


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


def by_steps(step: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A token, and the state that a step makes of it and of the state before."""

    def summed(linear: nn.Linear, x: Tensor) -> Tensor:
        state, steps = x.new_zeros(x.shape[0], D), []
        for token in x.unbind(1):
            state = step(linear, token, state)
            steps.append(state)
        return x + torch.stack(steps, 1)

    return summed


def middles(x: Tensor, part: float) -> Tensor:
    """The middles of all cells of an image, a part of their way from its middle."""
    y, x = ((2 * torch.arange(side, dtype=x.dtype) + 1) / side - 1 for side in x.shape[2:])
    return part * torch.stack(torch.meshgrid(x, y, indexing="xy"), -1)[None]


def near(linear: nn.Linear, x: Tensor) -> Tensor:
    """Points beside a token's own cell, as its channels say."""
    return middles(x, 1) + 0.2 * x[:, :2].movedim(1, -1).tanh()


def attention_to(linear: nn.Linear, x: Tensor, memory: Tensor) -> Tensor:
    return (linear(x) @ memory.mT).softmax(-1) @ memory


# Tokens that are sorted or chosen by what they hold, experts, and attention in loops over tokens ──────────────────────


def cut(x: Tensor, order: Tensor) -> Tensor:
    """The tokens in another order, or some of them."""
    return x.gather(1, order[..., None].expand(-1, -1, D))


def buckets(linear: nn.Linear, x: Tensor) -> Tensor:
    """Attention among two neighbours in the order of what they hold."""
    order = linear(x)[..., :4].argmax(-1).argsort(dim=1, stable=True)
    pairs = cut(x, order).unflatten(1, (-1, 2))
    return x + cut(attention_to(linear, pairs, pairs).flatten(1, 2), order.argsort(1))


def pruned(linear: nn.Linear, x: Tensor, kept: int) -> Tensor:
    return attention(linear, cut(x, linear(x)[..., 0].topk(kept, 1).indices))


def switched(linear: nn.Linear, x: Tensor) -> Tensor:
    """Each expert takes the tokens that chose it."""
    chosen, made = linear(x)[..., :3].argmax(-1), torch.zeros_like(x)
    for expert in range(3):
        mine = chosen == expert
        made[mine] = F.relu(linear(x[mine]))
    return x + made


def dispatched(linear: nn.Linear, x: Tensor) -> Tensor:
    """Tokens sorted by expert, and their results added up where they came from."""
    tokens = x.flatten(0, 1)
    weights, experts = linear(tokens).softmax(-1).topk(2, -1)
    order = experts.flatten().argsort()
    results = linear(tokens[order // 2]) * weights.flatten()[order][:, None]
    return torch.zeros_like(tokens).index_add_(0, order // 2, results).view_as(x)


def by_mask(linear: nn.Linear, x: Tensor) -> Tensor:
    """One-hot choices, as whole numbers that are written by index."""
    chosen = F.one_hot(linear(x)[..., :3].argmax(-1), 3)
    return sum((linear(x) * chosen[..., expert, None] for expert in range(3)), x)


def nearest(linear: nn.Linear, x: Tensor) -> Tensor:
    best = (linear(x) @ x.mT).argmax(-1)
    return x + cut(x, best)


def query_by_query(linear: nn.Linear, x: Tensor) -> Tensor:
    rows = []
    for query in linear(x).unbind(1):
        weights = (query[:, None] * x).sum(-1).softmax(-1)
        rows.append((weights[..., None] * x).sum(1))
    return torch.stack(rows, 1)


def decoded(linear: nn.Linear, x: Tensor) -> Tensor:
    """Each token attends to a cache of those before it."""
    rows = []
    for token in range(x.shape[1]):
        past = x[:, : token + 1]
        rows.append((linear(x[:, token : token + 1]) @ past.mT).softmax(-1) @ past)
    return torch.cat(rows, 1)


def gated(linear: nn.Linear, x: Tensor) -> Tensor:
    """A token that all read, and no softmax over tokens: no query."""
    return (x * linear(x[:, :1]).sigmoid()).softmax(-1)


# Without a rule of their own ──────────────────────────────────────────────────────────────────────────────────────────


def solved(linear: nn.Linear, x: Tensor) -> Tensor:
    """Each token minus what those before it explain, as in a delta rule."""
    eye = torch.eye(x.shape[1], dtype=x.dtype)
    return torch.linalg.solve_triangular((linear(x) @ x.mT).tril(-1) + eye, x, upper=False)


def folded(linear: nn.Linear, x: Tensor) -> Tensor:
    """Tokens as columns that are laid side by side."""
    return F.fold(x.mT, (2, x.shape[1]), (2, 1), stride=(2, 1))


def attends(kind: str, tokens: int, *, masked: bool = False) -> list[Any]:
    """Scores, their mask, a softmax and the weighted sum, each of which reads so many tokens."""
    names = ("bmm", "add", "_softmax", "bmm") if masked else ("bmm", "_softmax", "bmm")
    return [(name, kind, tokens, name != "add") for name in names]


Cases = dict[str, tuple[Any, list[Any]]]
# Of each what mixes: its name, kind, the most tokens that it reads, whether its weights depend on content.
OF_SEQUENCES: Cases = {
    "linear": (lambda linear, x: x + linear(x).relu(), []),
    "layer norm": (lambda linear, x: F.layer_norm(linear(x), (D,)), []),
    "softmax over channels": (lambda linear, x: linear(x).softmax(-1), []),
    "attention": (attention, attends("global", 6)),
    "causal": (lambda linear, x: attention(linear, x, causal_mask(x.shape[1])), attends("global", 6, masked=True)),
    "a window kept of a dense product": (
        lambda linear, x: attention(linear, x, window_mask(x.shape[1])), attends("local", 3, masked=True),
    ),
    "the same in one kernel": (
        lambda linear, x: F.scaled_dot_product_attention(*[x[:, None]] * 3, attn_mask=window_mask(x.shape[1])),
        [("_scaled_dot_product_flash_attention_for_cpu", "local", 3, True)],
    ),
    "windows, shifted": (windows, attends("local", 2)),
    "element-wise scores": (
        lambda linear, x: (linear(x)[:, :, None] + x[:, None]).tanh().sum(-1).softmax(-1) @ x,
        [(name, "global", 6, name != "sum") for name in ("add", "tanh", "sum", "_softmax", "bmm")],
    ),
    "a state": (linear_attention, [("bmm", "global", 6, True), ("bmm", "global", 6, True)]),
    "a shift": (lambda linear, x: x + F.pad(x, (0, 0, 1, -1)), [("add", "local", 2, False)]),
    "a shift, written in place": (in_place, [("add", "local", 2, False)]),
    "cumulative sum": (lambda linear, x: x.cumsum(1), [("cumsum", "global", 6, False)]),
    "a recurrence": (
        by_steps(lambda linear, token, state: torch.tanh(token + linear(state))),
        # the first product is of the first token alone
        [("add", "global", 6, True), *[(name, "global", 6, True) for name in ("addmm", "add")] * 4],
    ),
    # its weights are fixed
    "a moving average": (by_steps(lambda linear, token, state: token + 0.9 * state), [("add", "global", 6, False)] * 5),
    "LSTM": (nn.LSTM(D, D, batch_first=True), [("mkldnn_rnn_layer", "global", 6, True)]),
    "a mean at the end": (lambda linear, x: linear(x.mean(1)), []),
    "a mean that tokens read": (squeezed, [("mean", "global", 6, False), ("mul", "global", 6, True)]),
    "patch merging": (
        lambda linear, x: F.layer_norm(torch.cat([x[:, ::2], x[:, 1::2]], -1), (2 * D,)) @ torch.ones(2 * D, 3), [],
    ),
    "a state of two halves": (
        summed_by_halves, [*[("bmm", "global", 3, True)] * 2, ("add", "global", 3, False), ("bmm", "global", 6, True)],
    ),
    "a bias out of neighbours": (
        biased_by_neighbours, [("convolution", "local", 3, False), *attends("global", 6, masked=True)],
    ),
    "merged keys": (
        lambda linear, x: attention_to(linear, x, F.avg_pool1d(x.transpose(1, 2), 2).transpose(1, 2)),
        [("avg_pool2d", "local", 2, False), *attends("global", 3)],
    ),
    "every channel sorted": (lambda linear, x: x.sort(1).values, [("sort", "global", 6, True)]),
    "tokens sorted by one of their numbers": (lambda linear, x: cut(x, linear(x)[..., 0].argsort(1)), []),
    "heads that sort tokens, for the order alone": (
        lambda linear, x: x + x.gather(1, linear(x).topk(x.shape[1], 1).indices[..., :1].expand_as(x)),
        [("add", "local", 2, False)],
    ),
    "attention in buckets": (buckets, attends("local", 2)),
    "as many tokens kept at any size": (lambda linear, x: pruned(linear, x, 3), attends("local", 3)),
    "half of the tokens kept": (lambda linear, x: pruned(linear, x, x.shape[1] // 2), attends("global", 3)),
    "experts in a loop": (switched, []), "experts of sorted tokens": (dispatched, []),
    "experts by a mask": (by_mask, []),
    "the best key": (nearest, [("bmm", "global", 6, True), ("argmax", "global", 6, True), ("add", "local", 2, False)]),
    "query by query": (
        query_by_query,
        [(name, "global", 6, at < 4) for at, name in enumerate(("mul", "sum", "_softmax", "mul", "sum"))] * 6,
    ),
    "a gate of one token": (gated, [("mul", "local", 2, True)]), "halves multiplied": (lambda linear, x: F.glu(x), []),
    "a Fourier transform of tokens and channels": (
        lambda linear, x: torch.fft.fftn(x, dim=(1, 2)).real, [("_fft_c2c", "global", 6, False)],
    ),
    "Fourier transforms of channels, then of tokens": (fourier_blocks, [("_fft_c2c", "global", 6, False)] * 2),
    "a long convolution by complex spectra": (
        lambda linear, x: linear(torch.fft.ifft(torch.fft.fft(x, dim=1) * ramp(x), dim=1).real),
        [("_fft_r2c", "global", 6, False), ("_fft_c2c", "global", 6, False)],
    ),
    "a correlation by spectra": (
        lambda linear, x: torch.fft.irfft(spectrum(linear(x)) * spectrum(x).conj(), n=x.shape[1], dim=1),
        [("_fft_r2c", "global", 6, False)] * 2 + [("_fft_c2r", "global", 6, False)],
    ),
    # of a kernel's taps that one is the token itself which every output has: the middle one, the last, the first
    "a residual around a centred convolution": (kernel_and_residual(5, 2, 2), [("convolution", "local", 5, False)]),
    "a residual around a causal convolution": (kernel_and_residual(4, 3, 0), [("convolution", "local", 4, False)]),
    "a residual around a later convolution": (kernel_and_residual(4, 0, 3), [("convolution", "local", 4, False)]),
    "a residual around a convolution without padding": (
        lambda linear, x: x[:, 1:-1] + F.conv1d(x.mT, x.new_ones(D, D, 3)).mT, [("convolution", "local", 3, False)],
    ),
    "a bag at the end": (lambda linear, x: F.embedding_bag(signs(x), linear.weight), []),
    "a bag that tokens read": (
        lambda linear, x: x + F.embedding_bag(signs(x), linear.weight)[:, None],
        [("_embedding_bag", "global", 6, False), ("add", "global", 6, False)],
    ),
    "the maximum of a bag of tokens": (
        lambda linear, x: x + F.embedding_bag(torch.arange(x.shape[1])[None], x[0], mode="max")[:, None],
        [("_embedding_bag_forward_only", "global", 6, True), ("add", "global", 6, False)],
    ),
    "a bag of every token and its neighbours": (
        lambda linear, x: F.embedding_bag(ring(x.shape[1]), x[0], mode="sum")[None],
        [("_embedding_bag_forward_only", "local", 3, False)],
    ),
    "bags whose second number is hidden": (
        lambda linear, x: F.embedding_bag(
            torch.stack((torch.arange(x.shape[1]), torch.zeros(x.shape[1], dtype=torch.long)), -1).flatten(), x[0],
            torch.arange(0, 2 * x.shape[1] + 1, 2), padding_idx=0, include_last_offset=True,
        )[None],
        [],
    ),
    "bags of one": (lambda linear, x: F.embedding_bag(signs(x).mT, linear.weight)[None], []),
    "keys written into a part of a buffer": (
        Buffered(), [("bmm", "global", 6, True), ("_softmax", "global", 6, True), ("bmm", "global", 6, True)],
    ),
    "columns laid side by side": (folded, []),
    "columns that overlap": (
        lambda linear, x: F.fold(x.mT, (1, x.shape[1] + 1), (1, 2)), [("col2im", "local", 2, False)],
    ),
}  # fmt: skip
OF_IMAGES: Cases = {
    "pointwise convolution": (nn.Conv2d(3, 5, 1), []), "patches": (nn.Conv2d(3, 5, 4, stride=4), []),
    "convolution": (nn.Conv2d(3, 5, 3, padding=1), [("convolution", "local", 9, False)]),
    "transposed convolution": (nn.ConvTranspose2d(3, 5, 4, stride=2, padding=1), [("convolution", "local", 4, False)]),
    "transposed convolution, then a convolution of its finer grid": (
        nn.Sequential(nn.ConvTranspose2d(3, 5, 2, stride=2), nn.Conv2d(5, 3, 3, padding=1)),
        [("convolution", "local", 4, False)],
    ),
    "transposed convolution, kernels apart": (nn.ConvTranspose2d(3, 5, 2, stride=2), []),
    "dilated convolution": (nn.Conv2d(3, 3, 3, padding=2, dilation=2, groups=3), [("convolution", "local", 9, False)]),
    "maximum pooling": (nn.MaxPool2d(3, 1, 1), [("max_pool2d_with_indices", "local", 9, True)]),
    "an unfolded convolution": (
        lambda linear, x: F.unfold(x, 3, padding=1)[0].T @ torch.ones(27, 2), [("mm", "local", 9, False)],
    ),
    "a pixel between others that are padding": (
        lambda linear, x: F.unfold(x, (3, 1), dilation=(16, 1), padding=(16, 0))[0].T @ torch.ones(9, 2), [],
    ),
    "samples at fixed points": (
        lambda linear, x: F.grid_sample(x, middles(x, 0.9), align_corners=False),
        [("grid_sampler_2d", "local", 4, False)],
    ),
    "samples in the middle of cells": (lambda linear, x: F.grid_sample(x, middles(x, 1), align_corners=False), []),
    "samples at points that the tokens choose": (
        lambda linear, x: F.grid_sample(x, near(linear, x), padding_mode="border", align_corners=False),
        [("grid_sampler_2d", "local", 4, True)],
    ),
    "cubic samples at points that the tokens choose": (
        lambda linear, x: F.grid_sample(x, near(linear, x), mode="bicubic", align_corners=True),
        [("grid_sampler_2d", "local", 16, True)],
    ),
    "cells that are nearest to points, moved": (
        lambda linear, x: F.grid_sample(x, near(linear, x), mode="nearest", align_corners=False), [],
    ),
    "all tokens take a sample at one point, which all choose": (
        lambda linear, x: (
            x + F.grid_sample(x, x.mean((2, 3))[:, None, None, :2].expand(-1, *x.shape[2:], -1), align_corners=True)
        ),
        [("mean", "global", 64, False), ("grid_sampler_2d", "global", 4, True), ("add", "global", 64, False)],
    ),
    "a filter of the spectrum": (
        lambda linear, x: F.gelu(torch.fft.irfft2(torch.fft.rfft2(x) * 2, s=x.shape[2:])),
        [("_fft_r2c", "global", 64, False), ("_fft_c2r", "global", 64, False)],
    ),
    "group norm": (nn.GroupNorm(1, 3), [("native_group_norm", "global", 64, True)]),
}  # fmt: skip
CASES = {
    **{name: (one, (SEQUENCE,), expected) for name, (one, expected) in OF_SEQUENCES.items()},
    **{name: (one, (IMAGE,), expected) for name, (one, expected) in OF_IMAGES.items()},
    "attention of a batch": (attention, ((2, 6, D),), attends("global", 6)),
}
