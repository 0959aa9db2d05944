"""Systems on one page: their blocks side by side."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from xfcost.api.drawings import drawn_ledger
from xfcost.api.options import DrawnOptions, takes
from xfcost.api.runs import make_run, run_options
from xfcost.api.systems import open_systems
from xfcost.comparing.diagram import MOST_DRAWN, Diagram
from xfcost.comparing.diagram import diagram as drawn
from xfcost.ledger.errors import UsageError
from xfcost.spec.placement import place

if TYPE_CHECKING:
    import torch
    from typing_extensions import Unpack


@takes(DrawnOptions)
def diagram(
    *specs: str | os.PathLike[str] | torch.nn.Module | tuple[torch.nn.Module, Any], **options: Unpack[DrawnOptions]
) -> Diagram:
    """One block of each system, side by side; of one system a block of each stage that differs from the others.

    Args:
        *specs: one to four systems, as `compare` takes them.
        **options: as for `analyze`.

    Raises:
        XfcostError: bad input; the message says what was expected and how to mend it.
    """
    run = make_run(**run_options(options))
    systems = open_systems(specs, options, options.get("progress"))
    if len(systems) > MOST_DRAWN:
        raise UsageError(f"diagram: got {len(systems)} systems; expected at most {MOST_DRAWN}")
    return drawn([drawn_ledger(one, run, options) if one.loaded is None else place(one.loaded, run) for one in systems])
