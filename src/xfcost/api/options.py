"""The options of commands and of the API, each declared once, in groups: its type, help, default and reader.

The commands make their command line of them, the API its keywords, `api.runs` the checked run and plans.
"""

# Annotations are evaluated here: the options are read out of them.
import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import wraps
from os import PathLike
from typing import Annotated, Any, Final, ParamSpec, TypedDict, TypeVar, get_args

from xfcost.ledger import option_readers as read
from xfcost.ledger.errors import UsageError, shown
from xfcost.ledger.execution import MOST_BATCH, Execution, Logits, Mode
from xfcost.ledger.option import Option, Real, Whole, choice
from xfcost.parts.mixing.options import ProbeOption
from xfcost.parts.prediction.options import PredictOption
from xfcost.parts.serving.options import ChoosingOptions, DeviceOptions, DraftOptions, On, PrefixOption, StepTimeOption
from xfcost.parts.timing.options import CudaGraphOption, DeviceOption, LaneOption, TimingOptions
from xfcost.parts.training.options import TrainingOptions

P = ParamSpec("P")
R = TypeVar("R")
Progress = Callable[[str], None]

# Numbers above these are typing errors.
MOST_NEW: Final = 2**31
_MOST_POINTS: Final = 1000


class SizeOptions(TypedDict, total=False):
    """Size."""

    N: Annotated[
        int | str | Sequence[int] | None,
        Option(
            "Tokens N of the first stage: 784, 128k, 128Ki (131,072).",
            "INT",
            read.token_numbers,
            python="Image specs use the grid closest to a square. For an encoder-decoder one number for both streams, "
            "or two. The spec's own by default.",
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
        "Default: float32; for language models bfloat16 with --on and in every mode but forward.",
        read=read.dtype_name,
        words=("float32", "tf32", "float16", "bfloat16", "float64"),
    ),
]
Attention = Annotated[
    Execution | None,
    choice(
        "eager stores the score matrix, fused is one kernel. Default: eager; for language models fused with --on and "
        "in every mode but forward.",
        get_args(Execution),
    ),
]


class ExecutionOptions(TypedDict, total=False):
    """Run."""

    mode: Annotated[
        Mode,
        choice(
            "What is run; decode is one token with a KV cache, train one step.",
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
            "With --mode generate: tokens after the N.",
            "INT",
            read.integer(MOST_NEW, "256", what="how many tokens to generate,"),
        ),
    ]
    logits: Annotated[
        Logits | None,
        choice("Logits of a prompt to compute (default: last).", ("last", "all")),
    ]
    memory_level: Annotated[
        Whole,
        Option(
            "Also report attention's traffic, plain and tiled for this on-chip memory (as in 192KiB).",
            "BYTES",
            read.byte_number,
            python="Plain, and tiled as in FlashAttention.",
        ),
    ]


class RunOptions(
    SizeOptions, BatchOptions, ExecutionOptions, DeviceOptions, PrefixOption, TrainingOptions, total=False
):  # fmt: skip
    """Run options as a caller gives them: texts of the command line, or numbers."""


class SettingsOption(TypedDict, total=False):
    """Run."""

    settings: Annotated[
        Sequence[str] | None,
        Option(
            "Override a key: stages.0.depth=4, or **.heads=4.",
            "KEY=VALUE",
            default=(),
            flag="--set",
            python="`key.path=value` each.",
        ),
    ]
    fetch: Annotated[
        bool | None,
        Option(
            "Fetch org/name from the Hub: no weights.",
            flag="--fetch/--no-fetch",
            python="Without it no connection is opened. None: as XFCOST_FETCH or the nearest pyproject.toml says.",
        ),
    ]


class TraceOption(TypedDict, total=False):
    """Run."""

    trace: Annotated[
        bool | None, Option("Compare the counts with the real torch model; imports torch.", flag="--trace/--no-trace")
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
            "N. None: if one run has at most 10,000 operations. False also leaves out the MACs of a spec in N.",
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
            "Maximum memory of inference (as in 2GiB): weights, attention matrices alive at once, the cache.", "BYTES"
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
            "Quantity to sort by; seconds need --on.",
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


class AnalyzeOptions(
    _AccountOptions, DraftOptions, ChoosingOptions, StepTimeOption, ProbeOption, OneModuleOptions, total=False
):
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
    TraceOption, ProbeOption, ProgressOption, DeviceOptions, PrefixOption, DraftOptions, ChoosingOptions,
    StepTimeOption,
    TrainingOptions,
    DeviceOption,
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


# Options that other tools and older releases have -> the same here, on the command line and in Python.
ALIASES: Final = {
    "seq-len": "N",
    "seqlen": "N",
    "seq-length": "N",
    "sequence-length": "N",
    "max-seq-len": "N",
    "context": "N",
    "context-length": "N",
    "context-len": "N",
    "max-model-len": "N",
    "ctx-size": "N",
    "ctx": "N",
    "n-ctx": "N",
    "num-tokens": "N",
    "seq-lens": "N",
    "lengths": "N",
    "sweep": "N",
    "input-len": "N",
    "prompt-len": "N",
    "prompt": "N",
    "prompt-length": "N",
    "prompt-tokens": "N",
    "input-length": "N",
    "input-tokens": "N",
    "output-length": "new-tokens",
    "output-tokens": "new-tokens",
    "decode-len": "new-tokens",
    "generate": "new-tokens",
    "img": "size",
    "sizes": "size",
    "resolutions": "size",
    "imgsz": "size",
    "img-size": "size",
    "image-size": "size",
    "resolution": "size",
    "input-size": "input",
    "input-shape": "input",
    "input-data": "input",
    "shape": "input",
    "gpu-memory-utilization": "memory-share",
    "batch-size": "batch",
    "bs": "batch",
    "batches": "batch",
    "batch-sizes": "batch",
    "concurrency": "batch",
    "num-seqs": "batch",
    "max-num-seqs": "batch",
    "users": "batch",
    "cache": "cache-dtype",
    "kv": "cache-dtype",
    "kv-dtype": "cache-dtype",
    "kv-cache-dtype": "cache-dtype",
    "weights": "weights-dtype",
    "quantization": "weights-dtype",
    "quant": "weights-dtype",
    "tp": "tensor-parallel",
    "tensor-parallel-size": "tensor-parallel",
    "pp": "pipeline",
    "pipeline-parallel-size": "pipeline",
    "ep": "expert-parallel",
    "expert-parallel-size": "expert-parallel",
    "num-gpus": "devices",
    "n-gpus": "devices",
    "ngpus": "devices",
    "checkpoint": "recompute",
    "lora-r": "lora",
    "lora-rank": "lora",
    "rank": "lora",
    "target-modules": "lora-on",
    "lora-target": "lora-on",
    "target": "lora-on",
    "speculative-model": "draft",
    "draft-model": "draft",
    "num-speculative-tokens": "draft-tokens",
    "num-draft-tokens": "draft-tokens",
    "num-draft": "draft-tokens",
    "k": "draft-tokens",
    "gamma": "draft-tokens",
    "acceptance-rate": "acceptance",
    "max-tokens": "new-tokens",
    "max-new-tokens": "new-tokens",
    "output-len": "new-tokens",
    "out": "output",
    "export": "output",
    "save-to": "output",
    "baseline": "against",
    "tolerance": "max-increase",
    "group-by": "by",
    "max-depth": "depth",
    "y": "metric",
    "yaxis": "metric",
    "y-axis": "metric",
    "metrics": "metric",
    "output-format": "format",
    "budget": "config",
    "budgets": "config",
    "budget-file": "config",
    "repeat": "runs",
    "repeats": "runs",
    "iters": "runs",
    "iterations": "runs",
    "num-runs": "runs",
    "args": "build",
    "micro-batch-size": "batch",
    "micro-batch": "batch",
    "global-batch-size": "global-batch",
    "sort-by": "sort",
    "match-by": "match",
    "equal": "match",
    "step-seconds": "step-time",
}

# An option of one mode -> that mode, which is taken where none is given.
MODE_OF: Final = {
    "new_tokens": "generate",
    **dict.fromkeys(("draft", "tokens_per_user", "cache", "cache_blocks"), "decode"),
    **dict.fromkeys(("cached_prefix", "logits"), "prefill"),
    **dict.fromkeys(("optimizer", "zero", "global_batch", "gradients"), "train"),
}


def _rename(options: dict[str, Any], name: str, known: Collection[str], function: str) -> None:
    """The argument that `seq_len` or `weights_dtype` is, instead of it.

    Raises:
        TypeError: it is none, or that argument is given too.
    """
    words = name.replace("_", "-")
    flag = "--on" if words in ("gpu", "gpus") else f"--{ALIASES.get(words, words)}"
    own = next((one for one in known if flag_of(one) == flag), None)
    if own is None or own in options:
        raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
    options[own] = options.pop(name)


def _take_inputs(options: dict[str, Any], *, named: bool) -> None:
    """The argument `inputs` that is no text: a shape, or the tensors of a module that is given, and has no name."""
    value = options.get("inputs")
    if value is None or _are_texts(value):
        return
    if named and isinstance(value, list | tuple) and len(value) > 1 and all(isinstance(one, int) for one in value):
        options["inputs"] = "x".join(map(str, value))
    elif not named:
        options["example_inputs"] = options.pop("inputs")


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
    "sort": ("the name of a quantity, as in 'params'", lambda given: given is None or _is_text(given)),
    "front": ("two quantities, as in 'params,macs'", _is_text),
    "scheduler": ("an address, as in 'tcp://host:8786'", lambda given: given is None or _is_text(given)),
    "progress": (
        "a function of a line of text, as in progress=print", lambda given: given is None or callable(given)
    ),
}  # fmt: skip


def _documented(option: Option) -> str:
    """Its text in a docstring."""
    words = f"One of {', '.join(option.words)}." if option.words else ""
    return " ".join(filter(None, (option.help, words, option.python)))


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
            for unknown in [name for name in options if known is not None and name not in known]:
                _rename(options, unknown, known or (), function.__name__)
            _take_inputs(options, named=bool(given) and isinstance(given[0], str | PathLike))
            for name, value in options.items():
                what, fits = _EXPECTED.get(name, ("", None))
                if fits is not None and not fits(value):
                    raise UsageError(f"{name}: expected {what}, got {shown(value)}")
            if "mode" in types and "mode" not in options:
                brought = (mode for name, mode in MODE_OF.items() if options.get(name) is not None)
                if mode := next(brought, None):
                    options.update(mode=mode)
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
            texts = (f"        {name}: {_documented(one.__metadata__[0])}" for name, one in types.items())
            checked.__doc__ = re.sub(r" +\*\*options: .*", lambda _: "\n".join(texts), function.__doc__ or "")
        return checked

    return decorated
