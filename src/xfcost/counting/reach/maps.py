"""When one token is first influenced by each unit of the inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

import numpy as np

from xfcost.counting.reach.result import InputGrid, Map
from xfcost.counting.reach.walk import Step
from xfcost.formulas.raster import numbers
from xfcost.ledger.errors import UsageError, shown
from xfcost.ledger.grid import Grid, sides_text


class Drawn:
    """Collects the maps of one token of every stream: the middle one; of the last stream the one that is asked for."""

    def __init__(self, inputs: Mapping[str, InputGrid], last: str, token: Sequence[int] | None) -> None:
        self.inputs, self.last, self.token = inputs, last, token
        self.tokens: dict[str, tuple[int, ...]] = {}
        self.first: dict[tuple[str, str], np.ndarray] = {}

    def add(self, step: Step, number: int) -> None:
        """Note the units that have reached the stream's token at the end of the step, the `number`-th.

        Raises:
            UsageError: there is no such token.
        """
        stream = step.stream
        if stream not in self.tokens:
            self._start(stream)
        here = token_at(self.tokens[stream], self.inputs[stream].sides, step.grid)
        for name, state in step.states.items():
            first = self.first.setdefault((stream, name), np.full(self.inputs[name].units, -1))
            if (first < 0).any():
                first[(first < 0) & state.row(here)] = number

    def _start(self, stream: str) -> None:
        sides = self.inputs[stream].sides
        given = self.token if stream == self.last else None
        token = tuple(side // 2 for side in sides) if given is None else checked_token(given, self.inputs[stream])
        self.tokens[stream] = token
        first = np.full(self.inputs[stream].units, -1)
        first[numbers([[place] for place in token], sides)] = 0
        self.first[stream, stream] = first

    def maps(self) -> Iterator[Map]:
        """A map per stream and input."""
        for (stream, name), first in self.first.items():
            yield Map(stream=stream, input=name, token=self.tokens[stream], first=first)


def token_at(token: Sequence[int], sides: Sequence[int], grid: Grid) -> int:
    """The number of the token of `grid` at a place of the input's units; of another number of axes, in proportion."""
    units = prod(sides)
    if len(grid.sides) == len(sides):
        places = [place * here // side for place, here, side in zip(token, grid.sides, sides, strict=True)]
        number = numbers([[place] for place in places], grid.sides)[0]
    else:
        number = numbers([[place] for place in token], sides)[0] * grid.tokens // units
    return int(grid.special + number)


def checked_token(token: Sequence[int], grid: InputGrid) -> tuple[int, ...]:
    """The place of a unit.

    Raises:
        UsageError: it is outside the grid, or has another number of axes.
    """
    text, sides = ",".join(map(shown, token)), grid.sides
    if len(token) != len(sides):
        example = ",".join(str(side // 2) for side in sides)
        raise UsageError(
            f"--token {text}: the {grid.unit}s stand on {sides_text(sides)}; expected "
            f"{'one number' if len(sides) == 1 else f'{len(sides)} numbers'}, as in --token {example}"
        )
    if any(not 0 <= place < side for place, side in zip(token, sides, strict=True)):
        first, last = ",".join("0" * len(sides)), ",".join(str(side - 1) for side in sides)
        raise UsageError(
            f"--token {text}: outside the grid of {sides_text(sides)} {grid.unit}s; expected {first} to {last}"
        )
    return tuple(token)
