"""`xfcost report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from xfcost.commands import options as shared
from xfcost.commands.ranges import axis_of
from xfcost.report.messages import say

Page = Annotated[Path | None, typer.Option("-o", "--output", help="An .html file; SYSTEMS-report.html by default.")]
Range = Annotated[
    str | None,
    typer.Option(
        "--range", metavar="LOW:HIGH", help="Range of the page's slider for N (by default from N/16 to 64·N)."
    ),
]


@shared.timing_options()
@shared.run_options()
def run(  # noqa: PLR0913 - options
    specs: Annotated[
        list[str], shared.spec_argument(f"Presets or paths, one or more; `common-*` for several. {shared.OR_MODULES}")
    ],
    range_: Range = None,
    settings: shared.Settings = None,
    inputs: shared.Inputs = None,
    build: shared.Build = None,
    strict: shared.Strict = False,
    mixing: shared.Mixing = None,
    mixing_time: shared.MixingTime = None,
    trace: shared.Trace = False,
    device: shared.Device = None,
    predict: shared.Predict = False,
    output: Page = None,
    force: shared.Force = False,
    **options: Any,
) -> None:
    """One HTML page to share, which needs no network.

    The answer first, then costs by mixing kind and by operation in tables that sort, the tree of stages, growth with a
    slider for N, a block of each system, the roofline where operations are timed, and notes on method.
    """
    from xfcost.api.modules import mixing_seconds
    from xfcost.api.report_page import Wanted, page_content
    from xfcost.api.systems import OfModules, open_systems
    from xfcost.counting.run_options import make_run
    from xfcost.counting.system import SpecSystem
    from xfcost.ledger.timing_options import TIMING_OPTIONS, timing_plan
    from xfcost.report.output import check_target, ending_of
    from xfcost.report.page.answer import comparison_lines, crossover_lines, system_lines
    from xfcost.report.page.page import page_html

    target = output or shared.default_target(specs, "report").with_suffix(".html")
    ending_of(target, (".html", ".htm"))
    check_target(target, force=force)
    span = None if range_ is None else axis_of(range_, None, option="--range")[1]
    timing = timing_plan(
        device or ("cpu" if predict else None), {name: options.pop(name, None) for name in TIMING_OPTIONS}
    )
    how = make_run(**options)
    systems = open_systems(specs, OfModules(inputs, build, batch=options.get("batch", 1)), settings, say)
    of_specs = all(isinstance(one, SpecSystem) for one in systems)
    seconds = mixing_seconds(mixing, mixing_time, of_specs=of_specs)
    content = page_content(systems, how, Wanted(trace, device, predict, timing, strict, seconds, span), say)
    comparison = content.comparison
    lines = [*comparison_lines(comparison), *crossover_lines(comparison)] or system_lines(comparison, 0)
    shared.deliver_lines(lines)
    shared.deliver(page_html(content), target, force=force)
    shared.verdict(comparison.ledgers)
