"""Tokens that are sorted or chosen by what they hold, experts, and attention in loops over tokens."""

from collections.abc import Callable
from typing import Final

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import xfcost
from ownership_cases import SEQUENCE, D, Module, attention
from test_ownership import depends_on, found, mixing

SIX: Final = 6


def cut(x: Tensor, order: Tensor) -> Tensor:
    """The tokens in another order, or some of them."""
    return x.gather(1, order[..., None].expand(-1, -1, D))


def buckets(linear: nn.Linear, x: Tensor) -> Tensor:
    """Attention among two neighbours in the order of what they hold."""
    order = linear(x)[..., :4].argmax(-1).argsort(dim=1, stable=True)
    pairs = cut(x, order).unflatten(1, (-1, 2))
    return x + cut(attention_to(linear, pairs, pairs).flatten(1, 2), order.argsort(1))


def attention_to(linear: nn.Linear, x: Tensor, memory: Tensor) -> Tensor:
    return (linear(x) @ memory.mT).softmax(-1) @ memory


def pruned(linear: nn.Linear, x: Tensor, kept: int) -> Tensor:
    return attention(linear, cut(x, linear(x)[..., 0].topk(kept, 1).indices))


def switched(linear: nn.Linear, x: Tensor) -> Tensor:
    """Each expert takes the tokens that chose it."""
    chosen, made = linear(x)[..., :3].argmax(-1), torch.zeros_like(x)
    for expert in range(3):
        mine = chosen == expert
        made[mine] = F.relu(linear(x[mine]))
    return x + made


def dispatched(linear: nn.Linear, x: Tensor) -> Tensor:
    """Tokens sorted by expert, and their results added up where they came from."""
    tokens = x.flatten(0, 1)
    weights, experts = linear(tokens).softmax(-1).topk(2, -1)
    order = experts.flatten().argsort()
    results = linear(tokens[order // 2]) * weights.flatten()[order][:, None]
    return torch.zeros_like(tokens).index_add_(0, order // 2, results).view_as(x)


def by_mask(linear: nn.Linear, x: Tensor) -> Tensor:
    """One-hot choices, as whole numbers that are written by index."""
    chosen = F.one_hot(linear(x)[..., :3].argmax(-1), 3)
    return sum((linear(x) * chosen[..., expert, None] for expert in range(3)), x)


def nearest(linear: nn.Linear, x: Tensor) -> Tensor:
    best = (linear(x) @ x.mT).argmax(-1)
    return x + cut(x, best)


def query_by_query(linear: nn.Linear, x: Tensor) -> Tensor:
    rows = []
    for query in linear(x).unbind(1):
        weights = (query[:, None] * x).sum(-1).softmax(-1)
        rows.append((weights[..., None] * x).sum(1))
    return torch.stack(rows, 1)


def decoded(linear: nn.Linear, x: Tensor) -> Tensor:
    """Each token attends to a cache of those before it."""
    rows = []
    for token in range(x.shape[1]):
        past = x[:, : token + 1]
        rows.append((linear(x[:, token : token + 1]) @ past.mT).softmax(-1) @ past)
    return torch.cat(rows, 1)


def gated(linear: nn.Linear, x: Tensor) -> Tensor:
    """A token that all read, and no softmax over tokens: no query."""
    return (x * linear(x[:, :1]).sigmoid()).softmax(-1)


ATTENTION: Final = [(name, "global", SIX, True) for name in ("bmm", "_softmax", "bmm")]
CASES: Final[dict[str, tuple[Callable[..., Tensor], list[tuple[str, str, int, bool]]]]] = {
    "every channel sorted": (lambda linear, x: x.sort(1).values, [("sort", "global", SIX, True)]),
    "tokens sorted by one of their numbers": (lambda linear, x: cut(x, linear(x)[..., 0].argsort(1)), []),
    "heads that sort tokens, for the order alone": (
        lambda linear, x: x + x.gather(1, linear(x).topk(x.shape[1], 1).indices[..., :1].expand_as(x)),
        [("add", "local", 2, False)],
    ),
    "attention in buckets": (buckets, [(name, "local", 2, True) for name in ("bmm", "_softmax", "bmm")]),
    "as many tokens kept at any size": (
        lambda linear, x: pruned(linear, x, 3), [(name, "local", 3, True) for name in ("bmm", "_softmax", "bmm")],
    ),
    "half of the tokens kept": (
        lambda linear, x: pruned(linear, x, x.shape[1] // 2),
        [(name, "global", 3, True) for name in ("bmm", "_softmax", "bmm")],
    ),
    "experts in a loop": (switched, []),
    "experts of sorted tokens": (dispatched, []),
    "experts by a mask": (by_mask, []),
    "the best key": (
        nearest, [("bmm", "global", SIX, True), ("argmax", "global", SIX, True), ("add", "local", 2, False)],
    ),
    "query by query": (
        query_by_query,
        [(name, "global", SIX, at < 4) for at, name in enumerate(("mul", "sum", "_softmax", "mul", "sum"))] * SIX,
    ),
    "a gate of one token": (gated, [("mul", "local", 2, True)]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_kind_of_every_operation_is_found(name: str) -> None:
    function, expected = CASES[name]
    assert mixing(found(function, SEQUENCE)) == expected


def test_a_loop_that_reads_all_tokens_so_far_is_global() -> None:
    ledger = xfcost.analyze(Module(decoded), example_inputs=torch.randn(1, 20, D), mixing=True, trace=False)
    rows = [(row.operation, row.mixing, row.reads_tokens) for row in ledger.rows if row.mixing != "per-token"]
    assert rows == [(name, "global", 20) for name in ("bmm", "_softmax", "bmm_2")]


ALONE: Final = ("experts in a loop", "experts of sorted tokens", "experts by a mask")
ALL: Final = ("query by query", "every channel sorted")


@pytest.mark.parametrize("name", [*ALONE, *ALL])
def test_an_output_changes_with_one_token_or_with_all(name: str) -> None:
    torch.manual_seed(0)
    module = Module(CASES[name][0]).double().eval()
    x = torch.randn(SEQUENCE, dtype=torch.float64)
    with torch.no_grad():
        assert max(depends_on(module, x * scale) for scale in (1, 3)) == (1 if name in ALONE else SIX)
