"""`xfcost compare`."""

from __future__ import annotations

from typing import Annotated

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


def run(  # noqa: PLR0913 - options
    specs: Annotated[list[str], typer.Argument(help="Two presets or paths, or more; `common-*` for several presets.")],
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
    trace: Trace = False,
    device: Device = None,
    format_: FormatOption = None,
    verbose: Verbose = False,
    output: Output = None,
    force: Force = False,
) -> None:
    """Systems side by side at the same N.

    Costs by mixing kind, ratios against the first, growth exponents, and the N at which one overtakes another. Counted
    in closed form; `--trace` checks every system on the real torch model (fvcore's trace and torch's dispatcher).
    """
    from xfcost.api import compare
    from xfcost.report.output import check_target

    form = options.chosen_format(format_, output)
    check_target(output, force=force)
    comparison = compare(
        *specs,
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
        from xfcost.report.compare import print_comparison

        print_comparison(comparison, verbose=verbose)
    else:
        from xfcost.report.export import comparison_text

        options.deliver(comparison_text(comparison, form, verbose=verbose), output, force=force)
    options.verdict(comparison.ledgers)
