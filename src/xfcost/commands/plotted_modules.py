"""The torch modules of `xfcost plot`: the size at which each is counted first, and what can't be drawn of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from xfcost.ledger.errors import NoNumbersError, UsageError
from xfcost.report.messages import say
from xfcost.report.metrics import METRICS

if TYPE_CHECKING:
    from xfcost.counting.sweep import Axis
    from xfcost.counting.system import System
    from xfcost.spec.run import Run

# Sizes of the image at which a module is counted first, where they are in the range.
_SIDES: Final = (512, 448, 224, 256)


class Plotted(NamedTuple):
    """What is drawn, and over which range."""

    metric: str
    device: str | None
    axis: Axis
    span: tuple[int, int]
    mark: int | None


def start_modules(systems: Sequence[System], run: Run, plotted: Plotted, *, strict: bool) -> None:
    """Count every module once, at a size inside the range at which it runs.

    Raises:
        UsageError: a module runs at none, or the metric or the device is of specs alone.
    """
    from xfcost.api.systems import start
    from xfcost.counting.system import SpecSystem

    runs = [plotted.axis.run(run, x) for x in _first_sizes(plotted)]
    for one in systems:
        if isinstance(one, SpecSystem):
            continue
        _check(one.name, plotted)
        try:
            start(one, runs, mixing=plotted.metric == "mixing", strict=strict, progress=say)
        except NoNumbersError as error:
            raise UsageError(f"--metric mixing: {error}; or --metric macs, which needs no kinds") from error


def _check(name: str, plotted: Plotted) -> None:
    if METRICS[plotted.metric].mode is not None:
        raise UsageError(
            f"--metric {plotted.metric}: {name} is a torch module, of which one forward is counted; give specs alone"
        )
    if plotted.device is not None:
        raise UsageError(
            f"--device {plotted.device}: {name} is a torch module, of which no points are measured; give specs alone"
        )


def _first_sizes(plotted: Plotted) -> list[int]:
    """The mark, or usual images; the middle of the range on a log axis; its square; and both ends."""
    low, high = plotted.span
    middle = math.isqrt(low * high)
    usual = _SIDES if plotted.axis.option == "--size" else ()
    wanted = (*((plotted.mark,) if plotted.mark else ()), *usual, middle, math.isqrt(middle) ** 2, low, high)
    return [x for x in dict.fromkeys(wanted) if low <= x <= high]
