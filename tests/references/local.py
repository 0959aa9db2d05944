"""References of attention over a neighbourhood or along a written pattern."""

import itertools
import math
from fractions import Fraction

import torch
from torch import Tensor

from references.attention import queries_keys_values
from references.plain import (
    Options,
    Place,
    Spot,
    Weights,
    attend,
    everything,
    gelu,
    layer_norm,
    linear,
    normed,
    numbered,
    spots,
    thirds,
)


class Axis:
    """One axis: S positions, padded to whole windows of w, rolled by s."""

    def __init__(self, side: int, size: int, shift: int) -> None:
        whole = side <= size  # one window, which is not shifted
        self.window = side if whole else size
        self.shift = 0 if whole else shift
        self.length = self.window * math.ceil(side / self.window)

    def rolled(self, at: int) -> int:
        return (at - self.shift) % self.length

    def region(self, at: int) -> int:
        """Of the three slices that the public code gives numbers of their own, so that the roll joins nothing."""
        if not self.shift:
            return 0
        return sum(self.rolled(at) >= edge for edge in (self.length - self.window, self.length - self.shift))

    def meets(self, one: int, other: int) -> bool:
        same_window = self.rolled(one) // self.window == self.rolled(other) // self.window
        return same_window and self.region(one) == self.region(other)


def window(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Window attention, shifted or not (Liu et al. 2021, §3.2), as the public implementation pads, rolls and masks.

    Zeros fill the last windows, and are attended over like tokens.
    """
    axes = [Axis(side, options.size, options.shift) for side in place.sides]
    padded = tuple(axis.length for axis in axes)
    tokens = numbered(place.sides)
    zeros = torch.zeros_like(x[:, 0])
    filled = torch.stack([x[:, tokens[spot]] if spot in tokens else zeros for spot in spots(padded)], 1)
    stands = spots(padded)

    def reads(n: int, m: int) -> bool:
        return all(axis.meets(a, b) for axis, a, b in zip(axes, stands[n], stands[m], strict=True))

    q, k, v = projected(weights, filled)
    if options.score == "cosine":
        q, k = cosines(weights, q, options.heads), unit(k, options.heads)
    bias = None if options.bias == "none" else window_biases(options, weights, axes, stands)
    y = linear(weights.out, attend(q, k, v, options.heads, reads, bias))
    return torch.stack([y[:, number] for number, spot in enumerate(stands) if spot in tokens], 1)


def projected(weights: Weights, x: Tensor) -> tuple[Tensor, ...]:
    if weights.qkv is not None:
        return thirds(weights.qkv, x)
    q, v = thirds(weights.qv, x, 2)
    return q, linear(weights.k, x), v


def unit(x: Tensor, heads: int) -> Tensor:
    """Every head's vectors of length 1; a vector of zeros stays one."""
    parts = [part / part.norm(dim=-1, keepdim=True).clamp_min(1e-12) for part in x.chunk(heads, -1)]
    return torch.cat(parts, -1)


def cosines(weights: Weights, q: Tensor, heads: int) -> Tensor:
    """Queries whose product with keys of length 1, over √K, is cos(q, k)/τ, 1/τ at most 100 (Liu et al. 2022, §3.2)."""
    width = q.shape[-1] // heads
    sharp = weights.cosine.temperature.weight.flatten().exp().clamp_max(100)
    return torch.cat(
        [sharp[head] * math.sqrt(width) * part for head, part in enumerate(unit(q, heads).chunk(heads, -1))], -1
    )


def window_biases(options: Options, weights: Weights, axes: list[Axis], stands: list[Spot]) -> Tensor:
    """(H, P, P): the table's row for how far two places of windows stand apart."""
    window = tuple(axis.window for axis in axes)
    rows = weights.relative_bias.weight if options.bias == "relative" else asked(window, weights.cpb)
    number = {apart: row for row, apart in enumerate(itertools.product(*(range(1 - side, side) for side in window)))}
    inside = [tuple(axis.rolled(at) % axis.window for axis, at in zip(axes, spot, strict=True)) for spot in stands]
    index = [[number[tuple(a - b for a, b in zip(one, two, strict=True))] for two in inside] for one in inside]
    return rows[torch.tensor(index)].permute(2, 0, 1)


def asked(window: Spot, network: Weights) -> Tensor:
    """(R, H): what a small network says of every offset, log-spaced (Liu et al. 2022, equations 3 and 4)."""
    rows = []
    for offset in itertools.product(*(range(1 - side, side) for side in window)):
        # from -8 to 8, whatever the window; then sign(x)·log₂(1 + |x|)/log₂8
        scaled = [8 * here / max(side - 1, 1) for here, side in zip(offset, window, strict=True)]
        spaced = [math.copysign(math.log2(1 + abs(x)) / 3, x) for x in scaled]
        hidden = (network.fc1.weight @ torch.tensor(spaced, dtype=torch.float64) + network.fc1.bias).clamp_min(0)
        rows.append(16 / (1 + (-(network.fc2.weight @ hidden)).exp()))
    return torch.stack(rows)


def pooling(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Pooling attention (Fan et al. 2021, equations 3 to 5; Li et al. 2022, equations 3 to 5), output by output.

    All pooled queries read all pooled keys.
    """
    q, k, v = pooled_parts(options, place, weights, x)
    sides = shape(place.sides, options.q_stride), shape(place.sides, options.kv_stride)
    y = attend(q, k, v, options.heads, bias=decomposed_bias(options, weights, q, sides, place.special))
    return finished(options, place, weights, y, q)


def pooled_parts(options: Options, place: Place, weights: Weights, x: Tensor) -> list[Tensor]:
    parts = zip("qkv", thirds(weights.qkv, x), strict=True)
    return [pooled_tokens(options, place, weights, name, part) for name, part in parts]


def finished(options: Options, place: Place, weights: Weights, y: Tensor, q: Tensor) -> Tensor:
    """Pooled queries added to what they read (Li et al. 2022, equation 5), of special tokens too or not."""
    if options.residual_pooling != "none":
        kept = place.special if options.residual_pooling == "grid" else 0
        y = torch.cat([y[:, :kept], y[:, kept:] + q[:, kept:]], 1)
    return linear(weights.out, y)


def along_axes(number: int | list[int], rank: int) -> tuple[int, ...]:
    return tuple(number) if isinstance(number, list) else (number,) * rank


def shape(sides: Spot, stride: int | list[int]) -> Spot:
    """⌈side / stride⌉ along every axis: what an odd kernel around its middle leaves."""
    return tuple(math.ceil(side / step) for side, step in zip(sides, along_axes(stride, len(sides)), strict=True))


def pooled_tokens(options: Options, place: Place, weights: Weights, name: str, x: Tensor) -> Tensor:
    """A weighted sum, a mean or a maximum of a kernel's tokens, padded by zeros (maxima by none), head by head."""
    size, stride = (options.q_size, options.q_stride) if name == "q" else (options.kv_size, options.kv_stride)
    rank = len(place.sides)
    sizes, strides = along_axes(size, rank), along_axes(stride, rank)
    if {*sizes, *strides} == {1}:
        return x
    tokens, leaf, norm = numbered(place.sides), getattr(weights, f"pool_{name}"), getattr(weights, f"norm_{name}")
    width = x.shape[-1] // options.heads
    heads = []
    for head in range(options.heads):
        mine = x[..., head * width : (head + 1) * width]
        outputs = [mine[:, at] for at in range(place.special)]
        for out in spots(shape(place.sides, stride)):
            terms = []
            for tap in spots(sizes):
                there = tuple(o * s + t - n // 2 for o, s, t, n in zip(out, strides, tap, sizes, strict=True))
                if there in tokens:
                    term = mine[:, place.special + tokens[there]]
                    terms.append(term * leaf.weight[(slice(None), 0, *tap)] if options.function == "conv" else term)
            total = torch.stack(terms).amax(0) if options.function == "max" else sum(terms)
            outputs.append(total / math.prod(sizes) if options.function == "mean" else total)
        y = torch.stack(outputs, 1)
        heads.append(layer_norm(norm, y) if options.function == "conv" else y)
    return torch.cat(heads, -1)


def decomposed_bias(
    options: Options, weights: Weights, q: Tensor, sides: tuple[Spot, Spot], special: int
) -> Tensor | None:
    """(H, B, N, M): Σ over the axes of qᵢ·R[iₐ - jₐ], distances in steps of the finer of the two grids."""
    if options.bias != "decomposed":
        return None
    queries, keys = (spots(one) for one in sides)
    width = q.shape[-1] // options.heads
    tables = weights.tables
    heads = []
    for head in range(options.heads):
        mine = q[..., head * width : (head + 1) * width]
        rows = [q.new_zeros(len(q), special + len(keys)) for _ in range(special)]
        for number, query in enumerate(queries):
            total = q.new_zeros(len(q), len(keys))
            for axis, (asked, others) in enumerate(zip(*sides, strict=True)):
                finer = Fraction(max(asked, others))
                at = [int(query[axis] * finer / asked - (key[axis] - others + 1) * finer / others) for key in keys]
                total = total + mine[:, special + number] @ getattr(tables, f"axis_{axis}")[at].T
            rows.append(torch.cat([q.new_zeros(len(q), special), total], -1))
        heads.append(torch.stack(rows, 1))
    return torch.stack(heads)


def window_pooling(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Pooling attention within windows (Li et al. 2022, §4.3): pooled maps are cut into windows, zeros beside them.

    A window of w positions has w/stride pooled ones along each axis; those outside the map are zeros, and read.
    """
    q, k, v = pooled_parts(options, place, weights, x)
    rank = len(place.sides)
    queries, keys = (numbered(shape(place.sides, stride)) for stride in (options.q_stride, options.kv_stride))
    each = tuple((options.window // stride,) * rank for stride in (options.q_stride, options.kv_stride))
    answers: dict[int, Tensor] = {}
    for window in {tuple(at // side for at, side in zip(spot, each[0], strict=True)) for spot in queries}:
        asked, read = inside(window, each[0], queries), inside(window, each[1], keys)
        parts = taken(q, asked), taken(k, read), taken(v, read)
        y = attend(*parts, options.heads, bias=decomposed_bias(options, weights, parts[0], each, 0))
        answers |= {number: y[:, at] for at, number in enumerate(asked) if number is not None}
    y = torch.stack([answers[number] for number in range(len(queries))], 1)
    return finished(options, place, weights, y, q)


def inside(window: Spot, sides: Spot, numbers: dict[Spot, int]) -> list[int | None]:
    """The tokens of a window; None for those outside the map."""
    return [
        numbers.get(tuple(w * side + at for w, side, at in zip(window, sides, spot, strict=True)))
        for spot in spots(sides)
    ]


def taken(x: Tensor, numbers: list[int | None]) -> Tensor:
    zeros = torch.zeros_like(x[:, 0])
    return torch.stack([zeros if number is None else x[:, number] for number in numbers], 1)


def local_attention(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Stand-alone local self-attention (Ramachandran et al. 2019, equation 3); beyond the border stand zeros."""
    return local_attention_strided(options, place, weights, x, options.stride)


def local_attention_strided(options: Options, place: Place, weights: Weights, x: Tensor, stride: int) -> Tensor:
    """Position by position and head by head; a stride is the mean of what there is of each cell."""
    tokens, rank, middle = numbered(place.sides), len(place.sides), (options.size - 1) // 2
    q, k, v = thirds(weights.qkv, x)
    zeros, outputs = torch.zeros_like(q[:, 0]), []
    for here, number in tokens.items():
        heads = []
        for head, mine in enumerate(torch.arange(place.dim).chunk(options.heads)):
            scores, values = [], []
            for offset in spots((options.size,) * rank):
                there = tokens.get(tuple(a + b - middle for a, b in zip(here, offset, strict=True)))
                key = (zeros if there is None else k[:, there])[:, mine]
                if options.position == "relative":
                    table = weights.positions.weight
                    key = key + torch.cat([table[axis, head, step] for axis, step in enumerate(offset)])
                scores.append((q[:, number, mine] * key).sum(-1))
                values.append((zeros if there is None else v[:, there])[:, mine])
            given = torch.stack(scores, -1).softmax(-1)
            heads.append(torch.einsum("bw,bwk->bk", given, torch.stack(values, 1)))
        outputs.append(torch.cat(heads, -1))
    return cell_means(outputs, place.sides, stride)


def cell_means(tokens: list[Tensor], sides: Spot, stride: int) -> Tensor:
    cells = spots(tuple(math.ceil(side / stride) for side in sides))
    stands = spots(sides)
    answers = []
    for cell in cells:
        inside = [
            token for token, at in zip(tokens, stands, strict=True) if tuple(place // stride for place in at) == cell
        ]
        answers.append(sum(inside) / len(inside))
    return torch.stack(answers, 1)


def local_relation(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """The local relation layer (Hu et al. 2019, equations 3 to 6), position by position."""
    return local_relation_strided(options, place, weights, x, options.stride)


def local_relation_strided(options: Options, place: Place, weights: Weights, x: Tensor, stride: int) -> Tensor:
    """Around every s-th position; a key beyond the border is as far as none is inside."""
    tokens, half = numbered(place.sides), (options.size - 1) // 2
    group = torch.tensor([channel // options.share for channel in range(place.dim)])
    q, k = linear(weights.q, x), linear(weights.k, x)
    offsets = list(itertools.product(range(-half, half + 1), repeat=len(place.sides)))
    outputs = []
    for here, number in tokens.items():
        if any(at % stride for at in here):
            continue
        similar, values = [], []
        for offset in offsets:
            there = tokens.get(tuple(a + b for a, b in zip(here, offset, strict=True)))
            apart = torch.full_like(q[:, 0], -100.0) if there is None else -((q[:, number] - k[:, there]) ** 2)
            hidden = (torch.tensor(offset, dtype=x.dtype) @ weights.prior.fc1.weight.T).clamp(min=0)
            similar.append(apart + hidden @ weights.prior.fc2.weight.T)
            values.append(torch.zeros_like(x[:, 0]) if there is None else x[:, there])
        given = torch.stack(similar, 1).softmax(1)[:, :, group]
        outputs.append((given * torch.stack(values, 1)).sum(1))
    return linear(weights.out, torch.stack(outputs, 1))


def sliding(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Sliding windows with global tokens (Beltagy et al. 2020, §3.1); causal ones (Jiang et al. 2023, §2).

    Rows of global tokens by projections of their own, where there are any.
    """
    g = options.global_tokens

    def reads(n: int, m: int) -> bool:
        steps, rest = divmod(n - m, options.dilation)
        near = 0 <= steps < options.window if options.causal else -options.window <= 2 * steps <= options.window
        return (rest == 0 and near) or n < g or m < g

    q, k, v = queries_keys_values(options, weights.qkv, x)
    read = attend(q, k, v, options.heads, reads)
    if g and options.global_projections is not False:
        keys = linear(weights.global_kv, x)
        half = keys.shape[-1] // 2
        rows = attend(linear(weights.global_q, x[:, :g]), keys[..., :half], keys[..., half:], options.heads)
        read = torch.cat([rows, read[:, g:]], 1)
    return linear(weights.out, read)


def blockwise(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Blockwise local attention (Parmar et al. 2018, §3.3): a block of queries reads one block of memory around it."""
    reads = on_a_grid if isinstance(options.block, list) else in_a_row
    return linear(weights.out, attend(*thirds(weights.qkv, x), options.heads, reads(options, place)))


def in_a_row(options: Options, place: Place):
    """1D local: a block of l_q queries reads itself and the l_m tokens before it."""

    def reads(n: int, m: int) -> bool:
        first = n - n % options.block
        inside = first - options.before <= m < first + options.block + options.after
        return inside and (m <= n or not options.causal)

    return reads


def on_a_grid(options: Options, place: Place):
    """2D local: h_m rows above, w_m columns beside; blocks are made one by one in raster order, and so inside them."""
    height, width = options.block
    stands = spots(place.sides)

    def made(row: int, column: int) -> tuple[int, int, int, int]:
        return row // height, column // width, row, column

    def reads(n: int, m: int) -> bool:
        (row, column), (other_row, other_column) = stands[n], stands[m]
        top, left = row - row % height, column - column % width
        rows = top - options.above <= other_row < top + height + options.below
        columns = left - options.beside <= other_column < left + width + options.beside
        return rows and columns and (made(other_row, other_column) <= made(row, column) or not options.causal)

    return reads


# A row runs along the last axis.
FROM_THE_END = {"row": 1, "column": 2, "depth": 3}


def axial(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Axial attention (Ho et al. 2019, §3): full attention along one axis of a grid.

    Two tokens meet where all their coordinates but one are the same; all axes are added.
    """
    rank = len(place.sides)
    several = options.axis == "all"
    names = list(FROM_THE_END)[:rank] if several else [options.axis]
    return sum(
        along(options, place, getattr(weights, name) if several else weights, rank - FROM_THE_END[name], x)
        for name in names
    )


def along(options: Options, place: Place, weights: Weights, axis: int, x: Tensor) -> Tensor:
    stands = spots(place.sides)

    def reads(n: int, m: int) -> bool:
        query, key = stands[n], stands[m]
        same_line = all(query[other] == key[other] for other in range(len(query)) if other != axis)
        return same_line and (key[axis] <= query[axis] or not options.causal)

    return linear(weights.out, attend(*thirds(weights.qkv, x), options.heads, reads))


def block_sparse(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """BigBird's block-sparse attention (Zaheer et al. 2020, §2 and appendix D).

    Blocks of b: three neighbours, first and last, and r drawn at random (`options.drawn`, as they were drawn).
    """
    tokens, b, r = place.total, options.block, options.random_blocks
    last = (tokens - 1) // b

    def reads(n: int, m: int) -> bool:
        query, key = n // b, m // b
        is_global = query in (0, last) or key in (0, last)
        return is_global or abs(query - key) <= 1 or key in options.drawn[query]

    few = tokens <= (5 + 2 * r) * b  # full attention, as in the public code
    if not few:
        for block in range(1, last):
            drawn = options.drawn[block]
            assert len(set(drawn)) == len(drawn) == r
            assert not set(drawn) & {0, block - 1, block, block + 1, last}
    return linear(weights.out, attend(*thirds(weights.qkv, x), options.heads, everything if few else reads))


def global_local(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Global-local attention (Ainslie et al. 2020, §3.1).

    Four parts: global to all, all to global, and text to its r neighbours on each side.
    """
    g = place.special
    glob, text = x[:, :g], x[:, g:]
    if weights.qkv is not None:
        q, k, v = thirds(weights.qkv, x)
        asked_g, asked_t, of_global, of_text = q[:, :g], q[:, g:], (k, v), (k, v)
    else:
        asked_g, *g2g = thirds(weights.global_qkv, glob)
        asked_t, *l2l = thirds(weights.long_qkv, text)
        g2l, l2g = thirds(weights.g2l_kv, text, 2), thirds(weights.l2g_kv, glob, 2)
        of_global = [torch.cat(pair, 1) for pair in zip(g2g, g2l, strict=True)]
        of_text = [torch.cat(pair, 1) for pair in zip(l2g, l2l, strict=True)]

    def near(n: int, m: int) -> bool:
        return m < g or -options.radius <= m - g - n <= options.radius

    read = linear(weights.out, attend(asked_t, *of_text, options.heads, near))
    if not g:
        return read
    rows = attend(asked_g, *of_global, options.heads)
    return torch.cat([linear(weights.global_out or weights.out, rows), read], 1)


def sparse(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Sparse Transformers' factorised attention (Child et al. 2019, §4.3 and §5.1).

    Equations 6 to 8; `heads` projects one factor after the other, with half of the heads each.
    """
    factors = {"local": local, "long": long}
    patterns = list(factors.values()) if options.integration == "heads" else [factors.get(options.integration, either)]
    heads = options.heads // len(patterns)
    wide = linear(weights.qkv, x)
    each = wide.shape[-1] // len(patterns)
    width = options.head_dim or place.dim // options.heads
    keys = heads * (options.key_dim or width)
    answers = []
    for number, pattern in enumerate(patterns):
        mine = wide[..., number * each : (number + 1) * each]
        q, k, v = mine[..., :keys], mine[..., keys : 2 * keys], mine[..., 2 * keys :]

        def reads(n: int, m: int, pattern=pattern) -> bool:
            return pattern(options, n, m) and (m <= n or not options.causal)

        answers.append(attend(q, k, v, heads, reads))
    return linear(weights.out, torch.cat(answers, -1))


def local(options: Options, n: int, m: int) -> bool:
    """The last l tokens, or those of a token's own block."""
    stride = options.stride
    return abs(n - m) <= stride if options.pattern == "strided" else n // stride == m // stride


def long(options: Options, n: int, m: int) -> bool:
    """Every l-th token, or the last c of every block."""
    stride = options.stride
    return (n - m) % stride == 0 if options.pattern == "strided" else m % stride >= stride - options.summary


def either(options: Options, n: int, m: int) -> bool:
    return local(options, n, m) or long(options, n, m)


def non_local(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """The non-local block (Wang et al. 2018, equations 2 and 6): one exponential per pair of a position and a pool."""
    read = max_pooled(options.pool, place.sides, x)
    parts = linear(weights.theta, x), linear(weights.phi, read), linear(weights.g, read)
    y = linear(weights.w_z, attend(*parts, 1))
    return normed(options.norm, weights.norm, y)


def max_pooled(pool: int | list[int], sides: Spot, x: Tensor) -> Tensor:
    """The maximum over every whole pool, in raster order; what is left at the border is read by nobody."""
    steps = tuple(pool) if isinstance(pool, list) else (pool,) * len(sides)
    tokens, answers = numbered(sides), []
    for corner in spots(tuple(side // step for side, step in zip(sides, steps, strict=True))):
        members = [
            tokens[tuple(c * s + at for c, s, at in zip(corner, steps, inside, strict=True))] for inside in spots(steps)
        ]
        answers.append(x[:, members].amax(1))
    return torch.stack(answers, 1)


def sagan(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """SAGAN's self-attention (Zhang et al. 2019, equations 1 to 3), position by position; no score is scaled."""
    f, g, h = (linear(leaf, x) for leaf in (weights.f, weights.g, weights.h))
    assert f.shape[-1] == place.dim // options.reduction
    g, h = (max_pooled(options.pool, place.sides, part) for part in (g, h))
    answers = []
    for position in range(place.total):
        scores = torch.einsum("bk,bmk->bm", f[:, position], g)
        answers.append(torch.einsum("bm,bmv->bv", scores.softmax(-1), h))
    o = torch.stack(answers, 1)
    o = linear(weights.v, o) if options.output_projection else o
    return weights.gamma.weight * o


def unfolded(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """MobileViT's attention (Mehta and Rastegari 2022, §3.1): among the tokens at one place of all P×P patches."""
    stands = spots(place.sides)

    def reads(n: int, m: int) -> bool:
        return all((a - b) % options.patch == 0 for a, b in zip(stands[n], stands[m], strict=True))

    return linear(weights.out, attend(*thirds(weights.qkv, x), options.heads, reads))


def spatial_reduction(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Spatial-reduction attention (Wang et al. 2021, equations 2 to 4), and its pooled form (Wang et al. 2022, §3.1).

    Key after key, out of the tokens of its patch or of its pooled window.
    """
    read = x
    if options.pooled:
        means = torch.stack([x[:, tokens].mean(1) for tokens in windows(place.sides, options.pooled)], 1)
        read = gelu(layer_norm(weights.norm, linear(weights.reduce, means)))
    elif options.reduction > 1:
        taps = weights.reduce.weight.flatten(2)
        sums = [
            sum(x[:, token] @ taps[:, :, at].T for at, token in enumerate(tokens))
            for tokens in patches(place.sides, options.reduction)
        ]
        read = layer_norm(weights.norm, torch.stack(sums, 1) + weights.reduce.bias)
    return linear(weights.out, attend(linear(weights.q, x), *thirds(weights.kv, read, 2), options.heads))


def patches(sides: Spot, reduction: int) -> list[list[int]]:
    """The tokens of every whole patch, in raster order: a rest along a side is read by nobody."""
    found: dict[Spot, list[int]] = {}
    for spot, number in numbered(sides).items():
        patch = tuple(at // reduction for at in spot)
        if all(at < side // reduction for at, side in zip(patch, sides, strict=True)):
            found.setdefault(patch, []).append(number)
    return [found[patch] for patch in sorted(found)]


def windows(sides: Spot, count: int) -> list[list[int]]:
    """An adaptive pool's: the i-th of p runs from ⌊i·S/p⌋ to ⌈(i + 1)·S/p⌉ along a side of S."""

    def members(at: int, side: int) -> list[int]:
        return [i for i in range(count) if i * side // count <= at < math.ceil((i + 1) * side / count)]

    found: dict[Spot, list[int]] = {}
    for spot, number in numbered(sides).items():
        keys: list[Spot] = [()]
        for at, side in zip(spot, sides, strict=True):
            keys = [(*key, i) for key in keys for i in members(at, side)]
        for key in keys:
            found.setdefault(key, []).append(number)
    return [found[key] for key in sorted(found)]
