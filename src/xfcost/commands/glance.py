"""`xfcost glance`."""

from __future__ import annotations

from typing import Annotated, Any

from xfcost.commands import options as shared


@shared.run_options("N", "size", "batch", "dtype", "attention")
def run(
    specs: Annotated[list[str], shared.spec_argument("Presets or paths.")],
    settings: shared.Settings = None,
    format_: shared.FormatOption = None,
    output: shared.Output = None,
    force: shared.Force = False,
    **options: Any,
) -> None:
    """Every named operation, on one page.

    Its mixing kind, its order in N, where it occurs and what parameters it holds.
    """
    from xfcost.api import account
    from xfcost.counting.glance import glance
    from xfcost.counting.run_options import make_run
    from xfcost.report.glance import glance_text, render
    from xfcost.report.output import check_target
    from xfcost.spec.load import expanded, load

    form = shared.chosen_format(format_, output)
    check_target(output, force=force)
    run_ = make_run(**options)
    page = glance([account(load(spec, settings or ()), run_, trace=False) for spec in expanded(specs)])
    shared.deliver_report(lambda width: render(page), lambda: glance_text(page, form), form, output, force=force)
