"""The report of `analyze` as rich text: the answer, the operations, totals by mixing kind, notes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from xfcost.ledger import units
from xfcost.ledger.accounts import RUN
from xfcost.ledger.achieved import NOT_ATTRIBUTED, OF_PEAK, beside_rows, peak_of, row_rates, whole_of_peak
from xfcost.ledger.least_work import RowBound, row_bounds
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.matrix_multiplies import matrix_multiplies
from xfcost.ledger.objects import AnyView, grouped
from xfcost.ledger.operation import Operation
from xfcost.report.console import Aligned, AlignedRow, bare_table, note_texts, plain_text
from xfcost.report.decoding import generation_table
from xfcost.report.document import TableColumn, fitting
from xfcost.report.header import active_params, header
from xfcost.report.input_description import default_notes
from xfcost.report.probe import probe_parts
from xfcost.report.style import TERMINAL, WORDS, letters_text
from xfcost.report.timing import prediction_texts, rates_text, timing_texts
from xfcost.report.training import plan_parts, training_parts

CONVENTION: Final = "1 MAC = 1 multiply-add of the dense matmul; FLOPs = 2·MACs + element-wise"


def ledger_plain(ledger: Ledger, by: AnyView | None = None, *, verbose: bool = False, depth: int | None = None) -> str:
    """The report of `analyze` as text without colour, 100 columns wide."""
    return plain_text(lambda width: report(ledger, by, width, verbose=verbose, depth=depth))


def report(ledger: Ledger, by: AnyView | None, width: int, *, verbose: bool = False, depth: int | None = None) -> Group:
    """The answer first, then the tables, then the notes, with `verbose` all; a tree of modules goes down to `depth`."""
    parts: list[RenderableType] = [*header(ledger), Text()]
    known = any(row.mixing != "unknown" for row in ledger.rows) or ledger.module is None
    parts += [groups_table(ledger, by, depth)] if by else list(operation_tables(ledger, width, verbose=verbose))
    parts += [Text(), mixing_table(ledger)] if known else []
    parts += [Text(), memory_text(ledger)]
    parts += [*traffic_texts(ledger, verbose=verbose), *mask_texts(ledger), *matrix_multiply_texts(ledger)]
    if ledger.generation is not None:
        parts += [Text(), generation_table(ledger.generation)]
    parts += [*plan_parts(ledger), *training_parts(ledger)]
    parts += probe_parts(ledger)
    if published := ledger.published_beside_ours():
        parts += [Text(), published_table(published)]
    parts += [Text(), *endnotes(ledger, listed=by is None, width=width, verbose=verbose)]
    return Group(*parts)


def groups_table(ledger: Ledger, by: AnyView, depth: int | None = None) -> Table:
    """Totals of `--by operation|block|stage|mixing|module`, over all blocks; modules as a tree, with what is inside."""
    shown = {"flops": "FLOPs", "attention_entries": "attention entries", "traced_macs": "traced MACs"}
    if ledger.prediction is not None or any(row.seconds for row in ledger.rows):
        # seconds take the room of what is in csv and json as well
        shown = {"flops": "FLOPs"}
    shown |= ({"cached": "cached"} if ledger.step else {}) | (
        {"backward_macs": "backward MACs"} if ledger.training else {}
    )
    lines = [
        (_group_name(ledger, by, group), group, TERMINAL.get(group[by], "") if by == "mixing" else "")
        for group in _groups(ledger, by, depth)
    ]
    return _totals_table(by, lines, shown, ledger)


def _groups(ledger: Ledger, by: AnyView, depth: int | None = None) -> list[dict[str, Any]]:
    """The groups; of predicted ones also the seconds that no row accounts for."""
    groups = grouped(ledger, by, depth)
    if ledger.prediction is None or not groups or "predicted_seconds" not in groups[0]:
        return groups
    rest: dict[str, Any] = {"predicted_seconds": ledger.prediction.not_attributed}
    if groups[-1][by] == NOT_ATTRIBUTED:  # it is timed too
        return [*groups[:-1], groups[-1] | rest]
    return [*groups, dict.fromkeys(groups[0]) | {by: NOT_ATTRIBUTED} | rest]


def _group_name(ledger: Ledger, by: AnyView, group: Mapping[str, Any]) -> str:
    if by != "module":
        return beside_word(str(group[by]), group.get("seconds"))
    path = beside_word(str(group["module"]), group.get("seconds"))
    name = path.rpartition(".")[2] or ledger.metadata.name
    return "  " * int(group["depth"]) + name


def mixing_table(ledger: Ledger) -> Table:
    """Totals by mixing kind."""
    groups = [
        (WORDS.get(kind := group["mixing"]) or beside_word(kind, group.get("seconds")), group, TERMINAL.get(kind, ""))
        for group in _groups(ledger, "mixing")
    ]
    total: dict[str, Any] = dict(ledger.totals())
    total |= {"seconds": ledger.timing.seconds} | whole_of_peak(ledger) if ledger.timing else {}
    total |= {"predicted_seconds": ledger.prediction.seconds} if ledger.prediction else {}
    return _totals_table("totals by mixing kind", [*groups, ("all", total, "bold")], {"flops": "FLOPs"}, ledger)


def _totals_table(first: str, lines: Sequence[tuple[str, Any, str]], more: Mapping[str, str], ledger: Ledger) -> Table:
    """A line per group (its words, figures and style): parameters, MACs, their share, and `more`; seconds if timed."""
    macs, timing = ledger.total("macs") or 0, ledger.timing
    timed = timing is not None and any("seconds" in figures for _, figures, _ in lines[:1])
    predicted = ledger.prediction is not None and any("predicted_seconds" in figures for _, figures, _ in lines[:1])
    peak = timed and peak_of(ledger) is not None
    times = ("time", "of time", *(("of peak",) if peak else ())) if timed else ()
    heads = [*(("predicted",) if predicted else ()), *times]
    table = bare_table(first, "params", "MACs", "share", *heads, *more.values())
    for words, figures, style in lines:
        params, own, *others = (units.count(figures[quantity]) for quantity in ("params", "macs", *more))
        share = units.DASH if figures["macs"] is None else units.percent(figures["macs"], macs)
        if timing is not None and timed:
            spent = figures["seconds"]
            part = units.DASH if spent is None else units.percent(spent, timing.seconds)
            reached = [units.DASH if figures[OF_PEAK] is None else units.percent(figures[OF_PEAK], 1)] if peak else []
            others = [units.seconds(spent), part, *reached, *others]
        if predicted:
            others = [units.seconds(figures["predicted_seconds"]), *others]
        table.add_row(words, params, own, share, *others, style=style)
    return table


def published_table(published: list[dict[str, Any]]) -> Table:
    """Figures in print beside ours."""
    table = bare_table("published", "theirs", "ours", "difference")
    table.add_column("source", overflow="fold")
    for figure in published:
        theirs, ours, difference = (figure[key] for key in ("published", "ours", "difference"))
        words = [str(figure[key]) for key in ("source", "convention", "note") if figure.get(key)]
        table.add_row(
            str(figure["quantity"]), units.count(theirs), units.count(ours), f"{difference:+.2%}", "; ".join(words)
        )
    return table


def endnotes(ledger: Ledger, *, listed: bool, width: int, verbose: bool) -> Iterator[Text]:
    """Time, notes, letters, hidden columns and rows, and the convention of the numbers."""
    yield from prediction_texts(ledger)
    yield from timing_texts(ledger)
    yield from note_texts(default_notes([ledger.metadata]), verbose=verbose)
    yield from note_texts(_notes(ledger), verbose=verbose)
    each = ""
    if listed:
        fitting = fitting_columns(ledger, width, verbose=verbose)
        if hidden := [column.title for column in filled_columns(ledger, verbose=verbose) if column not in fitting]:
            yield Text(f"hidden at this width: {', '.join(hidden)}", style="dim")
        if verbose and (moves := sum(row.only_moves for row in ledger.rows)):
            what = (
                "1 operation that only moves or masks" if moves == 1 else f"{moves} operations that only move or mask"
            )
            yield Text(f"hidden: {what} data (0 FLOPs); csv and json list them", style="dim")
        shown = [text for row in ledger.rows for text in (order_cell(row), row.reads) if text]
        if letters := letters_text(shown):
            yield Text(f"letters: {letters}", style="dim")
        saved = "saved is of all blocks, " if ledger.total("kept_bytes") else ""
        each = f"operations are per block, {saved}share is of the model's MACs; "
    yield Text(f"{each}{CONVENTION}", style="dim")
    if listed and any(row.seconds for row in ledger.rows):
        yield Text(rates_text(ledger), style="dim")


def _notes(ledger: Ledger) -> Iterator[str]:
    if active_params(ledger):
        yield "active parameters: those that one token uses; of experts its own, embeddings, routers and heads whole"
    yield from ledger.metadata.notes
    if ledger.metadata.published_left_out:
        yield "published figures are left out: they are of one forward of the spec as written, at its own size, batch 1"


class Totals(msgspec.Struct, frozen=True):
    """What cells need of the whole ledger."""

    macs: int
    bytes_per_element: int
    differing: frozenset[str] | None
    """Paths of rows whose trace differs; None without a trace."""
    seconds: float = 0.0
    """Of the whole run."""
    trained: bool = False
    peak: float | None = None
    """The machine's calibrated peak, FLOP/s."""
    bounds: dict[str, RowBound] = {}
    """Path of a row -> its bound on the devices of `--on`."""


# Columns that the narrowest table has.
_LEAST_COLUMNS: Final = 4


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


COLUMNS: Final = (
    OperationColumn("operation", 24, 9, lambda row, totals: row.title, right=False),
    OperationColumn(
        "mixing", 9, 9, lambda row, totals: units.DASH if row.mixing == "unknown" else row.mixing, right=False
    ),
    OperationColumn("order", 11, 7, lambda row, totals: order_cell(row), right=False),
    OperationColumn("reads", 5, 2, lambda row, totals: row.reads or units.DASH, right=False),
    OperationColumn("computed", 8, 9, lambda row, totals: _tokens(row.figure("computed_tokens"))),
    OperationColumn("kept", 5, 9, lambda row, totals: _tokens(row.figure("kept_tokens"))),
    OperationColumn("output", 16, 6, lambda row, totals: _shapes(row), right=False),
    OperationColumn("calls", 5, 3, lambda row, totals: units.count(row.figure("calls"))),
    OperationColumn("params", 7, 8, lambda row, totals: _nonzero(row.params)),
    OperationColumn("active", 7, 8, lambda row, totals: _nonzero(row.active_params)),
    OperationColumn("MACs", 7, 9, lambda row, totals: "?" if row.figure("uncounted") else _nonzero(row.macs)),
    OperationColumn("backward", 8, 8, lambda row, totals: _nonzero(row.backward_macs or 0)),
    OperationColumn("saved", 8, 4, lambda row, totals: _bytes(row.figure("kept_bytes") or 0)),
    OperationColumn("FLOPs", 7, 1, lambda row, totals: _nonzero(row.flops)),
    OperationColumn("compares", 8, 3, lambda row, totals: _nonzero(row.comparisons)),
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


def operation_tables(ledger: Ledger, width: int, *, verbose: bool = False) -> Iterator[RenderableType]:
    """One table per block under its name, columns aligned throughout; operations that only move data are left out."""
    columns, totals = fitting_columns(ledger, width, verbose=verbose), _totals(ledger)
    grid = partial(Aligned, [column.width for column in columns], [column.right for column in columns])
    yield grid([AlignedRow([column.title for column in columns], "bold")])
    for block, rows in ledger.by("block").items():
        shown = [row for row in rows if not row.only_moves]
        if not shown:
            continue
        times = f" ×{rows[0].times}" if rows[0].times > 1 else ""
        yield Text(f"{block}{times}", style="bold")
        yield grid(
            [AlignedRow([column.cell(row, totals) for column in columns], TERMINAL[row.mixing]) for row in shown]
        )
    if beside := beside_rows(ledger):
        yield Text("beside the operations", style="bold")
        yield grid(
            [AlignedRow([_beside(column.title, *one, totals) for column in columns], "") for one in beside.items()]
        )


def beside_word(name: str, seconds: float | None) -> str:
    """The name of a row; what is not attributed is the overhead of measuring where the operations add up to more."""
    return "measuring overhead" if name == NOT_ATTRIBUTED and (seconds or 0) < 0 else name


def _beside(column: str, name: str, spent: dict[str, float], totals: Totals) -> str:
    """A cell of seconds that no operation accounts for."""
    seconds = spent.get("seconds")
    cells = {"operation": beside_word(name, seconds), "predicted": units.seconds(spent.get("predicted_seconds"))}
    if seconds is not None:
        cells |= {"time": units.seconds(seconds), "of time": units.percent(seconds, totals.seconds)}
    return cells.get(column, units.DASH)


def _totals(ledger: Ledger) -> Totals:
    agreement = ledger.agreement
    differing = None if agreement is None else frozenset(str(one["path"]) for one in agreement.differences)
    if ledger.module is not None:  # its differences are of modules, not of rows; parameters alone have no trace
        differing = frozenset(
            row.path
            for row in ledger.rows
            if row.ran is not None and any(row.figure(f"traced_{name}") != getattr(row, name) for name in RUN)
        )
    seconds = ledger.timing.seconds if ledger.timing else 0.0
    macs, trained = ledger.total("macs") or 0, ledger.training is not None
    return Totals(macs, ledger.bytes_per_element, differing, seconds, trained, peak_of(ledger), row_bounds(ledger))


def fitting_columns(ledger: Ledger, width: int, *, verbose: bool = False) -> list[OperationColumn]:
    """The columns that have values, the lowest ranks hidden until they fit."""
    columns = filled_columns(ledger, verbose=verbose)
    typed = [TableColumn(column.title, rank=column.rank) for column in columns]
    # the rows are indented by two, and a blank follows every column
    places = fitting(typed, [column.width for column in columns], width - 3, gap=1, least=_LEAST_COLUMNS)
    return [columns[place] for place in places]


def filled_columns(ledger: Ledger, *, verbose: bool = False) -> list[OperationColumn]:
    """The columns in which some row has a value; with `verbose` also what masks keep of what is computed."""
    module = ledger.module is not None
    timed, bounded = any(row.seconds for row in ledger.rows), bool(row_bounds(ledger))
    filled = {
        "mixing": not module or any(row.mixing != "unknown" for row in ledger.rows),
        "order": not module or any(row.order is not None for row in ledger.rows),
        "reads": not module or any(row.reads is not None for row in ledger.rows),
        "computed": verbose and any(row.figure("computed_tokens") is not None for row in ledger.rows),
        "kept": verbose and any(row.figure("kept_tokens") is not None for row in ledger.rows),
        "output": module,
        "calls": module and any((row.figure("calls") or 1) > 1 for row in ledger.rows),
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
        "trace": ledger.agreement is not None and (not module or ledger.agreement.accounts),
    }
    return [column for column in COLUMNS if filled.get(column.title, True)]


# Kinds of blocks that are listed; more of them would fill the screen.
_MOST_BLOCKS: Final = 3


def memory_text(ledger: Ledger) -> Text:
    """Bytes of attention matrices: of a head, saved for training per layer and in all layers, at the peak."""
    memory, metadata = ledger.attention_memory(), ledger.metadata
    if not memory["peak"]:
        return Text("attention matrices: none", style="bold")
    parts = [f"{units.size(memory['per_head'])} per head"]
    if ledger.step is None:  # a decode step is never trained
        parts += [f"{units.size(memory['per_layer'])} per layer (the largest)", _all_layers(ledger)]
    parts.append(f"{units.size(memory['peak'])} peak (alive at once in inference)")
    text = Text.assemble((f"{_held(ledger)}, batch {metadata.batch}: ", "bold"), ", ".join(parts))
    if metadata.extra_tokens:
        several = "s" if metadata.extra_tokens > 1 else ""
        text.append(f"; with {metadata.extra_tokens} special token{several}")
    return text


def _held(ledger: Ledger) -> str:
    """What is held: matrices, or a number per query where a fused kernel runs, or both where only some are fused."""
    matrices = [row.matrix for row in ledger.rows if row.matrix is not None]
    dtype, statistics_dtype = ledger.metadata.dtype, "float64" if ledger.metadata.dtype == "float64" else "float32"
    if not any(matrix.statistics for matrix in matrices):
        return f"attention matrices, {dtype}"
    if any(matrix.entries for matrix in matrices):
        return f"attention matrices, {dtype}, and {statistics_dtype} statistics where fused"
    return f"attention statistics (fused: no matrix is kept), {statistics_dtype}"


def _all_layers(ledger: Ledger) -> str:
    """`… in all layers (saved for training)`; `64 MiB at a time` where a reversible residual saves less."""
    every, saved = ledger.attention_memory()["all_layers"], ledger.attention_kept_bytes()
    how = "saved for training" if saved == every else f"{units.size(saved)} at a time in training"
    return f"{units.size(every)} in all layers ({how})"


def traffic_texts(ledger: Ledger, *, verbose: bool) -> Iterator[Text]:
    """Comparisons; with `verbose` bytes that are only moved; main-memory traffic, where a memory level is given."""
    if comparisons := ledger.total("comparisons"):
        what = "sorting, choosing; neither MACs nor FLOPs"
        yield Text.assemble(("comparisons: ", "bold"), f"{units.exact(comparisons)} ({what})")
    if verbose and (moved := ledger.total("moved")):
        by = "gathers, scatters, rolls, pads, concatenations, look-ups"
        yield Text.assemble(("data moved: ", "bold"), f"{units.size(moved * ledger.bytes_per_element)} written by {by}")
    if ledger.metadata.memory_level is not None:
        level = units.size(ledger.metadata.memory_level)
        plain, tiled = (units.size(ledger.total(f"{how}_traffic_bytes")) for how in ("plain", "tiled"))
        yield Text.assemble(
            ("main-memory traffic of attention: ", "bold"),
            f"{plain} with every matrix kept, {tiled} tiled for {level} on chip "
            "(FlashAttention, Dao et al. 2022, algorithms 0 and 1)",
        )


def mask_texts(ledger: Ledger) -> Iterator[Text]:
    """The share of the computed scores that masks keep; nothing where they keep all."""
    scores = ledger.scores()
    if scores.kept < scores.computed:
        masks = "the causal mask keeps" if scores.causal else "masks keep"
        yield Text.assemble(
            ("masks: ", "bold"),
            f"{masks} {units.percent(scores.kept, scores.computed)} of scores ({units.count(scores.kept)} of "
            f"{units.count(scores.computed)}); MACs count the dense matmul",
        )


def matrix_multiply_texts(ledger: Ledger) -> Iterator[Text]:
    """One line per kind of block: its matrix multiplies in the order they run, sub-layer by sub-layer."""
    blocks = list(matrix_multiplies(ledger))
    if len(blocks) > _MOST_BLOCKS:
        return
    for block in blocks:
        total = f"{block.number} = " if len(block.sublayers) > 1 else ""
        name = f" ({block.block})" if len(blocks) > 1 else ""
        parts = " + ".join(f"{one.number} ({' · '.join(one.titles)})" for one in block.sublayers)
        yield Text.assemble(("matrix multiplies", "bold"), f" of a block{name}: {total}{parts}")
