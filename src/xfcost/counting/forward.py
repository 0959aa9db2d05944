"""Architecture -> Ledger, in closed form: exact integers, no torch, no numpy, the same work whatever the depth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from xfcost import __version__
from xfcost.formulas.component import Mixer, SubLayer, alone
from xfcost.formulas.lettered import lettered
from xfcost.formulas.notes import PaddingNote
from xfcost.formulas.orders import order
from xfcost.formulas.orders import orders as orders_of
from xfcost.formulas.residual import wrapped
from xfcost.formulas.rows import idle
from xfcost.formulas.traffic import plain, tiled
from xfcost.ledger.accounts import Cached, Traffic, WeightsRead
from xfcost.ledger.errors import UsageError
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.metadata import Metadata
from xfcost.ledger.operation import Operation
from xfcost.ledger.options import Mode
from xfcost.ledger.units import BYTES_PER_ELEMENT
from xfcost.spec.architecture import Architecture, Stage, StandingPart, Stream
from xfcost.spec.grammar import ImageInput, TokenInput, VideoInput
from xfcost.spec.load import Loaded, is_path
from xfcost.spec.reversible import is_reversible
from xfcost.spec.walk import Run, place


def count(architecture: Architecture, *, orders: bool = True) -> Ledger:
    """The counted account of `architecture`: one row per operation, repeated blocks as one row with `times`.

    Rows have their `orders`, unless the caller reads none and has many ledgers to count.
    """
    rows = tuple(_rows(architecture, orders=orders))
    paths = Counter(row.path for row in rows)
    if len(paths) < len(rows):
        path, times = paths.most_common(1)[0]
        raise ValueError(f"{times} rows are called {path}; the rows of a component need names of their own")
    return Ledger(metadata=metadata(architecture, rows), rows=rows)


def _rows(architecture: Architecture, *, orders: bool) -> Iterator[Operation]:
    for name in architecture.tables:
        yield _of_table(name, architecture, order=_order_of_table(name, architecture) if orders else None)
    letters = _letters_of_stems(architecture) if orders else {}
    for standing in architecture.parts():
        part = standing.part
        known = _orders(standing, architecture.mode, letters.get(part.path)) if orders else {}
        for row in _of_part(standing, architecture.mode):
            placed = _placed(row, standing, architecture.batch)
            full = msgspec.structs.replace(placed, order=known.get(row.path)) if orders else placed
            yield _with_traffic(full, architecture)


def _of_table(name: str, architecture: Architecture, *, order: str | None) -> Operation:
    """A table that several parts share: they read its weights, and it reads none."""
    rows, columns = architecture.tables[name]
    return Operation(
        path=f"shared.{name}",
        title=f"Shared table {name!r}",
        component="shared",
        stage="shared",
        block="shared",
        order=order,
        params=rows * columns,
        weights_read=WeightsRead(0),
        bound=name in architecture.bound_tables,
        shared=name,
    )


def _letters_of_stems(architecture: Architecture) -> dict[str, str]:
    """What the width is at the stem of a model where the input comes in as it is: channels, or the vocabulary."""
    letters = {}
    for stream in architecture.streams:
        letter = "V" if isinstance(stream.input, TokenInput) else "C"
        for part in stream.embed:
            letters[part.path] = letter
            if any(row.params or row.shared for row in part.component.operations(part.place)):
                break
    return letters


def _orders(standing: StandingPart, mode: Mode, raw: str | None) -> dict[str, str]:
    """The orders of a part's rows: its own formulas once more, in letters; `raw` is that of the input's own width."""
    part = standing.part
    component, spot = part.component.in_letters(part.place)
    if raw is not None:
        spot = msgspec.structs.replace(spot, dim=lettered(part.place.dim, raw))
    in_letters = part._replace(component=component, place=spot)
    return orders_of(_of_part(standing._replace(part=in_letters), mode))


def _order_of_table(name: str, architecture: Architecture) -> str:
    """That of a table which several parts share, in the letters of the first that does."""
    parts = (part for part, *_ in architecture.parts() if name in part.component.tables(part.place))
    part = next(parts)
    component, spot = part.component.in_letters(part.place)
    rows, columns = component.tables(spot)[name]
    return order(Operation(path=name, title=name, params=rows * columns))


def with_rebuilt(ledger: Ledger, loaded: Loaded, architecture: Architecture) -> Ledger:
    """`ledger`, told where weights are bound to an input of another size than the spec's own: they had to be new."""
    if architecture.own_size or not ledger.bound_params:
        return ledger
    own = count(place(loaded, Run(batch=architecture.batch)), orders=False)
    note = (
        f"rebuilt for {ledger.metadata.tokens} tokens: {ledger.bound_params:,} parameters depend on the input size "
        f"({own.bound_params:,} at the spec's own {own.metadata.tokens}), and trained ones do not carry over"
    )
    return msgspec.structs.replace(
        ledger, metadata=msgspec.structs.replace(ledger.metadata, notes=(note, *ledger.metadata.notes))
    )


def _of_part(standing: StandingPart, mode: Mode) -> Iterable[Operation]:
    part, steps = standing.part, mode == "decode"
    component, place = part.component, part.place
    if standing.idle and steps:
        return (idle(row) for row in _of_part(standing, "forward"))
    rows = component.decoding(place) if steps else component.operations(place)
    if isinstance(component, SubLayer):
        return wrapped(component, part.residual, alone(place) if steps else place, rows)
    return rows


def _placed(row: Operation, standing: StandingPart, batch: int) -> Operation:
    """A component's row at its place in the whole: its full path, and the batch in what a batch multiplies."""
    part = standing.part
    return msgspec.structs.replace(
        batched(row, batch),
        path=f"{part.path}.{row.path}",
        component=part.path,
        in_decode=None,
        recomputed=is_reversible(part.residual),
        stage=standing.stage,
        block=standing.block,
        in_block=standing.in_block,
        times=standing.times * row.times,
    )


def batched(row: Operation, batch: int) -> Operation:
    """`row` for `batch` samples: all its work so many times, but for what is done once for all of them."""
    if row.once or batch == 1:
        return row
    core = row.core and row.core._replace(times=row.core.times * batch)
    return msgspec.structs.replace(
        row,
        macs=row.macs * batch,
        flops=row.flops * batch,
        attention_entries=row.attention_entries * batch,
        comparisons=row.comparisons * batch,
        moved=row.moved * batch,
        backward_macs=None if row.backward_macs is None else row.backward_macs * batch,
        cache=row.cache and Cached(row.cache.elements * batch, row.cache.per_token),
        weights_read=row.weights_read and row.weights_read.batched(batch),
        matrix=row.matrix and row.matrix.batched(batch),
        core=core,
    )


def _with_traffic(row: Operation, architecture: Architecture) -> Operation:
    """`row` with the main-memory traffic of its attention core, where a memory level is asked.

    Raises:
        UsageError: that memory doesn't hold one tile.
    """
    if row.core is None or architecture.memory_level is None:
        return row
    size = BYTES_PER_ELEMENT[architecture.dtype]
    on_chip, core = architecture.memory_level // size, row.core
    if on_chip < core.least_on_chip:
        raise UsageError(
            f"--memory-level {architecture.memory_level}: a tile of one key ({core.width} wide) and its value "
            f"({core.values}) takes {core.least_on_chip * size} bytes in {architecture.dtype}; expected at least that"
        )
    traffic = Traffic(plain=plain(core) * size, tiled=tiled(core, on_chip) * size)
    return msgspec.structs.replace(row, traffic=traffic)


def metadata(architecture: Architecture, rows: Iterable[Operation]) -> Metadata:
    """What the report's header says."""
    spec, grid, notes = architecture.spec, architecture.grid, list(_notes(architecture))
    streams = architecture.streams
    tokens = " + ".join((f"{stream.name} " if stream.name else "") + stream.grid.shape_text() for stream in streams)
    return Metadata(
        name=spec.name,
        tokens=tokens,
        grid_tokens=grid.tokens,
        extra_tokens=grid.extra,
        batch=architecture.batch,
        dtype=architecture.dtype,
        attention=architecture.attention,
        mode=architecture.mode,
        logits=architecture.logits,
        memory_level=architecture.memory_level,
        source=architecture.source,
        preset=not is_path(architecture.source),
        paper=spec.paper,
        notes=tuple(note for note, _ in notes),
        padded=any(padded for _, padded in notes),
        image=_image(streams),
        streams=tuple(_stream_facts(stream) for stream in streams),
        stages=tuple(_stage_facts(stage) for stream in streams for stage in stream.stages),
        **_sequence(architecture, rows),
        settings=architecture.settings,
        published_left_out=0 if architecture.as_written else len(spec.published),
        versions={"xfcost": __version__},
        published=tuple(msgspec.to_builtins(figure) for figure in spec.published if architecture.as_written),
    )


def _sequence(architecture: Architecture, rows: Iterable[Operation]) -> dict[str, Any]:
    """How much of the mixing can only be done step after step, and how many tokens a step has."""
    sequential: dict[str, int] = {}
    for row in rows:
        sequential[row.component] = max(sequential.get(row.component, 1), row.sequential)
    mixers = steps = tokens = 0
    one = architecture.mode == "decode"
    for standing in architecture.parts():
        part, times = standing.part, standing.times
        if isinstance(part.component, Mixer) and not standing.idle:
            mixers += times
            steps += times * sequential[part.path]
            tokens += times * (1 if one else part.place.grid.total)
    return {"mixers": mixers, "sequential_steps": steps, "parallel_width": tokens / steps if steps else None}


def _image(streams: Iterable[Stream]) -> tuple[int, ...] | None:
    """The sides of the first image (or video) that comes in."""
    return next((one.input.sides for one in streams if isinstance(one.input, ImageInput | VideoInput)), None)


def _stream_facts(stream: Stream) -> dict[str, Any]:
    grid = stream.grid
    return {"name": stream.name, "tokens": grid.tokens, "extra_tokens": grid.extra, "grid": list(grid.sides)}


def _stage_facts(stage: Stage) -> dict[str, Any]:
    grid, width = stage.leaves
    named = {"stage": stage.label, "tokens": grid.tokens, "extra_tokens": grid.extra, "grid": list(grid.sides)}
    return named | {"width": width, "blocks": len(stage.order)}


def _notes(architecture: Architecture) -> Iterator[tuple[str, bool]]:
    """Every note of the components once, with its stage; and whether it is about padding."""
    said = set()
    decodes = architecture.mode == "decode"
    for standing in architecture.parts():
        part, stage = standing.part, standing.stage
        if decodes and (isinstance(part.component, Mixer) or standing.idle):
            continue  # what they pad, cut and walk through is of all tokens
        here = alone(part.place) if decodes and isinstance(part.component, SubLayer) else part.place
        for note in part.component.notes(here):
            text = f"{stage}: {note}"
            if text not in said:
                said.add(text)
                yield text, isinstance(note, PaddingNote)
    if any(part.residual != "none" and part.residual.norm == "group_norm" for part, *_ in architecture.parts()):
        yield "a group norm's mean and variance are over all tokens: the norms of the residuals mix globally", False
