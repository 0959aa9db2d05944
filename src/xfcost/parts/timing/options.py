"""The options of `--device`."""

# Annotations are evaluated here: the options are read out of them.
from typing import Annotated, Final, TypedDict, get_args

from xfcost.ledger import option_readers as read
from xfcost.ledger.metadata import Lane
from xfcost.ledger.option import Option, Real, Whole, choice
from xfcost.ledger.timing_plan import USUAL

# A number above this is a typing error.
_MOST_RUNS: Final = 10**6
LANES: Final = get_args(Lane)


class TimingOptions(TypedDict, total=False):
    """Timing, with --device."""

    precision: Annotated[
        Real,
        Option(
            "Measure until the 95 % interval of the median is this narrow (default: 5%).",
            "SHARE",
            read.share("of the median", "0.05", "5%"),
        ),
    ]
    max_time: Annotated[
        Real,
        Option(
            f"Measure each system for at most this many seconds (default: {USUAL.max_time:g}).", "SECONDS", read.seconds
        ),
    ]
    min_time: Annotated[
        Real,
        Option(
            f"Measure each system for at least this many seconds (default: {USUAL.min_time:g}).",
            "SECONDS",
            read.seconds,
        ),
    ]
    runs: Annotated[
        Whole,
        Option("Number of measurements, instead of the three options above.", "INT", read.integer(_MOST_RUNS, "20")),
    ]
    threads: Annotated[
        Whole, Option("Number of torch threads on the CPU (default: its physical cores).", "INT", read.threads)
    ]
    compile: Annotated[bool, Option("Time the model compiled with torch.compile.", default=False)]
    composed: Annotated[bool, Option("For models that do not fit: add up the times of distinct blocks.", default=False)]


class CudaGraphOption(TypedDict, total=False):
    """Timing, with --device."""

    cuda_graph: Annotated[bool, Option("On cuda: also time the model as a CUDA graph.", default=False)]


class LaneOption(TypedDict, total=False):
    """Timing, with --device."""

    lane: Annotated[
        str | None,
        choice("Which GPU time to report: wall (the whole call), host, or device (kernels only).", LANES),
    ]


class DeviceOption(TypedDict, total=False):
    """Timing, with --device."""

    device: Annotated[
        str | None,
        Option("Run the model on this machine and time it.", words=("cpu", "cuda", "mps")),
    ]
