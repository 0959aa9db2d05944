"""The report of `analyze` as rich text: the answer, the operations, totals by mixing kind, notes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from xfcost.ledger import units
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.objects import View, grouped
from xfcost.report.agreement import agreement_texts, timing_texts
from xfcost.report.console import bare_table, note_texts, plain_text
from xfcost.report.costs import mask_texts, matrix_multiply_texts, memory_text, traffic_texts
from xfcost.report.decoding import decoding_answers, generation_table
from xfcost.report.input_description import circumstances
from xfcost.report.operations import filled_columns, fitting_columns, operation_tables, order_cell
from xfcost.report.probe import probe_parts
from xfcost.report.style import TERMINAL, WORDS, letters_text
from xfcost.report.training import training_answers, training_parts

CONVENTION: Final = "1 MAC = 1 multiply-add of the dense matmul; FLOPs = 2·MACs + element-wise"


def ledger_plain(ledger: Ledger, by: View | None = None, *, verbose: bool = False) -> str:
    """The report of `analyze` as text without colour, 100 columns wide."""
    return plain_text(lambda width: report(ledger, by, width, verbose=verbose))


def report(ledger: Ledger, by: View | None, width: int, *, verbose: bool = False) -> Group:
    """The answer first, then the tables, then the notes; with `verbose` every note."""
    parts: list[RenderableType] = [header(ledger), Text()]
    parts += [groups_table(ledger, by)] if by else list(operation_tables(ledger, width))
    parts += [Text(), mixing_table(ledger), Text(), memory_text(ledger)]
    parts += [*traffic_texts(ledger, verbose=verbose), *mask_texts(ledger), *matrix_multiply_texts(ledger)]
    if ledger.generation is not None:
        parts += [Text(), generation_table(ledger.generation)]
    parts += training_parts(ledger)
    parts += probe_parts(ledger)
    if published := ledger.published_beside_ours():
        parts += [Text(), published_table(published)]
    parts += [Text(), *endnotes(ledger, listed=by is None, width=width, verbose=verbose)]
    return Group(*parts)


def header(ledger: Ledger) -> Text:
    """Name and run; what the mode asks; parameters, MACs, FLOPs; attention memory; how the accounts agree."""
    metadata = ledger.metadata
    title = Text(metadata.name, style="bold")
    if metadata.paper:
        title.append(f"   {metadata.paper}", style="not bold dim")
    return Text("\n").join([title, Text(circumstances(metadata)), *_answers(ledger), *agreement_texts(ledger)])


def active_params(ledger: Ledger) -> int | None:
    """Parameters that a token uses, where those are not all."""
    active = ledger.total("active_params")
    return None if active == ledger.total("params") else active


def _answers(ledger: Ledger) -> Iterator[Text]:
    yield from training_answers(ledger)
    yield from decoding_answers(ledger)
    yield _totals(ledger)
    memory = ledger.attention_memory()
    if ledger.metadata.mode in ("forward", "prefill") and memory["peak"]:
        yield Text(
            f"attention memory: {units.size(memory['all_layers'])} in all layers (training), "
            f"{units.size(memory['peak'])} peak (inference)"
        )


def _totals(ledger: Ledger) -> Text:
    active = active_params(ledger)
    used = f" ({units.exact(active)} active)" if active is not None else ""
    work = {"decode": " per step", "train": " forward"}.get(ledger.metadata.mode, "")
    params = f"{units.exact(ledger.total('params'))} parameters{used}"
    if ledger.generation is not None and ledger.generation.with_cache is not None:
        return Text(params)  # its MACs and FLOPs are above
    return Text(
        f"{params}   {units.exact(ledger.total('macs'))} MACs   {units.exact(ledger.total('flops'))} FLOPs{work}"
    )


def groups_table(ledger: Ledger, by: View) -> Table:
    """Totals of `--by operation|block|stage|mixing`, over all blocks."""
    shown = {"flops": "FLOPs", "attention_entries": "attention entries", "traced_macs": "traced MACs"}
    shown |= ({"cached": "cached"} if ledger.step else {}) | (
        {"backward_macs": "backward MACs"} if ledger.training else {}
    )
    lines = [(str(group[by]), group, TERMINAL[group[by]] if by == "mixing" else "") for group in grouped(ledger, by)]
    return _totals_table(by, lines, shown, ledger.total("macs") or 0)


def mixing_table(ledger: Ledger) -> Table:
    """Totals by mixing kind."""
    groups = [(WORDS[kinds["mixing"]], kinds, TERMINAL[kinds["mixing"]]) for kinds in grouped(ledger, "mixing")]
    total: dict[str, Any] = dict(ledger.totals())
    return _totals_table("totals by mixing kind", [*groups, ("all", total, "bold")], {"flops": "FLOPs"}, total["macs"])


def _totals_table(first: str, lines: Sequence[tuple[str, Any, str]], more: Mapping[str, str], macs: int) -> Table:
    """A line per group (its words, figures and style): parameters, MACs, their share of all `macs`, and `more`."""
    table = bare_table(first, "params", "MACs", "share", *more.values())
    for words, figures, style in lines:
        params, own, *others = (units.count(figures[quantity]) for quantity in ("params", "macs", *more))
        table.add_row(words, params, own, units.percent(figures["macs"] or 0, macs), *others, style=style)
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
    yield from timing_texts(ledger)
    yield from note_texts(_notes(ledger), verbose=verbose)
    each = ""
    if listed:
        fitting = fitting_columns(ledger, width)
        if hidden := [column.title for column in filled_columns(ledger) if column not in fitting]:
            yield Text(f"hidden at this width: {', '.join(hidden)}", style="dim")
        if verbose and (moves := sum(row.only_moves for row in ledger.rows)):
            what = (
                "1 operation that only moves or masks" if moves == 1 else f"{moves} operations that only move or mask"
            )
            yield Text(f"hidden: {what} data (0 FLOPs); csv and json list them", style="dim")
        shown = [text for row in ledger.rows for text in (order_cell(row), row.reads) if text]
        yield Text(f"letters: {letters_text(shown)}", style="dim")
        saved = "saved is of all blocks, " if ledger.total("kept_bytes") else ""
        each = f"operations are per block, {saved}share is of the model's MACs; "
    yield Text(f"{each}{CONVENTION}", style="dim")


def _notes(ledger: Ledger) -> Iterator[str]:
    if active_params(ledger):
        yield "active parameters: those that one token uses; of experts its own, embeddings, routers and heads whole"
    yield from ledger.metadata.notes
    if ledger.metadata.published_left_out:
        yield "published figures are left out: they are of one forward of the spec as written, at its own size, batch 1"
