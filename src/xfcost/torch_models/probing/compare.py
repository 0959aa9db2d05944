"""Compares a component's rows at a small and a larger place with the readings of its leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from xfcost.formulas.component import Component, Place
from xfcost.formulas.layer import Embed, Enter, Head
from xfcost.ledger.operation import Operation
from xfcost.ledger.probe import Mixes, ProbedRow
from xfcost.torch_models.probing.calls import Call, prepared, tensors
from xfcost.torch_models.probing.hints import Hints, hints_for
from xfcost.torch_models.probing.run import Beforehand, LabelledRun, Reading, kind_of_rows
from xfcost.torch_models.running.by_row import row_path
from xfcost.torch_models.shared.private_torch import pytree

# ── probes each operation of a running module: its readings, and whether its weights are fixed ──


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


# ── compares a component's rows at a small and a larger place with the readings of its leaves ──


Pair = tuple[Place, Place]
_CUT_OFF: Final = "no grid that is small enough has room for the component's pattern"


class Readings(NamedTuple):
    """The reading of each leaf by row name, at the small and at the larger place."""

    small: Mapping[str, Reading]
    large: Mapping[str, Reading]


def example(place: Place) -> tuple[Tensor, ...]:
    """Inputs of zeros: x, and the memory if there is one."""
    shapes = [(1, place.grid.total, place.dim)]
    if place.memory:
        shapes.append((1, place.memory.total, place.memory_dim))
    return tuple(torch.zeros(shape, dtype=torch.float64) for shape in shapes)


def readings(module: nn.Module, inputs: tuple[Any, ...], component: Component, place: Place) -> dict[str, Reading]:
    """The readings of the leaves of a component's module, by row name."""
    hints = hints_for(component)
    names = {name: row_path(f"it.{name}", {"it": "it"}) for name, _ in module.named_modules() if name}
    own = {name: path.removeprefix("it.") for name, path in names.items() if path}
    positional = hints.given_by_position(component, place)
    found = probe_rows(
        module,
        inputs,
        positional=frozenset(name for name, row in own.items() if row in positional),
        states=frozenset(name for name, row in own.items() if row in hints.states),
        apart=hints.apart,
        fresh_weights=hints.fresh_weights,
        rounding=hints.rounding,
        paired=hints.paired,
    )
    return {own[name]: reading for name, reading in found.items()}


def not_probed(row: Operation, reason: str, tokens: tuple[int, ...] = ()) -> ProbedRow:
    """A row as declared, with the reason why its leaf was not compared."""
    declared = Mixes(
        mixing=row.mixing, reads_tokens=row.reads_tokens, content_dependent=row.content_dependent if row.mixes else None
    )
    return ProbedRow(path=row.path, title=row.title, declared=declared, tokens=tokens, reason=reason)


def compared(
    component: Component,
    rows: tuple[Sequence[Operation], Sequence[Operation]],
    seen: Readings,
    places: Pair,
    cut: frozenset[str] = frozenset(),
) -> Iterator[ProbedRow]:
    """Every row beside what its leaf was seen to read, or the reason why nothing was.

    Of the rows `cut`, the places may cut off what they read; where they do, no row that mixes tokens can be judged.
    """
    hints = hints_for(component)
    cut_off = any(one.path in cut and one.reads_tokens != other.reads_tokens for one, other in zip(*rows, strict=True))
    tokens = tuple(place.grid.total for place in places)
    for small, large in zip(*rows, strict=True):
        reason = _reason(component, hints, small, large, seen)
        reason = _CUT_OFF if cut_off and small.mixes else reason
        if reason:
            yield not_probed(large, reason, tokens)
            continue
        declared, found = _declared_and_found(component, hints, (small, large), seen, places)
        yield ProbedRow(path=small.path, title=small.title, declared=declared, found=found, tokens=tokens)


def _reason(component: Component, hints: Hints, small: Operation, large: Operation, seen: Readings) -> str | None:
    """Why a row cannot be compared with its leaf, or None."""
    left_out = hints.left_out(component)
    if small.path in left_out:
        return left_out[small.path]
    if small.path not in seen.small or small.path not in seen.large:
        return "its leaf did not run, or gives no floats"
    if max(small.reads_tokens or 0, large.reads_tokens or 0) == 1:
        return "it reads one token alone here: a softmax of one number is 1"
    return None


def _declared_and_found(
    component: Component, hints: Hints, rows: tuple[Operation, Operation], seen: Readings, places: Pair
) -> tuple[Mixes, Mixes]:
    """The declared and the found values of a row, as far as they are comparable."""
    row = rows[0]
    leaves = (seen.small[row.path], seen.large[row.path])
    kind = kind_of_rows(*leaves)
    if _makes_new_tokens(component, leaves) and (row.mixing, kind) != ("global", "global"):
        kind = "per-token"  # a single new token of all: attention with one query is global, a mean is not mixing
    if row.path in hints.up_to and kind == "global" and leaves[1].number <= (row.reads_tokens or 0):
        kind = "local"  # more tokens, and points that lie further apart: what is declared holds them
    if kind != row.mixing or not row.mixes:
        reads = leaves[1].number if kind != "per-token" else None
        declared = Mixes(mixing=row.mixing, reads_tokens=rows[1].reads_tokens if kind != row.mixing else reads)
        return declared, Mixes(mixing=kind, reads_tokens=reads)
    numbers: list[tuple[int | None, int | None]] = [(None, None)]
    if row.path not in hints.uncounted:
        numbers = [_numbers(component, hints, *each) for each in zip(rows, leaves, places, strict=True)]
    # report the size at which they differ, if any
    expected, found = next((pair for pair in numbers if pair[0] != pair[1]), numbers[-1])
    return (
        Mixes(mixing=row.mixing, reads_tokens=expected, content_dependent=row.content_dependent),
        Mixes(mixing=kind, reads_tokens=found, content_dependent=leaves[1].content_dependent),
    )


def _makes_new_tokens(component: Component, leaves: tuple[Reading, Reading]) -> bool:
    """Does a stage entry or a head make new tokens of disjoint groups, so that no token reads another?"""
    return isinstance(component, Embed | Enter | Head) and all(leaf.disjoint for leaf in leaves)


def _numbers(
    component: Component, hints: Hints, row: Operation, leaf: Reading, place: Place
) -> tuple[int | None, int | None]:
    """The declared number of tokens without masked and border tokens, and the number that the leaf reads."""
    fewer, more = (table[row.path](component, place) if row.path in table else 0 for table in (hints.fewer, hints.more))
    expected = (row.reads_tokens or 0) - fewer + more
    found = leaf.tokens if row.path in hints.in_tokens else leaf.number
    return (min(expected, found) if row.path in hints.at_most | hints.up_to else expected), found
