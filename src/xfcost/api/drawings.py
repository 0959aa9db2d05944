"""Systems on one page: their blocks side by side, and their operations."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from xfcost.api.options import DrawnOptions, Progress, takes
from xfcost.api.runs import make_run, run_options
from xfcost.api.systems import check_options, mixing_limit, open_systems
from xfcost.counting.diagram import Diagram
from xfcost.counting.diagram import diagram as drawn
from xfcost.counting.glance import Glance
from xfcost.counting.glance import glance as listed
from xfcost.counting.system import AccountOptions, System
from xfcost.ledger.errors import NoNumbersError, UsageError
from xfcost.ledger.ledger import Ledger
from xfcost.spec.placement import place
from xfcost.spec.run import Run

if TYPE_CHECKING:
    import torch
    from typing_extensions import Unpack

_MOST_DRAWN = 4


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
    run, progress = make_run(**run_options(options)), options.get("progress")
    systems = open_systems(specs, options, progress)
    if len(systems) > _MOST_DRAWN:
        raise UsageError(f"diagram: got {len(systems)} systems; expected at most {_MOST_DRAWN}")
    return drawn(
        [_ledger(one, run, options, progress) if one.loaded is None else place(one.loaded, run) for one in systems]
    )


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
    run, progress = make_run(**run_options(options)), options.get("progress")
    return listed([_ledger(one, run, options, progress) for one in open_systems(specs, options, progress)])


def _ledger(system: System, run: Run, options: Mapping[str, Any], progress: Progress | None) -> Ledger:
    """The ledger of one system, with orders; of a module with its kinds, where it can be run on real numbers.

    Raises:
        XfcostError: it can't have that size, or an option is for specs only.
    """
    check_options(system, run)
    how = AccountOptions(strict=bool(options.get("strict")), progress=progress)
    try:
        limit = mixing_limit(options.get("mixing", True), options.get("mixing_limit"))
        return system.account(run, how._replace(mixing=limit))
    except NoNumbersError as error:
        how.say(f"{error}; its kinds are left out here")
        return system.account(run, how)
