"""How far information travels: of specs composed, of modules found in a run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from xfcost.api.options import (
    ExampleOptions,
    InputOptions,
    ProgressOption,
    SettingsOption,
    SizeOptions,
    takes,
)
from xfcost.api.runs import make_run
from xfcost.api.systems import open_one
from xfcost.counting.reach.result import Reach
from xfcost.ledger.errors import UsageError, shown

if TYPE_CHECKING:
    import torch
    from typing_extensions import Unpack


class ReachOptions(SizeOptions, SettingsOption, ExampleOptions, InputOptions, ProgressOption, total=False):
    """The keywords of `reach`."""


@takes(ReachOptions)
def reach(
    spec: str | os.PathLike[str] | torch.nn.Module,
    *,
    token: str | int | Sequence[int] | None = None,
    **options: Unpack[ReachOptions],
) -> Reach:
    """After each block: how many input tokens can influence a token, and when every token depends on every other.

    Args:
        spec: a preset's name, a path to a YAML file, a torch module with inputs, or the name of one, as for `analyze`.
        token: the place whose `maps` are taken, `"3,4"` or (3, 4); the middle by default.
        **options: as for `analyze`.

    Raises:
        XfcostError: bad input; the message says what was expected and how to mend it.
    """
    progress = options.get("progress")
    system, run = open_one("reach", spec, options, progress), make_run(N=options.get("N"), size=options.get("size"))
    return system.reach(run, place_of(token), progress or (lambda text: None))


def place_of(given: str | int | Sequence[int] | None) -> tuple[int, ...] | None:
    """`3,4` -> (3, 4).

    Raises:
        UsageError: these are no whole numbers.
    """
    if given is None:
        return None
    try:
        parts = given.split(",") if isinstance(given, str) else [given] if isinstance(given, int) else list(given)
        return tuple(int(part) for part in parts)
    except (TypeError, ValueError):
        raise UsageError(
            f"--token {shown(given)}: expected whole numbers, a row and a column (--token 3,4), or the place in a "
            "sequence (--token 100)"
        ) from None
