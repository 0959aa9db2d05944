"""The loops of `program/loops.py` in plain torch. A trace records each as one operation (`xfcost::lstm`, …).

So torch's tracer records one node, and `formulas/contractions.py` has its cost, by its shapes. All other runs
(autograd, torch's own FLOP counter, the memory walk, the clock) run the loop and see each product in it.

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

from xfcost.program.loops import LOOPS

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


class Loops:
    """What the loops call beside methods of tensors."""

    linear_map = staticmethod(F.linear)

    @staticmethod
    def filled(like: Tensor, shape: tuple[int, ...], value: float) -> Tensor:
        return like.new_full(shape, value)

    @classmethod
    def scan(
        cls, step: Callable[..., tuple[Tensor, ...]], parts: Sequence[Tensor], states: Sequence[Tensor], *others: Any,
        reverse: bool = False,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        outputs = []
        for now in zip(*(in_order(part, reverse=reverse) for part in parts), strict=True):
            y, *states = step(cls, *states, *now, *others)
            outputs.append(y)
        outputs = outputs[::-1] if reverse else outputs
        if not isinstance(outputs[0], tuple):
            return torch.stack(outputs, dim=1), *states
        return tuple(torch.stack(each, dim=1) for each in zip(*outputs, strict=True)), *states


def _hidden(x_BNG: Tensor, weight_GH: Tensor, *_: Any) -> Tensor:
    return x_BNG.new_empty(*x_BNG.shape[:2], weight_GH.shape[1])


def _hidden_and_cells(x_BNG: Tensor, weight_GH: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return _hidden(x_BNG, weight_GH), x_BNG.new_empty(x_BNG.shape[0], weight_GH.shape[1])


def _like_first(x: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(x)


def _like_values(_q: Tensor, _k: Tensor, v: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(v)


_CELL: Final = "Tensor x, Tensor weight, Tensor? bias, Tensor? h"
_SIGNATURES: Final[dict[str, tuple[str, Callable[..., Any]]]] = {
    # two operations, so that a handle needs no activation name
    "rnn_tanh": (f"({_CELL}, bool reverse) -> Tensor", _hidden),
    "rnn_relu": (f"({_CELL}, bool reverse) -> Tensor", _hidden),
    "lstm": (f"({_CELL}, Tensor? c, bool reverse) -> (Tensor, Tensor)", _hidden_and_cells),
    "gru_reset_after": (f"({_CELL}, bool reverse) -> Tensor", _hidden),
    "gru_reset_before": (f"({_CELL}, bool reverse) -> Tensor", _hidden),
    "selective_scan": ("(Tensor u, Tensor dt, Tensor a, Tensor b, Tensor c) -> Tensor", _like_first),
    "wkv": ("(Tensor k, Tensor v, Tensor w, Tensor u) -> Tensor", _like_first),
    "retention": ("(Tensor q, Tensor k, Tensor v, Tensor decay) -> Tensor", _like_values),
    "decayed_sums": ("(Tensor added, Tensor decay) -> Tensor", _like_first),
}


def _plain(name: str) -> Callable[..., Any]:
    def loop(*args: Any) -> Any:
        return LOOPS[name](Loops, *args)

    loop.__name__ = name
    return loop


# The loops on torch's tensors, by the names of their operations.
PLAIN: Final[dict[str, Callable[..., Any]]] = {
    name: sequential(f"{name}{signature}", shapes)(_plain(name)) for name, (signature, shapes) in _SIGNATURES.items()
}


# ── weights as their authors draw them ──


def cell_weights(units: int, shape: tuple[int, ...]) -> Tensor:
    """Weights of a cell of H hidden units, as torch.nn draws them."""
    return torch.empty(shape).uniform_(-(units**-0.5), units**-0.5)
