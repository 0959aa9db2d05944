"""The blocks of a stage as they are written, and the order in which they run.

The order is stored as short as the spec writes it: a depth of 100,000 is one number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Final, TypeVar

from xfcost.formulas.component import Mixer
from xfcost.spec.grammar import Group, StageSpec
from xfcost.spec.reader import Source, YamlPath

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


MOST_BLOCKS: Final = 100_000

Written = list[tuple[YamlPath, list[Any]]]
"""Blocks as they are written: the path and the sub-layers of each."""


def schedule(path: YamlPath, stage: StageSpec, source: Source) -> tuple[Written, BlockOrder]:
    """The blocks as written, and their order.

    Raises:
        SpecError: the stage gives its blocks in no way, or in two.
    """
    given = [name for name in ("block", "pattern", "blocks") if getattr(stage, name) is not None]
    if len(given) != 1:
        got = " and ".join(f"`{name}`" for name in given) or "none"
        raise source.error(path, f"expected one of `block`, `pattern` or `blocks`, got {got}")
    if stage.blocks is not None:
        if stage.depth is not None:
            raise source.error((*path, "depth"), "`blocks` already sets the number of blocks; leave `depth` out")
        return _nested((*path, "blocks"), stage.blocks, source)
    if stage.depth is None:
        raise source.error(path, f"the key 'depth' is missing: the number of blocks of `{given[0]}`")
    if stage.block is not None:
        return [((*path, "block"), stage.block)], BlockOrder((0,), stage.depth)
    pattern = (stage.pattern or [])[: stage.depth]
    written: Written = [((*path, "pattern", number), block) for number, block in enumerate(pattern)]
    numbers = tuple(range(len(pattern)))
    whole, rest = divmod(stage.depth, len(pattern))
    return written, BlockOrder((BlockOrder(numbers, whole), *numbers[:rest]))


def widens(path: YamlPath, stage: StageSpec, source: Source) -> bool:
    """Does a sub-layer of the stage widen its tokens, so that the stage's `enter` need not?"""
    return any(component.widens for _, block in schedule(path, stage, source)[0] for component in block)


def _nested(path: YamlPath, blocks: list[Any], source: Source, first: int = 0) -> tuple[Written, BlockOrder]:
    """The blocks of nested groups, numbered from `first`."""
    written: Written = []
    items: list[int | BlockOrder] = []
    length = 0
    for number, item in enumerate(blocks):
        item_path = (*path, number)
        if isinstance(item, Group):
            inner, order = _nested((*item_path, "blocks"), item.blocks, source, first + len(written))
            items.append(BlockOrder(order.items, item.repeat))
            written += inner
        else:
            items.append(first + len(written))
            written.append((item_path, item))
        length += 1 if isinstance(items[-1], int) else len(items[-1])
        if length > MOST_BLOCKS:
            wrong = (*item_path, "repeat") if isinstance(item, Group) else item_path
            raise source.error(wrong, f"makes more than {MOST_BLOCKS:,} blocks in one stage")
    return written, BlockOrder(tuple(items))


def labels(written: Written) -> list[str]:
    """A short name per block: its mixers', numbered where two blocks have the same name."""
    names = [
        " + ".join(component.label() for component in block if isinstance(component, Mixer)) or "no mixer"
        for _, block in written
    ]
    totals, numbers = Counter(names), Counter[str]()
    result = []
    for name in names:
        numbers[name] += 1
        result.append(name if totals[name] == 1 else f"{name} #{numbers[name]}")
    return result
