"""transformers' models with BERT's layout: their weights copied into ours, and both beside each other."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from test_against_transformers import put, take
from xfcost.counting.forward import count
from xfcost.spec.architecture import Architecture
from xfcost.torch_models.build import BuiltModel


def put_joined(module: nn.Module, weights: dict[str, Tensor], *names: str) -> None:
    """Several of their projections, one after the other, as one of ours."""
    for kind, parameter in module.named_parameters(recurse=False):
        parameter.copy_(torch.cat([take(weights, f"{name}.{kind}") for name in names]))


def put_embeddings(embed: Any, weights: dict[str, Tensor], first: int = 0) -> None:
    """Tokens, positions, token types and the norm over them; their positions begin with row `first`."""
    token, position, kinds, normed = embed
    put(token.lookup, weights, "embeddings.word_embeddings")
    position.table.weight.copy_(take(weights, "embeddings.position_embeddings.weight").roll(-first, dims=0))
    put(kinds.lookup, weights, "embeddings.token_type_embeddings")
    put(normed.norm, weights, "embeddings.LayerNorm")


def put_layer(mixer: Any, mlp: Any, weights: dict[str, Tensor], layer: str, attention: Any) -> None:
    """A layer, its `attention` (the module of `mixer` that holds the projections) included."""
    put_joined(attention.qkv, weights, *(f"{layer}attention.self.{name}" for name in ("query", "key", "value")))
    put(attention.out, weights, f"{layer}attention.output.dense")
    put(mixer.residual_norm, weights, f"{layer}attention.output.LayerNorm")
    put(mlp.inner.fc1, weights, f"{layer}intermediate.dense")
    put(mlp.inner.fc2, weights, f"{layer}output.dense")
    put(mlp.residual_norm, weights, f"{layer}output.LayerNorm")


def assert_alike(theirs: nn.Module, architecture: Architecture, live: BuiltModel, output: str) -> None:
    """Parameters and MACs of both, and their outputs with the same weights; `output` is the answer's field."""
    totals = count(architecture).totals()
    assert totals["params"] == sum(parameter.numel() for parameter in theirs.parameters())
    with torch.no_grad():
        with FlopCounterMode(display=False) as counter:
            answer = getattr(theirs(*live.inputs), output)
        torch.testing.assert_close(live.model(*live.inputs), answer, rtol=1e-6, atol=1e-6)  # Funnel's scores: float32
    assert 2 * totals["macs"] == counter.get_total_flops()
