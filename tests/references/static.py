"""References of what mixes tokens by learned weights alone: convolutions, blocks of them, MLPs over tokens."""

import math

import torch
from torch import Tensor

from references.local import local_attention_strided, local_relation_strided
from references.plain import (
    ACTS,
    Options,
    Place,
    Spot,
    Weights,
    batch_norm,
    layer_norm,
    linear,
    normed,
    numbered,
    relu,
    sigmoid,
    silu,
    spots,
)


def convolved(
    x: Tensor, sides: Spot, leaf: Weights, *, stride: int = 1, dilation: int = 1, groups: int = 1, causal: bool = False
) -> Tensor:
    """Zeros beyond the border, around every s-th position; a causal kernel ends at its token."""
    tokens, weight = numbered(sides), leaf.weight
    kernel = tuple(weight.shape[2:])
    middle = tuple(size - 1 if causal else size // 2 for size in kernel)
    answers = []
    for here in tokens:
        if any(at % stride for at in here):
            continue
        total = x.new_zeros(x.shape[0], weight.shape[0])
        for tap in spots(kernel):
            there = tuple(a + dilation * (t - m) for a, t, m in zip(here, tap, middle, strict=True))
            if there in tokens:
                total = total + product(x[:, tokens[there]], weight[(slice(None), slice(None), *tap)], groups)
        answers.append(total)
    y = torch.stack(answers, 1)
    return y if leaf.bias is None else y + leaf.bias


def product(x: Tensor, matrix: Tensor, groups: int) -> Tensor:
    """Every group of channels by its own rows of the matrix."""
    parts = zip(x.chunk(groups, -1), matrix.chunk(groups, 0), strict=True)
    return x * matrix[:, 0] if groups == x.shape[-1] == len(matrix) else torch.cat([a @ b.T for a, b in parts], -1)


def conv(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Convolutions over a grid, tap by tap: y(n) = Σ W(tap) x(n + δ·(tap - middle)).

    Plain; depthwise; or depthwise and then every token alone (`separable`).
    """
    alone = options.form != "plain"
    leaf = weights.depthwise if options.form == "separable" else weights.conv or weights.depthwise
    y = convolved(
        x, place.sides, leaf, dilation=options.dilation, groups=place.dim if alone else 1, causal=bool(options.causal)
    )
    if options.form == "separable":
        y = linear(weights.pointwise, y)
    if options.act != "glu":
        return ACTS[options.act](y)
    half = y.shape[-1] // 2
    return y[..., :half] * sigmoid(y[..., half:])


# What residual networks' blocks share: a convolution, its batch norm, a shortcut.


def after(sides: Spot, stride: int) -> Spot:
    """How many positions 0, s, 2s, … there are along each side."""
    return tuple(len(range(0, side, stride)) for side in sides)


def pointwise(x: Tensor, leaf: Weights) -> Tensor:
    """A convolution of one position: every token alone."""
    y = x @ leaf.weight.flatten(1).T
    return y if leaf.bias is None else y + leaf.bias


def shortcut(x: Tensor, place: Place, weights: Weights, stride: int) -> Tensor:
    """X where the shape stays, else every s-th token by a map and a norm of its own."""
    if stride == 1 and place.dim == place.out_dim:
        assert weights.shortcut is None
        return x
    return batch_norm(weights.shortcut.norm, convolved(x, place.sides, weights.shortcut.conv, stride=stride))


INSTEAD = {"local_attention": local_attention_strided, "local_relation": local_relation_strided}


def bottleneck(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """The bottleneck (He et al. 2016, figure 5 right), in groups (Xie et al. 2017), squeezed (Hu et al. 2018).

    1×1, 3×3 (or what stands in its place), 1×1.
    """
    at_once = options.stride if options.stride_on == "1x1" else 1
    later = options.stride // at_once if at_once else 1
    y = relu(batch_norm(weights.norm1, convolved(x, place.sides, weights.conv1, stride=at_once)))
    sides, width = after(place.sides, at_once), y.shape[-1]
    if options.spatial is not None:
        inside = Place(sides, 0, width, width)
        mixer = INSTEAD[options.spatial.kind]
        y = mixer(options.spatial, inside, weights.spatial, y, later)
    else:
        groups = options.groups or width // (options.group_width or width)
        y = convolved(y, sides, weights.conv2, stride=later, groups=groups)
    y = relu(batch_norm(weights.norm2, y))
    if options.squeeze:
        y = y * gate(weights.squeeze, y)[:, None]
    y = batch_norm(weights.norm3, pointwise(y, weights.conv3))
    return relu(y + shortcut(x, place, weights, options.stride))


def gate(weights: Weights, y: Tensor) -> Tensor:
    """(B, D), between 0 and 1, out of the mean token (Hu et al. 2018, equations 2 to 4)."""
    mean = sum(y.unbind(1)) / y.shape[1]
    return sigmoid(pointwise(relu(pointwise(mean, weights.conv1)), weights.conv2))


def basic(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """The basic residual block (He et al. 2016, figure 5 left)."""
    y = relu(batch_norm(weights.norm1, convolved(x, place.sides, weights.conv1, stride=options.stride)))
    y = batch_norm(weights.norm2, convolved(y, after(place.sides, options.stride), weights.conv2))
    return relu(y + shortcut(x, place, weights, options.stride))


def vgg(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """VGG's block (Simonyan and Zisserman 2015, §2.1): 3×3 convolutions with ReLU, then the largest of every 2×2.

    Convolution, batch norm where there is one, ReLU, as often as is said; an odd last position is left out.
    """
    for number in range(1, options.convs + 1):
        x = convolved(x, place.sides, getattr(weights, f"conv{number}"))
        if options.norm != "none":
            x = batch_norm(getattr(weights, f"norm{number}"), x)
        x = relu(x)
    tokens = numbered(place.sides)
    answers = []
    for corner in spots(tuple(side // 2 for side in place.sides)):
        four = [tuple(2 * at + step for at, step in zip(corner, steps, strict=True)) for steps in steps_of(place)]
        answers.append(torch.stack([x[:, tokens[spot]] for spot in four], 0).amax(0))
    return torch.stack(answers, 1)


def steps_of(place: Place) -> list[tuple[int, ...]]:
    """The positions of a 2×2 square, or of its like along one axis or three, from its corner."""
    return spots((2,) * len(place.sides))


def inverted_residual(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """The inverted residual (Sandler et al. 2018, table 1), and with a squeeze as EfficientNet's (Tan and Le 2019, §4).

    Expand, convolve every channel alone, squeeze, project; added where the shape stays.
    """
    act, y = ACTS[options.act], x
    if options.ratio != 1 or options.hidden:
        y = act(batch_norm(weights.expand.norm, pointwise(x, weights.expand.conv)))
    y = convolved(y, place.sides, weights.conv, stride=options.stride, groups=y.shape[-1])
    y = act(batch_norm(weights.norm, y))
    if options.squeeze:
        mean = sum(y.unbind(1)) / y.shape[1]
        hidden = act(pointwise(mean, weights.squeeze.conv1))
        assert hidden.shape[-1] == round(options.squeeze * place.dim)
        y = y * sigmoid(pointwise(hidden, weights.squeeze.conv2)).unsqueeze(1)
    y = batch_norm(weights.project_norm, pointwise(y, weights.project_conv))
    return x + y if options.stride == 1 and place.dim == place.out_dim else y


def conv_mlp(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """The convolutional feed-forward network (Wang et al. 2022, §3.2; Xie et al. 2021, equation 3)."""
    h = ACTS[options.hidden_act](linear(weights.fc1, x))
    return linear(weights.fc2, ACTS[options.act](convolved(h, place.sides, weights.conv, groups=h.shape[-1])))


def depthwise_conv(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """The depthwise convolution: every channel has a kernel of its own."""
    assert tuple(weights.conv.weight.shape[2:]) == (options.size,) * len(place.sides)
    return convolved(x, place.sides, weights.conv, groups=place.dim)


def convnext(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """ConvNeXt's block (Liu et al. 2022, figure 4)."""
    y = convolved(x, place.sides, weights.conv, groups=place.dim)
    y = normed(options.norm, weights.norm, y)
    return linear(weights.fc2, ACTS[options.act](linear(weights.fc1, y)))


def conv_module(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Conformer's convolution module (Gulati et al. 2020, figure 2).

    W/2 of an even kernel's W tokens lie before the token.
    """
    wide = linear(weights.pointwise1, x)
    gated = wide[..., : place.dim] * sigmoid(wide[..., place.dim :])
    y = convolved(gated, place.sides, weights.depthwise, groups=place.dim)
    return linear(weights.pointwise2, silu(batch_norm(weights.norm, y)))


def conv_attention(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Attention with convolutional projections (Wu et al. 2021, §3.2).

    One head after the other, scores over the root of the whole width, as the public code has it.
    """
    q = projected(place, weights.q, x, 1)
    k, v = (projected(place, part, x, options.kv_stride) for part in (weights.k, weights.v))
    answers = []
    for mine in torch.arange(q.shape[-1]).chunk(options.heads):
        scores = torch.einsum("bnk,bmk->bnm", q[..., mine], k[..., mine]) / math.sqrt(q.shape[-1])
        answers.append(scores.softmax(-1) @ v[..., mine])
    return linear(weights.out, torch.cat(answers, -1))


def projected(place: Place, part: Weights, x: Tensor, stride: int) -> Tensor:
    """A depthwise convolution, batch norm, a linear map; special tokens by the map alone."""
    y = convolved(x[:, place.special :], place.sides, part.conv, stride=stride, groups=place.dim)
    return linear(part.linear, torch.cat([x[:, : place.special], batch_norm(part.norm, y)], 1))


def bytenet(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """ByteNet's block (Kalchbrenner et al. 2016, figure 3): a dilated convolution between two 1×1 ones, each normed."""
    y = relu(layer_norm(weights.norm1, linear(weights.pointwise1, relu(x))))
    y = convolved(y, place.sides, weights.conv, dilation=options.dilation, causal=bool(options.causal))
    return linear(weights.pointwise2, relu(layer_norm(weights.norm2, y)))


def average_pool(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """PoolFormer's pooling (Yu et al. 2022, equation 4): the mean of a K×K neighbourhood, less the token.

    The mean of the tokens that are there, and only of those.
    """
    reach = (options.size - 1) // 2
    answers = []
    for here in spots(place.sides):
        near = [
            x[:, number]
            for number, there in enumerate(spots(place.sides))
            if all(-reach <= b - a <= reach for a, b in zip(here, there, strict=True))
        ]
        answers.append(sum(near) / len(near))
    return torch.stack(answers, 1) - x


def mapped(leaf: Weights, x: Tensor) -> Tensor:
    """(B, N) -> (B, M): Σ over the tokens of one channel, for each of what comes out."""
    y = torch.stack([(x * row).sum(-1) for row in leaf.weight], -1)
    return y if leaf.bias is None else y + leaf.bias


def token_mlp(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """MLP-Mixer's token mixing (Tolstikhin et al. 2021, equation 1).

    W₂σ(W₁X), one channel after the other.
    """
    act = ACTS[options.act]
    return torch.stack([mapped(weights.fc2, act(mapped(weights.fc1, channel))) for channel in x.unbind(-1)], -1)


def gmlp(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """gMLP's block (Liu et al. 2021, equations 1 to 5): Z = σ(XU), Y = (Z₁ ⊙ (W Z₂ + b))V."""
    z = ACTS[options.act](linear(weights.fc1, x))
    half = z.shape[-1] // 2
    gates = normed(options.norm, weights.gate.norm, z[..., half:])
    mixed = torch.stack([mapped(weights.gate.spatial, channel) for channel in gates.unbind(-1)], -1)
    return linear(weights.fc2, z[..., :half] * mixed)


def token_linear(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """ResMLP's token mixing (Touvron et al. 2021, equation 2).

    (A Xᵀ)ᵀ, one channel after the other.
    """
    return torch.stack([mapped(weights.linear, channel) for channel in x.unbind(-1)], -1)


def fourier_mixing(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """FNet's token mixing (Lee-Thorp et al. 2022, equation 3).

    The real part of the transform over the width, then over the tokens.
    """
    return torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real
