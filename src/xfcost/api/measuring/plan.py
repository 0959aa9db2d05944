"""What `xfcost measure` measures, in order: systems × sizes × batches × dtypes × attention × modes, all counted."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from xfcost.api.specs import account
from xfcost.counting.comparison import distinct
from xfcost.counting.measured_grid import Grid, measured_grids
from xfcost.counting.run_options import make_run
from xfcost.counting.sweep import TOKENS, Axis
from xfcost.ledger.errors import UsageError
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.measurements import Configuration, Counted
from xfcost.ledger.operation import MIXINGS
from xfcost.spec.grammar import Spec
from xfcost.spec.load import Loaded
from xfcost.spec.run import Run

# More are a typing error: they would be measured for days.
MOST_CONFIGURATIONS: Final = 10_000
# Options that a sweep takes several values of, the first one varying slowest.
VARIED: Final = ("batch", "dtype", "attention", "mode")
# Options of one mode or two: the others do without.
_OF_MODES: Final = {"new_tokens": ("generate",), "logits": ("prefill", "generate"), "optimizer": ("train",)}
# What a spec says that changes nothing that runs.
_TEXTS: Final = ("name", "paper", "notes", "published", "extends", "set")
_BY_MIXING: Final = ("params", "macs", "flops", "attention_entries")


class Device(NamedTuple):
    """Where the configurations run."""

    name: str
    """As `--device` gives it."""
    threads: int
    compiled: bool = False


class Planned(NamedTuple):
    """One configuration, and what it costs as counted."""

    configuration: Configuration
    counted: Counted


class Plan(NamedTuple):
    """The configurations in the order in which they are measured, and what is left out."""

    planned: list[Planned]
    grids: dict[str, Grid]
    """System -> its points."""


def variants_of(options: dict[str, Any]) -> list[dict[str, Any]]:
    """Run options of every combination: those of `VARIED` are texts with commas, each of their values once.

    Raises:
        UsageError: a value can't be, or an option is of none of the modes.
    """
    given = {name: value for name, value in options.items() if value is not None}
    values = {name: list(dict.fromkeys(str(given[name]).split(","))) for name in VARIED if name in given}
    more = {name: given[name] for name in given if name not in VARIED}
    result = []
    for combination in itertools.product(*values.values()):
        one = dict(zip(values, combination, strict=True))
        mode = one.get("mode", "forward")
        unused = {name for name, modes in _OF_MODES.items() if mode not in modes}
        several = len(values.get("mode", ())) > 1
        result.append(one | {name: more[name] for name in more if not (several and name in unused)})
    for name in more:
        if not any(name in one for one in result):
            raise UsageError(f"--{name.replace('_', '-')}: it is of --mode {' or '.join(_OF_MODES[name])}; add that")
    return result


def planned(
    loaded: Sequence[Loaded],
    axis: Axis,
    span: tuple[int, int],
    points: int,
    variants: Sequence[dict[str, Any]],
    device: Device,
) -> Plan:
    """All configurations: sizes ascending, and at each size and variant the systems in turns (A B A B).

    Raises:
        XfcostError: a system can't have any size, or can't run in a variant.
    """
    runs = [(make_run(**one), one) for one in variants]
    names = distinct([one.spec.name for one in loaded])
    grids = measured_grids(loaded, runs[0][0], axis, span, points)
    hashes = [spec_hash(one.spec) for one in loaded]
    targets = sorted({at for grid in grids for at in grid.points})
    number = len(runs) * sum(len(grid.points) for grid in grids)
    if number > MOST_CONFIGURATIONS:
        raise UsageError(f"measure: {number:,} configurations, and at most {MOST_CONFIGURATIONS:,} are measured")
    result = []
    for at, (run, options) in itertools.product(targets, runs):
        for name, one, grid, hashed in zip(names, loaded, grids, hashes, strict=True):
            if at in grid.points:
                sized = axis.run(run, grid.points[at])
                ledger = account(one, sized, trace=False, orders=False)
                _check_steps(ledger)
                configuration = _configuration(name, one, hashed, sized, options, ledger, device)
                result.append(Planned(configuration, counted_of(ledger)))
    return Plan(result, dict(zip(names, grids, strict=True)))


def _check_steps(ledger: Ledger) -> None:
    generation = ledger.generation
    if generation is not None and generation.decode is None:
        raise UsageError(f"{ledger.metadata.name}: there are no decode steps to time: {generation.refused}")


def _configuration(  # noqa: PLR0913 - the parts of a configuration
    name: str, loaded: Loaded, hashed: str, run: Run, options: dict[str, Any], ledger: Ledger, device: Device
) -> Configuration:
    return Configuration(
        system=name,
        target=loaded.name,
        settings=loaded.settings,
        spec_hash=hashed,
        N=ledger.metadata.grid_tokens,
        size=run.size,
        batch=run.batch,
        dtype=run.dtype,
        attention=run.attention,
        mode=run.mode,
        run_options={option: options[option] for option in _OF_MODES if option in options},
        device=device.name,
        threads=device.threads,
        compiled=device.compiled,
    )


def run_of(configuration: Configuration) -> Run:
    """The checked run of a configuration."""
    of_size = {"N": configuration.N} if configuration.size is None else {"size": configuration.size}
    options = {name: getattr(configuration, name) for name in VARIED}
    return make_run(**of_size, **options, **configuration.run_options)


def axis_value(configuration: Configuration, axis: Axis) -> int:
    """Where a configuration stands on the axis."""
    return configuration.N if axis is TOKENS or configuration.size is None else configuration.size[0]


def spec_hash(spec: Spec) -> str:
    """16 hexadecimal digits of the expanded spec, without its name and texts."""
    parts = {key: value for key, value in msgspec.to_builtins(spec).items() if key not in _TEXTS}
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()[:16]


def counted_of(ledger: Ledger) -> Counted:
    """The costs in closed form of what a run does."""
    macs, flops = ledger.total("macs") or 0, ledger.total("flops")
    attention = ledger.attention_memory()["peak"]
    if ledger.training is not None:
        step = ledger.training.step
        macs, flops, attention = step.forward_macs + step.backward_macs, None, step.attention_kept_bytes
    by_mixing: dict[str, dict[str, int]] = {}
    for kind in MIXINGS:
        part = ledger.part(row for row in ledger.rows if row.mixing == kind)
        by_mixing[kind] = {quantity: part.total(quantity) or 0 for quantity in _BY_MIXING}
    return Counted(
        params=ledger.total("params") or 0,
        macs=macs,
        flops=flops,
        attention_entries=ledger.total("attention_entries") or 0,
        attention_bytes=attention,
        by_mixing=by_mixing,
    )
