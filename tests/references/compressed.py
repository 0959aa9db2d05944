"""Memory-compressed attention (Liu et al. 2018, §4.2.3): one key for every c tokens, out of k of them."""

from __future__ import annotations

import torch
from torch import Tensor

from references.plain import Options, Place, Weights, attend, linear, thirds


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Blocks end at the last token and every c tokens before it; a causal token reads blocks that have ended."""
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
