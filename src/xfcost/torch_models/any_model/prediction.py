"""Seconds of any module that is not run: its calls, each predicted from a calibration of the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from torch import nn

from xfcost.ledger.errors import UsageError
from xfcost.ledger.ledger import Ledger
from xfcost.torch_models.any_model.inputs import Given
from xfcost.torch_models.any_model.run import Run, run_on
from xfcost.torch_models.any_model.stand_in import How
from xfcost.torch_models.any_model.work import Key, owners
from xfcost.torch_models.predicting.predict import Predictor, Seconds, with_prediction
from xfcost.torch_models.running.prediction_calls import calls_by_place
from xfcost.torch_models.running.recorder import Recorder

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


def with_predicted_calls(ledger: Ledger, foreseen: Foreseen, how: How) -> Ledger:
    """`ledger`, whose rows have their predicted seconds, with those of the whole."""
    rows = {row.path: row.predicted_seconds * row.times for row in ledger.rows if row.predicted_seconds is not None}
    ledger = with_prediction(ledger, foreseen.predictor, Seconds(rows, foreseen.whole, foreseen.unknown))
    if how == "meta":
        return ledger
    where = "with real numbers on the CPU" if how == "real" else "on fake tensors"
    return ledger.with_note(f"predicted from calls that were recorded {where}")
