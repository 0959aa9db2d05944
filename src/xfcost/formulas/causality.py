"""Mixers by causality: with an exactly causal form, with one that leaks, with none; and those that have no other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Literal

import msgspec

from xfcost.formulas.component import Mixer, MultiHead, Place, tag_of
from xfcost.ledger.errors import ComponentError

if TYPE_CHECKING:
    from typing_extensions import Self


class Causal(MultiHead, frozen=True, kw_only=True):
    """A mixer that has an exactly causal form."""

    causal: bool | None = None
    """Whether a token reads no later token; by default as its stream: true in a decoder, else false."""

    def in_stream(self, *, decoder: bool) -> Self:
        return msgspec.structs.replace(self, causal=decoder) if self.causal is None else self


class ApproximatelyCausal(MultiHead, frozen=True, kw_only=True):
    """A mixer whose causal form leaks: later tokens are never read, and yet sway what is."""

    leak: ClassVar[str]
    """Through what, as a sentence's end (`later tokens are sorted too, and move the chunks' borders`)."""

    causal: bool | Literal["approximate"] | None = None
    """`approximate`: no later token is read, yet later tokens influence which tokens are read. No exactly causal form
    exists."""

    def in_stream(self, *, decoder: bool) -> Self:
        return (
            msgspec.structs.replace(self, causal="approximate" if decoder else False) if self.causal is None else self
        )

    def check(self, place: Place) -> None:
        if self.causal is True:
            kind = tag_of(type(self))
            raise ComponentError(
                "causal", f"{kind!r} has no exactly causal form: {self.leak}; write causal: approximate"
            )
        super().check(place)

    def notes(self, place: Place) -> Iterator[str]:
        if self.causal == "approximate":
            yield f"causal: approximate; {self.leak}"


class NeverCausal(MultiHead, frozen=True, kw_only=True):
    """A mixer that has no causal form."""

    because: ClassVar[str]
    """Why, as a sentence's end (`every output row mixes all tokens`)."""

    causal: bool | None = None
    """Only false: this mechanism has no causal form."""

    def in_stream(self, *, decoder: bool) -> Self:
        return msgspec.structs.replace(self, causal=decoder) if self.causal is None else self

    def check(self, place: Place) -> None:
        if self.causal:
            raise ComponentError(
                "causal",
                f"{tag_of(type(self))!r} has no causal form: {self.because}; write causal: false "
                "(where it isn't given, a decoder's mixers are causal)",
            )
        super().check(place)


class ReadsPast(Mixer, frozen=True):
    """A mixer that is causal whatever its stream: tokens read those up to themselves, through a state or directly."""

    @property
    def causality(self) -> Literal["exact"]:
        return "exact"


def check_sequence(kind: str, place: Place) -> None:
    """Raise ComponentError where tokens have no order of one axis."""
    if len(place.grid.sides) != 1 or place.grid.extra:
        raise ComponentError(
            "kind", f"{kind!r} walks along a sequence, and {place.grid.shape_text()} tokens stand here"
        )
