"""`xfcost compare`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from xfcost.api.options import CompareOptions
from xfcost.commands import options as shared
from xfcost.commands.from_file import From, Machine, WrittenOptions, compare_file
from xfcost.commands.table_of_sizes import deliver_table
from xfcost.ledger.errors import StreamsError, UsageError
from xfcost.report.messages import say

Specs = Annotated[
    list[str] | None,
    shared.spec_argument(f"Two or more presets or paths; `common-*` matches several presets. {shared.OR_MODULES}"),
]


SortBy = Annotated[
    str | None,
    shared.option(
        "--sort", "QUANTITY", "Order the systems by macs, flops, params, attention-memory or another figure.", "Output"
    ),
]


Match = Annotated[
    str | None,
    shared.option(
        "--match",
        "params|macs|flops",
        "Give each other spec the depth with which it costs as much as the first.",
        "Run",
    ),
]


@shared.options(CompareOptions, "verbose", *shared.REPORT)
def run(
    context: typer.Context,
    specs: Specs = None,
    sort: SortBy = None,
    match: Match = None,
    from_: From = None,
    machine: Machine = None,
    **given: Any,
) -> None:
    """Compare systems, at their own sizes or at one N.

    The report has costs by mixing kind, ratios to the first system, growth exponents, and the N at which one system
    becomes cheaper than another. Formulas count; `--trace` compares their counts with those of two counters on the real
    torch model (fvcore's trace and torch's dispatcher).

    Example: xfcost compare vit swin --N 784
    """
    from xfcost.api.analysis import compare
    from xfcost.views.batches import varied
    from xfcost.views.compare import document

    if from_ is not None:
        compare_file(WrittenOptions.of(context))
        return
    specs = shared.counted_specs(context, specs, machine)
    target, verbose = shared.target_of(given), given.pop("verbose")
    if match is not None:
        specs = _matched(specs, match, given)
    if (option := varied(given)) is not None:
        _over(option, specs, target, given, ordered=sort is not None, verbose=verbose)
        return
    thorough = verbose or target.form == "json"
    try:
        comparison = compare(*specs, progress=say, thorough=thorough, sort=sort, **given)
    except StreamsError:  # two numbers are two runs of systems with one stream
        _over("N", specs, target, given, ordered=sort is not None, verbose=verbose)
        return
    target.document(document(comparison, verbose=verbose))
    shared.verdict(comparison.ledgers)


def _matched(specs: list[str], match: str, given: dict[str, Any]) -> list[str]:
    """The specs with the depths at which they cost as much as the first.

    Raises:
        UsageError: it is no quantity that can be matched, or several sizes are given, at which that differs.
    """
    from xfcost.api.matching import WORDS, matched
    from xfcost.ledger.option_readers import one_of
    from xfcost.spec.load import expanded

    quantity = one_of(WORDS)("--match", match)
    at = {name: None if "," in str(given[name]) else given[name] for name in ("N", "size", "batch")}
    return matched(expanded(specs), quantity, {**given, **at, "batch": at["batch"] or 1}, say)


def _over(
    option: str, specs: list[str], target: shared.Target, given: dict[str, Any], *, ordered: bool, verbose: bool
) -> None:  # fmt: skip
    """A line for each value of an option and each system.

    Raises:
        UsageError: systems are `ordered`, or `--lane` is given: both are of one run.
    """
    from xfcost.spec.load import expanded
    from xfcost.spec.models import models

    if given.pop("lane") is not None or ordered:
        raise UsageError(f"--{option} {given[option]}: --lane and --sort are of one run; leave one of them out")
    deliver_table(option, expanded(specs, models()), target, given, several=True, verbose=verbose)
