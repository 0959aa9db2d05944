"""`xfcost plot`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from xfcost.api.axes import DEFAULT_RANGE, MARK
from xfcost.api.options import BatchOptions, InputOptions, SettingsOption
from xfcost.commands import options as shared
from xfcost.commands.from_file import METRICS_OF_FILES, From, Machine, WrittenOptions, plot_file
from xfcost.ledger.errors import printable
from xfcost.parts.prediction.options import PredictOption
from xfcost.parts.timing.options import DeviceOption, TimingOptions
from xfcost.report.messages import say
from xfcost.views.metrics import METRICS, THROUGHPUT

Tokens = Annotated[
    str | None,
    typer.Option(
        "--N",
        metavar="LOW:HIGH",
        help=f"Range of N, or each N: 196,784 (default: the part of {DEFAULT_RANGE} that all systems accept; "
        "1024:131072 for language models). Image specs use square grids. --metric throughput takes one N.",
        rich_help_panel="Size",
    ),
]
Size = Annotated[
    str | None,
    shared.option("--size", "LOW:HIGH", "Range of image sizes instead of N, as in 224:1024, or each: 224,384.", "Size"),
]
Metric = Annotated[
    str,
    typer.Option(
        "--metric",
        help=f"What to plot: {', '.join(METRICS)}; with --on {THROUGHPUT} (tokens/s of all samples over tokens/s of "
        f"each); {METRICS_OF_FILES}.",
        autocompletion=shared.words_from((*METRICS, THROUGHPUT)),
    ),
]
Mark = Annotated[
    str | None,
    shared.option("--mark", "INT", f"Draw a dotted line at this N (default: {MARK} where a system takes images)."),
]
Picture = Annotated[
    Path | None, shared.output_option("Write to this svg, png, pdf or csv file (default: SYSTEMS-METRIC.svg).")
]


@shared.options(
    BatchOptions, "dtype", "attention", "mode", "on", "mfu", "mbu", "memory_share", "cache_blocks", SettingsOption,
    InputOptions, "strict", DeviceOption, PredictOption, TimingOptions, "lane", "force",
    mode=("What is run; decode is one token with a KV cache.", ("forward", "decode")),
    on="With --metric time: plot the lower bound of the time on these devices (h100-sxmx8); --metric throughput "
    "takes several, h100-sxmx8,l40sx16. `xfcost devices` lists names.",
    mfu="With --metric throughput: share of the peak reached (as in 40%).",
    mbu="With --metric throughput: share of the memory bandwidth reached (as in 60%).",
    memory_share="With --metric throughput: share of each device's memory that the run may use (as in 90%).",
    cache_blocks="With --metric throughput: tokens per block of the cache (as in 16), or 16,whole, as in `analyze`.",
    device="Also run the model on this device and draw its points: cpu, cuda or mps.",
    lane="Which GPU time to plot: wall (the whole call), host, or device (kernels only; the default).",
    predict="With --metric time: predict the time from a calibration (`xfcost calibrate`).",
)  # fmt: skip
def run(  # noqa: PLR0913 - options
    context: typer.Context,
    specs: Annotated[list[str] | None, shared.SYSTEMS] = None,
    N: Tokens = None,
    size: Size = None,
    metric: Metric = "mixing",
    mark: Mark = None,
    from_: From = None,
    machine: Machine = None,
    output: Picture = None,
    **given: Any,
) -> None:
    """Plot how costs grow with N or the image size, on log-log axes.

    Each system is a line with its fitted slope, next to lines of linear or quadratic growth; image models have a
    mark at N = 784.
    With --size the x axis is the size of square images that the patches divide. With --device the plot adds points of
    the real model: traced, or timed with --metric time. With --metric time --predict the lines are predicted seconds. A
    torch module is counted at a few N; polynomials through these counts give its line.

    Example: xfcost plot vit swin --N 49:12544 -o scaling.svg
    """
    from xfcost.questions.plot.answer import plot
    from xfcost.report.figure import FIGURES
    from xfcost.report.output import check_target, ending_of

    written = WrittenOptions.of(context)
    if from_ is not None:
        plot_file(written)
        return
    specs = shared.counted_specs(context, specs, machine)
    bounded = metric == "time" and given["on"] is not None
    target = output or shared.default_target(specs, "least-time" if bounded else metric)
    form, force = ending_of(target, (*FIGURES, ".csv")), given.pop("force")
    check_target(target, force=force)
    found = plot(*specs, metric=metric, N=N, size=size, mark=mark, progress=say, **given)
    content = found.content(form)
    default = [] if "metric" in written.options else [_of_whole_models(specs, N, size, output)]
    shared.deliver_lines([*found.summary, *default])
    shared.deliver(content, target, force=force)


def _of_whole_models(specs: list[str], tokens: str | None, size: str | None, output: Path | None) -> str:
    """What was plotted where no metric was given, and the command for the FLOPs of all operations."""
    words = ["xfcost", "plot", *specs, *(["--N", tokens] if tokens else []), *(["--size", size] if size else [])]
    file = [] if output is None else ["-o", str(output.with_stem(f"{output.stem}-flops"))]
    command = shlex.join([*words, "--metric", "flops", *file])
    return f"Plotted mixing MACs; FLOPs of whole models: {printable(command, _LONGEST)}"


# Letters of a command that are printed.
_LONGEST: Final = 200
