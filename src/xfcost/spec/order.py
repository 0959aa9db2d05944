"""In which order blocks run, written as short as the spec writes it: a depth of 100,000 takes no 100,000 numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from typing import Any, TypeVar

State = TypeVar("State", bound=Hashable)


class Order:
    """Numbers of blocks, and orders inside it, one after another; the whole of it `times` times over."""

    __slots__ = ("_length", "items", "times")

    def __init__(self, items: tuple[int | Order, ...], times: int = 1) -> None:
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
        return isinstance(other, Order) and len(self) == len(other) and all(map(int.__eq__, self, other))

    def __hash__(self) -> int:
        return hash(self._length)

    def __repr__(self) -> str:
        return f"Order({self.items!r}, {self.times})"

    def backwards(self) -> Iterator[int]:
        """The numbers from the last to the first, what is repeated only once."""
        for item in reversed(self.items if self.times else ()):
            if isinstance(item, int):
                yield item
            else:
                yield from item.backwards()

    def counts(self) -> Counter[int]:
        """How often each number stands in it."""
        found: Counter[int] = Counter()
        for item in self.items:
            for number, times in ((item, 1),) if isinstance(item, int) else item.counts().items():
                found[number] += times * self.times
        return found

    def walked(self, state: State, step: Callable[[int, State], tuple[int, State]]) -> tuple[Order, State]:
        """The order of what `step(number, state)` makes of every number, and the state after the last.

        `step` answers the same for the same number and state: a repetition that begins in a state of an earlier one is
        not walked again.
        """
        rounds: list[tuple[int | Order, ...]] = []
        began: dict[State, int] = {}
        states: list[State] = []
        while len(rounds) < self.times and state not in began:
            began[state] = len(rounds)
            states.append(state)
            made, state = self._once(state, step)
            rounds.append(made)
        if len(rounds) == self.times:
            return _joined(rounds), state
        first = began[state]
        circle = rounds[first:]
        whole, rest = divmod(self.times - first, len(circle))
        order = Order(
            (*_joined(rounds[:first]).items, Order(_joined(circle).items, whole), *_joined(circle[:rest]).items)
        )
        return order, states[first + rest]

    def _once(self, state: State, step: Callable[[int, Any], tuple[int, Any]]) -> tuple[tuple[int | Order, ...], Any]:
        made: list[int | Order] = []
        for item in self.items:
            one, state = step(item, state) if isinstance(item, int) else item.walked(state, step)
            made.append(one)
        return tuple(made), state


def _joined(rounds: list[tuple[int | Order, ...]]) -> Order:
    return Order(tuple(item for round_ in rounds for item in round_))
