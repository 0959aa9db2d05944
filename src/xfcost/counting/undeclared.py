"""Kinds whose rows do not yet declare what autograd saves: models with them have no saved activations in closed form.

The files of their formulas, `layers.conv` for `layers/conv.py`.
"""

from __future__ import annotations

from typing import Final

UNDECLARED: Final = frozenset(
    {
        "layers.fourier",
        "layers.pooling_attention",
        "mechanisms.class_attention",
        "mechanisms.compressed",
        "mechanisms.compressive",
        "mechanisms.funnel",
        "mechanisms.inducing",
        "mechanisms.low_rank",
        "mechanisms.lsh",
        "mechanisms.non_local",
        "mechanisms.nystrom",
        "mechanisms.relative",
        "mechanisms.routing",
        "mechanisms.sagan",
        "mechanisms.sinkhorn",
        "mechanisms.synthesizer",
    }
)


def file_of(component: object) -> str:
    """The file of a component's formulas, as on the list."""
    return type(component).__module__.removeprefix("xfcost.")
