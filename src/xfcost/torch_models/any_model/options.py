"""What is asked of the ledger of a module."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from xfcost.ledger.timing_options import USUAL, TimingPlan
from xfcost.ledger.training import Plan
from xfcost.torch_models.any_model.prediction import PredictorOf
from xfcost.torch_models.any_model.timing import Taken


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
