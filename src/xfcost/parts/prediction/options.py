"""The option `--predict`."""

# Annotations are evaluated here: the options are read out of them.
from typing import Annotated, TypedDict

from xfcost.ledger.option import Option


class PredictOption(TypedDict, total=False):
    """Timing, with --device."""

    predict: Annotated[
        bool,
        Option(
            "Also predict seconds: after `xfcost calibrate`, or on h100-sxm or h200-sxm.",
            default=False,
            python="`device` (the CPU without one) isn't run for it.",
        ),
    ]
