"""Global-local attention (ETC): a few global tokens read all tokens; the others read a band and the global tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Final

import msgspec

from xfcost.formulas.arithmetic import round_up
from xfcost.formulas.attention import attention_of
from xfcost.formulas.banded_attention import BandedAttention, band_pairs, padded
from xfcost.formulas.component import Grid, Letter, Number, Observed, Operation, PaddingNote, Place
from xfcost.formulas.letters import grid_in_letters
from xfcost.formulas.mixers import NonCausalMixer
from xfcost.formulas.query_blocks import of_cropped
from xfcost.formulas.rows import linear, move, on_raw_input
from xfcost.formulas.tensors import reading
from xfcost.ledger.tensors import INPUT, OUTPUT, Exchanged, Saved, Tensor, Tensors

# The values joined for the global tokens; the keys have the row's own name.
GLOBAL_VALUES: Final = "global values"


class GlobalLocal(NonCausalMixer, frozen=True, kw_only=True, tag="global_local"):
    """The attention of the Extended Transformer Construction (Ainslie et al. 2020, §3.1 and appendix A).

    g global tokens, which are the special tokens of the grid ({kind: memory_tokens} in `embed` makes them), and a long
    text of n = N - g, width d, h heads. A token of the text reads the `radius` r tokens on each side, itself, and all
    global tokens, in one softmax; a global token reads all N.

    The text's part runs in blocks of b = r + 1 queries and three blocks of keys, as in the public implementation (which
    runs up to 1,024 tokens as one masked product: the same numbers). Queries are padded to P, whole blocks:

        qkv            N·d·3d MACs
        scores         P·3b·d MACs, P·h·3b entries kept; weighted_sum as much
        global_key_scores, global_key_weighted_sum   P·g·d MACs each
        global_scores  g·N·d MACs, h·g·N entries kept; global_weighted_sum as much
        out            N·d² MACs

    Without `share_projections` each of the four parts (long-to-long, long-to-global, global-to-global, global-to-long)
    has keys and values of its own, and each kind of token its queries: 10·d² parameters in place of 3·d², N·d·5d MACs.
    Without `share_output` global tokens have an output projection of their own.

    ETC's relative position labels are left out: a table of vectors per label, scored against every query.
    """

    short_name = "Global-local attention"
    non_causal_reason: ClassVar[str] = "global tokens read the whole text, and all tokens read them"

    radius: Annotated[int, msgspec.Meta(ge=1, le=2**31), Letter("w")]
    """Tokens r that a token of the text reads on each side."""
    share_projections: bool = True
    """Whether the four parts share one query, key and value projection."""
    share_output: bool = True
    """Whether both kinds of tokens share one output projection."""

    @property
    def block(self) -> Number:
        """b."""
        return self.radius + 1

    def padded(self, grid: Grid) -> Number:
        """P."""
        return round_up(grid.tokens, self.block)

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        n, g = grid.total, grid.special
        if token < g:
            return range(n)
        return [*range(g), *range(max(token - self.radius, g), min(token + self.radius + 1, n))]

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        return grid.special * grid.total + grid.tokens * grid.special + band_pairs(grid.tokens, self.radius)

    def in_letters(self, place: Place) -> tuple[GlobalLocal, Place]:
        component, lettered_place = super().in_letters(place)
        return component, msgspec.structs.replace(lettered_place, grid=grid_in_letters(place.grid, special="g"))

    def observed(self, place: Place) -> Observed:
        return Observed(letters={"r": "w"})

    def operations(self, place: Place) -> Iterator[Operation]:
        d, n, g, inner = place.dim, place.grid.tokens, place.grid.special, self.inner(place.dim)
        p, b = self.padded(place.grid), self.block
        yield from self._projections(place)
        queries, keys = ("qkv", "qkv") if self._shared(place) else ("long_qkv", "l2g_kv")
        filled = padded((n, inner), (p, inner), queries)
        yield move("pad", "Pad queries to whole blocks", 0 if p == n else p * inner, tensors=filled)
        band = BandedAttention(
            queries=p,
            block=b,
            global_keys=g,
            heads=self.heads,
            inner=inner,
            pairs=band_pairs(n, self.radius),
            global_pairs=n * g,
            reads="2r+1",
            reads_tokens=2 * self.radius + 1,
            reads_with_global="2r+g+1" if g else "2r+1",
            gathered=(p + 2 * b) * inner,
            keys=n,
            operands=(queries if p == n else "pad", queries, queries),
            global_operand=keys,
            contiguous_queries=p != n,
        )
        yield from band.rows()
        if g:
            yield from self._global(place)
        if g and self.share_output:
            tensors = self._joined("global_weighted_sum", "add", place, inner)
            yield move("concat", "Join both kinds of tokens", (g + n) * inner, tensors=tensors)
        tokens = n + g if g and self.share_output else n
        out = linear("out", "Output projection W_O", tokens, inner, d, bias=self.projection_bias)
        yield out if g and self.share_output else self._of_text(out, "add" if g else "weighted_sum", place, inner)
        if g and not self.share_output:
            title = "Output projection W_O of global tokens"
            row = linear("global_out", title, g, inner, d, bias=self.projection_bias)
            yield reading(row, "global_weighted_sum")
            tensors = self._joined("global_out", "out", place, d)
            yield move("concat", "Join both kinds of tokens", (g + n) * d, tensors=tensors)

    def _shared(self, place: Place) -> bool:
        """Is there one projection to queries, keys and values?"""
        return self.share_projections or not place.grid.special

    def _of_text(self, row: Operation, name: str, place: Place, inner: Number) -> Operation:
        """`row`, which reads the heads of the text's tokens alone: joined, they are a copy; so are several samples'."""
        n, p = place.grid.tokens, self.padded(place.grid)
        if self.heads == 1:
            return of_cropped(row, n, p, inner, name)
        joined = Exchanged((n, inner), (self.heads, inner))
        return reading(row, name, saves=(Saved(name, copied=joined),))

    @staticmethod
    def _joined(special: str, text: str, place: Place, width: Number) -> Tensors:
        """Rows of the global tokens before those of the text."""
        g, n = place.grid.special, place.grid.tokens
        return Tensors((Tensor(special, (g, width)), Tensor(text, (n, width))), (Tensor(OUTPUT, (g + n, width)),))

    def _projections(self, place: Place) -> Iterator[Operation]:
        d, n, g, inner = place.dim, place.grid.tokens, place.grid.special, self.inner(place.dim)
        if self._shared(place):
            yield on_raw_input(linear("qkv", "Q, K, V projections", n + g, d, 3 * inner, bias=self.projection_bias))
            return
        for path, title, tokens, parts in (
            ("long_qkv", "Q, K, V projections, long", n, 3),
            ("l2g_kv", "K, V projections, long to global", g, 2),
            ("global_qkv", "Q, K, V projections, global", g, 3),
            ("g2l_kv", "K, V projections, global to long", n, 2),
        ):
            row = on_raw_input(linear(path, title, tokens, d, parts * inner, bias=self.projection_bias))
            yield of_cropped(row, tokens, g + n, d, INPUT)
        both = (Tensor("global_qkv", (g, 2, inner)), Tensor("g2l_kv", (n, 2, inner)))
        written = (Tensor(OUTPUT, (g + n, inner)), Tensor(GLOBAL_VALUES, (g + n, inner)))
        tensors = Tensors(both, written)
        yield move("global_kv", "Join the global tokens' keys and values", 2 * (g + n) * inner, tensors=tensors)

    def _global(self, place: Place) -> Iterator[Operation]:
        """Attention of the global tokens."""
        g, n = place.grid.special, place.grid.total
        core: dict[str, Any] = {"queries": g, "pairs": g * n, "fused": False}
        if not self._shared(place):
            core["operands"] = ("global_qkv", "global_kv", GLOBAL_VALUES)
        yield from attention_of(self, place, prefix="global_", label="global tokens", **core)

    def notes(self, place: Place) -> Iterator[str]:
        n, p = place.grid.tokens, self.padded(place.grid)
        yield "ETC's relative position labels are left out"
        if not place.grid.special:
            yield "no global tokens, only a band; {kind: memory_tokens} in `embed` adds them"
        if p != n:
            yield PaddingNote(
                f"the queries of {n} tokens are padded to {p} for blocks of {self.block}: {p - n} more are attended "
                "for, and counted"
            )
        if place.fused:
            yield "global-local attention runs in blocks, eager: it has no fused form"
