"""A spec with every size known: components at their places, in the order in which they run.

`placement` makes it, `counting` counts its rows, `torch_models` builds its modules. The order of blocks is stored as
short as the spec writes it: a depth of 100,000 is one number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from xfcost.formulas.component import Component, Enter, Head, Joining, Mixer, Place
from xfcost.ledger.execution import Execution, Logits, Mode
from xfcost.ledger.grid import Grid
from xfcost.ledger.lora import Lora
from xfcost.ledger.quantization import WeightFormat
from xfcost.ledger.stored import StoredWeights
from xfcost.spec.grammar import AnyInput, Group, Spec, StageSpec
from xfcost.spec.reader import Source, YamlPath

State = TypeVar("State", bound=Hashable)


THINNED: Final = 3
"""Of more repetitions of a block three are run: its neighbours on both sides decide what the outer two save."""


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

    def thinned(self) -> Iterator[tuple[int, int]]:
        """Block numbers, and how many blocks each stands for: the first repetition, one of those between, the last."""
        for stands_for in (1,) * self.times if self.times <= THINNED else (1, self.times - 2, 1):
            for item in self.items:
                for number, inner in ((item, 1),) if isinstance(item, int) else item.thinned():
                    yield number, inner * stands_for

    def mapped(self, state: State, step: Callable[[int, State], tuple[int, State]]) -> tuple[BlockOrder, State]:
        """The order of the numbers that `step(number, state)` returns, and the state after the last one.

        `step` is a pure function: a repetition that begins in the state of an earlier one is not run again.
        """
        rounds: list[tuple[int | BlockOrder, ...]] = []
        rounds_by_state: dict[State, int] = {}
        while len(rounds) < self.times and state not in rounds_by_state:
            rounds_by_state[state] = len(rounds)
            items: list[int | BlockOrder] = []
            for item in self.items:
                mapped_item, state = step(item, state) if isinstance(item, int) else item.mapped(state, step)
                items.append(mapped_item)
            rounds.append(tuple(items))
        if len(rounds) == self.times:
            return _joined(rounds), state
        first = rounds_by_state[state]
        cycle = rounds[first:]
        cycles, rest = divmod(self.times - first, len(cycle))
        repeated = BlockOrder(_joined(cycle).items, cycles)
        order = BlockOrder((*_joined(rounds[:first]).items, repeated, *_joined(cycle[:rest]).items))
        return order, list(rounds_by_state)[first + rest]


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


# Modes that read a prompt to predict the next token: by default they compute the logits of its last position.
PROMPTED: Final[tuple[Mode, ...]] = ("prefill", "generate")


class Part(NamedTuple):
    """A component at its place."""

    path: str
    component: Component
    place: Place
    residual: Joining = "none"


class LabelledPart(NamedTuple):
    """A part, the labels that reports group its rows by, and how often it is repeated."""

    part: Part
    stage: str
    block: str
    """The labels of its stage and block."""
    times: int = 1
    in_block: bool = False
    """Is it in a block, and not in a stem, stage entry or head?"""
    idle: bool = False
    """Does it belong to a stream that does not run?"""
    cached: int = 0
    """First tokens that it does not run on, because they are cached."""


class Block(msgspec.Struct, frozen=True):
    """A list of sub-layers, repeated `times` times."""

    path: str
    label: str
    parts: tuple[Part, ...]
    times: int


class Stage(msgspec.Struct, frozen=True):
    """Blocks at one width, and the order in which they run."""

    path: str
    label: str
    dim: int
    grid: Grid
    enter: tuple[Part, ...]
    blocks: tuple[Block, ...]
    order: BlockOrder
    exit: Part | None = None
    """The layer that joins the two streams of a reversible stage."""

    @property
    def leaves(self) -> tuple[Grid, int]:
        """The grid and the width that leave it."""
        backwards = (part for index in self.order.backwards() for part in reversed(self.blocks[index].parts))
        last = self.exit or next(backwards, None)
        if last is None:  # only layers that change special tokens, and these are left out
            return self.grid, self.dim
        return last.component.out(last.place)


class Stream(msgspec.Struct, frozen=True):
    """Embedding layers and stages: the whole model, or an encoder, or a decoder."""

    path: str
    input: AnyInput
    embed: tuple[Part, ...]
    stages: tuple[Stage, ...]

    @property
    def name(self) -> str | None:
        """`encoder` or `decoder`; None of a model that is one stream."""
        return self.path.rstrip(".") or None

    def parts(self) -> Iterator[Part]:
        """Every part once, in the order in which each first runs, without the ends of reversible stages."""
        yield from self.embed
        for stage in self.stages:
            yield from stage.enter
            for block in stage.blocks:
                yield from block.parts

    def labelled_parts(self) -> Iterator[LabelledPart]:
        """Every part once, stage by stage, with its labels."""
        stem = f"{self.name} embed" if self.name else "embed"
        for part in self.embed:
            yield LabelledPart(part, stem, stem)
        for stage in self.stages:
            for part in stage.enter:
                yield LabelledPart(part, stage.label, f"{stage.label} · enter")
            for block in stage.blocks:
                for part in block.parts:
                    label = f"{stage.label} · {block.label}"
                    yield LabelledPart(part, stage.label, label, block.times, in_block=True)
            if stage.exit:
                yield LabelledPart(stage.exit, stage.label, f"{stage.label} · exit")

    @property
    def grid(self) -> Grid:
        """The grid whose tokens N counts, with special tokens: the first stage's, or the one that its entry pools."""
        first = self.stages[0]
        pooled = (part.place.grid for part in first.enter if isinstance(part.component, Enter) and part.component.pools)
        return next(pooled, first.grid)


class Architecture(msgspec.Struct, frozen=True):
    """A spec with every size known."""

    spec: Spec
    source: str
    streams: tuple[Stream, ...]
    head: Part | None
    tables: dict[str, tuple[int, int]]
    """Shared tables: name -> (rows, columns)."""
    bound_tables: frozenset[str]
    """The shared tables whose shapes depend on the input size."""
    batch: int
    dtype: str
    attention: Execution
    default_note: str | None = None
    """Why dtype and attention are what they are, where the caller gave none."""
    dtype_note: str | None = None
    """The same of the dtype only, for a system without attention."""
    mode: Mode = "forward"
    cached_prefix: int = 0
    """First tokens of the prompt that are cached, and not computed."""
    weight_format: WeightFormat | None = None
    """The quantised format of weights and that of the cache (`ledger.quantization`); None: the dtype."""
    cache_format: str | None = None
    checkpoint: StoredWeights | None = None
    """The tensors of the checkpoint that was named."""
    warnings: tuple[str, ...] = ()
    positions: int | None = None
    """The positions that a language model states; None of models without them."""
    lora: Lora | None = None
    """The adapters of its linear maps, all other weights being frozen."""
    memory_level: int | None = None
    """Bytes of on-chip memory that attention is tiled for."""
    settings: tuple[str, ...] = ()
    """The `--set` options."""
    own_size: bool = True
    """Is the input as large as the spec says?"""
    as_written: bool = True
    """Is it one forward of the unchanged spec at its own size with a batch of 1, as published figures mean it?"""

    def parts(self) -> Iterator[LabelledPart]:
        """Every part once, in the order in which they run."""
        for stream in self.streams:
            idle = self.mode == "decode" and stream is not self.streams[-1]
            for labelled in stream.labelled_parts():
                yield (
                    labelled._replace(idle=idle, cached=self.cached_prefix) if idle or self.cached_prefix else labelled
                )
        if self.head:
            yield LabelledPart(self.head, "head", "head", cached=self.cached_prefix)

    @property
    def logits(self) -> Logits | None:
        """The positions whose logits are computed; None where no head predicts the next token."""
        head = self.head
        predicts = head is not None and isinstance(head.component, Head) and head.component.predicts_next
        return head.place.logits if head is not None and predicts else None

    @property
    def running(self) -> tuple[Stream, ...]:
        """The streams that run: in a decode step of an encoder-decoder the decoder alone, else all."""
        return self.streams[-1:] if self.mode == "decode" else self.streams

    @property
    def grid(self) -> Grid:
        """The grid whose tokens N counts, with its special tokens."""
        return self.streams[0].grid
