"""What a plot or a measurement is over: a range of N, or of the sides of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from xfcost.ledger.errors import UsageError, printable
from xfcost.ledger.grid import MOST_TOKENS
from xfcost.ledger.read_numbers import whole

if TYPE_CHECKING:
    from xfcost.comparing.sweep import SizeAxis

DEFAULT_RANGE: Final = "49:12544"
DEFAULT_SIZES: Final = "224:1024"
MOST_SIDE: Final = 2**16
MARK: Final = 784


def axis_of(tokens: str | None, sizes: str | None, *, option: str = "--N") -> tuple[SizeAxis, tuple[int, int]]:
    """What is swept over, and from where to where; by default over as much of N = 49 … 12,544 as all systems can have.

    `option` is the one that gave the range of N.

    Raises:
        UsageError: both are given, or the range is none.
    """
    from xfcost.comparing.sweep import PIXELS, TOKENS

    if sizes is None:
        return TOKENS, _range(DEFAULT_RANGE if tokens is None else tokens, option, MOST_TOKENS, DEFAULT_RANGE)
    if tokens is not None:
        raise UsageError("--N and --size: a plot has one of these axes; give one of them")
    return PIXELS, _range(sizes, "--size", MOST_SIDE, DEFAULT_SIZES)


def measured_axis(tokens: Any, sizes: Any) -> tuple[SizeAxis, tuple[int, int]]:
    """What is measured over, and from where to where: the text of a range, or one number.

    Raises:
        UsageError: neither is given, or both are, or it is no range.
    """
    tokens, sizes = (one if one is None else str(one) for one in (tokens, sizes))
    given, option = (tokens, "--N") if sizes is None else (sizes, "--size")
    if given is None:
        raise UsageError("measure: expected a range of sizes, as in --N 64:16384 or --size 96:512")
    if ":" in given or listed_sizes(given) or (tokens is not None and sizes is not None):
        return axis_of(tokens, sizes)
    one, most = whole(given), MOST_TOKENS if sizes is None else MOST_SIDE
    if one is None or not 1 <= one <= most:
        example = DEFAULT_RANGE if sizes is None else DEFAULT_SIZES
        raise UsageError(
            f"{option} {printable(given)}: expected one whole number, {_forms(given, option, most, example)}"
        )
    return axis_of(None, sizes and DEFAULT_SIZES)[0], (one, one)


def listed_sizes(given: Any) -> tuple[int, ...]:
    """`196,784,3136` -> its numbers, ascending; () of anything else."""
    numbers = [whole(one) for one in str(given).split(",")]
    known = sorted({one for one in numbers if one is not None})
    return tuple(known) if len(known) > 1 and None not in numbers else ()


def marked(given: str | None, axis: SizeAxis, span: tuple[int, int], listed: Sequence[int] = ()) -> int | None:
    """The place of the dotted line: the given one, otherwise N = 784 if that is in the range, or is `listed`.

    Raises:
        UsageError: it is outside the range, or none of those that are listed.
    """
    if given is None:
        drawn = MARK in listed if listed else span[0] <= MARK <= span[1]
        return MARK if axis.option == "--N" and drawn else None
    mark = whole(given)
    if listed and mark not in listed:
        raise UsageError(f"--mark {printable(given)}: expected one of the listed {axis.option[2:]}, as in {listed[0]}")
    if mark is None or not span[0] <= mark <= span[1]:
        shown = printable(given)
        raise UsageError(f"--mark {shown}: is outside the range; expected {axis.word} from {span[0]} to {span[1]}")
    return mark


def _range(text: str, option: str, most: int, example: str) -> tuple[int, int]:
    """`49:12544` -> (49, 12544); of several numbers, `196,784`, from the least to the largest.

    Raises:
        UsageError: it is no range of at least two numbers from 1 to `most`.
    """
    listed = listed_sizes(text)
    ends: list[int | None] = [min(listed), max(listed)] if listed else [whole(end) for end in text.split(":")]
    low, high = ends if len(ends) == 2 else (None, None)  # noqa: PLR2004 - LOW and HIGH
    if low is None or high is None or min(low, high) < 0:
        raise UsageError(f"{option} {printable(text)}: expected {_forms(text, option, most, example)}")
    if low < 1:
        below = f"{option} 1:{max(high, 2)}"
        raise UsageError(
            f"{option} {text}: expected LOW to be at least 1, because the axis is logarithmic, as in {below}"
        )
    if low > high:
        raise UsageError(f"{option} {text}: LOW is above HIGH; exchange them: {option} {high}:{low}")
    if low == high:
        below = f"{option} {example}"
        raise UsageError(f"{option} {text}: expected LOW below HIGH, as in {below}")
    if high > most:
        raise UsageError(f"{option} {text}: expected HIGH to be at most {most}")
    return low, high


def _forms(text: str, option: str, most: int, example: str) -> str:
    """A range and a list as they are written, with the one number that was given where it can be their first."""
    one, (low, high) = whole(text), example.split(":")
    times = 2 if option == "--size" else 4
    alone = one is not None and 1 <= one <= most // times
    low, high = (str(one), str(times * (one or 0))) if alone else (low, high)
    limit = "" if alone else f" (whole numbers of at most {most:,})"
    several = "" if option == "--range" else f", or each {option[2:]}, as in {option} {low},{high}"
    mark = f"; a dotted line at one N: --mark {one}" if alone and option == "--N" else ""
    return f"a range LOW:HIGH, as in {option} {low}:{high}{several}{limit}{mark}"
