"""The report of `compare` as rich text: who costs less, growth, crossovers; then figures, stages, notes."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from xfcost.counting.comparison import Comparison
from xfcost.counting.crossovers import MOST_PAIRED
from xfcost.report.agreement import COUNTED_ONLY, NOT_TRACED, agreement_texts
from xfcost.report.comparison_answer import answer_texts
from xfcost.report.console import note_texts, plain_text
from xfcost.report.crossovers import crossover_texts, size_crossover_texts
from xfcost.report.figures import figures_table
from xfcost.report.input_description import circumstances, default_notes, input_text, input_warnings, run_text
from xfcost.report.prediction import compared_prediction_texts
from xfcost.report.stages import size_parts, stage_parts
from xfcost.report.table import CONVENTION
from xfcost.report.training import run_texts


def comparison_plain(comparison: Comparison, *, verbose: bool = False) -> str:
    """The report of `compare` as text without colour."""
    return plain_text(lambda width: report(comparison, width, verbose=verbose))


def report(comparison: Comparison, width: int, *, verbose: bool = False) -> Group:
    """The inputs, the answer, then what differs; with `verbose` every figure, crossover and note."""
    if len(comparison.names) > MOST_PAIRED:
        from xfcost.report.overview import overview

        return overview(comparison, width, verbose=verbose)
    parts: list[RenderableType] = [*header(comparison), Text(), *answer_texts(comparison)]
    parts += compared_prediction_texts(comparison)
    parts += [*crossover_texts(comparison, verbose=verbose), *size_crossover_texts(comparison, verbose=verbose)]
    parts += [Text(), figures_table(comparison, width, verbose=verbose)]
    parts += [*stage_parts(comparison, width), *size_parts(comparison), Text(), *endnotes(comparison, verbose=verbose)]
    return Group(*parts)


def header(comparison: Comparison) -> list[Text]:
    """One line per system, then the run, and a warning where inputs differ."""
    lines = []
    width = max(map(len, comparison.names))
    metadata = [ledger.metadata for ledger in comparison.ledgers]
    for name, system in zip(comparison.names, metadata, strict=True):
        seen = input_text(system) if system.inputs is None else circumstances(system)
        lines.append(Text.assemble((f"{name:<{width}}", "bold"), f"   {seen}"))
    if specs := [one for one in metadata if one.inputs is None]:
        of_specs = "specs: " if len(specs) < len(metadata) else ""
        lines += map(Text, f"{of_specs}{run_text(specs)}".split("\n"))
    if all(ledger.agreement is None for ledger in comparison.ledgers):
        lines[-1].append(f"   {COUNTED_ONLY}", style="dim")
    warnings = input_warnings(dict(zip(comparison.names, metadata, strict=True)))
    return [*lines, *(Text(warning, style="bold yellow") for warning in warnings)]


def endnotes(comparison: Comparison, *, verbose: bool) -> Iterator[Text]:
    """How the accounts agree, notes with their system's name, settings of the run, the convention."""
    notes = []
    for name, ledger in zip(comparison.names, comparison.ledgers, strict=True):
        if ledger.agreement is not None:
            yield from (
                Text.assemble(f"{name}: ", text) for text in agreement_texts(ledger) if text.plain != NOT_TRACED
            )
        notes += [f"{name}: {note}" for note in ledger.metadata.notes]
    yield from note_texts(default_notes(ledger.metadata for ledger in comparison.ledgers), verbose=verbose)
    yield from note_texts(notes, verbose=verbose)
    yield from run_texts(comparison.ledgers[0])
    if any(figures["score_dot_products"] is not None for figures in comparison.figures.values()):
        yield Text(
            "score dot products: per head, in the first block that has scores, without special tokens", style="dim"
        )
    yield Text(CONVENTION, style="dim")
