"""Recurrences and scans in plain torch. A trace records each as one operation (`xfcost::lstm`, …).

A trace of N steps would be N times as long as a trace of attention. So torch's tracer records one node, and
`formulas/contractions.py` has its cost, by its shapes. All other runs (autograd, torch's own FLOP counter, the memory
walk, the clock) run the loop below and see each product in it.

B batch, N tokens, G numbers of all gates, H hidden units; E channels, S state size, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional as F

_SHAPES_ALONE: ContextVar[bool] = ContextVar("shapes_alone", default=False)
_LIBRARY: Final = torch.library.Library("xfcost", "DEF")


@contextmanager
def shapes_alone() -> Iterator[None]:
    """On `meta`, a recurrence returns empty tensors of the right shapes, without its steps. A trace needs no more."""
    before = _SHAPES_ALONE.set(True)
    try:
        yield
    finally:
        _SHAPES_ALONE.reset(before)


def asks_shapes_alone(x: Tensor) -> bool:
    """Should a recurrence over `x` return shapes only?"""
    return x.is_meta and _SHAPES_ALONE.get()


# (loop, shapes, arguments) -> output.
Instead = Callable[[Callable[..., Any], Callable[..., Any], tuple[Any, ...]], Any]
_INSTEAD: ContextVar[Instead | None] = ContextVar("instead", default=None)


@contextmanager
def in_few_steps(instead: Instead) -> Iterator[None]:
    """On `meta`, `instead` replaces a recurrence: it runs a few of its equal steps."""
    before = _INSTEAD.set(instead)
    try:
        yield
    finally:
        _INSTEAD.reset(before)


def sequential(signature: str, shapes: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a plain loop as one operation `xfcost::…`; `shapes` returns empty outputs for the same call."""

    def register(loop: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            instead = _INSTEAD.get()
            if instead is not None and args[0].is_meta:
                return instead(loop, shapes, args)
            return (shapes if asks_shapes_alone(args[0]) else loop)(*args)

        name = _LIBRARY.define(signature)
        # composite: autograd and dispatch modes see its parts
        _LIBRARY.impl(name, run, "CompositeImplicitAutograd")
        _LIBRARY.impl(name, run, "FuncTorchBatchedDecomposition")  # so does `torch.vmap`
        return loop

    return register


def in_order(x_BNG: Tensor, *, reverse: bool) -> Iterable[Tensor]:
    """The tokens, (B, G) each, in sequence order or reversed."""
    tokens = x_BNG.unbind(1)
    return reversed(tokens) if reverse else tokens


def stacked(steps: Sequence[Tensor], *, reverse: bool) -> Tensor:
    """The outputs of the steps as tokens: (B, N, H)."""
    return torch.stack(tuple(reversed(steps)) if reverse else tuple(steps), dim=1)


def _first(state_BH: Tensor | None, x_BNG: Tensor, weight_GH: Tensor) -> Tensor:
    return x_BNG.new_zeros(x_BNG.shape[0], weight_GH.shape[1]) if state_BH is None else state_BH


def _hidden(x_BNG: Tensor, weight_GH: Tensor, *_: Any) -> Tensor:
    return x_BNG.new_empty(*x_BNG.shape[:2], weight_GH.shape[1])


def _hidden_and_cells(x_BNG: Tensor, weight_GH: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return _hidden(x_BNG, weight_GH), x_BNG.new_empty(x_BNG.shape[0], weight_GH.shape[1])


_INPUTS: Final = "Tensor x, Tensor weight, Tensor? bias, Tensor? h"


def _rnn(act: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    def loop(x_BNG: Tensor, weight_GH: Tensor, bias_G: Tensor | None, h_BH: Tensor | None, reverse: bool) -> Tensor:
        h_BH, steps = _first(h_BH, x_BNG, weight_GH), []
        for x_BG in in_order(x_BNG, reverse=reverse):
            h_BH = act(x_BG + F.linear(h_BH, weight_GH, bias_G))
            steps.append(h_BH)
        return stacked(steps, reverse=reverse)

    return loop


# two operations, so that a handle needs no activation name
rnn_tanh = sequential(f"rnn_tanh({_INPUTS}, bool reverse) -> Tensor", _hidden)(_rnn(torch.tanh))
rnn_relu = sequential(f"rnn_relu({_INPUTS}, bool reverse) -> Tensor", _hidden)(_rnn(torch.relu))


@sequential(f"lstm({_INPUTS}, Tensor? c, bool reverse) -> (Tensor, Tensor)", _hidden_and_cells)
def lstm(
    x_BNG: Tensor, weight_GH: Tensor, bias_G: Tensor | None, h_BH: Tensor | None, c_BH: Tensor | None, reverse: bool
) -> tuple[Tensor, Tensor]:
    """Gates i, f, g, o in torch's order: (B, N, 4·H) -> (B, N, H) and the last cells (B, H)."""
    h_BH, c_BH = _first(h_BH, x_BNG, weight_GH), _first(c_BH, x_BNG, weight_GH)
    steps = []
    for x_BG in in_order(x_BNG, reverse=reverse):
        i_BH, f_BH, g_BH, o_BH = (x_BG + F.linear(h_BH, weight_GH, bias_G)).chunk(4, dim=-1)
        c_BH = f_BH.sigmoid() * c_BH + i_BH.sigmoid() * g_BH.tanh()
        h_BH = o_BH.sigmoid() * c_BH.tanh()
        steps.append(h_BH)
    return stacked(steps, reverse=reverse), c_BH


@sequential(f"gru_reset_after({_INPUTS}, bool reverse) -> Tensor", _hidden)
def gru_reset_after(
    x_BNG: Tensor, weight_GH: Tensor, bias_G: Tensor | None, h_BH: Tensor | None, reverse: bool
) -> Tensor:
    """Gates r, z, n in torch's order: (B, N, 3·H) -> (B, N, H)."""
    h_BH, steps, width = _first(h_BH, x_BNG, weight_GH), [], weight_GH.shape[1]
    for x_BG in in_order(x_BNG, reverse=reverse):
        mapped_BG = F.linear(h_BH, weight_GH, bias_G)
        gates_BG = (x_BG[:, : 2 * width] + mapped_BG[:, : 2 * width]).sigmoid()
        r_BH, z_BH = gates_BG.chunk(2, dim=-1)
        n_BH = (x_BG[:, 2 * width :] + r_BH * mapped_BG[:, 2 * width :]).tanh()
        h_BH = n_BH + z_BH * (h_BH - n_BH)
        steps.append(h_BH)
    return stacked(steps, reverse=reverse)


@sequential(f"gru_reset_before({_INPUTS}, bool reverse) -> Tensor", _hidden)
def gru_reset_before(
    x_BNG: Tensor, weight_GH: Tensor, bias_G: Tensor | None, h_BH: Tensor | None, reverse: bool
) -> Tensor:
    """The same, but the state is reset before its map: the third gate's product needs the first two gates."""
    h_BH, steps, width = _first(h_BH, x_BNG, weight_GH), [], weight_GH.shape[1]
    parts = (2 * width, width)
    gates_weight, new_weight = weight_GH.split(parts)
    gates_bias, new_bias = (None, None) if bias_G is None else bias_G.split(parts)
    for x_BG in in_order(x_BNG, reverse=reverse):
        gates_BG = (x_BG[:, : 2 * width] + F.linear(h_BH, gates_weight, gates_bias)).sigmoid()
        r_BH, z_BH = gates_BG.chunk(2, dim=-1)
        n_BH = (x_BG[:, 2 * width :] + F.linear(r_BH * h_BH, new_weight, new_bias)).tanh()
        h_BH = n_BH + z_BH * (h_BH - n_BH)
        steps.append(h_BH)
    return stacked(steps, reverse=reverse)


def _like_first(x: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(x)


@sequential("selective_scan(Tensor u, Tensor dt, Tensor a, Tensor b, Tensor c) -> Tensor", _like_first)
def selective_scan(u_BNE: Tensor, dt_BNE: Tensor, a_ES: Tensor, b_BNS: Tensor, c_BNS: Tensor) -> Tensor:
    """h = exp(Δ A)∘h + (Δ u)⊗B, y = C·h for each token (Gu and Dao 2023, algorithm 2): (B, N, E)."""
    state_BES = u_BNE.new_zeros(u_BNE.shape[0], *a_ES.shape)
    steps = []
    inputs = (in_order(part, reverse=False) for part in (dt_BNE, dt_BNE * u_BNE, b_BNS, c_BNS))
    for parts in zip(*inputs, strict=True):
        y_BE, state_BES = selective_step(state_BES, a_ES, *parts)
        steps.append(y_BE)
    return torch.stack(steps, dim=1)


def selective_step(
    state_BES: Tensor, a_ES: Tensor, dt_BE: Tensor, entering_BE: Tensor, b_BS: Tensor, c_BS: Tensor
) -> tuple[Tensor, Tensor]:
    """The output of a token (B, E), and the next state."""
    kept_BES = (dt_BE.unsqueeze(-1) * a_ES).exp()
    state_BES = kept_BES * state_BES + entering_BE.unsqueeze(-1) * b_BS.unsqueeze(1)
    return (state_BES @ c_BS.unsqueeze(-1)).squeeze(-1), state_BES


@sequential("wkv(Tensor k, Tensor v, Tensor w, Tensor u) -> Tensor", _like_first)
def wkv(k_BND: Tensor, v_BND: Tensor, w_D: Tensor, u_D: Tensor) -> Tensor:
    """Σ exp((t-1-j)w + k_j) v_j + exp(u + k_t) v_t over its weights (Peng et al. 2023, equation 16): (B, N, D).

    Numerator and denominator are divided by exp(`top`), the largest exponent so far.
    """
    nothing_BD = torch.zeros_like(k_BND[:, 0])
    state: tuple[Tensor, ...] = (nothing_BD, nothing_BD, torch.full_like(nothing_BD, NOTHING_SEEN))
    steps = []
    for k_BD, v_BD in zip(in_order(k_BND, reverse=False), in_order(v_BND, reverse=False), strict=True):
        y_BD, state = wkv_step(state, k_BD, v_BD, w_D, u_D)
        steps.append(y_BD)
    return torch.stack(steps, dim=1)


# The initial value of the largest exponent.
NOTHING_SEEN: Final = -1e38


def wkv_step(
    state: tuple[Tensor, ...], k_BD: Tensor, v_BD: Tensor, w_D: Tensor, u_D: Tensor
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The output of a token (B, D), and the next numerator, denominator and largest exponent."""
    above_BD, below_BD, top_BD = state
    here_BD = u_D + k_BD
    most_BD = torch.maximum(top_BD, here_BD)
    old_BD, new_BD = (top_BD - most_BD).exp(), (here_BD - most_BD).exp()
    y_BD = (old_BD * above_BD + new_BD * v_BD) / (old_BD * below_BD + new_BD)
    decayed_BD = top_BD + w_D
    top_BD = torch.maximum(decayed_BD, k_BD)
    old_BD, new_BD = (decayed_BD - top_BD).exp(), (k_BD - top_BD).exp()
    return y_BD, (old_BD * above_BD + new_BD * v_BD, old_BD * below_BD + new_BD, top_BD)


def _like_values(_q: Tensor, _k: Tensor, v: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(v)


@sequential("retention(Tensor q, Tensor k, Tensor v, Tensor decay) -> Tensor", _like_values)
def retention(q_BND: Tensor, k_BND: Tensor, v_BNE: Tensor, decay_H: Tensor) -> Tensor:
    """S = γS + kᵀv, qS for each token (Sun et al. 2023, equation 6), heads side by side: (B, N, E)."""
    decay_H11, heads = decay_H.view(-1, 1, 1), len(decay_H)
    state_BHKV = v_BNE.new_zeros(len(v_BNE), heads, q_BND.shape[-1] // heads, v_BNE.shape[-1] // heads)
    steps = []
    heads_of = (in_order(part.unflatten(-1, (heads, -1)), reverse=False) for part in (q_BND, k_BND, v_BNE))
    for parts in zip(*heads_of, strict=True):
        y_BHV, state_BHKV = retention_step(state_BHKV, decay_H11, *parts)
        steps.append(y_BHV.flatten(1))
    return torch.stack(steps, dim=1)


def retention_step(
    state_BHKV: Tensor, decay_H11: Tensor, q_BHK: Tensor, k_BHK: Tensor, v_BHV: Tensor
) -> tuple[Tensor, Tensor]:
    """The output of a token (B, H, V), and the next state."""
    state_BHKV = decay_H11 * state_BHKV + k_BHK.unsqueeze(-1) @ v_BHV.unsqueeze(-2)
    return (q_BHK.unsqueeze(-2) @ state_BHKV).squeeze(-2), state_BHKV


@sequential("decayed_sums(Tensor added, Tensor decay) -> Tensor", _like_first)
def decayed_sums(added_BCS: Tensor, decay_H: Tensor) -> Tensor:
    """S = γS + a chunk's contribution, heads side by side: S before each chunk: (B, C, S)."""
    decay_H1 = decay_H.unsqueeze(-1)
    state_BHK = torch.zeros_like(added_BCS[:, 0]).unflatten(-1, (len(decay_H), -1))
    before = []
    for added_BHK in in_order(added_BCS.unflatten(-1, (len(decay_H), -1)), reverse=False):
        before.append(state_BHK.flatten(1))
        state_BHK = decay_H1 * state_BHK + added_BHK
    return torch.stack(before, dim=1)
