"""Mixing by weights that decay with distance: retention (RetNet) in three forms, RWKV-4's time and channel mixing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import gcd
from typing import Annotated, Any, ClassVar, Final, Literal

from xfcost.formulas.arithmetic import lesser
from xfcost.formulas.component import Grid, Heads, Length, Number, Observed, Place, Width, check_divides, check_heads
from xfcost.formulas.letters import Letter
from xfcost.formulas.mixers import (
    AlwaysCausalMixer,
    ChunkedMixer,
    chunk_mixing,
    global_mixing,
    state_note,
    static_weights,
)
from xfcost.ledger.errors import ComponentError
from xfcost.program.attention import join_heads, split_heads
from xfcost.program.chunks import chunk_scores
from xfcost.program.functions import added, looped, minus_exp, multiplied, padded, product, state_of, swish_gated
from xfcost.program.leaves import Rotary, Weight, Worked
from xfcost.program.loops import NOTHING_SEEN, retention_step, wkv_step
from xfcost.program.operations import Functions, Operations
from xfcost.program.symbolic import Tensor


class Retention(ChunkedMixer, AlwaysCausalMixer, frozen=True, kw_only=True, tag="retention"):
    """Gated multi-scale retention (Sun et al. 2023, RetNet, §2.1 and §2.2), causal by its nature.

    N tokens of width d, h heads with queries and keys of d_k = d/h and values of d_v = v/h, v = `value_dim` (2d where
    it isn't given); no biases. A head's γ = 1 - 2^(-5-i) makes D_nm = γ^(n-m) for m ≤ n, 0 else.

        qkv        N·d·(2d + v) MACs, d·(2d + v) parameters; keys scaled by 1/√d_k; queries and keys turned by their
                   positions (rotary)
        norm       N·v elements: every head's columns of a token by themselves (a group norm of h groups), no weights
        gate_proj  N·d·v MACs, d·v parameters
        gate       swish(g)∘y
        out        N·v·d MACs, v·d parameters

    (QKᵀ∘D)V is computed in one of three forms that give the same numbers: `parallel`, all products,

        scores        N²·d MACs, h·N² entries, with that form
        weighted_sum  N²·v MACs, with that form

    `chunkwise`, in chunks of c tokens, N padded to P', with states of d_k·v numbers, which go on by γ^c from chunk to
    chunk,

        local_scores        P'·c·d MACs, P'·c·h entries, with that form
        local_weighted_sum  P'·c·v MACs, with that form
        state, read         P'·d_k·v MACs each, with that form

    or `recurrent`, S_n = γS_{n-1} + k_nᵀv_n, q_n S_n, in N steps, with one state:

        scan          2N·d_k·v MACs, with that form

    What the public code divides scores by, to keep them in the range of half precision, the norm cancels: left out.
    """

    titles: ClassVar[Mapping[str, str]] = {
        "scale": "Scale keys 1/√d_k",
        "scores": "Products QKᵀ",
        "weighted_sum": "Weighted sum of the values",
        "fade": "Values by the decay to the chunk's end",
        "read": "Read the states by Q",
        "scan": "Recurrent retention",
        "norm": "Norm of every head",
        "gate_proj": "Gate projection",
    }
    decodes: ClassVar[bool] = True
    continues: ClassVar[bool] = True
    default_chunk = 512

    heads: Heads
    """Number of heads h."""
    value_dim: Width | None = None
    """Width v of all heads' values together; 2d by default."""
    form: Literal["parallel", "chunkwise", "recurrent"] = "parallel"
    """How it is computed: `parallel`, `chunkwise` or `recurrent`; all give the same numbers."""
    chunk: Annotated[Length | None, Letter("b")] = None
    """Tokens c of a chunk in the chunkwise form; 512 by default."""
    norm: Literal["layer_norm", "rms_norm"] = "layer_norm"
    """Norm of every head's output: layer norm (the paper) or RMS norm (the later public code)."""

    def label(self) -> str:
        return "Retention" if self.form == "parallel" else f"{self.form.capitalize()} retention"

    def values(self, width: Number) -> Number:
        """v."""
        return 2 * width if self.value_dim is None else self.value_dim

    def check(self, place: Place) -> None:
        super().check(place)
        check_heads(self.heads, None, place.dim)
        values = self.values(place.dim)
        check_divides("heads", self.heads, gcd(values, place.dim), f"the width {values} of the values")
        if place.dim // self.heads % 2:
            raise ComponentError(
                "heads",
                f"rotary positions rotate pairs of columns; expected an even head width, got {place.dim // self.heads}",
            )
        if self.chunk and self.form != "chunkwise":
            raise ComponentError("chunk", f"the {self.form} form has no chunks; leave it out, or write form: chunkwise")

    def check_continues(self, place: Place) -> None:
        super().check_continues(place)
        if self.form == "parallel":
            raise ComponentError(
                "form", "--cached-prefix: the parallel form has no state to go on from; write form: chunkwise"
            )

    def observed(self, place: Place) -> Observed:
        # the state before a chunk excludes the chunk itself
        return Observed(unread=dict.fromkeys(("carry", "read"), self.chunk or 0))

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        d, values, heads = place.dim, self.values(place.dim), self.heads
        sizes = (d, d, values)
        parts = t.linear("qkv", x, 2 * d + values, bias=False, parts=sizes).split(sizes, dim=-1)
        q, k, v = (split_heads(part, heads) for part in parts)
        k = t.leaf("scale", multiplied, k, options={"factor": int(d // heads) ** -0.5}, symbol="")
        q, k = (t.run("rotary", Rotary(place.grid.total, ROTARY_BASE), part) for part in (q, k))
        decay = Weight((heads,), Worked(head_decays), "decay_H", learns=False)
        core = {"parallel": self._parallel, "chunkwise": self._chunkwise, "recurrent": self._recurrent}
        y = core["recurrent" if t.decodes else self.form](t, q, k, v, decay, place.grid)
        y = t.leaf("norm", head_norm, y.transpose(1, 2), options={"kind": self.norm}).flatten(2)
        y = t.leaf("gate", swish_gated, y, t.linear("gate_proj", x, values, bias=False))
        return t.linear("out", y, d, bias=False)

    def _parallel(
        self, t: Operations, q: Tensor, k: Tensor, v: Tensor, decay: Weight, grid: Grid
    ) -> Tensor:  # fmt: skip
        """(QKᵀ∘D)V, all products."""
        n = grid.total
        d = t.leaf("decays", decays, weights=(decay,), options={"tokens": n}, title="Decays D")
        return self._products(t, (q, k, v, d), n, global_mixing(n), ("QKᵀ", "AV"))

    def _chunkwise(
        self, t: Operations, q: Tensor, k: Tensor, v: Tensor, decay: Weight, grid: Grid
    ) -> Tensor:  # fmt: skip
        """The products inside the chunks, and a state passed from chunk to chunk."""
        n, (chunks, size) = grid.total, self.chunks(grid)
        after = {"dim": 2, "after": chunks * size - n}
        q, k, v = (t.leaf("pad", padded, part, options=after).unflatten(2, (chunks, size)) for part in (q, k, v))
        title = "Decays D, and since the chunk's start"
        d, since = t.leaf("decays", chunk_decays, weights=(decay,), options={"tokens": size}, title=title)
        near = self._products(t.part("local"), (q, k, v, d), n, chunk_mixing(size), (None, None))
        faded = t.leaf("fade", by_decay, v, d.select(1, 0).select(1, size - 1))
        state = t.leaf("state", state_of, k, faded, **chunk_mixing(size))
        mixing = global_mixing(n)
        state = t.leaf("carry", carried, state, since.select(1, size - 1), sequential=chunks, **static_weights(mixing))
        y = t.leaf("reach", by_decay, t.leaf("read", product, q, state, **mixing), since)
        return t.leaf("add", added, near, y).flatten(2, 3).narrow(2, 0, n)

    def _recurrent(
        self, t: Operations, q: Tensor, k: Tensor, v: Tensor, decay: Weight, grid: Grid
    ) -> Tensor:  # fmt: skip
        """S_n = γS_{n-1} + k_nᵀv_n, q_n S_n."""
        mixing = global_mixing(grid.total)
        if not t.decodes:
            parts, loop = (join_heads(part) for part in (q, k, v)), {"loop": "retention"}
            y = t.leaf("scan", looped, *parts, weights=(decay,), options=loop, sequential=grid.total, **mixing)
            return split_heads(y, self.heads)
        past = t.state("state", (self.heads, q.shape[-1], v.shape[-1]))
        read, state = t.leaf("scan", retained_token, *past, q, k, v, weights=(decay,), **mixing)
        t.keep("state", state)
        return read

    def _products(
        self, t: Operations, parts: tuple[Tensor, ...], n: Number, mixing: dict[str, Any],
        symbols: tuple[str | None, str | None],
    ) -> Tensor:  # fmt: skip
        """(QKᵀ∘D)V of all chunks, or without chunks."""
        q, k, v, d = parts
        x = chunk_scores(t, q, k, n, symbol=symbols[0], **mixing)
        x = t.leaf("weigh", multiplied, x, d, matrix=True, **static_weights(mixing))
        return t.leaf("weighted_sum", product, x, v, symbol=symbols[1], **mixing)

    def notes(self, place: Place) -> Iterator[str]:
        if self.form == "parallel":
            yield "the parallel form is quadratic in N; chunkwise and recurrent give the same numbers in linear time"
        elif self.form == "chunkwise":
            yield from self.notes_of_chunks(place)
        steps = {"parallel": 1, "chunkwise": self.chunks(place.grid)[0], "recurrent": place.grid.total}[self.form]
        yield state_note(place.dim * self.values(place.dim) // self.heads, steps)


# The base of the rotary angles.
ROTARY_BASE: Final = 10000.0


def head_decays(head: Any) -> Any:
    """γ of each head, exactly 1 - 2^(-5-i)."""
    return 1 - 2.0 ** (-5 - head)


def decays(t: Functions, decay: Tensor, *, tokens: Number) -> Tensor:
    """D for N tokens: γ^(n-m), 0 for later ones: (H,) -> (H, N, N)."""
    at = t.arange(tokens, decay)
    back = (at.unsqueeze(-1) - at).clamp(min=0)
    return (decay.unsqueeze(-1).unsqueeze(-1) ** back).tril()


def chunk_decays(t: Functions, decay: Tensor, *, tokens: Number) -> tuple[Tensor, Tensor]:
    """D for the tokens of a chunk, (H, 1, T, T), and the decays since its start, γ^1 to γ^T: (H, T)."""
    d = decays(t, decay, tokens=tokens)
    return d.unsqueeze(1), d.select(-1, 0) * decay.unsqueeze(-1)


def by_decay(t: Functions, y: Tensor, decay: Tensor) -> Tensor:
    """y times a decay per head and position in the chunk: (B, H, C, T, V), (H, T) -> (B, H, C, T, V)."""
    return y * decay.unsqueeze(1).unsqueeze(-1)


def carried(t: Functions, added: Tensor, decay: Tensor) -> Tensor:
    """The states at the chunk starts: (B, H, C, K, V), γ^T (H,) -> (B, H, C, K, V)."""
    by_chunk = added.transpose(1, 2)
    before: Tensor = t.loop("decayed_sums", by_chunk.flatten(2), decay)
    return before.unflatten(2, by_chunk.shape[2:]).transpose(1, 2)


def retained_token(
    t: Functions, state: Tensor, q: Tensor, k: Tensor, v: Tensor, decay: Tensor
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """One token on a state (B, H, K, V): (B, H, 1, K) twice, (B, H, 1, V) -> (B, H, 1, V), and the next state."""
    y, state = retention_step(t, state, q.squeeze(2), k.squeeze(2), v.squeeze(2), decay)
    return y.unsqueeze(2), state


def head_norm(t: Functions, y: Tensor, *, kind: str) -> Tensor:
    """The norm of each head's columns, without weights: (B, N, H, V) -> (B, N, H, V)."""
    return t.layer_norm(y) if kind == "layer_norm" else t.rms_norm(y, None, 1e-6)


class TokenShiftMixer(AlwaysCausalMixer, frozen=True, kw_only=True):
    """A mixer that starts with a token shift: μ∘x_t + (1 - μ)∘x_{t-1}, a learned μ of d per use.

    The previous tokens: N·d elements written; the mixtures: uses·d parameters, (1 + 2·uses)·N·d FLOPs.
    """

    decodes: ClassVar[bool] = True
    continues: ClassVar[bool] = True
    titles: ClassVar[Mapping[str, str]] = {
        "mix": "Mix with the token before",
        "key": "Key projection",
        "value": "Value projection",
        "receptance": "Receptance projection",
        "gate": "Receptance gate",
    }

    def mixed(self, t: Operations, x: Tensor, uses: int) -> Sequence[Tensor]:
        """Mixtures of each token with the one before it; a decode step keeps the token for the next one."""
        if t.decodes:
            (before,) = t.state("shift", (1, x.shape[-1]))
        else:
            before = t.leaf("shift", padded, x, options={"before": 1, "after": -1}, title="Token shift")
        share = Weight((uses, x.shape[-1]), "uniform")
        mixtures = t.leaf("mix", mixtures_of, x, before, weights=(share,), mixing="local", reads="2", reads_tokens=2)
        if t.decodes:
            t.keep("shift", x, title="Token shift")
        return mixtures


def mixtures_of(t: Functions, x: Tensor, before: Tensor, share: Tensor) -> tuple[Tensor, ...]:
    """μ∘x + (1 - μ)∘before for each μ: two of (B, N, D), (U, D) -> U of (B, N, D)."""
    apart = x - before
    return tuple(before + one * apart for one in share.unbind())


def sigmoid_gated(t: Functions, r: Tensor, x: Tensor) -> Tensor:
    """σ(r)∘x."""
    return r.sigmoid() * x


class RwkvTime(TokenShiftMixer, frozen=True, kw_only=True, tag="rwkv_time"):
    """Time mixing (Peng et al. 2023, equations 11 to 17): keys and values in a mean that decays with distance.

    N tokens of width d; no biases.

        shift                    N·d elements written: the token before
        mix                      3·d parameters: three mixtures
        key, value, receptance   N·d² MACs, d² parameters each
        decay                    d parameters: w = -exp(·), once
        wkv                      Σ_j exp((t-1-j)w + k_j) v_j + exp(u + k_t) v_t over the sum of its weights, scaled by
                                 the largest of them: by convention 21·N·d FLOPs and 2·N·d comparisons, which
                                 counters of products see nothing of, in N steps; u has d parameters
        gate                     4·N·d FLOPs: a sigmoid, and the product
        output                   N·d² MACs, d² parameters
    """

    short_name = "RWKV time mixing"
    titles: ClassVar[Mapping[str, str]] = {
        **TokenShiftMixer.titles,
        "decay": "Decay w = -exp(·)",
        "wkv": "WKV recurrence",
        "output": "Output projection",
    }

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        d, mixing = place.dim, global_mixing(place.grid.total)
        for_k, for_v, for_r = self.mixed(t, x, uses=3)
        k, v = (t.linear(name, one, d, bias=False) for name, one in (("key", for_k), ("value", for_v)))
        decay = t.leaf("decay", minus_exp, weights=(Weight((d,), Worked(channel_decays, {"width": d})),))
        first = Weight((d,), "zeros", "first")
        if t.decodes:
            past = t.state("state", (d,), (d,), (d,))  # numerator, denominator and largest exponent
            y, *state = t.leaf("wkv", averaged_token, *past, k, v, decay, weights=(first,), **mixing)
            t.keep("state", *state, starts=(0.0, 0.0, NOTHING_SEEN))
        else:
            facts = mixing | {"sequential": place.grid.total}
            y = t.leaf("wkv", looped, k, v, decay, weights=(first,), options={"loop": "wkv"}, **facts)
        y = t.leaf("gate", sigmoid_gated, t.linear("receptance", for_r, d, bias=False), y)
        return t.linear("output", y, d, bias=False)

    def notes(self, place: Place) -> Iterator[str]:
        yield state_note(4 * place.dim, place.grid.total, ", the last token among them")


def channel_decays(channel: Any, *, width: int) -> Any:
    """The logarithms of decays, from slow to fast: evenly from -5 to 1."""
    return -5 + 6 * channel / max(width - 1, 1)


def averaged_token(t: Functions, *parts: Tensor) -> tuple[Tensor, ...]:
    """Three states (B, D), a token's keys and values (B, 1, D), decays, u (D,) -> (B, 1, D), and the next states."""
    above, below, top, k, v, decay, first = parts
    y, *state = wkv_step(t, above, below, top, k.squeeze(1), v.squeeze(1), decay, first)
    return y.unsqueeze(1), *state


class RwkvChannel(TokenShiftMixer, frozen=True, kw_only=True, tag="rwkv_channel"):
    """Channel mixing (Peng et al. 2023, equations 18 to 20): σ(R x')∘V·relu(K x'')².

    x' and x'' are mixed with the token before. N tokens of width d, H = `hidden` (4·d where it isn't given); no biases.

        mix          2·d parameters
        key          N·d·H MACs, d·H parameters
        value        N·H·d MACs, H·d parameters
        receptance   N·d² MACs, d² parameters
    """

    short_name = "RWKV channel mixing"
    titles: ClassVar[Mapping[str, str]] = {**TokenShiftMixer.titles, "act": "ReLU", "square": "Square"}

    hidden: Width | None = None
    """Hidden width H; 4d by default."""

    def inner(self, width: Number) -> Number:
        """H."""
        return 4 * width if self.hidden is None else self.hidden

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        return range(max(token - 1, 0), token + 1)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        return 2 * grid.total - lesser(grid.total, 1)

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        for_k, for_r = self.mixed(t, x, uses=2)
        r = t.linear("receptance", for_r, place.dim, bias=False)
        hidden = t.act("act", t.linear("key", for_k, self.inner(place.dim), bias=False), "relu")
        value = t.linear("value", t.leaf("square", squared, hidden), place.dim, bias=False)
        return t.leaf("gate", sigmoid_gated, r, value)


def squared(t: Functions, x: Tensor) -> Tensor:
    """x², element by element."""
    return x.square()
