"""`xfcost plot --metric throughput`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from xfcost.commands import options as shared
from xfcost.ledger.errors import UsageError
from xfcost.report.messages import say

THROUGHPUT: Final = "throughput"
# Options of a plot that say nothing of a curve over batches.
_OTHERS: Final = ("size", "mark", "device", "predict")


def plot_throughput(specs: Sequence[str], tokens: str | None, output: Path | None, given: Mapping[str, Any]) -> None:
    """Draw tokens per second of all samples over those of each, a line per system and device of `--on`.

    Raises:
        UsageError: there are no devices, one sample does not fit, or an option has no effect.
    """
    from xfcost.api.accounts import AccountOptions
    from xfcost.api.runs import make_run, run_options, timing_plan
    from xfcost.api.systems import open_systems, shared_run, system_ledgers
    from xfcost.counting.choosing import throughput
    from xfcost.counting.comparison import distinct
    from xfcost.counting.devices import read_several
    from xfcost.ledger.choosing import curve_records
    from xfcost.report.document import to_csv
    from xfcost.report.figure import FIGURES
    from xfcost.report.output import check_target, ending_of
    from xfcost.report.throughput_figure import summary, throughput_bytes

    for name in _OTHERS:
        if given[name]:
            raise UsageError(f"--{name} with --metric throughput: a line is over batches; leave --{name} out")
    if str(given["batch"]) != "1":
        raise UsageError(f"--batch {given['batch']} with --metric throughput: a line is over batches; leave it out")
    if given["on"] is None:
        raise UsageError("--metric throughput: on which devices? Name them, as in --on h100-sxmx8")
    if given["mode"] not in ("decode", "forward"):
        raise UsageError(f"--mode {given['mode']}: --metric throughput is of --mode decode")
    timing_plan(None, given)
    devices = read_several(given["on"])
    target = output or shared.default_target(specs, THROUGHPUT)
    form = ending_of(target, (*FIGURES, ".csv"))
    check_target(target, force=given["force"])
    options = dict(given) | {"mode": "decode"}
    run = make_run(**run_options(options) | {"N": tokens, "on": devices[0]})
    systems = open_systems(specs, options, say)
    run = shared_run(run, systems)
    if run.default_note is not None:
        say(run.default_note)
    how = AccountOptions(orders=False, strict=given["strict"], progress=say)
    ledgers = system_ledgers(systems, run._replace(on=None, mfu=None, mbu=None), how)
    names = distinct([ledger.metadata.name for ledger in ledgers])
    curves = [
        throughput(name, ledger, on, run.mfu, run.mbu)
        for name, ledger in zip(names, ledgers, strict=True)
        for on in devices
    ]
    rows = (row for curve in curves for row in curve_records(curve))
    content = to_csv(list(rows)) if form == ".csv" else throughput_bytes(curves, form)
    shared.deliver_lines(summary(curves))
    shared.deliver(content, target, force=given["force"])
