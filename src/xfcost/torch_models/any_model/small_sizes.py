"""Small sizes at which a module runs as it does at the given one: every call in its source, no axis collapsed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from math import inf, prod
from typing import Any, Final, NamedTuple

from torch import nn

from xfcost.torch_models.any_model.inputs import Given
from xfcost.torch_models.any_model.run import RecordedModule, run_on
from xfcost.torch_models.any_model.token_axes import Axes, part_of, resized, with_tokens
from xfcost.torch_models.any_model.work import Work
from xfcost.torch_models.running.on_meta import TooManyCallsError

_TOKENS: Final = (12, 24, 36, 48, 64, 96, 128, 192, 256)
_SIDES: Final = (8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 224)
_WIDEST: Final = 128
_FEW_SAMPLES: Final = 2
_RUNS: Final = 3
_APART: Final = 1.4
GIVEN_SIZE: Final = "only the given size"


class Sizes(NamedTuple):
    """The inputs of up to three runs, or of one if it accepts only the given size, and how they are called."""

    inputs: list[Given]
    text: str
    numbers: int = 0
    """Numbers that the operations of these runs make."""


def small_sizes(
    model: nn.Module, given: Given, axes: Axes, full: RecordedModule, spend: Callable[[int], None] = lambda ran: None,
    most: float = inf,
) -> Sizes:  # fmt: skip
    """The smallest sizes, up to three, that run like the given one; else that one alone.

    `spend` gets the number of operations of each run.

    Raises:
        TooManyCallsError: a run has more than `most` on `meta`.
    """
    lengths = _lengths(given, axes)
    images = [sides for sides in lengths if len(sides) > 1]
    texts = [sides for sides in lengths if len(sides) == 1]
    batch = 1 if _samples(given, axes) > _FEW_SAMPLES else None
    alone = resized(given, axes, {}, batch)
    try:
        compared = run_on(full.how, model, *alone, numbers=full.numbers, most=most)  # `full` may have filled caches
    except Exception as error:  # a module may want as many samples as it was given
        if batch is None or isinstance(error, TooManyCallsError):
            raise
        return Sizes([resized(given, axes, {}, None)], GIVEN_SIZE)
    found: list[tuple[str, Given, list[Work]]] = []
    sizes = [(size, resized(given, axes, sides, batch)) for size, sides in _candidates(model, texts, images)]
    works = cache(lambda at: _like(model, sizes[at][1], compared, spend))
    for apart in (_APART, 1):  # a chunk more is no growth
        found = found if len(found) > 1 else _running(sizes, works, axes, compared, apart)
    if len(found) < 2:  # noqa: PLR2004 - growth is between two
        return Sizes([alone], GIVEN_SIZE, numbers_made(compared.works))
    *names, last = [size for size, _, _ in found]
    text = f"{', '.join(names)} and {last}{' tokens' if texts else ''}"
    return Sizes([inputs for _, inputs, _ in found], text, sum(numbers_made(works) for _, _, works in found))


def numbers_made(works: Iterable[Work]) -> int:
    """The numbers of all outputs."""
    return sum(work.calls * sum(map(prod, work.outputs)) for work in works)


def _running(
    sizes: Sequence[tuple[str, Given]],
    works_at: Callable[[int], list[Work] | None],
    axes: Axes,
    full: RecordedModule,
    apart: float,
) -> list[tuple[str, Given, list[Work]]]:
    """The first sizes that run like the given one, each with so many times the tokens of the one before."""
    found: list[tuple[str, Given, list[Work]]] = []
    for at, (size, inputs) in enumerate(sizes):
        if found and (part_of(inputs, found[-1][1], axes) or 1) * apart > 1:
            continue
        works = works_at(at)
        if works is not None and all(_apart(full.works, smaller, works) for _, _, smaller in found[-1:]):
            found.append((size, inputs, works))
        if len(found) == _RUNS:
            break
    return found


def _lengths(given: Given, axes: Axes) -> list[tuple[int, ...]]:
    """Of each input that has tokens, the lengths of its token axes."""
    return [tuple(tensor.shape[axis] for axis in own) for tensor, own in with_tokens(given, axes)]


def _samples(given: Given, axes: Axes) -> int:
    return next((int(tensor.shape[0]) for tensor, own in with_tokens(given, axes) if 0 not in own), 1)


def _candidates(
    model: nn.Module, texts: Sequence[tuple[int, ...]], images: Sequence[tuple[int, ...]]
) -> Iterator[tuple[str, dict[int, int]]]:
    """Sizes to try, smallest first: what they are called, and the new length for each old one."""
    window = max((_declared_window(module) or 0 for module in model.modules()), default=0)
    if texts and images:
        return  # what reads the one that stays would seem not to grow
    if texts:
        (length,) = texts[0]
        enough = 2 * window + 4 if window and window <= _WIDEST else 0
        parts = {length // part for part in (16, 8, 4, 2, 1)}
        for tokens in sorted({*_TOKENS, *parts, enough, enough + enough // 2, 2 * enough + enough // 4}):
            if max(enough, min(length, _TOKENS[0])) <= tokens <= max(length, 3 * enough, _TOKENS[2]):
                yield str(tokens), {old: tokens for (old,) in texts}
    elif images:
        first = images[0]
        least = min(first)
        factors: Iterable[tuple[int, int]] = [(side, least) for side in _SIDES if side < least and not window]
        for above, below in (*factors, (1, 1), (2, 1)):
            sides = {old: max(1, old * above // below) for several in images for old in several}
            yield "×".join(str(sides[old]) for old in first), sides


def _like(
    model: nn.Module, inputs: Given, full: RecordedModule, spend: Callable[[int], None]
) -> list[Work] | None:  # fmt: skip
    """The operations on these inputs, if they are those of the given ones, with no axis collapsed."""
    spend(full.ran)
    try:
        works = run_on(full.how, model, *inputs, numbers=full.numbers).works
    except Exception:  # noqa: BLE001 - the module's own refusal of a size
        return None
    own = {work.place: work for work in works}
    alike = all(work.place in own and not _collapsed(own[work.place], work) for work in full.works)
    return works if alike else None


def _collapsed(work: Work, full: Work) -> bool:
    """Has an output a single index along an axis that has several at the given size?"""
    return any(
        one == 1 < other
        for shapes in zip(work.outputs, full.outputs, strict=False)
        for one, other in zip(*shapes, strict=False)
    )


def _apart(full: Sequence[Work], small: Sequence[Work], large: Sequence[Work]) -> bool:
    """Has every operation other outputs, or calls, at the larger size that has other ones at the given size?"""
    of_full, of_small, of_large = (
        {work.place: (work.outputs, work.calls) for work in works} for works in (full, small, large)
    )
    changed = [place for place, ran in of_small.items() if ran != of_large.get(place)]
    between = [place for place, ran in of_full.items() if ran != of_small[place]]
    return bool(changed) and set(between) <= set(changed)


# ── the attention windows that modules declare in their attributes, as `sliding_window` and `window_size` ──


def window_at(model: nn.Module, path: str) -> int:
    """The window of the innermost module on `path` that declares one; 0 of none."""
    parts = path.split(".") if path else []
    for length in range(len(parts), -1, -1):
        found = _declared_window(model.get_submodule(".".join(parts[:length])))
        if found is not None:
            return found
    return 0


def _declared_window(module: nn.Module) -> int | None:
    """A module's own window, 0 where it says that it has none; else that of its configuration; None if it is silent."""
    own = [value for name, value in vars(module).items() if "window" in name and not name.startswith("_")]
    if own:
        return max(map(_width, own))
    config = getattr(module, "config", None)
    return None if config is None else _width(getattr(config, "sliding_window", None))


def _width(value: Any) -> int:
    if isinstance(value, bool):
        return 0
    if isinstance(value, int):
        return max(0, value)
    if isinstance(value, tuple | list) and value and all(isinstance(one, int) for one in value):
        return max(0, *value)
    return 0
