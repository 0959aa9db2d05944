"""The report of `analyze` as rich text: the answer, the operations, totals by mixing kind, notes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from xfcost.ledger import units
from xfcost.ledger.achieved import NOT_ATTRIBUTED, OF_PEAK, peak_of, whole_of_peak
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.objects import AnyView, grouped
from xfcost.report.console import bare_table, note_texts, plain_text
from xfcost.report.costs import mask_texts, matrix_multiply_texts, memory_text, traffic_texts
from xfcost.report.decoding import generation_table
from xfcost.report.header import active_params, header
from xfcost.report.input_description import default_notes
from xfcost.report.operations import beside_word, filled_columns, fitting_columns, operation_tables, order_cell
from xfcost.report.prediction import prediction_texts
from xfcost.report.probe import probe_parts
from xfcost.report.style import TERMINAL, WORDS, letters_text
from xfcost.report.timing import rates_text, timing_texts
from xfcost.report.training import training_parts
from xfcost.report.training_plan import plan_parts

CONVENTION: Final = "1 MAC = 1 multiply-add of the dense matmul; FLOPs = 2·MACs + element-wise"


def ledger_plain(ledger: Ledger, by: AnyView | None = None, *, verbose: bool = False, depth: int | None = None) -> str:
    """The report of `analyze` as text without colour, 100 columns wide."""
    return plain_text(lambda width: report(ledger, by, width, verbose=verbose, depth=depth))


def report(ledger: Ledger, by: AnyView | None, width: int, *, verbose: bool = False, depth: int | None = None) -> Group:
    """The answer first, then the tables, then the notes, with `verbose` all; a tree of modules goes down to `depth`."""
    parts: list[RenderableType] = [*header(ledger), Text()]
    parts += [groups_table(ledger, by, depth)] if by else list(operation_tables(ledger, width, verbose=verbose))
    parts += [Text(), mixing_table(ledger)] if _kinds_known(ledger) else []
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


def _kinds_known(ledger: Ledger) -> bool:
    """Is the mixing kind of any operation known?"""
    return any(row.mixing != "unknown" for row in ledger.rows) or ledger.module is None


def mixing_table(ledger: Ledger) -> Table:
    """Totals by mixing kind."""
    groups = [(_kind_word(group), group, TERMINAL.get(group["mixing"], "")) for group in _groups(ledger, "mixing")]
    total: dict[str, Any] = dict(ledger.totals())
    total |= {"seconds": ledger.timing.seconds} | whole_of_peak(ledger) if ledger.timing else {}
    total |= {"predicted_seconds": ledger.prediction.seconds} if ledger.prediction else {}
    return _totals_table("totals by mixing kind", [*groups, ("all", total, "bold")], {"flops": "FLOPs"}, ledger)


def _kind_word(group: Mapping[str, Any]) -> str:
    """`local mixing`; the rows beside the kinds are named by themselves."""
    kind = group["mixing"]
    return WORDS[kind] if kind in WORDS else beside_word(kind, group.get("seconds"))


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
            reached = [_share_text(figures[OF_PEAK])] if peak else []
            others = [units.seconds(spent), part, *reached, *others]
        if predicted:
            others = [units.seconds(figures["predicted_seconds"]), *others]
        table.add_row(words, params, own, share, *others, style=style)
    return table


def _share_text(share: float | None) -> str:
    return units.DASH if share is None else units.percent(share, 1)


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
