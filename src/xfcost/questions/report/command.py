"""`xfcost report`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Final

from xfcost.api.axes import axis_of, listed_sizes
from xfcost.api.options import CompareOptions
from xfcost.commands import options as shared
from xfcost.report.messages import say

# Two numbers of N may be those of two streams.
_STREAMS: Final = 2
# Of the name of a folder.
_MOST_LETTERS: Final = 100
Specs = Annotated[
    list[str],
    shared.spec_argument(f"One or more presets or paths; `common-*` matches several presets. {shared.OR_MODULES}"),
]
Page = Annotated[Path | None, shared.output_option("Write to this .html file (default: SYSTEMS-report.html).")]
Range = Annotated[
    str | None,
    shared.option("--range", "LOW:HIGH", "Range of the page's slider for N (default: N/16 to 64·N).", "Size"),
]


@shared.options(CompareOptions, "force")
def run(specs: Specs, range_: Range = None, output: Page = None, **given: Any) -> None:
    """Write one HTML page to share; it needs no network.

    The page has the answer, costs by mixing kind and by operation in sortable tables, the tree of stages, growth with a
    slider for N, a block of each system, a roofline if operations are timed, and notes on the method.

    Example: xfcost report vit swin --N 784
    """
    from xfcost.questions.report.answer import write_report
    from xfcost.questions.report.page.system_view import comparison_lines, crossover_lines, system_lines

    target = shared.default_target(specs, "report").with_suffix(".html")
    if output is not None:
        in_folder = os.path.isdir(output) or not (output.suffix or len(output.name) > _MOST_LETTERS)
        target = output / target if in_folder else output
        if in_folder:
            target.parent.mkdir(parents=True, exist_ok=True)
    if len(several := listed_sizes(given["N"])) > _STREAMS and range_ is None:  # the slider's
        range_, given["N"] = f"{several[0]}:{several[-1]}", several[len(several) // 2]
    span = None if range_ is None else axis_of(range_, None, option="--range")[1]
    comparison = write_report(*specs, output=target, slider=span, **{**given, "progress": say})
    lines = [*comparison_lines(comparison, options=True), *crossover_lines(comparison)] or system_lines(comparison, 0)
    shared.deliver_lines(lines)
    say(f"Wrote {target}")
    shared.verdict(comparison.ledgers)
