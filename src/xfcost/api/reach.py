"""How far information travels: of specs composed, of modules found in a run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from xfcost.api.options import (
    ExampleOptions,
    InputOptions,
    Progress,
    ProgressOption,
    SettingsOption,
    SizeOptions,
    takes,
)
from xfcost.api.runs import make_run
from xfcost.api.systems import open_one, running
from xfcost.counting.reach.composed import reach as composed
from xfcost.counting.reach.result import Reach
from xfcost.counting.system import SpecSystem, System
from xfcost.ledger.errors import UsageError, XfcostError, shown
from xfcost.spec.run import Run

if TYPE_CHECKING:
    import torch
    from typing_extensions import Unpack

    from xfcost.torch_models.any_model.system import ModuleSystem


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
    systems = [open_one("reach", spec, options, progress)]
    return reaches(systems, make_run(N=options.get("N"), size=options.get("size")), place_of(token), progress)[0]


def reaches(systems: Sequence[System], run: Run, token: Sequence[int] | None, progress: Progress | None) -> list[Reach]:
    """The reach of each system at the size of the run.

    Raises:
        XfcostError: it can't have that size, or has no such token, or no tokens.
    """
    say = progress or (lambda text: None)
    return [_reach(one, run, token, say) for one in systems]


def _reach(system: System, run: Run, token: Sequence[int] | None, say: Progress) -> Reach:
    if isinstance(system, SpecSystem):
        return composed(system.loaded, run, token)
    module = cast("ModuleSystem", system)
    with running(module):
        from xfcost.torch_models.any_model.system import lengths_of
        from xfcost.torch_models.reach.any_reach import reach_of_module

        say(f"changing one token of {module.name} at a time …")
        lengths, longer = lengths_of(run), None
        if lengths.tokens is not None:
            with suppress(XfcostError), module.module.on_cpu(lengths._replace(tokens=2 * lengths.tokens)) as built:
                longer = built[1]
        with module.module.on_cpu(lengths) as (model, given):
            return reach_of_module(model, given, module.name, token, longer=longer)


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
