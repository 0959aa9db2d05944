"""Funnel attention: relative attention whose queries may be pooled, so that a sequence shortens inside a block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar, Literal

import msgspec

from xfcost.formulas.arithmetic import ceil_div, greater, lesser
from xfcost.formulas.attention import RelativeAttention, masked
from xfcost.formulas.component import ComponentError, Grid, Length, Letter, Number, Observed, Operation, Place
from xfcost.formulas.mixers import NonCausalMixer
from xfcost.formulas.rows import elementwise, linear, on_raw_input
from xfcost.formulas.tensors import passed, reading
from xfcost.ledger.matrices import matrix
from xfcost.ledger.tensors import BEFORE, INPUT, OUTPUT, RESIDUAL, Saved, Tensor, Tensors, merged_heads


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

    def operations(self, place: Place) -> Iterator[Operation]:
        grid, d, inner = place.grid, place.dim, self.inner(place.dim)
        queries, keys = self.queries(grid), self.keys(grid)
        pooled = "pool" if self.stride > 1 else INPUT
        yield from self._pooling("pool", "Pool queries" if self.pool_q_only else "Pool tokens", place, INPUT)
        yield reading(on_raw_input(linear("q", "Q projection", queries, d, inner, bias=False)), pooled)
        kv = on_raw_input(linear("kv", "K, V projections", keys, d, 2 * inner, bias=self.projection_bias))
        yield kv if self.pool_q_only else reading(kv, pooled)
        yield from RelativeAttention(
            queries=queries,
            keys=keys,
            encodings=self.encodings(grid),
            dim=d,
            heads=self.heads,
            inner=inner,
            reads=self._keys_in_letters,
            # a pooled key stands for two tokens: entries are no pairs of tokens then
            pairs=self.pairs(grid) if self.pool_q_only or self.stride == 1 else None,
            fused=place.fused,
            terms=tuple(self._terms(place, queries, keys, inner)),
        ).rows()
        yield linear("out", "Output projection W_O", queries, inner, d, bias=self.projection_bias)

    @property
    def _keys_in_letters(self) -> str:
        """Number of keys, in letters."""
        return "N" if self.pool_q_only or self.stride == 1 else f"N/{self.stride}"

    def _pooling(self, path: str, title: str, place: Place, name: str) -> Iterator[Operation]:
        """The pooling of the tensor `name`."""
        if self.stride == 1:
            return
        pools, pooled_elements = self.pools(place.grid), 2 * self.queries(place.grid) * place.dim
        copied = 0 if self.truncate_seq else 1
        moved = (place.grid.total + copied) * place.dim if self.separate_cls else 0
        facts = {"moved": pools * moved, "mixing": "local", "reads": "2", "reads_tokens": 2}
        facts["tensors"] = self._pooled(place, name, moved)
        if self.pool == "mean":
            yield elementwise(path, title, "mean", pools * pooled_elements, **facts)
        else:
            yield Operation(
                path=path, title=title, comparisons=pools * pooled_elements, content_dependent=True, **facts
            )

    def _pooled(self, place: Place, name: str, moved: Number) -> Tensors:
        """A pool saves what it pools, a copy where [CLS] is kept apart; a maximum its places too."""
        read, written = (place.grid.total, place.dim), (self.queries(place.grid), place.dim)
        if not self.pools(place.grid):
            return passed(read, name)
        makes = (Tensor("indices", written, "int64"),) if self.pool == "max" else ()
        if self.separate_cls:
            return Tensors((Tensor(name, read),), (Tensor(OUTPUT, written),), (), (Tensor("all", (moved,)), *makes))
        return Tensors((Tensor(name, read),), (Tensor(OUTPUT, written),), (Saved(name),), makes)

    def _terms(self, place: Place, queries: Number, keys: Number, inner: Number) -> Iterator[Operation]:
        """Further rows on the position scores: token types are added, and [CLS] is masked."""
        mixing = {"mixing": "global", "reads": self._keys_in_letters, "reads_tokens": keys}
        entries, fused = self.heads * queries * keys, place.fused  # a fused kernel keeps the last of them, its bias
        by_distance = self.heads * queries * self.encodings(place.grid)
        if self.token_types:
            of_q = {"params": inner, "of": ("q",)}
            yield elementwise("type_bias", "Queries + s, for the types", "add", queries * inner, **of_q)
            yield elementwise("type_scale", "Scale queries 1/√d_k, for the types", "multiply", queries * inner)
            types = linear("types", "Same and other token type", queries, inner, 2, bias=False)
            # Queries times two vectors per head: a product that merges batch and heads copies both
            q, copied = Tensor(BEFORE, (queries, inner)), merged_heads((inner, queries + 2), self.heads, queries)
            tensors = Tensors((q,), (Tensor(OUTPUT, (queries, 2 * self.heads)),), (Saved(BEFORE, copied=copied),))
            yield msgspec.structs.replace(types, tensors=tensors)
            # Which of the two is picked is saved
            alike = Tensor("alike", (queries, keys), "bool", once=True)
            writes = (Tensor(OUTPUT, (self.heads, queries, keys)),)
            tensors = Tensors((Tensor(BEFORE, (queries, 2 * self.heads)),), writes, (), (alike,))
            yield Operation(
                path="type_pick",
                tensors=tensors,
                title="Type of each pair",
                attention_entries=entries,
                matrix=matrix(entries, by_distance),
                heads=self.heads,
                content_dependent=True,
                **mixing,
            )
            bias_matrix = matrix(entries, by_distance + entries, saved=fused and not self.separate_cls)
            facts = mixing | {"matrix": bias_matrix, "of": ("position_shift", "type_pick")}
            yield elementwise("type_add", "Add token types", "add", entries, **facts)
        if self.separate_cls:
            live_entries = entries if self.token_types else by_distance
            bias_matrix = matrix(entries, live_entries, saved=fused)
            facts = mixing | {"matrix": bias_matrix}
            facts["tensors"] = masked((self.heads, queries, keys), (queries, keys))
            yield Operation(path="cls_mask", title="No position for [CLS]", **facts)

    def shortcut(self, place: Place) -> Iterator[Operation]:
        yield from self._pooling("residual_pool", "Pool the residual stream", place, RESIDUAL)

    def notes(self, place: Place) -> Iterator[str]:
        if self.stride == 1:
            return
        n = place.grid.total
        if not self.pools(place.grid):
            yield f"{n} tokens are too few to be pooled, and go on as they are"
        elif self.separate_cls and self.truncate_seq:
            yield f"{n} tokens pooled to {self.queries(place.grid)}; the last is left out of the pooling"
