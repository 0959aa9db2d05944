"""`xfcost analyze`."""

from __future__ import annotations

from typing import Annotated, Any, Final, get_args

import typer

from xfcost.api.option_readers import one_of
from xfcost.api.options import AnalyzeOptions
from xfcost.commands import options as shared
from xfcost.ledger.errors import UsageError
from xfcost.ledger.objects import AnyView, Sort
from xfcost.report.messages import say

VIEWS: Final = get_args(AnyView)
Spec = Annotated[
    str,
    shared.spec_argument(
        "A preset or a path to a YAML file; a torch module as model.py:NAME or package.module:NAME, whose code is "
        "executed; or a config.json of transformers."
    ),
]
By = Annotated[str | None, shared.choice_option("--by", VIEWS, "Group rows: ")]
Depth = Annotated[
    int | None,
    typer.Option(
        "--depth", metavar="INT", min=1, help="With --by module: levels of the tree.", rich_help_panel="Output"
    ),
]
SORTS: Final = get_args(Sort)
SortBy = Annotated[str | None, shared.choice_option("--sort", SORTS, "Rows of the whole model, the most first: ")]
Top = Annotated[
    int | None,
    typer.Option(
        "--top", metavar="INT", min=1, help="So many rows, by --sort (default: macs).", rich_help_panel="Output"
    ),
]


@shared.options(
    AnalyzeOptions,
    "verbose",
    *shared.REPORT,
    on="Devices by their figures (h100-sxmx8), nothing runs: does it fit, and the least time; several "
    "(h100-sxm,l40sx4, nvidia, all) side by side. `xfcost devices` lists them.",
    trace="Check the counts on the real torch model; the default without --on.",
    mixing="Find how each operation mixes tokens, by runs with real numbers, whatever time it takes, or don't; of a "
    "spec, check its kinds.",
)
def run(spec: Spec, by: By = None, depth: Depth = None, sort: SortBy = None, top: Top = None, **given: Any) -> None:
    """What one system costs, checked on the real torch model.

    Every operation is counted in closed form, classified by how it mixes tokens, and checked on the real torch model
    (fvcore's trace and torch's dispatcher); `--no-trace` answers without torch, `--device` runs and times the model.

    Example: xfcost analyze gpt2 --N 1024 --on h100-sxm
    """
    from xfcost.api.analysis import analyze
    from xfcost.report.largest import Order
    from xfcost.report.table import document

    view: AnyView | None = one_of(VIEWS)("--by", by) if by is not None else None  # type: ignore[assignment]
    if depth is not None and view != "module":
        raise UsageError("--depth: it cuts the tree of modules; give --by module too")
    order = None if sort is None and top is None else Order(one_of(SORTS)("--sort", sort or "macs"), top)  # type: ignore[arg-type]
    target, verbose = shared.target_of(given), given.pop("verbose")
    if order is not None and target.form == "json":
        raise UsageError("--sort and --top: json has every row, in the order of the model; take another format")
    ledger = analyze(spec, progress=say, closed_form=verbose or None, **given)
    if ledger.choices and ledger.on is None and view is not None:
        raise UsageError(f"--by {view}: rows are listed of one device, and --on has several; leave one of them out")
    target.document(document(ledger, view, verbose=verbose, depth=depth, order=order))
    shared.verdict([ledger])
