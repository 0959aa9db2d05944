"""The options of a timing, each declared once, and the checked plan that they make."""

# Annotations are evaluated here: the options are read out of them.
import os
from collections.abc import Mapping
from typing import Annotated, Any, Final, NamedTuple, TypedDict

from xfcost.ledger import option_readers as read
from xfcost.ledger.errors import UsageError
from xfcost.ledger.options import Option
from xfcost.ledger.quantities import real_number, whole_number

# Seconds and runs above these are typing errors.
_MOST_SECONDS: Final = 10**7
_MOST_RUNS: Final = 10**6


class TimingPlan(NamedTuple):
    """How long a model is timed, and how it runs."""

    precision: float = 0.05
    """Turns end when the 95 % interval of the median reaches no further from it than this share."""
    max_time: float = 10.0
    """Or when this many seconds per system are spent."""
    min_time: float = 0.5
    """Seconds that are measured at least, per system."""
    runs: int | None = None
    """Exactly this many turns, in place of the three above."""
    threads: int | None = None
    """None: the physical cores that the process may use."""
    compile: bool = False
    """Is the model compiled by torch.compile before?"""
    composed: bool = False
    """Is every distinct block run once, and the whole composed of them?"""


USUAL: Final = TimingPlan()


def _seconds(option: str, given: Any) -> float:
    text = given.strip().removesuffix("s") if isinstance(given, str) else given
    return real_number(option, text, least=1e-3, most=_MOST_SECONDS, example="30")


def _threads(given: Any) -> int:
    most = os.cpu_count() or 1
    return whole_number("--threads", given, least=1, most=most, example="1", what="a number of threads")


class TimingOptions(TypedDict, total=False):
    """Options of a timing as a caller gives them: texts of the command line, or numbers."""

    precision: Annotated[
        float | str | None,
        Option(
            "With --device: time until the 95 % interval of the median is this narrow (default: 5%).",
            metavar="SHARE",
            read=read.share("--precision", "of the median", "0.05", "5%"),
        ),
    ]
    max_time: Annotated[
        float | str | None,
        Option(
            f"With --device: seconds after which a system is timed no longer (default: {USUAL.max_time:g}).",
            metavar="SECONDS",
            read=lambda given: _seconds("--max-time", given),
        ),
    ]
    min_time: Annotated[
        float | str | None,
        Option(
            f"With --device: seconds that a system is timed at least (default: {USUAL.min_time:g}).",
            metavar="SECONDS",
            read=lambda given: _seconds("--min-time", given),
        ),
    ]
    runs: Annotated[
        int | str | None,
        Option(
            "With --device: exactly so many measurements, in place of these three.",
            metavar="INT",
            read=read.integer("--runs", _MOST_RUNS, "20"),
        ),
    ]
    threads: Annotated[
        int | str | None,
        Option(
            "With --device: torch's threads on the CPU (default: the physical cores that it may use).",
            metavar="INT",
            read=_threads,
        ),
    ]
    compile: Annotated[
        bool, Option("With --device: compile the model with torch.compile, and time that.", default=False)
    ]
    composed: Annotated[
        bool,
        Option(
            "With --device: hold and run every distinct block once, and compose the time of the whole; for models that "
            "do not fit.",
            default=False,
        ),
    ]


TIMING_TYPES: Final[dict[str, Any]] = TimingOptions.__annotations__
TIMING_OPTIONS: Final[dict[str, Option]] = {name: one.__metadata__[0] for name, one in TIMING_TYPES.items()}


def timing_plan(device: str | None, given: Mapping[str, Any]) -> TimingPlan:
    """The checked plan of the options `given`; those that are None keep their defaults.

    Raises:
        UsageError: one of them can't be, two contradict each other, or nothing is timed.
    """
    told = {name: value for name, value in given.items() if value is not None and value is not False}
    flags = {name: f"--{name.replace('_', '-')}" for name in told}
    if told and device is None:
        raise UsageError(
            f"{next(iter(flags.values()))}: nothing is timed here; add --device cpu (in a plot --metric time too)"
        )
    read_values = {name: TIMING_OPTIONS[name].read(value) for name, value in told.items()}
    if "composed" in told and "compile" in told:
        raise UsageError("--composed and --compile: a compiled model has no rows to compose; give one of them")
    stopping = [flags[name] for name in ("precision", "max_time", "min_time") if name in told]
    if "runs" in told and stopping:
        raise UsageError(f"--runs and {stopping[0]}: both say how long to time; give one of them")
    plan = TimingPlan(**read_values)
    if plan.min_time <= plan.max_time:
        return plan
    if "min_time" in told and "max_time" in told:
        raise UsageError(f"--min-time {plan.min_time:g} is more than --max-time {plan.max_time:g}")
    # the one that is a default gives way
    return plan._replace(max_time=plan.min_time) if "min_time" in told else plan._replace(min_time=plan.max_time)
