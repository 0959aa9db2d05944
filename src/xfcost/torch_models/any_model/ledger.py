"""The ledger of any `nn.Module` with example inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Final

import torch
from torch import nn

from xfcost import __version__
from xfcost.ledger.errors import IncompleteError
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.metadata import Agreement, Metadata
from xfcost.ledger.ran import ModuleRun
from xfcost.ledger.training import Plan
from xfcost.ledger.units import BYTES_PER_ELEMENT, DASH
from xfcost.torch_models.any_model.beside import Beside, differences, traced_beside
from xfcost.torch_models.any_model.inputs import Given
from xfcost.torch_models.any_model.mixing import OnCPU, find_mixing
from xfcost.torch_models.any_model.parameters import homes_of
from xfcost.torch_models.any_model.prediction import PredictorOf, predicted_calls, with_predicted_calls
from xfcost.torch_models.any_model.rows import costs_by_module, module_rows, names_of
from xfcost.torch_models.any_model.run import Run, run, stand_ins
from xfcost.torch_models.any_model.stand_in import How, reached
from xfcost.torch_models.any_model.timing import OnDevice, timed, with_timing
from xfcost.torch_models.any_model.training_step import with_training_step
from xfcost.torch_models.any_model.user_errors import original
from xfcost.torch_models.any_model.work import Work, uncounted

_STATISTIC_BYTES: Final = 4
_STEPS_SAVED: Final = (
    "saved activations of torch's LSTM, GRU and RNN are those of the steps one by one; a device's kernel saves others"
)


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
    if training and found.how != "real" and any(isinstance(module, nn.RNNBase) for module in model.modules()):
        ledger = ledger.with_note(_STEPS_SAVED)
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
    how: How = "real" if found.how == "real" else "meta"
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
