"""The Python face of the commands: the same ledgers, without a terminal."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from operator import index
from typing import TYPE_CHECKING, Any, get_args

from xfcost.comparison import Comparison, compared
from xfcost.counted import count, with_rebuilt
from xfcost.errors import UsageError, nearest
from xfcost.ledger import Ledger
from xfcost.spec.architecture import Execution
from xfcost.spec.load import Loaded, expanded, load
from xfcost.spec.walk import Run, place
from xfcost.units import BYTES_PER_ELEMENT, DTYPE_NAMES

if TYPE_CHECKING:
    import torch

    from xfcost.live.trace import Traced

Progress = Callable[[str], None]
MOST_BATCH = 2**24
MOST_SIDE = 2**16


def analyze(  # noqa: PLR0913 - the options of the command
    spec: str | os.PathLike[str],
    *,
    N: int | str | Sequence[int] | None = None,
    size: int | str | Sequence[int] | None = None,
    batch: int = 1,
    dtype: str = "float32",
    attention: Execution = "eager",
    memory_level: int | str | None = None,
    settings: Sequence[str] | None = (),
    trace: bool = True,
    device: str | None = None,
    progress: Progress | None = None,
) -> Ledger:
    """Count `spec` in closed form; trace the real model and join the two accounts; with `device`, time it too.

    Args:
        spec: a preset's name or a path to a YAML file.
        N: tokens of the first stage (for an encoder-decoder one number for both, or two); the spec's own by default.
        size: pixels of the image's side, or height and width (`224x320`), in place of N.
        batch: samples; costs scale with it, parameters don't.
        dtype: float32, float64, bfloat16 or float16 (fp32, fp64, bf16, fp16).
        attention: `eager` keeps the matrix of scores, `fused` runs one kernel that doesn't.
        memory_level: bytes of on-chip memory (`192KiB`, 100000): tells what attention reads from and writes to main
            memory, plain and tiled for so much (FlashAttention).
        settings: overrides, `key.path=value` each.
        trace: False answers without importing torch.
        device: `cpu`, `cuda` or `mps` also runs the model.
        progress: called with a line of text before each long step.

    Returns:
        A Ledger: rows, totals, and with a trace `agreement`.

    Raises:
        XfcostError: bad input; the message says what was expected and how to mend it.
    """
    loaded = load(spec_name(spec), settings_texts(settings))
    run = make_run(N=N, size=size, batch=batch, dtype=dtype, attention=attention, memory_level=memory_level)
    return account(loaded, run, trace=trace, device=device, progress=progress)


def compare(  # noqa: PLR0913 - the options of the command
    *specs: str | os.PathLike[str],
    N: int | str | Sequence[int] | None = None,
    size: int | str | Sequence[int] | None = None,
    batch: int = 1,
    dtype: str = "float32",
    attention: Execution = "eager",
    memory_level: int | str | None = None,
    settings: Sequence[str] | None = (),
    trace: bool = False,
    device: str | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Several systems at the same N: ledgers, ratios against the first, growth exponents, crossovers.

    A pattern (`common-*`) stands for the presets that match it. The arguments are those of `analyze`; the trace, which
    imports torch, is on demand here.
    """
    names = expanded([spec_name(spec) for spec in specs])
    if len(names) < 2:  # noqa: PLR2004 - a comparison has two sides
        raise UsageError("compare: expected two systems or more, as in `xfcost compare vit swin --N 784`")
    run = make_run(N=N, size=size, batch=batch, dtype=dtype, attention=attention, memory_level=memory_level)
    loaded = [load(name, settings_texts(settings)) for name in names]
    ledgers = [account(one, run, trace=trace, device=device, progress=progress) for one in loaded]
    return compared(loaded, ledgers, run)


def account(
    loaded: Loaded, run: Run, *, trace: bool = True, device: str | None = None, progress: Progress | None = None
) -> Ledger:
    """The ledger of one loaded spec."""
    say = progress or (lambda text: None)
    if device is not None:
        from xfcost.live.clock import check_device

        check_device(str(device))
    architecture = place(loaded, run)
    ledger = with_rebuilt(count(architecture), loaded, architecture)
    if trace:
        from xfcost.live.account import traced

        say(f"tracing {ledger.facts.name} …")
        ledger = traced(architecture, ledger)
    if device is not None:
        from xfcost.live.account import timed

        ledger = timed(architecture, ledger, str(device), say)
    return ledger


def trace(model: torch.nn.Module, *inputs: torch.Tensor) -> Traced:
    """Trace any torch module: MACs, FLOPs and parameters module by module, and what no handle knew."""
    from xfcost.live.trace import trace as trace_module

    return trace_module(model, inputs)


def make_run(
    *,
    N: Any = None,
    size: Any = None,
    batch: int = 1,
    dtype: str = "float32",
    attention: str = "eager",
    memory_level: Any = None,
) -> Run:
    """The checked run: N (one number or one per stream) or the image's size, a batch, a dtype, an execution.

    Raises:
        UsageError: any of them can't be.
    """
    given = str(dtype).removeprefix("torch.")
    name = DTYPE_NAMES.get(given, given)
    if name not in BYTES_PER_ELEMENT:
        raise UsageError(f"--dtype {dtype}: {nearest(str(dtype), [*BYTES_PER_ELEMENT, *DTYPE_NAMES])}")
    if attention not in get_args(Execution):
        raise UsageError(f"--attention {attention}: expected eager or fused")
    try:
        samples = _whole(batch)
    except TypeError:
        samples = 0
    if not 1 <= samples <= MOST_BATCH:
        raise UsageError(f"--batch {batch}: expected a whole number from 1 to {MOST_BATCH}")
    level = None if memory_level is None else byte_number(memory_level)
    if N is not None and size is not None:
        raise UsageError("--N and --size: both say how large the input is; give one of them")
    return Run(token_numbers(N), image_size(size), samples, name, attention, memory_level=level)  # type: ignore[arg-type]


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


def spec_name(spec: str | os.PathLike[str]) -> str:
    """A preset's name or a path, as text.

    Raises:
        UsageError: it is neither.
    """
    if isinstance(spec, str | os.PathLike):
        name = os.fspath(spec)
        return name if isinstance(spec, str) else os.path.join(".", name)
    raise UsageError(f"expected a preset's name or a path to a YAML file, got {spec!r}")


def settings_texts(settings: Sequence[str] | None) -> tuple[str, ...]:
    """`key=value` texts, as after `--set`; None is none.

    Raises:
        UsageError: they are something else.
    """
    given = (settings,) if isinstance(settings, str) else tuple(settings or ())
    for setting in given:
        if not isinstance(setting, str):
            raise UsageError(f"settings: expected texts like 'stages.0.depth=4', got {setting!r}")
    return given


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
