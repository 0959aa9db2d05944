"""`xfcost stream`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from xfcost.api.options import SettingsOption, SizeOptions
from xfcost.commands import options as shared
from xfcost.report.messages import say


@shared.options(SizeOptions, "dtype", SettingsOption, *shared.DRAWING, **shared.OF_A_FORWARD)
def run(
    spec: Annotated[str, shared.spec_argument("A preset, a path, or a config.json of transformers.")],
    seed: Annotated[str, typer.Option("--seed", metavar="INT", help="Of the weights and the input.")] = "0",
    **given: Any,
) -> None:
    """The residual stream of the running model.

    The model is built with random weights and run on a random input, both of a seed, on the CPU. For every sub-layer:
    the stream X, what it adds (Δ), and what leaves it (X′), as norms, shares and cosines; the check that what leaves a
    block is what entered it and every Δ, to rounding; and how many rows of Δ change when one token of the input does.
    The matrices of a small model (`tiny`) are printed whole, and drawn with -o.

    Example: xfcost stream tiny -o stream.svg
    """
    from xfcost.api.residual_stream import stream
    from xfcost.report.residual_stream import document

    target = shared.target_of(given)
    found = stream(spec, seed=seed, progress=say, **given)

    def draw(ending: str) -> bytes:
        from xfcost.report.residual_stream_figure import stream_bytes

        return stream_bytes(found, ending)

    target.document(document(found), draw)
    if not found.exact:
        raise typer.Exit(1)
