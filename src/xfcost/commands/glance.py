"""`xfcost glance`."""

from __future__ import annotations

from typing import Annotated

import typer

from xfcost.commands import options
from xfcost.commands.options import Attention, Batch, Dtype, Force, FormatOption, Output, Settings, Size, Tokens


def run(  # noqa: PLR0913 - options
    specs: Annotated[list[str], typer.Argument(help="Presets or paths.")],
    N: Tokens = None,
    size: Size = None,
    batch: Batch = "1",
    dtype: Dtype = "float32",
    attention: Attention = "eager",
    settings: Settings = None,
    format_: FormatOption = None,
    output: Output = None,
    force: Force = False,
) -> None:
    """Every named operation, on one page.

    Its mixing kind, its order in N, where it occurs and what parameters it holds.
    """
    from xfcost.api import account
    from xfcost.counting.glance import glance
    from xfcost.counting.run_options import make_run
    from xfcost.report.glance import glance_text, print_glance
    from xfcost.report.output import check_target
    from xfcost.spec.load import expanded, load

    form = options.chosen_format(format_, output)
    check_target(output, force=force)
    run_ = make_run(N=N, size=size, batch=batch, dtype=dtype, attention=attention)
    page = glance([account(load(spec, settings or ()), run_, trace=False) for spec in expanded(specs)])
    if form == "table" and output is None:
        print_glance(page)
        return
    options.deliver(glance_text(page, form), output, force=force)
