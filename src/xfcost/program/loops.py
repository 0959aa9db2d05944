"""Loops over the tokens, which torch runs as one operation `xfcost::…`; a decode step runs one step of the same.

A trace of N steps would be N times as long as a trace of attention, so it shows one node, whose cost is in the
table. Every other run, and what autograd saves, sees the steps.

B batch, N tokens, G numbers of all gates, H hidden units (of retention: heads); E channels, S state size, D width, K
and V widths of a head.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from xfcost.program.operations import Functions
from xfcost.program.symbolic import Tensor

# ── Mamba ──


def selective_scan(t: Functions, u: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """h = exp(Δ A)∘h + (Δ u)⊗B, y = C·h for each token (Gu and Dao 2023, algorithm 2).

    u and Δ (B, N, E), A (E, S), B and C (B, N, S) -> (B, N, E).
    """
    state = t.filled(u, (u.shape[0], *a.shape), 0.0)
    return t.scan(selective_step, (dt, dt * u, b, c), (state,), a)[0]


def selective_step(  # noqa: PLR0913 - what a step of the formula reads
    t: Functions, state: Tensor, dt: Tensor, entering: Tensor, b: Tensor, c: Tensor, a: Tensor
) -> tuple[Tensor, ...]:
    """State (B, E, S), Δ and Δ u (B, E), B and C (B, S) -> (B, E) and the next state."""
    kept = (dt.unsqueeze(-1) * a).exp()
    state = kept * state + entering.unsqueeze(-1) * b.unsqueeze(1)
    return (state @ c.unsqueeze(-1)).squeeze(-1), state


# ── RWKV ──

# The initial value of the largest exponent.
NOTHING_SEEN: Final = -1e38


def wkv(t: Functions, k: Tensor, v: Tensor, w: Tensor, u: Tensor) -> Tensor:
    """Σ exp((t-1-j)w + k_j) v_j + exp(u + k_t) v_t over its weights (Peng et al. 2023, equation 16): (B, N, D).

    Numerator and denominator are divided by exp(`top`), the largest exponent so far.
    """
    shape = (k.shape[0], k.shape[2])
    nothing = t.filled(k, shape, 0.0)
    return t.scan(wkv_step, (k, v), (nothing, nothing, t.filled(k, shape, NOTHING_SEEN)), w, u)[0]


def wkv_step(  # noqa: PLR0913 - the three states, keys and values, both decays
    t: Functions, above: Tensor, below: Tensor, top: Tensor, k: Tensor, v: Tensor, w: Tensor, u: Tensor
) -> tuple[Tensor, ...]:  # fmt: skip
    """The output of a token (B, D), and the next numerator, denominator and largest exponent."""
    here = u + k
    most = top.maximum(here)
    old, new = (top - most).exp(), (here - most).exp()
    y = (old * above + new * v) / (old * below + new)
    decayed = top + w
    top = decayed.maximum(k)
    old, new = (decayed - top).exp(), (k - top).exp()
    return y, old * above + new * v, old * below + new, top


# ── retention ──


def retention(t: Functions, q: Tensor, k: Tensor, v: Tensor, decay: Tensor) -> Tensor:
    """S = γS + kᵀv, qS for each token (Sun et al. 2023, equation 6), heads side by side: (B, N, D) -> (B, N, E)."""
    heads = decay.shape[0]
    q, k, v = (part.unflatten(-1, (heads, -1)) for part in (q, k, v))
    state = t.filled(v, (v.shape[0], heads, q.shape[-1], v.shape[-1]), 0.0)
    return t.scan(retention_step, (q, k, v), (state,), decay)[0].flatten(2)


def retention_step(
    t: Functions, state: Tensor, q: Tensor, k: Tensor, v: Tensor, decay: Tensor
) -> tuple[Tensor, ...]:  # fmt: skip
    """State (B, H, K, V), queries and keys (B, H, K), values (B, H, V) -> (B, H, V) and the next state."""
    state = decay.unsqueeze(-1).unsqueeze(-1) * state + k.unsqueeze(-1) @ v.unsqueeze(-2)
    return (q.unsqueeze(-2) @ state).squeeze(-2), state


def decayed_sums(t: Functions, added: Tensor, decay: Tensor) -> Tensor:
    """S = γS + a chunk's contribution, heads side by side: S before each chunk: (B, C, S)."""
    by_head = added.unflatten(-1, (decay.shape[0], -1))
    state = t.filled(by_head, (by_head.shape[0], *by_head.shape[2:]), 0.0)
    return t.scan(decayed_step, (by_head,), (state,), decay)[0].flatten(2)


def decayed_step(t: Functions, state: Tensor, added: Tensor, decay: Tensor) -> tuple[Tensor, ...]:
    """The state before a chunk, and that behind it: (B, H, S) twice, (H,)."""
    return state, decay.unsqueeze(-1) * state + added


# ── recurrent cells; gates in torch's order ──


def _recurrence(step: Callable[..., tuple[Tensor, ...]], states: int) -> Callable[..., Any]:
    """The loop of a cell: (B, N, G), weights (G, H), bias (G,), first states (B, H), reverse -> (B, N, H) and c."""

    def loop(t: Functions, x: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Any:
        *given, reverse = rest
        zeros = (x.shape[0], weight.shape[1])
        first = tuple(t.filled(x, zeros, 0.0) if one is None else one for one in given)
        y, _, *others = t.scan(step, (x,), first, weight, bias, reverse=reverse)
        return (y, *others) if states > 1 else y

    return loop


def _rnn_step(
    t: Functions, h: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, *, act: str
) -> tuple[Tensor, ...]:  # fmt: skip
    mapped = x + t.linear_map(h, weight, bias)
    h = mapped.tanh() if act == "tanh" else mapped.relu()
    return h, h


def lstm_step(
    t: Functions, h: Tensor, c: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None
) -> tuple[Tensor, ...]:  # fmt: skip
    """Gates i, f, g, o."""
    i, f, g, o = (x + t.linear_map(h, weight, bias)).chunk(4, dim=-1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    h = o.sigmoid() * c.tanh()
    return h, h, c


def gru_after_step(t: Functions, h: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, ...]:
    """Gates r, z, n; r resets the state behind its map."""
    units = weight.shape[1]
    mapped = t.linear_map(h, weight, bias)
    r, z = (x.narrow(1, 0, 2 * units) + mapped.narrow(1, 0, 2 * units)).sigmoid().chunk(2, dim=-1)
    n = (x.narrow(1, 2 * units, units) + r * mapped.narrow(1, 2 * units, units)).tanh()
    h = n + z * (h - n)
    return h, h


def gru_before_step(t: Functions, h: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, ...]:
    """The same, but the state is reset before its map: the third gate's product needs the first two gates."""
    units = weight.shape[1]
    parts = (2 * units, units)
    of_gates, of_new = weight.split(parts)
    gates_bias, new_bias = (None, None) if bias is None else bias.split(parts)
    r, z = (x.narrow(1, 0, 2 * units) + t.linear_map(h, of_gates, gates_bias)).sigmoid().chunk(2, dim=-1)
    n = (x.narrow(1, 2 * units, units) + t.linear_map(r * h, of_new, new_bias)).tanh()
    h = n + z * (h - n)
    return h, h


LOOPS: Final[dict[str, Callable[..., Any]]] = {
    "selective_scan": selective_scan,
    "wkv": wkv,
    "retention": retention,
    "decayed_sums": decayed_sums,
    "rnn_tanh": _recurrence(partial(_rnn_step, act="tanh"), 1),
    "rnn_relu": _recurrence(partial(_rnn_step, act="relu"), 1),
    "lstm": _recurrence(lstm_step, 2),
    "gru_reset_after": _recurrence(gru_after_step, 1),
    "gru_reset_before": _recurrence(gru_before_step, 1),
}
