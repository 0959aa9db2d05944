"""`xfcost glance`."""

from __future__ import annotations

from typing import Annotated, Any

from xfcost.commands import options as shared
from xfcost.report.messages import say


@shared.run_options("N", "size", "batch", "dtype", "attention", **shared.OF_A_FORWARD)
def run(  # noqa: PLR0913 - options
    specs: Annotated[list[str], shared.spec_argument(f"Presets or paths. {shared.OR_MODULES}")],
    settings: shared.Settings = None,
    inputs: shared.Inputs = None,
    build: shared.Build = None,
    strict: shared.Strict = False,
    mixing: shared.FindMixing = True,
    format_: shared.FormatOption = None,
    columns: shared.Columns = None,
    output: shared.Output = None,
    force: shared.Force = False,
    **options: Any,
) -> None:
    """Every named operation, on one page.

    Its mixing kind, its order in N, where it occurs and what parameters it holds.
    """
    from xfcost.api.systems import OfModules, drawn_ledger, open_systems
    from xfcost.counting.glance import glance
    from xfcost.counting.run_options import make_run
    from xfcost.report.glance import document
    from xfcost.report.output import check_target

    form = shared.chosen_format(format_, output)
    check_target(output, force=force)
    run_ = make_run(**options)
    systems = open_systems(specs, OfModules(inputs, build, batch=options.get("batch", 1)), settings, say)
    page = glance([drawn_ledger(one, run_, strict=strict, mixing=mixing, progress=say) for one in systems])
    report = document(page)
    shared.deliver_report(report.terminal, lambda: report.text(form), form, output, force=force)
