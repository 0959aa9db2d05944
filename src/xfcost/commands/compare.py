"""`xfcost compare`."""

from __future__ import annotations

from typing import Annotated, Any

from xfcost.commands import options as shared
from xfcost.commands.from_file import compare_file, or_from_file
from xfcost.report.messages import say


@or_from_file(compare_file)
@shared.timing_options()
@shared.run_options()
def run(  # noqa: PLR0913 - options
    specs: Annotated[
        list[str],
        shared.spec_argument(f"Two presets or paths, or more; `common-*` for several presets. {shared.OR_MODULES}"),
    ],
    settings: shared.Settings = None,
    inputs: shared.Inputs = None,
    build: shared.Build = None,
    strict: shared.Strict = False,
    mixing: shared.Mixing = None,
    mixing_time: shared.MixingTime = None,
    trace: shared.Trace = False,
    device: shared.Device = None,
    predict: shared.Predict = False,
    format_: shared.FormatOption = None,
    columns: shared.Columns = None,
    verbose: shared.Verbose = False,
    output: shared.Output = None,
    force: shared.Force = False,
    **options: Any,
) -> None:
    """Systems side by side at the same N.

    Costs by mixing kind, ratios against the first, growth exponents, and the N at which one overtakes another. Counted
    in closed form; `--trace` checks every system on the real torch model (fvcore's trace and torch's dispatcher).
    """
    from xfcost.api import compare
    from xfcost.report.compare import report
    from xfcost.report.export import comparison_text
    from xfcost.report.output import check_target

    form = shared.chosen_format(format_, output)
    check_target(output, force=force)
    comparison = compare(
        *specs,
        settings=settings,
        inputs=inputs or (),
        build=build or (),
        strict=strict,
        mixing=mixing,
        mixing_time=mixing_time,
        trace=trace,
        device=device,
        predict=predict,
        progress=say,
        thorough=verbose or form == "json",
        **options,
    )
    shared.deliver_report(
        lambda width: report(comparison, width, verbose=verbose),
        lambda: comparison_text(comparison, form, verbose=verbose),
        form,
        output,
        force=force,
    )
    shared.verdict(comparison.ledgers)
