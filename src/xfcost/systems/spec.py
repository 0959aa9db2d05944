"""A spec as a system: counted in closed form; its real model traced, timed, predicted and probed."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from math import inf
from typing import TYPE_CHECKING, Any, Final

import msgspec

from xfcost.counting.decoding import check_generation, run_at, traced_steps, with_mode, with_traced_steps
from xfcost.counting.forward import count, curve_costs, feed_forward_macs, keep_rows_of, with_rebuilt_note
from xfcost.counting.prefix import beside_whole
from xfcost.counting.system import AccountOptions, Grown, System, first_scores, without_steps
from xfcost.ledger.errors import UsageError, XfcostError
from xfcost.ledger.files import Say
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.units import BYTES_PER_ELEMENT
from xfcost.parts.training.plan import with_training_plan
from xfcost.parts.training.recomputation import with_recomputation
from xfcost.parts.training.step import with_training
from xfcost.spec.architecture import Architecture
from xfcost.spec.grammar import Spec
from xfcost.spec.inputs import image_size_for_grid, sized_inputs, takes_images, time_steps
from xfcost.spec.load import Loaded
from xfcost.spec.placement import place
from xfcost.spec.run import Run, is_language_model, with_defaults
from xfcost.systems.predictions import predictors

if TYPE_CHECKING:
    from xfcost.counting.reach.result import Reach
    from xfcost.torch_models.build import BuiltModel
    from xfcost.torch_models.timing.systems import SystemOnDevice, TimedSystem

# Doublings of a spec's own input in search of one without padding.
_MOST_DOUBLINGS: Final = 12


class SpecSystem(System):
    """A spec."""

    __slots__ = ("_prepared", "loaded")
    loaded: Loaded

    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded
        self._prepared: list[tuple[Run, Architecture]] = []

    @property
    def name(self) -> str:
        return self.loaded.spec.name

    @property
    def has_tokens(self) -> bool:
        return True

    @property
    def has_images(self) -> bool:
        """Is its input an image, no side folded into the width?"""
        return takes_images(self.loaded)

    def prepare(self, runs: Iterable[Run]) -> None:
        """Count their components together."""
        self._prepared.clear()
        for run in runs:
            with suppress(XfcostError):
                self._prepared.append((run, place(self.loaded, run)))
        keep_rows_of(architecture for _, architecture in self._prepared)

    def _place(self, run: Run) -> Architecture:
        found = next((architecture for prepared, architecture in self._prepared if prepared == run), None)
        return found or place(self.loaded, run)

    def ledger(self, run: Run) -> Ledger:
        return count(self._place(run), orders=False)

    def costs(self, run: Run) -> tuple[int, dict[str, int]]:
        architecture = self._place(run)
        return int(architecture.grid.tokens), curve_costs(architecture)

    def feed_forward_macs(self, run: Run) -> int | None:
        return feed_forward_macs(self._place(run))

    def input_key(self, run: Run) -> Hashable:
        return tuple(entry.sides for entry in sized_inputs(self.loaded, run))

    def axes(self, run: Run) -> int:
        """The axes of the first stage's grid, or of its feature maps."""
        return len(place(self.loaded, run).grid.map_sides)

    def time_steps(self) -> int:
        """Those of a video, or as many tokens as stand over one of the smallest of several feature maps."""
        return time_steps(self.loaded)

    def pixels(self, run: Run) -> int:
        """Pixels per token of the first stage."""
        return max(image_size_for_grid(self.loaded, run, (1, 1)))

    def scores(self, ledger: Ledger, run: Run) -> tuple[int | None, int | None]:
        """Of eager attention, whatever the run's."""
        eager_run = run._replace(attention="eager")
        eager = ledger if run == eager_run else self.ledger(eager_run)
        special = any(stream["extra_tokens"] for stream in ledger.metadata.streams)
        on_grid = self.ledger(eager_run._replace(extra_tokens=False)) if special else eager
        return first_scores(on_grid), first_scores(eager)

    def grown(self, ledger: Ledger, run: Run) -> Grown | None:
        """Where that pads, from the spec's own input, doubled until it is as long, if that and its double do not."""
        if run.mode == "generate":
            ledger = self.ledger(run)
        grown = self._from(ledger, run)
        if grown is None or without_steps(grown.own, grown.other):
            return grown
        own = run._replace(tokens=None, size=None)
        for power in range(_MOST_DOUBLINGS):
            with suppress(XfcostError):
                longer = self.ledger(own._replace(scale=(2**power, 1)))
                if longer.metadata.grid_tokens >= ledger.metadata.grid_tokens:
                    found = self._from(longer, own, 2**power)
                    return found if found and without_steps(longer, found.other) else grown
        return grown

    def _from(self, ledger: Ledger, run: Run, times: int = 1) -> Grown | None:
        """From `ledger`, of `run` scaled `times`, to its input doubled, or halved."""
        length = 2 ** self.axes(run)
        for scale, factor in (((2 * times, 1), length), ((times, 2), 1 / length)):
            try:
                return Grown(ledger, self.ledger(run._replace(scale=scale)), factor)
            except XfcostError:  # beyond the last learned position, or a side that can't be halved
                continue
        return None

    def kind(self, run: Run) -> Spec | bool:
        return self.loaded.spec

    def positions_up_to(self, most: int, run: Run) -> int:
        while is_language_model(self.loaded.spec) and most:
            with suppress(XfcostError):
                place(self.loaded, run._replace(tokens=(most,)))
                return most
            most //= 2
        return 0

    def with_positions(self, tokens: int) -> SpecSystem:
        def longer(part: Any) -> Any:
            fits = not isinstance(length := getattr(part, "length", None), int) or length >= tokens
            return part if fits else msgspec.structs.replace(part, length=tokens)

        spec = msgspec.structs.replace(self.loaded.spec, embed=[*map(longer, self.loaded.spec.embed)])
        return SpecSystem(msgspec.structs.replace(self.loaded, spec=spec))

    def with_samples(self, batch: int) -> SpecSystem:
        return self

    def reach(self, run: Run, token: Sequence[int] | None, say: Say) -> Reach:
        """Composed of what each operation reads."""
        from xfcost.counting.reach.composed import reach

        return reach(self.loaded, run, token)

    def account(self, run: Run, how: AccountOptions) -> Ledger:
        """Counted, then traced, predicted, timed and probed.

        Raises:
            XfcostError: bad input; a DeviceError where memory runs out, with bytes.
        """
        if how.device is not None:
            ledger = timed_in_turns([self], run, how)[0]
        elif how.predict is not None:
            ledger = self.ready(run, how, how.predict).ledger
        else:
            run = with_defaults(run, [self.loaded.spec])
            ledger = self._counted(run, how)[1]
            if ledger.metadata.cached_prefix:
                whole = run._replace(mode="prefill", new_tokens=1, cached_prefix=0)
                ledger = beside_whole(ledger, self._counted(whole, how._replace(orders=False))[1])
        if how.probe:
            return self._probed(run, ledger, how.say)
        if not how.check or not how.mixing or run.mode in {"decode", "generate"}:
            return ledger
        return self._probed(run, ledger, lambda text: None, detailed=False, limit=how.mixing)

    def on_device(self, run: Run, how: AccountOptions) -> SystemOnDevice:
        """Its ledger is counted, traced and predicted as `how` asks.

        Raises:
            XfcostError: as `account`.
        """
        from xfcost.torch_models.timing.systems import SystemOnDevice

        device = str(how.device)
        return SystemOnDevice(self.ready(run, how, device), device, how.timing)

    def ready(self, run: Run, how: AccountOptions, device: str) -> TimedSystem:
        """What its mode runs on `device`, counted, and predicted where `how` asks for that.

        Raises:
            XfcostError: as `account`; the generation has no decode steps, the device is not calibrated, or its step
                recomputes.
        """
        if run.plan is not None and run.plan.recompute != "none":
            option = "--predict" if how.predict is not None else "--device"
            raise UsageError(
                f"--recompute {run.plan.recompute}: a spec's model runs without checkpoints; leave {option} out, or "
                "give a torch module"
            )
        run = with_defaults(run, [self.loaded.spec])
        architecture, ledger = self._counted(run, how)
        with torch_there(self.name, f"running it on {device}" if how.predict is None else "predicting it"):
            from xfcost.torch_models.timing.systems import TimedSystem

            def step_at(tokens: int) -> Architecture:
                return place(self.loaded, run_at(tokens, architecture, run, "decode"))

            generation = ledger.generation
            if generation is not None and generation.decode is None:
                raise UsageError(f"--device {device}: there are no steps to time: {generation.refused}")
            found = TimedSystem(architecture, ledger, None if generation is None else step_at)
            if how.predict is None:
                return found
            from xfcost.torch_models.predicting.predict import predicted

            predictor = predictors(how.predict, how.timing.threads)(architecture.dtype)
            return found._replace(ledger=predicted(found, predictor))

    def _counted(self, run: Run, how: AccountOptions) -> tuple[Architecture, Ledger]:
        """Its architecture, and its ledger without times."""
        loaded, traces = self.loaded, how.trace is not False
        with torch_there(self.name, "tracing it") if traces else nullcontext():
            architecture = place(loaded, run)
            check_generation(loaded, run, architecture)
            given = (loaded, run, architecture)
            ledger = with_rebuilt_note(count(architecture, orders=how.orders is not False), loaded, architecture)
            if run.plan is not None:
                ledger = with_training(ledger, architecture, run.plan)
            ledger = self._traced(ledger, run, architecture, how.say) if traces else with_mode(ledger, *given)
            if run.plan is not None:  # a trace knows the activations of every model
                ledger = with_training_plan(ledger, architecture, run.plan)
                return architecture, with_recomputation(ledger, architecture, run.plan)
            if run.on is None and not run.choices:
                return architecture, ledger
            from xfcost.parts.serving.bounds import sizes_of_spec, with_devices
            from xfcost.parts.serving.choosing import with_choices

            return architecture, with_choices(
                with_devices(ledger, *given, limits=how.limits), run, sizes_of_spec(*given)
            )

    def _traced(self, ledger: Ledger, run: Run, architecture: Architecture, say: Say) -> Ledger:
        """`ledger` joined with the trace, and with the results of its mode; of a generation, some steps are traced."""
        from xfcost.torch_models.shared.environment import collector_paused

        say(f"tracing {ledger.metadata.name} …")
        with collector_paused():
            from xfcost.torch_models.accounts import traced, with_traced

            ledger = traced(architecture, ledger)
        ledger = with_mode(ledger, self.loaded, run, architecture)
        if ledger.generation is None or ledger.generation.decode is None:
            return ledger
        sizes = traced_steps(ledger.generation)
        for tokens in sizes:
            say(f"tracing the step at {tokens} tokens …")
            ledger = with_traced(ledger, place(self.loaded, run_at(tokens, architecture, run, "decode")))
        return with_traced_steps(ledger, sizes)

    def _probed(self, run: Run, ledger: Ledger, say: Say, *, detailed: bool = True, limit: float = inf) -> Ledger:
        """`ledger` with how the running model mixes tokens: `detailed`, or a check up to a `limit` of elements."""
        from xfcost.torch_models.shared.environment import collector_paused

        with torch_there(self.name, "probing it"), collector_paused():
            from xfcost.torch_models.probing.account import probed

            return probed(place(self.loaded, run), ledger, say, detailed=detailed, limit=limit)

    def built(self, run: Run, device: str) -> BuiltModel:
        """Its torch model on `device`, with example inputs.

        Raises:
            XfcostError: bad input; a NoRoomError where the weights don't fit.
        """
        with torch_there(self.name, "building it"):
            from xfcost.torch_models.build import build
            from xfcost.torch_models.memory.peak import check_room
            from xfcost.torch_models.timing.devices import check_device

            architecture = place(self.loaded, run)
            if device != "meta":
                check_device(device)
                weights = (count(architecture, orders=False).total("params") or 0) * BYTES_PER_ELEMENT[
                    architecture.dtype
                ]
                check_room(weights, device, self.name, "the weights alone")
            return build(architecture, device)


def timed_in_turns(systems: Sequence[System], run: Run, how: AccountOptions) -> list[Ledger]:
    """The ledgers of all systems, with seconds measured in turns on the device of `how`.

    Raises:
        XfcostError: one can't be run so, or does not fit on the device.
    """
    device, names = str(how.device), " and ".join(one.name for one in systems)
    with torch_there(names, f"running {'it' if len(systems) == 1 else 'them'} on {device}"):
        from xfcost.torch_models.timing.devices import check_device
        from xfcost.torch_models.timing.systems import in_turns
        from xfcost.torch_models.timing.turns import REAL

        check_device(device, run.dtype)
        return in_turns([one.on_device(run, how) for one in systems], device, how.timing, how.say, REAL)


def torch_there(name: str, doing: str) -> AbstractContextManager[None]:
    """Inside it torch is there, and memory that runs out is a DeviceError with bytes."""
    from xfcost.torch_models.memory.shortage import check_torch_loads, memory_may_run_out

    check_torch_loads()
    return memory_may_run_out(name, doing)
