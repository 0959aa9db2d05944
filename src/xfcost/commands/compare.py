"""`xfcost compare`."""

from __future__ import annotations

from typing import Annotated, Any

from xfcost.commands.options import (
    Device,
    Force,
    FormatOption,
    Output,
    Settings,
    Trace,
    Verbose,
    chosen_format,
    deliver,
    progress,
    run_options,
    spec_argument,
    verdict,
)


@run_options()
def run(  # noqa: PLR0913 - options
    specs: Annotated[
        list[str],
        spec_argument("Two presets or paths, or more; `common-*` for several presets."),
    ],
    settings: Settings = None,
    trace: Trace = False,
    device: Device = None,
    format_: FormatOption = None,
    verbose: Verbose = False,
    output: Output = None,
    force: Force = False,
    **options: Any,
) -> None:
    """Systems side by side at the same N.

    Costs by mixing kind, ratios against the first, growth exponents, and the N at which one overtakes another. Counted
    in closed form; `--trace` checks every system on the real torch model (fvcore's trace and torch's dispatcher).
    """
    from xfcost.api import compare
    from xfcost.report.output import check_target

    form = chosen_format(format_, output)
    check_target(output, force=force)
    comparison = compare(
        *specs,
        settings=settings or (),
        trace=trace,
        device=device,
        progress=progress,
        thorough=verbose or form == "json",
        **options,
    )
    if form == "table" and output is None:
        from xfcost.report.compare import print_comparison

        print_comparison(comparison, verbose=verbose)
    else:
        from xfcost.report.export import comparison_text

        deliver(comparison_text(comparison, form, verbose=verbose), output, force=force)
    verdict(comparison.ledgers)
