"""Rooflines -> the table of operations on stdout: time, intensity, achieved rate, share of the roof."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from xfcost.ledger import units
from xfcost.ledger.achieved import NOT_ATTRIBUTED
from xfcost.ledger.json_objects import json_text
from xfcost.ledger.least_work import by_chance
from xfcost.ledger.roofline import Roofline, RooflinePoint, records
from xfcost.ledger.roofs import Roofs
from xfcost.parts.serving.text import EXPECTED
from xfcost.parts.timing.text import spread_text, where_text
from xfcost.report.document import DataTable, Document, Gap, Part, TableColumn, TextLines, line, notes
from xfcost.report.input_description import circumstances, default_notes
from xfcost.report.style import TERMINAL
from xfcost.views.largest import beside_word, time_share

CONVENTION: Final = (
    "FLOP/byte: FLOPs of the formulas divided by the bytes of inputs, outputs and parameters, each counted once; "
    "operations with the same name and kind are one point, over all blocks"
)
ABOVE: Final = "operands in a cache are not limited by the memory bandwidth"
ABOVE_PEAK: Final = "the machine was busier when its peak was measured"
# Operations above a roof that are named.
_MOST_NAMED: Final = 3


def document(found: Sequence[Roofline]) -> Document:
    """The roofs, then every system's operations, the longest first."""
    rows = [row for one in found for row in records(one)]
    return Document(parts=lambda: _parts(found), records=lambda: rows, json=lambda: json_text(rows))


def _parts(found: Sequence[Roofline]) -> Iterator[Part]:
    yield line(roofs_text(found[0].roofs), head="roofs: ")
    for one in found:
        yield Gap()
        yield from _head(one)
        yield _table(one)
        if above := names_text(one.above_memory()):
            yield line(f"above the memory roof: {above}; {ABOVE}", "dim")
        if above := names_text(one.above_peak()):
            yield line(f"above the peak: {above}; {ABOVE_PEAK}", "dim")
    yield Gap()
    yield from notes(default_notes(one.ledger.metadata for one in found), verbose=True)
    yield line(CONVENTION, "dim")


def roofs_text(roofs: Roofs) -> str:
    """`peak 94.1 GFLOP/s, memory 14.2 GB/s, ridge point 6.63 FLOP/byte (calibrated 2026-11-22)`."""
    when = f"calibrated {roofs.calibrated[:10]}" if roofs.calibrated else "measured just now, not calibrated"
    return (
        f"{peak_text(roofs)}, {memory_text(roofs)}, ridge point {roofs.ridge_point:.3g} FLOP/byte "
        f"({f'nominal, {roofs.nominal}' if roofs.nominal else when})"
    )


def peak_text(roofs: Roofs) -> str:
    """`peak 94.1 GFLOP/s`."""
    return f"peak {units.count(roofs.flops_per_second, 3)}FLOP/s"


def memory_text(roofs: Roofs) -> str:
    """`memory 14.2 GB/s`."""
    return f"memory {units.count(roofs.bytes_per_second, 3)}B/s"


def place_text(one: Roofline) -> str:
    """`cpu, AMD EPYC, 2 threads`."""
    if one.bounded and one.ledger.on is not None:
        return one.ledger.on.on.title
    ran = one.ledger.timing or one.ledger.prediction
    if ran is None:
        raise TypeError("only a timed or predicted ledger has a roofline")
    return where_text(ran)


def names_text(points: Sequence[RooflinePoint]) -> str:
    """The names of operations, the first few; empty where there are none."""
    above = list(dict.fromkeys(point.title for point in points))
    more = f" and {len(above) - _MOST_NAMED} more" if len(above) > _MOST_NAMED else ""
    return ", ".join(above[:_MOST_NAMED]) + more


def unseen_share(one: Roofline) -> str:
    """The share of time of operations without FLOPs; empty where there are none."""
    moves = [point.seconds for point in one.points if not point.flops]
    return units.percent(sum(moves), one.share_base) if moves else ""


def _head(one: Roofline) -> Iterator[TextLines]:
    yield line(f"   {circumstances(one.ledger.metadata)}", head=one.name)
    timing = one.ledger.timing
    if one.bounded:
        where = f"{units.seconds(one.seconds)} on {place_text(one)}"
        experts = f"; {EXPECTED}" if by_chance(one.ledger) else ""
        yield line(
            f"bound: {where}: every operation at its roof, one after another; fused operations can be faster{experts}"
        )
        return
    if timing is None:
        yield line(f"predicted: {units.seconds(one.seconds)} on {place_text(one)}; the model was not run")
        return
    yield line(f"time: {units.seconds(one.seconds)} on {place_text(one)}, {spread_text(timing)}")
    if timing.noisy:
        yield line(f"noisy: {timing.noisy}", "bold yellow")


def _table(one: Roofline) -> DataTable:
    time = "least time" if one.bounded else "predicted" if one.predicted else "time"
    columns = [TableColumn("operation", fold=12), TableColumn("mixing", fold=9)]
    columns += [
        TableColumn(title, right=True, rank=0 if title == "of time" else None)
        for title in (time, "of time", "FLOP/byte", "FLOP/s", "of roof")
    ]
    rows = [point_cells(one, point) for point in one.points]
    if not one.bounded:
        rest = one.not_attributed
        words, share = beside_word(NOT_ATTRIBUTED, rest), time_share(rest, one.share_base)
        rows.append((words, units.DASH, units.seconds(rest), share, *[units.DASH] * 4))
    return DataTable([*columns, TableColumn("bound")], rows, [*(TERMINAL[point.mixing] for point in one.points), ""])


def point_cells(one: Roofline, point: RooflinePoint) -> tuple[str, ...]:
    """Operation, mixing kind, time and its share, arithmetic intensity, FLOP/s and share of the roof, bound."""
    of_roof = one.of_roof(point)
    time = (units.seconds(point.seconds), units.percent(point.share, 1))
    if of_roof is None:
        return (point.title, point.mixing, *time, "0", units.DASH, units.DASH, "memory-bound")
    rates = (f"{point.intensity:.3g}", units.count(point.flops_per_second, 3), units.percent(of_roof, 1))
    return (point.title, point.mixing, *time, *rates, one.roofs.bound(point.intensity))
