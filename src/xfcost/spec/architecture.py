"""The walk: a checked spec becomes an `Architecture`, in which every page stands at its place (grid, width, memory).

Both accounts start here: `counted` asks each page for its rows, `live` builds each page's twin.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import msgspec

from xfcost.errors import PageError, UsageError
from xfcost.grid import Grid, image_sides
from xfcost.mechanisms.base import Mixer, Page, Place, Residual
from xfcost.spec.grammar import Group, ImageInput, Spec, StageSpec, StreamSpec, TokenInput
from xfcost.spec.load import Loaded
from xfcost.spec.reader import Source, YamlPath

MOST_BLOCKS = 100_000


class Part(NamedTuple):
    """A page at its place."""

    path: str
    page: Page
    place: Place
    residual: Residual | Literal["none"] = "none"


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
    order: tuple[int, ...]


class Stream(NamedTuple):
    """A door and its stages: the whole model, or an encoder, or a decoder."""

    path: str
    input: ImageInput | TokenInput
    embed: tuple[Part, ...]
    stages: tuple[Stage, ...]


class Architecture(NamedTuple):
    """A spec with every size known."""

    spec: Spec
    source: str
    streams: tuple[Stream, ...]
    head: Part | None
    tables: dict[str, tuple[int, int]]
    """Shared tables: name -> (rows, columns)."""
    batch: int
    dtype: str
    attention: Literal["eager", "fused"]

    def parts(self) -> Iterator[tuple[Part, str, str, int]]:
        """Every part once, in the order it runs: (part, stage label, block label, times)."""
        for stream in self.streams:
            door = f"{stream.path[:-1]} embed" if stream.path else "embed"
            for part in stream.embed:
                yield part, door, door, 1
            for stage in stream.stages:
                for part in stage.enter:
                    yield part, stage.label, f"{stage.label} · enter", 1
                for block in stage.blocks:
                    for part in block.parts:
                        yield part, stage.label, f"{stage.label} · {block.label}", block.times
        if self.head:
            yield self.head, "head", "head", 1

    @property
    def grid(self) -> Grid:
        """The tokens of the first stage, extra ones included."""
        return self.streams[0].stages[0].grid


class Run(NamedTuple):
    """What is asked of a spec beside the spec itself."""

    tokens: tuple[int, ...] | None = None
    """N of the first stage (one number per stream, or one for all); the spec's own input where it is None."""
    batch: int = 1
    dtype: str = "float32"
    attention: Literal["eager", "fused"] = "eager"
    extra_tokens: bool = True
    """False leaves out [CLS] and its like, to compare score counts on the grid alone."""


def place(loaded: Loaded, run: Run) -> Architecture:
    """Every page of the spec at its place.

    Raises:
        SpecError: a page can't stand where it does; with file and line.
        UsageError: `run.tokens` can't be honoured.
    """
    return _Walk(loaded, run).architecture()


class _Walk:
    def __init__(self, loaded: Loaded, run: Run) -> None:
        self.spec, self.source, self.run = loaded.spec, loaded.source, run
        self.name = loaded.name
        self.tables: dict[str, tuple[int, int]] = {}
        self.tables_from: dict[str, YamlPath] = {}
        self.memory: tuple[Grid, int] | None = None

    def architecture(self) -> Architecture:
        spec = self.spec
        named = [(name, stream) for name in ("encoder", "decoder") if (stream := getattr(spec, name))]
        self._check_streams(bool(named))
        if named:
            streams = [self._stream((name,), stream, number) for number, (name, stream) in enumerate(named)]
        else:
            streams = [self._stream((), StreamSpec(embed=spec.embed, stages=spec.stages or []), 0)]
        return Architecture(
            spec=spec,
            source=self.name,
            streams=tuple(streams),
            head=self._head(streams[-1]),
            tables=self.tables,
            batch=self.run.batch,
            dtype=self.run.dtype,
            attention=self.run.attention,
        )

    def _check_streams(self, named: bool) -> None:
        spec, source = self.spec, self.source
        tokens = self.run.tokens
        if named and spec.stages:
            raise source.error(("stages",), "stands beside `encoder`/`decoder`; expected either `stages` or the two streams")
        if named and spec.embed:
            raise source.error(("embed",), "stands beside `encoder`/`decoder`; give each stream its own `embed`")
        if not named and not spec.stages:
            raise source.error((), "the key 'stages' is missing (or `encoder` and `decoder` in its place)")
        streams = sum(1 for stream in (spec.encoder, spec.decoder) if stream) or 1
        if tokens and len(tokens) not in (1, streams):
            given = ",".join(str(n) for n in tokens)
            raise UsageError(f"--N {given}: {spec.name} has {streams} stream(s) of tokens; give one number or {streams}")

    def _stream(self, path: YamlPath, stream: StreamSpec, number: int) -> Stream:
        entry = self._input(path, stream, number)
        vocabulary = entry.vocabulary if isinstance(entry, TokenInput) else None
        grid = Grid(entry.sides) if isinstance(entry, ImageInput) else Grid((entry.length,))
        dim: int = entry.channels if isinstance(entry, ImageInput) else entry.vocabulary
        embed, grid, dim = self._doors((*path, "embed"), stream.embed, grid, dim, stream.stages[0].dim, vocabulary)
        stages = []
        for index, stage in enumerate(stream.stages):
            built = self._stage((*path, "stages", index), stage, grid, dim, len(stream.stages))
            stages.append(built)
            last = [part for block in built.blocks for part in block.parts][-1]
            (grid, dim) = last.page.out(last.place)
        self.memory = (grid, dim)
        return Stream("".join(f"{step}." for step in path), entry, tuple(embed), tuple(stages))

    def _input(self, path: YamlPath, stream: StreamSpec, number: int) -> ImageInput | TokenInput:
        entry = stream.input or self.spec.input
        if not self.run.tokens:
            return entry
        tokens = self.run.tokens[number if len(self.run.tokens) > 1 else 0]
        if isinstance(entry, TokenInput):
            if tokens < 1:
                raise UsageError(f"--N {tokens}: expected at least 1 token; try --N 1 or --N {entry.length}")
            return msgspec.structs.replace(entry, length=tokens)
        stride = 1
        for page in stream.embed:
            stride *= page.stride
        height, width = image_sides(tokens)
        return msgspec.structs.replace(entry, size=[height * stride, width * stride])

    def _doors(  # noqa: PLR0913 - the state of the walk
        self, path: YamlPath, pages: list[Any], grid: Grid, dim: int, out_dim: int, vocabulary: int | None
    ) -> tuple[list[Part], Grid, int]:
        parts = []
        for index, page in enumerate(pages):
            spot = Place(grid=grid, dim=dim, out_dim=out_dim, vocabulary=vocabulary, fused=self._fused)
            part = self._part((*path, index), page, spot)
            out_grid, dim = page.out(spot)
            if out_grid.extra > grid.extra and not self.run.extra_tokens:
                continue
            grid = out_grid
            parts.append(part)
        return parts, grid, dim

    @property
    def _fused(self) -> bool:
        return self.run.attention == "fused"

    def _part(self, path: YamlPath, page: Page, spot: Place, residual: Residual | Literal["none"] = "none") -> Part:
        try:
            page.check(spot)
        except PageError as error:
            raise self.source.error((*path, error.field), error.message) from None
        for name, shape in page.tables(spot).items():
            if self.tables.setdefault(name, shape) != shape:
                known = "×".join(str(side) for side in self.tables[name])
                got = "×".join(str(side) for side in shape)
                where = self.source.where(self.tables_from[name])
                raise self.source.error((*path, "share"), f"the table {name!r} is {known} at {where} and {got} here; shared tables must agree")
            self.tables_from.setdefault(name, path)
        return Part(".".join(str(step) for step in path), page, spot, residual)

    def _stage(self, path: YamlPath, stage: StageSpec, grid: Grid, dim: int, count: int) -> Stage:  # noqa: PLR0913
        enter, grid, dim = self._doors((*path, "enter"), stage.enter, grid, dim, stage.dim, None)
        if dim != stage.dim:
            door = "embed" if path[-1] == 0 else "enter"
            raise self.source.error(
                (*path, "dim"), f"the width is {dim} here and nothing in `{door}` brings it to {stage.dim}"
            )
        residual = stage.residual if stage.residual is not None else self.spec.residual
        written, order = self._schedule(path, stage)
        stream = path[0] if path[0] != "stages" else ""
        label = " ".join(str(word) for word in (stream, f"stage {int(path[-1]) + 1}" if count > 1 or not stream else "") if word)
        blocks, names = [], _labels([block for _, block in written])
        for index, (block_path, pages) in enumerate(written):
            parts = [self._sublayer((*block_path, number), page, grid, dim, residual) for number, page in enumerate(pages)]
            block = Block(".".join(str(step) for step in block_path), names[index], tuple(parts), order.count(index))
            blocks.append(block)
        return Stage(".".join(str(step) for step in path), label, dim, grid, tuple(enter), tuple(blocks), tuple(order))

    def _sublayer(  # noqa: PLR0913 - the state of the walk
        self, path: YamlPath, page: Any, grid: Grid, dim: int, residual: Residual | Literal["none"]
    ) -> Part:
        if getattr(page, "causal", False) is None:
            page = msgspec.structs.replace(page, causal=path[0] == "decoder")
        memory, memory_dim = self.memory if path[0] == "decoder" and self.memory else (None, None)
        spot = Place(grid=grid, dim=dim, out_dim=dim, memory=memory, memory_dim=memory_dim, fused=self._fused)
        return self._part(path, page, spot, page.residual if page.residual is not None else residual)

    def _schedule(self, path: YamlPath, stage: StageSpec) -> tuple[list[tuple[YamlPath, list[Any]]], list[int]]:
        """The blocks as written, and which of them runs when."""
        given = [name for name in ("block", "pattern", "blocks") if getattr(stage, name) is not None]
        if len(given) != 1:
            got = " and ".join(f"`{name}`" for name in given) or "none"
            raise self.source.error(path, f"expected one of `block`, `pattern` or `blocks`, got {got}")
        if stage.blocks is not None:
            if stage.depth is not None:
                raise self.source.error((*path, "depth"), "`blocks` says itself how many there are; leave `depth` out")
            return self._nested((*path, "blocks"), stage.blocks)
        if stage.depth is None:
            raise self.source.error(path, f"the key 'depth' is missing: how many blocks does `{given[0]}` make?")
        if stage.block is not None:
            return [((*path, "block"), stage.block)], [0] * stage.depth
        pattern = (stage.pattern or [])[: stage.depth]
        written: list[tuple[YamlPath, list[Any]]] = [((*path, "pattern", number), block) for number, block in enumerate(pattern)]
        return written, [number % len(pattern) for number in range(stage.depth)]

    def _nested(self, path: YamlPath, blocks: list[Any]) -> tuple[list[tuple[YamlPath, list[Any]]], list[int]]:
        written: list[tuple[YamlPath, list[Any]]] = []
        order: list[int] = []
        for number, item in enumerate(blocks):
            here = (*path, number)
            if isinstance(item, Group):
                inner, inner_order = self._nested((*here, "blocks"), item.blocks)
                if len(order) + len(inner_order) * item.repeat > MOST_BLOCKS:
                    raise self.source.error((*here, "repeat"), f"makes more than {MOST_BLOCKS:,} blocks in one stage")
                order += [len(written) + index for index in inner_order] * item.repeat
                written += inner
            else:
                order.append(len(written))
                written.append((here, item))
        return written, order

    def _head(self, stream: Stream) -> Part | None:
        if self.spec.head is None:
            return None
        last = [part for block in stream.stages[-1].blocks for part in block.parts][-1]
        grid, dim = last.page.out(last.place)
        vocabulary = stream.input.vocabulary if isinstance(stream.input, TokenInput) else None
        head: Any = self.spec.head
        if not self.run.extra_tokens and getattr(head, "pool", None) == "class_token":
            head = msgspec.structs.replace(head, pool="mean")
        return self._part(("head",), head, Place(grid=grid, dim=dim, out_dim=dim, vocabulary=vocabulary))


def _labels(blocks: list[list[Any]]) -> list[str]:
    """A short name per block: its mixers', numbered where two are called alike."""
    names = [" + ".join(page.label() for page in block if isinstance(page, Mixer)) or "no mixer" for block in blocks]
    return [name if names.count(name) == 1 else f"{name} #{names[: index + 1].count(name)}" for index, name in enumerate(names)]
