"""How far information travels: of specs composed, of modules found in a run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from xfcost.api.arguments import arguments_checked
from xfcost.api.notebooks import show_as
from xfcost.api.specs import Progress
from xfcost.api.systems import OfModules, open_systems, running
from xfcost.counting.reach.composed import reach as composed
from xfcost.counting.reach.result import Reach
from xfcost.counting.run_options import make_run
from xfcost.counting.system import SpecSystem, System
from xfcost.ledger.errors import UsageError, shown
from xfcost.spec.run import Run

if TYPE_CHECKING:
    import torch
    from rich.console import RenderableType

    from xfcost.torch_models.any_model.system import ModuleSystem


@arguments_checked
def reach(  # noqa: PLR0913 - options
    spec: str | os.PathLike[str] | torch.nn.Module,
    *,
    N: int | str | Sequence[int] | None = None,
    size: int | str | Sequence[int] | None = None,
    token: str | int | Sequence[int] | None = None,
    settings: Sequence[str] | None = (),
    example_inputs: Any = None,
    example_kwargs: Mapping[str, Any] | None = None,
    inputs: Sequence[str] = (),
    build: Sequence[str] = (),
    progress: Progress | None = None,
) -> Reach:
    """After each block: how many input tokens can influence a token, and when every token has met every other.

    Args:
        spec: a preset's name, a path to a YAML file, a torch module with inputs, or the name of one, as for `analyze`.
        N: tokens of the first stage.
        size: the image's size, in place of N.
        token: the place whose `maps` are taken, `"3,4"` or (3, 4); the middle by default.
        settings: overrides, `key.path=value` each.
        example_inputs: of a module: its inputs, or a function of N that gives them.
        example_kwargs: of a module: keyword inputs beside positional ones.
        inputs: of a named module: `1xNx768`, each input.
        build: of a named class or function: its arguments, `depth=12` each.
        progress: called with a line of text before each long step.

    Raises:
        XfcostError: bad input; the message says what was expected and how to mend it.
    """
    of = OfModules(inputs, build, example_inputs, example_kwargs)
    systems = open_systems([spec], of, settings, progress)
    if len(systems) != 1:
        raise UsageError(f"reach: {shown(spec)} stands for {len(systems)} systems; give one")
    return reaches(systems, make_run(N=N, size=size), place_of(token), progress)[0]


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
        with module.module.on_cpu(lengths_of(run)) as (model, given):
            return reach_of_module(model, given, module.name, token)


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


def _render(found: Reach, width: int) -> RenderableType:
    from xfcost.report.reach import document

    return document([found]).terminal(width)


show_as("Reach", _render)
