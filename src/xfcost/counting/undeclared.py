"""Kinds whose rows do not yet declare what autograd saves: models with them have no saved activations in closed form.

The files of their formulas, `layers.conv` for `layers/conv.py`.
"""

from __future__ import annotations

from typing import Final

UNDECLARED: Final = frozenset(
    {
        "layers.context",
        "layers.distillation_token",
        "layers.fold",
        "layers.fold_axis",
        "layers.masked_language_model",
        "layers.memory_tokens",
        "layers.moe",
        "layers.pixels",
        "layers.pooler",
        "layers.shift",
        "layers.token_type",
        "mechanisms.block_sparse",
        "mechanisms.blockwise",
        "mechanisms.fourier_mixing",
        "mechanisms.gmlp",
        "mechanisms.gru",
        "mechanisms.hyena",
        "mechanisms.kernel",
        "mechanisms.lstm",
        "mechanisms.mamba",
        "mechanisms.mamba2",
        "mechanisms.mla",
        "mechanisms.retention",
        "mechanisms.rnn",
        "mechanisms.routing",
        "mechanisms.rwkv_channel",
        "mechanisms.rwkv_time",
        "mechanisms.sparse",
    }
)


def file_of(component: object) -> str:
    """The file of a component's formulas, as on the list."""
    return type(component).__module__.removeprefix("xfcost.")
