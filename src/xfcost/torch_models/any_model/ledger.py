"""The ledger of any `nn.Module` with example inputs: counted, traced, timed, predicted; and its closed form.

It is timed as it is counted: uncompiled, without torch's fast paths, in training mode if a step is timed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, Final, NamedTuple, cast

import msgspec
import torch
from torch import Tensor, nn

from xfcost import __version__
from xfcost.comparing.fitted import closed_form as with_closed_form
from xfcost.counting.generation import TOKEN_IDS, of_encoder
from xfcost.formulas.optimizers import STATE_BYTES
from xfcost.ledger.accounts import RUN
from xfcost.ledger.errors import IncompleteError, SizeError, UsageError, XfcostError, printable
from xfcost.ledger.execution import CACHED, Mode
from xfcost.ledger.join import with_seconds
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.metadata import Metadata, RunAgreement
from xfcost.ledger.ran import ClosedForm, ModuleRun
from xfcost.ledger.record import costs_by_module
from xfcost.ledger.timing_plan import USUAL, TimingPlan
from xfcost.ledger.units import BYTES_PER_ELEMENT, DASH, TF32, number_of
from xfcost.parts.training.plan import LOGIT_BYTES
from xfcost.parts.training.result import RunPlan, Training
from xfcost.parts.training.step import TrainedParameters, training_step, with_run, with_saved_activations
from xfcost.torch_models.any_model.alike_layers import (
    AlikeLayers,
    FullRun,
    LayerList,
    LayersRun,
    layer_lists,
)
from xfcost.torch_models.any_model.decoding import in_mode, prompt_of, tokens_in, with_batch, with_mode
from xfcost.torch_models.any_model.inputs import Given, Lengths
from xfcost.torch_models.any_model.mixing import Built, OnCPU, find_mixing
from xfcost.torch_models.any_model.recomputed import Recomputed, find_recomputed, recomputed_bytes
from xfcost.torch_models.any_model.run import (
    USUAL_NAMES,
    CacheNames,
    RecordedModule,
    TensorKind,
    copied_inputs,
    copier,
    learned_from,
    reached,
    run,
    run_on,
    stand_ins,
    work_done,
)
from xfcost.torch_models.any_model.token_axes import said_axes
from xfcost.torch_models.any_model.user_errors import original, raised, refused
from xfcost.torch_models.any_model.work import (
    Key,
    RecordedOperations,
    give_seconds,
    module_rows,
    uncounted,
)
from xfcost.torch_models.memory.peak import bytes_to_run, on_cpu, peak_of_call, peak_on
from xfcost.torch_models.memory.training_step import Stepping, adafactor_states, optimizer
from xfcost.torch_models.predicting.predict import Predictor, Seconds, longer_lane, with_prediction
from xfcost.torch_models.running.prediction_calls import calls_by_place
from xfcost.torch_models.running.recomputing import recomputing
from xfcost.torch_models.running.recorder import Recorder, differentiate
from xfcost.torch_models.running.surroundings import shapes_on_meta
from xfcost.torch_models.shared.private_torch import is_compiled_in_place, pytree
from xfcost.torch_models.timing.devices import Clock, check_device, on_device, waiting_clock
from xfcost.torch_models.timing.kernels import RowSeconds, recorded_kernels
from xfcost.torch_models.timing.systems import measured_in_turns
from xfcost.torch_models.timing.turns import REAL, Measured, Meters, Subject, timing_of

# A run of more operations is repeated at other N on demand alone: two seconds on a core.
_QUICK: Final = 10_000
# The same of a decode step, a prompt or a training plan: they are usually asked for to get bounds.
_QUICK_STEP: Final = 2_500
# Of all runs at other N.
_PATIENCE: Final = 50_000
_STATISTIC_BYTES: Final = 4
_NOTHING: Final = Counter[str]()
# What belongs to no operation.
_OUTSIDE: Final[Key] = ("", "outside", None, None)
_ALL_PAIRS: Final = (
    "FlexAttention is counted over all pairs of queries and keys; a compiled kernel skips blocks that its mask empties"
)
_ALL_EXPERTS: Final = (
    "its class computes every expert for every token, and all figures and bounds include that; a server computes and "
    "reads only the experts that the router chooses"
)
_STEPS_SAVED: Final = (
    "saved activations of torch's LSTM, GRU and RNN are those of the steps one by one; a device's kernel saves others"
)


# Where modules have a probability of dropout that their own code passes on, as a number.
_DROPOUTS: Final = ("dropout", "dropout_p", "attn_dropout", "attention_dropout", "drop_prob")


class Taken(NamedTuple):
    """What was measured of a module on a device, before its rows are made."""

    measured: Measured
    peak: int | None
    """Bytes of live tensors."""
    predicted: int | None
    """The same on `meta`."""


class How(NamedTuple):
    """What a ledger of a module has in addition to its counts."""

    trace: bool | None = True
    """Compare with fvcore's trace; None: where the run is short."""
    strict: bool = False
    """Refuse a ledger that leaves an operation uncounted."""
    closed_form: bool | None = None
    """Also count it at other N, where N is a letter of its inputs; None: where that is quick."""
    mixing: float = 0
    """Elements to follow, at most, to find how each operation mixes tokens, in the module on the CPU; of `inf` it must
    be found."""
    mode: Mode = "forward"
    """`prefill` and `decode` of a model that takes a cache; a training step has a plan."""
    plan: RunPlan | None = None
    """Count a training step: in training mode, with the backward pass of what it returns."""
    device: str | None = None
    """Also time it there, with the numbers that its constructor gives it."""
    timing: TimingPlan = USUAL
    say: Callable[[str], None] = lambda text: None
    """Called with a line of text before a long step."""
    taken: Taken | None = None
    """What was measured there already, in turns with other systems."""
    predict: Callable[[str], Predictor] | None = None
    """Also predict the seconds of a forward: dtype -> the predictions of the device's calibration for it."""
    meters: Meters = REAL
    tf32: bool = False
    """Are its float32 products in TF32?"""
    tokens_of: Sequence[str] = ()
    """The axes of inputs along which tokens lie: `x:1`; those of others are found."""
    longer: Given | None = None
    """The inputs at another N, where they are a function of N: tokens lie along the axes that differ."""
    layers: LayersRun | None = None
    """The layers that run."""
    cache: CacheNames = USUAL_NAMES
    first: TensorKind = "meta"
    """The tensors on which it ran at another size, to be tried first."""
    samples: int | None = None
    """The samples of its inputs, where a letter B in them says so."""

    @property
    def is_bare(self) -> bool:
        """Is it only of the counts?"""
        return self.trace is False and not (self.strict or self.mixing or self.plan or self.device or self.predict)

    @property
    def is_forward(self) -> bool:
        """Is one forward counted, without a clock?"""
        return self.mode == "forward" and not (self.plan or self.device or self.predict)


def ledger_at_lengths(  # noqa: PLR0913 - options
    built: Callable[[Lengths], Built], lengths: Lengths, letters: frozenset[str], how: How, on_cpu: OnCPU, *,
    name: str | None = None, alike: AlikeLayers | None = None,
) -> Ledger:  # fmt: skip
    """The ledger at these lengths, with its closed form where N or the image's size are `letters` in its inputs.

    `built` gives the module, which may be another one at other lengths, and its inputs; `on_cpu` gives them with real
    numbers. A first run shows which layers are `alike`, of a module that is the same one at all lengths; bare ledgers
    after that are of runs of the first such layers. Errors are those of `module_ledger`.
    """
    size, forward, layers = lengths.size, built, alike or AlikeLayers()
    built = in_mode(forward, how.mode, how.cache)
    has_n = "N" in letters and lengths.tokens is not None
    images = not has_n and letters >= {"H", "W"} and size is not None and size[0] == size[1]
    number = math.prod(size) if images and size is not None else lengths.tokens  # the N of closed forms

    def ledger_at(number: int | None, how: How) -> Ledger:
        at = lengths._replace(tokens=number)
        if images and number is not None:
            side = math.isqrt(number)
            if side * side != number:
                raise SizeError(f"{number:,} pixels are not a square image")
            at = lengths._replace(size=(side, side))
        with layers.running(how.mode, lambda: built(at), how.cache, shortened=how.is_bare) as (
            (model, given), of_layers,
        ):  # fmt: skip
            asked = how._replace(layers=of_layers if how.plan is None else None)
            few = lambda tokens: built(at._replace(tokens=tokens))  # noqa: E731 - one line
            long = has_n and how.is_forward and isinstance(of_layers, FullRun)
            found = layers.run(model, given, few, how.first) if long else None
            return module_ledger(model, *given, name=name, on_cpu=on_cpu, found=found, **asked._asdict())

    def metered(how: How) -> tuple[Ledger, int]:
        before = work_done()
        return ledger_at(number, how), work_done() - before

    if how.device is not None:
        check_device(how.device)
    how = how._replace(longer=_longer(forward, lengths) if has_n and how.mixing else None)
    ledger, work = metered(how)
    if (has_n or images) and number is not None and how.closed_form is not False:
        bare = How(
            trace=False, plan=how.plan, mode=how.mode, cache=how.cache, first=cast("TensorKind", ledger.ran.tensors),
            samples=how.samples,
        )  # fmt: skip
        asked = how.closed_form is True
        planned = how.plan is not None and how.plan.mesh is not None
        quick = _QUICK if how.mode not in CACHED and not planned else _QUICK_STEP
        # a run with more has more operations, and a bare forward is one of the layers that are alike
        if not asked and work > quick / 2 and (how.plan is None or how.trace is not False or how.mixing):
            work = layers.long_work or metered(bare)[1]
        if not asked and work > quick:
            reason = f"one run has {work:,} operations; --verbose also counts it at other N"
            ledger = msgspec.structs.replace(ledger, closed_form=ClosedForm(N=number, refused=reason))
        else:
            slow, enough = not asked and work > quick / 2, math.inf if asked else work_done() + _PATIENCE
            at = lambda n: ledger_at(n, bare)  # noqa: E731 - one line
            is_enough = lambda: work_done() > enough  # noqa: E731 - one line
            ledger = with_closed_form(number, ledger, at, slow=slow, is_enough=is_enough, images=images)
    known: dict[str, Any] = {"grid_tokens": lengths.tokens} if has_n else {}
    if how.mode in CACHED:  # without a letter, given inputs are the prompt
        prompt = None if has_n else tokens_in(prompt_of(*forward(lengths), how.cache))
        tokens = lengths.tokens if prompt is None else prompt // ledger.metadata.batch + (how.mode == "decode")
        known |= {"grid_tokens": tokens, "inputs": f"N = {tokens:,}, {ledger.metadata.inputs}"}
    known |= {"image": size} if letters & {"H", "W"} else {}
    return msgspec.structs.replace(ledger, metadata=msgspec.structs.replace(ledger.metadata, **known))


def _longer(built: Callable[[Lengths], Built], lengths: Lengths) -> Given | None:
    """The inputs at twice as many tokens; None where the module has no such N."""
    with suppress(XfcostError):
        return built(lengths._replace(tokens=2 * (lengths.tokens or 0)))[1]
    return None


def module_ledger(
    module: nn.Module, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None, *, name: str | None = None,
    on_cpu: OnCPU | None = None, found: RecordedModule | None = None, **asked: Any,
) -> Ledger:  # fmt: skip
    """The ledger of one run of `module(*args, **kwargs)`. The module is left as it was.

    Args:
        module: on any device; on `meta` it takes no memory. A compiled one is looked at uncompiled.
        args: its positional inputs, of any structure.
        kwargs: its keyword inputs.
        name: what the ledger calls it; its class where there is none.
        on_cpu: gives the module with real numbers, where it is another one; for mixing kinds and times.
        found: the run, if it was made before.
        asked: the fields of `How`.

    Raises:
        UsageError: the module is none, is scripted, or does not run on these inputs.
        IncompleteError: it is strict, and an operation is not counted.
    """
    how, model, given = How(**asked), original(module), Given(args, kwargs or {})
    on_cpu = on_cpu or (lambda: [(module, given)])
    training, title = how.plan is not None, name or type(model).__name__
    tensors = (*model.parameters(), *reached((given.args, given.kwargs)))
    dtypes = (str(tensor.dtype).removeprefix("torch.") for tensor in tensors)
    dtype = next((one for one in dtypes if one in BYTES_PER_ELEMENT), "float32")
    if how.tf32 and dtype != "float32":
        raise UsageError(f"--dtype tf32: the tensors of {title} are {dtype}, and TF32 is of float32; leave --dtype out")
    dtype = TF32 if how.tf32 else dtype
    keeps_free = how.device is not None or how.predict is not None
    options: dict[str, Any] = {"training": training, "keeps_free": keeps_free, "cache": how.cache, "first": how.first}
    again = Recomputed() if how.plan is None else find_recomputed(model, given, how.plan.recompute, title, how.first)
    found = found or run(model, given.args, given.kwargs, recomputed=again.paths, **options)
    found = found if how.layers is None else how.layers.whole(found)
    if how.strict and (missing := dict(sorted(uncounted(found.works).items()))):
        raise IncompleteError(title, missing)
    said = said_axes(given, given.places(model), how.tokens_of)
    of_kinds: list[str] = []
    if how.mixing:
        how.say(f"finding how the operations of {title} mix tokens …")
        of_kinds = find_mixing(found, model, title, on_cpu, how.mixing, said, how.longer)
    beside = _Beside("not traced")
    if how.trace is not False:
        beside = _traced_beside(model, given, found, asked=how.trace is True, training=training)
    taken = None if how.device is None else how.taken or _timed_alone(found, title, dtype, how, on_cpu)
    if taken is not None:
        give_seconds(found.works, taken.measured.row_seconds(), "seconds")
    predicted = None if how.predict is None else _predicted(found, model, given, how.predict(dtype))
    ledger = _of_run(found, model, given, title, dtype, beside, training=training)
    ledger = _with_notes(ledger, of_kinds, "" if training else _as_in_training(model))
    ledger = with_batch(ledger, given, how.samples, of_ids=training or how.mode in CACHED)
    if how.mode in CACHED:
        ledger = with_mode(ledger, how.mode, model, given, found, layers=how.layers, names=how.cache)
    if training and found.how != "real" and any(isinstance(module, nn.RNNBase) for module in model.modules()):
        ledger = ledger.with_note(_STEPS_SAVED)
    if how.plan is not None:
        ledger = _with_training_step(ledger, model, given, found, how.plan, again)
    if predicted is not None:
        ledger = predicted(ledger)
    return ledger if taken is None else _with_timing(ledger, taken, how, on_cpu()[0][0])


class _Beside(NamedTuple):
    """The trace that a count is compared with."""

    compared: str
    """How the two compare, in words."""
    modules: dict[str, dict[str, int]] | None = None
    """Module -> its traced costs; None where it was not traced."""
    differences: tuple[dict[str, Any], ...] = ()
    """Those of `Agreement`."""


def _of_run(  # noqa: PLR0913 - a run and what the ledger has of it
    found: RecordedModule, model: nn.Module, given: Given, title: str, dtype: str, beside: _Beside, *, training: bool
) -> Ledger:
    """The ledger of a run, before its mode, its training step and its times."""
    works, missing = found.works, dict(sorted(uncounted(found.works).items()))
    rows, unused = module_rows(
        works, found.elements, beside.modules or {}, title, tokens=tokens_in(given), training=training
    )
    eager, fused = (any(getattr(work, one) for work in works) for one in ("fused_statistics", "fused_entries"))
    # what every attention core saves for training: as matrices, and as log-sum-exps
    entries = sum(work.fused_entries + int(work.matrix.saved if work.matrix else 0) for work in works)
    statistics = sum(work.fused_statistics + int(work.matrix.statistics if work.matrix else 0) for work in works)
    inputs, own_class, element = tuple(given.texts(model)), type(model), BYTES_PER_ELEMENT[dtype]
    names = tuple(f"{operation} ran {times} time(s), and no formula is known" for operation, times in missing.items())
    return Ledger(
        metadata=Metadata(
            name=title,
            tokens=DASH,
            grid_tokens=0,
            inputs=", ".join(inputs) or "none",
            dtype=dtype,
            attention="eager and fused" if eager and fused else "eager" if eager else "fused" if fused else "no",
            mode="train" if found.learned else "forward",
            source=f"{own_class.__module__}:{own_class.__qualname__}",
            versions={"xfcost": __version__},
        ),
        rows=tuple(rows),
        activations=found.activations,
        agreement=RunAgreement(
            exact=not names and not beside.differences,
            accounts=() if beside.modules is None else ("traced",),
            differences=beside.differences,
            uncounted=names,
        ),
        module=ModuleRun(
            module=f"{own_class.__module__}.{own_class.__qualname__}",
            inputs=inputs,
            tensors=found.how,
            reason=found.reason,
            uncounted=missing,
            uncalled=tuple(dict.fromkeys(name.rpartition(".")[0] or "the model itself" for name in unused)),
            traced=beside.compared,
            eager_bytes=entries * element,
            fused_bytes=statistics * max(_STATISTIC_BYTES, element),
        ),
    ).run_with("torch", *_libraries_of(own_class))


def _libraries_of(own_class: type) -> list[str]:
    """`transformers`, where a model's class is one of its or made from one."""
    return ["transformers"] if any(one.__module__.startswith("transformers.") for one in own_class.__mro__) else []


def _with_notes(ledger: Ledger, of_kinds: Sequence[str], in_training: str) -> Ledger:
    """The ledger with the notes `of_kinds`, one of the rows without a kind, and one of training mode.

    `in_training`: the modules that are in it, where a forward is counted.
    """
    if in_training:
        ledger = ledger.with_note(
            f"counted in training mode, as the module is, where {in_training} run otherwise than in inference; for "
            "inference, call its .eval() first"
        )
    without = [row for row in ledger.rows if row.ran and row.ran.kind_missing]
    if without:
        missing = Counter(row.ran.kind_missing for row in without if row.ran)
        share = (ledger.part(without).total("macs") or 0) / max(ledger.total("macs") or 0, 1)
        several = len(missing) > 1
        reasons = "; ".join(
            f"{reason} ({number_of(times, 'row')})" if several else str(reason) for reason, times in missing.items()
        )
        ledger = ledger.with_note(
            f"{len(without)} of {len(ledger.rows)} rows, with {share:.1%} of the MACs, ".replace("%", " %")
            + f"{'has' if len(without) == 1 else 'have'} no known mixing kind: {reasons}"
        )
    alone = [row.operation for row in ledger.rows if row.mixing == "local" and row.reads_tokens == 1]
    if alone:
        ledger = ledger.with_note(
            f"{', '.join(dict.fromkeys(alone))}: each token reads only itself; if the batch is the second axis "
            "(N×B×D), --tokens-of sets the axis of the tokens, as in --tokens-of x:0"
        )
    if any(row.operation == "flex_attention" for row in ledger.rows):
        ledger = ledger.with_note(_ALL_PAIRS)
    if ledger.reads_all_experts:
        ledger = ledger.with_note(_ALL_EXPERTS)
    for note in reversed(of_kinds):
        ledger = ledger.with_note(note)
    return ledger


def _as_in_training(model: nn.Module) -> str:
    """`BatchNorm2d ×18, Dropout`: the modules in training mode that run otherwise in evaluation mode, by class."""
    dropout = nn.Dropout | nn.Dropout1d | nn.Dropout2d | nn.Dropout3d | nn.AlphaDropout | nn.FeatureAlphaDropout
    found = Counter[str]()
    for module in model.modules():
        shares = [module.p] if isinstance(module, dropout) else [getattr(module, one, 0) for one in _DROPOUTS]
        drops = any(isinstance(share, float) and share > 0 for share in shares)
        # of batch norm and its kin: the statistics of the batch, or those that they have
        if module.training and (drops or getattr(module, "track_running_stats", False)):
            found[type(module).__name__] += 1
    return ", ".join(f"{name} ×{times}" if times > 1 else name for name, times in found.items())


# ── fvcore's trace beside: it has other operations than the dispatcher (`linear`, not `addmm`), but the same modules ──


class _Flat(nn.Module):
    """A module that takes tensors only, which torch's tracer needs; other inputs are constants."""

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


# A forward of more operations is traced with the first of its alike layers; if these have more too, on demand alone.
_MOST_TRACED: Final = 5000
# The operations of a step of training, in terms of those of its forward.
_OF_A_STEP: Final = 3


def _traced_beside(
    model: nn.Module, given: Given, found: RecordedModule, *, asked: bool, training: bool
) -> _Beside:  # fmt: skip
    """The trace of a forward, on real tensors where the run needed them, else on `meta`; a long one where `asked`."""
    most, calls = _MOST_TRACED * (_OF_A_STEP if training else 1), sum(work.calls for work in found.works)
    lists = list(layer_lists(model, found.works)) if found.ran > most and not training else []
    kept = sum(work.calls for work in found.works if all(one.keeps(work.path) for one in lists))
    if asked or found.ran * kept <= most * calls:
        beside = _traced_layers(model, given, found, lists, training=training)
        if not lists or (beside.modules is not None and not beside.differences):
            return beside
    if asked:
        return _traced_layers(model, given, found, [], training=training)
    return _Beside(f"not traced: a run has {found.ran:,} operations; --trace traces it")


def _traced_layers(
    model: nn.Module, given: Given, found: RecordedModule, lists: Sequence[LayerList], *, training: bool
) -> _Beside:
    """The same, of these lists of layers only the first."""
    from xfcost.torch_models.tracing.trace import trace

    how: TensorKind = "real" if found.how == "real" else "meta"
    try:
        with ExitStack() as stack:
            for one in lists:
                stack.enter_context(one.shortened())
            inputs = stack.enter_context(stand_ins(how, model, *given, training=training))
            stack.enter_context(torch.no_grad())
            tensors = tuple(leaf for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, Tensor))
            if not tensors:  # the tracer needs one
                own = (*model.parameters(), *model.buffers(), *reached(inputs))
                tensors = (torch.empty(1, device=next((tensor.device for tensor in own), "cpu")),)
            traced = trace(_Flat(model, inputs), tensors)
    except XfcostError as error:
        return _Beside(f"fvcore cannot trace it: {printable(str(error).removeprefix('trace: '), 200)}")
    except Exception as error:  # noqa: BLE001 - the dispatched account stands; the trace's failure is reported
        return _Beside(f"fvcore cannot trace it: {raised(error)}")
    modules = {
        name.removeprefix("model").removeprefix("."): {quantity: getattr(costs, quantity) for quantity in RUN}
        for name, costs in traced.modules.items()
        if name
    }
    for one in lists:
        modules = one.all_costs(modules)
    ours = costs_by_module((one.path, one.costs) for one in found.works)
    unlike = tuple(
        {"path": path, "quantity": quantity, "counted": counts, "traced": theirs}
        for path in dict.fromkeys((*ours, *modules))
        for quantity in RUN
        if (counts := ours.get(path, _NOTHING)[quantity]) != (theirs := modules.get(path, _NOTHING).get(quantity, 0))
    )
    unknown = ", ".join(f"{name} ({times}×)" for name, times in traced.unsupported.items())
    text = ("differs" if unlike else "agrees") + (f"; the trace does not know {unknown}" if unknown else "")
    return _Beside(text, modules, unlike)


# ── a step of training, and predicted seconds ──


def _with_training_step(
    ledger: Ledger, model: nn.Module, given: Given, found: RecordedModule, plan: RunPlan, recomputed: Recomputed
) -> Ledger:  # fmt: skip
    """`ledger` with the step that `found` ran, and the run; parameters that a gradient reached have one, and states."""
    ledger = ledger.with_note(recomputed.note) if recomputed.note else ledger
    tokens = tokens_in(given, all_streams=True)
    if plan.tokens is not None and tokens is None:
        raise UsageError(
            f"--tokens: {ledger.metadata.name} reads no token ids; expected an input of the name "
            f"{' or '.join(TOKEN_IDS)}, as in --input input_ids=1xN:int64"
        )
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
    largest = recomputed_bytes(model, given, recomputed.paths, found.how) if again or recomputed.paths else 0
    step = training_step(ledger, plan.optimizer, parameters, tokens=tokens, recomputed=again)
    logits = LOGIT_BYTES * found.logits if tokens is not None else 0
    step = msgspec.structs.replace(step, loss_logits_bytes=logits, recomputed_bytes=largest)
    seen: dict[str, int] = {}
    if tokens != (decoded := tokens_in(given)) and tokens is not None and decoded is not None:
        read = tokens - decoded
        seen = {row.component: read if of_encoder(row) else decoded for row in ledger.rows}
    trained = with_run(msgspec.structs.replace(ledger, training=Training(step=step)), plan, seen)
    return with_saved_activations(trained, ledger.total("kept_bytes") or 0, adafactor_states(learned))


def _predicted(
    found: RecordedModule, model: nn.Module, given: Given, predictor: Predictor
) -> Callable[[Ledger], Ledger]:
    """Predict one forward: its calls are recorded on the tensors of `found`, whose operations get their seconds.

    What is returned gives the ledger, once its rows are made, those of the whole.
    """
    recorder = Recorder(for_prediction=True)
    try:
        keys = run_on(found.how, model, *given, keeps_free=True, recorder=recorder, numbers=found.numbers).keys
        calls, views = calls_by_place(recorder.run, lambda call: keys[id(call)])
        modules = recorder.run.modules.total()
        places, unknown, lanes = predictor.by_place(calls, {_OUTSIDE: views.total()}, {_OUTSIDE: modules})
    except (RuntimeError, IndexError, TypeError, ValueError) as error:  # it has run before: the sizes are the matter
        text = str(error).partition("\n")[0]
        raise UsageError(
            f"--predict: {type(model).__name__} makes calls whose seconds can't be told from their sizes ({text}); "
            "--device times them"
        ) from error
    give_seconds(found.works, places, "predicted_seconds")

    def with_whole(ledger: Ledger) -> Ledger:
        rows = {row.path: row.predicted_seconds * row.times for row in ledger.rows if row.predicted_seconds is not None}
        peak = _peak_on_meta(model, given) if lanes and found.how == "meta" else None
        seconds = Seconds(rows, longer_lane(places, lanes), unknown, lanes=lanes, peak=peak)
        ledger = with_prediction(ledger, predictor, seconds)
        if found.how == "meta":
            return ledger
        where = "with real numbers on the CPU" if found.how == "real" else "on fake tensors"
        return ledger.with_note(f"predicted from calls that were recorded {where}")

    return with_whole


def _peak_on_meta(model: nn.Module, given: Given) -> int:
    with stand_ins("meta", model, *given) as (args, kwargs), shapes_on_meta():
        return peak_of_call(lambda: model(*args, **kwargs), model, reached((args, kwargs)))


# ── on a device: seconds of the whole, and of every operation by a clock around its kernel ──

_NOT_FAST: Final = "timed without the fast path of torch's encoder layers in evaluation mode, as it is counted"
_RANDOM: Final = "timed with random weights, because its own are on `meta` (integer buffers are 0)"
# What a module may raise because of its own code.
_OWN_ERRORS: Final = (ValueError, TypeError, RuntimeError, IndexError, KeyError, AttributeError, NotImplementedError)


class ModuleOnDevice:
    """A forward of a module, or a step of its training, as it is timed on a device.

    Args:
        name: what its ledger calls it.
        dtype: its ledger's.
        tensors: those on which it was counted; its memory is predicted on `meta` where they were there.
        how: where and how it is timed, for specs only with --compile or --composed; with a plan, a step of training.
        built: gives the module with its inputs, to be run there.
        counted: gives the same to predict its memory, where that is another one.
        ledger: makes its ledger of what was measured.
    """

    mend = "take smaller inputs, or leave --device out: counting needs no memory"

    def __init__(  # noqa: PLR0913 - options
        self, name: str, dtype: str, tensors: TensorKind, how: How, built: Callable[[], AbstractContextManager[Built]],
        *, counted: Callable[[], AbstractContextManager[Built]] | None = None,
        ledger: Callable[[Taken], Ledger] | None = None,
    ) -> None:  # fmt: skip
        check_plan(how.timing, name)
        device, plan = str(how.device), how.plan
        self.name, self.dtype, self.device, self.meters = name, dtype, device, how.meters
        self.what = "one forward" if plan is None else "a step of training"
        self.predicted: int | None = None
        self._built, self._plan, self._ledger = built, plan, ledger
        with (counted or built)() as (module, given):
            model = original(module)
            if tensors == "meta" and plan is not None:
                with _steps_on("meta", model, given, plan) as steps, shapes_on_meta():
                    self.predicted = steps.peak()
            elif tensors == "meta":
                self.predicted = _peak_on_meta(model, given)
            weights = [*model.parameters(), *model.buffers()]
            least = sum(tensor.nbytes for tensor in (*weights, *reached((given.args, given.kwargs))))
            # weights that are there already need no room; a step of training copies them
            own = torch.empty(0, device=device).device
            there = sum(tensor.nbytes for tensor in weights if tensor.device == own and plan is None)
            self.needed = bytes_to_run(max(self.predicted or 0, least) - there, device)

    @contextmanager
    def ready(self) -> Iterator[Subject]:
        """It is on the device; what its own code raises there is its error, whoever else takes turns."""
        device, clock = self.device, waiting_clock(self.device, self.meters.clock)
        with self._built() as (module, given):
            model = original(module)

            def own(call: Callable[[], Any]) -> Callable[[], Any]:
                def told() -> Any:
                    try:
                        with on_device(self.name, device, self.dtype):
                            return call()
                    except _OWN_ERRORS as error:
                        raise refused(model, error, f" on {device}") from error

                return told

            if self._plan is not None:
                with _steps_on(device, model, given, self._plan) as steps:
                    by_operation = own(partial(steps.by_operation, device, clock))
                    yield Subject({"": own(steps)}, by_operation, partial(steps.peak_on, device))
                return
            with stand_ins("real", model, *given, device=device) as inputs:
                leaves, made = pytree.tree_leaves(inputs), copier("real")
                has_state = any(hasattr(leaf, "__dict__") and not isinstance(leaf, Tensor | type) for leaf in leaves)

                def call() -> object:
                    args, kwargs = copied_inputs(inputs, made) if has_state else inputs  # a cache is of one call
                    with torch.no_grad():
                        return model(*args, **kwargs)

                def by_operation() -> RowSeconds:
                    return _by_operation(model, device, clock, lambda recorder: call())

                peak = partial(peak_on, device, call, model, reached(inputs))
                yield Subject({"": own(call)}, own(by_operation), peak)

    def ledger(self, measured: Measured, peak: int | None) -> Ledger:
        if self._ledger is None:
            raise TypeError(f"{self.name} is timed without a ledger")
        return self._ledger(Taken(measured, peak, self.predicted))


def check_plan(plan: TimingPlan, name: str) -> None:
    """Refuse ways to run that are for specs only."""
    for option, given in (("--compile", plan.compile), ("--composed", plan.composed)):
        if given:
            raise UsageError(f"{option}: {name} is a torch module, which is timed as it is counted; leave it out")


class _ModuleSteps(Stepping):
    """Steps of any module; the loss is its own, else the sum of what it returns."""

    def __init__(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], name: str, device: str) -> None:
        self.model, self.inputs = model, tuple(reached((args, kwargs)))
        self.call = partial(model, *args, **kwargs)
        self._optimizer = partial(optimizer, name, model, lists=not on_cpu(device))
        self.optimizer = self._optimizer()

    def forward(self) -> Any:
        return learned_from(self.call())

    def backward(self, loss: Any) -> None:
        differentiate(loss)

    def by_operation(self, device: str, clock: Clock) -> RowSeconds:
        """Seconds of every operation, its backward pass with it, in one step; and of the update."""

        def both(recorder: Recorder) -> None:
            recorder.differentiate(self.forward())

        return _by_operation(self.model, device, clock, both, self.update)


def _by_operation(
    model: nn.Module, device: str, clock: Clock, call: Callable[[Recorder], object],
    update: Callable[[], object] | None = None,
) -> RowSeconds:  # fmt: skip
    """Seconds of every operation of `call`, by its kernels on a GPU and by a clock elsewhere; and of the update."""
    on_cuda = device.startswith("cuda")
    recorder = Recorder(clock=None if on_cuda else clock)

    def run() -> float:
        with recorder.of(model):
            call(recorder)
        began = clock()
        if update is not None:
            update()
        return clock() - began

    found = recorded_kernels(recorder, run, device) if on_cuda else RowSeconds({}, run())
    rows = RecordedOperations(recorder.run).seconds
    if not on_cuda:
        return RowSeconds(rows, None if update is None else found.update)
    # operations that have no row copy: the kernels of a `contiguous`
    return found._replace(rows=rows, copies=found.copies + sum(found.rows.values()) - sum(rows.values()))


@contextmanager
def _steps_on(device: str, model: nn.Module, given: Given, plan: RunPlan) -> Iterator[_ModuleSteps]:
    """Steps of `plan` on copies of the parameters there."""
    how: TensorKind = "meta" if device == "meta" else "real"
    paths = find_recomputed(model, given, plan.recompute, type(model).__name__).paths
    with (
        stand_ins(how, model, *given, training=True, device=device if how == "real" else None) as (args, kwargs),
        recomputing(model, paths),
    ):
        yield _ModuleSteps(model, args, kwargs, plan.optimizer, device)


def _timed_alone(found: RecordedModule, title: str, dtype: str, how: How, on_cpu: OnCPU) -> Taken:
    device, built = str(how.device), lambda: nullcontext(on_cpu()[0])
    check_device(device)
    own = ModuleOnDevice(title, dtype, found.how, how, built)
    [(measured, peak)] = measured_in_turns([own], device, how.timing, how.say, how.meters)
    return Taken(measured, peak, own.predicted)


def _with_timing(ledger: Ledger, taken: Taken, how: How, module: nn.Module) -> Ledger:
    """`ledger`, whose rows have their seconds, with those of the whole, and how the run differs from `module`'s own."""
    spent = {row.path: row.seconds * row.times for row in ledger.rows if row.seconds is not None}
    timing = timing_of(taken.measured, str(how.device), taken.peak, taken.predicted, how.timing)
    ledger, model = with_seconds(ledger, spent, None, timing, taken.measured.update), original(module)
    fast = nn.TransformerEncoderLayer | nn.MultiheadAttention
    if how.plan is None and any(isinstance(one, fast) and not one.training for one in model.modules()):
        ledger = ledger.with_note(_NOT_FAST)
    if any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers())):
        ledger = ledger.with_note(_RANDOM)
    if module is not model or any(map(is_compiled_in_place, model.modules())):
        ledger = ledger.with_note("timed without torch.compile, as it is counted")
    return ledger
