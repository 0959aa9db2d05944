"""Gated DeltaNet: a state that forgets by a gate, and in which every token corrects what its key recalls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from xfcost.formulas.component import Heads, Letter, Number, Observed, Place, Width, check_divides, check_heads
from xfcost.formulas.mixers import chunk_mixing, global_mixing, static_weights
from xfcost.program.chunks import StateMixer, chunk_scores, decay_rate, decays, faded, reached, running_sums, step_bias
from xfcost.program.functions import added, in_chunks, multiplied, out_of_chunks, product, repeated_heads, swish_gated
from xfcost.program.leaves import Weight
from xfcost.program.operations import Functions, Operations
from xfcost.program.symbolic import Tensor


class GatedDelta(StateMixer, frozen=True, kw_only=True, tag="gated_delta"):
    """Gated DeltaNet (Yang et al. 2024, §3, equation 10; the block of §3.4), causal by its nature.

    S_t = α_t (I - β_t k_t k_tᵀ) S_{t-1} + β_t k_t v_tᵀ, y_t = S_tᵀ q_t: what k_t recalls is replaced by v_t.

    N tokens of width d, h heads with values of d_v, h_k heads with queries and keys of d_k, each for h/h_k of the
    others; N is padded to P' tokens, chunks of Q. C channels are convolved, C = 2h_k·d_k + h·d_v.

        in_proj             N·d·(C + h·d_v) MACs, d·(C + h·d_v) parameters: queries, keys, values, the gate z
        gates_proj          N·d·2h MACs, d·2h parameters: β and α of every head
        conv                (N + W - 1)·W·C MACs, W·C parameters: causal, depthwise; what sticks out is computed
                            and dropped
        decay, rates        h parameters each: log α = -exp(A)·softplus(a + b)
        key_scores, scores  P'·Q·h·d_k MACs, P'·Q·h entries: βkkᵀ and qkᵀ inside the chunks
        solve               P'·h·(d_k + d_v)·(Q - 1)/2 MACs: the corrections of a chunk are a system, lower triangular
                            with ones on its diagonal (equation 9)
        carry               3P'·h·d_k·d_v MACs: in P'/Q steps, what a state recalls, its next one, what is read
        weighted_sum        P'·Q·h·d_v MACs
        norm                d_v parameters: an RMS norm of every head, before the gate
        out_proj            N·h·d_v·d MACs, h·d_v·d parameters

    A decode step has three products of h·d_k·d_v MACs.
    """

    short_name = "Gated DeltaNet"
    titles: ClassVar[Mapping[str, str]] = {
        "in_proj": "Projections to q, k, v, z",
        "gates_proj": "Projections to β, α",
        "rates": "Decay log α",
        "write": "Sigmoid β",
        "sums": "Sums of log α in a chunk",
        "weigh_keys": "Keys by β",
        "weigh_values": "Values by β",
        "key_scores": "Products βKKᵀ",
        "reach_keys": "Keys by the decay since the chunk's start",
        "solve": "Values and keys without what earlier keys recall",
        "scores": "Products QKᵀ",
        "reach": "Queries by the decay since the chunk's start",
        "fade": "Keys by the decay to the chunk's end",
        "carry": "States from chunk to chunk",
        "weighted_sum": "Weighted sum of the values",
        "recall": "What the key recalls",
        "correct": "Difference by β",
        "update": "State of the token",
        "read": "Read the state by Q",
        "norm": "RMS norm of every head",
    }

    heads: Heads
    """Number of heads h, of values."""
    key_heads: Heads | None = None
    """Number of heads h_k of queries and keys, which divides h; h by default."""
    head_dim: Annotated[Width | None, Letter("dₖ")] = None
    """Width d_k of a head's queries and keys; d/h by default."""
    value_dim: Annotated[Width | None, Letter("dₖ")] = None
    """Width d_v of a head's values; d_k by default."""

    def widths(self, width: Number) -> tuple[Number, Number, Number]:
        """h_k, d_k, d_v."""
        of_keys = width // self.heads if self.head_dim is None else self.head_dim
        of_values = of_keys if self.value_dim is None else self.value_dim
        return self.heads if self.key_heads is None else self.key_heads, of_keys, of_values

    def check(self, place: Place) -> None:
        super().check(place)
        check_heads(self.heads, self.head_dim, place.dim)
        check_divides("key_heads", self.widths(place.dim)[0], self.heads, f"the {self.heads} heads")

    def carried(self, width: Number) -> tuple[Number, Number]:
        key_heads, wide, value = self.widths(width)
        return self.heads * wide * value, 2 * key_heads * wide + self.heads * value

    def observed(self, place: Place) -> Observed:
        # the state before a chunk excludes the chunk itself, and a chunk's sum is at its last token
        return Observed(unread={"carry": self.chunk, "fade": self.chunk - 2})

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        h, (key_heads, wide, value) = self.heads, self.widths(place.dim)
        keys, values = key_heads * wide, h * value
        qkv, z = t.linear("in_proj", x, 2 * keys + 2 * values, bias=False).split((2 * keys + values, values), -1)
        write, rate = t.linear("gates_proj", x, 2 * h, bias=False).chunk(2, -1)
        qkv = self.convolved(t, qkv, bias=False)
        rate = t.leaf("rates", log_decay, rate, decay_rate(t, h), weights=(step_bias(h),))
        sizes, (qkv, write, rate) = self.cut(t, place, qkv, t.act("write", write, "sigmoid"), rate)
        q, k, v = qkv.split((keys, keys, values), -1)
        q, k = (t.leaf("normalize", of_length_one, in_chunks(part, key_heads, sizes)) for part in (q, k))
        q = t.leaf("scale", multiplied, q, options={"factor": float(wide) ** -0.5}, symbol="")
        q, k = (repeated_heads(part, h // key_heads) for part in (q, k))
        parts = (q, k, *(in_chunks(part, h, sizes) for part in (v, write, rate)))
        y = out_of_chunks((self._step if t.decodes else self._chunked)(t, parts, place.grid.total), x.shape[1])
        y = t.leaf("norm", head_norm, y, weights=(Weight((value,), "ones"),)).flatten(2)
        return t.linear("out_proj", t.leaf("gate", swish_gated, y, z), place.dim, bias=False)

    def _chunked(self, t: Operations, parts: tuple[Tensor, ...], n: Number) -> Tensor:
        """Corrections inside the chunks, and a state passed from chunk to chunk."""
        q, k, v, write, rate = parts
        chunks, size = q.shape[2:4]
        inside = chunk_mixing(size)
        sums = t.leaf("sums", running_sums, rate, **static_weights(inside))
        d = t.leaf("decays", decays, sums, matrix=True, **inside)
        k_weighed, v_weighed = t.leaf("weigh_keys", multiplied, k, write), t.leaf("weigh_values", multiplied, v, write)
        x = chunk_scores(t, k_weighed, k, n, "key_scores", own=False, **inside)
        k_weighed = t.leaf("reach_keys", reached, k_weighed, sums)
        without = t.leaf("solve", solved, x, d, v_weighed, k_weighed, **inside)
        x = chunk_scores(t, q, k, n, **inside)
        x = t.leaf("weigh", multiplied, x, d, matrix=True, **inside)
        q, k = t.leaf("reach", reached, q, sums), t.leaf("fade", faded, k, sums, **inside)
        whole = sums.select(-1, 0).select(-1, size - 1)
        v, far = t.leaf("carry", carried, *without, q, k, whole, sequential=chunks, **global_mixing(n))
        return t.leaf("add", added, t.leaf("weighted_sum", product, x, v, **inside), far)

    def _step(self, t: Operations, parts: tuple[Tensor, ...], n: Number) -> Tensor:
        """One token on a state."""
        q, k, v, write, rate = parts
        between = global_mixing(n)
        (past,) = t.state("cache", (self.heads, 1, k.shape[-1], v.shape[-1]))
        past = t.leaf("fade", reached, past, rate, title="State by its decay", **between)
        new = t.leaf("correct", corrected, v, t.leaf("recall", product, k, past, **between), write)
        state = t.leaf("update", written, past, k, new, **between)
        t.keep("cache", state)
        return t.leaf("read", product, q, state, **between)


def log_decay(t: Functions, x: Tensor, a: Tensor, bias: Tensor) -> Tensor:
    """A·softplus(x + b): (B, N, H), (H,) twice -> (B, N, H)."""
    return a * t.softplus(x + bias)


def of_length_one(t: Functions, x: Tensor) -> Tensor:
    """x/√(Σx² + ε) along the last axis."""
    return x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt()


def solved(t: Functions, x: Tensor, d: Tensor, v: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Those whose system is βkkᵀ∘D below a diagonal of ones: (B, H, C, Q, Q) twice, (B, H, C, Q, …) twice."""
    system = x * d
    return t.solved(system, v), t.solved(system, k)


def carried(t: Functions, v: Tensor, k: Tensor, q: Tensor, written: Tensor, whole: Tensor) -> tuple[Tensor, ...]:
    """Values without what the states recall, and what is read of them: (B, H, C, Q, V) twice.

    Values (B, H, C, Q, V); keys that recall, queries and keys that write (B, H, C, Q, K); decays of chunks (B, H, C).
    """
    state = t.filled(v, (*v.shape[:2], k.shape[-1], v.shape[-1]), 0.0)
    both: Any = t.scan(chunk_step, [part.transpose(1, 2) for part in (v, k, q, written, whole)], (state,))[0]
    return tuple(one.transpose(1, 2) for one in both)


def chunk_step(  # noqa: PLR0913 - what a step of the formula reads
    t: Functions, state: Tensor, v: Tensor, k: Tensor, q: Tensor, written: Tensor, whole: Tensor
) -> tuple[Any, ...]:
    """A chunk on a state (B, H, K, V): (B, H, Q, …) each, (B, H) -> the two outputs, and the next state."""
    new = v - k @ state
    return (new, q @ state), whole.exp().unsqueeze(-1).unsqueeze(-1) * state + written.mT @ new


def corrected(t: Functions, v: Tensor, recalled: Tensor, write: Tensor) -> Tensor:
    """β(v - what k recalls): (B, H, 1, 1, V) twice, (B, H, 1, 1, 1)."""
    return (v - recalled) * write


def written(t: Functions, state: Tensor, k: Tensor, new: Tensor) -> Tensor:
    """S + k newᵀ: (B, H, 1, K, V), (B, H, 1, 1, K), (B, H, 1, 1, V)."""
    return state + k.mT @ new


def head_norm(t: Functions, y: Tensor, weight: Tensor) -> Tensor:
    """RMS norm of each head, with a gain for all: (B, N, H, V) -> (B, N, H, V)."""
    return t.rms_norm(y, weight, 1e-6)
