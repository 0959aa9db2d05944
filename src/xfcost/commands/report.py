"""`xfcost report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from xfcost.api.options import CompareOptions
from xfcost.commands import options as shared
from xfcost.commands.options import axis_of
from xfcost.report.messages import say

Specs = Annotated[
    list[str],
    shared.spec_argument(f"One or more presets or paths; `common-*` matches several presets. {shared.OR_MODULES}"),
]
Page = Annotated[Path | None, shared.output_option("Write to this .html file (default: SYSTEMS-report.html).")]
Range = Annotated[
    str | None,
    typer.Option(
        "--range",
        metavar="LOW:HIGH",
        help="Range of the page's slider for N (default: N/16 to 64·N).",
        rich_help_panel="Size",
    ),
]


@shared.options(CompareOptions, "force")
def run(specs: Specs, range_: Range = None, output: Page = None, **given: Any) -> None:
    """Write one HTML page to share; it needs no network.

    The page has the answer, costs by mixing kind and by operation in sortable tables, the tree of stages, growth with a
    slider for N, a block of each system, a roofline if operations are timed, and notes on the method.

    Example: xfcost report vit swin --N 784
    """
    from xfcost.api.analysis import account_options
    from xfcost.api.report_page import page_content
    from xfcost.api.runs import make_run, run_options
    from xfcost.api.systems import check_mixing, open_systems
    from xfcost.report.output import check_target, ending_of
    from xfcost.report.page.page import page_html
    from xfcost.report.page.system_view import comparison_lines, crossover_lines, system_lines

    target = output or shared.default_target(specs, "report").with_suffix(".html")
    ending_of(target, (".html", ".htm"))
    check_target(target, force=given["force"])
    span = None if range_ is None else axis_of(range_, None, option="--range")[1]
    how, run = account_options({**given, "progress": say}), make_run(**run_options(given))
    systems = open_systems(specs, given, say, counted=True)
    check_mixing(systems, given)
    content = page_content(systems, run, how, span)
    comparison = content.comparison
    lines = [*comparison_lines(comparison, options=True), *crossover_lines(comparison)] or system_lines(comparison, 0)
    shared.deliver_lines(lines)
    shared.deliver(page_html(content), target, force=given["force"])
    shared.verdict(comparison.ledgers)
