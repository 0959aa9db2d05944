"""Small networks with their costs worked out by hand: what `test_any_model_networks.py` counts and traces."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from modules import Call, Module

SOFTMAX, NORM, LSTM, GRU, TANH = 5, 5, 27, 18, 5


class Network(NamedTuple):
    """A module, the shapes of its inputs, and what it costs."""

    module: Callable[[], nn.Module]
    shapes: tuple[tuple[int, ...], ...]
    expected: dict[str, int]
    keywords: dict[str, Any] = {}  # noqa: RUF012 - never written to


def call(function: Callable[..., Any], *shapes: tuple[int, ...], **expected: int) -> Network:
    return Network(lambda: Call(function), shapes, expected)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v)


def masked_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)


def grouped_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def talking_heads(self: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Scores of 3 heads, mixed by a learned map before and after the softmax (Shazeer et al. 2020)."""
    scores = self.before((q @ k.mT).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
    return self.after(scores.softmax(-1).permute(0, 2, 3, 1)).permute(0, 3, 1, 2) @ v


def softmax_over_classes(self: Any, x: Tensor) -> Tensor:
    """Attention, and a map of the same size whose classes are chosen by a softmax: no attention."""
    heads = x.unflatten(-1, (2, 4)).transpose(1, 2)
    weights = (heads @ heads.mT).softmax(-1)
    return self.map((weights @ heads).transpose(1, 2).flatten(2)).softmax(-1)


def headed(function: Callable[..., Any]) -> Callable[[], nn.Module]:
    """A head, and an auxiliary one, as `function` uses them."""
    return lambda: Module(function, head=nn.Linear(4, 2, bias=False), auxiliary=nn.Linear(4, 3, bias=False))


def dropped_result(self: Any, x: Tensor) -> Tensor:
    """Nobody reads what the auxiliary head gives."""
    self.auxiliary(x)
    return self.head(x)


def nested_results(self: Any, x: Tensor) -> dict[str, Any]:
    return {"out": self.head(x), "auxiliary": [self.auxiliary(x), None]}


def no_result(self: Any, x: Tensor) -> None:
    self.head(x)


class Square(torch.autograd.Function):
    """x·xᵀ, with a backward pass of its own."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x @ x.mT

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return (gradient + gradient.mT) @ x


def loop(self: Any, x: Tensor) -> Tensor:
    """One cell in a loop over 6 steps, some of it without gradients."""
    for _ in range(6):
        with torch.no_grad():
            x = self.cell(x).relu()
    return x


def encoder(*, training: bool) -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).train(training)


# An encoder layer of d = 8, h = 2, f = 16 on B·N = 2·5 tokens.
# MACs: 4 maps of d², 2 of d·f, and N·d for each of QKᵀ and AV, per token.
LAYER_MACS = 10 * (4 * 64 + 2 * 128 + 2 * 5 * 8)
# FLOPs beside them, per token: biases 3d + d + f + d, scale d, softmax of h·N scores, 2 sums of d, ReLU of f, 2 norms.
LAYER_WORK = 10 * ((24 + 8 + 16 + 8) + 8 + SOFTMAX * 2 * 5 + 16 + 16 + 2 * NORM * 8)
# in_proj 3d² + 3d, out_proj d² + d, linear1 d·f + f, linear2 f·d + d, 2 norms of 2d
LAYER_PARAMS = 192 + 24 + 64 + 8 + 128 + 16 + 128 + 8 + 32

NETWORKS: dict[str, Network] = {
    # 2·5 rows of 3·4 products; a bias each
    "linear": Network(lambda: nn.Linear(3, 4), ((2, 5, 3),), {"macs": 120, "flops": 240 + 40, "params": 16}),
    # 4·9 outputs per sample of 3·4 taps; the even kernel's pad is written: 2·3·10 elements
    "conv1d same": Network(
        lambda: nn.Conv1d(3, 4, 4, padding="same"), ((2, 3, 9),), {"macs": 2 * 36 * 12, "params": 52, "moved": 60}
    ),
    # 6 channels of 9·8 outputs, each of 4/2 channels · 6 taps; a bias each
    "conv2d grouped, dilated": Network(
        lambda: nn.Conv2d(4, 6, (3, 2), padding="same", dilation=2, groups=2),
        ((2, 4, 9, 8),),
        {"macs": 2 * 6 * 72 * 2 * 6, "flops": 2 * 2 * 6 * 72 * 12 + 2 * 6 * 72, "params": 6 * 2 * 6 + 6},
    ),
    # 4·(3·3·2) outputs of 2·27 taps
    "conv3d strided": Network(
        lambda: nn.Conv3d(2, 4, 3, stride=2, padding=1, bias=False),
        ((1, 2, 5, 5, 4),),
        {"macs": 4 * 18 * 54, "flops": 2 * 4 * 18 * 54, "params": 216},
    ),
    # each of 4·25 inputs meets 6/2 channels · 9 taps; the output is (6, 9, 9)
    "conv2d transposed": Network(
        lambda: nn.ConvTranspose2d(4, 6, 3, groups=2, dilation=2),
        ((2, 4, 5, 5),),
        {"macs": 2 * 100 * 27, "flops": 2 * 2 * 100 * 27 + 2 * 6 * 81, "params": 4 * 3 * 9 + 6},
    ),
    "matmul": call(torch.matmul, (3, 4), (4, 5), macs=60, flops=120),
    # 2·6 pairs of matrices
    "matmul, broadcast": call(torch.matmul, (2, 1, 3, 4), (6, 4, 5), macs=2 * 6 * 60, flops=2 * 2 * 6 * 60),
    # one matrix for every sample, as in MLP-Mixer and Linformer: B·N·N·D
    "matmul, of one matrix": call(torch.matmul, (7, 7), (3, 7, 5), macs=735, flops=1470),
    "bmm": call(torch.bmm, (2, 3, 4), (2, 4, 5), macs=120, flops=240),
    "baddbmm": call(torch.baddbmm, (2, 3, 5), (2, 3, 4), (2, 4, 5), macs=120, flops=240 + 30),
    # two products added up, and the sum added to (3, 5)
    "addbmm": call(torch.addbmm, (3, 5), (2, 3, 4), (2, 4, 5), macs=120, flops=240 + 15),
    "mv": call(torch.mv, (3, 4), (4,), macs=12, flops=24),
    # 2·3 · 4·6 scores of width 5
    "einsum with an ellipsis": call(
        lambda a, b: torch.einsum("...id,...jd->...ij", a, b), (2, 3, 4, 5), (2, 3, 6, 5), macs=720, flops=1440
    ),
    # (2, 3)·(3, 4), then (2, 4)·(4, 5)
    "einsum of three": call(
        lambda a, b, c: torch.einsum("ij,jk,kl->il", a, b, c), (2, 3), (3, 4), (4, 5), macs=24 + 40, flops=128
    ),
    # 2 outputs of 5, each summed over 3·4
    "tensordot": call(
        lambda a, b: torch.tensordot(a, b, dims=([1, 2], [0, 1])), (2, 3, 4), (3, 4, 5), macs=120, flops=240
    ),
    # 2 samples of 5 outputs: x₁·W is 3·4, ·x₂ another 4; their sum and the bias
    "bilinear": Network(
        lambda: nn.Bilinear(3, 4, 5), ((2, 3), (2, 4)), {"macs": 10 * 16, "flops": 320 + 20, "params": 65}
    ),
    # 15 tokens; layer 1 meets 6·4·4 + 4·4·4 weights in both directions, layer 2 8·4·4 + 4·4·4; 16 + 16 biases; h = 4
    "lstm": Network(
        lambda: nn.LSTM(6, 4, num_layers=2, bidirectional=True),
        ((5, 3, 6),),
        {
            "macs": 15 * 2 * (160 + 192),
            "flops": 2 * 15 * 2 * (160 + 192) + 15 * 4 * (4 * LSTM + 32),
            "params": 2 * (160 + 192 + 64),
        },
    ),
    # 3 gates of 4: 12·(6 + 4) weights, 24 biases
    "gru": Network(
        lambda: nn.GRU(6, 4), ((5, 3, 6),), {"macs": 15 * 120, "flops": 15 * (240 + 4 * GRU + 24), "params": 144}
    ),
    # 4·(6 + 4) weights, 8 biases, a sum and a tanh per unit
    "rnn": Network(
        lambda: nn.RNN(6, 4), ((5, 3, 6),), {"macs": 15 * 40, "flops": 15 * (80 + 4 * (1 + TANH) + 8), "params": 48}
    ),
    # a cell is its parts: two maps and 27 FLOPs per unit
    "lstm cell": Network(lambda: nn.LSTMCell(6, 4), ((3, 6),), {"macs": 480, "flops": 3 * (320 + 32 + 4 * LSTM)}),
    # 10 tokens: 4 maps of 8², 2 heads of 5·5 scores of width 4, and as much for AV
    "multi-head attention": Network(
        lambda: nn.MultiheadAttention(8, 2, batch_first=True),
        ((2, 5, 8),) * 3,
        {"macs": 10 * 256 + 2 * 2 * 2 * 100, "params": 288, "attention_entries": 2 * 2 * 25},
    ),
    "multi-head attention, fused": Network(
        lambda: nn.MultiheadAttention(8, 2, batch_first=True),
        ((2, 5, 8),) * 3,
        {"macs": 10 * 256 + 2 * 2 * 2 * 100, "params": 288, "attention_entries": 2 * 2 * 5},
        {"need_weights": False},
    ),
    "encoder in evaluation": Network(
        lambda: encoder(training=False),
        ((2, 5, 8),),
        {"macs": 3 * LAYER_MACS, "flops": 3 * (2 * LAYER_MACS + LAYER_WORK), "params": 3 * LAYER_PARAMS},
    ),
    "encoder in training": Network(
        lambda: encoder(training=True),
        ((2, 5, 8),),
        {"macs": 3 * LAYER_MACS, "flops": 3 * (2 * LAYER_MACS + LAYER_WORK), "params": 3 * LAYER_PARAMS},
    ),
    # 2·8 heads of 5·7 scores: 4 wide, values 6 wide; queries are scaled; log-sum-exps of 2·8·5 queries
    "fused attention, d_v ≠ d_k": call(
        attention, (2, 8, 5, 4), (2, 8, 7, 4), (2, 8, 7, 6),
        macs=560 * 10, flops=560 * 20 + 2 * 8 * 5 * 4 + 560 * SOFTMAX, attention_entries=80,
    ),
    "fused attention with a bias": call(
        masked_attention, (2, 8, 5, 4), (2, 8, 7, 4), (2, 8, 7, 6), (5, 7),
        macs=560 * 10, flops=560 * 20 + 2 * 8 * 5 * 4 + 560 * (SOFTMAX + 1), attention_entries=80,
    ),
    # 8 heads of queries share 2 of keys and values
    "fused attention of groups": call(
        grouped_attention, (2, 8, 5, 4), (2, 2, 7, 4), (2, 2, 7, 4), macs=560 * 8, attention_entries=80
    ),
    # all 3 samples share the queries of 2 heads, 5·7 scores each; log-sum-exps of 3·2·5 queries
    "queries that samples share": call(
        attention, (1, 2, 5, 4), (3, 2, 7, 4), (3, 2, 7, 4), macs=210 * 8, attention_entries=30
    ),
    # a softmax over a product of two activations: 6 heads of 5·7
    "eager attention": call(
        lambda q, k, v: (q @ k.transpose(-2, -1)).softmax(-1) @ v, (2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 4),
        macs=210 * 8, flops=210 * (16 + SOFTMAX), attention_entries=210,
    ),
    # as above with 3 heads, and two maps of 3 products for each of 2·5·7 pairs
    "talking heads": Network(
        lambda: Module(talking_heads, before=nn.Linear(3, 3, bias=False), after=nn.Linear(3, 3, bias=False)),
        ((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 4)),
        {"macs": 210 * 8 + 2 * 210 * 3, "attention_entries": 210},
    ),
    # 2 heads of 5·5
    "a softmax over classes is no attention": Network(
        lambda: Module(softmax_over_classes, map=nn.Linear(8, 8, bias=False)), ((1, 5, 8),),
        {"macs": 50 * 8 + 5 * 64, "attention_entries": 50}
    ),
    "a softmax of projected inputs is no attention": Network(
        lambda: nn.Sequential(nn.Linear(4, 3, bias=False), nn.Softmax(-1)),
        ((5, 4),),
        {"macs": 60, "flops": 120 + 15 * SOFTMAX, "attention_entries": 0},
    ),
    **{
        name: Network(headed(function), ((5, 4),), {"macs": 5 * (8 + 12), "flops": 10 * 20, "params": 20})
        for name, function in (("dropped result", dropped_result), ("auxiliary head", nested_results))
    },
    "returns nothing": Network(headed(no_result), ((5, 4),), {"macs": 5 * 8, "flops": 80, "params": 20}),
    "autograd function": call(Square.apply, (3, 4), macs=36, flops=72),
    # 6 steps of 3·16 products and 12 ReLUs
    "loop": Network(
        lambda: Module(loop, cell=nn.Linear(4, 4, bias=False)), ((3, 4),),
        {"macs": 6 * 48, "flops": 6 * (96 + 12), "params": 16},
    ),
    # 8 · 3 reals: n/2 complex numbers, 5·⌈log₂ n⌉ each, there and back
    "real Fourier transform": call(
        lambda x: torch.fft.irfft(torch.fft.rfft(x)), (3, 8), macs=0, flops=2 * 3 * 5 * 4 * 3
    ),
    # 3·8 complex numbers, 5·3 each; of real ones half as many
    "Fourier transform": call(lambda x: torch.fft.fft(x.to(torch.complex64)), (3, 8), macs=0, flops=24 * 15),
    "Fourier transform of reals": call(torch.fft.fft, (3, 8), macs=0, flops=12 * 15),
    "dropout in training": Network(nn.Dropout, ((3, 4),), {"flops": 0, "moved": 0}),
    # 2·3·30 distances, more than 25 vectors: a product of width 4 + 2
    "distances": call(
        torch.cdist, (2, 3, 4), (2, 30, 4), macs=180 * 6, flops=180 * 12 + (24 + 240) * 2 + 24 + 180 * 2
    ),
}  # fmt: skip
