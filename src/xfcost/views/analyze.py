"""The report of `analyze`: the answer, the operations, totals by mixing kind, notes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

import msgspec

from xfcost.comparing.quantities import QUANTITIES
from xfcost.ledger import units
from xfcost.ledger.achieved import OF_PEAK, beside_rows, peak_of, row_rates
from xfcost.ledger.errors import UsageError, printable
from xfcost.ledger.json_objects import (
    AnyView,
    distinct_modules,
    grouped,
    json_text,
    ledger_object,
    module_levels,
    records,
)
from xfcost.ledger.least_work import RowBound, row_bounds
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.operation import Operation
from xfcost.parts.mixing.text import probe_parts
from xfcost.parts.serving import choices_text as choosing
from xfcost.parts.serving.evidence import Evidence
from xfcost.parts.serving.text import (
    evidence_table,
    experts_texts,
    fit_texts,
    generation_table,
    speculation_table,
    speculation_texts,
    time_texts,
    weights_texts,
)
from xfcost.parts.timing.text import rates_text, timing_texts
from xfcost.parts.training.text import plan_parts, training_parts
from xfcost.report.document import (
    DataTable,
    Document,
    Gap,
    HiddenColumns,
    Part,
    TableColumn,
    TextLines,
    line,
    lines_needed,
    notes,
    numbers,
)
from xfcost.report.input_description import circumstances, default_notes
from xfcost.report.output import Format
from xfcost.report.style import TERMINAL, letters_text
from xfcost.views.header import active_params, all_layers, at_once, header, memory_answers, params_text, work_text
from xfcost.views.largest import Order, beside_word, groups_table, mixing_table, time_share

CONVENTION: Final = "1 MAC = 1 multiply-add of the dense matmul; FLOPs = 2·MACs + element-wise"


def document(
    ledger: Ledger,
    by: AnyView | None = None,
    *,
    verbose: bool = False,
    depth: int | None = None,
    order: Order | None = None,
    only: Sequence[str] = (),
) -> Document:
    """The answer first, then the tables, then the notes, with `verbose` all; a tree of modules goes down to `depth`.

    With an `order` the groups, or the operations, are those of the whole model, sorted. Of several devices side by side
    it is their table. `only` rows are listed and grouped whose path or title has one of these texts, in any case, with
    their sum and its shares of the model; the other figures are those of all.

    Raises:
        UsageError: no row has one of them.
    """
    if ledger.choices and ledger.on is None:
        return choosing.document(ledger, verbose=verbose)
    listed = _with_text(ledger, only) if only else ledger
    return Document(
        parts=lambda: _parts(ledger, listed, by, verbose=verbose, depth=depth, order=order, only=only),
        records=lambda: _records(listed, by, depth, order),
        json=lambda: _filtered_json(ledger, listed, only) if only else ledger.to_json(),
        paper=lambda form: _paper_parts(ledger, listed, by, form, depth, order, only),
    )


def _with_text(ledger: Ledger, only: Sequence[str]) -> Ledger:
    """The ledger with those of its rows alone whose path or title has one of the texts."""
    texts = [text.casefold() for text in only]
    found = ledger.part(
        row for row in ledger.rows if any(text in f"{row.path}\n{row.title}".casefold() for text in texts)
    )
    if not found.rows:
        first = ledger.rows[0]
        raise UsageError(
            f"--filter {printable(' '.join(only), 200)}: no operation has it in its path or its title; those of the "
            f"first one are {first.path} and {first.title}"
        )
    return found


# What the sum of filtered rows is of, and shares of.
_SUMMED: Final = ("params", "macs", "flops")


def _filter_object(ledger: Ledger, listed: Ledger, only: Sequence[str]) -> dict[str, Any]:
    """The texts, the rows that have one of them, their sums, and these as shares of the model."""
    sums = {name: listed.total(name) or 0 for name in _SUMMED}
    shares = {f"{name}_share": value / (ledger.total(name) or 1) for name, value in sums.items()}
    return {"texts": list(only), "rows": len(listed.rows), "of_rows": len(ledger.rows), **sums, **shares}


def _filtered_json(ledger: Ledger, listed: Ledger, only: Sequence[str]) -> str:
    own = ledger_object(ledger) | {"filter": _filter_object(ledger, listed, only)}
    return json_text(own | {"operations": ledger_object(listed)["operations"]})


def filter_text(ledger: Ledger, listed: Ledger, only: Sequence[str]) -> TextLines:
    """`rows with attn: 12 of 70; 28.3 M parameters (33.0 %), 5.2 G MACs (31.2 %), 10.5 G FLOPs (31.0 %)`."""
    found = _filter_object(ledger, listed, only)
    sums = ", ".join(
        f"{units.count(found[name])} {QUANTITIES[name].name} ({units.percent(found[name], ledger.total(name) or 1)})"
        for name in _SUMMED
    )
    texts = " or ".join(printable(text, 80) for text in only)
    return line(f"{found['rows']} of {found['of_rows']}; {sums}", head=f"operations with {texts}: ")


def _records(ledger: Ledger, by: AnyView | None, depth: int | None, order: Order | None) -> list[dict[str, Any]]:
    if order is None:
        return grouped(ledger, by, depth) if by else records(ledger)
    groups = order.sorted(ledger, by, depth)
    if by is not None:
        return groups
    places = {group["path"]: place for place, group in enumerate(groups)}
    rows = (row for row in records(ledger) if row["path"] in places)  # the costs of one block, as without an order
    return sorted(rows, key=lambda row: places[row["path"]])


def _parts(  # noqa: PLR0913 - options
    ledger: Ledger, listed: Ledger, by: AnyView | None, *, verbose: bool, depth: int | None, order: Order | None,
    only: Sequence[str],
) -> Iterator[Part]:  # fmt: skip
    """`listed` has those rows of `ledger` that the first table lists."""
    operations = None if by or order else operations_table(listed, whole=ledger, verbose=verbose)
    yield from header(ledger)
    yield Gap()
    if operations:
        yield line(_of_the_table(ledger), "dim")
    yield operations or groups_table(listed, by, depth, order, whole=ledger)
    if only:
        yield filter_text(ledger, listed, only)
    if depth is not None and depth < (levels := module_levels(listed)):
        yield line(f"deeper: --depth {levels}", "dim")
    if ledger.has_kinds:
        yield from (Gap(), mixing_table(ledger))
    yield Gap()
    if verbose or not _few_statistics(ledger):
        yield memory_text(ledger)
    yield from traffic_texts(ledger, verbose=verbose)
    yield from mask_texts(ledger)
    yield from matrix_multiply_texts(ledger)
    if ledger.generation is not None:
        yield from (Gap(), generation_table(ledger.generation))
    if (rounds := speculation_table(ledger)) is not None:
        yield from (Gap(), rounds)
    yield from plan_parts(ledger)
    yield from training_parts(ledger)
    yield from probe_parts(ledger)
    if published := ledger.published_beside_ours():
        yield from (Gap(), published_table(published))
    if verbose and (like := _evidence(ledger)) is not None and like.runs:
        yield from (Gap(), evidence_table(like))
    yield Gap()
    yield from timing_texts(ledger)
    yield from notes(default_notes([ledger.metadata]), verbose=verbose)
    yield from notes(_notes(ledger), verbose=verbose)
    yield from _endnotes(listed, operations, verbose=verbose)


def _of_the_table(ledger: Ledger) -> str:
    """Of what the figures of a row are: `one block (×12: it repeats); saved, share: of the whole model`."""
    whole = "saved and share" if ledger.total("kept_bytes") else "share"
    repeats = "; × is how often it repeats" if any(row.times > 1 for row in ledger.rows) else ""
    return f"a row is of one block{repeats}; {whole}: of the whole model"


def _evidence(ledger: Ledger) -> Evidence | None:
    """Published runs like that of the ledger, of inference or training."""
    plan = None if ledger.training is None else ledger.training.plan
    if plan is not None:
        return plan.evidence
    return None if ledger.on is None else ledger.on.evidence


def published_table(published: list[dict[str, Any]]) -> DataTable:
    """Published figures compared with ours."""
    rows = []
    for figure in published:
        theirs, ours, difference = (figure[key] for key in ("published", "ours", "difference"))
        words = [str(figure[key]) for key in ("source", "convention", "note") if figure.get(key)]
        rows.append(
            [str(figure["quantity"]), units.count(theirs), units.count(ours), f"{difference:+.2%}", "; ".join(words)]
        )
    columns = numbers("published", "theirs", "ours", "difference")
    return DataTable([*columns, TableColumn("source", fold=20)], rows)


def _endnotes(ledger: Ledger, operations: DataTable | None, *, verbose: bool) -> Iterator[Part]:
    """Hidden columns and rows, letters, and the convention of the numbers."""
    if operations:
        yield HiddenColumns(operations)
        if verbose and (moves := sum(row.only_moves for row in ledger.rows)):
            what = (
                "1 operation that only moves or masks" if moves == 1 else f"{moves} operations that only move or mask"
            )
            yield line(f"hidden: {what} data (0 FLOPs); csv and json list them", "dim")
        shown = [text for row in ledger.rows for text in (order_cell(row), row.reads) if text]
        if letters := letters_text(shown):
            yield line(f"letters: {letters}", "dim")
    yield line(CONVENTION, "dim")
    if operations and any(row.seconds for row in ledger.rows):
        yield line(rates_text(ledger), "dim")


def _notes(ledger: Ledger) -> Iterator[str]:
    yield from () if ledger.speculation is None else ledger.speculation.notes
    if active_params(ledger):
        yield (
            "active parameters: those that one token uses; only its own experts, but whole embeddings, routers and "
            "heads"
        )
    yield from ledger.metadata.notes
    if ledger.metadata.published_left_out:
        yield (
            "published figures are not shown: they apply to one forward pass of the spec as written, at its own "
            "size, batch 1"
        )


class Totals(msgspec.Struct, frozen=True):
    """What cells need of the whole ledger."""

    macs: int
    bytes_per_element: int
    differing: frozenset[str] | None
    """Paths of rows whose trace differs; None without a trace."""
    seconds: float = 0.0
    """Those that the rows' are shares of."""
    trained: bool = False
    peak: float | None = None
    """The machine's calibrated peak, FLOP/s."""
    bounds: dict[str, RowBound] = {}
    """Path of a row -> its bound on the devices of `--on`."""


class OperationColumn(NamedTuple):
    """One column of the operations table; on a narrow screen the lowest ranks are hidden first."""

    title: str
    width: int
    rank: int
    cell: Callable[[Operation, Totals], str]
    right: bool = True


def share_cell(row: Operation, total: int) -> str:
    """The share of its blocks in the `total` MACs of the model."""
    if not row.macs:
        return units.DASH
    text = units.percent(row.times_over("macs") or 0, total)
    return "100 %" if text == "100.0 %" else text  # seven characters don't fit its column


def _nonzero(value: int) -> str:
    return units.count(value) if value else units.DASH


def _bytes(value: int) -> str:
    return units.size(value, 3) if value else units.DASH


def _tokens(value: int | None) -> str:
    return units.DASH if value is None else str(value)


def _share_of_time(row: Operation, totals: Totals) -> str:
    return units.percent(row.times_over("seconds") or 0, totals.seconds) if row.seconds else units.DASH


def _per_second(row: Operation, totals: Totals, rate: str) -> str:
    value = row_rates(row, trained=totals.trained)[rate]
    return units.count(value, 3) if value else units.DASH


def _of_peak(row: Operation, totals: Totals) -> str:
    share = row_rates(row, trained=totals.trained, peak=totals.peak).get(OF_PEAK)
    return units.percent(share, 1) if share else units.DASH


def _shapes(row: Operation) -> str:
    """The shape of the first output of an ATen operation."""
    shapes = row.figure("output_shapes")
    return str(shapes).partition(",")[0] if shapes else units.DASH


def _operator(row: Operation) -> str:
    """The name of what ran, ATen's without saying so."""
    return (row.figure("aten") or units.DASH).removeprefix("aten::")


def order_cell(row: Operation) -> str:
    """The order of its work; parameters have their own column."""
    if row.order is None or not (row.flops or row.comparisons):
        return units.DASH
    return row.order.removesuffix(" comparisons")


def _intensity(row: Operation, totals: Totals) -> str:
    found = totals.bounds.get(row.path)
    return units.DASH if found is None else f"{found.intensity:,.3g}"


def _bound(row: Operation, totals: Totals) -> str:
    """What the operation waits for on the devices: memory below the ridge point, else arithmetic."""
    found = totals.bounds.get(row.path)
    return units.DASH if found is None else found.roofline_bound.removesuffix("-bound")


def _agreement(row: Operation, totals: Totals) -> str:
    if totals.differing is None:
        return units.DASH
    return "≠" if row.path in totals.differing else "="


# Of the column of names, and the lines that a name takes at most in one of them.
_NAME_WIDTHS: Final = (24, 28, 32, 40)
_NAME_LINES: Final = 2
COLUMNS: Final = (
    OperationColumn("operation", _NAME_WIDTHS[0], 9, lambda row, totals: row.title, right=False),
    OperationColumn(
        "mixing", 9, 9, lambda row, totals: units.DASH if row.mixing == "unknown" else row.mixing, right=False
    ),
    OperationColumn("order", 11, 7, lambda row, totals: order_cell(row), right=False),
    OperationColumn("reads", 5, 3, lambda row, totals: row.reads or units.DASH, right=False),
    OperationColumn("computed", 8, 9, lambda row, totals: _tokens(row.figure("computed_tokens"))),
    OperationColumn("kept", 5, 9, lambda row, totals: _tokens(row.figure("kept_tokens"))),
    OperationColumn("output", 16, 6, lambda row, totals: _shapes(row), right=False),
    OperationColumn("operator", 18, 5, lambda row, totals: _operator(row), right=False),
    OperationColumn("calls", 5, 3, lambda row, totals: units.count(row.figure("calls"))),
    OperationColumn("params", 7, 8, lambda row, totals: _nonzero(row.params)),
    OperationColumn("active", 7, 8, lambda row, totals: _nonzero(row.active_params)),
    OperationColumn("MACs", 7, 9, lambda row, totals: "?" if row.figure("uncounted") else _nonzero(row.macs)),
    OperationColumn("backward", 8, 8, lambda row, totals: _nonzero(row.backward_macs or 0)),
    OperationColumn("saved", 8, 4, lambda row, totals: _bytes(row.figure("kept_bytes") or 0)),
    OperationColumn("FLOPs", 7, 2, lambda row, totals: _nonzero(row.flops)),
    OperationColumn("compares", 8, 1, lambda row, totals: _nonzero(row.comparisons)),
    OperationColumn("moved", 8, 0, lambda row, totals: _bytes(row.moved * totals.bytes_per_element)),
    OperationColumn("traffic", 8, 8, lambda row, totals: units.size(row.figure("plain_traffic_bytes"), 3)),
    OperationColumn("tiled", 8, 8, lambda row, totals: units.size(row.figure("tiled_traffic_bytes"), 3)),
    OperationColumn("share", 6, 6, lambda row, totals: share_cell(row, totals.macs)),
    OperationColumn("predicted", 9, 8, lambda row, totals: units.seconds(row.predicted_seconds)),
    OperationColumn("time", 8, 8, lambda row, totals: units.seconds(row.seconds)),
    OperationColumn("of time", 7, 8, _share_of_time),
    OperationColumn("FLOP/s", 7, 7, lambda row, totals: _per_second(row, totals, "flops_per_second")),
    OperationColumn("of peak", 7, 6, _of_peak),
    OperationColumn("bytes/s", 7, 3, lambda row, totals: _per_second(row, totals, "bytes_per_second")),
    OperationColumn("FLOP/B", 6, 5, _intensity),
    OperationColumn("bound", 7, 8, _bound, right=False),
    OperationColumn("trace", 5, 4, _agreement),
)


def operations_table(ledger: Ledger, *, whole: Ledger, verbose: bool = False) -> DataTable:
    """The operations of each block under its name, with shares of the `whole`; what only moves data is left out."""
    columns, totals = filled_columns(ledger, verbose=verbose), _totals(whole)
    cells: list[list[str]] = []
    styles: list[str] = []
    sections: dict[int, str] = {}
    for block, rows in ledger.by("block").items():
        if shown := [row for row in rows if not row.only_moves]:
            sections[len(cells)] = f"{block} ×{rows[0].times}" if rows[0].times > 1 else block
            cells += [[column.cell(row, totals) for column in columns] for row in shown]
            styles += [TERMINAL[row.mixing] for row in shown]
    if beside := beside_rows(ledger):
        sections[len(cells)] = "beside the operations"
        cells += [[_beside(column.title, *one, totals) for column in columns] for one in beside.items()]
        styles += [""] * len(beside)
    widths = {one.title: one.width for one in columns} | {"operation": _name_width(ledger)}
    typed = [
        TableColumn(one.title, one.right, 0 if one.right else wide, one.rank, width=wide)
        for one, wide in ((one, widths[one.title]) for one in columns)
    ]
    return DataTable(typed, cells, styles, sections=sections, gap=1, hidden=False)


def _name_width(ledger: Ledger) -> int:
    """The least width at which no name of a module's row takes more than two lines, if one is; a spec's are short."""
    titles = {row.title for row in ledger.rows if row.ran is not None and not row.only_moves}
    fitting = (wide for wide in _NAME_WIDTHS if all(lines_needed(title, wide) <= _NAME_LINES for title in titles))
    return next(fitting, _NAME_WIDTHS[-1])


def _beside(column: str, name: str, spent: dict[str, float], totals: Totals) -> str:
    """A cell of seconds that no operation accounts for."""
    seconds = spent.get("seconds")
    cells = {"operation": beside_word(name, seconds), "predicted": units.seconds(spent.get("predicted_seconds"))}
    if seconds is not None:
        cells |= {"time": units.seconds(seconds), "of time": time_share(seconds, totals.seconds)}
    return cells.get(column, units.DASH)


def _totals(ledger: Ledger) -> Totals:
    differing = None if ledger.agreement is None else ledger.agreement.differing(ledger.rows)
    seconds = ledger.timing.share_base if ledger.timing else 0.0
    macs, trained = ledger.total("macs") or 0, ledger.training is not None
    return Totals(macs, ledger.bytes_per_element, differing, seconds, trained, peak_of(ledger), row_bounds(ledger))


def filled_columns(ledger: Ledger, *, verbose: bool = False) -> list[OperationColumn]:
    """The columns in which some row has a value; with `verbose` also what masks keep of what is computed."""
    ran = ledger.metadata.inputs is not None
    timed, bounded = any(row.seconds for row in ledger.rows), bool(row_bounds(ledger))
    filled = {
        "mixing": ledger.has_kinds,
        "order": not ran or any(row.order is not None for row in ledger.rows),
        "reads": not ran or any(row.reads is not None for row in ledger.rows),
        "computed": verbose and any(row.figure("computed_tokens") is not None for row in ledger.rows),
        "kept": verbose and any(row.figure("kept_tokens") is not None for row in ledger.rows),
        "output": ran,
        "operator": verbose and ran,
        "calls": any((row.figure("calls") or 1) > 1 for row in ledger.rows),
        "traffic": ledger.metadata.memory_level is not None,
        "tiled": ledger.metadata.memory_level is not None,
        "compares": ledger.total("comparisons"),
        "moved": any(row.moved for row in ledger.rows if not row.only_moves),
        "active": any(row.idle_params for row in ledger.rows),
        "predicted": ledger.prediction is not None,
        "time": timed,
        "of time": timed,
        "FLOP/s": timed,
        "of peak": timed and peak_of(ledger) is not None,
        "bytes/s": any(row.seconds and row.operand_bytes for row in ledger.rows),
        "FLOP/B": bounded,
        "bound": bounded,
        "backward": ledger.training is not None,
        "saved": ledger.total("kept_bytes"),
        # the agreement of a generation is that of passes; its rows, which are sums over passes, have no trace
        "trace": ledger.agreement and ledger.agreement.accounts and not ledger.generation,
    }
    return [column for column in COLUMNS if filled.get(column.title, True)]


# Kinds of blocks that are listed; more of them would fill the screen.
_MOST_BLOCKS: Final = 3


def memory_text(ledger: Ledger) -> TextLines:
    """Bytes of attention matrices: per head, per layer; in all layers and at the peak where the header has neither."""
    memory, metadata = ledger.attention_memory(), ledger.metadata
    if not memory["peak"]:
        return line("attention matrices: none", "bold")
    parts = [f"{units.size(memory['per_head'])} per head"]
    if ledger.step is None:  # a decode step is never trained
        parts += [f"{units.size(memory['per_layer'])} per layer (the largest)"]
    if not list(memory_answers(ledger)):
        parts += [] if ledger.step else [all_layers(ledger)]
        parts += [at_once(ledger)]
    batch = f", batch {metadata.batch}" if metadata.batch_known else ""
    text = line(", ".join(parts), head=f"{_held(ledger)}{batch}: ")
    if metadata.extra_tokens:
        several = "s" if metadata.extra_tokens > 1 else ""
        text = line(f"{text.texts[0]}; with {metadata.extra_tokens} special token{several}", head=text.head)
    return text


# A smaller share of the memory is no figure of a report.
_VISIBLE: Final = 0.001


def _few_statistics(ledger: Ledger) -> bool:
    """Are the statistics of fused attention next to nothing beside the memory of a run with a cache, or on devices?"""
    if ledger.on is None and ledger.cache is None:
        return False
    whole = ledger.held_bytes + (0 if ledger.cache is None else ledger.cache.bytes)
    fused = not any(row.matrix is not None and row.matrix.entries for row in ledger.rows)
    return fused and 0 < ledger.attention_memory()["peak"] < _VISIBLE * whole


def _held(ledger: Ledger) -> str:
    """What is held: matrices, or a number per query where a fused kernel runs, or both where only some are fused."""
    matrices = [row.matrix for row in ledger.rows if row.matrix is not None]
    dtype = units.stored_in(ledger.metadata.dtype)
    statistics_dtype = "float64" if dtype == "float64" else "float32"
    if not any(matrix.statistics for matrix in matrices):
        return f"attention matrices, {dtype}"
    if any(matrix.entries for matrix in matrices):
        return f"attention matrices, {dtype}, and {statistics_dtype} statistics where fused"
    return f"attention statistics (fused: no matrix is stored), {statistics_dtype}"


def traffic_texts(ledger: Ledger, *, verbose: bool) -> Iterator[TextLines]:
    """Comparisons; with `verbose` bytes that are only moved and that experts read; traffic, with a memory level."""
    if comparisons := ledger.total("comparisons"):
        what = "sorting, choosing; neither MACs nor FLOPs"
        yield line(f"{units.exact(comparisons)} ({what})", head="comparisons: ")
    if verbose and (moved := ledger.total("moved")):
        by = "gathers, scatters, rolls, pads, concatenations, look-ups"
        yield line(f"{units.size(moved * ledger.bytes_per_element)} written by {by}", head="data moved: ")
    if verbose:
        yield from experts_texts(ledger)
    if ledger.metadata.memory_level is not None:
        level = units.size(ledger.metadata.memory_level)
        plain, tiled = (units.size(ledger.total(f"{how}_traffic_bytes")) for how in ("plain", "tiled"))
        yield line(
            f"{plain} with every matrix stored, {tiled} tiled for {level} on chip (FlashAttention, Dao et al. 2022, "
            "algorithms 0 and 1)",
            head="main-memory traffic of attention: ",
        )


def mask_texts(ledger: Ledger) -> Iterator[TextLines]:
    """The share of the computed scores that masks keep; nothing where they keep all."""
    scores = ledger.scores()
    if scores.kept < scores.computed:
        masks = "the causal mask keeps" if scores.causal else "masks keep"
        yield line(
            f"{masks} {units.percent(scores.kept, scores.computed)} of scores ({units.count(scores.kept)} of "
            f"{units.count(scores.computed)}); MACs count the dense matmul",
            head="masks: ",
        )


def matrix_multiply_texts(ledger: Ledger) -> Iterator[TextLines]:
    """One line per kind of block: its matrix multiplies in the order they run, sub-layer by sub-layer."""
    blocks = list(matrix_multiplies(ledger))
    if len(blocks) > _MOST_BLOCKS:
        return
    for block in blocks:
        total = f"{block.number} = " if len(block.sublayers) > 1 else ""
        name = f" ({block.block})" if len(blocks) > 1 else ""
        parts = " + ".join(f"{one.number} ({' · '.join(one.titles)})" for one in block.sublayers)
        yield line(f" of a block{name}: {total}{parts}", head="matrix multiplies")


# ── in papers ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _paper_parts(  # noqa: PLR0913 - options
    whole: Ledger, ledger: Ledger, by: AnyView | None, form: Format, depth: int | None, order: Order | None,
    only: Sequence[str],
) -> Iterator[Part]:  # fmt: skip
    """Of groups the totals over all blocks, of operations those of one block; in LaTeX under the names of blocks.

    `ledger` has those rows of the `whole` that are listed.
    """
    yield preamble([whole])
    if only:
        yield filter_text(whole, ledger, only)
    if (rounds := speculation_table(ledger)) is not None:
        yield rounds
    backward = ["backward_macs"] if ledger.training else []
    trace = ["traced_macs"] if form == "markdown" or ledger.agreement is not None else []
    heads = {QUANTITIES[name].head: name for name in ("params", "macs", *backward, "flops", *trace)}
    if order is not None:
        yield groups_table(ledger, by, depth, order, whole=whole)
    elif by:
        # the module that all others are in has no path, and the name of the ledger
        groups = grouped(ledger, by, depth)
        rows = [
            [str(group[by] or ledger.metadata.name), *(units.count(group[name]) for name in heads.values())]
            for group in (distinct_modules(groups) if by == "module" else groups)
        ]
        yield DataTable(numbers(by, *heads), rows)
    elif form == "latex":
        yield _latex_operations(ledger, heads, whole.total("macs") or 0)
    else:
        heads = dict(sorted(heads.items(), key=lambda one: one[1] == "backward_macs"))  # behind the others
        words = ("block", "operation", "mixing", "order", "reads", "times")
        rows = [
            [row.block, row.title, *_mixing_cells(row), str(row.times)]
            + [units.count(row.figure(name)) for name in heads.values()]
            for row in ledger.rows
        ]
        yield DataTable([TableColumn(head) for head in (*words, *heads)], rows)


def preamble(ledgers: Sequence[Ledger]) -> TextLines:
    """Names, runs and totals above a table."""
    texts = []
    for ledger in ledgers:
        run = circumstances(ledger.metadata).replace("\n", "   ")
        texts.append(f"{ledger.metadata.name}: {run}; {params_text(ledger)}   {work_text(ledger)}")
        texts += [
            text.plain
            for text in (*fit_texts(ledger), *weights_texts(ledger), *time_texts(ledger), *speculation_texts(ledger))
        ]
    return TextLines([*texts, CONVENTION])


def _mixing_cells(row: Operation) -> list[str]:
    mixing = units.DASH if row.mixing == "unknown" else row.mixing
    return [mixing, row.order or units.DASH, row.reads or units.DASH]


def _latex_operations(ledger: Ledger, heads: Mapping[str, str], macs: int) -> DataTable:
    """With shares of the model's `macs`. Neighbouring blocks with the same rows are one, and moves are left out."""
    blocks = []
    for block, rows in ledger.by("block").items():
        cells = [
            [
                *(row.title, *_mixing_cells(row)),
                *(units.count(row.figure(name) or None) for name in heads.values()),
                share_cell(row, macs),
            ]
            for row in rows
            if not row.only_moves
        ]
        if cells:
            blocks.append((f"{block} ×{rows[0].times}" if rows[0].times > 1 else block, cells))
    listed: list[list[str]] = []
    sections: dict[int, str] = {}
    for cells, alike in groupby(blocks, key=lambda block: block[1]):
        *first, last = [label for label, _ in alike]
        sections[len(listed)] = f"{', '.join(first)} and {last}" if first else last
        listed += cells
    columns = [TableColumn("operation", kind="title"), TableColumn("mixing")]
    columns += [TableColumn("order", kind="formula"), TableColumn("reads", kind="formula")]
    totals, own = [units.count(ledger.total(name)) for name in heads.values()], ledger.total("macs") or 0
    return DataTable(
        [*columns, *(TableColumn(head, right=True) for head in (*heads, "share"))],
        listed,
        sections=sections,
        total=["total", "", "", "", *totals, "100 %" if own == macs else units.percent(own, macs)],
    )


class SubLayerMultiplies(msgspec.Struct, frozen=True):
    """The matrix multiplies of one sub-layer."""

    number: int
    titles: tuple[str, ...]


class BlockMultiplies(msgspec.Struct, frozen=True):
    """The matrix multiplies of one block; sub-layers that multiply no matrices are left out."""

    block: str
    sublayers: tuple[SubLayerMultiplies, ...]

    @property
    def number(self) -> int:
        """Those of all its sub-layers."""
        return sum(sublayer.number for sublayer in self.sublayers)


def matrix_multiplies(ledger: Ledger) -> Iterator[BlockMultiplies]:
    """Every kind of block that multiplies matrices, in the order of the rows; no stem and no head."""
    for name, rows in ledger.by("block").items():
        groups: dict[str, list[Operation]] = {}
        for row in rows:
            if row.macs and row.in_block:
                groups.setdefault(row.component, []).append(row)
        if groups:
            # a grouped convolution is one; a fused kernel is two, QKᵀ and AV
            counted = (
                SubLayerMultiplies(sum(2 if row.fused else 1 for row in several), tuple(row.title for row in several))
                for several in groups.values()
            )
            yield BlockMultiplies(name, tuple(counted))
