"""`xfcost analyze`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Final, get_args

from xfcost.api.options import AnalyzeOptions
from xfcost.commands import options as shared
from xfcost.commands.table_of_sizes import deliver_table
from xfcost.ledger.errors import StreamsError, UsageError
from xfcost.ledger.json_objects import AnyView, Sort
from xfcost.ledger.option_readers import one_of
from xfcost.report.messages import say

VIEWS: Final = get_args(AnyView)
Spec = Annotated[
    str,
    shared.spec_argument(
        "A preset, a YAML file, a module (model.py:NAME or package.module:NAME; its code is executed), a config.json, "
        "a checkpoint, a .pt2 or .onnx file, or a model of the list or the Hub."
    ),
]
By = Annotated[str | None, shared.choice_option("--by", VIEWS, "Group rows.")]
Depth = Annotated[int | None, shared.option("--depth", "INT", "With --by module: levels to show.", "Output", min=1)]
SORTS: Final = get_args(Sort)
SortBy = Annotated[str | None, shared.choice_option("--sort", SORTS, "List the largest rows of the model.")]
Top = Annotated[
    int | None,
    shared.option("--top", "INT", "Rows that --sort lists.", "Output", min=1),
]
Filter = Annotated[
    list[str] | None,
    shared.option("--filter", "TEXT", "List only operations with TEXT in their name.", "Output"),
]

TraceFile = Annotated[
    Path | None,
    shared.option(
        "--trace-file", "PATH", "Write a timeline (.json) for Perfetto and chrome://tracing.", "Timing, with --device"
    ),
]


@shared.options(
    AnalyzeOptions,
    "verbose",
    *shared.REPORT,
    on="Compute from datasheets if the run fits on such devices (h100-sxmx8), and a lower bound of its time; "
    "several (h100-sxm,l40sx4, nvidia, all) stand side by side. `xfcost devices` lists names.",
    N="Tokens N: 784, 128k, 128Ki (131,072); a table: 256,512,1024.",
    size="Size: 384, 224x320 (height x width); a table: 224,384,512.",
    trace="Check on the torch model (not with --on).",
    mixing="Find how each operation mixes tokens without a time limit, or not at all; for a spec, check its declared "
    "kinds.",
)
def run(  # noqa: PLR0913 - options
    spec: Spec,
    by: By = None,
    depth: Depth = None,
    sort: SortBy = None,
    top: Top = None,
    filter_: Filter = None,
    trace_file: TraceFile = None,
    **given: Any,
) -> None:
    """Count what one model costs, checked on the real torch model.

    Formulas count every operation, and two counters on the real torch model check them. `--no-trace` skips torch;
    `--device` also times the model.

    Example: xfcost analyze gpt2 --N 1024 --on h100-sxm
    """
    from xfcost.api.analysis import analyze
    from xfcost.parts.timing.timeline import timeline
    from xfcost.report.output import check_target
    from xfcost.views.analyze import document
    from xfcost.views.batches import varied
    from xfcost.views.largest import Order

    view: AnyView | None = one_of(VIEWS)("--by", by) if by is not None else None  # type: ignore[assignment]
    if depth is not None and view not in (None, "module"):
        raise UsageError(f"--depth: limits the tree of modules; --by {by} has none")
    view = view if depth is None else "module"
    order = None if sort is None and top is None else Order(one_of(SORTS)("--sort", sort or "macs"), top)  # type: ignore[arg-type]
    target, verbose = shared.target_of(given), given.pop("verbose")
    if order is not None and target.form == "json":
        raise UsageError("--sort and --top: json always has every row, in the order of the model; use another format")
    if trace_file is not None and given["device"] is None:
        raise UsageError("--trace-file: a timeline is of a run that is timed; add --device cpu, or cuda")
    check_target(trace_file, force=target.force, option="--trace-file")
    option = varied(given)
    listed = view is not None or order is not None or bool(filter_)
    if option is not None:
        _over(option, spec, target, given, listed=listed, verbose=verbose)
        return
    try:
        ledger = analyze(spec, progress=say, closed_form=verbose or None, **given)
    except StreamsError:  # two numbers are two runs of a system with one stream
        if re.fullmatch(r"\d{1,3},\d{3}", tokens := given["N"]):
            first, second = tokens.split(",")
            one = first + second
            say(f"--N {tokens}: two runs, N = {first} and N = {second}; one of {one} tokens: --N {one}")
        _over("N", spec, target, given, listed=listed, verbose=verbose)
        return
    if ledger.choices and ledger.on is None and (view is not None or filter_):
        option = f"--by {view}" if view is not None else "--filter"
        raise UsageError(f"{option}: rows are listed for one device, and --on has several; leave one of them out")
    target.document(document(ledger, view, verbose=verbose, depth=depth, order=order, only=filter_ or ()))
    if trace_file is not None:
        shared.deliver(timeline(ledger), trace_file, force=target.force)
    shared.verdict([ledger])


def _over(
    option: str, spec: str, target: shared.Target, given: dict[str, Any], *, listed: bool, verbose: bool
) -> None:  # fmt: skip
    """A line for each value of an option; the torch model is built where that is asked for.

    Raises:
        UsageError: rows are `listed`, or something else is of one run.
    """
    words = f"--{option} {given[option]}"
    if listed:
        raise UsageError(f"{words}: rows are listed for one run, without --by, --sort, --top and --filter")
    if given["step_time"] is not None:
        raise UsageError(f"{words}: --step-time is of one run; leave one of them out")
    deliver_table(option, [spec], target, given, verbose=verbose)
