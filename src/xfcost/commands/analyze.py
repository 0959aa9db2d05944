"""`xfcost analyze`."""

from __future__ import annotations

from typing import Annotated, Any, Final, get_args

import typer

from xfcost.commands.options import (
    Build,
    Device,
    Force,
    FormatOption,
    Inputs,
    Output,
    Probe,
    Settings,
    Strict,
    Trace,
    Verbose,
    any_of,
    chosen_format,
    deliver,
    progress,
    run_options,
    spec_argument,
    verdict,
)
from xfcost.ledger.errors import UsageError, printable
from xfcost.ledger.objects import AnyView
from xfcost.report.output import check_target

VIEWS: Final = get_args(AnyView)


@run_options()
def run(  # noqa: PLR0913 - options
    spec: Annotated[
        str,
        spec_argument(
            "A preset or a path to a YAML file; a torch module as model.py:NAME or package.module:NAME, whose code is "
            "executed; or a config.json of transformers."
        ),
    ],
    settings: Settings = None,
    inputs: Inputs = None,
    build: Build = None,
    strict: Strict = False,
    by: Annotated[str | None, typer.Option("--by", help=f"Group rows: {any_of(VIEWS)}.")] = None,
    depth: Annotated[
        int | None, typer.Option("--depth", metavar="INT", min=1, help="With --by module: levels of the tree.")
    ] = None,
    trace: Trace = True,
    device: Device = None,
    probe: Probe = False,
    format_: FormatOption = None,
    verbose: Verbose = False,
    output: Output = None,
    force: Force = False,
    **options: Any,
) -> None:
    """What one system costs, checked on the real torch model.

    Every operation is counted in closed form, classified by how it mixes tokens, and checked on the real torch model
    (fvcore's trace and torch's dispatcher); `--no-trace` answers without torch, `--device` runs and times the model.
    """
    from xfcost.api import analyze

    view = _view(by)
    if depth is not None and view != "module":
        raise UsageError("--depth: it cuts the tree of modules; give --by module too")
    form = chosen_format(format_, output)
    check_target(output, force=force)
    ledger = analyze(
        spec,
        settings=settings or (),
        inputs=inputs or (),
        build=build or (),
        strict=strict,
        trace=trace,
        device=device,
        probe=probe,
        progress=progress,
        **options,
    )
    if form == "table" and output is None:
        from xfcost.report.table import print_ledger

        print_ledger(ledger, view, verbose=verbose, depth=depth)
    else:
        from xfcost.report.export import ledger_text

        deliver(ledger_text(ledger, form, view, verbose=verbose, depth=depth), output, force=force)
    verdict([ledger])


def _view(by: str | None) -> AnyView | None:
    if by is not None and by not in VIEWS:
        raise UsageError(f"--by {printable(by)}: expected one of {', '.join(VIEWS)}")
    return by  # type: ignore[return-value]
