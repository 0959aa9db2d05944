"""`xfcost stream`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from xfcost.api.options import SettingsOption, SizeOptions
from xfcost.commands import options as shared
from xfcost.report.messages import say


@shared.options(SizeOptions, "dtype", SettingsOption, *shared.DRAWING, **shared.OF_A_FORWARD)
def run(
    spec: Annotated[str, shared.spec_argument("A preset, the path of a YAML file, or a config.json of transformers.")],
    seed: Annotated[str, shared.option("--seed", "INT", "Seed of the weights and the input.")] = "0",
    **given: Any,
) -> None:
    """Show the residual stream of the running model.

    The model runs on the CPU with random weights and a random input. For each sub-layer the report has norms, shares
    and cosines of the stream X, of the update Δ that the sub-layer adds, and of the result X′. It checks that the
    result of a block is its input plus all updates, up to rounding, and counts the rows of Δ that change when one input
    token changes. For a small model (`tiny`) the matrices are printed, and -o draws them.

    Example: xfcost stream tiny -o stream.svg
    """
    from xfcost.questions.stream.answer import stream
    from xfcost.questions.stream.text import document

    target = shared.target_of(given)
    found = stream(spec, seed=seed, progress=say, **given)

    def draw(ending: str) -> bytes:
        from xfcost.questions.stream.figure import stream_bytes

        return stream_bytes(found, ending)

    target.document(document(found), draw)
    if not found.exact:
        raise typer.Exit(1)
