"""Kinds whose rows do not yet declare what autograd saves: models with them have no saved activations in closed form.

The files of their formulas, `layers.conv` for `layers/conv.py`.
"""

from __future__ import annotations

from typing import Final

UNDECLARED: Final = frozenset(
    {
        "layers.context",
        "layers.fold",
        "layers.fold_axis",
        "layers.fourier",
        "layers.memory_tokens",
        "layers.pixels",
        "layers.pooling_attention",
        "layers.shift",
        "mechanisms.block_sparse",
        "mechanisms.blockwise",
        "mechanisms.class_attention",
        "mechanisms.compressed",
        "mechanisms.compressive",
        "mechanisms.funnel",
        "mechanisms.global_local",
        "mechanisms.inducing",
        "mechanisms.low_rank",
        "mechanisms.lsh",
        "mechanisms.non_local",
        "mechanisms.nystrom",
        "mechanisms.pooling",
        "mechanisms.relative",
        "mechanisms.routing",
        "mechanisms.sagan",
        "mechanisms.sinkhorn",
        "mechanisms.sliding",
        "mechanisms.sparse",
        "mechanisms.synthesizer",
        "mechanisms.window",
        "mechanisms.window_pooling",
    }
)


def file_of(component: object) -> str:
    """The file of a component's formulas, as on the list."""
    return type(component).__module__.removeprefix("xfcost.")
