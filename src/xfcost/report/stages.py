"""The tables of a comparison by stage (isotropic or hierarchical) and by image size."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from xfcost.counting.comparison import Comparison
from xfcost.ledger import units
from xfcost.ledger.grid import Grid
from xfcost.ledger.ledger import Ledger
from xfcost.report.console import bare_table


def stage_parts(comparison: Comparison, width: int) -> Iterator[RenderableType]:
    """Tokens, width and MACs by stage, where a system has several stages."""
    if all(len(ledger.metadata.stages) < 2 for ledger in comparison.ledgers):  # noqa: PLR2004 - one stage is no hierarchy
        return
    yield Text()
    yield Text("by stage: output tokens × width, share of MACs", style="bold")
    table = _table(comparison)
    columns = [_stages(ledger, long=width > 40 * (1 + len(comparison.names))) for ledger in comparison.ledgers]
    for number in range(max(map(len, columns))):
        table.add_row(f"stage {number + 1}", *(cells[number] if number < len(cells) else "" for cells in columns))
    yield table
    for name, ledger in zip(comparison.names, comparison.ledgers, strict=True):
        if ledger.metadata.stages:  # a module has none
            yield Text(f"  {name}: {shape_text(ledger)}")


def _stages(ledger: Ledger, *, long: bool) -> list[str]:
    total = ledger.total("macs") or 0
    cells = []
    for stage in ledger.by_stage():
        grid = Grid(tuple(stage["grid"]), stage["extra_tokens"])
        text = grid.shape_text() if long else f"{grid.total:,}"
        cells.append(f"{text} × {stage['width']:,}  {units.percent(stage['macs'], total)}")
    return cells


def shape_text(ledger: Ledger) -> str:
    """`isotropic, 196 tokens × 768 throughout`; `hierarchical, 3,136 → 49 tokens (64× fewer), 96 → 768 wide`."""
    stages = ledger.metadata.stages
    tokens, widths = [stage["tokens"] for stage in stages], [stage["width"] for stage in stages]
    if len({*zip(tokens, widths, strict=True)}) == 1:
        return f"isotropic, {tokens[0]:,} tokens × {widths[0]:,} throughout"
    fewer = f" ({units.ratio(tokens[0] / tokens[-1])} fewer)" if tokens[-1] < tokens[0] else ""
    wide = f"{widths[0]:,} → {widths[-1]:,} wide" if widths[0] != widths[-1] else f"{widths[0]:,} wide"
    return f"hierarchical, {tokens[0]:,} → {tokens[-1]:,} tokens{fewer}, {wide}"


def size_parts(comparison: Comparison) -> Iterator[RenderableType]:
    """MACs and attention memory at growing image sizes, of systems that take images."""
    if not comparison.by_size:
        return
    yield Text()
    yield Text("by image size: MACs, attention memory of all layers (padding included)", style="bold")
    table = _table(comparison)
    sides = list(comparison.by_size[comparison.names[0]])
    for side in sides:
        table.add_row(f"{side}×{side}", *(_at(comparison.by_size[name][side]) for name in comparison.names))
    over = (_over(comparison.by_size[name], sides[-1], sides[0]) for name in comparison.names)
    table.add_row(f"{sides[-1]} over {sides[0]}", *over)
    yield table


def _at(costs: dict[str, int] | None) -> str:
    return f"{units.count(costs['macs'])}  {units.size(costs['attention_bytes'])}" if costs else units.DASH


def _over(costs: dict[int, dict[str, int] | None], last: int, first: int) -> str:
    """How many times as much the largest image costs as the smallest."""
    small, large = costs[first], costs[last]
    if small is None or large is None:
        return units.DASH
    return "  ".join(
        units.ratio(float(f"{large[quantity] / small[quantity]:.3g}")) if small[quantity] else units.DASH
        for quantity in ("macs", "attention_bytes")
    )


def _table(comparison: Comparison) -> Table:
    table = bare_table("")
    for name in comparison.names:
        table.add_column(name, justify="right", overflow="fold")
    return table
