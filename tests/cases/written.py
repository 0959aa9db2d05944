"""What the letters of docstrings' tables stand for: those of layers, and those that the place and heads define."""

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import msgspec

from cases import CASES
from cases.base import Letters, ceil_div, hidden_units, local_relation, of_hidden
from xfcost.formulas.component import Component, Place
from xfcost.layers.feed_forward import Dense, Geglu, Mlp, Swiglu
from xfcost.layers.heads import Classifier, FlattenClassifier, LanguageModel, MaskedLanguageModel, Pooler
from xfcost.layers.local_relation import LocalRelationEmbed
from xfcost.layers.moe import Moe
from xfcost.layers.stage_entries import PatchMerging, PoolingAttention
from xfcost.layers.stems import ConvEmbed, Patch, Projection
from xfcost.layers.tokens import AxisPosition, MemoryTokens, Position, Token, TokenType
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.local_attention import LocalRelation
from xfcost.mechanisms.pooling import Pooling, decomposed_bias
from xfcost.mechanisms.recurrent import Additive, Gru, Lstm, Maxout, Rnn, Sum, first_state
from xfcost.mechanisms.relative import Relative
from xfcost.mechanisms.residual_blocks import Bottleneck, ConvNext, InvertedResidual, squeezed
from xfcost.mechanisms.window import Window, log_cpb, scaled_cosine


def _moe(component: Any, place: Place) -> Letters:
    tokens, active, experts = place.grid.total, component.active, component.experts
    hidden = hidden_units(component.expert, place.dim)
    letters = of_hidden(component.expert, place) | {"E": experts, "A": active, "T": tokens * active}
    if component.capacity:
        letters["T"] = experts * ceil_div(round(100 * component.capacity) * active * tokens, 100 * experts)
    if component.shared:
        letters["H_s"] = component.shared.count * (component.shared.hidden or hidden)
    return letters | ({"G": component.groups.count} if component.groups else {})


def _conv_embed(component: Any, place: Place) -> Letters:
    sides, size, stride = place.grid.sides, component.size, component.stride
    padding = size // 2 if component.padding is None and stride < size else component.padding or 0
    return {
        "N'": prod((side + 2 * padding - size) // stride + 1 for side in sides), "k": size ** len(sides),
        "g": component.groups, "d'": component.channels or place.out_dim,
    }  # fmt: skip


LETTERS: dict[type[Component], Callable[[Any, Place], Letters]] = {
    Mlp: lambda component, place: of_hidden(component, place) | {
        "N": place.grid.special if component.tokens == "class_token" else place.grid.total,
        "d'": component.out_width or place.dim,
    },
    Swiglu: of_hidden,
    Geglu: of_hidden,
    Moe: _moe,
    LocalRelationEmbed: local_relation,
    Patch: lambda component, place: {
        "P": component.size, "C": place.dim, "d": place.out_dim,
        "N": prod(side // component.size for side in place.grid.sides),
    },
    Projection: lambda component, place: {"C": place.dim, "d": place.out_dim},
    ConvEmbed: _conv_embed,
    PatchMerging: lambda component, place: {"N'": prod(ceil_div(side, 2) for side in place.grid.sides)},
    PoolingAttention: lambda component, place: {
        "k": component.count, "d_k": component.head_dim or place.out_dim // component.heads,
    },
    MemoryTokens: lambda component, place: {"m": component.count},
    TokenType: lambda component, place: {"t": component.types},
    AxisPosition: lambda component, place: dict(zip("HW", place.grid.sides, strict=True)),
    Position: lambda component, place: {
        "R": component.length or place.grid.total, "T": place.grid.sides[0], "S": prod(place.grid.sides[1:]),
        "e": place.grid.special,
        **{f"s{'₀₁₂'[axis]}": side for axis, side in enumerate(component.shape or ())},
        **{f"w{'₀₁₂'[axis]}": width for axis, width in enumerate(component.widths or ())},
    },
    Classifier: lambda component, place: {"K": component.classes},
    FlattenClassifier: lambda component, place: {
        "P": component.pooled, "r": len(place.grid.sides), "K": component.classes, "H": component.hidden[-1],
        **{f"H{'₁₂'[layer]}": units for layer, units in enumerate(component.hidden)},
    },
    Pooler: lambda component, place: {"d'": component.width or place.dim, "K": component.classes or 0},
}  # fmt: skip

_GRID = Place(grid=Grid((4, 6)), dim=6, out_dim=6, vocabulary=11)
# Options that no case has; no module of them runs, and so no other component holds the shared tables.
MORE_EXAMPLES: tuple[tuple[Any, Place], ...] = (
    (Relative(heads=2, share="biases"), _GRID),
    (ConvNext(norm="rms_norm"), _GRID),
    (Mlp(hidden=9, tokens="class_token"), msgspec.structs.replace(_GRID, grid=Grid((4, 6), 2))),
    (Mlp(hidden=9, out_width=4), _GRID),
    (Dense(norm="rms_norm"), _GRID),
    (Patch(size=2, norm="rms_norm"), _GRID),
    (LocalRelationEmbed(norm="rms_norm"), _GRID),
    (Token(share="words"), _GRID),
    (AxisPosition(share="places"), _GRID),
    (Pooler(norm="rms_norm"), _GRID),
    (MaskedLanguageModel(norm="rms_norm", share="words", next_sentence=True), _GRID),
    (LanguageModel(norm="rms_norm", bias=True, share="words"), msgspec.structs.replace(_GRID, logits="last")),
)

# Docstrings whose tables are those of a kind too, of functions and classes that give some of its rows.
FURTHER: dict[type[Component], tuple[object, ...]] = {
    Window: (scaled_cosine, log_cpb),
    Pooling: (decomposed_bias,),
    LocalRelationEmbed: (LocalRelation,),
    Bottleneck: (squeezed,),
    InvertedResidual: (squeezed,),
    Rnn: (Additive,),
    Lstm: (Additive, first_state, Sum),
    Gru: (Additive, first_state, Maxout),
}

# Rows that no line of their kind names, by a pattern, each with the reason.
UNNAMED: dict[type[Component], Mapping[str, str]] = {
    Bottleneck: {"spatial_.*": "rows of another mechanism, which are held against its own docstring"},
}


def documents(component: type[Component]) -> tuple[object, ...]:
    """What has a docstring with its tables: its class, its bases, and what gives further rows."""
    bases = [each for each in component.__mro__ if each.__module__.startswith("xfcost")]
    return (*bases, *(further for base in bases for further in FURTHER.get(base, ())))


def letters_of(component: Any, place: Place) -> Letters:
    """The letters of a component at a place."""
    letters = {"N": place.grid.total, "d": place.dim, "d'": place.out_dim}
    letters["β"] = int(getattr(component, "projection_bias", getattr(component, "bias", True)) is True)
    if heads := getattr(component, "heads", None):
        letters |= {"h": heads, "d_k": getattr(component, "head_dim", None) or place.dim // heads}
    if place.memory:
        letters |= {"M": place.memory.total}
    if place.vocabulary:
        letters |= {"V": place.vocabulary}
    case = CASES.get(type(component))
    special = case.letters if case else LETTERS.get(type(component))
    return letters | (special(component, place) if special else {})
