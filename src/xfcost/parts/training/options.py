"""The options of `--mode train`."""

# Annotations are evaluated here: the options are read out of them.
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Final, TypedDict

from xfcost.formulas.optimizers import OPTIMIZERS
from xfcost.ledger import option_readers as read
from xfcost.ledger.errors import UsageError, shown
from xfcost.ledger.execution import CHECKPOINTS
from xfcost.ledger.lora import ALL, USUAL
from xfcost.ledger.option import Option, Real, Whole
from xfcost.ledger.read_numbers import whole_number

# Numbers above these are typing errors.
_MOST_TOKENS: Final = 10**18
_MOST_RANK: Final = 2**16


def map_names(option: str, given: Any) -> tuple[str, ...]:
    """`q,v`, `all-linear` or ["q_proj", "v_proj"] -> the names; by default those of q and v.

    Raises:
        UsageError: there is none, or one is no name.
    """
    if given is None:
        return USUAL
    names = [one.strip() for one in (given.split(",") if isinstance(given, str) else map(str, given))]
    if not names or not all(name.replace("-", "_").replace(".", "_").isidentifier() for name in names):
        raise UsageError(f"{option} {shown(given)}: expected names of linear maps, as in q,v, or attention, mlp or all")
    return tuple(ALL if name in ("all-linear", "all_linear") else name for name in names)


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
            "Tokens of the whole training run (as in 300e9, 300B).",
            "NUMBER",
            read.integer(_MOST_TOKENS, "300e9", floats=True),
        ),
    ]
    lora: Annotated[
        Whole,
        Option(
            "Freeze the weights and add LoRA adapters of this rank (as in 8); in other modes they run unmerged.",
            "RANK",
            read.integer(_MOST_RANK, "8"),
        ),
    ]
    lora_on: Annotated[
        Sequence[str] | str | None,
        Option(
            "Linear maps with adapters: q,v (the default), attention, mlp, all, or names (q_proj,down_proj).",
            "NAMES",
            map_names,
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
            "Recompute attention matrices (selective) or whole blocks (full); of a torch module its repeated blocks "
            "(full) or modules by path (blocks.*).",
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
            "With --on: tokens per step (as in 1M); --batch is the micro-batch.",
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
