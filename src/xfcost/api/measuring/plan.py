"""What `xfcost measure` measures, in order: systems × sizes × batches × dtypes × attention × modes, all counted."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import msgspec

from xfcost.api.measuring.process import RowJob
from xfcost.api.options import Progress, flag_of
from xfcost.api.refusals import refuse
from xfcost.api.runs import make_run
from xfcost.api.systems import TIMED_MODES, check_options, first_sizes, mixing_limit, open_systems
from xfcost.comparing.comparison import distinct
from xfcost.comparing.sweep import MeasuredSizes, SizeAxis, measured_grids, targets_of
from xfcost.counting.system import AccountOptions, System
from xfcost.ledger.errors import UsageError
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.measurements import OF_MODES, Configuration, Counted, OfModule, key_of
from xfcost.ledger.operation import MIXINGS
from xfcost.ledger.timing_plan import TimingPlan
from xfcost.spec.grammar import Spec
from xfcost.spec.hub import hub_name
from xfcost.spec.run import Run, with_defaults
from xfcost.spec.targets import module_target
from xfcost.systems.onnx import OnnxSystem

if TYPE_CHECKING:
    from xfcost.systems.module import ModuleSystem
    from xfcost.torch_models.any_model.targets import NamedModule

# More are a typing error: they would be measured for days.
MOST_CONFIGURATIONS: Final = 10_000
# Options that a sweep takes several values of, the first one varying slowest.
VARIED: Final = ("batch", "dtype", "attention", "mode")
# What a spec says that changes nothing that runs.
_TEXTS: Final = ("name", "paper", "notes", "published", "survey", "extends", "set")
# A dimension B of an input.
_BATCH: Final = re.compile(r"(?:^|[=x])B(?:$|[x:])")
_BY_MIXING: Final = ("params", "macs", "flops", "attention_entries")


class PlannedRow(NamedTuple):
    """One configuration, and what it costs as counted."""

    configuration: Configuration
    counted: Counted
    spec: str | None = None
    """The expanded spec as JSON; None of a module."""

    def job(self, asked: RowJob) -> RowJob:
        """`asked` of this row; a module's file has its whole path, as a process in another folder finds it."""
        configuration = self.configuration
        if configuration.is_module and (target := module_target(configuration.target)) is not None:
            configuration = msgspec.structs.replace(configuration, target=target.absolute)
        return msgspec.structs.replace(asked, configuration=configuration, spec=self.spec)


class SweepPlan(NamedTuple):
    """The configurations in the order in which they are measured, and what is left out."""

    rows: list[PlannedRow]
    grids: dict[str, MeasuredSizes]
    """System -> its points."""
    default_notes: tuple[str, ...] = ()
    """Why dtype and attention are what they are, where they were not given."""


def variants_of(options: dict[str, Any]) -> list[dict[str, Any]]:
    """Run options of every combination: those of `VARIED` are lists, or texts with commas, each of their values once.

    Raises:
        UsageError: a value can't be, or an option is of none of the modes.
    """
    given = {name: value for name, value in options.items() if value is not None}
    texts = {
        name: given[name] if isinstance(given[name], list | tuple) else str(given[name]).split(",")
        for name in VARIED
        if name in given
    }
    values = {name: list(dict.fromkeys(map(str, several))) for name, several in texts.items()}
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
            raise UsageError(f"{flag_of(name)}: only for --mode {' or '.join(OF_MODES[name])}; add it")
    return result


class SweptSizes(NamedTuple):
    """Over what is swept."""

    axis: SizeAxis
    span: tuple[int, int]
    points: int
    listed: tuple[int, ...] = ()
    """The sizes themselves, where they are given, instead of so many points in the span."""


class _AtBatch(NamedTuple):
    """A system with the batch of a run, and what every configuration says of it."""

    system: System
    fields: dict[str, Any]
    spec: str | None = None
    """As JSON; None of a module."""


def planned(
    names: Sequence[str], options: Mapping[str, Any], sizes: SweptSizes, timing: TimingPlan,
    progress: Progress = lambda text: None,
) -> SweepPlan:  # fmt: skip
    """All configurations: sizes ascending, and at each size and variant the systems in turns (A B A B).

    Raises:
        XfcostError: a spec can't be read, a system can't have any size, or can't run in a variant.
    """
    mixing, device = bool(options.get("mixing")), options.get("device") or "cpu"
    of_systems = {name: options.get(name) for name in ("settings", "fetch", "inputs", "build")}
    given = open_systems(names, of_systems, progress, patient=True)
    specs = [one.loaded for one in given if one.loaded is not None]
    for one in specs:
        if one.name.endswith(".json") or hub_name(one.name) is not None:
            raise UsageError(f"measure: {one.name} is a config; write its spec (xfcost import) and measure that")
    if specs:
        refuse("a measured spec", {"checkpoint": options.get("checkpoint")})
    if len(specs) == len(given):
        refuse("measured specs", {"mixing": mixing or None})
    kinds = [one.loaded is not None and one.loaded.spec for one in given]
    variants = variants_of({name: options.get(name) for name in (*VARIED, *OF_MODES)})
    runs = [with_defaults(make_run(**one), kinds) for one in variants]
    systems = [_at_batches(one, runs, sizes, timing, mixing, progress) for one in given]
    named = distinct([one.name for one in given])
    first = [one[runs[0].batch].system for one in systems]
    grids = measured_grids(first, runs[0], sizes.axis, sizes.span, sizes.listed or targets_of(sizes.span, sizes.points))
    number = len(runs) * sum(len(grid.points) for grid in grids)
    if number > MOST_CONFIGURATIONS:
        raise UsageError(f"measure: {number:,} configurations, and at most {MOST_CONFIGURATIONS:,} are measured")
    where = {"device": device, "threads": timing.threads, "compiled": timing.compile, "composed": timing.composed}
    rows: dict[bytes, PlannedRow] = {}
    at_all = sorted({at for grid in grids for at in grid.points})
    for at, (run, variant) in itertools.product(at_all, zip(runs, variants, strict=True)):
        for name, batches, grid in zip(named, systems, grids, strict=True):
            if at in grid.points:
                own = {option: variant[option] for option in OF_MODES if option in variant}
                fields = {"system": name, "run_options": own, **where}
                row = _counted(batches[run.batch], sizes.axis.run(run, grid.points[at]), fields)
                rows.setdefault(key_of(row.configuration, None, None), row)  # a module has a dtype of its own
    notes = dict.fromkeys(run.default_note for run in runs if run.default_note is not None)
    return SweepPlan(list(rows.values()), dict(zip(named, grids, strict=True)), tuple(notes))


def _at_batches(
    system: System, runs: Sequence[Run], sizes: SweptSizes, timing: TimingPlan, mixing: bool, progress: Progress
) -> dict[int, _AtBatch]:
    """The system with every batch of the runs; a module is counted once with each.

    Raises:
        UsageError: it runs at no size, or an option is for specs only, or changes nothing.
    """
    batches = dict.fromkeys(run.batch for run in runs)
    if (loaded := system.loaded) is not None:
        fields = {"target": loaded.name, "settings": loaded.settings, "spec_hash": spec_hash(loaded.spec)}
        return dict.fromkeys(batches, _AtBatch(system, fields, msgspec.json.encode(loaded.data).decode()))
    if isinstance(system, OnnxSystem):
        raise system.needs_run("measure")
    from xfcost.torch_models.any_model.ledger import check_plan

    check_plan(timing, system.name)
    for run in runs:
        check_options(system, run, modes=TIMED_MODES)
    found = {}
    for batch in batches:
        at = cast("ModuleSystem", system.with_samples(batch))
        module = cast("NamedModule", at.module)
        if batch > 1 and module.texts and not any(_BATCH.search(text) for text in module.texts):
            raise UsageError(
                f"--batch {batch}: the inputs of {at.name} have no letter B, as in --input BxNx768; leave --batch out"
            )
        first = [sizes.axis.run(Run(batch=batch), x) for x in first_sizes(sizes.axis, sizes.span)]
        at.start(first, AccountOptions(orders=False, mixing=mixing_limit(mixing), progress=progress))
        of = OfModule(inputs=module.texts, build=module.build, mixing=mixing)
        found[batch] = _AtBatch(at, {"target": module.target.text, "spec_hash": module.fingerprint(), "module": of})
    return found


def _counted(one: _AtBatch, run: Run, fields: dict[str, Any]) -> PlannedRow:
    """One configuration, counted."""
    ledger = _ledger(one.system, run)
    generation = ledger.generation
    if generation is not None and generation.decode is None:
        raise UsageError(f"{fields['system']}: there are no decode steps to time: {generation.refused}")
    metadata = ledger.metadata
    configuration = Configuration(
        N=metadata.grid_tokens,
        size=run.size,
        batch=run.batch,
        mode=run.mode,
        dtype=metadata.dtype,  # a module has its own
        attention=metadata.attention,
        **one.fields,
        **fields,
    )
    return PlannedRow(configuration, counted_of(ledger), one.spec)


def _ledger(system: System, run: Run) -> Ledger:
    """Counted; of a module evaluated from polynomials through its counts, but for a training step."""
    if system.loaded is None and run.plan is None:
        return system.ledger(run)
    return system.account(run, AccountOptions(orders=False))


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


def counted_of(ledger: Ledger) -> Counted:
    """The costs in closed form of what a run does."""
    macs, flops = ledger.total("macs") or 0, ledger.total("flops")
    attention = ledger.attention_memory()["peak"]
    if ledger.training is not None:
        step = ledger.training.step
        macs, flops, attention = step.forward_macs + step.backward_macs, None, step.attention_kept_bytes
    by_mixing: dict[str, dict[str, int]] = {}
    for kind in MIXINGS if ledger.has_kinds else ():
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
