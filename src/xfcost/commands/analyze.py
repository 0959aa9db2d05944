"""`xfcost analyze`."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Final, get_args

import typer

from xfcost.commands import options as shared
from xfcost.ledger.errors import UsageError
from xfcost.ledger.objects import AnyView
from xfcost.ledger.option_readers import one_of
from xfcost.report.messages import say
from xfcost.report.output import check_target

VIEWS: Final = get_args(AnyView)
Target = Annotated[
    str,
    shared.spec_argument(
        "A preset or a path to a YAML file; a torch module as model.py:NAME or package.module:NAME, whose code is "
        "executed; or a config.json of transformers."
    ),
]
By = Annotated[str | None, typer.Option("--by", help=f"Group rows: {shared.any_of(VIEWS)}.")]
Depth = Annotated[
    int | None, typer.Option("--depth", metavar="INT", min=1, help="With --by module: levels of the tree.")
]


@shared.timing_options()
@shared.run_options()
def run(  # noqa: PLR0913 - options
    spec: Target,
    settings: shared.Settings = None,
    inputs: shared.Inputs = None,
    build: shared.Build = None,
    strict: shared.Strict = False,
    mixing: shared.Mixing = None,
    mixing_time: shared.MixingTime = None,
    tokens_of: shared.TokensOf = None,
    by: By = None,
    depth: Depth = None,
    trace: shared.TraceUnlessOn = None,
    device: shared.Device = None,
    predict: shared.Predict = False,
    probe: shared.Probe = False,
    format_: shared.FormatOption = None,
    columns: shared.Columns = None,
    verbose: shared.Verbose = False,
    output: shared.Output = None,
    force: shared.Force = False,
    **options: Any,
) -> None:
    """What one system costs, checked on the real torch model.

    Every operation is counted in closed form, classified by how it mixes tokens, and checked on the real torch model
    (fvcore's trace and torch's dispatcher); `--no-trace` answers without torch, `--device` runs and times the model.
    """
    from xfcost.api import analyze
    from xfcost.report.export import ledger_text
    from xfcost.report.table import report

    view: AnyView | None = one_of("--by", VIEWS)(by) if by is not None else None  # type: ignore[assignment]
    if depth is not None and view != "module":
        raise UsageError("--depth: it cuts the tree of modules; give --by module too")
    form = shared.chosen_format(format_, output)
    check_target(output, force=force)
    of_modules: dict[str, Any] = {"inputs": inputs or (), "build": build or (), "strict": strict, "mixing": mixing}
    of_modules |= {"mixing_time": mixing_time, "tokens_of": tokens_of or ()}
    options |= of_modules | {"closed_form": True if verbose else None}
    ledger = analyze(
        spec, settings=settings, trace=trace, device=device, predict=predict, probe=probe, progress=say, **options
    )
    drawn = partial(report, ledger, view, verbose=verbose, depth=depth)
    written = partial(ledger_text, ledger, form, view, verbose=verbose, depth=depth)
    shared.deliver_report(lambda width: drawn(width=width), written, form, output, force=force)
    shared.verdict([ledger])
