"""`xfcost layers`."""

from __future__ import annotations

from typing import Annotated, Any

from xfcost.commands import options as shared


@shared.options(*shared.REPORT)
def run(
    N: Annotated[str, shared.option("--N", "N", "Sequence length n.")],
    d: Annotated[str, shared.option("--d", "D", "Width d of each token.")],
    k: Annotated[str, shared.option("--k", "K", "Kernel size k of a convolution, odd.")] = "3",
    r: Annotated[
        str | None, shared.option("--r", "R", "Neighbourhood r of restricted self-attention, odd (default: about √n).")
    ] = None,
    **given: Any,
) -> None:
    """Derive the layer-type table of "Attention Is All You Need".

    For self-attention, recurrent, convolutional and restricted self-attention layers: complexity per layer from the
    formulas, sequential operations from running modules, and maximum path length from what stacked layers read, next to
    the values of the paper.

    Example: xfcost layers --N 1024 --d 512
    """
    from xfcost.questions.tables.answer import layer_types
    from xfcost.questions.tables.layers_text import document

    target = shared.target_of(given)
    table = layer_types(N=N, d=d, k=k, r=r)
    target.document(document(table))
