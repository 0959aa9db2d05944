"""The options of commands and of the API, each declared once, in groups: its type, help, default and reader.

The commands make their command line of them, the API its keywords, `api.runs` the checked run and plans.
"""

# Annotations are evaluated here: the options are read out of them.
import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial, wraps
from typing import Annotated, Any, Final, ParamSpec, TypedDict, TypeVar, get_args

import msgspec

from xfcost.api import option_readers as read
from xfcost.formulas.optimizers import OPTIMIZERS
from xfcost.ledger.errors import UsageError, shown
from xfcost.ledger.execution import CHECKPOINTS, MOST_BATCH, MOST_DEVICES, Checkpoint, Execution, Logits, Mode
from xfcost.ledger.metadata import Lane
from xfcost.ledger.quantization import CACHE_FORMATS, UNQUANTISED, WEIGHT_FORMATS
from xfcost.ledger.read_numbers import whole_number
from xfcost.ledger.timing_plan import USUAL

P = ParamSpec("P")
R = TypeVar("R")
Progress = Callable[[str], None]

Whole = int | str | None
"""A whole number, which a caller may give as a text."""
Real = float | str | None
"""Any number, likewise."""

# Numbers above these are typing errors.
MOST_NEW: Final = 2**31
_MOST_TOKENS: Final = 10**18
_MOST_RUNS: Final = 10**6
_MOST_POINTS: Final = 1000
# The host of `--offload` where none is given: a desktop with two channels of DDR5.
USUAL_HOST: Final = "ryzen-9950x"
LANES: Final = get_args(Lane)


class Option(msgspec.Struct, frozen=True):
    """One option."""

    help: str
    """Its text in `--help`."""
    metavar: str | None = None
    read: Callable[[str, Any], Any] = lambda option, given: given
    """Its flag, for messages, and the given value -> checked value; raises a UsageError."""
    default: Any = None
    python: str = ""
    """A further sentence in the API's documentation."""
    flag: str | None = None
    """How it is written on the command line if that isn't its name; empty if only Python has it."""
    words: tuple[str, ...] = ()
    """What the shell completes."""


_DEGREE: Final = read.integer(MOST_DEVICES, "8", prefixed=False)


def _choice(text: str, values: Collection[str], metavar: str | None = None, **more: Any) -> Option:
    """An option that takes one of `values`."""
    return Option(text, metavar, read.one_of(values), words=tuple(values), **more)


class SizeOptions(TypedDict, total=False):
    """Size."""

    N: Annotated[
        int | str | Sequence[int] | None,
        Option(
            "Number of tokens N of the first stage: 784, 128k (128,000) or 128Ki (131,072). Image specs use the grid "
            "closest to a square.",
            "INT",
            read.token_numbers,
            python="For an encoder-decoder one number for both streams, or two. The spec's own by default.",
        ),
    ]
    size: Annotated[
        int | str | Sequence[int] | None,
        Option("Image size instead of N: 384, or 224x320 (height x width).", "PIXELS", read.image_size),
    ]


class BatchOptions(TypedDict, total=False):
    """Size."""

    batch: Annotated[
        int | str,
        Option(
            "Samples.", "INT", read.integer(MOST_BATCH, "8"), default=1, python="Costs scale with it, parameters don't."
        ),
    ]


# What several groups have.
Dtype = Annotated[
    str | None,
    Option(
        "float32, tf32, float16, bfloat16 or float64. Default: float32; for language models bfloat16 with --on and in "
        "every mode but forward.",
        read=read.dtype_name,
        words=("float32", "tf32", "float16", "bfloat16", "float64"),
    ),
]
Attention = Annotated[
    Execution | None,
    _choice(
        "eager (stores the score matrix) or fused (one kernel). Default: eager; for language models fused with "
        "--on and in every mode but forward.",
        get_args(Execution),
    ),
]
On = Annotated[
    str | None,
    Option(
        "Compute from datasheets if the run fits (h100-sxmx8) and a lower bound of its time. `xfcost devices` "
        "lists names.",
        "DEVICE[xN]",
        python="Or a `Device` or `DeviceGroup`; `analyze` takes a list of them.",
    ),
]


class ExecutionOptions(TypedDict, total=False):
    """Run."""

    mode: Annotated[
        Mode,
        _choice(
            "forward, prefill, decode (one token, with a KV cache), generate or train (one step).",
            get_args(Mode),
            default="forward",
            python="In `decode` the new token is one of the N.",
        ),
    ]
    dtype: Dtype
    attention: Attention
    new_tokens: Annotated[
        Whole,
        Option(
            "Number of tokens to generate after a prompt of N, with --mode generate.",
            "INT",
            read.integer(MOST_NEW, "256", what="how many tokens to generate,"),
        ),
    ]
    logits: Annotated[
        Logits | None,
        _choice("With --mode prefill or generate: logits to compute (default: last).", ("last", "all"), "last|all"),
    ]
    memory_level: Annotated[
        Whole,
        Option(
            "Count main-memory traffic of attention with this on-chip memory (192KiB).",
            "BYTES",
            read.byte_number,
            python="Plain, and tiled as in FlashAttention.",
        ),
    ]


class DeviceOptions(TypedDict, total=False):
    """Devices and plan."""

    on: On
    mfu: Annotated[
        Real,
        Option(
            "Model FLOPs utilisation: share of the peak reached, 40% or 35%:50%.",
            "SHARE",
            read.shares("of the peak", "0.4", "40%"),
        ),
    ]
    mbu: Annotated[
        Real,
        Option(
            "With --on: share of the memory bandwidth reached (60%).",
            "SHARE",
            read.share("of the memory's bandwidth", "0.6", "60%"),
        ),
    ]
    weights: Annotated[
        str | None,
        _choice(
            "Quantise linear layers and experts: int4, fp8, mxfp4, int8 or none. Default: as the checkpoint is "
            "published.",
            (*WEIGHT_FORMATS, UNQUANTISED),
            "FORMAT",
        ),
    ]
    cache: Annotated[
        str | None,
        _choice(
            "Quantise keys and values: fp8, int8 or none (default: as published).",
            (*CACHE_FORMATS, UNQUANTISED),
            "FORMAT",
        ),
    ]
    memory_share: Annotated[
        Real,
        Option(
            "With --on: share of each device's memory that the run may use (90%).",
            "SHARE",
            read.share("of each device's memory", "0.9", "90%"),
        ),
    ]
    cache_blocks: Annotated[
        Whole,
        Option(
            "With --on: tokens per block of the cache: 16, or 16,whole (windows too).",
            "TOKENS",
            read.cache_blocks,
            python="Every sequence takes whole blocks; `whole`: layers with windows take those of the full context, as "
            "engines do for hybrid models.",
        ),
    ]
    offload: Annotated[
        Whole,
        Option(
            "With --on: number of first blocks on the host (-ngl: those on the GPU).",
            "INT",
            read.integer(MOST_DEVICES, "8", prefixed=False, what="a number of blocks,"),
            python="Their weights and caches lie in its memory, and its processor computes them: the inverse of "
            "llama.cpp's -ngl.",
        ),
    ]
    host: Annotated[
        str | None,
        Option(
            f"With --offload: the host's processor (default: {USUAL_HOST}).",
            "DEVICE",
            python="Or a `Device`.",
        ),
    ]
    host_memory: Annotated[
        Whole,
        Option(
            "With --offload: the host's memory (64GiB).",
            "BYTES",
            read.host_memory,
        ),
    ]
    tensor_parallel: Annotated[
        Whole, Option("With --on: number of devices that share heads, MLPs and vocabulary.", "INT", _DEGREE)
    ]
    pipeline: Annotated[
        Whole, Option("With --on: number of pipeline stages; training uses the 1F1B schedule.", "INT", _DEGREE)
    ]
    expert_parallel: Annotated[
        Whole, Option("With --on, in inference: number of devices that share the experts.", "INT", _DEGREE)
    ]
    peak: Annotated[
        Real,
        Option(
            "With --tokens and --mfu: peak of one device (312T), to compute days.",
            "FLOP/S",
            read.flops_per_second("312T"),
        ),
    ]
    sustained: Annotated[
        Real,
        Option(
            "Sustained rate of one device (125T), instead of --peak and --mfu.", "FLOP/S", read.flops_per_second("125T")
        ),
    ]
    devices: Annotated[
        Whole,
        Option(
            "With --peak or --sustained: number of devices that share the run.",
            "INT",
            read.integer(MOST_DEVICES, "8", floats=True, prefixed=False),
        ),
    ]


class ChoosingOptions(TypedDict, total=False):
    """Devices and plan."""

    price: Annotated[
        float | str | Mapping[str, float] | None,
        Option(
            "With --on: price of one device per hour: 2.5, or h100-sxm=2.5,l40s=0.8.",
            "PRICE",
            read.prices,
            python='Or `{"h100-sxm": 2.5}`.',
        ),
    ]
    tokens_per_user: Annotated[
        Real, Option("With --on: find the largest batch with this rate per sample (30).", "RATE", read.rate)
    ]


class TrainingOptions(TypedDict, total=False):
    """Training, with --mode train."""

    optimizer: Annotated[
        str | None,
        Option(
            "adamw (the default), sgd, momentum, adafactor or lion.",
            "NAME",
            words=tuple(OPTIMIZERS),
        ),
    ]
    tokens: Annotated[
        Real,
        Option(
            "Tokens of the whole training run (300e9, 300B).",
            "NUMBER",
            read.integer(_MOST_TOKENS, "300e9", floats=True),
        ),
    ]
    zero: Annotated[
        Whole,
        Option(
            "With --on: ZeRO shards 1 optimizer states, 2 gradients, 3 parameters.",
            "0|1|2|3",
            lambda option, given: whole_number(option, given, least=0, most=3, example="1", what="a ZeRO stage"),
        ),
    ]
    checkpoint: Annotated[
        Checkpoint | None,
        _choice("With --on: recompute none, selective (of attention) or full (blocks).", CHECKPOINTS, "WHICH"),
    ]
    sequence_parallel: Annotated[
        bool, Option("With --tensor-parallel: the devices share norms and residuals too.", default=False)
    ]
    global_batch: Annotated[
        Whole,
        Option(
            "With --on: tokens per step (1M); --batch is the micro-batch.",
            "TOKENS",
            read.integer(_MOST_TOKENS, "1M", floats=True),
        ),
    ]
    gradients: Annotated[
        str | None,
        Option(
            "With --on: dtype of the gradients, the model's or float32.",
            "DTYPE",
            partial(read.dtype_name, stored=True),
            words=("float32", "bfloat16", "float16"),
        ),
    ]


class RunOptions(SizeOptions, BatchOptions, ExecutionOptions, DeviceOptions, TrainingOptions, total=False):
    """Run options as a caller gives them: texts of the command line, or numbers."""


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
        _choice(
            "Time to report on a GPU: of the whole call (wall), of the host or of the kernels (device).", LANES, "LANE"
        ),
    ]


class DeviceOption(TypedDict, total=False):
    """Timing, with --device."""

    device: Annotated[
        str | None,
        Option(
            "Also run the model on this device and time it: cpu, cuda or mps.", "DEVICE", words=("cpu", "cuda", "mps")
        ),
    ]


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


class SettingsOption(TypedDict, total=False):
    """Run."""

    settings: Annotated[
        Sequence[str] | None,
        Option(
            "Override a key: --set stages.0.depth=4, or **.heads=4. Repeatable.",
            "KEY=VALUE",
            default=(),
            flag="--set",
            python="`key.path=value` each.",
        ),
    ]


class TraceOption(TypedDict, total=False):
    """Run."""

    trace: Annotated[
        bool | None, Option("Compare the counts with the real torch model; imports torch.", flag="--trace/--no-trace")
    ]


class ProbeOption(TypedDict, total=False):
    """Run."""

    probe: Annotated[
        bool,
        Option(
            "Run each component on small grids and check its declared mixing kinds.",
            default=False,
            python="The ledger's `probe`.",
        ),
    ]


class InputOptions(TypedDict, total=False):
    """Torch modules."""

    inputs: Annotated[
        Sequence[str],
        Option(
            "Shape of an input: 1x3xHxW, or input_ids=BxN:int64, with letters N, H, W and B; 2:1xNx768 is for the "
            "second system. Repeatable.",
            "SHAPE",
            default=(),
            flag="--input",
            python="Of a named module: each input.",
        ),
    ]
    build: Annotated[
        Sequence[str],
        Option("Argument of the class or function; it can use N, H and W. Repeatable.", "KEY=VALUE", default=()),
    ]


class ExampleOptions(TypedDict, total=False):
    """Torch modules."""

    example_inputs: Annotated[
        Any,
        Option(
            "For a module: one tensor, a tuple of positional inputs or a dictionary of keyword inputs; or a function "
            "of N, or of H and W, that returns them.",
            flag="",
        ),
    ]
    example_kwargs: Annotated[
        Mapping[str, Any] | None, Option("For a module: keyword inputs in addition to positional ones.", flag="")
    ]


class ModuleOptions(InputOptions, total=False):
    """Torch modules."""

    strict: Annotated[bool, Option("Exit with code 1 if an operation is not counted.", default=False)]
    mixing: Annotated[
        bool | None,
        Option(
            "Find how each operation mixes tokens without a limit, or not at all.",
            flag="--mixing/--no-mixing",
            python="Runs are on the CPU at small sizes. None: up to mixing_limit, where it can be run so; of a spec, "
            "where it is traced.",
        ),
    ]
    mixing_limit: Annotated[
        Real,
        Option(
            "Tensor elements to follow for mixing kinds (default: 400M; 0 skips it).", "ELEMENTS",
            read.mixing_limit,
        ),
    ]  # fmt: skip


class OneModuleOptions(TypedDict, total=False):
    """Torch modules."""

    tokens_of: Annotated[
        Sequence[str],
        Option(
            "Token axes of an input: x:1, image:2,3, cond:none. Repeatable.",
            "INPUT:AXES",
            python="Those of other inputs are found.",
            default=(),
        ),
    ]
    cache_in: Annotated[str | None, Option("Argument that takes the cache (default: as in transformers).", "NAME")]
    cache_out: Annotated[str | None, Option("Output with the cache, a name or index (default: as --cache-in).", "NAME")]
    closed_form: Annotated[
        bool | None,
        Option(
            "For a module whose inputs have an N: also count it at other N, and return its costs as polynomials in "
            "N. None: if one run has at most 10,000 operations.",
            flag="",
        ),
    ]


class ProgressOption(TypedDict, total=False):
    """Run."""

    progress: Annotated[Progress | None, Option("Called with a line of text before each long step.", flag="")]


class BudgetOptions(TypedDict, total=False):
    """Budgets."""

    max_macs: Annotated[Real, Option("Maximum MACs of the run: 5G.", "COUNT")]
    max_params: Annotated[Real, Option("Maximum number of parameters: 30M.", "COUNT")]
    max_memory: Annotated[
        Whole,
        Option(
            "Maximum memory of inference (2GiB): weights, attention matrices alive at once, and the cache.", "BYTES"
        ),
    ]
    max_flops: Annotated[Real, Option("Maximum FLOPs of the run: 10G.", "COUNT")]
    max_kv_cache: Annotated[Whole, Option("Maximum KV cache, with --mode prefill, decode or generate: 4GiB.", "BYTES")]
    max_seconds: Annotated[Real, Option("With --on: maximum of the lower bound of the time: 10ms.", "TIME")]


class IncreaseOption(TypedDict, total=False):
    """Budgets."""

    max_increase: Annotated[
        Real,
        Option(
            "With --against: maximum growth of MACs, parameters, memory and, with --on or --predict, seconds: 2%.",
            "PERCENT",
            read.increase,
        ),
    ]


class SearchOptions(TypedDict, total=False):
    """Search."""

    vary: Annotated[
        Mapping[str, Any] | Sequence[str] | None,
        Option(
            "Search one spec over the values of a key: KEY=96,128 or KEY=2:18:2 (2, 4, … 18), keys as in --set; or any "
            "models over N=4k,32k and batch=1,16. Repeatable.",
            "KEY=VALUES",
            default=(),
            python='Or `{"stages.2.depth": range(2, 19, 2)}`.',
        ),
    ]
    family: Annotated[
        Sequence[str] | str, Option("Search only presets of this family. Repeatable.", "NAME", default=())
    ]
    sort: Annotated[
        str,
        Option(
            "Sort by params, macs, flops, memory, attention-bytes or cache-bytes; with --on also by seconds.",
            "QUANTITY",
            default="params",
            words=("params", "macs", "flops", "memory", "attention-bytes", "cache-bytes", "seconds"),
        ),
    ]
    descending: Annotated[
        bool | None, Option("Sort from the largest to the smallest; the default for params.", flag="")
    ]
    top: Annotated[int | str, Option("Number of models in the table.", "INT", default=20)]
    front: Annotated[
        str,
        Option(
            "Mark the Pareto front: models with the most of one figure for the least of another.",
            "MOST,LEAST",
            default="params,macs",
        ),
    ]
    limit: Annotated[
        Whole, Option("With --vary: search at most this many combinations, drawn at random with a fixed seed.", "INT")
    ]
    jobs: Annotated[int | str, Option("With --vary: number of processes.", "INT", default=1)]


class SchedulerOption(TypedDict, total=False):
    """Cluster."""

    scheduler: Annotated[
        str | None, Option("With --vary: address of a Dask scheduler to search on, as in `measure`.", "ADDRESS")
    ]


class MeasurementOptions(TypedDict, total=False):
    """Measurement."""

    points: Annotated[
        int | str,
        Option(
            "Number of sizes in the range, spaced by about equal ratios, with both ends.",
            "INT",
            read.integer(_MOST_POINTS, "9"),
            default=9,
        ),
    ]
    timeout: Annotated[
        float | str,
        Option(
            "Time limit of one row, from the start of its process to its end.", "SECONDS", read.seconds, default=600
        ),
    ]
    retry: Annotated[bool, Option("Measure rows again that failed, timed out or were skipped.", default=False)]
    check: Annotated[bool, Option("Also predict every row from the machine's calibration, and compare.", default=False)]
    any_machine: Annotated[bool, Option("Allow adding rows to a file with rows of another machine.", default=False)]


class _AccountOptions(
    RunOptions,
    SettingsOption,
    TraceOption,
    DeviceOption,
    PredictOption,
    TimingOptions,
    CudaGraphOption,
    ExampleOptions,
    ModuleOptions,
    ProgressOption,
    total=False,
):
    """The keywords that `analyze` and `compare` share."""


class CompareOptions(_AccountOptions, LaneOption, total=False):
    """The keywords of `compare`."""


class AnalyzeOptions(_AccountOptions, ChoosingOptions, ProbeOption, OneModuleOptions, total=False):
    """The keywords of `analyze`."""


class DrawnOptions(
    SizeOptions, BatchOptions, SettingsOption, ExampleOptions, ModuleOptions, ProgressOption, total=False
):
    """The keywords of `diagram` and `glance`."""

    dtype: Dtype
    attention: Attention


class PlotOptions(
    BatchOptions, ExecutionOptions, DeviceOptions, SettingsOption, DeviceOption, PredictOption, TimingOptions,
    LaneOption, ExampleOptions, ModuleOptions, ProgressOption, total=False,
):  # fmt: skip
    """The keywords of `plot`."""


class RooflineOptions(
    SizeOptions, BatchOptions, ExecutionOptions, SettingsOption, DeviceOption, PredictOption, TimingOptions,
    ExampleOptions, ModuleOptions, ProgressOption, total=False,
):  # fmt: skip
    """The keywords of `roofline`."""

    on: On


class MeasureOptions(
    MeasurementOptions,
    SchedulerOption,
    DeviceOption,
    SettingsOption,
    InputOptions,
    TimingOptions,
    ProgressOption,
    total=False,
):
    """The keywords of `measure`."""


class _Every(
    AnalyzeOptions, LaneOption, BudgetOptions, IncreaseOption, SearchOptions, SchedulerOption, MeasurementOptions,
    total=False,
):  # fmt: skip
    pass


_GROUPED: Final = (
    BudgetOptions, IncreaseOption, SearchOptions, MeasurementOptions, SchedulerOption,
    SizeOptions, BatchOptions, ExecutionOptions, SettingsOption,
    TraceOption, ProbeOption, ProgressOption, DeviceOptions, ChoosingOptions, TrainingOptions, DeviceOption,
    PredictOption, TimingOptions, CudaGraphOption, LaneOption, InputOptions, ExampleOptions, ModuleOptions,
    OneModuleOptions,
)  # fmt: skip
TYPES: Final[dict[str, Any]] = _Every.__annotations__
EVERY: Final[dict[str, Option]] = {name: one.__metadata__[0] for name, one in TYPES.items()}
GROUP_OF: Final[dict[str, str]] = {
    name: str(group.__doc__).removesuffix(".") for group in _GROUPED for name in group.__annotations__
}
# The panels of `--help`, in their order.
GROUPS: Final = (*dict.fromkeys(GROUP_OF.values()), "Output")
OPTIONS: Final = {name: EVERY[name] for name in RunOptions.__annotations__}
TIMING_OPTIONS: Final = {name: EVERY[name] for name in (*TimingOptions.__annotations__, "cuda_graph", "lane")}


def flag_of(name: str) -> str:
    """`--new-tokens`, or `--mixing/--no-mixing`."""
    flag = EVERY[name].flag if name in EVERY else None
    return flag or f"--{name.replace('_', '-')}"


def read_option(name: str, given: Any) -> Any:
    """The checked value of one option; None stays None where that is the default.

    Raises:
        UsageError: the value is invalid.
    """
    option = EVERY[name]
    return None if given is None and option.default is None else option.read(flag_of(name), given)


def single_share(name: str, given: Any, where: str) -> float:
    """The checked value of an option that may be a range, where it may not: `where` is for the message.

    Raises:
        UsageError: it is invalid, or a range.
    """
    first, *more = read_option(name, given)
    if more:
        raise UsageError(
            f"--{name} {shown(given)}: a range needs --mode train --on DEVICE; {where} give one, as in 40%"
        )
    return float(first)


def _are_texts(given: Any) -> bool:
    """Texts, or an iterator, which is read once only."""
    if given is None or isinstance(given, str | Iterator):
        return True
    return isinstance(given, Collection) and all(isinstance(one, str) for one in given)


def _is_text(given: Any) -> bool:
    return isinstance(given, str)


# Arguments of the API that no reader checks: what is expected, and does a value fit?
_EXPECTED: Final[dict[str, tuple[str, Callable[[Any], bool]]]] = {
    "settings": ("texts like 'stages.0.depth=4'", _are_texts),
    "inputs": ("texts like '1x3x224x224'", _are_texts),
    "build": ("texts like 'depth=12'", _are_texts),
    "cache_in": ("a name, as in 'past_key_values'", lambda given: given is None or _is_text(given)),
    "cache_out": ("a name, as in 'past_key_values'", lambda given: given is None or _is_text(given)),
    "family": ("names of families, as in 'swin'", _are_texts),
    "vary": (
        "keys of the spec with their values, as in {'stages.2.depth': [2, 6]}, or texts like 'stages.2.depth=2,6'",
        lambda given: isinstance(given, Mapping) or _are_texts(given),
    ),
    "sort": ("the name of a quantity, as in 'params'", _is_text),
    "front": ("two quantities, as in 'params,macs'", _is_text),
    "scheduler": ("an address, as in 'tcp://host:8786'", lambda given: given is None or _is_text(given)),
    "progress": (
        "a function of a line of text, as in progress=print", lambda given: given is None or callable(given)
    ),
}  # fmt: skip


def takes(declared: Any = None) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """`function(…, **options)` that takes the options `declared`, a TypedDict: in its signature and its docstring.

    Keyword arguments of another type, and unknown ones, are refused.
    """
    types: dict[str, Any] = {} if declared is None else declared.__annotations__

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        own = inspect.signature(function).parameters
        known = {*own, *types} if types else None

        @wraps(function)
        def checked(*given: P.args, **options: P.kwargs) -> R:
            for name, value in options.items():
                if known is not None and name not in known:
                    raise TypeError(f"{function.__name__}() got an unexpected keyword argument {name!r}")
                what, fits = _EXPECTED.get(name, ("", None))
                if fits is not None and not fits(value):
                    raise UsageError(f"{name}: expected {what}, got {shown(value)}")
            return function(*given, **options)

        if types:
            named = [one for one in own.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
            named += [
                inspect.Parameter(
                    name, inspect.Parameter.KEYWORD_ONLY, default=one.__metadata__[0].default, annotation=one.__origin__
                )
                for name, one in types.items()
            ]
            vars(checked)["__signature__"] = inspect.signature(function).replace(parameters=named)
            texts = (
                f"        {name}: {one.__metadata__[0].help} {one.__metadata__[0].python}".rstrip()
                for name, one in types.items()
            )
            checked.__doc__ = re.sub(r" +\*\*options: .*", lambda _: "\n".join(texts), function.__doc__ or "")
        return checked

    return decorated
