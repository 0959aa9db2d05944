"""What a reach leaves out, or takes at its largest: choices by content, competition, earlier segments."""

from __future__ import annotations

from collections.abc import Iterator

from xfcost.formulas.component import Mixer
from xfcost.layers.moe import Moe
from xfcost.spec.architecture import Architecture


def notes_of(architecture: Architecture) -> tuple[str, ...]:
    """Each note once."""
    return tuple(dict.fromkeys(_notes(architecture)))


def _notes(architecture: Architecture) -> Iterator[str]:
    for part, *_ in architecture.parts():
        component = part.component
        if isinstance(component, Mixer):
            yield from _of_mixer(component)
        if isinstance(component, Moe) and component.capacity is not None:
            yield "experts of a limited capacity: that a token takes another's slot is not counted as influence"
        if part.residual != "none" and part.residual.norm == "group_norm":
            yield "a group norm's mean and variance are over all tokens: through it every token is influenced by all"


def _of_mixer(component: Mixer) -> Iterator[str]:
    if component.content_selects_tokens:
        yield (
            f"{component.label()}: content selects the tokens that are read; counted are all that it can select, over "
            "all contents"
        )
    if component.causality == "approximate":
        yield f"{component.label()}: later tokens sway which tokens are read; that is not counted as influence"
    if getattr(component, "past", 0):
        yield f"{component.label()}: it also reads earlier segments, which are not counted"
