"""`xfcost measure`."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from xfcost.api.options import BatchOptions, InputOptions, MeasurementOptions, SchedulerOption, SettingsOption
from xfcost.commands import options as shared
from xfcost.ledger.errors import UsageError, shown
from xfcost.parts.timing.options import TimingOptions
from xfcost.report.messages import say

Tokens = Annotated[
    str | None,
    shared.option("--N", "LOW:HIGH", "Range of N, or each N: 196,784. Image specs use square grids.", "Size"),
]
Size = Annotated[
    str | None, shared.option("--size", "LOW:HIGH", "Range of image sizes instead of N, as in 96:512.", "Size")
]
Save = Annotated[
    Path,
    typer.Option(
        "--save",
        metavar="FILE",
        help="Save each row to this JSON Lines file as soon as it is measured. Rows that are already in the file are "
        "not measured again.",
    ),
]


@shared.options(
    MeasurementOptions, BatchOptions, "mode", "dtype", "attention", "new_tokens", "logits", "optimizer",
    "checkpoint", SettingsOption,
    InputOptions, "mixing", "device", TimingOptions, SchedulerOption, *shared.REPORT,
    batch="Batch sizes, as in 1,8.",
    dtype="One or more of float32, tf32, float16, bfloat16 and float64, separated by commas. Default: as in `analyze`.",
    attention="eager (stores the score matrix), fused (one kernel), or eager,fused. Default: as in `analyze`.",
    mode="One or more of forward, prefill, decode, generate and train (one step), separated by commas.",
    checkpoint="With --mode train, what a torch module recomputes: its repeated blocks (full), or modules by path "
    "(blocks.*).",
    device="Device to run the models on: cpu (the default), cuda or mps.",
    scheduler="Address of a Dask scheduler to measure on, as in tcp://10.0.0.1:8786; each machine measures one row at "
    "a time (needs xfcost[cluster]).",
)  # fmt: skip
def run(specs: shared.Systems, save: Save, N: Tokens = None, size: Size = None, **given: Any) -> None:
    """Measure time and memory over a range of sizes, row by row.

    Every combination of system, size, batch, dtype, attention and mode is counted, then measured in a process of its
    own, small sizes first, alternating between systems. Rows that would not fit in memory are skipped. To continue an
    interrupted measurement, run the same command again.

    Example: xfcost measure vit swin --N 49:3136 --save runs.jsonl
    """
    from xfcost.questions.measure.answer import answer
    from xfcost.questions.measure.progress import sweep_progress
    from xfcost.views.measurements import document

    if given["output"] is not None and given["output"].resolve() == save.resolve():
        both = shown(save, 100)
        raise UsageError(f"--save and -o: both are {both}, and the report would replace the rows; name two")
    target = shared.target_of(given)
    with closing(sweep_progress()) as lines:
        rows = answer(specs, {**given, "save": save, "N": N, "size": size}, say, lines)
    target.document(document(rows))
    if any(row.outcome.status in {"failed", "timed out"} for row in rows):
        raise typer.Exit(1)
