"""What `xfcost measure` measures, in order: systems × sizes × batches × dtypes × attention × modes, all counted."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from xfcost.api.options import Progress
from xfcost.api.runs import make_run, refuse
from xfcost.api.systems import TIMED_MODES, check_options, first_sizes, mixing_limit, open_systems
from xfcost.counting.comparison import distinct
from xfcost.counting.sweep import MeasuredSizes, SizeAxis, measured_grids
from xfcost.counting.system import AccountOptions, System
from xfcost.ledger.errors import UsageError
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.measurements import OF_MODES, Configuration, Counted, OfModule, key_of
from xfcost.ledger.operation import MIXINGS
from xfcost.ledger.timing_plan import TimingPlan
from xfcost.spec.grammar import Spec
from xfcost.spec.load import Loaded
from xfcost.spec.run import Run, with_defaults
from xfcost.systems.spec import SpecSystem

if TYPE_CHECKING:
    from xfcost.systems.module import ModuleSystem
    from xfcost.torch_models.any_model.targets import NamedModule

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
            raise UsageError(f"--{name.replace('_', '-')}: only for --mode {' or '.join(OF_MODES[name])}; add it")
    return result


class SweptSizes(NamedTuple):
    """Over what is swept."""

    axis: SizeAxis
    span: tuple[int, int]
    points: int


def opened(
    names: Sequence[str], settings: Sequence[str] | None, given: OfModule, progress: Progress
) -> list[Loaded | MeasuredModule]:
    """The systems of a sweep: specs and named modules.

    Raises:
        XfcostError: a spec can't be read; options are of no module.
    """
    found: list[Loaded | MeasuredModule] = []
    for one in open_systems(names, {"settings": settings, "inputs": given.inputs, "build": given.build}, progress):
        if one.loaded is None:
            found.append(MeasuredModule(one.module, given.mixing, progress))  # type: ignore[attr-defined]
        elif one.loaded.name.endswith(".json"):
            raise UsageError(f"measure: {one.loaded.name} is a config; write its spec (xfcost import) and measure that")
        else:
            found.append(one.loaded)
    if all(isinstance(one, Loaded) for one in found):
        refuse("measured specs", {"mixing": given.mixing})
    return found


class MeasuredModule:
    """A named module, at any batch."""

    def __init__(self, module: NamedModule, mixing: bool, progress: Progress) -> None:
        self._module, self._mixing, self._progress = module, mixing, progress
        self.name = module.title
        self._systems: dict[int, ModuleSystem] = {}
        self._hash = ""

    @property
    def system(self) -> System:
        """With the first batch."""
        return next(iter(self._systems.values()))

    def prepare(self, runs: Sequence[Run], sizes: SweptSizes, timing: TimingPlan) -> None:
        """Count it once with every batch.

        Raises:
            UsageError: it runs at no size, or an option is for specs only.
        """
        from xfcost.systems.module import ModuleSystem
        from xfcost.torch_models.any_model.ledger import check_plan
        from xfcost.torch_models.any_model.targets import NamedModule

        check_plan(timing, self.name)
        for batch in dict.fromkeys(run.batch for run in runs):
            module = self._module
            if batch != module.samples:
                module = NamedModule(module.target, module.texts, module.build, batch)
            system = ModuleSystem(module, patient=True)
            for run in runs:
                check_options(system, run, modes=TIMED_MODES)
            plain = Run(batch=batch)
            at = [sizes.axis.run(plain, x) for x in first_sizes(sizes.axis, sizes.span)]
            how = AccountOptions(orders=False, mixing=mixing_limit(self._mixing), progress=self._progress)
            system.start(at, how)
            self._check_batch(system, batch)
            self._systems[batch] = system
            self._hash = module.fingerprint()

    def _check_batch(self, system: ModuleSystem, batch: int) -> None:
        """Refuse a batch that changes nothing.

        Raises:
            UsageError: its inputs have no letter B.
        """
        from xfcost.torch_models.any_model.inputs import Lengths
        from xfcost.torch_models.any_model.ledger import How

        own = system.own
        if batch == self._module.samples or own.module is None:
            return
        height, width = own.metadata.image or (0, 0)
        lengths = Lengths(own.metadata.grid_tokens or None, (height, width) if height else None)
        of_one = self._module.ledger(lengths, How(trace=False, closed_form=False)).module
        if of_one is not None and of_one.inputs == own.module.inputs:
            raise UsageError(
                f"--batch {batch}: the inputs of {self.name} have no letter B, as in --input BxNx768; leave --batch out"
            )

    def ledger(self, run: Run) -> Ledger:
        """Counted, or evaluated from polynomials through its counts; a training step is counted.

        Raises:
            XfcostError: it does not run there.
        """
        system = self._systems[run.batch]
        if run.plan is None:
            return system.ledger(run)
        return system.account(run, AccountOptions(orders=False))

    def fields(self, run: Run, ledger: Ledger) -> dict[str, Any]:
        """What a configuration says of it: dtype and attention are its own."""
        own = {name: getattr(ledger.metadata, name) for name in ("dtype", "attention")}
        texts = OfModule(inputs=self._module.texts, build=self._module.build, mixing=self._mixing)
        return own | {"target": self._module.target.text, "spec_hash": self._hash, "module": texts}


class MeasuredSpec:
    """A spec of a sweep; it is asked what a torch module is asked too."""

    def __init__(self, loaded: Loaded) -> None:
        self.name, self._loaded = loaded.spec.name, loaded
        self.system: System = SpecSystem(loaded)
        self._hash = spec_hash(loaded.spec)

    def prepare(self, runs: Sequence[Run], sizes: SweptSizes, timing: TimingPlan) -> None:
        """Nothing has to be known before it is counted."""

    def ledger(self, run: Run) -> Ledger:
        """Counted."""
        return SpecSystem(self._loaded).account(run, AccountOptions(orders=False))

    def fields(self, run: Run, ledger: Ledger) -> dict[str, Any]:
        """What a configuration says of it."""
        of_spec = {"target": self._loaded.name, "settings": self._loaded.settings, "spec_hash": self._hash}
        return of_spec | {"dtype": run.dtype, "attention": run.attention}


def planned(
    given: Sequence[Loaded | MeasuredModule], sizes: SweptSizes, variants: Sequence[dict[str, Any]], device: str,
    timing: TimingPlan,
) -> SweepPlan:  # fmt: skip
    """All configurations: sizes ascending, and at each size and variant the systems in turns (A B A B).

    Raises:
        XfcostError: a system can't have any size, or can't run in a variant.
    """
    specs = [isinstance(one, Loaded) and one.spec for one in given]
    runs = [(with_defaults(make_run(**one), specs), one) for one in variants]
    systems: list[MeasuredSpec | MeasuredModule] = [
        MeasuredSpec(one) if isinstance(one, Loaded) else one for one in given
    ]
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


def _counted(
    name: str, system: MeasuredSpec | MeasuredModule, run: Run, options: dict[str, Any], where: dict[str, Any]
) -> PlannedRow:
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
