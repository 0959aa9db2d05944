"""What `xfcost measure` measures, in order: systems × sizes × batches × dtypes × attention × modes, all counted."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from xfcost.api.runs import make_run
from xfcost.api.specs import account
from xfcost.counting.comparison import distinct
from xfcost.counting.sweep import MeasuredSizes, SizeAxis, measured_grids
from xfcost.counting.system import SpecSystem, System
from xfcost.ledger.errors import UsageError
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.measurements import OF_MODES, Configuration, Counted, key_of
from xfcost.ledger.operation import MIXINGS
from xfcost.ledger.timing_plan import TimingPlan
from xfcost.spec.grammar import Spec
from xfcost.spec.load import Loaded
from xfcost.spec.run import Run, with_defaults

# More are a typing error: they would be measured for days.
MOST_CONFIGURATIONS: Final = 10_000
# Options that a sweep takes several values of, the first one varying slowest.
VARIED: Final = ("batch", "dtype", "attention", "mode")
# What a spec says that changes nothing that runs.
_TEXTS: Final = ("name", "paper", "notes", "published", "survey", "extends", "set")
_BY_MIXING: Final = ("params", "macs", "flops", "attention_entries")


class PlannedRow(NamedTuple):
    """One configuration, and what it costs as counted."""

    configuration: Configuration
    counted: Counted


class SweepPlan(NamedTuple):
    """The configurations in the order in which they are measured, and what is left out."""

    planned: list[PlannedRow]
    grids: dict[str, MeasuredSizes]
    """System -> its points."""
    default_notes: tuple[str, ...] = ()
    """Why dtype and attention are what they are, where they were not given."""

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Of all configurations, each once."""
        return tuple(dict.fromkeys(one.configuration.dtype for one in self.planned))

    def with_threads(self, threads: int) -> SweepPlan:
        """The plan with so many threads of torch in every configuration."""
        return self._replace(
            planned=[
                one._replace(configuration=msgspec.structs.replace(one.configuration, threads=threads))
                for one in self.planned
            ]
        )


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
        unused = {name for name, modes in OF_MODES.items() if mode not in modes}
        several = len(values.get("mode", ())) > 1
        result.append(one | {name: more[name] for name in more if not (several and name in unused)})
    for name in more:
        if not any(name in one for one in result):
            raise UsageError(f"--{name.replace('_', '-')}: it is of --mode {' or '.join(OF_MODES[name])}; add that")
    return result


class SweptSizes(NamedTuple):
    """Over what is swept."""

    axis: SizeAxis
    span: tuple[int, int]
    points: int


class Measurable(Protocol):
    """A system of a sweep."""

    name: str

    @property
    def system(self) -> System:
        """What tells which sizes it can have."""

    def prepare(self, runs: Sequence[Run], sizes: SweptSizes, timing: TimingPlan) -> None:
        """Called before the others, with the run of every variant."""

    def ledger(self, run: Run) -> Ledger:
        """Counted."""

    def fields(self, run: Run, ledger: Ledger) -> dict[str, Any]:
        """What a configuration says of it."""


def planned(
    given: Sequence[Loaded | Measurable], sizes: SweptSizes, variants: Sequence[dict[str, Any]], device: str,
    timing: TimingPlan,
) -> SweepPlan:  # fmt: skip
    """All configurations: sizes ascending, and at each size and variant the systems in turns (A B A B).

    Raises:
        XfcostError: a system can't have any size, or can't run in a variant.
    """
    specs = [one.spec if isinstance(one, Loaded) else None for one in given]
    runs = [(with_defaults(make_run(**one), specs), one) for one in variants]
    systems: list[Measurable] = [_MeasuredSpec(one) if isinstance(one, Loaded) else one for one in given]
    names = distinct([one.name for one in systems])
    for one in systems:
        one.prepare([run for run, _ in runs], sizes, timing)
    grids = measured_grids([one.system for one in systems], runs[0][0], sizes.axis, sizes.span, sizes.points)
    number = len(runs) * sum(len(grid.points) for grid in grids)
    if number > MOST_CONFIGURATIONS:
        raise UsageError(f"measure: {number:,} configurations, and at most {MOST_CONFIGURATIONS:,} are measured")
    where = {"device": device, "threads": timing.threads or 1}
    where |= {"compiled": timing.compile, "composed": timing.composed}
    result = []
    for at, (run, options) in itertools.product(sorted({at for grid in grids for at in grid.points}), runs):
        for name, system, grid in zip(names, systems, grids, strict=True):
            if at in grid.points:
                result.append(_counted(name, system, sizes.axis.run(run, grid.points[at]), options, where))
    once = {key_of(one.configuration, None, None): one for one in reversed(result)}  # a module has a dtype of its own
    result = [one for one in result if once[key_of(one.configuration, None, None)] is one]
    notes = dict.fromkeys(run.default_note for run, _ in runs if run.default_note is not None)
    return SweepPlan(result, dict(zip(names, grids, strict=True)), tuple(notes))


class _MeasuredSpec:
    """A spec of a sweep."""

    def __init__(self, loaded: Loaded) -> None:
        self.name, self._loaded, self.system = loaded.spec.name, loaded, SpecSystem(loaded)
        self._hash = spec_hash(loaded.spec)

    def prepare(self, runs: Sequence[Run], sizes: SweptSizes, timing: TimingPlan) -> None:
        """Nothing has to be known before it is counted."""

    def ledger(self, run: Run) -> Ledger:
        """Counted."""
        return account(self._loaded, run, trace=False, orders=False)

    def fields(self, run: Run, ledger: Ledger) -> dict[str, Any]:
        """What a configuration says of it."""
        of_spec = {"target": self._loaded.name, "settings": self._loaded.settings, "spec_hash": self._hash}
        return of_spec | {"dtype": run.dtype, "attention": run.attention}


def _counted(name: str, system: Measurable, run: Run, options: dict[str, Any], where: dict[str, Any]) -> PlannedRow:
    """One configuration, counted.

    Raises:
        XfcostError: the system can't run so.
    """
    ledger = system.ledger(run)
    generation = ledger.generation
    if generation is not None and generation.decode is None:
        raise UsageError(f"{name}: there are no decode steps to time: {generation.refused}")
    configuration = Configuration(
        system=name,
        N=ledger.metadata.grid_tokens,
        size=run.size,
        batch=run.batch,
        mode=run.mode,
        run_options={option: options[option] for option in OF_MODES if option in options},
        **system.fields(run, ledger),
        **where,
    )
    return PlannedRow(configuration, counted_of(ledger))


def run_of(configuration: Configuration) -> Run:
    """The checked run of a configuration."""
    of_size = {"N": configuration.N} if configuration.size is None else {"size": configuration.size}
    names = ("batch", "mode") if configuration.is_module else VARIED  # a module has a dtype and attention of its own
    options = {name: getattr(configuration, name) for name in names}
    return make_run(**of_size, **options, **configuration.run_options)


def spec_hash(spec: Spec) -> str:
    """16 hexadecimal digits of the expanded spec, without its name and texts."""
    parts = {key: value for key, value in msgspec.to_builtins(spec).items() if key not in _TEXTS}
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()[:16]


def has_kinds(ledger: Ledger) -> bool:
    """Are mixing kinds known? Those of a torch module have to be looked for."""
    return ledger.module is None or any(row.mixing != "unknown" for row in ledger.rows)


def counted_of(ledger: Ledger) -> Counted:
    """The costs in closed form of what a run does."""
    macs, flops = ledger.total("macs") or 0, ledger.total("flops")
    attention = ledger.attention_memory()["peak"]
    if ledger.training is not None:
        step = ledger.training.step
        macs, flops, attention = step.forward_macs + step.backward_macs, None, step.attention_kept_bytes
    by_mixing: dict[str, dict[str, int]] = {}
    for kind in MIXINGS if has_kinds(ledger) else ():
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
