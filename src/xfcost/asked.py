"""What callers and options ask of a spec, read and checked: numbers of tokens, image sizes, bytes, a mode."""

from __future__ import annotations

import re
from collections.abc import Iterable
from operator import index
from typing import Any, get_args

from xfcost.errors import UsageError, nearest
from xfcost.mechanisms.base import Logits
from xfcost.plan import make_plan
from xfcost.spec.architecture import PROMPTED, Execution, Mode
from xfcost.spec.walk import Run
from xfcost.units import BYTES_PER_ELEMENT, DTYPE_NAMES

MOST_BATCH = 2**24
MOST_NEW = 2**31
MOST_SIDE = 2**16


def make_run(  # noqa: PLR0913 - the options of the commands
    *,
    N: Any = None,
    size: Any = None,
    batch: int = 1,
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
        raise UsageError(f"--dtype {dtype}: {nearest(str(dtype), [*BYTES_PER_ELEMENT, *DTYPE_NAMES])}")
    if attention not in get_args(Execution):
        raise UsageError(f"--attention {attention}: expected eager or fused")
    if mode not in get_args(Mode):
        raise UsageError(f"--mode {mode}: {nearest(str(mode), get_args(Mode))}")
    try:
        samples = _whole(batch)
    except TypeError:
        samples = 0
    if not 1 <= samples <= MOST_BATCH:
        raise UsageError(f"--batch {batch}: expected a whole number from 1 to {MOST_BATCH}")
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
            raise UsageError(f"--new-tokens {given}: only --mode generate writes; add it, or leave --new-tokens out")
        return 1
    try:
        number = int(given) if isinstance(given, str) else _whole(given)
    except (TypeError, ValueError):
        number = 0
    if not 1 <= number <= MOST_NEW:
        got = "is missing" if given is None else f"{given}"
        raise UsageError(f"--new-tokens {got}: expected how many tokens to generate, 1 to {MOST_NEW}")
    return number


def logits_positions(given: Any, mode: str) -> Logits | None:
    """`last` or `all`, in the modes that take in a prompt; None where nothing is asked.

    Raises:
        UsageError: it is neither, or the mode leaves no choice.
    """
    if given is None:
        return None
    if given not in get_args(Logits):
        raise UsageError(f"--logits {given}: expected last or all")
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
    parts = re.split(r"[x×,]", given) if isinstance(given, str) else given if isinstance(given, Iterable) else [given]
    try:
        sides = tuple(int(part) if isinstance(part, str) else _whole(part) for part in parts)
    except (TypeError, ValueError):
        sides = ()
    if len(sides) not in (1, 2) or not all(1 <= side <= MOST_SIDE for side in sides):
        raise UsageError(
            f"--size {given}: expected the image's side in pixels, or its height and width, from 1 to {MOST_SIDE}; "
            "as in --size 384 or --size 224x320"
        )
    return sides[0], sides[-1]


def byte_number(given: Any) -> int:
    """100000, "100000", "192KiB" or "100 KB" -> bytes.

    Raises:
        UsageError: it is none of these.
    """
    found = re.fullmatch(r"\s*(\d{1,18})\s*([KMG]?i?B?)\s*", str(given), re.IGNORECASE)
    unit = found[2].upper().removesuffix("B") if found else "?"
    scale = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}.get(unit)
    if found is None or scale is None or not int(found[1]) or isinstance(given, bool):
        raise UsageError(f"--memory-level {given}: expected a number of bytes, as in --memory-level 192KiB")
    return int(found[1]) * scale


def token_numbers(N: Any) -> tuple[int, ...] | None:
    """784, "784", "512,128" or (512, 128) -> a tuple; None stays None.

    Raises:
        UsageError: it is none of these.
    """
    if N is None:
        return None
    try:
        if isinstance(N, str):
            N = [int(part) for part in N.split(",")]
        numbers = tuple(_whole(part) for part in N) if isinstance(N, Iterable) else (_whole(N),)
    except (TypeError, ValueError):
        numbers = ()
    if not numbers:
        raise UsageError(f"--N {N}: expected a whole number of tokens, as in --N 784 (or --N source,target)")
    return numbers


def _whole(value: Any) -> int:
    """A Python or numpy integer, but no boolean and no float."""
    if isinstance(value, bool):
        raise TypeError
    return index(value)
