"""`xfcost.summary`: a table of a model's modules on one line of code."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from xfcost.api.analysis import analyze
from xfcost.api.options import AnalyzeOptions, takes
from xfcost.ledger.ledger import Ledger

if TYPE_CHECKING:
    import torch
    from typing_extensions import Unpack


@takes(AnalyzeOptions)
def summary(
    model: str | os.PathLike[str] | torch.nn.Module,
    x: Any = None,
    *,
    depth: int | None = None,
    **options: Unpack[AnalyzeOptions],
) -> Ledger:
    """Print a model's modules as a tree with output shapes, parameters, MACs and shares, after the totals.

    Args:
        model: what `analyze` takes: a torch module, a preset, a path, a published model.
        x: the example inputs of a module, as `example_inputs` of `analyze`; None takes them from its first layer, and a
            note gives them.
        depth: levels of the tree; None is all of them.
        **options: as for `analyze`.

    Returns:
        The Ledger that is printed.

    Raises:
        XfcostError: bad input; the message says what was expected and how to mend it.
    """
    from xfcost.report.console import show
    from xfcost.views.analyze import document

    given: dict[str, Any] = dict(options) | ({} if x is None else {"example_inputs": x})
    ledger = analyze(model, **given)
    show(document(ledger, None if ledger.metadata.stages else "module", depth=depth).terminal)
    return ledger
