"""Probes each operation of a running module: its readings, and whether its weights are fixed.

`probe_rows` takes any nn.Module whose inputs are (1, N, D). It uses no specs, mechanisms or formulas.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

import torch
from torch import Tensor, nn

from xfcost.torch_models.probing.calls import Call, tensors
from xfcost.torch_models.probing.prepared import prepared
from xfcost.torch_models.probing.reading import Reading
from xfcost.torch_models.probing.run import Beforehand, LabelledRun
from xfcost.torch_models.shared.private_torch import pytree

# What every number that an operation makes is multiplied by, about: no two are then equal.
APART: Final = 1e-3


def probe_rows(  # noqa: PLR0913 - the call, in its parts
    module: nn.Module,
    inputs: tuple[Any, ...],
    *,
    positional: frozenset[str] = frozenset(),
    states: frozenset[str] = frozenset(),
    apart: int = 0,
    fresh_weights: bool = True,
    rounding: float = 0,
    paired: bool = False,
    seed: int = 0,
) -> dict[str, Reading]:
    """The reading of each leaf of `module` that outputs floats, by the leaf's name.

    The module runs in float64 on two samples of noise. Each number of the first is labelled with its token; each leaf
    is then called again with its inputs changed, one label at a time. Indices are not readings: they carry no content.

    Args:
        module: any module; its leaves are its operations.
        inputs: example inputs, nested ones too, (1, N, D) each; tokens are numbered on from one to the next.
        positional: leaves that give weights of keys which they don't read (a bias, weights out of the query alone):
            the keys are numbered by the last axis of what they give, and as many are read.
        states: leaves that give states of what was read before, each for several tokens to read: they are no tokens.
        apart: as many axes after the batch number heads or lists of keys that choose for themselves: each is counted
            for itself.
        fresh_weights: put noise in place of the weights, so that zeros of an initialisation hide nothing.
        rounding: differences up to this part of the largest number are none.
        paired: the tokens of all inputs are the same ones, vectors of one token standing at the same place of each.
        seed: of all noise.

    Raises:
        ValueError: the module is on `meta`.
    """
    noise = torch.Generator().manual_seed(seed)
    module = prepared(module, noise if fresh_weights else None)
    first, second = (
        pytree.tree_map(lambda tensor: torch.randn(tensor.shape, generator=noise, dtype=torch.float64), inputs)
        for _ in range(2)
    )
    others: dict[str, list[Call]] = {}
    _watch(module, second, lambda name, call: others.setdefault(name, []).append(call), lambda answer: answer)
    run = LabelledRun(tensors(first), Beforehand(positional, states, apart, rounding, paired), noise)
    turns = dict.fromkeys(others, 0)

    def look(name: str, call: Call) -> None:
        run.look(name, call, others[name][turns[name]])
        turns[name] += 1

    _watch(module, first, look, lambda answer: pytree.tree_map(lambda value: _apart(value, noise), answer))
    return {name: run.read(name) for name in run.names}


def _watch(
    module: nn.Module, inputs: tuple[Any, ...], see: Callable[[str, Call], None], change: Callable[[Any], Any]
) -> None:
    """Run `module`. `see` gets each call of a leaf; `change` replaces its output."""
    busy: list[nn.Module] = []  # `see` may call the leaf again
    entering: list[tuple[list[Any], Any]] = []
    hooks = ExitStack()
    for name, leaf in module.named_modules():
        if next(leaf.children(), None) is not None:
            continue

        def enter(leaf: nn.Module, args: Any, kwargs: Any) -> None:
            if not busy:  # copied, for some leaves write in place
                entering.append(pytree.tree_flatten(pytree.tree_map(_copied, (args, kwargs))))

        def seen(leaf: nn.Module, args: Any, kwargs: Any, answer: Any, *, name: str = name) -> Any:
            if busy:
                return None
            busy.append(leaf)
            answer = change(answer)
            see(name, Call(leaf, *entering.pop(), tensors(answer)))
            busy.pop()
            return answer

        hooks.enter_context(leaf.register_forward_pre_hook(enter, with_kwargs=True))
        hooks.enter_context(leaf.register_forward_hook(seen, with_kwargs=True))
    with hooks, torch.no_grad():
        module(*inputs)


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def _apart(value: Any, noise: torch.Generator) -> Any:
    """`value` with all numbers different; zeros and infinities are unchanged."""
    if not (isinstance(value, Tensor) and value.is_floating_point()):
        return value
    return value * (1 + APART * torch.rand(value.shape, generator=noise, dtype=value.dtype))
