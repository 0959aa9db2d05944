"""Checks of reversible stages, whose blocks recompute their inputs from their outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from xfcost.formulas.component import Joining, Residual, SubLayer, tag_of
from xfcost.spec.reader import Source, YamlPath

if TYPE_CHECKING:
    from xfcost.spec.architecture import Part

HALVES: Final = 2


def is_reversible(residual: Joining) -> bool:
    """Does each sub-layer read one of two streams and add to the other?"""
    return isinstance(residual, Residual) and residual.form == "reversible"


def check_residual(path: YamlPath, residual: Joining, source: Source) -> None:
    """Check a stage's residual, written at `path`.

    Raises:
        SpecError: a norm of the sum can't be inverted; or `join` is given where there is one stream.
    """
    if not isinstance(residual, Residual):
        return
    if is_reversible(residual) and residual.place == "post":
        raise source.error(
            (*path, "place"),
            "'post' normalises the sum, from which a reversible block can't work out what came in; "
            "expected 'pre' or 'res_post'",
        )
    if residual.join is not None and not is_reversible(residual):
        raise source.error(
            (*path, "join"), "says how two streams end, and there is one; leave it out, or give form: reversible"
        )


def check_block(path: YamlPath, parts: Sequence[Part], residual: Joining, source: Source) -> None:
    """Check the sub-layers of a block in a stage whose residual is `residual`.

    Raises:
        SpecError: a sub-layer has another form of residual than its stage; or a reversible block isn't two
            sub-layers that keep grid and width.
    """
    reversible = is_reversible(residual)
    for number, part in enumerate(parts):
        if is_reversible(part.residual) != reversible:
            form = "'reversible'" if reversible else "'ordinary'"
            raise source.error(
                (*path, number, "residual"),
                f"the form of the residual is {form} here, as the stage says; it holds for all",
            )
        own = part.component.residual if isinstance(part.component, SubLayer) else None
        if own is not None:
            check_residual((*path, number, "residual"), own, source)
    if not reversible:
        return
    if len(parts) != HALVES:
        raise source.error(
            path,
            f"a reversible block is y₁ = x₁ + f(x₂), y₂ = x₂ + g(y₁): expected two sub-layers, got {len(parts)}",
        )
    for number, part in enumerate(parts):
        if isinstance(part.component, SubLayer) and part.component.special_tokens_only:
            raise source.error(
                (*path, number, "kind"),
                f"{tag_of(type(part.component))!r} changes the class token alone; reversible blocks add to every token",
            )
        if part.component.out(part.place) != (part.place.grid, part.place.dim):
            raise source.error(
                (*path, number, "kind"),
                f"{tag_of(type(part.component))!r} changes the grid or the width, and is added to the other stream, "
                "which keeps them",
            )
