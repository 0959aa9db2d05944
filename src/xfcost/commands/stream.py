"""`xfcost stream`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from xfcost.commands import options as shared
from xfcost.report.messages import say

_PICTURES: Final = "svg, png or pdf draws it; csv, json, md, tex or txt writes the report."


@shared.run_options("N", "size", "dtype", **shared.OF_A_FORWARD)
def run(  # noqa: PLR0913 - options
    spec: Annotated[str, shared.spec_argument("A preset, a path, or a config.json of transformers.")],
    seed: Annotated[str, typer.Option("--seed", metavar="INT", help="Of the weights and the input.")] = "0",
    settings: shared.Settings = None,
    format_: shared.FormatOption = None,
    columns: shared.Columns = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help=_PICTURES)] = None,
    force: shared.Force = False,
    **options: Any,
) -> None:
    """The residual stream of the running model.

    The model is built with random weights and run on a random input, both of a seed, on the CPU. For every sub-layer:
    the stream X, what it adds (Δ), and what leaves it (X′), as norms, shares and cosines; the check that what leaves a
    block is what entered it and every Δ, to rounding; and how many rows of Δ change when one token of the input does.
    The matrices of a small model (`tiny`) are printed whole, and drawn with -o.
    """
    from xfcost.api.residual_stream import stream
    from xfcost.report.figure import FIGURES
    from xfcost.report.output import check_target, ending_of
    from xfcost.report.residual_stream import document

    ending = None
    if output is not None and format_ is None:
        ending = ending_of(output, (*FIGURES, *shared.ENDINGS), ", or give --format")
    elif output is not None:
        ending = output.suffix.lower()
    picture = ending if ending in FIGURES else None
    form = shared.chosen_format(format_, None if picture else output)
    check_target(output, force=force)
    found = stream(spec, seed=seed, settings=settings, progress=say, **options)
    target = None if picture else output
    report = document(found)
    shared.deliver_report(report.terminal, lambda: report.text(form), form, target, force=force)
    if picture is not None:
        from xfcost.report.residual_stream_figure import stream_bytes

        shared.deliver(stream_bytes(found, picture), output, force=force)
    if not found.exact:
        raise typer.Exit(1)
