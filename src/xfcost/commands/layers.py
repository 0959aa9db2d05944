"""`xfcost layers`."""

from __future__ import annotations

from typing import Annotated

import typer

from xfcost.commands import options as shared


def run(  # noqa: PLR0913 - options
    N: Annotated[str, typer.Option("--N", metavar="N", help="Tokens n of the sequence.")],
    d: Annotated[str, typer.Option("--d", metavar="D", help="Width d of a token.")],
    k: Annotated[str, typer.Option("--k", metavar="K", help="Kernel size k of a convolution, odd.")] = "3",
    r: Annotated[
        str | None,
        typer.Option(
            "--r", metavar="R", help="Neighbourhood r of restricted self-attention, odd; about √n by default."
        ),
    ] = None,
    format_: shared.FormatOption = None,
    columns: shared.Columns = None,
    output: shared.Output = None,
    force: shared.Force = False,
) -> None:
    """The layer-type table of "Attention Is All You Need", derived.

    Self-attention, recurrent, convolutional and restricted self-attention layers: complexity per layer from the
    formulas, sequential operations from the running modules, maximum path length from what stacked layers read, beside
    what the paper prints.
    """
    from xfcost.api.layer_types import layer_types
    from xfcost.report.layer_types import document
    from xfcost.report.output import check_target

    form = shared.chosen_format(format_, output)
    check_target(output, force=force)
    table = layer_types(N=N, d=d, k=k, r=r)
    report = document(table)
    shared.deliver_report(report.terminal, lambda: report.text(form), form, output, force=force)
