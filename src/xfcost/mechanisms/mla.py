"""Multi-head latent attention: keys and values of all heads are projected from one narrow latent per token."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

import msgspec

from xfcost.formulas.attention import attention_of
from xfcost.formulas.component import ComponentError, Letter, Number, Operation, Place, Width
from xfcost.formulas.mixers import CausalMixer
from xfcost.formulas.rows import ROTATED_KEYS, cache_write, linear, move, norm, on_raw_input, rotary
from xfcost.formulas.tensors import reading
from xfcost.ledger.parallelism import HeadSharing
from xfcost.ledger.tensors import OUTPUT, Tensor, Tensors

# The keys of all heads; the queries have the row's own name.
_KEYS: Final = "joined keys"


class Mla(CausalMixer, frozen=True, kw_only=True, tag="mla"):
    """MLA (DeepSeek-V2, 2024, §2.1; the released models' code).

    N tokens, width d, h heads; a head's queries and keys have d_h columns of content and d_r of position, which alone
    are turned (RoPE) and whose key all heads share; its values have d_v. A token's keys and values come from c numbers.

        q_down        N·d·c_q MACs, where queries have a rank c_q too; then q_norm, and
        q_up          N·c_q·h·(d_h + d_r) MACs; without a rank q, N·d·h·(d_h + d_r)
        kv_down       N·d·(c + d_r) MACs: the latent, and the key's turned part
        kv_norm       an RMS norm of the latent
        rotary        3·N·(h + 1)·d_r element-wise FLOPs
        kv_up         N·c·h·(d_h + d_v) MACs
        join          2·N·h·(d_h + d_r) elements written: both parts of queries and keys beside each other
        scores        N²·h·(d_h + d_r) MACs, h·N² entries kept
        softmax       h·N² elements
        weighted_sum  N²·h·d_v MACs
        out           N·h·d_v·d MACs

    A cache keeps the latent and the turned key, c + d_r numbers a token, whatever h is; multi-head attention keeps
    2·h·d_h. This is the form that writes keys and values out, as prefill and training run it. The RMS norms are the
    public code's; scores are scaled by 1/√(d_h + d_r).

    One token more leaves them unwritten (§2.1.2): its queries go through the map out of the latent, and so does what
    they read, so that all heads read the cache itself as keys of c + d_r and values of c, h·N·(2·c + d_r) MACs, where
    writing N tokens' keys and values out again would take N·c·h·(d_h + d_v).
    """

    head_dim: Annotated[Width | None, Letter("dₖ")] = None
    """Width d_h of a head's content columns; d/h by default."""
    kv_rank: Annotated[Width, Letter("k")]
    """Width c of the latent from which keys and values are computed."""
    rope_dim: Annotated[Width, Letter("dₖ")]
    """Rotary columns d_r of a query, and of the one key that all heads share."""
    q_rank: Annotated[Width | None, Letter("k")] = None
    """Width c_q of the queries' latent; by default queries are projected straight from x."""
    value_dim: Annotated[Width | None, Letter("dₖ")] = None
    """Width d_v of a head's values; d_h by default."""
    projection_bias: bool = False
    """Whether q_down, kv_down and the output projection have biases; the projections out of latents have none."""
    rope_base: Annotated[float, msgspec.Meta(ge=1, le=1e12)] = 10000.0
    """Base θ of RoPE's angles; it does not change the cost."""

    def check(self, place: Place) -> None:
        super().check(place)
        if self.rope_dim % 2:
            raise ComponentError(
                "rope_dim", f"rope turns pairs of columns, and {self.rope_dim} is odd; give an even number"
            )

    def label(self) -> str:
        return "Causal latent attention" if self.causal else "Latent attention"

    def content(self, width: Number) -> Number:
        """d_h: a head's columns of queries and keys without rotary positions."""
        return width // self.heads if self.head_dim is None else self.head_dim

    def key_dim(self, width: Number) -> Number:
        """d_h + d_r, the columns of a head's queries and keys."""
        return self.content(width) + self.rope_dim

    def values(self, width: Number) -> Number:
        """d_v, the columns of a head's values."""
        return self.content(width) if self.value_dim is None else self.value_dim

    @property
    def latent(self) -> Number:
        """c + d_r: the cache per token."""
        return self.kv_rank + self.rope_dim

    def head_sharing(self, place: Place) -> HeadSharing:
        return HeadSharing(self.heads, 1, whole=frozenset({self.latent, self.q_rank or self.latent}))

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d, h = place.grid.total, place.dim, self.heads
        keys, values = h * self.key_dim(d), h * self.values(d)
        yield from self._queries(n, d, keys)
        yield on_raw_input(
            linear("kv_down", "Latent of K, V, and shared key", n, d, self.latent, bias=self.projection_bias)
        )
        yield from norm("rms_norm", "kv_norm", n, self.kv_rank)
        yield reading(rotary(n, h * self.rope_dim, self.rope_dim), self._last_query_row, "kv_down")
        maps = h * self.content(d) + values
        kv_up = linear("kv_up", "K, V out of their latent", n, self.kv_rank, maps, bias=False)
        yield reading(kv_up, "kv_norm")
        h = self.heads
        content, turned, both = (n, h * self.content(d)), (n, h * self.rope_dim), (n, h * self.key_dim(d))
        parts = ((self._last_query_row, content), ("rotary", turned), ("kv_up", content), (ROTATED_KEYS, turned))
        reads = tuple(Tensor(name, shape) for name, shape in parts)
        tensors = Tensors(reads, (Tensor(OUTPUT, both), Tensor(_KEYS, both)))
        yield move("join", "Parts of Q and K beside each other", 2 * n * keys, tensors=tensors)
        operands = ("join", _KEYS, "kv_up")
        yield from attention_of(self, place, inner=keys, values=values, operands=operands, apart=True)
        yield linear("out", "Output projection W_O", n, values, d, bias=self.projection_bias)

    @property
    def _last_query_row(self) -> str:
        return "q" if self.q_rank is None else "q_up"

    def step(self, place: Place) -> Iterator[Operation]:
        """One query against the cached latents of N tokens, c + d_r numbers each."""
        n, d, h = place.grid.total, place.dim, self.heads
        keys, values = h * self.key_dim(d), h * self.values(d)
        yield from self._queries(1, d, keys)
        yield linear("kv_down", "Latent of K, V, and shared key", 1, d, self.latent, bias=self.projection_bias)
        yield from norm("rms_norm", "kv_norm", 1, self.kv_rank)
        yield rotary(1, h * self.rope_dim, self.rope_dim)
        yield cache_write("Latent and shared key to the cache", self.latent, n)
        maps = h * self.content(d) + values
        yield linear("kv_up", "Maps out of the latent, on Q and on what it read", 1, self.kv_rank, maps, bias=False)
        yield move("join", "Parts of Q beside each other", h * self.latent)
        sizes = {"inner": h * self.latent, "values": h * self.kv_rank}
        yield from attention_of(self, place, queries=1, shared=h, pairs=n, masked=False, **sizes)
        yield linear("out", "Output projection W_O", 1, values, d, bias=self.projection_bias)

    def _queries(self, n: Number, d: Number, keys: Number) -> Iterator[Operation]:
        if self.q_rank is None:
            yield on_raw_input(linear("q", "Q projection", n, d, keys, bias=False))
            return
        yield on_raw_input(linear("q_down", "Latent of Q", n, d, self.q_rank, bias=self.projection_bias))
        yield from norm("rms_norm", "q_norm", n, self.q_rank)
        yield linear("q_up", "Q out of its latent", n, self.q_rank, keys, bias=False)
