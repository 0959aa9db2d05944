"""Architecture -> Ledger in closed form: exact integers, without torch and numpy, independent of the depth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from xfcost import __version__
from xfcost.formulas.arithmetic import ceil_div
from xfcost.formulas.component import CroppingNote, Mixer, PaddingNote, Place, SubLayer, behind, single_token
from xfcost.formulas.letters import lettered, order
from xfcost.formulas.letters import orders as orders_of
from xfcost.ledger.accounts import Traffic, WeightsRead
from xfcost.ledger.errors import UsageError
from xfcost.ledger.execution import Mode
from xfcost.ledger.grid import Grid
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.lora import UNMERGED
from xfcost.ledger.matrices import AttentionCore
from xfcost.ledger.metadata import Metadata
from xfcost.ledger.operation import Operation
from xfcost.ledger.stored_rows import checkpoint_warnings
from xfcost.ledger.units import BYTES_PER_ELEMENT, Number
from xfcost.program.residual import component_rows
from xfcost.program.tape import without_work
from xfcost.program.together import keep_rows
from xfcost.spec.architecture import Architecture, LabelledPart
from xfcost.spec.checks import is_reversible
from xfcost.spec.grammar import ImageInput, TokenInput, VideoInput
from xfcost.spec.hub import hub_notes
from xfcost.spec.load import Loaded, is_path
from xfcost.spec.placement import place
from xfcost.spec.run import Run


def count(architecture: Architecture, *, orders: bool = True) -> Ledger:
    """The counted account of `architecture`: one row per operation, repeated blocks as one row with `times`.

    `orders=False` leaves out the orders of the rows, which take most of the time.
    """
    rows = [_table_row(name, architecture, orders=orders) for name in architecture.tables]
    letters = _input_width_letters(architecture) if orders else {}
    windows = any(part.component.has_windows for part, *_ in architecture.parts())
    for labelled in architecture.parts():
        part_orders = _orders(labelled, architecture.mode, letters.get(labelled.part.path)) if orders else {}
        for row in part_rows(labelled, architecture.mode):
            placed = _placed(row, labelled, architecture.batch, part_orders.get(row.path))
            if windows and not labelled.part.component.has_windows:
                placed = _with_kernels(placed)
            rows.append(_with_traffic(placed, architecture))
    paths = Counter(row.path for row in rows)
    if len(paths) < len(rows):
        path, times = paths.most_common(1)[0]
        raise ValueError(f"{times} rows are called {path}; the rows of a component need distinct names")
    return Ledger(metadata=metadata(architecture, rows), rows=tuple(rows))


def _table_row(name: str, architecture: Architecture, *, orders: bool) -> Operation:
    """A table that several parts share. They read its weights; the row itself reads none."""
    rows, columns = architecture.tables[name]
    in_letters: str | None = None
    if orders:  # of the first part that uses it
        part = next(part for part, *_ in architecture.parts() if name in part.component.tables(part.place))
        component, lettered_place = part.component.in_letters(part.place)
        sides = component.tables(lettered_place)[name]
        in_letters = order(Operation(path=name, title=name, params=sides[0] * sides[1]))
    return Operation(
        path=f"shared.{name}",
        title=f"Shared table {name!r}",
        component="shared",
        stage="shared",
        block="shared",
        order=in_letters,
        params=rows * columns,
        weights_read=WeightsRead(0),
        vocabulary=rows in {getattr(stream.input, "vocabulary", None) for stream in architecture.streams},
        bound=name in architecture.bound_tables,
        shared=name,
    )


def _input_width_letters(architecture: Architecture) -> dict[str, str]:
    """Path of a layer that reads the raw input -> the letter of the input's width: C channels or V vocabulary."""
    letters = {}
    for stream in architecture.streams:
        letter = "V" if isinstance(stream.input, TokenInput) else "C"
        for part in stream.embed:
            letters[part.path] = letter
            if any(row.params or row.shared for row in component_rows(part.component, part.place)):
                break
    return letters


def _orders(labelled: LabelledPart, mode: Mode, raw: str | None) -> dict[str, str]:
    """The orders of a part's rows: its formulas evaluated in letters; `raw` is the letter of the raw input's width."""
    part = labelled.part
    component, lettered_place = part.component.in_letters(part.place)
    if raw is not None:
        lettered_place = msgspec.structs.replace(lettered_place, dim=lettered(part.place.dim, raw))
    in_letters = part._replace(component=component, place=lettered_place)
    return orders_of(part_rows(labelled._replace(part=in_letters, cached=0), mode))  # a prefix does not grow with N


def with_rebuilt_note(ledger: Ledger, loaded: Loaded, architecture: Architecture) -> Ledger:
    """`ledger` with a note on weights that depend on the input size, where it is not the spec's own."""
    if architecture.own_size or not ledger.bound_params:
        return ledger
    own = count(place(loaded, Run(batch=architecture.batch)), orders=False)
    note = (
        f"rebuilt for {ledger.metadata.tokens} tokens: {ledger.bound_params:,} parameters depend on the input size "
        f"({own.bound_params:,} at the spec's own {own.metadata.tokens}), and trained ones do not carry over"
    )
    return ledger.with_note(note)


def curve_costs(architecture: Architecture) -> dict[str, int]:
    """The sums of `system.CURVES` over the rows of `count`, without making these: for searches over many sizes.

    Raises:
        UsageError: the memory level doesn't hold one tile.
    """
    macs = mixing_macs = attention_bytes = 0
    element = BYTES_PER_ELEMENT[architecture.dtype]
    for labelled in architecture.parts():
        for row in part_rows(labelled, architecture.mode):
            _with_traffic(row, architecture)
            times = labelled.times * row.times * (1 if row.once else architecture.batch)
            macs += row.macs * times
            if row.mixing != "per-token":
                mixing_macs += row.macs * times
            if row.matrix is not None:
                attention_bytes += row.matrix.kept_bytes(element) * times
    return {"macs": macs, "mixing_macs": mixing_macs, "attention_bytes": attention_bytes}


def feed_forward_macs(architecture: Architecture) -> int:
    """The MACs of its feed-forward layers, of the whole batch."""
    return sum(
        row.macs * labelled.times * row.times * (1 if row.once else architecture.batch)
        for labelled in architecture.parts()
        if labelled.part.component.feed_forward
        for row in part_rows(labelled, architecture.mode)
    )


def part_rows(labelled: LabelledPart, mode: Mode) -> Iterable[Operation]:
    """The rows of one part, of one sample."""
    component, place, residual = labelled.part.component, labelled.part.place, labelled.part.residual
    rows = component_rows(component, place, residual, decodes=_decodes(labelled, mode), cached=labelled.cached)
    return map(without_work, rows) if labelled.idle and mode == "decode" else rows


def _decodes(labelled: LabelledPart, mode: Mode) -> bool:
    """Does it run in a decode step? An idle part has run before."""
    return mode == "decode" and not labelled.idle


def keep_rows_of(architectures: Iterable[Architecture]) -> None:
    """Keep the rows of the parts of several architectures: those that differ in their sizes alone run together."""
    groups: dict[Any, dict[Place, None]] = {}
    for architecture in architectures:
        for labelled in () if architecture.cached_prefix else architecture.parts():
            component, place, residual = labelled.part.component, labelled.part.place, labelled.part.residual
            decodes = _decodes(labelled, architecture.mode)
            axes = len(place.grid.sides), None if place.memory is None else len(place.memory.sides)
            alike = msgspec.structs.replace(place, grid=Grid(()), memory=None)
            with suppress(TypeError):  # a component without a hash
                groups.setdefault((component, residual, decodes, axes, alike), {})[place] = None
    for (component, residual, decodes, *_), places in groups.items():
        keep_rows(component, [*places], residual, decodes=decodes)


def _placed(row: Operation, labelled: LabelledPart, batch: int, order: str | None) -> Operation:
    """A component's row in the whole model: with its full path, labels, batch and order."""
    part = labelled.part
    return msgspec.structs.replace(
        batched(row, batch),
        path=f"{part.path}.{row.path}",
        component=part.path,
        order=order,
        recomputed=is_reversible(part.residual),
        stage=labelled.stage,
        block=labelled.block,
        in_block=labelled.in_block,
        weight_matrices=row.weight_matrices if labelled.in_block else (),
        times=labelled.times * row.times,
    )


def _with_kernels(row: Operation) -> Operation:
    """A row beside windows, whose side is W: that of its kernel is K."""
    texts = {name: text.replace("W", "K") for name in ("order", "reads") if "W" in (text := getattr(row, name) or "")}
    return msgspec.structs.replace(row, **texts) if texts else row


def batched(row: Operation, batch: int) -> Operation:
    """`row` for `batch` samples: its work is multiplied, unless it runs once for all of them."""
    if row.once or batch == 1:
        return row
    core = row.core and msgspec.structs.replace(row.core, times=row.core.times * batch)
    return msgspec.structs.replace(
        row,
        macs=row.macs * batch,
        flops=row.flops * batch,
        attention_entries=row.attention_entries * batch,
        comparisons=row.comparisons * batch,
        moved=row.moved * batch,
        backward_macs=None if row.backward_macs is None else row.backward_macs * batch,
        cache=row.cache and msgspec.structs.replace(row.cache, elements=row.cache.elements * batch),
        weights_read=row.weights_read and row.weights_read.batched(batch),
        matrix=row.matrix and row.matrix.batched(batch),
        core=core,
    )


def _with_traffic(row: Operation, architecture: Architecture) -> Operation:
    """`row` with the main-memory traffic of its attention core, where a memory level is given.

    Raises:
        UsageError: the memory doesn't hold one tile.
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


# Main-memory (HBM) traffic of an attention core: plain, and tiled as FlashAttention does it ──────────────────────────
# Dao et al. 2022, "FlashAttention", §3: the same MACs, less traffic. n queries, m keys, width d, M elements of on-chip
# memory (SRAM). Keys and values may have different widths d_k and d_v; d is then their mean. The tiled formula is
# Θ(n·m·d²/M), the plain one Θ((n + m)·d + n·m).


def plain(core: AttentionCore) -> Number:
    """Elements read and written if every step writes its matrix (Dao et al. 2022, algorithm 0).

    S = QKᵀ reads Q and K and writes S; softmax reads S and writes P; PV reads P and V and writes the output.
    """
    return core.times * ((core.queries + core.keys) * core.key_value_width + 4 * core.queries * core.keys)


def tiled(core: AttentionCore, on_chip: Number) -> Number:
    """Elements read and written by FlashAttention (Dao et al. 2022, algorithm 1) with `on_chip` elements of SRAM.

    Keys and values are read once, in ⌈m / B⌉ blocks of B = ⌈M / 4d⌉. For each block all queries, outputs and the two
    statistics per query are read; outputs and statistics are written.
    """
    blocks = ceil_div(core.keys, ceil_div(on_chip, 2 * core.key_value_width))
    per_block = core.queries * (core.key_value_width + core.values) + 4 * core.queries
    return core.times * (core.keys * core.key_value_width + blocks * per_block)


# Metadata ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

# Fields of the metadata that an architecture has by the same names.
_RUN: Final = (
    "batch", "dtype", "attention", "mode", "cached_prefix", "logits", "weight_format", "cache_format", "checkpoint",
    "memory_level", "source", "settings", "lora",
)  # fmt: skip


def metadata(architecture: Architecture, rows: Sequence[Operation]) -> Metadata:
    """The metadata of the ledger."""
    spec, grid, notes = architecture.spec, architecture.grid, list(_notes(architecture))
    unmerged = () if architecture.lora is None or architecture.mode == "train" else (UNMERGED,)
    streams = architecture.streams
    inputs = (stream.input for stream in streams)
    attends = any(row.matrix is not None or row.fused for row in rows)
    tokens = " + ".join((f"{stream.name} " if stream.name else "") + stream.grid.shape_text() for stream in streams)
    return Metadata(
        name=spec.name,
        tokens=tokens,
        grid_tokens=grid.tokens,
        extra_tokens=grid.special,
        **{name: getattr(architecture, name) for name in _RUN},
        warnings=(*_checkpoint_warnings(architecture, rows), *architecture.warnings),
        default_note=architecture.default_note if attends else architecture.dtype_note,
        attends=attends,
        preset=not is_path(architecture.source),
        paper=spec.paper,
        notes=(*hub_notes(architecture.source), *unmerged, *(note for note, _ in notes)),
        padded=any(kind is PaddingNote for _, kind in notes),
        cropped=any(kind is CroppingNote for _, kind in notes),
        image=next((entry.sides for entry in inputs if isinstance(entry, ImageInput | VideoInput)), None),
        streams=tuple({"name": stream.name} | _shape(stream.grid) for stream in streams),
        stages=tuple(
            {"stage": stage.label} | _shape(grid) | {"width": width, "blocks": len(stage.order)}
            for stream in streams
            for stage in stream.stages
            for grid, width in [stage.leaves]
        ),
        **_sequence(architecture, rows),
        published_left_out=0 if architecture.as_written else len(spec.published),
        versions={"xfcost": __version__},
        published=tuple(msgspec.to_builtins(figure) for figure in spec.published if architecture.as_written),
    )


def _checkpoint_warnings(architecture: Architecture, rows: Sequence[Operation]) -> tuple[str, ...]:
    element = BYTES_PER_ELEMENT[architecture.dtype]
    return checkpoint_warnings(rows, architecture.weight_format, architecture.checkpoint, element)


def _sequence(architecture: Architecture, rows: Iterable[Operation]) -> dict[str, Any]:
    """The sequential steps of all mixers, and the tokens that they process in parallel."""
    sequential: dict[str, int] = {}
    for row in rows:
        sequential[row.component] = max(sequential.get(row.component, 1), row.sequential)
    mixers = steps = tokens = 0
    decodes = architecture.mode == "decode"
    for labelled in architecture.parts():
        part, times = labelled.part, labelled.times
        if isinstance(part.component, Mixer) and not labelled.idle:
            mixers += times
            steps += times * sequential[part.path]
            tokens += times * (1 if decodes else part.place.grid.total - labelled.cached)
    return {"mixers": mixers, "sequential_steps": steps, "parallel_width": tokens / steps if steps else None}


def _shape(grid: Grid) -> dict[str, Any]:
    return {"tokens": grid.tokens, "extra_tokens": grid.special, "grid": list(grid.sides)}


def _notes(architecture: Architecture) -> Iterator[tuple[str, type[str]]]:
    """Every note of the components once, with its stage; and of which kind it is."""
    texts = set()
    decodes = architecture.mode == "decode"
    for labelled in architecture.parts():
        part, stage = labelled.part, labelled.stage
        if decodes and (isinstance(part.component, Mixer) or labelled.idle):
            continue  # their notes are about a pass over all tokens
        noted_place = single_token(part.place) if decodes and isinstance(part.component, SubLayer) else part.place
        if isinstance(part.component, Mixer):
            noted_place = behind(noted_place, labelled.cached)
        for note in part.component.notes(noted_place):
            text = f"{stage}: {note}"
            if text not in texts:
                texts.add(text)
                yield text, type(note)
    if any(part.residual != "none" and part.residual.norm == "group_norm" for part, *_ in architecture.parts()):
        yield "a group norm's mean and variance are over all tokens: the norms of the residuals mix globally", str
