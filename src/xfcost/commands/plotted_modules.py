"""The torch modules of `xfcost plot`: the size at which each is counted first, and what can't be drawn of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from xfcost.ledger.errors import NoNumbersError, UsageError
from xfcost.report.messages import say
from xfcost.report.metrics import METRICS

if TYPE_CHECKING:
    from xfcost.counting.sweep import SizeAxis
    from xfcost.counting.system import System
    from xfcost.spec.run import Run


class Plotted(NamedTuple):
    """What is drawn, and over which range."""

    metric: str
    axis: SizeAxis
    span: tuple[int, int]
    mark: int | None


def start_modules(systems: Sequence[System], run: Run, plotted: Plotted, *, strict: bool) -> None:
    """Count every module once, at a size inside the range at which it runs.

    Raises:
        UsageError: a module runs at none, or the metric is of specs alone.
    """
    from xfcost.api.systems import first_sizes, start
    from xfcost.counting.system import SpecSystem

    runs = [plotted.axis.run(run, x) for x in first_sizes(plotted.axis, plotted.span, plotted.mark)]
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
