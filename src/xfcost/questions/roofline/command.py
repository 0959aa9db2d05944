"""`xfcost roofline`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from xfcost.api.options import BatchOptions, InputOptions, SettingsOption, SizeOptions
from xfcost.commands import options as shared
from xfcost.commands.from_file import From, Machine, WrittenOptions, roofline_file
from xfcost.parts.prediction.options import PredictOption
from xfcost.parts.timing.options import DeviceOption, TimingOptions
from xfcost.report.messages import say

Picture = Annotated[
    Path | None,
    shared.output_option(
        "Write to this picture (svg, png, pdf; default: SYSTEMS-roofline.svg, none with --format) or this report (csv, "
        "json, md, tex, txt)."
    ),
]


@shared.options(
    SizeOptions, BatchOptions, "dtype", "attention", "mode", "logits", "on", SettingsOption, InputOptions,
    DeviceOption, PredictOption, TimingOptions, "format_", "columns", "force",
    mode="forward, prefill or decode (one token, with a KV cache).",
    logits="With --mode prefill: logits to compute (default: last).",
    on="Draw the roofs of these devices (h100-sxmx8) instead of --device. `xfcost devices` lists names.",
    device="Device to run the systems on: cpu, cuda or mps.",
    predict="Predict the seconds from a calibration (`xfcost calibrate`) instead of running the model.",
)  # fmt: skip
def run(
    context: typer.Context,
    specs: Annotated[list[str] | None, shared.SYSTEMS] = None,
    from_: From = None,
    machine: Machine = None,
    mixing: shared.FindMixing = True,
    picture: Picture = None,
    **given: Any,
) -> None:
    """Plot which operations are memory-bound, on log-log axes.

    Each operation is a point: arithmetic intensity (FLOP per byte moved) on x, FLOP/s on y, coloured by mixing kind,
    with an area that shows its share of the time. The roofs are the peak rate of the machine and its memory bandwidth
    times the intensity. They meet at the ridge point: operations to its left are memory-bound, those to its right
    compute-bound.

    Example: xfcost roofline gpt2 --mode decode --on h100-sxm
    """
    from xfcost.api.roofline import roofline
    from xfcost.views.roofline import document
    from xfcost.views.roofline_figure import roofline_bytes

    if from_ is not None:
        roofline_file(WrittenOptions.of(context))
        return
    specs = shared.counted_specs(context, specs, machine)
    if picture is None and given["format_"] is None:
        picture = shared.default_target(specs, "roofline")
    given["picture"] = picture
    target = shared.target_of(given)
    found = roofline(*specs, mixing=mixing, progress=say, **given)
    target.document(document(found), lambda ending: roofline_bytes(found, ending))
