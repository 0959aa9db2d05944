"""Recurrences in plain torch. A trace records each as one operation (`xfcost::lstm`, …).

A trace of N steps would be N times as long as a trace of attention. So torch's tracer records one node, and
`running/contractions.py` has its cost, by its shapes. All other runs (autograd, torch's own FLOP counter, the memory
walk, the clock) run the loop below and see each product in it.

B batch, N tokens, G numbers of all gates, H hidden units.
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
