"""The walk: a checked spec becomes an `Architecture`, in which every page stands at its place (grid, width, memory).

Both accounts start here: `counted` asks each page for its rows, `live` builds each page's twin.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import msgspec

from xfcost.errors import PageError, UsageError
from xfcost.grid import Grid, check_tokens, image_sides, number_text
from xfcost.layers import EMBEDS
from xfcost.layers.base import Takes
from xfcost.mechanisms.base import Page, Place, Residual, tag_of
from xfcost.spec.grammar import ImageInput, Spec, StageSpec, StreamSpec, TokenInput
from xfcost.spec.load import Loaded
from xfcost.spec.reader import YamlPath
from xfcost.spec.schedule import labels, schedule


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
            raise source.error(
                ("stages",), "stands beside `encoder`/`decoder`; expected either `stages` or the two streams"
            )
        if named and spec.embed:
            raise source.error(("embed",), "stands beside `encoder`/`decoder`; give each stream its own `embed`")
        if not named and not spec.stages:
            raise source.error((), "the key 'stages' is missing (or `encoder` and `decoder` in its place)")
        streams = sum(1 for stream in (spec.encoder, spec.decoder) if stream) or 1
        if tokens and len(tokens) not in (1, streams):
            given = ",".join(number_text(n) for n in tokens)
            there = (
                "one stream of tokens; give one number"
                if streams == 1
                else "two streams of tokens; give one number or two"
            )
            raise UsageError(f"--N {given}: {spec.name} has {there}")

    def _stream(self, path: YamlPath, stream: StreamSpec, number: int) -> Stream:
        entry = self._input(path, stream, number)
        vocabulary = entry.vocabulary if isinstance(entry, TokenInput) else None
        grid = Grid(entry.sides) if isinstance(entry, ImageInput) else Grid((entry.length,))
        dim: int = entry.channels if isinstance(entry, ImageInput) else entry.vocabulary
        self._check_entrance((*path, "embed"), stream.embed, entry)
        embed, grid, dim = self._doors((*path, "embed"), stream.embed, grid, dim, stream.stages[0].dim, vocabulary)
        stages = []
        for index, stage in enumerate(stream.stages):
            built = self._stage((*path, "stages", index), stage, grid, dim, len(stream.stages))
            stages.append(built)
            last = [part for block in built.blocks for part in block.parts][-1]
            (grid, dim) = last.page.out(last.place)
        self.memory = (grid, dim)
        return Stream("".join(f"{step}." for step in path), entry, tuple(embed), tuple(stages))

    def _check_entrance(self, path: YamlPath, pages: list[Any], entry: ImageInput | TokenInput) -> None:
        """The first step of `embed` takes the input as it is, and no other step does."""
        given: Takes = "image" if isinstance(entry, ImageInput) else "tokens"
        if not pages or pages[0].takes != given:
            fit = " or ".join(f"{{kind: {tag_of(page)}, …}}" for page in EMBEDS if page.takes == given)
            here = f", and {tag_of(type(pages[0]))!r} comes first" if pages else ""
            raise self.source.error(
                (*path, 0), f"the input is of kind {given!r}{here}; expected {fit} as the first step"
            )
        for number, page in enumerate(pages):
            if number and page.takes != "embedded":
                raise self.source.error(
                    (*path, number), f"{tag_of(type(page))!r} can only be the first step of `embed`"
                )

    def _input(self, path: YamlPath, stream: StreamSpec, number: int) -> ImageInput | TokenInput:
        entry = stream.input or self.spec.input
        if not self.run.tokens:
            return entry
        tokens = self.run.tokens[number if len(self.run.tokens) > 1 else 0]
        if isinstance(entry, TokenInput):
            check_tokens(tokens)
            return msgspec.structs.replace(entry, length=tokens)
        stride = 1
        for page in stream.embed:
            stride *= page.stride
        height, width = image_sides(tokens)
        return msgspec.structs.replace(entry, size=[height * stride, width * stride])

    def _doors(
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
                raise self.source.error(
                    (*path, "share"),
                    f"the table {name!r} is {known} at {where} and {got} here; shared tables must agree",
                )
            self.tables_from.setdefault(name, path)
        return Part(".".join(str(step) for step in path), page, spot, residual)

    def _stage(self, path: YamlPath, stage: StageSpec, grid: Grid, dim: int, count: int) -> Stage:
        enter, grid, dim = self._doors((*path, "enter"), stage.enter, grid, dim, stage.dim, None)
        if dim != stage.dim:
            door = "embed" if path[-1] == 0 else "enter"
            raise self.source.error(
                (*path, "dim"), f"the width is {dim} here and nothing in `{door}` brings it to {stage.dim}"
            )
        residual = stage.residual if stage.residual is not None else self.spec.residual
        written, order = schedule(path, stage, self.source)
        stream = path[0] if path[0] != "stages" else ""
        label = " ".join(
            str(word) for word in (stream, f"stage {int(path[-1]) + 1}" if count > 1 or not stream else "") if word
        )
        blocks, names, times = [], labels(written), Counter(order)
        for index, (block_path, pages) in enumerate(written):
            parts = [
                self._sublayer((*block_path, number), page, grid, dim, residual) for number, page in enumerate(pages)
            ]
            block = Block(".".join(str(step) for step in block_path), names[index], tuple(parts), times[index])
            blocks.append(block)
        return Stage(".".join(str(step) for step in path), label, dim, grid, tuple(enter), tuple(blocks), tuple(order))

    def _sublayer(self, path: YamlPath, page: Any, grid: Grid, dim: int, residual: Residual | Literal["none"]) -> Part:
        if getattr(page, "causal", False) is None:
            page = msgspec.structs.replace(page, causal=path[0] == "decoder")
        memory, memory_dim = self.memory if path[0] == "decoder" and self.memory else (None, None)
        spot = Place(grid=grid, dim=dim, out_dim=dim, memory=memory, memory_dim=memory_dim, fused=self._fused)
        return self._part(path, page, spot, page.residual if page.residual is not None else residual)

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
