"""The rows of a sweep: a table, JSON, CSV."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from xfcost.comparing.sweep import MeasuredSizes
from xfcost.ledger import units
from xfcost.ledger.calibration import same_pace
from xfcost.ledger.errors import printable
from xfcost.ledger.json_objects import json_text
from xfcost.ledger.measurements import Configuration, Measurement, RowOutcome
from xfcost.ledger.metadata import Timing
from xfcost.ledger.operation import MIXINGS
from xfcost.ledger.statistics import nine_in_ten
from xfcost.report.document import DataTable, Document, Gap, Part, TableColumn, TextLines

# Fields that are a column where rows differ in them, and are above the table where they don't.
_RUN: Final = ("batch", "dtype", "attention", "mode")
# Columns that a narrow screen has no room for, the first ones hidden first; and the letters of a name.
_HIDDEN_FIRST: Final = ("matrices", "predicted", "mixing", "MACs")
_NAME: Final = 24
# Rows of the same reason that are named.
_MOST_REASONS: Final = 8
# Sizes that are named where a system has none near them.
_MOST_SIZES: Final = 4
_TIMING: Final = ("seconds", "spread", "precision", "runs", "noisy", "not_attributed", "peak_bytes")
_LOAD: Final = ("others", "cores", "stolen", "withheld", "frequency")
_MEMORY: Final = ("predicted", "measured")


def document(rows: Sequence[Measurement]) -> Document:
    """What all rows share, the table, and why some rows were not measured."""
    return Document(
        parts=lambda: _parts(rows),
        records=lambda: [_record(row) for row in rows],
        json=lambda: json_text(
            {"rows": [msgspec.to_builtins(row) | {"attention_share": row.attention_share} for row in rows]}
        ),
    )


def _parts(rows: Sequence[Measurement]) -> Iterator[Part]:
    if not rows:
        yield TextLines(["no rows"])
        return
    titles = _titles(rows)
    ranks = {title: rank for rank, title in enumerate(_HIDDEN_FIRST)}
    columns = [TableColumn(title, right=title != "system", rank=ranks.get(title)) for title in titles]
    columns[0] = columns[0]._replace(fold=_NAME)
    yield from (TextLines([_shared_text(rows)]), Gap(), DataTable(columns, [_cells(row, titles) for row in rows]))
    yield from (Gap(), TextLines(list(_notes(rows))))


def left_out_texts(grids: Mapping[str, MeasuredSizes], word: str) -> Iterator[str]:
    """A line for every system that can't have some of the sizes, with the reason of the first."""
    for name, grid in grids.items():
        if grid.refused:
            xs = ", ".join(f"{x:,}" for x in [*grid.refused][:_MOST_SIZES])
            more = f" and {len(grid.refused) - _MOST_SIZES} more" if len(grid.refused) > _MOST_SIZES else ""
            yield f"{name}: nothing near {word} = {xs}{more}: {next(iter(grid.refused.values()))}"


def configuration_text(configuration: Configuration) -> str:
    """`ViT-S/8, N = 784, batch 8, bfloat16, fused, decode`: what differs from the defaults.

    The attention of a module is its own, and is not named.
    """
    parts = [configuration.system, size_text(configuration)]
    parts += [f"batch {configuration.batch}"] if configuration.batch > 1 else []
    usual = {"dtype": ("float32",), "attention": ("eager", "no"), "mode": ("forward",)}
    parts += [given for name, values in usual.items() if (given := getattr(configuration, name)) not in values]
    return ", ".join(parts)


def outcome_text(row: Measurement) -> str:
    """`12.3 ms, 45.2 MiB`, or what happened instead."""
    timing, memory = row.outcome.timing, row.outcome.memory
    if timing is None:
        return f"{row.outcome.status}: {printable(row.outcome.reason or '', 200)}"
    peak = f", {units.size(memory.measured)}" if memory is not None and memory.measured is not None else ""
    return f"{units.seconds(timing.seconds)}{peak}"


def size_text(configuration: Configuration) -> str:
    """`N = 784`, or `224×224`."""
    if configuration.size is None:
        return f"N = {configuration.N:,}"
    return "×".join(map(str, configuration.size))


def _titles(rows: Sequence[Measurement]) -> list[str]:
    sized = any(row.configuration.size for row in rows)
    differing = [name for name in _RUN if len({getattr(row.configuration, name) for row in rows}) > 1]
    columns = ["system", *(["image"] if sized else []), "N", *differing, "MACs", "time", "±", "mixing", "peak"]
    seconds = ["predicted s", "error"] if any(row.predicted_seconds is not None for row in rows) else []
    place = columns.index("mixing")
    return [*columns[:place], *seconds, *columns[place:], "predicted", "matrices"]


def _cells(row: Measurement, titles: Sequence[str]) -> list[str]:
    configuration, timing, memory = row.configuration, row.outcome.timing, row.outcome.memory
    cells = {
        "system": configuration.system,
        "image": size_text(configuration) if configuration.size else units.DASH,
        "N": f"{configuration.N:,}" if configuration.N else units.DASH,
        **{name: str(getattr(configuration, name)) for name in _RUN},
        "MACs": units.count(row.counted.macs),
        "time": units.seconds(timing.seconds) if timing else row.outcome.status,
        "±": precision_text(timing),
        "predicted s": units.seconds(row.predicted_seconds),
        "error": units.DASH if (error := _error(row)) is None else f"{error:+.1%}",
        "mixing": _mixing_text(row.outcome),
        "peak": units.size(memory.measured) if memory else units.DASH,
        "predicted": units.size(memory.predicted if memory else row.outcome.needed_bytes),
        "matrices": units.DASH if row.attention_share is None else f"{100 * row.attention_share:.0f} %",
    }
    return [cells[title] for title in titles]


def _error(row: Measurement) -> float | None:
    """The predicted seconds over the measured ones, less 1."""
    timing = row.outcome.timing
    return None if timing is None or row.predicted_seconds is None else row.predicted_seconds / timing.seconds - 1


def _errors_text(rows: Sequence[Measurement]) -> Iterator[str]:
    """The errors of all predictions together."""
    sizes = sorted(abs(error) for row in rows if (error := _error(row)) is not None)
    if sizes:
        errors = f"median error {statistics.median(sizes):.1%}, nine in ten within {nine_in_ten(sizes):.1%}"
        yield f"predicted against measured seconds, {units.number_of(len(sizes), 'row')}: {errors}"
    paces = [row.outcome.pace for row in rows if row.outcome.pace is not None]
    other = sorted(pace for pace in paces if not same_pace(pace, 1))
    if other:
        yield (
            f"{len(other):,} of {units.number_of(len(paces), 'row')} ran while the machine took {other[0]:.2f} to "
            f"{other[-1]:.2f} times as long as during its calibration: predictions assume the speed during the "
            "calibration"
        )


def precision_text(timing: Timing | None) -> str:
    """How far the interval of the median reaches; a noisy one is marked."""
    if timing is None:
        return units.DASH
    reached = units.DASH if timing.precision is None else f"{100 * timing.precision:.1f} %"
    return f"{reached} noisy" if timing.noisy else reached


def _mixing_text(outcome: RowOutcome) -> str:
    """The share of the time that token mixing takes."""
    if outcome.seconds_by_mixing is None or outcome.timing is None:
        return units.DASH
    mixing = sum(seconds for kind, seconds in outcome.seconds_by_mixing.items() if kind != "per-token")
    return f"{100 * mixing / outcome.timing.share_base:.0f} %"


def _shared_text(rows: Sequence[Measurement]) -> str:
    """The run as far as it is the same in all rows, and where."""
    parts = []
    for name in _RUN:
        values = {getattr(row.configuration, name) for row in rows}
        if len(values) == 1:
            prefix = {"batch": "batch ", "mode": "mode "}.get(name, "")
            suffix = " attention" if name == "attention" else ""
            parts.append(f"{prefix}{values.pop()}{suffix}")
    places = {
        f"{one.device} ({row.device_name}, {units.number_of(one.threads, 'thread')})"
        for row in rows
        for one in [row.configuration]
    }
    return "   ".join([*parts, "; ".join(sorted(places))])


def _notes(rows: Sequence[Measurement]) -> Iterator[str]:
    """Why rows were not measured; how many hosts; what the columns are."""
    yield from _errors_text(rows)
    yield from doubts(rows)
    if any(row.configuration.composed for row in rows):
        yield (
            "composed: every distinct block was run once, and its time is multiplied by its repetitions; the peak "
            "is not measured"
        )
    if len({row.machine for row in rows}) > 1:
        yield "rows of several machines: do not compare times of different machines"
    yield (
        "time: the median; ±: how far its 95 % interval reaches; mixing: the share of the time in operations that mix "
        "tokens; peak: growth of the process while the model is built and run "
        "(on CUDA torch's allocator), beside its prediction, the peak of live tensors; an allocator holds more: freed "
        "blocks that are too small for the next tensor, and workspaces of kernels such as convolutions, which are not "
        "counted; matrices: the share of attention matrices, as counted, in the predicted peak"
    )


def doubts(rows: Sequence[Measurement]) -> Iterator[str]:
    """Why rows were not measured, and how many are noisy, with the reason of the first."""
    without = [row for row in rows if row.outcome.status != "measured"]
    for row in without[:_MOST_REASONS]:
        yield f"{configuration_text(row.configuration)}: {outcome_text(row)}"
    if len(without) > _MOST_REASONS:
        yield f"… and {len(without) - _MOST_REASONS:,} more that were not measured; --format json lists them"
    noisy = [(row, row.outcome.timing.noisy) for row in rows if row.outcome.timing and row.outcome.timing.noisy]
    for row, reason in noisy[:1]:
        which = f"{len(noisy):,} of {units.number_of(len(rows), 'row')} {'is' if len(noisy) == 1 else 'are'} noisy"
        yield f"{which}, as {configuration_text(row.configuration)}: {printable(reason or '', 200)}"


def _record(row: Measurement) -> dict[str, Any]:
    """One flat dict of a row, as in the CSV."""
    configuration, outcome, counted = row.configuration, row.outcome, row.counted
    record: dict[str, Any] = {
        "system": configuration.system,
        "spec": configuration.target,
        "N": configuration.N or None,
    }
    record |= {"size": configuration.size and "x".join(map(str, configuration.size))}
    record |= {name: getattr(configuration, name) for name in (*_RUN, "device", "threads", "compiled", "composed")}
    record |= {"status": outcome.status, "reason": outcome.reason}
    record |= {"needed_bytes": outcome.needed_bytes, "left_bytes": outcome.left_bytes}
    record |= {name: getattr(outcome.timing, name, None) for name in _TIMING}
    low, high = (outcome.timing and outcome.timing.interval) or (None, None)
    record |= {"seconds_low": low, "seconds_high": high}
    record |= {f"load_{name}": getattr(outcome.timing and outcome.timing.load, name, None) for name in _LOAD}
    record |= {f"seconds_{kind}": (outcome.seconds_by_mixing or {}).get(kind) for kind in MIXINGS}
    record |= {"predicted_seconds": row.predicted_seconds, "pace": row.outcome.pace}
    record |= {f"memory_{name}": getattr(outcome.memory, name, None) for name in _MEMORY}
    record |= {name: getattr(counted, name) for name in ("params", "macs", "flops", "attention_entries")}
    record |= {"attention_bytes": counted.attention_bytes, "attention_share": row.attention_share}
    for kind, costs in counted.by_mixing.items():
        record |= {f"{quantity}_{kind}": value for quantity, value in costs.items()}
    record |= {"machine": row.machine.host, "processor": row.machine.processor, "device_name": row.device_name}
    record |= {f"version_{name}": row.versions.get(name) for name in ("xfcost", "torch", "python")}
    return record | {"process_seconds": row.process_seconds, "ended": row.ended}
