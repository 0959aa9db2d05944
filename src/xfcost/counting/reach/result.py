"""How far information travels: of each block, how many input tokens can influence a token."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from xfcost.counting.reach.reached import DependenceSets
from xfcost.formulas.grid_axes import numbers
from xfcost.ledger import notebook
from xfcost.ledger.errors import UsageError, shown
from xfcost.ledger.grid import Grid, sides_text
from xfcost.ledger.units import number_of


class InputGrid(msgspec.Struct, frozen=True, kw_only=True):
    """One input and its units."""

    name: str
    sides: tuple[int, ...]
    unit: Literal["token", "pixel"]
    read: int
    """Units that the stem reads; a convolution without padding may leave out the last ones."""

    @property
    def units(self) -> int:
        """Number of units."""
        return prod(self.sides)


class Met(msgspec.Struct, frozen=True, kw_only=True):
    """Of how many units of one input the tokens of a block can be influenced."""

    input: str
    """`input`, or `encoder`, `decoder`."""
    units: int
    """All units of that input."""
    smallest: int
    median: float
    largest: int
    whole: bool
    """Has every token met all: every other, or in a causal stream every earlier one?"""

    @property
    def share(self) -> float:
        """The median's share of all units."""
        return self.median / self.units


class BlockReach(msgspec.Struct, frozen=True, kw_only=True):
    """What the tokens have met after one step: the stem, a stage's entry, or a block."""

    path: str
    group: str
    """The stage, or what else it is in: neighbours of one group are numbered."""
    part: str
    """What it is there: `stem`, `enter`, `block 3`."""
    kinds: tuple[str, ...]
    """What mixes in it; where nothing does, what it is made of."""
    stream: str
    number: int | None
    """The number of the block in its stream, from 1; None of a stem and of a stage's entry."""
    tokens: int
    """Tokens that leave it, with special tokens."""
    sequential: int
    """The most steps that one of its layers takes one after the other: 1, or the tokens of a recurrence."""
    met: tuple[Met, ...] = ()
    """Of each input that has reached it; the stream's own first."""

    @property
    def label(self) -> str:
        """`stage 1 · block 3`."""
        return f"{self.group} · {self.part}" if self.group else self.part

    @property
    def whole(self) -> bool:
        """Has every token met every other, of all inputs?"""
        return all(one.whole for one in self.met)


class Map(msgspec.Struct, frozen=True, kw_only=True):
    """When one token of a stream is first influenced by each unit of an input."""

    stream: str
    input: str
    token: tuple[int, ...]
    """The place of the token, in units of its own stream's input."""
    first: np.ndarray
    """Of each unit, in raster order: 0 the token's own; k, it first influences the token after the k-th of
    `Reach.steps`; -1, it never does."""


class Reach(notebook.Reported, msgspec.Struct, frozen=True, kw_only=True):
    """How far information travels in one system."""

    name: str
    inputs: tuple[InputGrid, ...]
    maps: tuple[Map, ...]
    steps: tuple[BlockReach, ...]
    """The stem where it mixes, the entries of stages, and the blocks, in the order in which they run."""
    causal_streams: tuple[str, ...]
    """The streams whose mixing layers read no later token."""
    receptive_field: tuple[int, ...] | None = None
    """Sides of the last block's receptive field where no border cuts it off; None where it isn't the same anywhere."""
    notes: tuple[str, ...] = ()

    @property
    def causal(self) -> bool:
        """Does every mixing layer of the last stream read no later token?"""
        return self.is_causal(self.steps[-1].stream)

    def is_causal(self, stream: str) -> bool:
        """Does no mixing layer of the stream read later tokens?"""
        return stream in self.causal_streams

    @property
    def blocks(self) -> tuple[BlockReach, ...]:
        """Only the blocks of the last stream."""
        return tuple(step for step in self.steps if step.number is not None and step.stream == self.steps[-1].stream)

    @property
    def path_length(self) -> int | None:
        """The number of the block of the last stream at which every token has met every other; None if never.

        0 where it has before the first block. Of an encoder-decoder: of both inputs.
        """
        return self.path_length_of(self.steps[-1].stream)

    def path_length_of(self, stream: str) -> int | None:
        """The same of any stream, of all inputs that reach it."""
        number = 0
        steps = [step for step in self.steps if step.stream == stream]
        for step in steps:
            number = step.number or number
            if step.whole and len(step.met) == len(steps[-1].met):
                return number
        return None

    @property
    def sequential(self) -> int:
        """The most steps that one layer takes one after the other."""
        return max((step.sequential for step in self.steps), default=1)

    def input_of(self, stream: str) -> InputGrid:
        """The stream's own input."""
        return next(one for one in self.inputs if one.name == stream)

    def __repr__(self) -> str:
        return notebook.line(self, f"{self.name}: {number_of(len(self.steps), 'step')}")


# ── the result of steps, and of what the tokens have met after each of them ──


class ReachStep(NamedTuple):
    """A stem, a stage's entry or a block, and what the tokens that leave it have met."""

    block: BlockReach
    """Without its `met`."""
    grid: Grid
    states: Mapping[str, DependenceSets]
    """Of each input that has reached it."""


def reach_of(
    name: str, inputs: Mapping[str, InputGrid], steps: Iterable[ReachStep], causal: Sequence[str], last: str,
    token: Sequence[int] | None,
) -> Reach:  # fmt: skip
    """The result of steps in the order in which they run, with maps of the middle token of every stream.

    Args:
        name: of the system.
        inputs: by name; those of a stream are there before its first step.
        steps: taken one by one, so that no more sets are alive than needed.
        causal: the streams in which a token meets no later one.
        last: the stream whose map is of `token`.
        token: the place, in units of its input; the middle by default.

    Raises:
        UsageError: there is no such place.
    """
    blocks: list[BlockReach] = []
    tokens: dict[str, tuple[int, ...]] = {}
    first: dict[tuple[str, str], np.ndarray] = {}
    for block, grid, states in steps:
        stream, own = block.stream, inputs[block.stream]
        if stream not in tokens:
            given = token if stream == last else None
            tokens[stream] = _checked_token([side // 2 for side in own.sides] if given is None else given, own)
            first[stream, stream] = np.full(own.units, -1)
            first[stream, stream][token_at(tokens[stream], own.sides, Grid(own.sides))] = 0
        here = token_at(tokens[stream], own.sides, grid)
        met = []
        for each in sorted(states, key=lambda each: each != stream):
            met.append(_met(inputs[each], states[each], causal=each == stream in causal))
            found = first.setdefault((stream, each), np.full(inputs[each].units, -1))
            if (found < 0).any():
                found[(found < 0) & states[each].row(here)] = len(blocks) + 1
        blocks.append(msgspec.structs.replace(block, met=tuple(met)))
    maps = (Map(stream=one, input=each, token=tokens[one], first=found) for (one, each), found in first.items())
    return Reach(
        name=name, inputs=tuple(inputs.values()), maps=tuple(maps), steps=tuple(blocks), causal_streams=tuple(causal)
    )


def _met(grid: InputGrid, state: DependenceSets, *, causal: bool) -> Met:
    units, counts = grid.units, state.counts()
    whole = bool((counts == grid.read).all())
    if causal and len(counts) == units and not whole:  # of each two tokens, the later one has met the earlier
        whole = int(counts.sum()) - state.own() == units * (units - 1) // 2
    smallest, median, largest = int(counts.min()), float(np.median(counts)), int(counts.max())
    return Met(input=grid.name, units=units, smallest=smallest, median=median, largest=largest, whole=whole)


def token_at(token: Sequence[int], sides: Sequence[int], grid: Grid) -> int:
    """The number of the token of `grid` at a place of the input's units; of another number of axes, in proportion."""
    units = prod(sides)
    if len(grid.sides) == len(sides):
        places = [place * here // side for place, here, side in zip(token, grid.sides, sides, strict=True)]
        number = numbers([[place] for place in places], grid.sides)[0]
    else:
        number = numbers([[place] for place in token], sides)[0] * grid.tokens // units
    return int(grid.special + number)


def _checked_token(token: Sequence[int], grid: InputGrid) -> tuple[int, ...]:
    """The place of a unit.

    Raises:
        UsageError: it is outside the grid, or has another number of axes.
    """
    text, sides = ",".join(map(shown, token)), grid.sides
    if len(token) != len(sides):
        example = ",".join(str(side // 2) for side in sides)
        raise UsageError(
            f"--token {text}: the grid of {grid.unit}s is {sides_text(sides)}; expected "
            f"{'one number' if len(sides) == 1 else f'{len(sides)} numbers'}, as in --token {example}"
        )
    if any(not 0 <= place < side for place, side in zip(token, sides, strict=True)):
        first, last = ",".join("0" * len(sides)), ",".join(str(side - 1) for side in sides)
        raise UsageError(
            f"--token {text}: outside the grid of {sides_text(sides)} {grid.unit}s; expected {first} to {last}"
        )
    return tuple(token)
