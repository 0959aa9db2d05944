"""LSH attention (Kitaev et al. 2020, §2), sample by sample, head by head, token by token."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from references.plain import Options, Place, Weights, linear

# Per round and token, the keys that it reads: of its own chunk and of the one before, without itself.
Readings = list[list[list[int]]]


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """One that reads nobody in a round is its own answer there."""
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
