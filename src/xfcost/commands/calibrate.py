"""`xfcost calibrate`."""

from __future__ import annotations

from typing import Annotated

import typer

from xfcost.report.messages import say


def run(
    device: Annotated[str, typer.Option("--device", help="The device to measure: cpu, cuda or mps.")] = "cpu",
    dtype: Annotated[str, typer.Option("--dtype", help="The dtype to measure: float32, bfloat16, …")] = "float32",
    threads: Annotated[
        int | None, typer.Option("--threads", metavar="INT", help="Threads of the CPU (default: its physical cores).")
    ] = None,
) -> None:
    """Measure this machine, for --predict.

    Afterwards `--predict` of analyze and compare gives seconds without a run.

    Some hundred small networks and single operations are run for a few minutes, on a machine that does nothing else.
    The result is a file beside the user's other settings; it holds for this device, dtype and number of threads.

    Example: xfcost calibrate --threads 4
    """
    from xfcost.api.predictions import calibrate
    from xfcost.report.console import show
    from xfcost.report.document import drawn
    from xfcost.report.timing import parts

    calibration, path = calibrate(device, dtype=dtype, threads=threads, progress=say)
    show(lambda width: drawn(parts(calibration), width))
    say(f"Wrote {path}")
