"""References of attention whose content chooses what is read."""

import math

import torch
from torch import Tensor

from references.plain import Options, Place, Weights, attend, linear, spots, thirds

# Per round and token, the keys that it reads: of its own chunk and of the one before, without itself.
Readings = list[list[list[int]]]


def lsh(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """LSH attention (Kitaev et al. 2020, §2), sample by sample, head by head, token by token.

    One that reads nobody in a round is its own answer there.
    """
    tokens, causal = place.total, bool(options.causal)
    whole = tokens <= options.bucket
    padded = tokens if whole else options.bucket * math.ceil(tokens / options.bucket)
    filled = torch.cat([x, x.new_zeros(len(x), padded - tokens, place.dim)], 1)
    qk, v = linear(weights.query_key, filled), linear(weights.value, filled)
    width = qk.shape[-1] // options.heads
    samples = []
    for number in range(len(x)):
        heads = []
        for head in range(options.heads):
            mine = slice(head * width, (head + 1) * width)
            asked = qk[number, :, mine]
            if whole:
                chosen = everything(tokens, causal=causal)
            else:
                buckets = hashed(options, padded, weights.rotate.columns_HKr[head], asked.detach())
                chosen = readings(buckets, tokens, options.bucket, causal=causal)
            heads.append(one_head(asked, v[number, :, mine], chosen, tokens))
        samples.append(torch.cat(heads, -1))
    return linear(weights.out, torch.stack(samples))


def hashed(options: Options, padded: int, columns: Tensor, asked: Tensor) -> list[list[int]]:
    """Per round and token argmax([xR; -xR]), one number for all factors, the first of which counts least."""
    given = options.buckets
    factors = [2 * padded // options.bucket] if given is None else given if isinstance(given, list) else [given]
    each = sum(factors) // 2
    assert columns.shape[1] == options.rounds * each
    rounds = []
    for at in range(options.rounds):
        rotated = asked @ columns[:, at * each : (at + 1) * each]
        numbers, first, times = [0] * len(asked), 0, 1
        for factor in factors:
            part = rotated[:, first : first + factor // 2]
            nearest = torch.cat([part, -part], -1).argmax(-1).tolist()
            numbers = [number + times * one for number, one in zip(numbers, nearest, strict=True)]
            first, times = first + factor // 2, times * factor
        rounds.append(numbers)
    return rounds


def readings(buckets: list[list[int]], tokens: int, chunk: int, *, causal: bool) -> Readings:
    """Tokens by (round, bucket, place) in one list, padding last, cut into chunks; before the first is the last."""
    padded = len(buckets[0])
    ordered = sorted(
        (row, token >= tokens, numbers[token], token) for row, numbers in enumerate(buckets) for token in range(padded)
    )
    chunks = [ordered[start : start + chunk] for start in range(0, len(ordered), chunk)]
    found: Readings = [[[] for _ in range(padded)] for _ in buckets]
    for number, mine in enumerate(chunks):
        keys = [key for *_, key in chunks[number - 1] + mine if key < tokens]
        for row, *_, token in mine:
            found[row][token] = [key for key in keys if key != token and (key < token or not causal)]
    return found


def everything(tokens: int, *, causal: bool) -> Readings:
    """All tokens in one chunk."""
    return [[[key for key in range(tokens) if key != token and (key < token or not causal)] for token in range(tokens)]]


def one_head(asked: Tensor, v: Tensor, chosen: Readings, tokens: int) -> Tensor:
    """Softmax in every round, and over the rounds by what each divided by."""
    keys = asked / (asked.shape[-1] * (asked.square().mean(-1, keepdim=True) + 1e-6)).sqrt()
    answers = []
    for token in range(tokens):
        # a round in which it stands alone weighs nothing beside one in which it doesn't
        rounds = [one[token] for one in chosen if one[token]]
        if not rounds:
            answers.append(v[token])
            continue
        scores = [keys[read] @ asked[token] for read in rounds]
        sums = [score.softmax(0) @ v[read] for score, read in zip(scores, rounds, strict=True)]
        answers.append(torch.stack([score.logsumexp(0) for score in scores]).softmax(0) @ torch.stack(sums))
    return torch.stack(answers)


def routing(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Routing attention (Roy et al. 2021, §4), head by head, cluster by cluster, query by query.

    Local heads first, then routed ones.
    """
    answers, routed = [], options.heads - options.local_heads
    if options.local_heads:
        answers.append(attend(*thirds(weights.local_qkv, x), options.local_heads, near(options)))
    if weights.qv is not None:
        q, v = thirds(weights.qv, x, 2)
        k = q
    else:
        q, k, v = thirds(weights.qkv, x)
    for head, mine in enumerate(torch.arange(q.shape[-1]).chunk(routed)):
        samples = zip(*(part[..., mine] for part in (q, k, v)), strict=True)
        answers.append(torch.stack([routed_head(options, place, weights, head, *sample) for sample in samples]))
    return linear(weights.out, torch.cat(answers, -1))


def near(options: Options):
    """The block of a token, the one before it and (not causal) the one after it."""
    block = options.local_window or options.window

    def reads(n: int, m: int) -> bool:
        if options.causal:
            return m <= n and n // block - m // block <= 1
        return abs(n // block - m // block) <= 1

    return reads


def cluster_size(options: Options, tokens: int) -> int:
    """w, tokens of a cluster: as given, else N/k with k = ⌊√N⌋ clusters where they aren't given either."""
    if options.window is not None:
        return min(options.window, tokens)
    return math.ceil(tokens / (options.clusters or math.isqrt(tokens)))


def routed_head(options: Options, place: Place, weights: Weights, head: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """A token that several clusters took gets their mean; one that none took gets zeros."""
    unit_q, unit_k = (part / part.norm(dim=-1, keepdim=True) for part in (q, k))
    k = unit_k if options.shared_qk else k
    memories = options.memory_keys
    if options.causal and not options.shared_qk:  # a query that nothing in its cluster comes before
        memories = max(memories, 1)
    taken: list[list[Tensor]] = [[] for _ in v]
    for cluster, centroid in enumerate(weights.distances.centroids_HCK[head]):
        w = cluster_size(options, place.total)
        queries, keys = (nearest(unit.detach() @ centroid, w) for unit in (unit_q, unit_k))
        for query in queries:
            read = [key for key in keys if key <= query or not options.causal]
            if options.shared_qk:  # itself, only where nothing else is
                read = [key for key in read if key != query] or ([] if memories else [query])
            held = [
                (weights.memory_keys.weight[head, cluster, m], weights.memory_values.weight[head, cluster, m])
                for m in range(memories)
            ]
            pairs = held + [(k[key], v[key]) for key in read]
            read_k, read_v = (torch.stack(column) for column in zip(*pairs, strict=True))
            taken[query].append((read_k @ q[query] / math.sqrt(q.shape[-1])).softmax(0) @ read_v)
    return torch.stack([sum(mine) / len(mine) if mine else 0 * v[0] for mine in taken])


def nearest(cosines: Tensor, count: int) -> list[int]:
    return sorted(range(len(cosines)), key=lambda token: -float(cosines[token]))[:count]


def sinkhorn(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Sinkhorn attention (Tay et al. 2020, §3), head by head and token by token.

    Keys and values beyond the last token are zeros to the sorting, and unread in their own block.
    """
    q, k, v = thirds(weights.qkv, x)
    heads = []
    for head, mine in enumerate(torch.arange(q.shape[-1]).chunk(options.heads)):
        samples = zip(*(part[..., mine] for part in (q, k, v)), strict=True)
        if options.causal:
            nulls = weights.null_keys.weight[head], weights.null_values.weight[head]
            heads.append(torch.stack([causal(options, *sample, *nulls) for sample in samples]))
        else:
            heads.append(torch.stack([free(options, *sample) for sample in samples]))
    return linear(weights.out, torch.cat(heads, -1))


def blocks_of(options: Options, x: Tensor) -> list[Tensor]:
    """Whole blocks, zeros at the end."""
    b = options.block
    filled = torch.cat([x, x.new_zeros(b * math.ceil(len(x) / b) - len(x), x.shape[1])])
    return [filled[at : at + b] for at in range(0, len(filled), b)]


def attended(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (k @ q / math.sqrt(len(q))).softmax(0) @ v


def free(options: Options, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Blocks are sorted by a matrix whose rows and columns are brought to sums of 1 in turns (equation 3)."""
    qs, ks, vs = (blocks_of(options, part) for part in (q, k, v))
    fits = [torch.stack([one.mean(0) @ other.mean(0) / math.sqrt(q.shape[1]) for other in ks]) for one in qs]
    order = (torch.stack(fits).clamp(min=0) + 1e-6) ** (1 / options.temperature)
    for _ in range(options.iterations):
        order = order / order.sum(1, keepdim=True)
        order = order / order.sum(0, keepdim=True)
    sorted_k, sorted_v = (
        [sum(share * block for share, block in zip(row, blocks, strict=True)) for row in order] for blocks in (ks, vs)
    )
    answers = []
    for token in range(len(q)):
        mine = token // options.block
        if options.sortcut:
            keys, values = torch.cat(sorted_k[: options.sortcut]), torch.cat(sorted_v[: options.sortcut])
        else:
            own = slice(mine * options.block, (mine + 1) * options.block)
            keys, values = torch.cat([sorted_k[mine], k[own]]), torch.cat([sorted_v[mine], v[own]])
        answers.append(attended(q[token], keys, values))
    return torch.stack(answers)


def causal(options: Options, q: Tensor, k: Tensor, v: Tensor, null_k: Tensor, null_v: Tensor) -> Tensor:
    """A block takes a mixture of a learned block and those before it, by the mean of all queries up to its first."""
    ks, vs = blocks_of(options, k), blocks_of(options, v)
    answers = []
    for token in range(len(q)):
        mine = token // options.block
        first = mine * options.block
        asked = q[: first + 1].mean(0)
        fits = [0 * asked[0], *(asked @ ks[before].mean(0) / math.sqrt(q.shape[1]) for before in range(mine))]
        order = (torch.stack(fits) / options.temperature).softmax(0)
        mixed_k = order[0] * null_k + sum(order[1 + before] * ks[before] for before in range(mine))
        mixed_v = order[0] * null_v + sum(order[1 + before] * vs[before] for before in range(mine))
        keys = torch.cat([mixed_k.expand(options.block, -1), k[first : token + 1]])
        values = torch.cat([mixed_v.expand(options.block, -1), v[first : token + 1]])
        answers.append(attended(q[token], keys, values))
    return torch.stack(answers)


def deformable(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Deformable attention (Zhu et al. 2021, equations 2 and 3): point by point, cell by cell.

    Zeros lie beyond the border; the middle of a cell is at ½ of it, and the border at 0 and at the map's side.
    """
    maps = list(place.levels) or [place.sides]
    heads, points = options.heads, options.points
    values, asked, weighed = linear(weights.value, x), linear(weights.offsets, x), linear(weights.weights, x)
    width = values.shape[-1] // heads
    first = [sum(math.prod(sides) for sides in maps[:number]) for number in range(len(maps))]
    samples = []
    for sample in range(len(x)):
        tokens = []
        for own, (row, column) in [(sides, spot) for sides in maps for spot in spots(sides)]:
            token, parts = len(tokens), []
            # the same part of every map's height and width, in cells of each
            part_y, part_x = (row + 0.5) / own[0], (column + 0.5) / own[1]
            for head in range(heads):
                mine = values[sample, :, head * width : (head + 1) * width]
                start = head * len(maps) * points
                shares = weighed[sample, token, start : start + len(maps) * points].exp()
                answer = torch.zeros_like(mine[0])
                for number, (height, length) in enumerate(maps):
                    for point in range(points):
                        at = start + number * points + point
                        right, down = asked[sample, token, 2 * at], asked[sample, token, 2 * at + 1]
                        where = part_y * height + down, part_x * length + right
                        read = between(mine[first[number] :], (height, length), where)
                        answer = answer + shares[number * points + point] / shares.sum() * read
                parts.append(answer)
            tokens.append(torch.cat(parts))
        samples.append(torch.stack(tokens))
    return linear(weights.out, torch.stack(samples))


def between(cells: Tensor, sides: tuple[int, int], where: tuple[Tensor, Tensor]) -> Tensor:
    """A map's value at (y, x): its cells around, each by how near its middle is along both axes."""
    height, length = sides
    y, x = where
    answer = torch.zeros_like(cells[0])
    above, left = math.floor(y.item() - 0.5), math.floor(x.item() - 0.5)
    for row in (above, above + 1):
        for column in (left, left + 1):
            if 0 <= row < height and 0 <= column < length:
                near = (1 - (y - row - 0.5).abs()) * (1 - (x - column - 0.5).abs())
                answer = answer + near * cells[row * length + column]
    return answer
