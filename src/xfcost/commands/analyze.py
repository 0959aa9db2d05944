"""`xfcost analyze`."""

from __future__ import annotations

from typing import Annotated, Final, get_args

import typer

from xfcost.commands import options
from xfcost.commands.options import (
    Attention,
    Batch,
    Device,
    Devices,
    Dtype,
    Force,
    FormatOption,
    Logits,
    MemoryLevel,
    Mfu,
    Mode,
    NewTokens,
    Optimizer,
    Output,
    Peak,
    Rate,
    Settings,
    Size,
    Sustained,
    Tokens,
    Trace,
    TrainTokens,
    Verbose,
)
from xfcost.ledger.errors import UsageError, printable
from xfcost.ledger.objects import View
from xfcost.report.output import check_target

VIEWS: Final = get_args(View)


def run(  # noqa: PLR0913 - options
    spec: Annotated[str, typer.Argument(help="A preset or a path to a YAML file.")],
    N: Tokens = None,
    size: Size = None,
    batch: Batch = "1",
    dtype: Dtype = "float32",
    attention: Attention = "eager",
    memory_level: MemoryLevel = None,
    mode: Mode = "forward",
    new_tokens: NewTokens = None,
    logits: Logits = None,
    optimizer: Optimizer = None,
    tokens: TrainTokens = None,
    peak: Peak = None,
    mfu: Mfu = None,
    sustained: Sustained = None,
    devices: Devices = None,
    rate: Rate = None,
    settings: Settings = None,
    by: Annotated[str | None, typer.Option("--by", help=f"Group rows: {options.any_of(VIEWS)}.")] = None,
    trace: Trace = True,
    device: Device = None,
    format_: FormatOption = None,
    verbose: Verbose = False,
    output: Output = None,
    force: Force = False,
) -> None:
    """What one system costs, checked on the real torch model.

    Every operation is counted in closed form, classified by how it mixes tokens, and checked on the real torch model
    (fvcore's trace and torch's dispatcher); `--no-trace` answers without torch, `--device` runs and times the model.
    """
    from xfcost.api import analyze

    view = _view(by)
    form = options.chosen_format(format_, output)
    check_target(output, force=force)
    ledger = analyze(
        spec,
        N=N,
        size=size,
        batch=batch,
        dtype=dtype,
        attention=attention,  # type: ignore[arg-type]
        memory_level=memory_level,
        mode=mode,  # type: ignore[arg-type]
        new_tokens=new_tokens,
        logits=logits,  # type: ignore[arg-type]
        optimizer=optimizer,
        tokens=tokens,
        peak=peak,
        mfu=mfu,
        sustained=sustained,
        devices=devices,
        rate=rate,
        settings=settings or (),
        trace=trace,
        device=device,
        progress=options.progress,
    )
    if form == "table" and output is None:
        from xfcost.report.table import print_ledger

        print_ledger(ledger, view, verbose=verbose)
    else:
        from xfcost.report.export import ledger_text

        options.deliver(ledger_text(ledger, form, view, verbose=verbose), output, force=force)
    options.verdict([ledger])


def _view(by: str | None) -> View | None:
    if by is not None and by not in VIEWS:
        raise UsageError(f"--by {printable(by)}: expected one of {', '.join(VIEWS)}")
    return by  # type: ignore[return-value]
