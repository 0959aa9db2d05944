"""In which order the blocks of a stage run, stored as short as the spec writes it: a depth of 100,000 is one number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from typing import Any, TypeVar

State = TypeVar("State", bound=Hashable)


class BlockOrder:
    """Block numbers and nested orders, one after another; all of it repeated `times` times."""

    __slots__ = ("_length", "items", "times")

    def __init__(self, items: tuple[int | BlockOrder, ...], times: int = 1) -> None:
        self.items = items
        self.times = times
        self._length = times * sum(1 if isinstance(item, int) else len(item) for item in items)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[int]:
        for _ in range(self.times if self.items else 0):
            for item in self.items:
                if isinstance(item, int):
                    yield item
                else:
                    yield from item

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BlockOrder) and len(self) == len(other) and all(map(int.__eq__, self, other))

    def __hash__(self) -> int:
        return hash(self._length)

    def __repr__(self) -> str:
        return f"BlockOrder({self.items!r}, {self.times})"

    def backwards(self) -> Iterator[int]:
        """The numbers from the last to the first, each repetition once."""
        for item in reversed(self.items if self.times else ()):
            if isinstance(item, int):
                yield item
            else:
                yield from item.backwards()

    def counts(self) -> Counter[int]:
        """Block number -> how many times it runs."""
        counts: Counter[int] = Counter()
        for item in self.items:
            for number, times in ((item, 1),) if isinstance(item, int) else item.counts().items():
                counts[number] += times * self.times
        return counts

    def mapped(self, state: State, step: Callable[[int, State], tuple[int, State]]) -> tuple[BlockOrder, State]:
        """The order of the numbers that `step(number, state)` returns, and the state after the last one.

        `step` is a pure function: a repetition that begins in the state of an earlier one is not run again.
        """
        rounds: list[tuple[int | BlockOrder, ...]] = []
        rounds_by_state: dict[State, int] = {}
        while len(rounds) < self.times and state not in rounds_by_state:
            rounds_by_state[state] = len(rounds)
            mapped_round, state = self._map_once(state, step)
            rounds.append(mapped_round)
        if len(rounds) == self.times:
            return _joined(rounds), state
        first = rounds_by_state[state]
        cycle = rounds[first:]
        cycles, rest = divmod(self.times - first, len(cycle))
        repeated = BlockOrder(_joined(cycle).items, cycles)
        order = BlockOrder((*_joined(rounds[:first]).items, repeated, *_joined(cycle[:rest]).items))
        return order, list(rounds_by_state)[first + rest]

    def _map_once(
        self, state: State, step: Callable[[int, Any], tuple[int, Any]]
    ) -> tuple[tuple[int | BlockOrder, ...], Any]:
        items: list[int | BlockOrder] = []
        for item in self.items:
            mapped_item, state = step(item, state) if isinstance(item, int) else item.mapped(state, step)
            items.append(mapped_item)
        return tuple(items), state


def _joined(rounds: list[tuple[int | BlockOrder, ...]]) -> BlockOrder:
    return BlockOrder(tuple(item for items in rounds for item in items))
