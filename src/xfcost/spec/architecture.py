"""A spec with every size known: components at their places, in the order they run. `walk` makes it.

`counted` asks each component for its rows, `live` builds each component's module.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from xfcost.formulas.component import Component, Joining, Place
from xfcost.formulas.layer import Enter, Head
from xfcost.ledger.grid import Grid
from xfcost.ledger.options import Execution, Logits, Mode
from xfcost.spec.grammar import AnyInput, Spec
from xfcost.spec.order import Order

# Modes that take in a prompt, after which one token is wanted: by default they compute its last position's logits.
PROMPTED: Final[tuple[Mode, ...]] = ("prefill", "generate")


class Part(NamedTuple):
    """A component at its place."""

    path: str
    component: Component
    place: Place
    residual: Joining = "none"


class StandingPart(NamedTuple):
    """A part, where a report groups its rows, and how often it stands."""

    part: Part
    stage: str
    block: str
    """The labels of its stage and block."""
    times: int = 1
    in_block: bool = False
    """Does it stand in a block, and not at a stem, stage entry or head?"""
    idle: bool = False
    """Does it belong to a stream that does not run?"""


class Block(NamedTuple):
    """A list of sub-layers that stands `times` times."""

    path: str
    label: str
    parts: tuple[Part, ...]
    times: int


class Stage(NamedTuple):
    """Blocks at one width; `order` says which of them runs when."""

    path: str
    label: str
    dim: int
    grid: Grid
    enter: tuple[Part, ...]
    blocks: tuple[Block, ...]
    order: Order
    exit: Part | None = None
    """Where the two streams of a reversible stage become one."""

    @property
    def leaves(self) -> tuple[Grid, int]:
        """The grid and the width that leave it."""
        inside = (part for index in self.order.backwards() for part in reversed(self.blocks[index].parts))
        last = self.exit or next(inside, None)
        if last is None:  # nothing but work on extra tokens, where those are left out
            return self.grid, self.dim
        return last.component.out(last.place)


class Stream(NamedTuple):
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
        """Every part once, in the order in which each first runs; the ends of reversible stages have nothing of it."""
        yield from self.embed
        for stage in self.stages:
            yield from stage.enter
            for block in stage.blocks:
                yield from block.parts

    def standing(self) -> Iterator[StandingPart]:
        """Every part once, stage by stage, with the labels that reports group rows by."""
        stem = f"{self.name} embed" if self.name else "embed"
        for part in self.embed:
            yield StandingPart(part, stem, stem)
        for stage in self.stages:
            for part in stage.enter:
                yield StandingPart(part, stage.label, f"{stage.label} · enter")
            for block in stage.blocks:
                for part in block.parts:
                    label = f"{stage.label} · {block.label}"
                    yield StandingPart(part, stage.label, label, block.times, in_block=True)
            if stage.exit:
                yield StandingPart(stage.exit, stage.label, f"{stage.label} · exit")

    @property
    def grid(self) -> Grid:
        """The tokens that N counts, extra ones included: the first stage's, or those that its entry pools."""
        first = self.stages[0]
        pooled = (part.place.grid for part in first.enter if isinstance(part.component, Enter) and part.component.pools)
        return next(pooled, first.grid)


class Architecture(NamedTuple):
    """A spec with every size known."""

    spec: Spec
    source: str
    streams: tuple[Stream, ...]
    head: Part | None
    tables: dict[str, tuple[int, int]]
    """Shared tables: name -> (rows, columns)."""
    bound_tables: frozenset[str]
    """Those of them whose shapes are bound to the input's size."""
    batch: int
    dtype: str
    attention: Execution
    mode: Mode = "forward"
    memory_level: int | None = None
    """Bytes of on-chip memory that attention would be tiled for."""
    settings: tuple[str, ...] = ()
    """What `--set` changed."""
    own_size: bool = True
    """Is the input as large as the spec says?"""
    as_written: bool = True
    """Is it one forward of the spec at its own size and a batch of 1, as its published figures mean it?"""

    def parts(self) -> Iterator[StandingPart]:
        """Every part once, in the order it runs."""
        for stream in self.streams:
            runs = self.mode != "decode" or stream is self.streams[-1]
            yield from stream.standing() if runs else (one._replace(idle=True) for one in stream.standing())
        if self.head:
            yield StandingPart(self.head, "head", "head")

    @property
    def logits(self) -> Logits | None:
        """The positions whose logits are computed; None where no head predicts the next token."""
        head = self.head
        predicts = head is not None and isinstance(head.component, Head) and head.component.predicts_next
        return head.place.logits if head is not None and predicts else None

    @property
    def running(self) -> tuple[Stream, ...]:
        """The streams that run: all of them, but of a decoding encoder-decoder the decoder alone."""
        return self.streams[-1:] if self.mode == "decode" else self.streams

    @property
    def grid(self) -> Grid:
        """The tokens that N counts, extra ones included."""
        return self.streams[0].grid
