"""LSH attention under the contract."""

from __future__ import annotations

import copy

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from cases.base import HEADS, SEQUENCES, Frozen, MechanismCase, Rows
from xfcost.grid import Grid
from xfcost.mechanisms import Lsh
from xfcost.mechanisms.base import Place

# Per round and token, the keys that it reads: of its own chunk and of the one before, without itself.
Readings = list[list[list[int]]]


def buckets_of(twin: nn.Module, qk_BPD: Tensor) -> Tensor:
    """(B, H, R, P): the number of the column that a query is nearest to, of all columns and their opposites."""
    columns_HKr = twin.rotate.columns_HKr
    queries_BHPK = torch.stack(qk_BPD.detach().chunk(len(columns_HKr), -1), 1)
    rounds = torch.einsum("bhpk,hkr->bhpr", queries_BHPK, columns_HKr).chunk(twin.hash.rounds, -1)
    numbers = []
    for rotated in rounds:
        number, times = 0, 1
        for part, factor in zip(rotated.split([f // 2 for f in twin.hash.factors], -1), twin.hash.factors, strict=True):
            column = part.abs().argmax(-1)
            opposite = part.gather(-1, column.unsqueeze(-1)).squeeze(-1) < 0
            number = number + times * (column + opposite * (factor // 2))
            times *= factor
        numbers.append(number)
    return torch.stack(numbers, 2)


def readings(bucket_RP: Tensor, tokens: int, chunk: int, *, causal: bool) -> Readings:
    """Tokens by (round, bucket, place) in one list, padding last, cut into chunks; before the first is the last."""
    rounds, padded = bucket_RP.shape
    numbers = bucket_RP.tolist()
    ordered = sorted(
        (row, token >= tokens, numbers[row][token], token) for row in range(rounds) for token in range(padded)
    )
    chunks = [ordered[start : start + chunk] for start in range(0, len(ordered), chunk)]
    found: Readings = [[[] for _ in range(padded)] for _ in range(rounds)]
    for number, mine in enumerate(chunks):
        keys = [key for *_, key in chunks[number - 1] + mine if key < tokens]
        for row, *_, token in mine:
            found[row][token] = [key for key in keys if key != token and (key < token or not causal)]
    return found


def everything(tokens: int, *, causal: bool) -> Readings:
    """All tokens in one chunk."""
    return [[[key for key in range(tokens) if key != token and (key < token or not causal)] for token in range(tokens)]]


def reference(page: Lsh, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    """Sample by sample, head by head, token by token; one that reads nobody in a round is its own answer there."""
    tokens, causal = place.grid.total, bool(page.causal)
    whole = tokens <= page.bucket
    padded = tokens if whole else -(-tokens // page.bucket) * page.bucket
    x_BPD = F.pad(x_BND, (0, 0, 0, padded - tokens))
    qk_BPD = F.linear(x_BPD, twin.query_key.weight, twin.query_key.bias)
    v_BPD = F.linear(x_BPD, twin.value.weight, twin.value.bias)
    buckets_BH = [[None] * page.heads] * len(x_BND) if whole else buckets_of(twin, qk_BPD)
    samples = []
    for qk_PD, v_PD, buckets_H in zip(qk_BPD, v_BPD, buckets_BH, strict=True):
        heads = []
        for qk_PK, v_PK, bucket_RP in zip(
            qk_PD.chunk(page.heads, -1), v_PD.chunk(page.heads, -1), buckets_H, strict=True
        ):
            once = everything(tokens, causal=causal)
            chosen = once if bucket_RP is None else readings(bucket_RP, tokens, page.bucket, causal=causal)
            heads.append(one_head(qk_PK, v_PK, chosen, tokens))
        samples.append(torch.cat(heads, -1))
    return F.linear(torch.stack(samples), twin.out.weight, twin.out.bias)


def one_head(qk_PK: Tensor, v_PK: Tensor, chosen: Readings, tokens: int) -> Tensor:
    """Softmax in every round, and over the rounds by what each divided by."""
    width = qk_PK.shape[-1]
    keys_PK = qk_PK / (width * (qk_PK.pow(2).mean(-1, keepdim=True) + 1e-6)).sqrt()
    answers = []
    for token in range(tokens):
        # a round in which it stands alone weighs nothing beside one in which it doesn't
        rounds = [one[token] for one in chosen if one[token]]
        if not rounds:
            answers.append(v_PK[token])
            continue
        scores = [keys_PK[keys] @ qk_PK[token] for keys in rounds]
        sums = [score.softmax(0) @ v_PK[keys] for score, keys in zip(scores, rounds, strict=True)]
        answers.append(torch.stack([score.logsumexp(0) for score in scores]).softmax(0) @ torch.stack(sums))
    return torch.stack(answers)


class Held(nn.Module):
    """Buckets that no input changes."""

    def __init__(self, bucket_1HRP: Tensor) -> None:
        super().__init__()
        self.register_buffer("bucket_1HRP", bucket_1HRP)

    def forward(self, rotated_BHPr: Tensor) -> Tensor:
        return self.bucket_1HRP.expand(rotated_BHPr.shape[0], -1, -1, -1)


def frozen(twin: nn.Module, inputs: tuple[Tensor, ...]) -> Frozen:
    """The twin with the buckets of these inputs held, and what each token then reads, over all heads and rounds.

    A token sways its own answer through its query wherever that has something to weigh: one key alone is weighed 1.
    """
    (x_1ND,) = inputs
    tokens, causal = x_1ND.shape[1], twin.core.mask.causal
    if twin.whole:
        return Frozen(twin, read_by_token([everything(tokens, causal=causal)], tokens))
    padded = twin.hash.token_P1.shape[0]
    qk_1PD = F.linear(F.pad(x_1ND, (0, 0, 0, padded - tokens)), twin.query_key.weight, twin.query_key.bias)
    buckets = buckets_of(twin, qk_1PD)
    held = copy.deepcopy(twin)
    held.hash = Held(torch.where(twin.hash.token_P1.squeeze(-1), buckets, buckets.max() + 1))
    heads = [readings(bucket_RP, tokens, twin.gather.chunk, causal=causal) for bucket_RP in buckets[0]]
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


def growth(page: Lsh) -> tuple[Grid, Grid]:
    """Long enough that in both some token reads as many as it can: none twice, in no round and no head."""
    return Grid((32 * page.bucket,)), Grid((64 * page.bucket,))


EVEN = st.integers(1, 20).map(lambda half: 2 * half)

CASE = MechanismCase(
    rows=Rows(
        apart=2,
        fewer=dict.fromkeys(("scores",), lambda page, place: 2 * page.bucket * (page.rounds - 1))
        # of two chunks, a token itself is masked
        | dict.fromkeys(
            ("mask", "logsumexp", "softmax", "weighted_sum"),
            lambda page, place: 2 * page.bucket * (page.rounds - 1) + 1,
        ),
    ),
    page=Lsh,
    examples=(
        Lsh(heads=2, rounds=2, bucket=3),
        Lsh(heads=2, rounds=1, bucket=2, causal="approximate"),
        Lsh(heads=1, rounds=3, bucket=4, buckets=[2, 4], head_dim=5, projection_bias=True),
        Lsh(heads=3, rounds=1, bucket=3, buckets=6),
    ),
    pages=st.builds(
        Lsh,
        heads=HEADS,
        head_dim=st.none() | st.integers(1, 64),
        rounds=st.integers(1, 8),
        bucket=st.integers(1, 12),
        buckets=st.none() | EVEN | st.lists(EVEN, min_size=2, max_size=4),
        causal=st.sampled_from([None, False, "approximate"]),
        projection_bias=st.booleans(),
    ),
    reference=reference,
    growth=growth,
    grids=SEQUENCES,
    frozen=frozen,
    fused=False,
)
