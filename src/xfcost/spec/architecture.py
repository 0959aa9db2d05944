"""A spec with every size known: components at their places, in the order in which they run.

`placement` makes it, `counting` counts its rows, `torch_models` builds its modules.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from xfcost.formulas.component import Component, Enter, Head, Joining, Place
from xfcost.ledger.execution import Execution, Logits, Mode
from xfcost.ledger.grid import Grid
from xfcost.spec.blocks import BlockOrder
from xfcost.spec.grammar import AnyInput, Spec

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
    """The same of the dtype alone, for a system without attention."""
    mode: Mode = "forward"
    weight_format: str | None = None
    """The quantised format of weights and that of the cache (`ledger.quantization`); None: the dtype."""
    cache_format: str | None = None
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
                yield labelled._replace(idle=True) if idle else labelled
        if self.head:
            yield LabelledPart(self.head, "head", "head")

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
