"""LSH attention under the contract."""

from __future__ import annotations

import copy

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from cases.base import HEADS, SEQUENCES, Frozen, MechanismCase
from references.lsh import Readings, everything, readings
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.lsh import Lsh


def buckets_of(module: nn.Module, qk_BPD: Tensor) -> Tensor:
    """(B, H, R, P): the number of the column that a query is nearest to, of all columns and their opposites."""
    columns_HKr = module.rotate.columns_HKr
    queries_BHPK = torch.stack(qk_BPD.detach().chunk(len(columns_HKr), -1), 1)
    rounds = torch.einsum("bhpk,hkr->bhpr", queries_BHPK, columns_HKr).chunk(module.hash.rounds, -1)
    numbers = []
    for rotated in rounds:
        number, times = 0, 1
        for part, factor in zip(
            rotated.split([f // 2 for f in module.hash.factors], -1), module.hash.factors, strict=True
        ):
            column = part.abs().argmax(-1)
            opposite = part.gather(-1, column.unsqueeze(-1)).squeeze(-1) < 0
            number = number + times * (column + opposite * (factor // 2))
            times *= factor
        numbers.append(number)
    return torch.stack(numbers, 2)


class Held(nn.Module):
    """Buckets that no input changes."""

    def __init__(self, bucket_1HRP: Tensor) -> None:
        super().__init__()
        self.register_buffer("bucket_1HRP", bucket_1HRP)

    def forward(self, rotated_BHPr: Tensor) -> Tensor:
        return self.bucket_1HRP.expand(rotated_BHPr.shape[0], -1, -1, -1)


def frozen(module: nn.Module, inputs: tuple[Tensor, ...]) -> Frozen:
    """The module with the buckets of these inputs held, and what each token then reads, over all heads and rounds.

    A token sways its own answer through its query wherever that has something to weigh: one key alone is weighed 1.
    """
    (x_1ND,) = inputs
    tokens, causal = x_1ND.shape[1], module.core.mask.causal
    if module.whole:
        return Frozen(module, read_by_token([everything(tokens, causal=causal)], tokens))
    padded = module.hash.token_P1.shape[0]
    qk_1PD = F.linear(F.pad(x_1ND, (0, 0, 0, padded - tokens)), module.query_key.weight, module.query_key.bias)
    buckets = buckets_of(module, qk_1PD)
    held = copy.deepcopy(module)
    held.hash = Held(torch.where(module.hash.token_P1.squeeze(-1), buckets, buckets.max() + 1))
    heads = [readings(bucket_RP.tolist(), tokens, module.chunk, causal=causal) for bucket_RP in buckets[0]]
    return Frozen(held, read_by_token(heads, tokens))


def read_by_token(heads: list[Readings], tokens: int) -> tuple[frozenset[int], ...]:
    found = []
    for token in range(tokens):
        reads: set[int] = set()
        for rounds in heads:
            keys = [key for one in rounds for key in one[token]]
            reads |= set(keys) if len(keys) == 1 else {token, *keys}
        found.append(frozenset(reads))
    return tuple(found)


def growth(component: Lsh) -> tuple[Grid, Grid]:
    """Long enough that in both some token reads as many as it can: none twice, in no round and no head."""
    return Grid((32 * component.bucket,)), Grid((64 * component.bucket,))


EVEN = st.integers(1, 20).map(lambda half: 2 * half)

CASE = MechanismCase(
    component=Lsh,
    examples=(
        Lsh(heads=2, rounds=2, bucket=3),
        Lsh(heads=2, rounds=1, bucket=2, causal="approximate"),
        Lsh(heads=1, rounds=3, bucket=4, buckets=[2, 4], head_dim=5, projection_bias=True),
        Lsh(heads=3, rounds=1, bucket=3, buckets=6),
    ),
    components=st.builds(
        Lsh,
        heads=HEADS,
        head_dim=st.none() | st.integers(1, 64),
        rounds=st.integers(1, 8),
        bucket=st.integers(1, 12),
        buckets=st.none() | EVEN | st.lists(EVEN, min_size=2, max_size=4),
        causal=st.sampled_from([None, False, "approximate"]),
        projection_bias=st.booleans(),
    ),
    growth=growth,
    grids=SEQUENCES,
    frozen=frozen,
    fused=False,
)
