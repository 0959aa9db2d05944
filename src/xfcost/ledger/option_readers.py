"""Readers of options: the option's flag, for messages, and a text or a number -> the checked value, or a UsageError."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from fractions import Fraction
from typing import Any, Final

from xfcost.ledger.cache_blocks import CacheBlocks
from xfcost.ledger.errors import UsageError, any_of, nearest, shown
from xfcost.ledger.execution import CHECKPOINTS
from xfcost.ledger.quantization import WEIGHT_FORMATS
from xfcost.ledger.read_numbers import PREFIXES_TEXT, read_number, real_number, whole, whole_number, whole_numbers
from xfcost.ledger.units import BYTES_PER_ELEMENT, DTYPE_NAMES, stored_in

# Numbers above these are typing errors; no chip holds a tebibyte.
_MOST_SIDE: Final = 2**16
_MOST_ON_CHIP: Final = 2**40
_LEAST_MEMORY: Final = 10**8
_MOST_MEMORY: Final = 10**15
_MOST_RATE: Final = 10**24  # FLOP/s
_MOST_SECONDS: Final = 10**7
_MOST_JOBS: Final = 1000
_MOST_BLOCK: Final = 2**20
_MOST_ELEMENTS: Final = 10**15
_FEW_WORDS: Final = 4
# Names of modules, with `*`, `?` and `[0-3]` for several.
_PATHS: Final = re.compile(r"[\w.*?,\[\]-]+")
_LEAST_PRICE: Final = 1e-6
_MOST_PRICE: Final = 1e9
# Shares of a peak below this are, too, and an estimate of seconds might be no number.
_LEAST_SHARE: Final = Fraction(1, 10**6)
_MOST_INCREASE: Final = 10


def token_numbers(option: str, given: Any) -> tuple[int, ...]:
    """784, "784", "131,072", "128k", "512,128" or (512, 128) -> a tuple.

    Raises:
        UsageError: it is none of these.
    """
    numbers = whole_numbers(given)
    if not numbers:
        raise UsageError(
            f"{option} {shown(given)}: expected a whole number of tokens, as in {option} 784 (or {option} "
            f"source,target; {PREFIXES_TEXT}){_over_a_range(option, given)}"
        )
    return numbers


def image_size(option: str, given: Any) -> tuple[int, int]:
    """384, "384", "224x320" or (224, 320) -> (height, width).

    Raises:
        UsageError: it is none of these.
    """
    sides = whole_numbers(given, separators="x×,")
    if len(sides) not in (1, 2) or not all(1 <= side <= _MOST_SIDE for side in sides):
        raise UsageError(
            f"{option} {shown(given)}: expected the image's side in pixels, or its height and width, from 1 to "
            f"{_MOST_SIDE}; as in {option} 384 or {option} 224x320{_over_a_range(option, given)}"
        )
    return sides[0], sides[-1]


def _over_a_range(option: str, given: Any) -> str:
    """What takes `1k:16k`."""
    return f"; over a range: `xfcost plot SPEC {option} {given} --metric macs`" if ":" in str(given) else ""


def byte_number(option: str, given: Any) -> int:
    """100000, "100000", "192KiB" or "100 KB" -> bytes.

    Raises:
        UsageError: it is none of these.
    """
    number = _bytes(given)
    if number is None or not 1 <= number <= _MOST_ON_CHIP:
        raise UsageError(
            f"{option} {shown(given)}: expected a number of bytes from 1 to {_MOST_ON_CHIP}, as in {option} 192KiB"
        )
    return number


def host_memory(option: str, given: Any) -> int:
    """68719476736, "64GiB" or "64 GB" -> bytes.

    Raises:
        UsageError: it is none of these.
    """
    number = _bytes(given)
    if number is None or not _LEAST_MEMORY <= number <= _MOST_MEMORY:
        raise UsageError(f"{option} {shown(given)}: expected bytes of memory from 100 MB to 1 PB, as in {option} 64GiB")
    return number


def _bytes(given: Any) -> int | None:
    """A number with or without the unit; None of anything else."""
    return whole(re.sub(r"\s*B\s*$", "", given, flags=re.IGNORECASE) if isinstance(given, str) else given)


def dtype_name(option: str, given: Any, *, stored: bool = False) -> str:
    """`float32`, `fp32` or torch.float32 -> `float32`; `stored`: one in which tensors are stored.

    Raises:
        UsageError: no such dtype is counted.
    """
    text = shown(given).removeprefix("torch.")
    name = DTYPE_NAMES.get(text, text)
    known = [one for one in BYTES_PER_ELEMENT if not stored or stored_in(one) == one]
    if name not in known:
        stored_as = next((one for one in WEIGHT_FORMATS if one in text.lower()), None)
        mend = f"; for weights in it: --weights-dtype {stored_as}" if stored_as and not stored else ""
        raise UsageError(f"{option} {shown(given)}: {nearest(text, [*known, *DTYPE_NAMES])}{mend}")
    return name


def one_of(words: Collection[str]) -> Callable[[str, Any], str]:
    """A reader of one of several words: the message has all of a few, or else the nearest."""

    def read(option: str, given: Any) -> str:
        if given not in words:
            few = len(words) <= _FEW_WORDS
            mend = f"expected {any_of([*words])}" if few else nearest(shown(given), words)
            raise UsageError(f"{option} {shown(given)}: {mend}")
        return str(given)

    return read


def named_by(given: str, names: Iterable[str]) -> list[str]:
    """The names that have all words of `given` (`memory`: `attention-memory`); of one that it is, that alone."""

    def words(text: str) -> list[str]:
        return re.findall(r"[^\W_]+", text.lower())

    names, wanted = list(names), words(given)
    exact = [name for name in names if words(name) == wanted]
    return exact or [name for name in names if wanted and {*wanted} <= {*words(name)}]


# Formats as engines and quantisers call them.
_FORMATS: Final = {
    **dict.fromkeys(("awq", "gptq", "w4a16", "4bit", "4-bit"), "int4"),
    **dict.fromkeys(("w8a8", "8bit", "8-bit", "llm.int8"), "int8"),
    **dict.fromkeys(("float8", "fp8_e4m3", "fp8_e5m2", "fp8-e4m3"), "fp8"),
    **dict.fromkeys(("bnb-nf4", "bnb", "qlora"), "nf4"),
}
# The words of --weights-dtype.
WEIGHT_WORDS: Final = {*WEIGHT_FORMATS, *_FORMATS}
_GGUF: Final = re.compile(r"i?q[2-8]_", re.IGNORECASE)


def weights_format(words: Collection[str]) -> Callable[[str, Any], str]:
    """A reader of a format of weights: one of `words`, or another name of it."""
    read_word = one_of(words)

    def read(option: str, given: Any) -> str:
        text = str(given).lower()
        if text in DTYPE_NAMES or text in BYTES_PER_ELEMENT:
            raise UsageError(f"{option} {shown(given)}: for weights in the run's dtype: --dtype {text} {option} none")
        if _GGUF.match(text):
            raise UsageError(
                f"{option} {shown(given)}: a GGUF file has a format for each tensor: `xfcost analyze x.gguf`; "
                f"the nearest here: {option} {'int8' if text[1] == '8' else 'int4'}"
            )
        return read_word(option, _FORMATS.get(text, text if text in words else given))

    return read


def recomputed(option: str, given: Any) -> str:
    """One of `CHECKPOINTS`, or paths of modules with commas between them: `blocks.*,head`.

    Raises:
        UsageError: it is neither.
    """
    text = shown(given)
    if given not in CHECKPOINTS and not _PATHS.fullmatch(text):
        raise UsageError(
            f"{option} {text}: expected {any_of(CHECKPOINTS)}, or paths of a torch module's parts, as in {option} "
            "'blocks.*'"
        )
    return text


def integer(
    most: int, example: str, what: str = "a whole number", *, floats: bool = False, prefixed: bool = True
) -> Callable[[str, Any], int]:
    """A reader of a whole number from 1 to `most`; `floats` takes 3e11 from Python too, `prefixed` explains 128k."""
    return lambda option, given: whole_number(
        option, given, least=1, most=most, example=example, what=what, floats=floats, prefixed=prefixed
    )


def flops_per_second(example: str) -> Callable[[str, Any], float]:
    """A reader of 312e12, `312T` or `312 TFLOP/s`."""

    def read(option: str, given: Any) -> float:
        text = given
        for unit in ("FLOP/S", "FLOPS", "FLOP"):
            if isinstance(text, str) and text.strip().upper().endswith(unit):
                text = text.strip()[: -len(unit)]
                break
        return real_number(option, text, least=1, most=_MOST_RATE, example=example)

    return read


def share(whole: str, example: str, percent: str) -> Callable[[str, Any], float]:
    """A reader of 0.4, `0.4` or `40%`, a share from 10⁻⁶ to 1.

    The `whole` that it is of, the `example` and the one in `percent` are for the message.
    """

    def read(option: str, given: Any) -> float:
        value = _fraction(given)
        if value is None or not _LEAST_SHARE <= value <= 1:
            raise UsageError(
                f"{option} {shown(given)}: expected a share {whole} from 0.000001 to 1, as in {option} {example} or "
                f"{option} {percent}"
            )
        return float(value)

    return read


def _fraction(given: Any) -> Fraction | None:
    """0.4, `0.4` or `40%`, exactly; None of anything else."""
    text = str(given).strip()
    try:
        value = None if isinstance(given, bool) else read_number(text.removesuffix("%"))
    except ValueError:
        return None
    return value / 100 if value is not None and text.endswith("%") else value


def increase(option: str, given: Any) -> Fraction:
    """`2%`, `0.02` or 0.02, exactly; from 0, nothing may grow, to 1000 %.

    Raises:
        UsageError: it is none of these.
    """
    value = _fraction(given)
    if value is None or not 0 <= value <= _MOST_INCREASE or (value >= 1 and not str(given).strip().endswith("%")):
        raise UsageError(f"{option} {shown(given)}: expected a share, as in {option} 2% or {option} 0.02")
    return value


def shares(whole: str, example: str, percent: str) -> Callable[[str, Any], tuple[float, ...]]:
    """A reader of a share, as `share`, or of the two ends of a range, `35%:50%`, the lower end first."""
    single = share(whole, example, percent)

    def read(option: str, given: Any) -> tuple[float, ...]:
        parts = given.split(":") if isinstance(given, str) else given if isinstance(given, list | tuple) else [given]
        if len(parts) not in (1, 2) or (len(parts) > 1 and not all(str(part).strip() for part in parts)):
            raise UsageError(
                f"{option} {shown(given)}: expected one share or a range of two, as in {option} {percent} or "
                f"{option} 35%:50%"
            )
        ends = tuple(single(option, part) for part in parts)
        if ends[0] > ends[-1]:
            low, high = parts[::-1]
            raise UsageError(
                f"{option} {shown(given)}: expected the lower end of a range first, as in {option} {low}:{high}"
            )
        return ends[:1] if ends[0] == ends[-1] else ends

    return read


def prices(option: str, given: Any) -> float | dict[str, float]:
    """2.5, `2.5`, `h100-sxm=2.5,l40s=0.8` or {"h100-sxm": 2.5} -> one price for all, or the prices of some devices.

    Raises:
        UsageError: it is none of these.
    """
    if isinstance(given, str) and "=" not in given:
        given = real_number(option, given, least=_LEAST_PRICE, most=_MOST_PRICE, example="2.5")
    if isinstance(given, int | float) and not isinstance(given, bool):
        return real_number(option, given, least=_LEAST_PRICE, most=_MOST_PRICE, example="2.5")
    pairs = given.items() if isinstance(given, Mapping) else [one.partition("=")[::2] for one in str(given).split(",")]
    pairs = [(str(name).strip(), price) for name, price in pairs]
    found = dict(pairs)
    if twice := [name for place, (name, _) in enumerate(pairs) if name in dict(pairs[:place])]:
        raise UsageError(f"{option} {shown(given)}: {twice[0]} has two prices; expected one")
    if isinstance(given, bool) or not all(name and price for name, price in found.items()):
        raise UsageError(
            f"{option} {shown(given)}: expected the price per hour of a device, as in {option} 2.5 or {option} "
            "h100-sxm=2.5,l40s=0.8"
        )
    return {
        name: real_number(f"{option} {name} =", price, least=_LEAST_PRICE, most=_MOST_PRICE, example="2.5")
        for name, price in found.items()
    }


def cache_blocks(option: str, given: Any) -> CacheBlocks:
    """16, `16` or `16,whole` -> the blocks.

    Raises:
        UsageError: it is none of these.
    """
    if isinstance(given, CacheBlocks):
        return given
    whole = re.search(r",\s*whole\s*$", given, re.IGNORECASE) if isinstance(given, str) else None
    try:
        tokens = whole_number(
            option, given[: whole.start()] if whole else given, least=1, most=_MOST_BLOCK, example="16"
        )
    except UsageError:
        raise UsageError(
            f"{option} {shown(given)}: expected the tokens of a block, from 1 to {_MOST_BLOCK:,}, as in {option} 16; "
            f"or {option} 16,whole, where layers with windows take blocks for the full context"
        ) from None
    return CacheBlocks(tokens=tokens, whole=whole is not None)


def rate(option: str, given: Any) -> float:
    """30, `30` or `2.5` -> tokens per second.

    Raises:
        UsageError: it is none of these.
    """
    return real_number(option, given, least=1e-6, most=1e9, example="30")


def accepted(option: str, given: Any) -> float:
    """3, `3.2` or 0 -> drafted tokens that are accepted, on average.

    Raises:
        UsageError: it is none of these.
    """
    value = _fraction(given)
    if value is None or not 0 <= value <= _MOST_SIDE:
        raise UsageError(
            f"{option} {shown(given)}: expected how many drafted tokens are accepted on average, as in {option} 3.2"
        )
    return float(value)


def seconds(option: str, given: Any) -> float:
    """30, `30` or `30s` -> seconds.

    Raises:
        UsageError: it is none of these.
    """
    text = given.strip().removesuffix("s") if isinstance(given, str) else given
    return real_number(option, text, least=1e-3, most=_MOST_SECONDS, example="30")


def jobs(given: Any, scheduler: str | None) -> int:
    """How many processes work at once; on a cluster its workers do.

    Raises:
        UsageError: it is no such number, or a cluster is given too.
    """
    number = whole_number("--jobs", given, least=1, most=_MOST_JOBS, example="4")
    if scheduler is not None and number > 1:
        raise UsageError("--jobs and --scheduler: the workers of a cluster already run in parallel; leave out --jobs")
    return number


def threads(option: str, given: Any) -> int:
    """As many threads as the machine has cores, or fewer.

    Raises:
        UsageError: it is no such number.
    """
    most = os.cpu_count() or 1
    return whole_number(option, given, least=1, most=most, example="1", what="a number of threads")


def mixing_limit(option: str, given: Any) -> int:
    """`400M`, 0 or 1e9 -> elements of tensors.

    Raises:
        UsageError: it is no such number.
    """
    return whole_number(
        option, given, least=0, most=_MOST_ELEMENTS, example="2G", what="a number of tensor elements", floats=True
    )
