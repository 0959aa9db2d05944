"""Systems on one page: their operations."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from xfcost.api.drawings import drawn_ledger
from xfcost.api.options import DrawnOptions, takes
from xfcost.api.runs import make_run, run_options
from xfcost.api.systems import open_systems
from xfcost.questions.glance.operations import Glance
from xfcost.questions.glance.operations import glance as listed

if TYPE_CHECKING:
    import torch
    from typing_extensions import Unpack


@takes(DrawnOptions)
def glance(
    *specs: str | os.PathLike[str] | torch.nn.Module | tuple[torch.nn.Module, Any], **options: Unpack[DrawnOptions]
) -> Glance:
    """Every named operation of the systems once: its mixing kind, its order in N, where it occurs, its parameters.

    Args:
        *specs: systems, as `compare` takes them.
        **options: as for `analyze`.

    Raises:
        XfcostError: bad input; the message says what was expected and how to mend it.
    """
    run = make_run(**run_options(options))
    return listed([drawn_ledger(one, run, options) for one in open_systems(specs, options, options.get("progress"))])
