"""What masks keep of what attention computes: both numbers of every row, held against changed tokens."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import xfcost
from helpers import report_text, table_of
from ownership_cases import D, attention

N = 40
INF = float("-inf")
LEAST = torch.finfo(torch.float32).min
LEARNED = nn.Parameter(torch.randn(8 * N, D))


class Masked(nn.Module):
    """Attention with a mask: a function of the module and its inputs."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function, self.q = function, nn.Linear(D, D, bias=False)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.function(self.q, x) if mask is None else self.function(self.q, x, mask)


def distance(x):
    """Query minus key."""
    places = torch.arange(x.shape[1])
    return places[:, None] - places


def before(x, width):
    """The query itself and those before it, `width` in all."""
    return (distance(x) >= 0) & (distance(x) < width)


def block(x):
    blocks = torch.arange(x.shape[1]) // 4
    return blocks[:, None] == blocks


def random(x):
    """The query itself, and two others."""
    noise = torch.rand(x.shape[1], x.shape[1], generator=torch.Generator().manual_seed(0)).fill_diagonal_(1)
    return noise >= noise.topk(3, -1).values[:, -1:]


def scores(q, x):
    return q(x) @ x.mT


def sdpa(q, x, **options):
    return F.scaled_dot_product_attention(q(x)[:, None], x[:, None], x[:, None], **options)[:, 0]


def multiplied(q, x, mask):
    weights = scores(q, x).exp() * mask
    return (weights / weights.sum(-1, keepdim=True)) @ x


def triangle(q, x):
    weights = scores(q, x).exp().tril()
    return (weights / weights.sum(-1, keepdim=True)) @ x


# Name -> attention, its kind, the tokens read, and the median that the mask keeps.
MASKS = {
    "causal, -inf added": (
        lambda q, x: attention(q, x, torch.full((x.shape[1],) * 2, INF).triu(1)), "global", N, N // 2,
    ),
    "causal, in the kernel": (lambda q, x: sdpa(q, x, is_causal=True), "global", N, N // 2),
    "causal, a triangle of weights": (triangle, "global", N, N // 2),
    "window, a boolean for the kernel": (lambda q, x: sdpa(q, x, attn_mask=before(x, 4)), "local", 4, 4),
    "window, -inf added in the kernel": (
        lambda q, x: sdpa(q, x, attn_mask=torch.where(before(x, 4), 0.0, INF)), "local", 4, 4,
    ),
    "window, -99 added in the kernel": (  # e^-99 is no part of a float32 sum
        lambda q, x: sdpa(q, x, attn_mask=torch.where(before(x, 4), 0.0, -99.0)), "local", 4, 4,
    ),
    "window, the least float": (
        lambda q, x: attention(q, x, torch.where(distance(x).abs() < 3, 0.0, LEAST)), "local", 5, 5,
    ),
    "window, -1e9": (lambda q, x: attention(q, x, (distance(x).abs() >= 3) * -1e9), "local", 5, 5),
    "window, weights multiplied": (lambda q, x: multiplied(q, x, before(x, 4)), "local", 4, 4),
    "blocks, filled": (
        lambda q, x: scores(q, x).masked_fill(~block(x), INF).softmax(-1) @ x, "local", 4, 4,
    ),
    "blocks, where": (
        lambda q, x: torch.where(block(x), scores(q, x), torch.tensor(-1e9)).softmax(-1) @ x, "local", 4, 4,
    ),
    "random": (lambda q, x: scores(q, x).masked_fill(~random(x), -1e9).softmax(-1) @ x, "local", 3, 3),
}  # fmt: skip


def products(function, *inputs):
    """The rows of QKᵀ and AV, or of the kernel."""
    ledger = xfcost.analyze(Masked(function), example_inputs=inputs, mixing=True, trace=False)
    return [row for row in ledger.rows if row.mixes and row.macs]


def tokens_read(module, x, *more):
    """How many tokens each output token depends on: each is changed, one after the other."""
    with torch.no_grad():
        unchanged = module(x, *more)
        changed = []
        for token in range(x.shape[1]):
            other = x.clone()
            other[:, token] += 1
            changed.append((module(other, *more) != unchanged).any(-1)[0])
    return torch.stack(changed).sum(0)


def numbers(rows):
    """Kind, tokens read, and how many are computed and kept, of each row."""
    return [(one.mixing, one.reads_tokens, one.figure("computed_tokens"), one.figure("kept_tokens")) for one in rows]


@pytest.mark.parametrize("name", MASKS)
def test_both_numbers_are_given_and_the_kind_is_of_what_is_kept(name):
    function, kind, reads, kept = MASKS[name]
    found = products(function, torch.randn(1, N, D))
    assert found
    assert numbers(found) == [(kind, reads, N, kept)] * len(found)
    changed = tokens_read(Masked(function), torch.randn(1, N, D)).sort().values
    assert (int(changed[-1]), int(changed[(N - 1) // 2])) == (reads, kept)


def test_a_mask_among_the_inputs_counts_like_one_that_is_built_and_without_one_there_are_no_numbers():
    x = torch.randn(1, N, D)
    mask = torch.zeros(1, N, N).masked_fill(~before(x, 4), INF)
    assert numbers(products(attention, x, mask)) == [("local", 4, N, 4)] * 2
    assert numbers(products(attention, x)) == [("global", N, None, None)] * 2


def test_a_number_that_grows_on_no_line_is_not_known_at_a_larger_size():
    def chunks(q, x):
        side = int(x.shape[1] ** 0.5)  # 3 of 12 tokens, 4 of 24, 6 of 36, 21 of 480; a line through two says 42
        places = torch.arange(x.shape[1]) // side
        return scores(q, x).masked_fill(places[:, None] != places, INF).softmax(-1) @ x

    assert [row.reads_tokens for row in products(chunks, torch.randn(1, 480, D))] == [None] * 2


def of_heads(function: Callable[[Tensor], Tensor], q: nn.Linear, x: Tensor) -> Tensor:
    """Two heads whose weights `function` makes of scores (B, H, N, N)."""
    queries, keys = (one.unflatten(-1, (2, -1)).transpose(1, 2) for one in (q(x), x))
    return (function(queries @ keys.mT) @ keys).transpose(1, 2).flatten(2)


def kept_in(every: Tensor) -> Tensor:
    """Are they among the best three of their query?"""
    return every >= every.topk(3, -1).values[..., -1:]


def written_in(target: Tensor, every: Tensor, source: Any) -> Tensor:
    return target.scatter(-1, every.topk(3, -1).indices, source)


def assigned_in(target: Tensor, every: Tensor, value: Any) -> Tensor:
    samples, heads, queries = (torch.arange(side) for side in every.shape[:3])
    best = every.topk(3, -1).indices
    target[samples[:, None, None, None], heads[:, None, None], queries[:, None], best] = value
    return target


def chosen_weights(every: Tensor) -> Tensor:
    best = every.topk(3, -1)
    return torch.zeros_like(every).scatter(-1, best.indices, best.values.softmax(-1))


# How the best three keys of each query are chosen -> weights out of scores, or a mask of the kernel.
CHOICES: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "filled": lambda every: every.masked_fill(~kept_in(every), INF).softmax(-1),
    "where": lambda every: torch.where(kept_in(every), every, INF).softmax(-1),
    "a mask added": lambda every: (every + torch.zeros_like(every).masked_fill(~kept_in(every), INF)).softmax(-1),
    "a mask of where added": lambda every: (every + torch.where(kept_in(every), 0.0, INF)).softmax(-1),
    "scores written": lambda every: written_in(torch.full_like(every, INF), every, every.topk(3, -1)[0]).softmax(-1),
    "scores written in place": lambda every: (
        torch.full_like(every, INF).scatter_(-1, (at := every.topk(3, -1).indices), every.gather(-1, at)).softmax(-1)
    ),
    "weights written": chosen_weights,
    "a mask written": lambda every: every.masked_fill(
        written_in(torch.ones_like(every, dtype=torch.bool), every, False), INF
    ).softmax(-1),
    "a written mask added": lambda every: (every + written_in(torch.full_like(every, INF), every, 0.0)).softmax(-1),
    "a written mask multiplied": lambda every: every.softmax(-1) * written_in(torch.zeros_like(every), every, 1.0),
    "a mask assigned by index": lambda every: (every + assigned_in(torch.full_like(every, INF), every, 0.0)).softmax(
        -1
    ),
    "scores assigned by index": lambda every: assigned_in(
        torch.full_like(every, INF), every, every.topk(3, -1).values
    ).softmax(-1),
    "compared with the k-th value": lambda every: every.masked_fill(
        every < every.kthvalue(every.shape[-1] - 2, -1, keepdim=True).values, INF
    ).softmax(-1),
    "a mask of one_hot": lambda every: every.masked_fill(
        F.one_hot(every.topk(3, -1).indices, every.shape[-1]).sum(-2) == 0, INF
    ).softmax(-1),
}
KERNEL_MASKS: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "compared": kept_in,
    "filled": lambda every: torch.zeros_like(every).masked_fill(~kept_in(every), INF),
    "where": lambda every: torch.where(kept_in(every), 0.0, INF),
    "written": lambda every: written_in(torch.zeros_like(every, dtype=torch.bool), every, True),
    "written, added": lambda every: written_in(torch.full_like(every, INF), every, 0.0),
}


@pytest.mark.parametrize("name", CHOICES)
def test_a_mask_out_of_the_scores_reads_all_that_is_computed(name: str) -> None:
    found = products(partial(of_heads, CHOICES[name]), torch.randn(1, N, D))
    assert numbers(found[-1:]) == [("global", N, N, 3)]
    assert {row.mixing for row in found} == {"global"}


@pytest.mark.parametrize("name", KERNEL_MASKS)
def test_a_mask_of_the_kernel_out_of_scores_reads_all_that_is_computed(name: str) -> None:
    def best(q: nn.Linear, x: Tensor) -> Tensor:
        return sdpa(q, x, attn_mask=KERNEL_MASKS[name](scores(q, x))[:, None])

    assert numbers(products(best, torch.randn(1, N, D))[-1:]) == [("global", N, N, 3)]


def test_a_mask_after_the_softmax_leaves_its_sums_over_all():
    def late(q, x):
        return (scores(q, x).softmax(-1) * before(x, 4)) @ x

    kinds = [(row.mixing, row.reads_tokens) for row in products(late, torch.randn(1, N, D))]
    assert kinds == [("global", N), ("local", 4)]
    assert int(tokens_read(Masked(late), torch.randn(1, N, D)).max()) == N


@pytest.mark.parametrize("turned", [False, True])
def test_learned_values_of_positions_are_read_where_the_mask_keeps_them(*, turned):
    def of_positions(q, x):
        weights = scores(q, x).masked_fill(~before(x, 4), INF).softmax(-1)
        table = LEARNED[: x.shape[1]]
        return (table.T @ weights.mT).mT if turned else weights @ table

    assert numbers(products(of_positions, torch.randn(1, N, D))) == [("local", 4, N, 4)] * 2


def test_a_bias_by_distance_in_the_kernel_hides_no_token():
    def biased(q, x):
        return sdpa(q, x, attn_mask=-0.25 * distance(x).abs())  # at most -0.25·39: e^-10

    (row,) = products(biased, torch.randn(1, N, D))
    assert (row.mixing, row.reads_tokens) == ("global", N)
    assert int(tokens_read(Masked(biased), torch.randn(1, N, D)).min()) == N


def test_csv_and_json_have_both_numbers():
    ledger = xfcost.analyze(
        Masked(MASKS["window, -1e9"][0]), example_inputs=torch.randn(1, N, D), mixing=True, trace=False
    )
    found = [(row["reads"], row["computed_tokens"], row["kept_tokens"]) for row in table_of(report_text(ledger, "csv"))]
    assert {*found} == {("5", "40", "5"), ("", "", "")}
    rows = json.loads(ledger.to_json())["operations"]
    found = {(row["reads_tokens"], row["computed_tokens"], row["kept_tokens"]) for row in rows if row["macs"]}
    assert found == {(5, 40, 5), (None, None, None)}
