"""Slow references of what stands around the mixers: embeddings, layers that change the grid, feed-forwards, heads.

One function per layer, named after its `kind`:

    (options, place, weights, x, the other stream (B, M, E) where one is read) -> the layer's output

`x` is an image (B, C, Y, X) where patches are cut, token numbers (B, N) where they are looked up, else (B, N, D).
"""

import itertools
import math

import torch
from torch import Tensor

from references import local
from references.attention import multihead
from references.plain import ACTS, Options, Place, Weights, layer_norm, linear, normed, numbered, spots

# From the last axis of the grid backwards.
AXES = ("row", "column", "depth")


def patch(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """A P×P patch is one vector of all its numbers, mapped (Dosovitskiy et al. 2021, equation 1)."""
    size = options.size
    height, width = (side // size for side in x.shape[2:])
    rows = []
    for row, column in spots((height, width)):
        cut = x[:, :, row * size : (row + 1) * size, column * size : (column + 1) * size]
        rows.append(cut.flatten(1) @ weights.projection.weight.flatten(1).T)
    y = torch.stack(rows, 1)
    y = y if weights.projection.bias is None else y + weights.projection.bias
    return normed(options.norm, weights.norm, y)


def patch_merging(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """2×2 neighbours beside each other, in the order of the public code: down the first column, then the second."""
    tokens, zeros = numbered(place.sides), torch.zeros_like(x[:, 0])
    merged = []
    for row, column in spots(tuple(math.ceil(side / 2) for side in place.sides)):
        corners = [(2 * row, 2 * column), (2 * row + 1, 2 * column)]
        corners += [(2 * row, 2 * column + 1), (2 * row + 1, 2 * column + 1)]
        merged.append(torch.cat([x[:, tokens[spot]] if spot in tokens else zeros for spot in corners], -1))
    y = torch.stack(merged, 1)
    if options.norm == "post":
        return layer_norm(weights.norm, linear(weights.reduction, y))
    return linear(weights.reduction, layer_norm(weights.norm, y))


def upsample(options: Options, place: Place, weights: Weights, x: Tensor, skip: Tensor) -> Tensor:
    """Token n of the longer sequence gets the pooled token that covers it (Dai et al. 2020, equation 4)."""
    answers = []
    for n in range(skip.shape[1]):
        at = n // options.factor
        if options.separate_cls:
            at = 0 if n == 0 else 1 + (n - 1) // options.factor
        answers.append(skip[:, n] + (x[:, at] if at < x.shape[1] else 0))
    return torch.stack(answers, 1)


def before(axis: str, sides: tuple[int, ...], x: Tensor, start: Tensor) -> Tensor:
    """Every token's predecessor along an axis; `start` for the first of each line."""
    tokens, along = numbered(sides), len(sides) - 1 - AXES.index(axis)
    answers = []
    for spot in tokens:
        there = tuple(at - (number == along) for number, at in enumerate(spot))
        answers.append(x[:, tokens[there]] if there in tokens else start.expand_as(x[:, 0]))
    return torch.stack(answers, 1)


def shift(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    start = weights.shift.weight if options.start == "learned" else torch.zeros_like(x[:, 0])
    return before(options.axis, place.sides, x, start)


def context(options: Options, place: Place, weights: Weights, x: Tensor, memory: Tensor) -> Tensor:
    """The encoder's output added token by token (Ho et al. 2019, §4.2)."""
    if options.shift:
        memory = before(options.shift, place.sides, memory, torch.zeros_like(memory[:, 0]))
    return x + memory


def concatenate(options: Options, place: Place, weights: Weights, x: Tensor, earlier: Tensor) -> Tensor:
    """The earlier stage's channels first."""
    return torch.stack([torch.cat([earlier[:, n], x[:, n]], -1) for n in range(x.shape[1])], 1)


def fold_axis(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """The tokens of every line along the last axis beside each other."""
    tokens, last = numbered(place.sides), place.sides[-1]
    lines = [[tokens[(*spot, at)] for at in range(last)] for spot in spots(place.sides[:-1])]
    return torch.stack([torch.cat([x[:, token] for token in line], -1) for line in lines], 1)


def axis_position(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """The vector of a token's row plus that of its column."""
    added = [weights.tables.rows[row] + weights.tables.columns[column] for row, column in spots(place.sides)]
    return x + torch.stack(added)


def class_token(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    return torch.stack([weights.prepend.weight[0, 0].expand_as(x[:, 0]), *x.unbind(1)], 1)


def distillation_token(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Behind the class token (Touvron et al. 2021, §4)."""
    tokens = list(x.unbind(1))
    return torch.stack(
        [*tokens[: place.special], weights.insert.weight[0, 0].expand_as(x[:, 0]), *tokens[place.special :]], 1
    )


def memory_tokens(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Before all others (Burtsev et al. 2020, §3.1)."""
    learned = [weights.prepend.weight[0, at].expand_as(x[:, 0]) for at in range(options.count)]
    return torch.stack([*learned, *x.unbind(1)], 1)


def position(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """A vector per token added: learned, sin and cos, or made of the axes' own."""
    makes = {"learned": learned, "sinusoidal": sinusoidal, "axial": axial, "separate": separate}
    return x + torch.stack([makes[options.form](options, place, weights, token) for token in range(place.total)])


def learned(options: Options, place: Place, weights: Weights, token: int) -> Tensor:
    return weights.table.weight[token]


def sinusoidal(options: Options, place: Place, weights: Weights, token: int) -> Tensor:
    """PE(pos, 2i) = sin(pos/10000^(2i/d)), PE(pos, 2i+1) its cos (Vaswani et al. 2017, §3.5)."""
    angles = [token / 10000 ** (2 * (column // 2) / place.dim) for column in range(place.dim)]
    waves = [math.cos(angle) if column % 2 else math.sin(angle) for column, angle in enumerate(angles)]
    return torch.tensor(waves, dtype=torch.float32).double()


def axial(options: Options, place: Place, weights: Weights, token: int) -> Tensor:
    """One table per axis of `shape`, their vectors beside each other (Kitaev et al. 2020, the public code)."""
    spot = spots(tuple(options.shape))[token]
    return torch.cat([getattr(weights.axes, str(axis)).weight[at] for axis, at in enumerate(spot)])


def separate(options: Options, place: Place, weights: Weights, token: int) -> Tensor:
    """A table of time steps and one of the places of a step, added; a row per special token."""
    if token < place.special:
        return weights.tables.special[token]
    step, *spot = spots(place.sides)[token - place.special]
    return weights.tables.steps[step] + weights.tables.places[numbered(place.sides[1:])[tuple(spot)]]


def fourier(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Where a pixel stands, from -1 to 1, then sin and cos of π·f·that (Jaegle et al. 2021, §3.2), behind its own."""
    tokens = []
    for spot in spots(place.sides):
        stands = [2 * at / (side - 1) - 1 if side > 1 else -1 for at, side in zip(spot, place.sides, strict=True)]
        angles = []
        for at, side in zip(stands, place.sides, strict=True):
            steps = max(options.bands - 1, 1)
            angles += [math.pi * at * (1 + (side / 2 - 1) * band / steps) for band in range(options.bands)]
        tokens.append([*stands, *map(math.sin, angles), *map(math.cos, angles)])
    features = torch.tensor(tokens, dtype=x.dtype).expand(len(x), -1, -1)
    return torch.cat([x, features], -1)


def projection(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    return linear(weights.projection, x)


def token(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """A row of the table per number, times √d where that is asked (Vaswani et al. 2017, §3.4)."""
    table = weights.lookup.weight
    rows = torch.stack([torch.stack([table[int(number)] for number in numbers]) for numbers in x])
    return rows * math.sqrt(table.shape[1]) if options.scale == "sqrt_dim" else rows


def token_type(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """All tokens are of the first type."""
    return x + weights.lookup.weight[0]


def mlp(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    return linear(weights.fc2, ACTS[options.act](linear(weights.fc1, x)))


def swiglu(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """(silu(x G) ⊙ x U) D (Shazeer 2020, equation 6)."""
    return linear(weights.down, ACTS["silu"](linear(weights.gate, x)) * linear(weights.up, x))


def geglu(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """(gelu(x G) ⊙ x U) D (Shazeer 2020, equation 6)."""
    return linear(weights.down, ACTS[options.act](linear(weights.gate, x)) * linear(weights.up, x))


def norm(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    return normed(options.norm, weights.norm, x)


def fold(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Tokens on a grid stand in raster order, as they stood in the sequence."""
    return x


def pixels(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Every position's channels, in raster order."""
    return torch.stack([x[(slice(None), slice(None), *spot)] for spot in spots(tuple(x.shape[2:]))], 1)


def dense(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """act(norm(x W + b))."""
    y = linear(weights.linear, x)
    return ACTS[options.act](normed(options.norm, weights.norm, y))


def local_relation(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """The mixer of that name, then a norm and an activation."""
    y = local.local_relation(options, place, weights, x)
    return ACTS[options.act](normed(options.norm, weights.norm, y))


def classifier(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Norm, pool, linear; pooled before the norm where that is asked; two tokens' answers averaged."""
    if options.norm_after_pool:
        pooled = x[:, 0] if options.pool == "class_token" else sum(x.unbind(1)) / x.shape[1]
        return linear(weights.linear, normed(options.norm, weights.norm, pooled))
    x = normed(options.norm, weights.norm, x)
    if options.pool == "none":
        return linear(weights.linear, x)
    if options.pool == "mean":
        return linear(weights.linear, sum(x.unbind(1)) / x.shape[1])
    if options.pool == "class_token":
        return linear(weights.linear, x[:, 0])
    return (linear(weights.linear, x[:, 0]) + linear(weights.distillation_linear, x[:, 1])) / 2


def flatten_classifier(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Means of a fixed number of windows, channel by channel in raster order; hidden layers; classes."""
    tokens, cells = numbered(place.sides), []
    for cell in spots((options.pooled,) * len(place.sides)):
        windows = [
            range(side * at // options.pooled, math.ceil(side * (at + 1) / options.pooled))
            for at, side in zip(cell, place.sides, strict=True)
        ]
        read = [x[:, tokens[spot]] for spot in itertools.product(*windows)]
        cells.append(sum(read) / len(read))
    y = torch.stack(cells, -1).flatten(1)
    for number in range(1, len(options.hidden) + 1):
        y = ACTS[options.act](linear(getattr(weights, f"fc{number}"), y))
    return linear(weights.linear, y)


def language_model(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    x = normed(options.norm, weights.norm, x)
    return linear(weights.linear, x / math.sqrt(place.dim) if options.scale == "rsqrt_dim" else x)


def pooler(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """The first token's tanh(W x + b) (Devlin et al. 2019, the public code)."""
    x = normed(options.norm, weights.norm, x)
    y = linear(weights.linear, x[:, 0])
    y = y.tanh() if options.act == "tanh" else ACTS[options.act](y)
    return linear(weights.classify, y) if options.classes else y


def masked_language_model(
    options: Options, place: Place, weights: Weights, x: Tensor
) -> Tensor | tuple[Tensor, Tensor]:
    """norm(act(xW + b)), then scores; and whether the next sentence follows, of the first token's tanh(W x + b)."""
    y = normed(options.norm, weights.norm, ACTS[options.act](linear(weights.transform, x)))
    scores = linear(weights.linear, y)
    if not options.next_sentence:
        return scores
    return scores, linear(weights.next_sentence, linear(weights.pooler.linear, x[:, 0]).tanh())


Window = list[tuple[tuple[int, ...], int | None]]


def windows(options: Options, sides: tuple[int, ...]) -> list[Window]:
    """For every output (offset in the kernel, token or None beyond the border), by looking at each position.

    Padding that isn't given is half the kernel, and none where the stride is no less than the kernel.
    """
    padding = options.padding
    if padding is None:
        padding = options.size // 2 if options.stride < options.size else 0
    size, stride, more = (
        value if isinstance(value, list) else [value] * len(sides) for value in (options.size, options.stride, padding)
    )
    tokens = numbered(sides)
    starts = [range(-m, side + m - k + 1, s) for side, k, s, m in zip(sides, size, stride, more, strict=True)]
    offsets = list(itertools.product(*map(range, size)))
    return [
        [(offset, tokens.get(tuple(a + b for a, b in zip(start, offset, strict=True)))) for offset in offsets]
        for start in itertools.product(*starts)
    ]


def conv(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """The kernel's weights at every token under it, group by group; a norm and an activation."""
    outputs = []
    for window in windows(options, place.sides):
        y = x.new_zeros(x.shape[0], weights.conv.weight.shape[0])
        for offset, token in window:
            if token is not None:
                kernels = weights.conv.weight[(slice(None), slice(None), *offset)].chunk(options.groups)
                parts = x[:, token].chunk(options.groups, -1)
                y = y + torch.cat([a @ b.T for a, b in zip(parts, kernels, strict=True)], -1)
        outputs.append(y + weights.conv.bias if options.bias else y)
    return ACTS[options.act](normed(options.norm, weights.norm, torch.stack(outputs, 1)))


def pool(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """The maximum of the tokens under a kernel, or their sum divided by its positions, those of padding too."""
    outputs = []
    for window in windows(options, place.sides):
        under = torch.stack([x[:, token] for _, token in window if token is not None])
        outputs.append(under.amax(0) if options.form == "max" else under.sum(0) / len(window))
    return torch.stack(outputs, 1)


def pooling_attention(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Seeds ask the tokens, and are joined with what they read (Lee et al. 2019, equation 11)."""
    seeds, how = weights.seeds.weight.repeat(len(x), 1, 1), options.residual
    if how == "none":
        return multihead(weights, seeds, x, options.heads)
    if how.place == "pre":
        asking, asked = normed(how.norm, weights.seeds_norm, seeds), normed(how.norm, weights.tokens_norm, x)
        return seeds + multihead(weights, asking, asked, options.heads)
    read = multihead(weights, seeds, x, options.heads)
    if how.place == "post":
        return normed(how.norm, weights.norm, seeds + read)
    return seeds + normed(how.norm, weights.norm, read)
