"""Softmax attention as a program: its core, eager or fused, heads, and rotary positions.

B batch, G groups, H heads, N queries, M keys, K head width, V of values, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, Final

from xfcost.formulas.component import Number
from xfcost.formulas.mixers import GroupedQueryMixer
from xfcost.ledger.matrices import AttentionCore
from xfcost.program.functions import added, later_masked, multiplied, product, scores
from xfcost.program.leaves import FusedAttention, Rotary, Weight
from xfcost.program.operations import Functions, Operations
from xfcost.program.symbolic import Tensor

GLOBAL: Final[Mapping[str, Any]] = {"mixing": "global", "reads": "N"}


def split_heads(x: Tensor, heads: Number) -> Tensor:
    """(B, …, N, D) -> (B, …, H, N, K)."""
    return x.unflatten(-1, (heads, -1)).transpose(-3, -2)


def join_heads(x: Tensor) -> Tensor:
    """(B, …, H, N, V) -> (B, …, N, D)."""
    return x.transpose(-3, -2).flatten(-2)


def grouped_heads(
    t: Operations, x: Tensor, mixer: GroupedQueryMixer, tokens: Number
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Queries (B, H, N, K), keys and values (B, H/J, N, …) of one projection, with the rotary positions of `tokens`."""
    width = x.shape[-1]
    inner, keys, both = mixer.inner(width), mixer.kv_inner(width), mixer.kv_width(width)
    sizes = (inner, keys, both - keys)
    parts = t.linear("qkv", x, inner + both, bias=mixer.projection_bias, parts=sizes).split(sizes, -1)
    fewer = mixer.heads // mixer.shared
    q, k, v = (split_heads(part, heads) for part, heads in zip(parts, (mixer.heads, fewer, fewer), strict=True))
    if mixer.position == "rope":
        rotary = Rotary(tokens, mixer.rope_base)
        q, k = t.run("rotary", rotary, q), t.run("rotary", rotary, k)
    return q, k, v


def attend(  # noqa: PLR0913 - the options of the formula
    t: Operations, q: Tensor, k: Tensor, v: Tensor, *, fused: bool, pairs: Number | None,
    mixing: Mapping[str, Any] = GLOBAL, bias: Tensor | None = None, causal: bool = False,
    mask: Callable[..., Tensor] | None = None,
    scaled_by: Number | None = None, scaled: bool = True, shared: Number = 1,
    inside: tuple[Callable[..., Tensor], Callable[..., Tensor]] | None = None,
) -> Tensor:  # fmt: skip
    """softmax(QKᵀ/√d_k + bias)V: (B, [G,] H, N, K), (B, [G,] H/J, M, K), (B, [G,] H/J, M, V) -> (B, [G,] H, N, V).

        scale          G·n·h·d_k multiplications, where scores are `scaled`, by 1/√`scaled_by` (by default d_k)
        scores         G·n·m·h·d_k MACs, G·h·n·m entries
        softmax        G·h·n·m elements, as many entries beside the scores; training saves these
        weighted_sum   G·n·m·h·d_v MACs

    Vaswani et al. 2017, equation 1. Fused, the same work is one row (`attention`) that saves one log-sum-exp per query
    and head instead of the matrix (Dao et al. 2022, §3.1); its backward pass recomputes the scores, a fifth product
    in addition to the four gradients (algorithm 4). Masking costs 0 FLOPs.

    `pairs` are those of the pattern, for each head and sample; `mixing` are facts of the rows, which read all keys
    unless it says otherwise. `mask` is the leaf that masks scores, or fused the bias, instead of the causal one; it is
    given further facts. J = `shared` query heads share a key and value head: the same MACs, and it is read once for all
    of them. `inside` are leaves on the scores and on the weights (talking heads).
    """
    *around, heads, queries, width = q.shape
    keys, groups = k.shape[-2], prod(around[1:])
    facts: dict[str, Any] = {"reads_tokens": keys, "heads": heads} | dict(mixing)
    core: dict[str, Any] = {
        "core": AttentionCore(groups * heads // shared, queries * shared, keys, width, v.shape[-1]),
        "pairs": pairs,
    }
    factor = float(scaled_by or width) ** -0.5 if scaled else None
    if fused:
        of_pairs = {name: fact for name, fact in facts.items() if name != "heads"}
        bias = _masked_bias(t, bias, mask, of_pairs, causal=causal)
        scale = 1.0 if factor is None else factor if scaled_by else None
        leaf = FusedAttention(causal=causal and bias is None, scale=scale, grouped=bool(shared > 1))
        statistics = groups * heads * queries
        core |= {"matrix": True, "attention_entries": statistics}
        core |= {"symbol": "fused QKᵀ, softmax, AV", "fused": True}
        return _fused(t, leaf, q, k, v, bias, **core, **facts, content_dependent=True)
    entries = groups * heads * queries * keys
    facts["matrix"] = True
    if inside is not None:  # heads depend on each other, so no tiled traffic
        core["core"] = None
    core |= {"attention_entries": entries, "symbol": "QKᵀ", "content_dependent": True}
    x = t.leaf("scores", scores, _scaled(t, q, factor), k, options={"shared": shared}, **core, **facts)
    if inside is not None:
        x = inside[0](x, **facts)
    if bias is not None:
        x = t.leaf("add_bias", added, x, bias, symbol="+ bias", title="Add position bias", **facts)
    if mask is not None:
        x = mask(x, **facts)
    elif causal:
        x = t.leaf("mask", later_masked, x, symbol="mask", **facts)
    facts["content_dependent"] = True
    weights = t.leaf("softmax", softmax, x, symbol="softmax", **facts)
    if inside is not None:
        facts["content_dependent"] = False
        x = weights  # the mixed scores are let go
        weights = inside[1](x, **facts)
        facts["content_dependent"] = True
    facts["matrix"] = False
    return t.leaf("weighted_sum", product, weights, v, options={"shared": shared}, symbol="AV", **facts)


def _scaled(t: Operations, q: Tensor, factor: float | None) -> Tensor:
    if factor is None:
        return q
    return t.leaf("scale", multiplied, q, options={"factor": factor}, symbol="", title="Scale queries 1/√d_k")


def _masked_bias(
    t: Operations, bias: Tensor | None, mask: Callable[..., Tensor] | None, facts: dict[str, Any], *, causal: bool
) -> Tensor | None:
    """The bias that a fused kernel is given; of a causal one it does the masking itself, where there is no bias."""
    if mask is not None:
        return mask(bias, **facts)
    if causal and bias is not None:
        return t.leaf("mask", later_masked, bias, symbol="mask", **facts)
    return bias


def fixed_mask(t: Operations, shut: Weight) -> Callable[..., Tensor]:
    """The leaf `mask` with fixed pairs `shut`: -∞ at these; for a fused kernel, the pairs that may be read."""

    def mask(scores: Tensor | None, **facts: Any) -> Tensor:
        given = () if scores is None else (scores,)
        function = open_pairs if scores is None else shut_pairs
        return t.leaf("mask", function, *given, weights=(shut,), symbol="mask", **facts)

    return mask


def compared_mask(
    t: Operations, shut: Callable[..., Tensor], at: Sequence[Weight], *given: Tensor, **options: Any
) -> Callable[..., Tensor]:  # fmt: skip
    """The leaf `mask`, whose pairs `shut` finds in every pass: of `given` tensors and fixed positions `at`.

    -∞ at these pairs; for a fused kernel, the pairs that may be read.
    """

    def mask(scores: Tensor | None, **facts: Any) -> Tensor:
        inputs, function = ((), open_where) if scores is None else ((scores,), shut_where)
        how = {"shut": shut, "options": options}
        return t.leaf("mask", function, *inputs, *given, weights=at, options=how, symbol="mask", **facts)

    return mask


def in_place(mask: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A mask that overwrites the scores, which nothing else uses."""

    def masked(scores: Tensor | None, **facts: Any) -> Tensor:
        given = () if scores is None else (scores,)
        return mask(*given, symbol="mask", **facts)

    return masked


def attend_to(  # noqa: PLR0913 - the options of the formula
    t: Operations, x: Tensor, y: Tensor, *, inner: Number, heads: Number, bias: bool, fused: bool, reads: str,
    values: Number | None = None, output: Number | None, scaled: bool = True,
) -> Tensor:  # fmt: skip
    """MH(X, Y, Y): (B, N, D) reads (B, M, E) (Vaswani et al. 2017, §3.2.2). Values are as wide as keys by default.

    q       n·d·inner MACs; learned queries (1, N, D) are projected once for all samples
    kv      m·d'·(inner + values) MACs
    core    n·m·(inner + values) MACs
    out     n·values·`output` MACs, where there is an output projection
    """
    widths = inner, inner if values is None else values
    q = split_heads(t.linear("q", x, inner, bias=bias), heads)

    def keys_and_values() -> tuple[Tensor, ...]:
        both = t.linear("kv", y, sum(widths), bias=bias, parts=widths)
        return tuple(split_heads(part, heads) for part in both.split(widths, -1))

    k, v = t.of_memory("cache", keys_and_values, "Cached keys and values of the memory")
    mixing = {"mixing": "global", "reads": reads}
    pairs = q.shape[-2] * k.shape[-2]
    y = join_heads(attend(t, t.per_sample(q, k), k, v, fused=fused, pairs=pairs, mixing=mixing, scaled=scaled))
    return y if output is None else t.linear("out", y, output, bias=bias)


def _fused(
    t: Operations, leaf: FusedAttention, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, **facts: Any
) -> Tensor:  # fmt: skip
    """The kernel takes four axes: groups merge with heads, so that a bias is not copied per sample.

    With a mask for all heads, (G, 1, N, M), they merge with samples.
    """
    given = () if bias is None else (bias,)
    if q.dim() == 4:  # noqa: PLR2004 - no groups
        return t.run("attention", leaf, q, k, v, *given, **facts)
    batch, groups, heads = q.shape[:3]
    first, sizes = 0, (batch, groups)
    if bias is not None and not bias.is_floating_point() and bias.dim() == 4:  # noqa: PLR2004
        given = (bias.expand(batch, *bias.shape).flatten(0, 1),)
    elif bias is not None and bias.dim() == q.dim():  # of each sample
        given = (bias.flatten(0, 1),)
    elif bias is not None:
        given = (bias.expand(groups, heads, -1, -1).flatten(0, 1),)
        first, sizes = 1, (groups, heads)
    parts = (part.flatten(first, first + 1) for part in (q, k, v))
    return t.run("attention", leaf, *parts, *given, **facts).unflatten(first, sizes)


def open_pairs(t: Functions, shut: Tensor) -> Tensor:
    """The pairs that may be read."""
    return shut.logical_not()


def shut_pairs(t: Functions, x: Tensor, shut: Tensor) -> Tensor:
    """-∞ at the shut pairs of a query and a key."""
    return x.masked_fill(shut, float("-inf"))


def open_where(t: Functions, *at: Tensor, shut: Callable[..., Tensor], options: Mapping[str, Any]) -> Tensor:
    """The pairs that may be read, of what `shut` compares."""
    return shut(t, *at, **options).logical_not()


def shut_where(
    t: Functions, x: Tensor, *at: Tensor, shut: Callable[..., Tensor], options: Mapping[str, Any]
) -> Tensor:  # fmt: skip
    """-∞ at the pairs that `shut` finds."""
    return x.masked_fill(shut(t, *at, **options), float("-inf"))


def softmax(t: Functions, x: Tensor) -> Tensor:
    """Softmax over the keys."""
    return x.softmax(-1)
