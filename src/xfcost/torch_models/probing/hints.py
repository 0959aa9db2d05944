"""What a probe cannot see in the leaves of a mechanism.

A probe sees which inputs change an output. It does not see which tokens the entries of a position bias belong to, that
a computed score is masked afterwards, or that a block's summary represents several tokens. No hint is taken from a
component's rows; tests check each hint against all examples of its mechanism.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Final, NamedTuple

import torch

from xfcost.formulas.component import Component, Place, tag_of
from xfcost.torch_models.mechanisms.compressive import Past

# (component, place) -> a number of tokens.
Tokens = Callable[[Any, Place], int]
Names = frozenset[str]


class Hints(NamedTuple):
    """The hints of one kind; rows by their own names."""

    past: Callable[[Any, Place], tuple[Any, ...]] = lambda component, place: ()
    """More inputs of the module: the past of earlier segments, as zeros."""
    apart: int = 0
    """The number of axes after the batch that index heads and lists of keys; each is counted separately."""
    positional: Callable[[Any], Names] = lambda component: frozenset()
    """Rows that output weights of keys without reading them: position biases, weights from the query alone."""
    masks: Names = frozenset()
    """Masks: positional with fused attention; otherwise they mask scores."""
    states: Names = frozenset()
    """Rows that output the state of earlier chunks, one for all tokens of a chunk."""
    uncounted: Names = frozenset()
    """Rows whose last axis does not index keys, but distances along one axis of the grid."""
    in_tokens: Names = frozenset()
    """Rows that read summaries (blocks, states of chunks) and declare the tokens that these represent."""
    fewer: dict[str, Tokens] = {}  # noqa: RUF012 - never written to
    """Rows that declare computed tokens -> the number that masks and borders always remove."""
    at_most: Names = frozenset()
    """Rows that declare computed tokens, of which masks and borders remove a varying number."""
    up_to: Names = frozenset()
    """Rows of which content decides how many tokens they read: local if they read no more than declared at any size."""
    more: dict[str, Tokens] = {}  # noqa: RUF012 - never written to
    """Rows that declare the pattern's tokens -> the number of tokens computed in addition and masked later."""
    left_out: Callable[[Any], dict[str, str]] = lambda component: {}
    """Rows that can't be held against their leaf, each with the reason."""
    paired: bool = False
    """Are the tokens of the memory those of the stream, one for one?"""
    whole: Callable[[Any], int] = lambda component: 1
    """Sides of a grid that are multiples of it are not padded."""
    fresh_weights: bool = True
    """False if the weights take part in a choice that noise would change."""
    rounding: float = 0.0
    """Part of the largest number up to which a difference is rounding (an FFT's over all tokens), and no reading."""
    letters: dict[str, str] = {}  # noqa: RUF012 - never written to
    """Letters in the text of the tokens read -> those that the fields behind them have."""

    def given_by_position(self, component: Component, place: Place) -> Names:
        """The rows whose readings are invisible; only their weights are known."""
        return self.positional(component) | (self.masks if place.fused else frozenset())


def hints_for(component: Component) -> Hints:
    """The hints of the component's kind; empty by default."""
    return HINTS.get(tag_of(type(component)), Hints())


def _names(*names: str) -> Names:
    return frozenset(names)


def _always(*names: str) -> Callable[[Any], Names]:
    return lambda component: frozenset(names)


def _own_chunk(component: Any, place: Place) -> int:
    """The tokens of the last chunk, which the state of earlier chunks does not include."""
    return component.chunk if component.chunk and component.causal else 0


def _null_key(component: Any, place: Place) -> int:
    """1 if a learned key precedes the others."""
    return 1 if component.null_key else 0


def _memory_keys(component: Any) -> int:
    """Learned keys of a cluster: at least one if a query may have no earlier key."""
    return max(component.memory_keys, 1 if component.causal and not component.shared_qk else 0)


def _other_rounds(component: Any, place: Place) -> int:
    """The tokens of two buckets in all hashing rounds but one, because rounds are counted separately."""
    return int(2 * component.bucket * (component.rounds - 1))


def _relative_past(component: Any, place: Place) -> tuple[Any, ...]:
    return (torch.zeros(1, component.past, place.dim),) if component.past else ()


def _compressive_past(component: Any, place: Place) -> tuple[Any, ...]:
    """The compressed memory, the tokens evicted by the previous segment, and the memory."""
    lengths = (component.compressed_memory, place.grid.total, component.past - component.compressed_memory)
    return (Past(*(torch.zeros(1, length, place.dim) for length in lengths)),)


def _beyond_the_query(component: Any, place: Place) -> int:
    """Distances to later tokens; a causal mechanism has none."""
    return 0 if component.causal else place.grid.total - 1


def _dropped_by_stride(component: Any, place: Place) -> int:
    """Tokens that a stride drops: pooling counts output tokens, each of which represents s² input tokens."""
    return place.grid.total - prod(-(-side // component.stride) for side in place.grid.sides)


_STRIDED: Final = (
    "the shortcut takes every second token: its places are the old tokens', the convolution's the new ones'"
)
_SHIFTED_MEMORY: Final = "the memory's token that it adds is the one before, and counts as a token of its own"
_TABLE: Final = "it adds a table to keys that are gathered already: nothing in it numbers queries"
_ASKS: Final = "it asks with the state of the step before: what it reads is counted for that step's token"
_ASKING: Final = (
    "query", "gate_linear", "context", "add_context", "recurrence", "join", "readout_state", "readout_add",
)  # fmt: skip
_SHIFTED: Final = Hints(fewer={"mix": lambda component, place: 1})
_READER: Final = Hints(left_out=lambda component: dict.fromkeys(_ASKING if component.attend else (), _ASKS))

HINTS: Final[dict[str, Hints]] = {
    "axial": Hints(masks=_names("mask", "row_mask", "column_mask")),
    "basic": Hints(left_out=lambda component: dict.fromkeys(("add", "act2") if component.stride > 1 else (), _STRIDED)),
    "block_sparse": Hints(masks=_names("mask", "edge_mask", "global_mask")),
    "blockwise": Hints(masks=_names("mask"), at_most=_names("scores", "mask", "softmax", "weighted_sum", "attention")),
    "bottleneck": Hints(
        more={"squeeze_scale": _dropped_by_stride},
        left_out=lambda component: (
            dict.fromkeys(("spatial_positions", "spatial_add_positions"), _TABLE)
            | dict.fromkeys(("add", "act3") if component.stride > 1 else (), _STRIDED)
        ),
    ),
    "compressed": Hints(
        masks=_names("compressed_mask"),
        # the null key is no token; a mask alone has its place
        fewer=dict.fromkeys(
            ("compressed_scores", "compressed_softmax", "compressed_weighted_sum", "compressed_attention"), _null_key
        )
        | {"compressed_mask": lambda component, place: 0 if place.fused else _null_key(component, place)},
    ),
    "compressive": Hints(
        positional=_always("position_scores", "position_shift"),
        masks=_names("mask"),
        past=_compressive_past,
        more={"position_scores": _beyond_the_query},
    ),
    "deformable": Hints(apart=1, up_to=_names("sample")),
    "flatten_classifier": Hints(whole=lambda component: component.pooled),
    # sines and cosines of some pairs of tokens are zero
    "fourier_mixing": Hints(at_most=_names("cos_tokens", "sin_tokens")),
    "full": Hints(positional=_always("relative_bias"), masks=_names("mask")),
    "context": Hints(
        paired=True, left_out=lambda component: {"add": _SHIFTED_MEMORY} if component.shift is not None else {}
    ),
    "funnel": Hints(
        positional=_always("position_scores", "position_shift", "type_pick", "type_add", "cls_mask"),
        uncounted=_names("position_scores"),
    ),
    "global_local": Hints(more={"scores": lambda component, place: component.radius + 2}, letters={"r": "w"}),
    "gru": _READER,
    "hyena": Hints(rounding=1e-13),
    "inverted_residual": Hints(more={"squeeze_scale": _dropped_by_stride}),
    "kernel": Hints(
        states=_names("prefix_sum"),
        in_tokens=_names("prefix_sum"),
        fewer=dict.fromkeys(("prefix_sum", "read", "normaliser"), _own_chunk),
    ),
    "local_attention": Hints(left_out=lambda component: dict.fromkeys(("positions", "add_positions"), _TABLE)),
    "lsh": Hints(
        apart=2,
        fresh_weights=False,
        # of two chunks, a token itself is masked
        fewer=dict.fromkeys(
            ("mask", "logsumexp", "softmax", "weighted_sum"),
            lambda component, place: _other_rounds(component, place) + 1,
        )
        | {"scores": _other_rounds},
    ),
    "lstm": _READER,
    "mamba2": Hints(
        uncounted=_names("read"),  # of some heads, the first chunks have decayed to nothing
        states=_names("carry"),
        in_tokens=_names("carry", "spans"),
        # the state before the last chunk excludes that chunk; a chunk's sum is at its last token
        fewer={
            "carry": lambda component, place: component.chunk,
            "read": lambda component, place: component.chunk,
            "fade": lambda component, place: component.chunk - 2,
            "spans": lambda component, place: place.grid.total - place.grid.total // component.chunk,
        },
    ),
    "mla": Hints(masks=_names("mask")),
    "pooling": Hints(positional=_always("position_scores", "spread"), uncounted=_names("position_scores")),
    "relative": Hints(
        positional=_always("position_scores", "position_shift"),
        masks=_names("mask"),
        past=_relative_past,
        more={"position_scores": _beyond_the_query},
    ),
    "retention": Hints(
        states=_names("carry"),
        in_tokens=_names("carry"),
        # the state before the last chunk excludes that chunk
        fewer=dict.fromkeys(("carry", "read"), lambda component, place: component.chunk or 0),
    ),
    "rnn": _READER,
    "routing": Hints(
        apart=2,
        fresh_weights=False,
        masks=_names("mask", "local_mask"),
        # a query doesn't read itself where it is a key too; memory keys are no tokens, and a mask alone has their place
        fewer=dict.fromkeys(("softmax", "weighted_sum", "attention"), lambda component, place: int(component.shared_qk))
        | {"mask": lambda component, place: -_memory_keys(component) if place.fused else int(component.shared_qk)},
    ),
    "rwkv_channel": _SHIFTED,
    "rwkv_time": _SHIFTED,
    "sinkhorn": Hints(
        masks=_names("mask"),
        in_tokens=_names("sort_scores", "sort_logits", "balance", "reorder"),
        fewer={"pool_queries": lambda component, place: component.block - 1}
        | dict.fromkeys(
            ("sort_logits", "balance", "reorder"), lambda component, place: component.block if component.causal else 0
        ),
        left_out=lambda component: {"mask": "fused, it holds no sorted block's content"},
    ),
    "sliding": Hints(
        more={
            "scores": lambda component, place: (
                3 * (component.window // 2) - component.window - (0 if component.causal else 1)
            )
        }
    ),
    "sparse": Hints(
        masks=_names("local_mask", "long_mask"),
        at_most=_names(
            "local_mask",
            "local_softmax",
            "local_weighted_sum",
            "local_attention",
            "long_mask",
            "long_softmax",
            "long_weighted_sum",
            "long_attention",
            "join",
            "softmax",
        ),
        left_out=lambda component: dict.fromkeys(
            ("join_heads", "out") if component.integration == "heads" else (), "heads of two patterns are joined in it"
        ),
    ),
    "synthesizer": Hints(
        positional=lambda component: _names("mask", "softmax", *(() if "dense" in component.form else ("synthesis",)))
    ),
    "window": Hints(
        whole=lambda component: component.size, positional=_always("relative_bias", "cpb_lookup"), masks=_names("mask")
    ),
    "window_pooling": Hints(
        whole=lambda component: component.window,
        positional=_always("position_scores", "spread"),
        uncounted=_names("position_scores"),
        letters={"K": "W", "/l²": ""},
    ),
}
