"""References of attention over all tokens, and of what stands for it at less cost."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from references.plain import (
    Options,
    Place,
    Weights,
    attend,
    everything,
    linear,
    normed,
    relu,
    rms_norm,
    thirds,
    up_to_itself,
)

# ALiBi's slopes by the number of heads (Press et al. 2022, §3; other numbers than powers of two as in its code).
SLOPES = {
    1: [1 / 256],
    2: [1 / 16, 1 / 256],
    3: [1 / 16, 1 / 256, 1 / 4],
    6: [1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8],
}


def turned(x: Tensor, width: int, base: float) -> Tensor:
    """Rotary positions (Su et al. 2021, equation 34), one head and one pair of columns i, i + K/2 after the other."""
    columns = list(x.unbind(-1))
    for first in range(0, len(columns), width):
        for pair in range(width // 2):
            one, other = first + pair, first + pair + width // 2
            angles = [at * base ** (-2 * pair / width) for at in range(x.shape[1])]
            cos, sin = single([math.cos(angle) for angle in angles]), single([math.sin(angle) for angle in angles])
            a, b = columns[one], columns[other]
            columns[one], columns[other] = a * cos - b * sin, b * cos + a * sin
    return torch.stack(columns, -1)


def single(numbers: list[float]) -> Tensor:
    """As a table in single precision holds them."""
    return torch.tensor(numbers, dtype=torch.float32).double()


def queries_keys_values(options: Options, leaf: Weights, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of every head of queries; head h reads the keys of head ⌊h/shared⌋ (Ainslie et al. 2023, §2.2)."""
    groups = options.kv_heads or options.heads
    width = options.head_dim or x.shape[-1] // options.heads
    values = getattr(options, "value_dim", None) or width
    wide = linear(leaf, x)
    asks, keys = options.heads * width, groups * width
    q, k, v = wide[..., :asks], wide[..., asks : asks + keys], wide[..., asks + keys :]
    if options.position == "rope":
        q, k = (turned(part, width, options.rope_base) for part in (q, k))
    of = [head * groups // options.heads for head in range(options.heads)]
    k = torch.cat([k[..., group * width : (group + 1) * width] for group in of], -1)
    v = torch.cat([v[..., group * values : (group + 1) * values] for group in of], -1)
    return q, k, v


def bucket(away: int, count: int, distance: int, *, causal: bool) -> int:
    """T5's bucket of a key `away` tokens after its query, by whole numbers alone (no logarithm is rounded).

    Of the buckets that are not exact, the i-th begins at exact·(distance/exact)^(i/more).
    """
    side = count if causal else count // 2
    first = side if away > 0 and not causal else 0
    away = max(-away, 0) if causal else abs(away)
    exact = side // 2
    if away < exact:
        return first + away
    more = side - exact
    begun = sum(away**more * exact**i >= exact**more * distance**i for i in range(1, more))
    return first + exact + begun


def bias(options: Options, weights: Weights, tokens: int) -> Tensor | None:
    """(H, N, N), pair by pair."""
    if options.bias:
        count, distance = options.bias.count, options.bias.distance
        rows = [
            [bucket(j - i, count, distance, causal=bool(options.causal)) for j in range(tokens)] for i in range(tokens)
        ]
        return torch.stack([torch.stack([weights.relative_bias.weight[row] for row in line]) for line in rows]).permute(
            2, 0, 1
        )
    if options.position == "alibi":
        back = torch.tensor([[float(i - j) for j in range(tokens)] for i in range(tokens)], dtype=torch.float64)
        return torch.stack([-slope * back for slope in SLOPES[options.heads]])
    return None


def full(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Full attention (Vaswani et al. 2017, §3.2) and what later models changed of it."""
    q, k, v = queries_keys_values(options, weights.qkv, x)
    if not options.scaled:
        q = q * math.sqrt(q.shape[-1] // options.heads)
    reads = up_to_itself if options.causal else everything
    if options.window:
        reads = lambda n, m: 0 <= n - m < options.window  # noqa: E731 - as the others are named
    if options.talking_heads:
        y = talking(options.heads, weights, (q, k, v))
    else:
        y = attend(q, k, v, options.heads, reads, bias(options, weights, place.total))
    return linear(weights.out, y) if options.output_projection else y


def talking(heads: int, core: Weights, parts: tuple[Tensor, ...]) -> Tensor:
    """Every head's scores are a sum of all heads' with P_l, its weights one with P_w (Shazeer et al. 2020, §2)."""
    q, k, v = (part.chunk(heads, -1) for part in parts)
    scores = [torch.einsum("bnk,bmk->bnm", q[h], k[h]) / math.sqrt(q[h].shape[-1]) for h in range(heads)]
    mixed = [
        sum(core.proj_l.weight[i, h] * scores[h] for h in range(heads)) + core.proj_l.bias[i] for i in range(heads)
    ]
    given = [one.softmax(-1) for one in mixed]
    back = [sum(core.proj_w.weight[i, h] * given[h] for h in range(heads)) + core.proj_w.bias[i] for i in range(heads)]
    return torch.cat([back[h] @ v[h] for h in range(heads)], -1)


def mla(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Multi-head latent attention (DeepSeek-V2, equations 9 to 19).

    Head by head: c = x W_D, k = [c W_K, turned(x W_R)], v = c W_V, q likewise.
    """
    r, base = options.rope_dim, options.rope_base
    width = options.head_dim or place.dim // options.heads
    values = options.value_dim or width
    down = linear(weights.kv_down, x)
    latent = rms_norm(weights.kv_norm, down[..., : options.kv_rank])
    shared = turned(down[..., options.kv_rank :], r, base)
    if options.q_rank:
        queries = linear(weights.q_up, rms_norm(weights.q_norm, linear(weights.q_down, x)))
    else:
        queries = linear(weights.q, x)
    both = linear(weights.kv_up, latent)
    q, k, v = [], [], []
    for head in range(options.heads):
        mine = queries[..., head * (width + r) : (head + 1) * (width + r)]
        made = both[..., head * (width + values) : (head + 1) * (width + values)]
        q += [mine[..., :width], turned(mine[..., width:], r, base)]
        k += [made[..., :width], shared]
        v += [made[..., width:]]
    joined = [torch.cat(parts, -1) for parts in (q, k, v)]
    reads = up_to_itself if options.causal else everything
    return linear(weights.out, attend(*joined, options.heads, reads))


def cross(options: Options, place: Place, weights: Weights, x: Tensor, memory: Tensor) -> Tensor:
    """Cross-attention (Vaswani et al. 2017, §3.2.3): queries of one stream, keys and values of another."""
    q, both = linear(weights.q, x), linear(weights.kv, memory)
    keys = q.shape[-1]
    if not options.scaled:
        q = q * math.sqrt(keys // options.heads)
    return linear(weights.out, attend(q, both[..., :keys], both[..., keys:], options.heads))


def class_attention(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Class attention (Touvron et al. 2021, §3): the class token asks, all tokens answer.

    As if all tokens asked; then the first rows of it.
    """
    parts = [linear(leaf, x) for leaf in (weights.q, weights.k, weights.v)]
    return linear(weights.out, attend(*parts, options.heads))[:, : place.special]


def relative(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Relative attention with a memory (Dai et al. 2019, §3.3).

    With the memory that stands in the module; nothing is learned through it.
    """
    memory = weights.memory_1PD.expand(len(x), -1, -1) if options.memory else x[:, :0]
    return with_memory(options, weights, x, memory)


def with_memory(options: Options, weights: Weights, x: Tensor, memory: Tensor) -> Tensor:
    """Term by term: A = q·k + q·W_R R + u·k + v·W_R R, with R of the distance i - j."""
    past, tokens = memory.shape[1], x.shape[1]
    q = linear(weights.q, x)
    k, v = thirds(weights.kv, torch.cat([memory, x], 1), 2)
    u, w = weights.content_bias.weight[0], weights.position_bias.weight[0]
    heads = []
    for mine in torch.arange(q.shape[-1]).chunk(options.heads):
        rows = []
        for i in range(tokens):
            keys = list(range(past + i + 1 if options.causal else past + tokens))
            r = torch.stack([encoding(past + i - j, x.shape[-1]) for j in keys]) @ weights.r.weight[mine].T
            here, there = q[:, i, mine], k[:, keys][..., mine]
            content = torch.einsum("bk,bmk->bm", here, there) + there @ u[mine]
            position = here @ r.T + r @ w[mine]
            given = ((content + position) / math.sqrt(len(mine))).softmax(-1)
            rows.append(torch.einsum("bm,bmk->bk", given, v[:, keys][..., mine]))
        heads.append(torch.stack(rows, 1))
    return linear(weights.out, torch.cat(heads, -1))


def encoding(distance: int, width: int) -> Tensor:
    """sin and cos of distance/10000^(2i/d), in single precision as a model holds it."""
    angles = [distance / 10000 ** (2 * i / width) for i in range((width + 1) // 2)]
    waves = [wave(angle) for wave in (math.sin, math.cos) for angle in angles]
    return torch.tensor(waves[:width], dtype=torch.float32).double()


def compressive(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Compressive attention (Rae et al. 2020, §3.1).

    With what stands in the module: what was evicted is compressed and pushes out the oldest.
    """
    slots = options.compressed_memory
    stood = weights.memory_1PD.expand(len(x), -1, -1)
    new = compressed_once(options, weights, weights.evicted_1ND.expand(len(x), -1, -1))
    kept = torch.cat([stood[:, :slots], new], 1)[:, -slots:]
    return with_memory(options, weights, x, torch.cat([kept, stood[:, slots:]], 1))


def compressed_once(options: Options, weights: Weights, evicted: Tensor) -> Tensor:
    """Every c of them made one, by torch's own convolution and pooling; a rest is dropped."""
    c, channels = options.compression, evicted.transpose(1, 2)
    if evicted.shape[1] < c:
        return evicted[:, :0]
    if options.function == "conv":
        kernel = weights.compress.weight.unflatten(1, (c, -1)).transpose(1, 2)
        return F.conv1d(channels, kernel, weights.compress.bias, stride=c).transpose(1, 2)
    pool = F.avg_pool1d if options.function == "mean" else F.max_pool1d
    return pool(channels, c).transpose(1, 2)


def funnel(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Funnel attention (Dai et al. 2020, §2.2 and appendix A.2.1), pair by pair; all tokens are of one type.

    Queries are pooled, keys with them or not. A separate [CLS] is the token before the first pooled two.
    """
    pooled = pool(options, x)
    step = options.spacing
    here = [step * j for j in range(x.shape[1])]
    there = [2 * step * i - step * options.separate_cls for i in range(pooled.shape[1])]
    query_at = here if pooled.shape == x.shape else there
    key_at = here if options.pool_q_only else query_at
    q = linear(weights.q, pooled)
    k, v = thirds(weights.kv, x if options.pool_q_only else pooled, 2)
    heads = []
    for mine in torch.arange(q.shape[-1]).chunk(options.heads):
        parts = q[..., mine], k[..., mine], v[..., mine]
        heads.append(head(options, weights, mine, parts, (query_at, key_at), place.dim))
    return linear(weights.out, torch.cat(heads, -1))


def pool(options: Options, x: Tensor) -> Tensor:
    tokens, cls = list(x.unbind(1)), int(options.separate_cls)
    if options.stride == 1 or len(tokens) <= 1 + cls:
        return x
    rest = tokens[cls : len(tokens) - (cls and options.truncate_seq)]
    pairs = [torch.stack(rest[at : at + 2]) for at in range(0, len(rest), 2)]
    return torch.stack(
        [*tokens[:cls], *(pair.mean(0) if options.pool == "mean" else pair.amax(0) for pair in pairs)], 1
    )


def head(
    options: Options,
    weights: Weights,
    mine: Tensor,
    parts: tuple[Tensor, Tensor, Tensor],
    stands: tuple[list[int], list[int]],
    dim: int,
) -> Tensor:
    q, k, v = parts
    u, w = weights.content_bias.weight[0, mine], weights.position_bias.weight[0, mine]
    answers = []
    for i, at in enumerate(stands[0]):
        scores = []
        for j, other in enumerate(stands[1]):
            score = (q[:, i] + u) * k[:, j]
            if not (options.separate_cls and 0 in (i, j)):
                score = score + (q[:, i] + w) * (weights.r.weight[mine] @ encoding(at - other, dim))
                if options.token_types:
                    score = score + (q[:, i] + weights.type_bias.weight[0, mine]) * weights.types.weight[1, mine]
            scores.append(score.sum(-1) / math.sqrt(len(mine)))
        answers.append(torch.einsum("bm,bmk->bk", torch.stack(scores, -1).softmax(-1), v))
    return torch.stack(answers, 1)


def inducing(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Attention through inducing points (Lee et al. 2019, equations 6 to 10): MH(X, H, H) with H = MAB(I, X)."""
    points = weights.points.weight.repeat(len(x), 1, 1)
    assert points.shape[1] == options.points
    induced = weights.induced
    h = multihead(induced, points, x, options.heads)
    if options.induce == "mab":
        z = normed(options.norm, induced.norm, points + h)
        h = normed(options.norm, induced.rff_norm, z + relu(linear(induced.rff, z)))
    return multihead(weights, x, h, options.heads)


def multihead(weights: Weights, x: Tensor, y: Tensor, heads: int) -> Tensor:
    """MH(X, Y, Y): every query reads every key."""
    read = attend(linear(weights.q, x), *thirds(weights.kv, y, 2), heads)
    return read if weights.out is None else linear(weights.out, read)


def compressed(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Memory-compressed attention (Liu et al. 2018, §4.2.3): one key for every c tokens, out of k of them.

    Blocks end at the last token and every c tokens before it; a causal token reads blocks that have ended.
    """
    tokens, c = place.total, options.compression
    q, k, v = thirds(weights.qkv, x)
    ends = sorted(tokens - 1 - c * back for back in range(-(-tokens // c)))
    keys, values = ([block(options, weights, part, end) for end in ends] for part in (k, v))
    if options.null_key:
        keys, values = (
            [null.expand(len(x), -1), *parts] for null, parts in zip(weights.null.weight, (keys, values), strict=True)
        )
        ends = [-1, *ends]

    def reads(n: int, m: int) -> bool:
        return ends[m] <= n or not options.causal

    return linear(weights.out, attend(q, torch.stack(keys, 1), torch.stack(values, 1), options.heads, reads))


def block(options: Options, weights: Weights, x: Tensor, end: int) -> Tensor:
    """(B, I): k tokens (c where k isn't given) made one; before the first token stand zeros, and no maximum."""
    span = options.kernel or options.compression
    there = {step: end - span + 1 + step for step in range(span) if end - span + 1 + step >= 0}
    if options.function == "max":
        return torch.stack([x[:, token] for token in there.values()]).amax(0)
    if options.function == "mean":
        return sum(x[:, token] for token in there.values()) / span
    weight, groups = weights.compress.weight, options.groups
    ins, outs = x.shape[-1] // groups, len(weight) // groups
    answers = []
    for group in range(groups):
        rows, columns = slice(group * outs, (group + 1) * outs), slice(group * ins, (group + 1) * ins)
        answers.append(sum(x[:, token, columns] @ weight[rows, :, step].T for step, token in there.items()))
    return torch.cat(answers, -1) + weights.compress.bias


def low_rank(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Low-rank attention (Wang et al. 2020, equation 7): softmax(Q(EK)ᵀ/√K)FV, one head after the other."""
    q, k, v = thirds(weights.qkv, x)
    answers = []
    for head, mine in enumerate(torch.arange(q.shape[-1]).chunk(options.heads)):
        e, f = projections(options, weights, head)
        assert e.shape == (place.total, options.rank)
        keys = sum(e[n][:, None] * k[:, n, None, mine] for n in range(place.total))
        values = sum(f[n][:, None] * v[:, n, None, mine] for n in range(place.total))
        scores = torch.einsum("bnk,brk->bnr", q[..., mine], keys) / math.sqrt(len(mine))
        answers.append(scores.softmax(-1) @ values)
    return linear(weights.out, torch.cat(answers, -1))


def projections(options: Options, weights: Weights, head: int) -> tuple[Tensor, Tensor]:
    """E and F of a head (§4, parameter sharing)."""
    if options.share == "key_value":
        return weights.projection.weight, weights.projection.weight
    both = weights.key_projection.weight, weights.value_projection.weight
    return (both[0][head], both[1][head]) if options.share == "none" else both


def nystrom(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Nyström attention (Xiong et al. 2021, equation 13), one head after the other.

    Zeros come first, up to whole segments; exact attention where there are no more tokens than landmarks.
    """
    n, m = place.total, options.landmarks
    exact = n <= m
    zeros = 0 if exact else m * math.ceil(n / m) - n
    parts = thirds(weights.qkv, torch.cat([x.new_zeros(len(x), zeros, place.dim), x], 1))
    answers = []
    for head, mine in enumerate(torch.arange(parts[0].shape[-1]).chunk(options.heads)):
        q, k, v = (part[..., mine] for part in parts)
        y = given(q, k) @ v if exact else rebuilt(options, q, k, v)
        if options.conv:
            y = y + along(v, weights.conv.weight[head].flatten())
        answers.append(y[:, zeros:])
    return linear(weights.out, torch.cat(answers, -1))


def given(q: Tensor, k: Tensor) -> Tensor:
    return (torch.einsum("bnk,bmk->bnm", q, k) / math.sqrt(q.shape[-1])).softmax(-1)


def rebuilt(options: Options, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    each = q.shape[1] // options.landmarks
    means = [
        torch.stack([part[:, at : at + each].mean(1) for at in range(0, part.shape[1], each)], 1) for part in (q, k)
    ]
    return given(q, means[1]) @ (inverse(given(*means), options.iterations) @ (given(means[0], k) @ v))


def inverse(a: Tensor, iterations: int) -> Tensor:
    """Equation 11, sample by sample, multiplied out: ¼Z(13I - 15AZ + 7(AZ)² - (AZ)³)."""
    answers = []
    for one in a:
        z = one.T / one.sum(0).max()
        for _ in range(iterations):
            az = one @ z
            z = z @ (13 * torch.eye(len(az), dtype=az.dtype) - 15 * az + 7 * az @ az - az @ az @ az) / 4
        answers.append(z)
    return torch.stack(answers)


def along(v: Tensor, taps: Tensor) -> Tensor:
    """Σ over the tokens around each, zeros outside."""
    middle, tokens = (len(taps) - 1) // 2, v.shape[1]
    answers = []
    for n in range(tokens):
        there = [(tap, n + at - middle) for at, tap in enumerate(taps) if 0 <= n + at - middle < tokens]
        answers.append(sum(tap * v[:, other] for tap, other in there))
    return torch.stack(answers, 1)


def kernel(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Kernel attention: Σ φ(q)·φ(k) v / Σ φ(q)·φ(k), by the whole matrix (Katharopoulos et al. 2020, equation 4)."""
    q, k, v = thirds(weights.qkv, x)
    tokens, elu = place.total, options.features.kind == "elu_plus_one"
    reads = torch.tensor([[float(m <= n or not options.causal) for m in range(tokens)] for n in range(tokens)])
    answers = []
    for mine in torch.arange(q.shape[-1]).chunk(options.heads):
        asked = features(options, weights, q[..., mine], queries=True)
        known = features(options, weights, k[..., mine], queries=False)
        given = torch.einsum("bnf,bmf->bnm", asked, known) * reads
        answers.append(given @ v[..., mine] / (given.sum(-1, keepdim=True) + (1e-6 if elu else 0)))
    return linear(weights.out, torch.cat(answers, -1))


def features(options: Options, weights: Weights, x: Tensor, *, queries: bool) -> Tensor:
    """elu(x) + 1; or positive random features (Choromanski et al. 2021, lemma 1), as the public code keeps them."""
    if options.features.kind == "elu_plus_one":
        return torch.where(x > 0, x + 1, x.exp())
    x = x / x.shape[-1] ** 0.25
    dots = torch.einsum("fk,bnk->bnf", weights.project.features_FK, x)
    if options.features.function == "relu":
        return dots.clamp(min=0) + 1e-3
    if queries:
        most = dots.amax(-1, keepdim=True)
    else:
        most = torch.zeros(()) if options.causal else dots.amax((1, 2), keepdim=True)
    exponent = dots - x.square().sum(-1, keepdim=True) / 2 - most.detach()
    return (exponent.exp() + 1e-4) / math.sqrt(options.features.count)


def synthesizer(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Synthetic attention (Tay et al. 2021, §3): softmax(B)V, with a B that no key has a say in.

    One head and one token after the other; a causal token reads itself and those before it.
    """
    v = linear(weights.value, x)
    answers = []
    for head, mine in enumerate(torch.arange(v.shape[-1]).chunk(options.heads)):
        rows = []
        for token in range(place.total):
            logits = row(options, weights, x[:, token], head, token, place.total)
            last = token + 1 if options.causal else place.total
            rows.append(torch.einsum("bm,bmk->bk", logits[:, :last].softmax(-1), v[:, :last, mine]))
        answers.append(torch.stack(rows, 1))
    return linear(weights.out, torch.cat(answers, -1))


def row(options: Options, weights: Weights, x: Tensor, head: int, token: int, n: int) -> Tensor:
    """(B, N): what one token gives to all before the softmax (equations 1 to 6)."""
    if options.form == "random":
        return weights.synthesis.weight[head, token].expand(len(x), n)
    if options.form == "factorized_random":
        left, right = weights.synthesis.left[head], weights.synthesis.right[head]
        return torch.stack([(left[token] * right[other]).sum() for other in range(n)]).expand(len(x), n)
    hidden = linear(weights.hidden, x).clamp(min=0)
    width = hidden.shape[-1] // options.heads
    hidden = hidden[:, head * width : (head + 1) * width]
    if options.form == "dense":
        return mapped(weights.synthesis, hidden, head)
    a, b = mapped(weights.factor_a, hidden, head), mapped(weights.factor_b, hidden, head)
    assert a.shape[1] * b.shape[1] == n
    return torch.stack([a[:, math.floor(other / b.shape[1])] * b[:, other % b.shape[1]] for other in range(n)], 1)


def mapped(leaf: Weights, x: Tensor, head: int) -> Tensor:
    y = x @ leaf.weight[head]
    return y if leaf.bias is None else y + leaf.bias[head]
