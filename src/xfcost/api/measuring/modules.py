"""The torch modules of a sweep, counted before they are measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from xfcost.api.measuring.plan import SweptSizes
from xfcost.api.options import Progress
from xfcost.api.systems import check_options, first_sizes, open_systems, start
from xfcost.api.without_effect import refuse
from xfcost.counting.system import SpecSystem, System
from xfcost.ledger.errors import UsageError
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.measurements import OfModule
from xfcost.ledger.timing_plan import TimingPlan
from xfcost.spec.load import Loaded
from xfcost.spec.run import Run

if TYPE_CHECKING:
    from xfcost.torch_models.any_model.system import ModuleSystem
    from xfcost.torch_models.any_model.targets import NamedModule


class ModuleInputs(msgspec.Struct, frozen=True):
    """What the modules are made of and called with."""

    inputs: Sequence[str] = ()
    build: Sequence[str] = ()
    mixing: bool = False
    """Find how their operations mix tokens."""


def opened(
    names: Sequence[str], settings: Sequence[str] | None, given: ModuleInputs, progress: Progress
) -> list[Loaded | MeasuredModule]:
    """The systems of a sweep: specs and named modules.

    Raises:
        XfcostError: a spec can't be read; options are of no module.
    """
    found: list[Loaded | MeasuredModule] = []
    for one in open_systems(names, {"settings": settings, "inputs": given.inputs, "build": given.build}, progress):
        if not isinstance(one, SpecSystem):
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
            UsageError: it runs at no size, or an option is of specs alone.
        """
        from xfcost.torch_models.any_model.ledger import check_plan
        from xfcost.torch_models.any_model.system import ModuleSystem
        from xfcost.torch_models.any_model.targets import NamedModule

        check_plan(timing, self.name)
        for run in runs:
            check_options(self.name, run, trained=True)
        for batch in dict.fromkeys(run.batch for run in runs):
            module = self._module
            if batch != module.samples:
                module = NamedModule(module.target, module.texts, module.build, batch)
            system = ModuleSystem(module, patient=True)
            plain = Run(batch=batch)
            at = [sizes.axis.run(plain, x) for x in first_sizes(sizes.axis, sizes.span)]
            start(system, at, mixing=self._mixing, strict=False, progress=self._progress)
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
        from xfcost.torch_models.any_model.ledger import How

        system = self._systems[run.batch]
        if run.plan is None:
            return system.ledger(run)
        return system.account(run, How(trace=False, closed_form=False, plan=run.plan))

    def fields(self, run: Run, ledger: Ledger) -> dict[str, Any]:
        """What a configuration says of it: dtype and attention are its own."""
        own = {name: getattr(ledger.metadata, name) for name in ("dtype", "attention")}
        texts = OfModule(inputs=self._module.texts, build=self._module.build, mixing=self._mixing)
        return own | {"target": self._module.target.text, "spec_hash": self._hash, "module": texts}
