"""Funnel attention: relative attention whose queries may be pooled, so that a sequence shortens inside a block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from xfcost.formulas.arithmetic import ceil_div, greater, lesser
from xfcost.formulas.component import ComponentError, Grid, Length, Letter, Number, Observed, Place
from xfcost.formulas.mixers import NonCausalMixer
from xfcost.ledger.quantization import WeightMatrix
from xfcost.program.attention import attend, join_heads, split_heads
from xfcost.program.functions import added, multiplied
from xfcost.program.leaves import Weight, Worked
from xfcost.program.operations import Functions, Operations, itself
from xfcost.program.relative import position_scores, sinusoids, with_vector
from xfcost.program.symbolic import Tensor


class Funnel(NonCausalMixer, frozen=True, kw_only=True, tag="funnel"):
    """Relative attention of the Funnel Transformer (Dai et al. 2020, §2.2 and appendix A.2.1), with `stride` 2 pooled.

    N tokens come in, P go out: P = N, or about N/2 with `stride: 2`, when the queries are means of two neighbours and
    keys and values stand for all M = N tokens (`pool_q_only`) or are pooled too (M = P). T encodings of distances are
    made: M + P, or M + 2P for pooled queries (the public code's; one, or two, are never read).

        q                P·d·h·d_k MACs, d·h·d_k parameters, no bias
        kv               M·d·2h·d_k MACs
        content_bias     h·d_k parameters
        r                T·d·h·d_k MACs, d·h·d_k parameters, once for the whole batch
        position_bias    h·d_k parameters
        position_scores  P·T·h·d_k MACs, h·P·T entries kept
        scores           P·M·h·d_k MACs, h·P·M entries kept
        weighted_sum     P·M·h·d_k MACs
        out              P·h·d_k·d MACs
        type_bias        h·d_k parameters, with `token_types`: is the key of the query's segment?
        types            2·P·h·d_k MACs, 2·h·d_k parameters, with `token_types`

    So a block of n pooled layers costs ((n-1)·(6P·d² + 4P²·d) + (2P + 2N + 2N)·d² + 4P·N·d) and its feed-forward
    networks, where P = N/2. The residual pools what it adds to (`residual_pool`).
    """

    titles: ClassVar[Mapping[str, str]] = {
        "cls_mask": "No position for [CLS]",
        "type_add": "Add token types",
        "type_bias": "Queries + s, for the types",
        "type_pick": "Type of each pair",
        "type_scale": "Scale queries 1/√d_k, for the types",
        "types": "Same and other token type",
    }
    non_causal_reason: ClassVar[str] = "a pooled query combines two tokens, and the first must not depend on the second"

    stride: Annotated[Literal[1, 2], Letter(None)] = 1
    """Tokens per query: 2 pools the queries."""
    pool: Literal["mean", "max"] = "mean"
    """Whether the mean or the maximum of two tokens is taken."""
    pool_q_only: bool = True
    """Whether only queries are pooled; otherwise keys and values are too."""
    separate_cls: bool = True
    """Whether the first token is [CLS], which is not pooled with others and has no position."""
    truncate_seq: bool = True
    """Whether the last token is left out of the pooling, with a separate [CLS], to keep the length a power of two."""
    token_types: bool = False
    """Whether scores have a term for queries and keys of the same segment."""
    spacing: Length = 1
    """Distance between neighbouring tokens' positions: 2 after one pooling, 4 after two."""

    def check(self, place: Place) -> None:
        if self.stride > 1 and (len(place.grid.sides) != 1 or place.grid.special):
            raise ComponentError(
                "stride", f"{self.stride} pools a sequence, got {place.grid.shape_text()} tokens; use 1"
            )
        super().check(place)

    def label(self) -> str:
        return "Pooled relative attention" if self.stride > 1 else "Relative attention"

    def pools(self, grid: Grid) -> Number:
        """1 where the sequence is pooled; 0 without a stride, or where it is too short."""
        return lesser(1, grid.total - lesser(grid.total, self._shortest)) if self.stride > 1 else 0

    @property
    def _shortest(self) -> int:
        """Length up to which nothing is pooled."""
        return 2 if self.separate_cls else 1

    def queries(self, grid: Grid) -> Number:
        """P."""
        n = grid.total
        if self.stride == 1:
            return n
        copied = 1 if self.separate_cls and not self.truncate_seq else 0
        return greater(ceil_div(n + copied, 2), lesser(n, self._shortest))

    def keys(self, grid: Grid) -> Number:
        """M."""
        return grid.total if self.pool_q_only else self.queries(grid)

    def shift(self, grid: Grid) -> Number:
        """Distance between neighbouring queries."""
        return 1 + self.pools(grid) if self.pool_q_only else 1

    def encodings(self, grid: Grid) -> Number:
        """T."""
        return self.keys(grid) + self.shift(grid) * self.queries(grid)

    def out(self, place: Place) -> tuple[Grid, Number]:
        if self.stride == 1:
            return place.grid, place.dim
        return Grid((self.queries(place.grid),)), place.dim

    def _unread(self, grid: Grid) -> Number:
        """Tokens that go into no key: the last, where pooling drops it."""
        return self.pools(grid) if self.separate_cls and self.truncate_seq and not self.pool_q_only else 0

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        return range(grid.total - self._unread(grid))

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        return self.queries(grid) * (grid.total - self._unread(grid))

    def observed(self, place: Place) -> Observed:
        reason = "segment types are looked up by the query's position"
        return Observed(left_out=dict.fromkeys(("types", "type_pick", "type_add"), reason))

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        grid, inner, biased = place.grid, self.inner(place.dim), self.projection_bias
        title = "Pool queries" if self.pool_q_only else "Pool tokens"
        pooled = self._pooled(t, "pool", x, grid, title)
        q = t.linear("q", pooled, inner, bias=False)
        k, v = t.linear("kv", x if self.pool_q_only else pooled, 2 * inner, bias=biased).chunk(2, -1)
        content = with_vector(t, "content_bias", q)
        bias = self._position_bias(t, q, self._encodings(t, x, grid), keys=k.shape[1], grid=grid)
        parts = (split_heads(part, self.heads) for part in (content, k, v))
        y = attend(
            t, *parts, fused=place.fused, mixing={"mixing": "global", "reads": self._keys_in_letters}, bias=bias,
            # a pooled key stands for two tokens: entries are no pairs of tokens then
            pairs=self.pairs(grid) if self.pool_q_only or self.stride == 1 else None,
        )  # fmt: skip
        return t.linear("out", join_heads(y), place.dim, bias=biased)

    def skip(self, t: Operations, given: Tensor, x: Tensor, place: Place) -> Tensor:
        return self._pooled(t, "residual_pool", x, place.grid, "Pool the residual stream")

    def _encodings(self, t: Operations, x: Tensor, grid: Grid) -> Tensor:
        """Sinusoids of the distances between queries and keys, the farthest earlier key first: (1, T, D).

        A separate [CLS] stands one token before the positions that a pooled token covers, so pooled queries stand one
        token earlier than the keys.
        """
        own, count, pools = self.spacing, self.encodings(grid), self.pools(grid)
        spacing = own * (1 + pools) if not self.pool_q_only else own
        back = own * pools if self.pool_q_only and self.separate_cls else 0
        first = spacing * self.shift(grid) * self.queries(grid) - back
        worked = Worked(sinusoids, {"first": first, "width": x.shape[-1], "spacing": spacing})
        return t.constant("encodings_1TD", worked, 1, count, x.shape[-1], like=x)

    @property
    def _keys_in_letters(self) -> str:
        """Number of keys, in letters."""
        return "N" if self.pool_q_only or self.stride == 1 else f"N/{self.stride}"

    def _pooled(self, t: Operations, name: str, x: Tensor, grid: Grid, title: str) -> Tensor:
        """Pairs of neighbours pooled: (B, N, D) -> (B, P, D)."""
        if self.stride == 1:
            return x
        options = {"form": self.pool, "cls": self.separate_cls, "left": grid.total - (1 if self.truncate_seq else 0)}
        facts: dict[str, Any] = {"mixing": "local", "reads": "2", "reads_tokens": 2, "title": title}
        facts["content_dependent"] = self.pool == "max"
        if not self.pools(grid):
            return t.leaf(name, itself, x, **facts)
        return t.leaf(name, pooled_pairs, x, options=options, **facts)

    def _position_bias(self, t: Operations, q: Tensor, encodings: Tensor, *, keys: Number, grid: Grid) -> Tensor:
        """The position scores; token types are added to them, and [CLS] is masked: (B, P, I) -> (B, H, P, M)."""
        reads, shift = self._keys_in_letters, self.shift(grid)
        bias = position_scores(t, q, encodings, keys=keys, heads=self.heads, reads=reads, step=shift, spare=shift)
        facts: dict[str, Any] = {"mixing": "global", "reads": reads, "reads_tokens": keys}
        if self.token_types:
            picked = self._types(t, q, keys, facts)
            bias = t.leaf("type_add", added, bias, picked, matrix=True, **facts)
            del picked
        if self.separate_cls:
            bias = t.leaf("cls_mask", without_cls, bias, matrix=True, **facts)
        return bias

    def _types(self, t: Operations, q: Tensor, keys: Number, facts: Mapping[str, Any]) -> Tensor:
        """The scores of the tokens' types: (B, P, I) -> (B, H, P, M)."""
        inner, h = q.shape[-1], self.heads
        q = with_vector(t, "type_bias", q)
        q = t.leaf("type_scale", multiplied, q, options={"factor": float(inner // h) ** -0.5})
        scores = t.leaf(
            "types", scores_of_types, q, options={"heads": h}, weights=(Weight((2, inner)),),
            weight_matrices=(WeightMatrix(inner, 2),),
        )  # fmt: skip
        entries = h * q.shape[1] * keys
        counted = {"attention_entries": entries, "heads": h, "matrix": True, "content_dependent": True}
        return t.leaf("type_pick", of_each_pair, scores, options={"keys": keys}, **counted, **facts)

    def notes(self, place: Place) -> Iterator[str]:
        if self.stride == 1:
            return
        n = place.grid.total
        if not self.pools(place.grid):
            yield f"{n} tokens are too few to be pooled, and go on as they are"
        elif self.separate_cls and self.truncate_seq:
            yield f"{n} tokens pooled to {self.queries(place.grid)}; the last is left out of the pooling"


def pooled_pairs(t: Functions, x: Tensor, *, form: str, cls: bool, left: Number) -> Tensor:
    """Pairs of neighbours pooled; a separate [CLS], before the others `left` of them, passes unchanged."""
    if cls:
        x = t.cat([x.narrow(1, 0, 1), x.narrow(1, 0, left)], 1)
    return t.pooled(x.transpose(1, 2), 2, form).transpose(1, 2)


def scores_of_types(t: Functions, q: Tensor, table: Tensor, *, heads: Number) -> Tensor:
    """Scores of queries against each head's "other type" and "same type" vectors: (B, P, I) -> (B, P, 2·H)."""
    kinds = table.unflatten(1, (heads, -1)).permute(1, 2, 0)
    return join_heads(split_heads(q, heads) @ kinds)


def of_each_pair(t: Functions, scores: Tensor, *, keys: Number) -> Tensor:
    """For each pair, the score of its type, "other" or "same": (B, P, 2·H) -> (B, H, P, M).

    All tokens have the same type, the default of the public code. Types do not change the cost.
    """
    query, key = t.zeros(scores.shape[1], 1, like=scores), t.zeros(1, keys, like=scores)
    other, same = scores.unflatten(2, (-1, 2)).transpose(1, 2).split((1, 1), -1)
    return t.where(t.eq(query, key), same, other)


def without_cls(t: Functions, bias: Tensor) -> Tensor:
    """Zero if the query or the key is [CLS], the first token: on (B, H, P, M)."""
    query, key = (t.eq(t.arange(size, bias), 0) for size in bias.shape[-2:])
    return bias.masked_fill(query.unsqueeze(1).logical_or(key), 0.0)
