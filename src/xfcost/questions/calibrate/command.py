"""`xfcost calibrate`."""

from __future__ import annotations

from typing import Annotated, Final

from xfcost.api.options import EVERY
from xfcost.commands import options as shared
from xfcost.report.messages import say

_DEVICES: Final = shared.words_from(EVERY["device"].words)
_DTYPES: Final = shared.words_from(EVERY["dtype"].words)


def run(
    device: Annotated[
        str, shared.option("--device", None, "Device to measure: cpu, cuda or mps.", autocompletion=_DEVICES)
    ] = "cpu",
    dtype: Annotated[
        str, shared.option("--dtype", None, "Dtype to measure: float32, tf32, bfloat16, …", autocompletion=_DTYPES)
    ] = "float32",
    threads: Annotated[
        int | None, shared.option("--threads", "INT", "Number of CPU threads (default: its physical cores).")
    ] = None,
) -> None:
    """Measure this machine for --predict.

    Afterwards `analyze --predict` and `compare --predict` predict seconds without running the model.

    The command runs about a hundred small networks and single operations for a few minutes; run nothing else meanwhile.
    It saves the result in the user's settings folder, for this device, dtype and number of threads.

    Example: xfcost calibrate --threads 4
    """
    from xfcost.questions.calibrate.answer import calibrate
    from xfcost.questions.calibrate.text import calibration_parts
    from xfcost.report.console import show
    from xfcost.report.document import drawn

    calibration, path = calibrate(device, dtype=dtype, threads=threads, progress=say)
    show(lambda width: drawn(calibration_parts(calibration), width))
    say(f"Wrote {path}")
