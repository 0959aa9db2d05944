"""`--from runs.jsonl`: the series of a file, with the formulas of their specs. Measures nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from xfcost.api.measuring.plan import counted_of, run_of, spec_hash
from xfcost.comparing.comparison import compared
from xfcost.comparing.measured import Curve, MeasuredSeries, Pair, measured
from xfcost.comparing.measured_series import Choice, Series, at, chosen, grouped, mixing_macs_of, work_of
from xfcost.comparing.sweep import TOKENS, measured_grids, targets_of
from xfcost.counting.system import AccountOptions
from xfcost.ledger import units
from xfcost.ledger.device import DeviceGroup
from xfcost.ledger.errors import UsageError, XfcostError, any_of, shown
from xfcost.ledger.execution import ONE_PASS
from xfcost.ledger.files import Say
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.measurements import Configuration, Counted, Measurement, OfModule
from xfcost.ledger.metadata import Metadata
from xfcost.ledger.roofline import Roofline
from xfcost.ledger.roofs import nominal_roofs
from xfcost.ledger.runs_file import read_runs
from xfcost.spec.load import Loaded, load
from xfcost.systems.spec import SpecSystem

_COUNTED: Final = AccountOptions(orders=False)
# Points of a curve.
_POINTS: Final = 33


def measured_file(path: Path, choice: Choice, say: Say) -> MeasuredSeries:
    """The series of a file that `choice` takes, with their formulas.

    `say` gets a line of text about a torn last line.

    Raises:
        UsageError: the file can't be read, is of another tool or version, or has none of these rows.
    """
    found = measured(rows_of_file(path, say), choice, shown(path, 200))
    if not any(one.rows for one in found.series):
        missing = found.missing[0].outcome
        first = f"the first one {missing.status}: {missing.reason}"
        raise UsageError(f"{found.file}: of {units.number_of(len(found.missing), 'row')} none was measured; {first}")
    specs = _Specs()
    curves = {one.name: _curve(one, specs) for one in found.series if one.rows}
    pairs = [_with_counted(pair, specs) for pair in found.pairs]
    return msgspec.structs.replace(found, curves=curves, pairs=tuple(pairs))


def saved_rooflines(path: Path, choice: Choice, on: DeviceGroup | None, say: Say) -> list[Roofline]:
    """The operations of a file's rows under the roofs saved with them, or those of `on`: of each series the largest.

    Raises:
        UsageError: the file can't be read, has none of these rows, or none with operations under the same roofs.
    """
    file = shown(path, 200)
    taken = chosen(rows_of_file(path, say), choice, file)
    series = [one for one in grouped(taken.rows, taken.axis).series if one.rows]
    if not series:
        raise UsageError(f"{file}: none of these rows was measured; `xfcost measure --retry` measures them again")
    found = [_saved_roofline(one, on, file) for one in series]
    if any(one.roofs != found[0].roofs for one in found):
        names = ", ".join(one.name for one in found)
        raise UsageError(f"{file}: {names} have different roofs; choose rows by --machine, --device or --dtype")
    smaller = sum(len(one.rows) - 1 for one in series)
    for text in taken.left_out + [f"{units.number_of(smaller, 'row')} of smaller {taken.axis.word}"] * bool(smaller):
        say(f"left out: {text}")
    return found


def _saved_roofline(series: Series, on: DeviceGroup | None, file: str) -> Roofline:
    """That of the largest row.

    Raises:
        UsageError: it has no operations, is of several passes, or no roofs are known.
    """
    row = series.rows[-1]
    ran, timing, points = row.configuration, row.outcome.timing, row.outcome.points
    if ran.mode not in ONE_PASS:
        raise UsageError(f"{file}: {series.name}: a roofline is of one pass; choose rows by --mode {any_of(ONE_PASS)}")
    if timing is None or points is None:
        why = "of a compiled model are not timed" if ran.compiled else "were not saved by the xfcost that wrote the row"
        raise UsageError(
            f"{file}: {series.name}: operations {why}; measure it again{' without --compile' * ran.compiled} with "
            "`xfcost measure --save` and another file"
        )
    roofs = timing.roofs if on is None else nominal_roofs(on, ran.dtype)
    if roofs is None:
        raise UsageError(
            f"{file}: {series.name}: its machine was not calibrated; draw the roofs of a device (--on h100-sxm), or "
            f"run `xfcost calibrate --device {ran.device} --dtype {ran.dtype}` there and measure it again"
        )
    metadata = Metadata(
        name=series.name, tokens=f"{ran.N:,}", grid_tokens=ran.N, batch=ran.batch, dtype=ran.dtype, mode=ran.mode,
        attention=ran.attention, attends=ran.attention != "no", logits=ran.run_options.get("logits"), image=ran.size,
        settings=ran.settings, inputs=", ".join(ran.module.inputs) if isinstance(ran.module, OfModule) else None,
    )  # fmt: skip
    return Roofline(Ledger(metadata=metadata, rows=(), timing=timing), points, roofs)


def rows_of_file(path: Path, say: Say) -> list[Measurement]:
    """All rows of the file.

    Raises:
        UsageError: it can't be read, or has no rows.
    """
    runs = read_runs(path, say)
    if (torn := path.stat().st_size - runs.whole_bytes) > 0:  # a pipe has no size
        say(f"{shown(path, 200)}: its last line is torn; the {torn:,} bytes of it are not read")
    if not runs.rows:
        raise UsageError(
            f"{shown(path, 200)}: has no rows; `xfcost measure SYSTEM … --N 64:4096 --save FILE` writes some"
        )
    return runs.rows


class _Specs:
    """The specs of the rows, each loaded once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, tuple[str, ...]], Loaded | str] = {}

    def of(self, configuration: Configuration) -> Loaded | str:
        """The spec that was measured, or why it is not to be had."""
        if configuration.is_module:
            return "a torch module, whose code is not run here"
        key = configuration.target, configuration.settings
        if key not in self._known:
            try:
                self._known[key] = load(*key)
            except XfcostError as error:
                self._known[key] = f"its spec can't be loaded: {error}"
        found = self._known[key]
        if not isinstance(found, str) and spec_hash(found.spec) != configuration.spec_hash:
            return f"{configuration.target} has changed since it was measured"
        return found


def _curve(series: Series, specs: _Specs) -> Curve:
    """The formula over the range of the points, and at every point."""
    xs = {at(row, series.axis): row for row in series.rows}
    if series.configuration.is_module:
        return _through({x: row.counted for x, row in xs.items()})
    loaded = specs.of(series.configuration)
    if isinstance(loaded, str):
        return Curve(missing=loaded)
    try:
        run = run_of(series.configuration)
        grid = measured_grids(
            [SpecSystem(loaded)], run, series.axis, (min(xs), max(xs)), targets_of((min(xs), max(xs)), _POINTS)
        )[0]
        between = (x for x in grid.points.values() if x not in xs)
        counted = {x: _counted(loaded, _at(series, x)) for x in between}
    except XfcostError as error:
        return Curve(missing=f"its formula can't be evaluated: {error}")
    return _through(counted | {x: row.counted for x, row in xs.items()})


def _through(counted: dict[int, Counted]) -> Curve:
    """The curve through these points; of a torch module, whose code is not run here, there are no others."""
    ordered = [counted[x] for x in sorted(counted)]
    return Curve(
        xs=tuple(sorted(counted)),
        work=tuple(work_of(one)[0] for one in ordered),
        mixing_macs=tuple(map(mixing_macs_of, ordered)),
    )


def _at(series: Series, x: int) -> Configuration:
    """The run of a series at another point of its axis."""
    changes = {"N": x, "size": None} if series.axis is TOKENS else {"size": (x, x)}
    return msgspec.structs.replace(series.configuration, **changes)


def _counted(loaded: Loaded, configuration: Configuration) -> Counted:
    return counted_of(SpecSystem(loaded).account(run_of(configuration), _COUNTED))


def _with_counted(pair: Pair, specs: _Specs) -> Pair:
    """The pair with the search for crossovers of its MACs, where two specs can have any."""
    first, second = pair.first.configuration, pair.second.configuration
    if first.spec_hash == second.spec_hash:
        alike = all(getattr(first, name) == getattr(second, name) for name in ("batch", "mode", "run_options"))
        same = "their MACs are equal at every N" if alike else "they are of one spec"
        return msgspec.structs.replace(pair, not_counted=same)
    loaded: list[Loaded] = []
    for name, configuration in ((pair.first.name, first), (pair.second.name, second)):
        spec = specs.of(configuration)
        if isinstance(spec, str):
            return msgspec.structs.replace(pair, not_counted=f"{name}: {spec}")
        loaded.append(spec)
    try:
        run = run_of(first)
        ledgers = [SpecSystem(one).account(run, _COUNTED) for one in loaded]
        found = compared([SpecSystem(one) for one in loaded], ledgers, run, thorough=False)
    except XfcostError as error:
        return msgspec.structs.replace(pair, not_counted=str(error))
    searches, crossovers = found.searches, found.crossovers
    if pair.first.axis is not TOKENS and found.size_searches:
        searches, crossovers = found.size_searches, found.size_crossovers
    of_macs = tuple(one for one in crossovers if one["quantity"] == "macs")
    return msgspec.structs.replace(pair, searches=searches, counted=of_macs)
