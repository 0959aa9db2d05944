"""The ledger of a module whose inputs may have a letter N, with its closed form."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Final

from torch import nn

from xfcost.ledger.closed_form import ClosedForm
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.training import Plan
from xfcost.torch_models.any_model.closed_form import closed_form as with_closed_form
from xfcost.torch_models.any_model.closed_form import with_form_of_module
from xfcost.torch_models.any_model.inputs import Given
from xfcost.torch_models.any_model.ledger import module_ledger
from xfcost.torch_models.any_model.mixing import OnCPU
from xfcost.torch_models.any_model.prediction import PredictorOf
from xfcost.torch_models.any_model.timing import OnDevice
from xfcost.torch_models.timing.devices import check_device

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
