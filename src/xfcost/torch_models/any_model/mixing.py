"""How each operation of a module mixes tokens, found by runs with real numbers at two small sizes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from torch import nn

from xfcost.ledger.errors import NoNumbersError, UsageError
from xfcost.ledger.operation import Mixing
from xfcost.torch_models.any_model.inputs import Given
from xfcost.torch_models.any_model.run import Run, run_on
from xfcost.torch_models.any_model.small_sizes import small_sizes
from xfcost.torch_models.any_model.token_axes import Axes, axes_of
from xfcost.torch_models.any_model.user_errors import original, raised
from xfcost.torch_models.any_model.windows import window_at
from xfcost.torch_models.any_model.work import Work
from xfcost.torch_models.ownership.follower import Follower
from xfcost.torch_models.ownership.found import FoundOperation
from xfcost.torch_models.ownership.run import own_inputs
from xfcost.torch_models.ownership.verdict import verdicts

MOST_BYTES: Final = 2 * 2**30
Built = tuple[nn.Module, Given]
"""A module with real numbers, and its inputs."""
OnCPU = Callable[[], Sequence[Built]]
"""Gives the module; or, where it is made for one size alone, the module made for two."""

_WIDER: Final = "a window wider than these counts as global"
_ALL: Final = "what reads all its tokens counts as global"
_NOT_RUN: Final = "it did not run at the sizes looked at"
_CHOOSES: Final = "it sorts tokens or chooses among them"
# Of the parts of an operation, the widest decides.
_WIDENING: Final[tuple[Mixing, ...]] = ("per-token", "local", "global")


class _Verdict(NamedTuple):
    """What is found of one operation of the ledger."""

    kind: Mixing
    reads: int | None = None
    content_dependent: bool = False
    missing: str | None = None


class _Followed(NamedTuple):
    works: list[Work]
    follower: Follower


def find_mixing(full: Run, built: Sequence[Built]) -> str | None:
    """Fill in the kinds of `full`'s operations from runs of the same module with real numbers; from which, if any.

    What is not found stays unknown, and `kind_missing` says why.

    Args:
        full: the run that the ledger counts.
        built: the module with its inputs, of which two small sizes are made; or the module built for two sizes.

    Raises:
        UsageError: the module has no numbers, or is not on the CPU.
    """
    models = [original(model) for model, _ in built]
    for model in models:
        _check_device(model)
    (model, given), inputs = (models[0], built[0][1]), [one for _, one in built]
    axes = axes_of(given, given.places(model), full.works)
    if not any(axes.values()):
        _nothing(full, "no input has an axis of tokens")
        return None
    text = "two builds of it"
    if len(built) == 1:
        inputs, text = small_sizes(model, given, axes, full)
    try:
        runs = [_followed(models[min(number, len(models) - 1)], one, axes) for number, one in enumerate(inputs)]
    except Exception as error:  # noqa: BLE001 - the ledger stands without kinds, and the reason is reported
        _nothing(full, f"the run with real numbers raised {raised(error)}")
        return None
    found = verdicts(*(run.follower for run in runs))
    _fill(full.works, runs[0], found, _windows(model, found, max(map(len, axes.values()))))
    return f"mixing kinds are found from {text}; " + (_WIDER if len(runs) > 1 else _ALL)


def check_parameters(model: nn.Module, name: str) -> None:
    """Refuse a module whose parameters take too much memory to be filled with numbers.

    Raises:
        NoNumbersError: they do.
    """
    size = sum(one.numel() * one.element_size() for one in (*model.parameters(), *model.buffers()))
    if size > MOST_BYTES:
        raise NoNumbersError(
            f"--mixing: the parameters of {name} take {size / 2**30:,.1f} GiB, and it runs modules of up to "
            f"{MOST_BYTES // 2**30} GiB with real numbers; its kinds are those of a shallower one: --build depth=2, or "
            "a config with fewer layers"
        )


def _check_device(model: nn.Module) -> None:
    devices = {one.device.type for one in (*model.parameters(), *model.buffers())}
    if "meta" in devices:
        raise UsageError("mixing: the module is on `meta`, and masks are found by their numbers; build it on the CPU")
    if devices - {"cpu"}:
        raise UsageError(f"mixing: the module is on {', '.join(sorted(devices))}; it is found on the CPU: module.cpu()")


def _nothing(full: Run, reason: str) -> None:
    for work in full.works:
        work.kind_missing = reason


def _followed(model: nn.Module, given: Given, axes: Axes) -> _Followed:
    follower = Follower()

    @contextmanager
    def beside(args: tuple[Any, ...], kwargs: dict[str, Any], running: list[str]) -> Iterator[None]:
        follower.running = running
        own_inputs(follower, args, kwargs, axes)
        with follower:
            yield

    ran = run_on("real", model, given.args, given.kwargs, beside)
    if ran.ran != len(follower.noted):
        raise RuntimeError(f"of {ran.ran} operations {len(follower.noted)} were followed")
    return _Followed(ran.works, follower)


def _windows(model: nn.Module, found: Sequence[FoundOperation], rank: int) -> dict[str, int]:
    """Module path -> its declared window, where an operation that reads all tokens at this size may be in one."""
    reads: dict[str, int] = {}
    for one in found:
        if one.kind == "global" and one.reads is not None:
            reads[one.module] = min(reads.get(one.module, one.reads.largest), one.reads.largest)
    windows = {path: window_at(model, path) for path in reads}
    return {path: window for path, window in windows.items() if window and reads[path] <= window**rank}


def _fill(works: Sequence[Work], small: _Followed, found: Sequence[FoundOperation], windows: dict[str, int]) -> None:
    own = {work.place: work.sequence for work in small.works}
    calls: dict[Hashable, list[int]] = {}
    for work in small.works:
        calls.setdefault(work.call, []).extend(work.sequence)
    in_loops = _steps_of_loops(works, small.works)
    for work in works:
        sequence = own.get(work.place) or calls.get(work.call) or in_loops.get(work.path, [])
        parts = [found[number] for number in sequence]
        chooses = any(small.follower.noted[number].chooses for number in sequence)
        verdict = _verdict(parts, windows) if parts else _Verdict("unknown", missing=_NOT_RUN)
        verdict = _Verdict("unknown", missing=_CHOOSES) if chooses else verdict
        work.mixing, work.content_dependent = verdict.kind, verdict.content_dependent
        work.kind_missing = verdict.missing
        work.reads_tokens = verdict.reads if verdict.kind == "local" else None


def _steps_of_loops(works: Sequence[Work], small: Sequence[Work]) -> dict[str, list[int]]:
    """Module path -> what ran there at the small size alone: the steps of a loop that counts as one operation."""
    places = {work.place for work in works}
    loops = {work.path for work in works if work.operation.startswith("xfcost::")}
    found: dict[str, list[int]] = {path: [] for path in loops}
    for work in small:
        if work.path in loops and work.place not in places:
            found[work.path] += work.sequence
    return found


def _verdict(parts: Sequence[FoundOperation], windows: dict[str, int]) -> _Verdict:
    """Of several ATen operations that count as one."""
    for one in parts:
        if one.kind == "unknown":
            return _Verdict("unknown", missing=one.reason)
    kinds: list[Mixing] = [one.kind or "per-token" for one in parts]
    widest = max(kinds, key=_WIDENING.index)
    if widest == "per-token":
        return _Verdict("per-token")
    deciding = [one for one, kind in zip(parts, kinds, strict=True) if kind == widest]
    path = deciding[0].module
    if widest == "global" and path in windows:
        reason = f"its window of {windows[path]} tokens is wider than the sizes looked at"
        return _Verdict("unknown", missing=reason)
    reads = max((one.reads.largest for one in deciding if one.reads), default=None)
    return _Verdict(widest, reads, any(one.content_dependent for one in deciding))
