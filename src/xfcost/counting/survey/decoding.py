"""Can a system decode autoregressively? Its mixers are made causal and asked for a decode step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

import msgspec

from xfcost.counting.survey.orders import MixingPart
from xfcost.formulas.component import Component, ComponentError, Mixer, Place, tag_of

Answer = Literal["cached", "uncached", "approximate", "no"]

# From the most that a system can do to the least.
ANSWERS: Final[tuple[Answer, ...]] = ("cached", "uncached", "approximate", "no")


class Decoding(NamedTuple):
    """Whether a system decodes, and why it does not, or how."""

    answer: Answer
    reason: str | None = None


def decoding(parts: Iterable[MixingPart]) -> Decoding:
    """The least that any of the mixers can do: exactly causal and cached, uncached, approximate, not at all."""
    found = [_of_one(part.component, part.place) for part in parts]
    return max(found, key=lambda one: ANSWERS.index(one.answer))


def _of_one(component: Component, place: Place) -> Decoding:
    if not isinstance(component, Mixer):
        return Decoding("no", f"{tag_of(type(component)).replace('_', ' ')} reads all tokens, later ones too")
    refused: str | None = None
    for causal in _causal_forms(component):
        try:
            causal.check(place)
        except ComponentError as error:
            refused = refused or str(error)
            continue
        return _step_of(causal, place)
    return Decoding("no", refused or "a token reads later tokens")


def _causal_forms(component: Mixer) -> list[Mixer]:
    """The component exactly causal and approximately causal, as far as its keys can say so."""
    if "causal" not in component.__struct_fields__:
        return [component] if component.causality != "none" else []
    forms = [msgspec.structs.replace(component, causal=value) for value in (True, "approximate")]
    return [form for form in forms if form.causality != "none"]


def _step_of(causal: Mixer, place: Place) -> Decoding:
    """A causal mixer's decode step, where it has one."""
    if causal.causality == "approximate":
        return Decoding("approximate", getattr(causal, "leak", None))
    try:
        list(causal.decoding(place))
    except ComponentError as error:
        return Decoding("uncached", str(error))
    return Decoding("cached")
