"""Seconds of a model that is not run: its calls on `meta`, each predicted from a calibration of the device."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Final, NamedTuple

import msgspec
import torch
from torch import nn

from xfcost.ledger.achieved import UPDATE
from xfcost.ledger.calibration import Calibration, Network, Overhead, training_steps
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.metadata import Lanes, Phase
from xfcost.parts.prediction.result import Prediction
from xfcost.torch_models.build import BuiltModel, build
from xfcost.torch_models.memory.peak import peak_bytes
from xfcost.torch_models.memory.shortage import within_torch
from xfcost.torch_models.memory.training_step import Stepping
from xfcost.torch_models.predicting.regression import Place, Regression, as_kernels, features_of, joined
from xfcost.torch_models.running.by_row import leaf_rows, row_path
from xfcost.torch_models.running.prediction_calls import LayoutCall, every_layout
from xfcost.torch_models.running.record import RecordedCall, RunRecord
from xfcost.torch_models.running.recorder import Clock, Recorder
from xfcost.torch_models.shared.private_torch import disable_current_modes, no_compiler
from xfcost.torch_models.timing.kernels import recorded_kernels
from xfcost.torch_models.timing.systems import DECODE, PREFILL, TimedSystem

# The interval holds nine of ten networks of the calibration, each predicted from the others.
_SHARE: Final = 0.9
# A call of an operation that was never measured may take this many times longer or shorter.
_UNKNOWN_FACTOR: Final = 3.0

OUTSIDE: Final = ""
"""Stands for the row of what runs outside all rows."""
Before = Callable[[], object] | None
Running = Callable[[Recorder, Callable[[], object]], object]
"""Runs a call that a recorder records, once or several times."""


def once(_recorder: Recorder, run: Callable[[], object]) -> None:
    """Run it, without seconds."""
    run()


def in_all_steps(recorder: Recorder, run: Callable[[], object]) -> None:
    """The same, with every step of its loops over tokens, as on a device."""
    recorder.whole_loops = True
    run()


def by_clock(clock: Clock, times: int = 1, before: Before = None) -> Running:
    """Run it once, and `times` times more with a clock at each call. `before` runs before each, and is not recorded."""

    def running(recorder: Recorder, run: Callable[[], object]) -> None:
        recorder.clock = clock
        for _ in range(times + 1):
            _unrecorded(before)
            run()
            recorder.repeat()

    return running


def by_kernels(device: str, before: Before = None) -> Running:
    """Run it once on a GPU; its calls get the seconds of their kernels."""

    def running(recorder: Recorder, run: Callable[[], object]) -> None:
        _unrecorded(before)
        recorded_kernels(recorder, run, device)

    return running


def _unrecorded(before: Before) -> None:
    if before is not None:
        with disable_current_modes():
            before()


class Recorded(NamedTuple):
    """The calls of a run."""

    calls: dict[tuple[str, LayoutCall], int]
    """(module path, or row; call) -> how often it ran."""
    views: Counter[str]
    """Module path -> calls that only make another view of a tensor."""
    modules: Counter[str]
    """Module path -> how often it was called."""
    in_order: list[tuple[str, LayoutCall, Sequence[float]]]
    """Every call, and its seconds in each run that was timed."""

    @property
    def seconds(self) -> dict[LayoutCall, list[float]]:
        """Call -> its seconds, wherever it ran."""
        found: dict[LayoutCall, list[float]] = defaultdict(list)
        for _, call, spent in self.in_order:
            found[call] += spent
        return {call: spent for call, spent in found.items() if spent}


def recorded(model: nn.Module, inputs: tuple[Any, ...], running: Running = once) -> Recorded:
    """The calls of `model(*inputs)`."""
    recorder = Recorder(for_prediction=True, numbers_on_meta=True)
    with recorder.of(model), torch.no_grad():
        running(recorder, lambda: model(*inputs))
    return _recorded(recorder.run, lambda call: call.module, recorder.run.modules)


def _recorded(run: RunRecord, place_of: Callable[[RecordedCall], str], modules: Mapping[str, int]) -> Recorded:
    """The calls of a run, with the seconds of all that were timed."""
    calls, views = Counter[tuple[str, LayoutCall]](), Counter[str]()
    in_order: list[tuple[str, LayoutCall, Sequence[float]]] = []
    repeats = zip(*run.repeats, strict=True)
    for call, layouts, times in every_layout(run):
        place = place_of(call)
        if layouts is None:
            views[place] += times
            continue
        kernels = call.seconds + sum(part.seconds for part in call.parts)
        spent = next(repeats) if run.repeats else (kernels,) if kernels else ()
        if layouts.computes:
            calls[place, layouts] += times
            in_order.append((place, layouts, spent))
    return Recorded(dict(calls), views, Counter(modules), in_order)


def recorded_step(live: BuiltModel, stepping: Stepping, running: Running = once) -> Recorded:
    """The same of a step by row (not by module); the calls of the optimizer are under `update`.

    A call of the backward pass belongs to the row that made its autograd node.
    """
    if not stepping.optimizer.state:  # the optimizer makes its states, as the first step of many does
        for parameter in stepping.model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        with Recorder(calls=False, numbers_on_meta=True):
            stepping.update()
    recorder = Recorder(for_prediction=True, numbers_on_meta=True)

    def step() -> None:
        recorder.phase = "forward"
        loss = stepping.forward()
        recorder.differentiate(loss)
        del loss
        recorder.phase = "forward"
        with recorder.as_module(UPDATE):
            stepping.update()

    with recorder.of(live.model):
        running(recorder, step)
    row_of = _rows_of_calls(live, recorder.run)
    modules: Counter[str] = Counter()
    for module, number in recorder.run.modules.items():
        modules[row_path(module, live.rows) or OUTSIDE] += number
    return _recorded(recorder.run, row_of, modules)


def _rows_of_calls(live: BuiltModel, run: RunRecord) -> Callable[[RecordedCall], str]:
    """The row of a call: of the module that runs it, or that made its autograd node, or whose gradient it adds up."""
    leaves, makers = leaf_rows(live.model, live.rows), run.node_modules()

    def row_of(call: RecordedCall) -> str:
        if call.phase == "forward" or (call.phase == "again" and call.module):
            return UPDATE if call.module == UPDATE else row_path(call.module, live.rows) or OUTSIDE
        if call.weight is not None:
            return leaves.get(call.weight.rpartition(".")[0], OUTSIDE)
        return leaves.get(makers.owner(call.node) or "", OUTSIDE)

    return row_of


class Seconds(NamedTuple):
    """Predicted seconds of a forward, or of a training step."""

    rows: dict[str, float]
    """Row path -> seconds of all its blocks."""
    whole: float
    unknown: dict[str, float]
    """Operations that the calibration never measured -> seconds."""
    update: float | None = None
    """Seconds of the optimizer, in a training step."""
    lanes: Lanes | None = None
    """On a GPU: `whole` is the longer one, the rows are parts of the kernels."""
    peak: int | None = None
    """On a GPU, of a model that runs on `meta`."""


class _Fit(NamedTuple):
    """What the calibration says about one kind of run."""

    regression: Regression
    overhead: Overhead
    interval: tuple[float, float]


class Predictor:
    """Predicts models on one calibrated device."""

    def __init__(self, calibration: Calibration) -> None:
        self.calibration = calibration
        regression = Regression(calibration.baseline, calibration.samples)
        self._of_forwards = _Fit(regression, calibration.overhead, _interval(calibration.networks))

    def seconds(self, make: Callable[[], BuiltModel]) -> Seconds:
        """The seconds of one forward of the model that `make` builds on `meta`."""
        live = make()
        found = recorded(live.model, live.inputs)
        places, unknown, lanes = self.by_place(found.calls, found.views, found.modules)
        rows: dict[str, float] = defaultdict(float)
        for module, seconds in places.items():
            if (path := row_path(module, live.rows)) is not None:
                rows[path] += seconds
        peak = peak_bytes(live.model, live.inputs) if lanes else None
        return Seconds(dict(rows), longer_lane(places, lanes), unknown, lanes=lanes, peak=peak)

    def step_seconds(self, make: Callable[[], BuiltModel], optimizer: str) -> Seconds:
        """The seconds of one training step of the model that `make` builds on `meta`."""
        live = make()
        stepping = Stepping(live, optimizer, lists=self.calibration.by_kernels)
        found = recorded_step(live, stepping)
        rows, unknown, lanes = self.by_place(found.calls, found.views, found.modules, trained=True)
        whole = longer_lane(rows, lanes)
        rows.pop(OUTSIDE, None)
        return Seconds(rows, whole, unknown, rows.pop(UPDATE, 0.0), lanes, stepping.peak() if lanes else None)

    def by_place(
        self, calls: Mapping[tuple[Place, LayoutCall], int], views: Mapping[Place, int], modules: Mapping[Place, int],
        *, trained: bool = False,
    ) -> tuple[dict[Place, float], dict[str, float], Lanes | None]:  # fmt: skip
        """Seconds of every place of a run, a module or an operation; and of operations that were never measured.

        `calls`, `views` and calls of `modules` are counted by place. On a GPU the seconds are those of kernels, and
        both lanes are there.
        """
        fit = self._of_steps if trained else self._of_forwards
        by_kernels = self.calibration.by_kernels
        if by_kernels:
            calls = dict(as_kernels(calls.items()))
        places: dict[Place, float] = defaultdict(float)
        unknown: dict[str, float] = defaultdict(float)
        each = {call: fit.regression(found) for call, found in features_of(calls, by_kernels=by_kernels).items()}
        for (place, call), times in calls.items():
            predicted, known = each[call]
            places[place] += times * predicted
            if known == "none":
                unknown[call.operation] += times * predicted
        if by_kernels:
            launches = sum(calls.values())
            host = fit.overhead.seconds(calls=launches, views=sum(views.values()), modules=sum(modules.values()))
            lanes = Lanes(host=host, kernels=sum(places.values()), copies=0.0, launches=launches)
            return dict(places), dict(unknown), lanes
        for (place, _), times in calls.items():
            places[place] += fit.overhead.seconds(calls=times)
        for place, times in views.items():
            places[place] += fit.overhead.seconds(views=times)
        for place, times in modules.items():
            places[place] += fit.overhead.seconds(modules=times)
        return dict(places), dict(unknown), None

    @cached_property
    def _of_steps(self) -> _Fit:
        found = training_steps(self.calibration)
        samples = joined(self.calibration.samples, found.samples)
        return _Fit(Regression(self.calibration.baseline, samples), found.overhead, _interval(found.networks))

    def prediction(self, found: Seconds) -> Prediction:
        """The seconds with an interval, and what they rest on."""
        low, high = (self._of_forwards if found.update is None else self._of_steps).interval
        unsure = sum(found.unknown.values())
        known = max(found.whole - unsure, 0.0)
        return Prediction(
            device=self.calibration.machine.device,
            machine=self.calibration.machine.name,
            threads=self.calibration.machine.threads,
            seconds=found.whole,
            low=known * low + unsure / _UNKNOWN_FACTOR,
            high=known * high + unsure * _UNKNOWN_FACTOR,
            calibrated=self.calibration.measured,
            unknown=tuple(sorted(found.unknown, key=lambda name: -found.unknown[name])),
            update_seconds=found.update,
            lanes=found.lanes,
            torch=self.calibration.machine.torch if found.lanes else None,
            peak_bytes=found.peak,
        )


def longer_lane(places: Mapping[Any, float], lanes: Lanes | None) -> float:
    """The seconds of a run: of all places; on a GPU those of the kernels or of the host, whichever is longer."""
    return sum(places.values()) if lanes is None else max(lanes.host, lanes.kernels)


def _interval(networks: Iterable[Network]) -> tuple[float, float]:
    return interval_of([math.log(one.seconds / one.predicted) for one in networks])


def interval_of(errors: Sequence[float]) -> tuple[float, float]:
    """Factors of a prediction that hold nine in ten of the truths, `errors` being logarithms of truth/prediction."""
    if not errors:
        return 1 / _UNKNOWN_FACTOR, _UNKNOWN_FACTOR
    sizes = sorted(map(abs, errors))
    widest = sizes[min(math.ceil(_SHARE * (len(sizes) + 1)), len(sizes)) - 1]
    return math.exp(-widest), math.exp(widest)


def predicted(system: TimedSystem, predictor: Predictor) -> Ledger:
    """The system's ledger with predicted seconds, of each row per block and in all."""
    ledger, text, built = system.ledger, system.ledger.generation, partial(build, system.architecture)
    with within_torch(ledger), no_compiler():
        if ledger.training is not None:
            step = predictor.step_seconds(built, ledger.training.step.optimizer)
            return with_prediction(ledger, predictor, step)
        if text is None or system.step is None:
            return with_prediction(ledger, predictor, predictor.seconds(built))
        # Every decode step is as long as the last one: caches are allocated for all positions.
        ran = {
            PREFILL: (predictor.seconds(built), 1),
            DECODE: (predictor.seconds(partial(build, system.step)), text.new_tokens - 1),
        }
    unknown: Counter[str] = Counter()
    for one, times in ran.values():
        unknown.update({name: spent * times for name, spent in one.unknown.items()})
    rows = {f"{name}.{path}": spent * times for name, (one, times) in ran.items() for path, spent in one.rows.items()}
    phases = tuple(Phase(name=name, seconds=one.whole * times) for name, (one, times) in ran.items())
    whole = sum(phase.seconds for phase in phases)
    lanes = _lanes_of((one.lanes, times) for one, times in ran.values() if one.lanes is not None)
    peak = max((one.peak for one, _ in ran.values() if one.peak), default=None)
    return with_prediction(ledger, predictor, Seconds(rows, whole, dict(unknown), lanes=lanes, peak=peak), phases)


def _lanes_of(runs: Iterable[tuple[Lanes, int]]) -> Lanes | None:
    """The lanes of several runs after one another, each so many times."""
    every = list(runs)
    if not every:
        return None
    return Lanes(
        host=sum(lanes.host * times for lanes, times in every),
        kernels=sum(lanes.kernels * times for lanes, times in every),
        copies=0.0,
        launches=sum(lanes.launches * times for lanes, times in every),
    )


def with_prediction(ledger: Ledger, predictor: Predictor, found: Seconds, phases: tuple[Phase, ...] = ()) -> Ledger:
    """`ledger` with predicted seconds of its rows and of the whole; what belongs to no row is `not_attributed`."""
    rows = tuple(
        msgspec.structs.replace(row, predicted_seconds=found.rows[row.path] / row.times)
        if row.path in found.rows
        else row
        for row in ledger.rows
    )
    whole = found.lanes.kernels if found.lanes else found.whole
    rest = whole - (found.update or 0.0) - math.fsum((row.predicted_seconds or 0.0) * row.times for row in rows)
    prediction = msgspec.structs.replace(predictor.prediction(found), phases=phases, not_attributed=rest)
    return msgspec.structs.replace(ledger, rows=rows, prediction=prediction)
