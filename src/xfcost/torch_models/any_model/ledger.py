"""The ledger of any `nn.Module` with example inputs: counted, traced beside, timed, predicted; and its closed form."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from importlib.metadata import version
from time import perf_counter
from typing import Any, Final, NamedTuple

import msgspec
import torch
from torch import Tensor, nn

from xfcost import __version__
from xfcost.counting.training import TrainedParameters, training_step, with_saved_activations
from xfcost.formulas.conventions import STATE_BYTES
from xfcost.ledger.accounts import RUN
from xfcost.ledger.errors import IncompleteError, SizeError, UsageError, XfcostError, printable
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.metadata import Agreement, Metadata
from xfcost.ledger.ran import ClosedForm, ModuleRun
from xfcost.ledger.timing_plan import USUAL, TimingPlan
from xfcost.ledger.training import RunPlan, Training
from xfcost.ledger.units import BYTES_PER_ELEMENT, DASH
from xfcost.torch_models.any_model.closed_form import closed_form as with_closed_form
from xfcost.torch_models.any_model.closed_form import with_form_of_module
from xfcost.torch_models.any_model.inputs import Given, Lengths
from xfcost.torch_models.any_model.mixing import OnCPU, find_mixing
from xfcost.torch_models.any_model.rows import costs_by_module, module_rows, names_of
from xfcost.torch_models.any_model.run import Run, TensorKind, reached, run, run_on, stand_ins
from xfcost.torch_models.any_model.timing import ModuleOnDevice, Taken, give_seconds, notes_of, with_timing
from xfcost.torch_models.any_model.token_axes import said_axes
from xfcost.torch_models.any_model.user_errors import original, raised
from xfcost.torch_models.any_model.work import Key, Work, owners, uncounted
from xfcost.torch_models.memory.training_step import adafactor_states
from xfcost.torch_models.predicting.predict import Predictor, Seconds, with_prediction
from xfcost.torch_models.running.prediction_calls import calls_by_place
from xfcost.torch_models.running.recorder import Recorder
from xfcost.torch_models.shared.private_torch import pytree
from xfcost.torch_models.timing.devices import check_device
from xfcost.torch_models.timing.systems import measured_in_turns
from xfcost.torch_models.timing.turns import REAL, Meters

# A run of more seconds is repeated at other N on demand alone.
_QUICK: Final = 2.0
_PATIENCE: Final = 10.0
# The first run also traces, and loads code: up to so many times the seconds of a bare one, another run tells.
_COLD: Final = 4
_STATISTIC_BYTES: Final = 4
_NOTHING: Final = Counter[str]()
# What belongs to no operation.
_OUTSIDE: Final[Key] = ("", "outside", None, None)
_ALL_PAIRS: Final = (
    "FlexAttention is counted over all pairs of queries and keys; a compiled kernel skips blocks that its mask empties"
)
_STEPS_SAVED: Final = (
    "saved activations of torch's LSTM, GRU and RNN are those of the steps one by one; a device's kernel saves others"
)


class How(NamedTuple):
    """What a ledger of a module holds beside its counts."""

    trace: bool = True
    """Lay fvcore's trace beside."""
    strict: bool = False
    """Refuse a ledger that leaves an operation uncounted."""
    closed_form: bool | None = None
    """Also count it at other N, where N is a letter of its inputs; None: where that is quick."""
    mixing: float = 0
    """Seconds in which to find how each operation mixes tokens, in the module on the CPU; of `inf` it must be found."""
    plan: RunPlan | None = None
    """Count a training step: in training mode, with the backward pass of what it returns."""
    device: str | None = None
    """Also time it there, with the numbers that its constructor gives it."""
    timing: TimingPlan = USUAL
    say: Callable[[str], None] = lambda text: None
    """Called with a line of text before it is timed."""
    taken: Taken | None = None
    """What was measured there already, in turns with other systems."""
    predict: Callable[[str], Predictor] | None = None
    """Also predict the seconds of a forward: dtype -> the predictions of the device's calibration for it."""
    meters: Meters = REAL
    tokens_of: Sequence[str] = ()
    """The axes of inputs along which tokens lie: `x:1`; those of others are found."""

    @property
    def optimizer(self) -> str | None:
        return None if self.plan is None else self.plan.optimizer


def ledger_at_lengths(  # noqa: PLR0913 - options
    model_at: Callable[[Lengths], nn.Module], given_at: Callable[[Lengths], Given], lengths: Lengths,
    letters: frozenset[str], how: How, on_cpu: OnCPU, *, name: str | None = None,
) -> Ledger:  # fmt: skip
    """The ledger at these lengths, with its closed form where N or the image's size are `letters` in its inputs.

    `model_at` gives the module, which may be another one at other lengths; `on_cpu` gives it with real numbers. Errors
    are those of `module_ledger`.
    """
    size = lengths.size
    has_n = "N" in letters and lengths.tokens is not None
    images = not has_n and letters >= {"H", "W"} and size is not None and size[0] == size[1]
    number = math.prod(size) if images and size is not None else lengths.tokens  # the N of closed forms

    def ledger_at(number: int | None, how: How) -> Ledger:
        at = lengths._replace(tokens=number)
        if images and number is not None:
            side = math.isqrt(number)
            if side * side != number:
                raise SizeError(f"{number:,} pixels are no square image")
            at = lengths._replace(size=(side, side))
        return module_ledger(model_at(at), *given_at(at), name=name, on_cpu=on_cpu, **how._asdict())

    def timed(how: How) -> tuple[Ledger, float]:
        began = perf_counter()
        return ledger_at(number, how), perf_counter() - began

    if how.device is not None:
        check_device(how.device)
    ledger, seconds = timed(how)
    if (has_n or images) and number is not None and how.closed_form is not False:
        bare, asked = How(trace=False, plan=how.plan), how.closed_form is True
        more = how.device is not None or how.predict is not None or _QUICK < seconds < _COLD * _QUICK
        if not asked and (more or (how.mixing and seconds > _QUICK / 2)):
            seconds = timed(bare)[1]
        if not asked and seconds > _QUICK:
            reason = f"one run took {seconds:.1f} s; --verbose also counts it at other N"
            ledger = with_form_of_module(ledger, ClosedForm(N=number, refused=reason))
        else:
            slow, patience = not asked and seconds > _QUICK / 2, None if asked else _PATIENCE
            at = lambda n: ledger_at(n, bare)  # noqa: E731 - one line
            ledger = with_closed_form(number, ledger, at, slow=slow, patience=patience, images=images)
    known: dict[str, Any] = {"grid_tokens": lengths.tokens} if has_n else {}
    known |= {"image": size} if letters & {"H", "W"} else {}
    return msgspec.structs.replace(ledger, metadata=msgspec.structs.replace(ledger.metadata, **known))


def module_ledger(
    module: nn.Module, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None, *, name: str | None = None,
    on_cpu: OnCPU | None = None, **asked: Any,
) -> Ledger:  # fmt: skip
    """The ledger of one run of `module(*args, **kwargs)`. The module is left as it was.

    Args:
        module: on any device; on `meta` it takes no memory. A compiled one is looked at uncompiled.
        args: its positional inputs, of any structure.
        kwargs: its keyword inputs.
        name: what the ledger calls it; its class where there is none.
        on_cpu: gives the module with real numbers, where it is another one; for mixing kinds and times.
        asked: the fields of `How`.

    Raises:
        UsageError: the module is none, is scripted, or does not run on these inputs.
        IncompleteError: it is strict, and an operation is not counted.
    """
    how, model, given = How(**asked), original(module), Given(args, kwargs or {})
    on_cpu = on_cpu or (lambda: [(module, given)])
    training, dtype, title = how.plan is not None, _dtype(model, given), name or type(model).__name__
    keeps_free = how.device is not None or how.predict is not None
    found = run(model, given.args, given.kwargs, training=training, keeps_free=keeps_free)
    missing = dict(sorted(uncounted(found.works).items()))
    if how.strict and missing:
        raise IncompleteError(title, missing)
    kinds_from, said = None, said_axes(given, given.places(model), how.tokens_of)
    if how.mixing:
        kinds_from = find_mixing(found, model, title, on_cpu, how.mixing, said)
    names = tuple(f"{operation} ran {times} time(s), and no formula knows it" for operation, times in missing.items())
    agreement, compared = Agreement(exact=not names, uncounted=names), "not traced"
    traced: dict[str, dict[str, int]] = {}
    if how.trace:
        traced, agreement, compared = _traced_beside(model, given, found, agreement, training=training)
    taken = update = None
    if how.device is not None:
        taken = how.taken or _taken(found, title, dtype, how, on_cpu)
        update = give_seconds(found.works, taken.measured)
    predicted = None if how.predict is None else _predicted(found, model, given, how.predict(dtype))
    rows, unused = module_rows(found.works, found.elements, traced, title, training=training)
    eager_bytes, fused_bytes = _attention_bytes(found.works, BYTES_PER_ELEMENT[dtype])
    eager = any(work.fused_statistics for work in found.works)
    fused = any(work.fused_entries for work in found.works)
    inputs, own_class = tuple(names_of(given.named(model))), type(model)
    ledger = Ledger(
        metadata=Metadata(
            name=title,
            tokens=DASH,
            grid_tokens=0,
            inputs=", ".join(inputs) or "none",
            dtype=dtype,
            attention="eager and fused" if eager and fused else "eager" if eager else "fused" if fused else "no",
            mode="train" if found.learned else "forward",
            source=f"{own_class.__module__}:{own_class.__qualname__}",
            versions={"xfcost": __version__, "torch": version("torch")},
        ),
        rows=tuple(rows),
        agreement=agreement,
        module=ModuleRun(
            module=f"{own_class.__module__}.{own_class.__qualname__}",
            inputs=inputs,
            tensors=found.how,
            reason=found.reason,
            uncounted=missing,
            uncalled=tuple(dict.fromkeys(name.rpartition(".")[0] or "the model itself" for name in unused)),
            traced=compared,
            eager_bytes=eager_bytes,
            fused_bytes=fused_bytes,
        ),
    )
    ledger = _with_notes(ledger, kinds_from)
    if training and found.how != "real" and any(isinstance(module, nn.RNNBase) for module in model.modules()):
        ledger = ledger.with_note(_STEPS_SAVED)
    if how.plan is not None:
        ledger = _with_training_step(ledger, model, found, how.plan.optimizer)
    if predicted is not None:
        ledger = predicted(ledger)
    if taken is not None:
        ledger = with_timing(ledger, taken, update, str(how.device), how.timing)
        for note in reversed([*notes_of(on_cpu()[0][0], training=training)]):
            ledger = ledger.with_note(note)
    return ledger


def _taken(found: Run, title: str, dtype: str, how: How, on_cpu: OnCPU) -> Taken:
    """The module timed alone."""
    device, built = str(how.device), lambda: nullcontext(on_cpu()[0])
    check_device(device)
    own = ModuleOnDevice(title, dtype, found.how, how.optimizer, device, built, plan=how.timing, meters=how.meters)
    [(measured, peak)] = measured_in_turns([own], device, how.timing, how.say, how.meters)
    return Taken(measured, peak, own.predicted)


def _dtype(model: nn.Module, given: Given) -> str:
    """The dtype of the first floating-point parameter or input."""
    tensors = (*model.parameters(), *reached((given.args, given.kwargs)))
    names = (str(tensor.dtype).removeprefix("torch.") for tensor in tensors)
    return next((name for name in names if name in BYTES_PER_ELEMENT), "float32")


def _attention_bytes(works: Sequence[Work], element: int) -> tuple[int, int]:
    """Bytes saved for training by every attention core: as matrices, and as log-sum-exps."""
    entries = sum(work.fused_entries + int(work.matrix.saved if work.matrix else 0) for work in works)
    statistics = sum(work.fused_statistics + int(work.matrix.statistics if work.matrix else 0) for work in works)
    return entries * element, statistics * max(_STATISTIC_BYTES, element)


def _with_notes(ledger: Ledger, kinds_from: str | None) -> Ledger:
    """The ledger with a note of where kinds were found, and one of the rows without a kind."""
    missing = Counter(row.ran.kind_missing for row in ledger.rows if row.ran and row.ran.kind_missing)
    if missing:
        rows = "1 row has" if missing.total() == 1 else f"{missing.total()} rows have"
        reasons = "; ".join(f"{reason} ({times})" for reason, times in missing.items())
        ledger = ledger.with_note(f"{rows} no known mixing kind: {reasons}")
    if any(row.operation == "flex_attention" for row in ledger.rows):
        ledger = ledger.with_note(_ALL_PAIRS)
    return ledger if kinds_from is None else ledger.with_note(kinds_from)


# ── fvcore's trace beside: it has other operations than the dispatcher (`linear`, not `addmm`), but the same modules ──


class _Flat(nn.Module):
    """A module that takes tensors alone, which torch's tracer needs; other inputs are constants."""

    def __init__(self, model: nn.Module, inputs: Any) -> None:
        super().__init__()
        self.model = model
        leaves, self.structure = pytree.tree_flatten(inputs)
        self.constants = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        self.places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

    def forward(self, *tensors: Tensor) -> Any:
        leaves = list(self.constants)
        for place, tensor in zip(self.places, tensors, strict=False):
            leaves[place] = tensor
        args, kwargs = pytree.tree_unflatten(leaves, self.structure)
        return self.model(*args, **kwargs)


def _traced_beside(
    model: nn.Module, given: Given, found: Run, counted: Agreement, *, training: bool
) -> tuple[dict[str, dict[str, int]], Agreement, str]:
    """The trace of a forward by module, whether it agrees, and how it compares in words.

    It runs on real tensors where the run needed them, else on `meta`.
    """
    from xfcost.torch_models.tracing.trace import trace

    how: TensorKind = "real" if found.how == "real" else "meta"
    try:
        with stand_ins(how, model, *given, training=training) as inputs, torch.no_grad():
            tensors = tuple(leaf for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, Tensor))
            if not tensors:  # the tracer needs one
                own = (*model.parameters(), *model.buffers(), *reached(inputs))
                tensors = (torch.empty(1, device=next((tensor.device for tensor in own), "cpu")),)
            traced = trace(_Flat(model, inputs), tensors)
    except XfcostError as error:
        return {}, counted, f"fvcore can't trace it: {printable(str(error).removeprefix('trace: '), 200)}"
    except Exception as error:  # noqa: BLE001 - the dispatched account stands; the trace's failure is reported
        return {}, counted, f"fvcore can't trace it: {raised(error)}"
    modules = {
        name.removeprefix("model").removeprefix("."): {quantity: getattr(costs, quantity) for quantity in RUN}
        for name, costs in traced.modules.items()
        if name
    }
    ours = costs_by_module(found.works)
    unlike = tuple(
        {"path": path, "quantity": quantity, "counted": counts, "traced": theirs}
        for path in dict.fromkeys((*ours, *modules))
        for quantity in RUN
        if (counts := ours.get(path, _NOTHING)[quantity]) != (theirs := modules.get(path, _NOTHING).get(quantity, 0))
    )
    unknown = ", ".join(f"{name} ({times}×)" for name, times in traced.unsupported.items())
    text = ("differs" if unlike else "agrees") + (f"; the trace does not know {unknown}" if unknown else "")
    agreement = Agreement(
        exact=counted.exact and not unlike, accounts=("traced",), differences=unlike, uncounted=counted.uncounted
    )
    return modules, agreement, text


# ── a step of training, and predicted seconds ──


def _with_training_step(ledger: Ledger, model: nn.Module, found: Run, optimizer: str) -> Ledger:
    """`ledger` with the step that `found` ran; only parameters that a gradient reached have one, and states."""
    learned = [parameter for name, parameter in model.named_parameters() if name in found.learned]
    halves = [one for one in learned if one.is_floating_point() and one.itemsize < STATE_BYTES]
    parameters = TrainedParameters(
        held_bytes=sum(parameter.nbytes for parameter in model.parameters()),
        trained=sum(parameter.numel() for parameter in learned),
        gradients_bytes=sum(parameter.nbytes for parameter in learned),
        master_bytes=sum(parameter.numel() * STATE_BYTES for parameter in halves),
        state_bytes=sum(parameter.numel() * max(STATE_BYTES, parameter.itemsize) for parameter in learned),
    )
    again = ledger.total("recomputed_macs") or 0
    step = training_step(ledger, optimizer, parameters, tokens=None, recomputed=again)
    trained = msgspec.structs.replace(ledger, training=Training(step=step))
    return with_saved_activations(trained, ledger.total("kept_bytes") or 0, adafactor_states(learned))


def _predicted(found: Run, model: nn.Module, given: Given, predictor: Predictor) -> Callable[[Ledger], Ledger]:
    """Predict one forward: its calls are recorded on the tensors of `found`, whose operations get their seconds.

    What is returned gives the ledger, once its rows are made, those of the whole.
    """
    recorder = Recorder(for_prediction=True)
    try:
        keys = run_on(found.how, model, *given, keeps_free=True, recorder=recorder).keys
        calls, views = calls_by_place(recorder.run, lambda call: keys[id(call)])
        modules = recorder.run.modules.total()
        places, unknown = predictor.by_place(calls, {_OUTSIDE: views.total()}, {_OUTSIDE: modules})
    except (RuntimeError, IndexError, TypeError, ValueError) as error:  # it has run before: the sizes are the matter
        text = str(error).partition("\n")[0]
        raise UsageError(
            f"--predict: {type(model).__name__} makes calls whose seconds can't be told from their sizes ({text}); "
            "--device times them"
        ) from error
    owner = owners(found.works)
    for key, spent in places.items():
        if (work := owner(key)) is not None:
            work.predicted_seconds = (work.predicted_seconds or 0.0) + spent

    def with_whole(ledger: Ledger) -> Ledger:
        rows = {row.path: row.predicted_seconds * row.times for row in ledger.rows if row.predicted_seconds is not None}
        ledger = with_prediction(ledger, predictor, Seconds(rows, sum(places.values()), unknown))
        if found.how == "meta":
            return ledger
        where = "with real numbers on the CPU" if found.how == "real" else "on fake tensors"
        return ledger.with_note(f"predicted from calls that were recorded {where}")

    return with_whole
