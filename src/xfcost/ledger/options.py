"""The options of a run, each declared once: its type, help, default and reader.

The commands build their command line from them, the API its keywords, `counting.run_options` a checked `Run`.
"""

# Annotations are evaluated here: the options are read out of them.
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, TypedDict, get_args

import msgspec

from xfcost.ledger import option_readers as read
from xfcost.ledger.errors import UsageError, shown

# How attention is run: `eager` keeps the matrix of scores, `fused` is one kernel that doesn't. Same MACs.
Execution = Literal["eager", "fused"]

# What is run: all N tokens at once (`forward`; `prefill`, which fills the cache); a decode step, the N-th token, with
# all others cached (`decode`); a prefill and then decode steps (`generate`); a training step (`train`).
Mode = Literal["forward", "prefill", "decode", "generate", "train"]
# Modes that are one pass.
ONE_PASS: Final[tuple[Mode, ...]] = ("forward", "prefill", "decode")

# Positions whose logits a language model computes: all, or only the last, which predicts the next token.
Logits = Literal["all", "last"]

# What is recomputed in the backward pass: nothing, attention matrices, or all of a block but its input.
Checkpoint = Literal["none", "selective", "full"]
CHECKPOINTS: Final = get_args(Checkpoint)

MOST_BATCH: Final = 2**24
MOST_NEW: Final = 2**31
# Numbers above these are typing errors: no run has so many tokens or devices.
MOST_TOKENS: Final = 10**18
MOST_DEVICES: Final = 10**8


class Option(msgspec.Struct, frozen=True):
    """One option of a run."""

    help: str
    """Its text in `--help`."""
    metavar: str | None = None
    default: Any = None
    read: Callable[[Any], Any] = lambda given: given
    """Given value -> checked value; raises a UsageError."""
    python: str = ""
    """A further sentence in the API's documentation."""
    hidden: bool = False
    """Is it left out of the help?"""


class RunOptions(TypedDict, total=False):
    """Run options as a caller gives them: texts of the command line, or numbers."""

    N: Annotated[
        int | str | Sequence[int] | None,
        Option(
            "Tokens of the first stage; image specs take the grid nearest to square. 128k is 128,000, 128Ki 131,072.",
            metavar="INT",
            read=read.token_numbers,
            python="For an encoder-decoder one number for both streams, or two. The spec's own by default.",
        ),
    ]
    size: Annotated[
        int | str | Sequence[int] | None,
        Option("Image size in place of N: 384, or 224x320 (height x width).", metavar="PIXELS", read=read.image_size),
    ]
    batch: Annotated[
        int | str,
        Option(
            "Samples.",
            metavar="INT",
            default=1,
            read=read.integer("--batch", MOST_BATCH, "8"),
            python="Costs scale with it, parameters don't.",
        ),
    ]
    dtype: Annotated[
        str | None,
        Option(
            "float32, float16, bfloat16 or float64. Default: float32; of language models bfloat16, in every mode but "
            "forward.",
            read=read.dtype_name,
        ),
    ]
    attention: Annotated[
        Execution | None,
        Option(
            "eager (keeps the score matrix) or fused (one kernel). Default: eager; of language models fused, in every "
            "mode but forward.",
            read=read.one_of("--attention", get_args(Execution)),
        ),
    ]
    memory_level: Annotated[
        int | str | None,
        Option(
            "On-chip memory (192KiB): main-memory traffic of attention, plain and tiled for it (FlashAttention).",
            metavar="BYTES",
            read=read.byte_number,
        ),
    ]
    mode: Annotated[
        Mode,
        Option(
            "forward, prefill, decode (one more token, its past cached), generate or train (a step).",
            default="forward",
            read=read.one_of("--mode", get_args(Mode)),
            python="In `decode` the new token is one of the N.",
        ),
    ]
    new_tokens: Annotated[
        int | str | None,
        Option(
            "Tokens that --mode generate writes after a prompt of N.",
            metavar="INT",
            read=read.integer("--new-tokens", MOST_NEW, "256", what="how many tokens to generate,"),
        ),
    ]
    logits: Annotated[
        Logits | None,
        Option(
            "With --mode prefill or generate: of which positions (default: the last).",
            metavar="last|all",
            read=read.one_of("--logits", ("last", "all")),
        ),
    ]
    optimizer: Annotated[
        str | None,
        Option("With --mode train: adamw (the default), sgd, momentum, adafactor or lion.", metavar="NAME"),
    ]
    tokens: Annotated[
        float | str | None,
        Option(
            "With --mode train: tokens of the whole run (300e9, 300B).",
            metavar="NUMBER",
            read=read.integer("--tokens", MOST_TOKENS, "300e9", floats=True),
        ),
    ]
    on: Annotated[
        str | None,
        Option(
            "A device, or several (h100-sxmx8): does it fit, and the least time that it takes. `xfcost devices` lists "
            "them.",
            metavar="DEVICE[xN]",
            python="Or a `Device` or `DeviceGroup`.",
        ),
    ]
    peak: Annotated[
        float | str | None,
        Option(
            "With --tokens and --mfu: the peak of one device (312T): the run in days.",
            metavar="FLOP/S",
            read=read.flops_per_second("--peak", "312T"),
        ),
    ]
    mfu: Annotated[
        float | str | None,
        Option(
            "Model FLOPs utilisation: the share of the peak (--on, --peak) that it gets: 40%, or 35%:50%.",
            metavar="SHARE",
            read=read.shares("--mfu", "of the peak", "0.4", "40%"),
        ),
    ]
    mbu: Annotated[
        float | str | None,
        Option(
            "With --on: memory bandwidth utilisation, the share of the bandwidth that it gets (60%).",
            metavar="SHARE",
            read=read.share("--mbu", "of the memory's bandwidth", "0.6", "60%"),
        ),
    ]
    sustained: Annotated[
        float | str | None,
        Option(
            "What one device sustains, in place of --peak and --mfu.",
            metavar="FLOP/S",
            read=read.flops_per_second("--sustained", "125T"),
        ),
    ]
    devices: Annotated[
        int | str | None,
        Option(
            "With --peak or --sustained: devices that share the run.",
            metavar="INT",
            read=read.integer("--devices", MOST_DEVICES, "8", floats=True, prefixed=False),
        ),
    ]
    zero: Annotated[
        int | str | None,
        Option(
            "With --on in training: ZeRO shares out 1 optimizer states, 2 gradients, 3 parameters too.",
            metavar="0|1|2|3",
            read=read.zero_stage,
        ),
    ]
    checkpoint: Annotated[
        Checkpoint | None,
        Option(
            "With --on in training: activations recomputed: none, selective (attention matrices) or full (blocks).",
            metavar="none|selective|full",
            read=read.one_of("--checkpoint", CHECKPOINTS),
        ),
    ]
    tensor_parallel: Annotated[
        int | str | None,
        Option(
            "With --on in training: devices that share heads, MLPs and vocabulary.",
            metavar="INT",
            read=read.integer("--tensor-parallel", MOST_DEVICES, "8", prefixed=False),
        ),
    ]
    sequence_parallel: Annotated[
        bool,
        Option("With --tensor-parallel: they share the tokens of norms and residuals too.", default=False),
    ]
    pipeline: Annotated[
        int | str | None,
        Option(
            "With --on in training: pipeline stages (one forward, one backward).",
            metavar="INT",
            read=read.integer("--pipeline", MOST_DEVICES, "8", prefixed=False),
        ),
    ]
    global_batch: Annotated[
        int | str | None,
        Option(
            "With --on in training: tokens of a step on all devices (1M); --batch is the samples of a micro-batch.",
            metavar="TOKENS",
            read=read.integer("--global-batch", MOST_TOKENS, "1M", floats=True),
        ),
    ]
    gradients: Annotated[
        str | None,
        Option(
            "With --on in training: the dtype of gradients: the model's (16 bytes per parameter) or float32 (18).",
            metavar="DTYPE",
            read=read.gradients_dtype,
        ),
    ]
    rate: Annotated[
        float | str | None,
        Option("Refused: it did not say whether it is sustained or a peak.", hidden=True),
    ]


OPTION_TYPES: Final[dict[str, Any]] = RunOptions.__annotations__
OPTIONS: Final[dict[str, Option]] = {name: declared.__metadata__[0] for name, declared in OPTION_TYPES.items()}


def read_option(name: str, given: Any) -> Any:
    """The checked value of one option; None stays None where that is the default.

    Raises:
        UsageError: the value is invalid.
    """
    option = OPTIONS[name]
    return None if given is None and option.default is None else option.read(given)


# An option, its name and its type -> its parameter's default and annotation.
Described = Callable[[str, Option, Any], tuple[Any, Any]]


def single_share(name: str, given: Any, where: str) -> float:
    """The checked value of an option that may be a range, where it may not: `where` is for the message.

    Raises:
        UsageError: it is invalid, or a range.
    """
    first, *more = read_option(name, given)
    if more:
        raise UsageError(
            f"--{name} {shown(given)}: a range is of --mode train --on DEVICE; {where} give one, as in 40%"
        )
    return float(first)


def spelled_out(
    function: Callable[..., Any], declared: Mapping[str, Any], described: Described, *, evaluated: bool
) -> None:
    """Write the options `declared` out in the signature of `function(…, settings, …, **options)`, before `settings`.

    `declared` maps their names to their annotations, as in `RunOptions`. `evaluated` reads the other annotations of the
    function too, which are texts otherwise. The parameter `**options` is no longer shown.
    """
    signature = inspect.signature(function, eval_str=evaluated)
    own = [param for param in signature.parameters.values() if param.kind is not inspect.Parameter.VAR_KEYWORD]
    before = next(number for number, param in enumerate(own) if param.name == "settings")
    options = []
    for name, annotated in declared.items():
        default, annotation = described(name, annotated.__metadata__[0], annotated.__origin__)
        options.append(inspect.Parameter(name, own[before].kind, default=default, annotation=annotation))
    whole = signature.replace(parameters=[*own[:before], *options, *own[before:]])
    vars(function)["__signature__"] = whole
