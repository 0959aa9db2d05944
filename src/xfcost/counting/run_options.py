"""What callers and options ask of a spec, read and checked: numbers of tokens, image sizes, bytes, a mode."""

from __future__ import annotations

import re
from typing import Any, get_args

from xfcost.counting.plan import make_plan
from xfcost.formulas.component import Logits
from xfcost.ledger.errors import UsageError, nearest, shown
from xfcost.ledger.quantities import PREFIXES_TEXT, whole, whole_number, whole_numbers
from xfcost.ledger.units import BYTES_PER_ELEMENT, DTYPE_NAMES
from xfcost.spec.architecture import PROMPTED, Execution, Mode
from xfcost.spec.walk import Run

MOST_BATCH = 2**24
MOST_NEW = 2**31
MOST_SIDE = 2**16
# A tebibyte: no chip holds it.
MOST_ON_CHIP = 2**40


def make_run(  # noqa: PLR0913 - the options of the commands
    *,
    N: Any = None,
    size: Any = None,
    batch: int | str = 1,
    dtype: str = "float32",
    attention: str = "eager",
    memory_level: Any = None,
    mode: str = "forward",
    new_tokens: Any = None,
    logits: Any = None,
    **training: Any,
) -> Run:
    """The checked run: N (one number or one per stream) or the image's size, a batch, a dtype, an execution, a mode.

    `logits` is of the modes that take in a prompt: the positions whose logits are computed.

    `training` is what `make_plan` takes: an optimizer, and the whole run's tokens, rate and devices.

    Raises:
        UsageError: any of them can't be.
    """
    given = str(dtype).removeprefix("torch.")
    name = DTYPE_NAMES.get(given, given)
    if name not in BYTES_PER_ELEMENT:
        raise UsageError(f"--dtype {shown(dtype)}: {nearest(str(dtype), [*BYTES_PER_ELEMENT, *DTYPE_NAMES])}")
    if attention not in get_args(Execution):
        raise UsageError(f"--attention {shown(attention)}: expected eager or fused")
    if mode not in get_args(Mode):
        raise UsageError(f"--mode {shown(mode)}: {nearest(str(mode), get_args(Mode))}")
    samples = whole_number("--batch", batch, least=1, most=MOST_BATCH, example="8")
    level = None if memory_level is None else byte_number(memory_level)
    if N is not None and size is not None:
        raise UsageError("--N and --size: both say how large the input is; give one of them")
    sizes = (token_numbers(N), image_size(size))
    written = new_tokens_number(new_tokens, mode)
    how: dict[str, Any] = {"memory_level": level, "mode": mode, "new_tokens": written}
    how["logits"] = logits_positions(logits, mode)
    return Run(*sizes, samples, name, attention, **how, plan=make_plan(mode, **training))  # type: ignore[arg-type]


def new_tokens_number(given: Any, mode: str) -> int:
    """m of `--mode generate`, which needs one; 1 in other modes, which have none.

    Raises:
        UsageError: it is missing, or there where it says nothing, or no number.
    """
    if mode != "generate":
        if given is not None:
            raise UsageError(
                f"--new-tokens {shown(given)}: only --mode generate writes; add it, or leave --new-tokens out"
            )
        return 1
    if given is None:
        raise UsageError(f"--new-tokens is missing: expected how many tokens to generate, 1 to {MOST_NEW}")
    what = "how many tokens to generate,"
    return whole_number("--new-tokens", given, least=1, most=MOST_NEW, example="256", what=what)


def logits_positions(given: Any, mode: str) -> Logits | None:
    """`last` or `all`, in the modes that take in a prompt; None where nothing is asked.

    Raises:
        UsageError: it is neither, or the mode leaves no choice.
    """
    if given is None:
        return None
    if given not in get_args(Logits):
        raise UsageError(f"--logits {shown(given)}: expected last or all")
    if mode not in PROMPTED:
        raise UsageError(
            f"--logits {given}: it is of {' and '.join(f'--mode {name}' for name in PROMPTED)}; forward and train "
            "compute the logits of all positions, decode those of its one token"
        )
    return given  # type: ignore[no-any-return]


def image_size(given: Any) -> tuple[int, int] | None:
    """384, "384", "224x320" or (224, 320) -> (height, width); None stays None.

    Raises:
        UsageError: it is none of these.
    """
    if given is None:
        return None
    sides = whole_numbers(given, separators="x×,")
    if len(sides) not in (1, 2) or not all(1 <= side <= MOST_SIDE for side in sides):
        raise UsageError(
            f"--size {shown(given)}: expected the image's side in pixels, or its height and width, from 1 to "
            f"{MOST_SIDE}; as in --size 384 or --size 224x320"
        )
    return sides[0], sides[-1]


def byte_number(given: Any) -> int:
    """100000, "100000", "192KiB" or "100 KB" -> bytes.

    Raises:
        UsageError: it is none of these.
    """
    plain = re.sub(r"\s*B\s*$", "", given, flags=re.IGNORECASE) if isinstance(given, str) else given
    number = whole(plain)
    if number is None or not 1 <= number <= MOST_ON_CHIP:
        raise UsageError(
            f"--memory-level {shown(given)}: expected a number of bytes from 1 to {MOST_ON_CHIP}, "
            "as in --memory-level 192KiB"
        )
    return number


def token_numbers(N: Any) -> tuple[int, ...] | None:
    """784, "784", "131,072", "128k", "512,128" or (512, 128) -> a tuple; None stays None.

    Raises:
        UsageError: it is none of these.
    """
    if N is None:
        return None
    numbers = whole_numbers(N)
    if not numbers:
        raise UsageError(
            f"--N {shown(N)}: expected a whole number of tokens, as in --N 784 (or --N source,target; {PREFIXES_TEXT})"
        )
    return numbers
