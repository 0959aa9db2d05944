"""The options of `--mode train`."""

# Annotations are evaluated here: the options are read out of them.
from functools import partial
from typing import Annotated, Final, TypedDict

from xfcost.formulas.optimizers import OPTIMIZERS
from xfcost.ledger import option_readers as read
from xfcost.ledger.execution import CHECKPOINTS
from xfcost.ledger.option import Option, Real, Whole
from xfcost.ledger.read_numbers import whole_number

# A number above this is a typing error.
_MOST_TOKENS: Final = 10**18


class TrainingOptions(TypedDict, total=False):
    """Training, with --mode train."""

    optimizer: Annotated[
        str | None,
        Option(
            "Default: adamw.",
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
        str | None,
        Option(
            "Recompute attention matrices (selective) or whole blocks (full), with --on; of a torch module, also "
            "without, its repeated blocks (full) or modules by path (blocks.*).",
            "none|selective|full|PATHS",
            read.recomputed,
            flag="--recompute",
            words=CHECKPOINTS,
        ),
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
