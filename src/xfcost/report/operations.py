"""The table of operations, block by block, with the columns that have values and fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import msgspec
from rich.console import RenderableType
from rich.text import Text

from xfcost.ledger import units
from xfcost.ledger.accounts import RUN
from xfcost.ledger.achieved import NOT_ATTRIBUTED, OF_PEAK, beside_rows, peak_of, row_rates
from xfcost.ledger.least_work import RowBound, row_bounds
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.operation import Operation
from xfcost.report.aligned import Aligned, Row
from xfcost.report.style import TERMINAL


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


class Column(msgspec.Struct, frozen=True):
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
    Column("operation", 24, 9, lambda row, totals: row.title, right=False),
    Column("mixing", 9, 9, lambda row, totals: units.DASH if row.mixing == "unknown" else row.mixing, right=False),
    Column("order", 11, 7, lambda row, totals: order_cell(row), right=False),
    Column("reads", 5, 2, lambda row, totals: row.reads or units.DASH, right=False),
    Column("computed", 8, 9, lambda row, totals: _tokens(row.figure("computed_tokens"))),
    Column("kept", 5, 9, lambda row, totals: _tokens(row.figure("kept_tokens"))),
    Column("output", 16, 6, lambda row, totals: _shapes(row), right=False),
    Column("calls", 5, 3, lambda row, totals: units.count(row.figure("calls"))),
    Column("params", 7, 8, lambda row, totals: _nonzero(row.params)),
    Column("active", 7, 8, lambda row, totals: _nonzero(row.active_params)),
    Column("MACs", 7, 9, lambda row, totals: "?" if row.figure("uncounted") else _nonzero(row.macs)),
    Column("backward", 8, 8, lambda row, totals: _nonzero(row.backward_macs or 0)),
    Column("saved", 8, 4, lambda row, totals: _bytes(row.figure("kept_bytes") or 0)),
    Column("FLOPs", 7, 1, lambda row, totals: _nonzero(row.flops)),
    Column("compares", 8, 3, lambda row, totals: _nonzero(row.comparisons)),
    Column("moved", 8, 0, lambda row, totals: _bytes(row.moved * totals.bytes_per_element)),
    Column("traffic", 8, 8, lambda row, totals: units.size(row.figure("plain_traffic_bytes"), 3)),
    Column("tiled", 8, 8, lambda row, totals: units.size(row.figure("tiled_traffic_bytes"), 3)),
    Column("share", 6, 6, lambda row, totals: share_cell(row, totals.macs)),
    Column("predicted", 9, 8, lambda row, totals: units.seconds(row.predicted_seconds)),
    Column("time", 8, 8, lambda row, totals: units.seconds(row.seconds)),
    Column("of time", 7, 8, _share_of_time),
    Column("FLOP/s", 7, 7, lambda row, totals: _per_second(row, totals, "flops_per_second")),
    Column("of peak", 7, 6, _of_peak),
    Column("bytes/s", 7, 3, lambda row, totals: _per_second(row, totals, "bytes_per_second")),
    Column("FLOP/B", 6, 5, _intensity),
    Column("bound", 7, 8, _bound, right=False),
    Column("trace", 5, 4, _agreement),
)


def operation_tables(ledger: Ledger, width: int, *, verbose: bool = False) -> Iterator[RenderableType]:
    """One table per block under its name, columns aligned throughout; operations that only move data are left out."""
    columns, totals = fitting_columns(ledger, width, verbose=verbose), _totals(ledger)
    grid = partial(Aligned, [column.width for column in columns], [column.right for column in columns])
    yield grid([Row([column.title for column in columns], "bold")])
    for block, rows in ledger.by("block").items():
        shown = [row for row in rows if not row.only_moves]
        if not shown:
            continue
        times = f" ×{rows[0].times}" if rows[0].times > 1 else ""
        yield Text(f"{block}{times}", style="bold")
        yield grid([Row([column.cell(row, totals) for column in columns], TERMINAL[row.mixing]) for row in shown])
    if beside := beside_rows(ledger):
        yield Text("beside the operations", style="bold")
        yield grid([Row([_beside(column.title, *one, totals) for column in columns], "") for one in beside.items()])


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
    if ledger.module is not None:  # its differences are of modules, not of rows
        differing = frozenset(row.path for row in ledger.rows if _trace_differs(row))
    seconds = ledger.timing.seconds if ledger.timing else 0.0
    macs, trained = ledger.total("macs") or 0, ledger.training is not None
    return Totals(macs, ledger.bytes_per_element, differing, seconds, trained, peak_of(ledger), row_bounds(ledger))


def _trace_differs(row: Operation) -> bool:
    """Has the trace other figures than a row of a module? Parameters alone have nothing to trace."""
    return row.ran is not None and any(row.figure(f"traced_{name}") != getattr(row, name) for name in RUN)


def fitting_columns(ledger: Ledger, width: int, *, verbose: bool = False) -> list[Column]:
    """The columns that have values, the lowest ranks hidden until they fit."""
    columns = filled_columns(ledger, verbose=verbose)
    while sum(column.width + 1 for column in columns) > width - 2 and len(columns) > 4:  # noqa: PLR2004 - a table yet
        columns.remove(min(columns, key=lambda column: column.rank))
    return columns


def filled_columns(ledger: Ledger, *, verbose: bool = False) -> list[Column]:
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
