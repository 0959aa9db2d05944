"""What a spec says of its line in a survey of efficient attention (Tay et al. 2022, "Efficient Transformers")."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

SurveyClass = Literal["FP", "CP", "LP", "M", "LR", "KR", "RC", "DS", "Sparse"]

CLASSES: Final[dict[SurveyClass, str]] = {
    "FP": "fixed patterns",
    "CP": "combined patterns",
    "LP": "learned patterns",
    "M": "memory",
    "LR": "low rank",
    "KR": "kernels",
    "RC": "recurrence",
    "DS": "downsampling",
    "Sparse": "sparse activation of parameters",
}

# The value of a key that grows as √N, in a spec.
ROOT_OF_TOKENS: Final = "√N"
_ShortText = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
MechanismKeys = dict[str, Literal["√N"] | int | list[int] | None]


class Otherwise(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Other values of the mechanism's keys, under which its order is another: those of the paper, or of public code."""

    keys: MechanismKeys
    """Keys of the mechanism and their values; `√N` grows with N."""
    where: _ShortText
    """The same in words: `l = √N`."""


class SurveyEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A system's line in Table 1 of Tay et al. 2022, as printed; what xfcost derives stands beside it."""

    system: _ShortText
    """Name of the system."""
    classes: list[SurveyClass] = []
    """Classes that the table prints; none where it leaves the system out."""
    complexity: _ShortText | None = None
    """Complexity that the table prints."""
    decodes: bool | None = None
    """Whether the table says that it can decode autoregressively."""
    decoder: MechanismKeys | None = None
    """Keys of the mechanism in a decoder, where its causal form needs others than this spec has."""
    otherwise: Otherwise | None = None
    """A second choice of the mechanism's keys, with an order of its own."""
    note: str
    """Why the derived order is what it is, and in what it differs from the printed one."""
