"""The ledger of any `nn.Module` with example inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
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
from xfcost.ledger.closed_form import ClosedForm
from xfcost.ledger.errors import IncompleteError, UsageError, XfcostError, printable
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.metadata import Agreement, Metadata
from xfcost.ledger.ran import ModuleRun
from xfcost.ledger.timing_options import USUAL, TimingPlan
from xfcost.ledger.training import Plan, Training
from xfcost.ledger.units import BYTES_PER_ELEMENT, DASH
from xfcost.torch_models.any_model.closed_form import closed_form as with_closed_form
from xfcost.torch_models.any_model.closed_form import with_form_of_module
from xfcost.torch_models.any_model.inputs import Given
from xfcost.torch_models.any_model.mixing import OnCPU, find_mixing
from xfcost.torch_models.any_model.rows import costs_by_module, homes_of, module_rows, names_of
from xfcost.torch_models.any_model.run import Run, TensorKind, reached, run, run_on, stand_ins
from xfcost.torch_models.any_model.timing import OnDevice, Taken, timed, with_timing
from xfcost.torch_models.any_model.user_errors import original, raised
from xfcost.torch_models.any_model.work import Key, Work, owners, uncounted
from xfcost.torch_models.memory.training_step import adafactor_states
from xfcost.torch_models.predicting.predict import Predictor, Seconds, with_prediction
from xfcost.torch_models.running.prediction_calls import calls_by_place
from xfcost.torch_models.running.recorder import Recorder
from xfcost.torch_models.shared.private_torch import pytree
from xfcost.torch_models.timing.devices import check_device


class How(NamedTuple):
    """What a ledger of a module holds beside its counts."""

    trace: bool = True
    """Lay fvcore's trace beside."""
    strict: bool = False
    """Refuse a ledger that leaves an operation uncounted."""
    closed_form: bool | None = None
    """Also count it at other N, where N is a letter of its inputs; None: where that is quick."""
    mixing: bool = False
    """Also find how each operation mixes tokens, in the module on the CPU."""
    plan: Plan | None = None
    """Count a training step."""
    device: str | None = None
    """Also time it there, with the numbers that its constructor gives it."""
    timing: TimingPlan = USUAL
    say: Callable[[str], None] = lambda text: None
    """Called with a line of text before it is timed."""
    taken: Taken | None = None
    """What was measured there already, in turns with other systems."""
    predict: PredictorOf | None = None
    """Also predict the seconds of a forward."""


_STATISTIC_BYTES: Final = 4


def module_ledger(  # noqa: PLR0913 - options
    module: nn.Module, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None, *, trace: bool = True,
    strict: bool = False, name: str | None = None, mixing: OnCPU | None = None, plan: Plan | None = None,
    on: OnDevice | None = None, predict: PredictorOf | None = None,
) -> Ledger:  # fmt: skip
    """The ledger of one forward of `module(*args, **kwargs)`. The module is left as it was.

    Args:
        module: on any device; on `meta` it takes no memory. A compiled one is looked at uncompiled.
        args: its positional inputs, of any structure.
        kwargs: its keyword inputs.
        trace: also lay fvcore's trace beside.
        strict: refuse a ledger that leaves an operation uncounted.
        name: what the ledger calls it; its class where there is none.
        mixing: also find how each operation mixes tokens, in this module with real numbers.
        plan: count a training step: the module in training mode, and the backward pass of what it returns.
        on: also time it there.
        predict: dtype -> predicts the seconds of a forward.

    Raises:
        UsageError: the module is none, is scripted, or does not run on these inputs.
        IncompleteError: with `strict`, an operation is not counted.
    """
    model, given = original(module), Given(args, kwargs or {})
    training = plan is not None
    found = run(model, given.args, given.kwargs, training=training, keeps_free=on is not None or predict is not None)
    of_parameters = homes_of(found.elements, found.works)
    missing = dict(sorted(uncounted(found.works).items()))
    title = name or type(model).__name__
    if strict and missing:
        raise IncompleteError(title, missing)
    how = find_mixing(found, mixing()) if mixing is not None else None
    beside = _beside(model, given, found, training=training) if trace else None
    agreement = _agreement(found, missing, beside)
    traced = beside.modules if beside is not None and beside.refused is None else {}
    dtype = _dtype(model, given)
    measured = (
        None
        if on is None
        else timed(found, title, dtype, on._replace(optimizer=None if plan is None else plan.optimizer))
    )
    foreseen = None if predict is None else predicted_calls(found, model, given, predict(dtype))
    eager_bytes, fused_bytes = _attention_bytes(found.works, BYTES_PER_ELEMENT[dtype])
    ledger = Ledger(
        metadata=_metadata(model, title, given, dtype, found),
        rows=tuple(module_rows(found.works, of_parameters, found.elements, traced, title, training=training)),
        agreement=agreement,
        module=ModuleRun(
            module=f"{type(model).__module__}.{type(model).__qualname__}",
            inputs=tuple(names_of(given.named(model))),
            tensors=found.how,
            reason=found.reason,
            uncounted=missing,
            uncalled=_uncalled(of_parameters.unused),
            traced=_traced(beside, agreement),
            eager_bytes=eager_bytes,
            fused_bytes=fused_bytes,
        ),
    )
    ledger = _with_notes(ledger, how)
    ledger = ledger if plan is None else with_training_step(ledger, model, found, plan)
    ledger = ledger if foreseen is None else with_predicted_calls(ledger, foreseen, found.how)
    return ledger if measured is None else with_timing(ledger, measured)


def _with_notes(ledger: Ledger, how: str | None) -> Ledger:
    """The ledger with a note of where kinds were found, and one of the rows without a kind."""
    missing = Counter(row.ran.kind_missing for row in ledger.rows if row.ran and row.ran.kind_missing)
    if missing:
        rows = "1 row has" if missing.total() == 1 else f"{missing.total()} rows have"
        reasons = "; ".join(f"{reason} ({times})" for reason, times in missing.items())
        ledger = ledger.with_note(f"{rows} no known mixing kind: {reasons}")
    return ledger if how is None else ledger.with_note(how)


def _beside(model: nn.Module, given: Given, found: Run, *, training: bool) -> Beside:
    """The trace of a forward, on real tensors where the run needed them, else on `meta`."""
    how: TensorKind = "real" if found.how == "real" else "meta"
    with stand_ins(how, model, given.args, given.kwargs, training=training) as (args, kwargs), torch.no_grad():
        return traced_beside(model, args, kwargs)


def _metadata(model: nn.Module, name: str, given: Given, dtype: str, found: Run) -> Metadata:
    return Metadata(
        name=name,
        tokens=DASH,
        grid_tokens=0,
        inputs=", ".join(names_of(given.named(model))) or "none",
        dtype=dtype,
        attention=_attention(found.works),
        mode="train" if found.learned else "forward",
        source=f"{type(model).__module__}:{type(model).__qualname__}",
        versions={"xfcost": __version__, "torch": version("torch")},
    )


def _agreement(found: Run, missing: dict[str, int], beside: Beside | None) -> Agreement:
    names = tuple(f"{operation} ran {times} time(s), and no formula knows it" for operation, times in missing.items())
    if beside is None or beside.refused is not None:
        return Agreement(exact=not names, uncounted=names)
    unlike = tuple(differences(costs_by_module(found.works), beside))
    return Agreement(exact=not names and not unlike, accounts=("traced",), differences=unlike, uncounted=names)


def _traced(beside: Beside | None, agreement: Agreement) -> str:
    """How fvcore's trace compares."""
    if beside is None:
        return "not traced" if not agreement.accounts else ""
    if beside.refused is not None:
        return f"fvcore can't trace it: {beside.refused}"
    unknown = ", ".join(f"{name} ({times}×)" for name, times in beside.unsupported.items())
    return ("differs" if agreement.differences else "agrees") + (
        f"; the trace does not know {unknown}" if unknown else ""
    )


def _dtype(model: nn.Module, given: Given) -> str:
    """The dtype of the first floating-point parameter or input."""
    for tensor in (*model.parameters(), *reached((given.args, given.kwargs))):
        name = str(tensor.dtype).removeprefix("torch.")
        if name in BYTES_PER_ELEMENT:
            return name
    return "float32"


def _attention(works: Sequence[Work]) -> str:
    """How attention runs: `eager`, `fused`, both or none."""
    eager = any(work.fused_statistics for work in works)
    fused = any(work.fused_entries for work in works)
    return "eager and fused" if eager and fused else "eager" if eager else "fused" if fused else "no"


def _attention_bytes(works: Sequence[Work], element: int) -> tuple[int, int]:
    """Bytes saved for training by every attention core: as matrices, and as log-sum-exps."""
    entries = statistics = 0
    for work in works:
        written = work.matrix.saved if work.matrix is not None else 0
        entries += int(written) + work.fused_entries
        statistics += work.fused_statistics + (int(work.matrix.statistics) if work.matrix is not None else 0)
    return entries * element, statistics * max(_STATISTIC_BYTES, element)


def _uncalled(unused: Sequence[str]) -> tuple[str, ...]:
    """The modules whose parameters nothing took."""
    return tuple(dict.fromkeys(name.rpartition(".")[0] or "the model itself" for name in unused))


Costs = Mapping[str, int]


class Beside(NamedTuple):
    """The trace by module, or the reason why there is none."""

    modules: dict[str, dict[str, int]]
    unsupported: dict[str, int]
    refused: str | None = None


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


def traced_beside(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Beside:
    """The trace of `model(*args, **kwargs)`."""
    from xfcost.torch_models.tracing.trace import trace

    tensors = tuple(leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor))
    if not tensors:  # the tracer needs one
        tensors = (torch.empty(1, device=_device(model, (args, kwargs))),)
    try:
        traced = trace(_Flat(model, (args, kwargs)), tensors)
    except XfcostError as error:
        return Beside({}, {}, printable(str(error).removeprefix("trace: "), 200))
    except Exception as error:  # noqa: BLE001 - the dispatched account stands; the trace's failure is reported
        return Beside({}, {}, raised(error))
    modules = {
        name.removeprefix("model").removeprefix("."): {quantity: getattr(costs, quantity) for quantity in RUN}
        for name, costs in traced.modules.items()
        if name
    }
    return Beside(modules, traced.unsupported)


def _device(model: nn.Module, inputs: Any) -> torch.device:
    """Where the model is, or its inputs."""
    tensors = (*model.parameters(), *model.buffers(), *reached(inputs))
    return next((tensor.device for tensor in tensors), torch.device("cpu"))


def differences(ours: Mapping[str, Costs], beside: Beside) -> list[dict[str, Any]]:
    """{path, quantity, counted, traced} of every module where the accounts differ."""
    found: list[dict[str, Any]] = []
    for path in dict.fromkeys((*ours, *beside.modules)):
        counted, traced = ours.get(path, {}), beside.modules.get(path, {})
        found += [
            {"path": path, "quantity": quantity, "counted": counted.get(quantity, 0), "traced": traced.get(quantity, 0)}
            for quantity in RUN
            if counted.get(quantity, 0) != traced.get(quantity, 0)
        ]
    return found


def with_training_step(ledger: Ledger, model: nn.Module, found: Run, plan: Plan) -> Ledger:
    """`ledger` with the step that `found` ran. Only parameters that a gradient reached have one, and optimizer states.

    `ledger`'s rows have their backward passes.
    """
    learned = [parameter for name, parameter in model.named_parameters() if name in found.learned]
    parameters = TrainedParameters(
        held_bytes=sum(parameter.nbytes for parameter in model.parameters()),
        trained=sum(parameter.numel() for parameter in learned),
        gradients_bytes=sum(parameter.nbytes for parameter in learned),
        master_bytes=sum(parameter.numel() * STATE_BYTES for parameter in learned if _is_half(parameter)),
        state_bytes=sum(parameter.numel() * max(STATE_BYTES, parameter.itemsize) for parameter in learned),
    )
    again = ledger.total("recomputed_macs") or 0
    step = training_step(ledger, plan.optimizer, parameters, tokens=None, recomputed=again)
    trained = msgspec.structs.replace(ledger, training=Training(step=step))
    return with_saved_activations(trained, ledger.total("kept_bytes") or 0, adafactor_states(learned))


def _is_half(parameter: Tensor) -> bool:
    return parameter.is_floating_point() and parameter.itemsize < STATE_BYTES


# What belongs to no operation.
_OUTSIDE: Final[Key] = ("", "outside", None, None)
# dtype -> the predictions of the device's calibration for it.
PredictorOf = Callable[[str], Predictor]


class Foreseen(NamedTuple):
    """The predicted seconds of a module, before its rows are made."""

    predictor: Predictor
    whole: float
    unknown: dict[str, float]
    """Operations that the calibration never measured -> seconds."""


def predicted_calls(found: Run, model: nn.Module, given: Given, predictor: Predictor) -> Foreseen:
    """Predict one forward: its calls are recorded on the tensors of `found`, whose operations get their seconds.

    Raises:
        UsageError: it makes calls that can't be told by their sizes, on nested tensors for instance.
    """
    recorder = Recorder(for_prediction=True)
    try:
        keys = run_on(found.how, model, given.args, given.kwargs, keeps_free=True, recorder=recorder).keys
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
    return Foreseen(predictor, sum(places.values()), unknown)


def with_predicted_calls(ledger: Ledger, foreseen: Foreseen, how: TensorKind) -> Ledger:
    """`ledger`, whose rows have their predicted seconds, with those of the whole."""
    rows = {row.path: row.predicted_seconds * row.times for row in ledger.rows if row.predicted_seconds is not None}
    ledger = with_prediction(ledger, foreseen.predictor, Seconds(rows, foreseen.whole, foreseen.unknown))
    if how == "meta":
        return ledger
    where = "with real numbers on the CPU" if how == "real" else "on fake tensors"
    return ledger.with_note(f"predicted from calls that were recorded {where}")


# A run of more seconds is repeated at other N on demand alone.
_QUICK: Final = 2.0
_PATIENCE: Final = 10.0
# The first run also traces, and loads code: up to so many times the seconds of a bare one, another run tells.
_COLD: Final = 4


def ledger_in_n(  # noqa: PLR0913 - options
    model: nn.Module, inputs_at: Callable[[int | None], Given], tokens: int | None, *, has_n: bool, trace: bool,
    strict: bool, name: str | None = None, closed_form: bool | None = None,
    mixing: OnCPU | None = None, plan: Plan | None = None,
    on: OnDevice | None = None, images: bool = False, predict: PredictorOf | None = None,
) -> Ledger:  # fmt: skip
    """The ledger at N = `tokens`, and where its inputs have an N (`has_n`) its closed form.

    Args:
        model: as `module_ledger` takes it.
        inputs_at: N -> its inputs.
        tokens: N; None where nothing asks for it.
        has_n: do the inputs depend on N?
        trace: also lay fvcore's trace beside.
        strict: refuse a ledger that leaves an operation uncounted.
        name: what the ledger calls it.
        closed_form: None: where one run takes no more than two seconds.
        mixing: as `module_ledger` takes it.
        plan: as `module_ledger` takes it.
        on: as `module_ledger` takes it, at N alone.
        images: N are the pixels of square images.
        predict: as `module_ledger` takes it, at N alone.
    """

    def ledger_at(
        size: int | None, *, traced: bool = False, refuses: bool = False, kinds: OnCPU | None = None,
        timed_on: OnDevice | None = None, predicted_by: PredictorOf | None = None,
    ) -> Ledger:  # fmt: skip
        given = inputs_at(size)
        return module_ledger(
            model, given.args, given.kwargs, trace=traced, strict=refuses, name=name, mixing=kinds, plan=plan,
            on=timed_on, predict=predicted_by,
        )  # fmt: skip

    if on is not None:
        check_device(on.device)
    own, seconds = _timed(
        lambda: ledger_at(tokens, traced=trace, refuses=strict, kinds=mixing, timed_on=on, predicted_by=predict)
    )
    if not has_n or tokens is None or closed_form is False:
        return own
    if closed_form is None and (on is not None or predict is not None or _QUICK < seconds < _COLD * _QUICK):
        seconds = _timed(lambda: ledger_at(tokens))[1]
    if closed_form is None and seconds > _QUICK:
        return _refused(own, tokens, f"one run took {seconds:.1f} s; --verbose also counts it at other N")
    slow, patience = closed_form is None and seconds > _QUICK / 2, _PATIENCE if closed_form is None else None
    return with_closed_form(tokens, own, partial(ledger_at), slow=slow, patience=patience, images=images)


def _timed(run: Callable[[], Ledger]) -> tuple[Ledger, float]:
    began = perf_counter()
    return run(), perf_counter() - began


def _refused(own: Ledger, tokens: int, reason: str) -> Ledger:
    return with_form_of_module(own, ClosedForm(N=tokens, refused=reason))
