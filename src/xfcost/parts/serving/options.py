"""The options of `--on`: devices, what is stored in how many bits, who shares the model, the price."""

# Annotations are evaluated here: the options are read out of them.
from collections.abc import Mapping
from typing import Annotated, Final, TypedDict, get_args

from xfcost.ledger import option_readers as read
from xfcost.ledger.budgets import time_limit
from xfcost.ledger.execution import MOST_DEVICES, Convention
from xfcost.ledger.option import Option, Real, Whole, choice
from xfcost.ledger.quantization import CACHE_FORMATS, UNQUANTISED, WEIGHT_FORMATS

# Drafts of speculative decoding that are no model of their own: layers of the target's sizes, and a look-up.
DRAFT_HEADS: Final = ("mtp", "eagle", "medusa")
NO_DRAFT_MODEL: Final = "ngram"
MOST_DRAFTED: Final = 64
# The host of `--offload` where none is given: a desktop with two channels of DDR5.
USUAL_HOST: Final = "ryzen-9950x"
MOST_PREFIX: Final = 2**31
_DEGREE: Final = read.integer(MOST_DEVICES, "8", prefixed=False)
On = Annotated[
    str | None,
    Option(
        "Compute from datasheets if the run fits on such devices (h100-sxmx8), and a lower bound of its time. "
        "`xfcost devices` lists names.",
        "DEVICE[xN]",
        python="Or a `Device` or `DeviceGroup`; `analyze` takes a list of them.",
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
    flops: Annotated[
        Convention | None,
        choice(
            "With --mode train: model FLOPs that the MFU counts: of all pairs (dense, the default), of those that "
            "masks keep, or 6·P·D.",
            get_args(Convention),
        ),
    ]
    mbu: Annotated[
        Real,
        Option(
            "With --on: share of the memory bandwidth reached (as in 60%).",
            "SHARE",
            read.share("of the memory's bandwidth", "0.6", "60%"),
        ),
    ]
    weights: Annotated[
        str | None,
        Option(
            "Quantise linear layers and experts. Default: as the checkpoint is published.",
            read=read.weights_format((*WEIGHT_FORMATS, UNQUANTISED)),
            words=(*WEIGHT_FORMATS, UNQUANTISED),
            flag="--weights-dtype",
        ),
    ]
    cache: Annotated[
        str | None,
        choice(
            "Quantise keys and values. Default: as the checkpoint is published.",
            (*CACHE_FORMATS, UNQUANTISED),
            flag="--cache-dtype",
        ),
    ]
    memory_share: Annotated[
        Real,
        Option(
            "With --on: share of each device's memory that the run may use (as in 90%).",
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
            "With --offload: the host's memory (as in 64GiB).",
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
            "With --tokens and --mfu: peak of one device (as in 312T), to compute days.",
            "FLOP/S",
            read.flops_per_second("312T"),
        ),
    ]
    sustained: Annotated[
        Real,
        Option(
            "Sustained rate of one device (as in 125T), instead of --peak and --mfu.",
            "FLOP/S",
            read.flops_per_second("125T"),
        ),
    ]
    devices: Annotated[
        Whole,
        Option(
            "Number of devices: of --on (as in h100-sxmx8), or of a training run with --peak or --sustained.",
            "INT",
            read.integer(MOST_DEVICES, "8", floats=True, prefixed=False),
        ),
    ]


class PrefixOption(TypedDict, total=False):
    """Devices and plan."""

    cached_prefix: Annotated[
        Whole,
        Option(
            "In prefill and generate: first tokens of the prompt whose cache is there already (as in 6k).",
            "INT",
            read.integer(MOST_PREFIX, "6k", what="how many first tokens of the prompt are cached,"),
            python="The prefill computes the other tokens, which read the whole cache.",
        ),
    ]


class StepTimeOption(TypedDict, total=False):
    """Devices and plan."""

    step_time: Annotated[
        Real,
        Option(
            "Measured time of the run or training step (as in 210ms): its MFU with --on, or of training with --peak.",
            "TIME",
            time_limit,
            python="Or seconds.",
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
        Real, Option("With --on: find the largest batch with this rate per sample (as in 30).", "RATE", read.rate)
    ]


class DraftOptions(TypedDict, total=False):
    """Devices and plan."""

    draft: Annotated[
        str | None,
        Option(
            "In decode and generate: speculative decoding with a draft model (any SPEC), mtp, eagle, medusa or ngram.",
            "SPEC",
            python="`mtp`, `eagle` and `medusa` are layers of the target's sizes, `ngram` looks tokens up.",
        ),
    ]
    draft_tokens: Annotated[
        Whole,
        Option(
            "With --draft: tokens drafted per round (default: 5; mtp: 1).",
            "INT",
            read.integer(MOST_DRAFTED, "5", prefixed=False),
            python="The target verifies one more token in a pass.",
        ),
    ]
    accepted: Annotated[
        Real,
        Option(
            "With --draft: drafted tokens accepted per round, on average (as in 3.2).",
            "TOKENS",
            read.accepted,
            python="vLLM's mean acceptance length and SGLang's accept length are one more.",
        ),
    ]
    acceptance: Annotated[
        Real,
        Option(
            "With --draft: probability that a drafted token is accepted (as in 80%), instead of --accepted.",
            "RATE",
            read.share("of the drafted tokens", "0.8", "80%"),
            python="Of tokens one after the other: α + α² + … + α^k are accepted (Leviathan et al. 2023, equation 1).",
        ),
    ]
