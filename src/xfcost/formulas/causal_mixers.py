"""Bases of mixers by causality: optionally causal, approximately causal, never causal, always causal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Literal

import msgspec

from xfcost.formulas.component import ComponentError, Mixer, MultiHead, Operation, Place, single_token, tag_of
from xfcost.formulas.rows import decode_step

if TYPE_CHECKING:
    from typing_extensions import Self


class CausalMixer(MultiHead, frozen=True, kw_only=True):
    """A mixer that has an exactly causal form."""

    causal: bool | None = None
    """Whether a token reads no later token; by default as its stream: true in a decoder, else false."""


class ApproximatelyCausalMixer(MultiHead, frozen=True, kw_only=True):
    """A mixer whose causal form is approximate: later tokens are never read, yet change which tokens are."""

    leak: ClassVar[str]
    """How later tokens have influence, for messages (`later tokens are sorted too, and move the chunks' borders`)."""

    causal: bool | Literal["approximate"] | None = None
    """`approximate`: no later token is read, yet later tokens influence which tokens are read. No exactly causal form
    exists."""

    def with_stream_defaults(self, *, decoder: bool) -> Self:
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


class NonCausalMixer(MultiHead, frozen=True, kw_only=True):
    """A mixer that has no causal form."""

    non_causal_reason: ClassVar[str]
    """The reason, for messages (`every output row mixes all tokens`)."""

    causal: bool | None = None
    """Only false: this mechanism has no causal form."""

    def check(self, place: Place) -> None:
        if self.causal:
            raise ComponentError(
                "causal",
                f"{tag_of(type(self))!r} has no causal form: {self.non_causal_reason}; write causal: false "
                "(where it isn't given, a decoder's mixers are causal)",
            )
        super().check(place)


class AlwaysCausalMixer(Mixer, frozen=True):
    """A mixer of a sequence that is always causal: a token reads those up to itself, directly or through a state."""

    @property
    def causality(self) -> Literal["exact"]:
        return "exact"

    def check(self, place: Place) -> None:
        if len(place.grid.sides) != 1 or place.grid.special:
            kind, tokens = tag_of(type(self)), place.grid.shape_text()
            raise ComponentError("kind", f"{kind!r} needs a sequence without special tokens, got {tokens} tokens")

    def step(self, place: Place) -> Iterator[Operation]:
        """The rows of one token, which reads the earlier ones from caches and states."""
        return decode_step(self.operations(single_token(place)), place.grid.total)
