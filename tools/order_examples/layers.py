"""Doors, heads and feed-forward networks, with the options that bring other rows."""

from __future__ import annotations

from typing import Any

from order_examples.letters import SQUARE, C, K, L, P, V, W, both, d, h, k, m, place, s
from xfcost.grid import Grid
from xfcost.layers.axis_position import AxisPosition
from xfcost.layers.class_token import ClassToken
from xfcost.layers.conv import Conv, Pool
from xfcost.layers.dense import Dense
from xfcost.layers.fold import Fold
from xfcost.layers.fourier import Fourier, Pixels
from xfcost.layers.heads import Classifier, LanguageModel, Pooler
from xfcost.layers.memory_tokens import MemoryTokens
from xfcost.layers.mlp import Mlp
from xfcost.layers.norm import Norm, NormLayer
from xfcost.layers.patch import Patch
from xfcost.layers.patch_merging import PatchMerging
from xfcost.layers.pooling_attention import PoolingAttention
from xfcost.layers.position import Position
from xfcost.layers.projection import Projection
from xfcost.layers.shift import Context, Shift
from xfcost.layers.token import Token
from xfcost.layers.token_type import TokenType
from xfcost.layers.upsample import Upsample
from xfcost.mechanisms.base import Page, Place, Residual

# A sequence, a grid, a grid of one time step.
RANKS = {1: Grid((s * s,)), 2: SQUARE, 3: Grid((1, s, s))}


def tiles(rank: int) -> dict[str, Any]:
    """A kernel of P positions along every axis, and as many to the next."""
    return {"size": [P] * rank, "stride": [P] * rank}


def tiled(rank: int) -> Grid:
    """Of which P×… tiles leave a grid of RANKS."""
    return Grid(tuple(P * side for side in RANKS[rank].sides))


NORMS = ("layer_norm", "rms_norm", "batch_norm", "affine", "group_norm")

EXAMPLES: dict[type[Page], list[tuple[Page, Place]]] = {
    Mlp: [
        (Mlp(), place()),
        (Mlp(out_width=2 * d), place()),
        (Mlp(tokens="class_token"), place(grid=Grid((s, s), 1))),
    ],
    Dense: [(Dense(norm=kind), place()) for kind in ("none", "layer_norm", "rms_norm", "batch_norm", "affine")],
    Patch: [(Patch(size=P, norm="layer_norm"), place(grid=Grid((P * s, P * s)), dim=C))],
    Token: [(Token(scale="sqrt_dim"), place(dim=V, vocabulary=V))],
    ClassToken: [(ClassToken(), place())],
    MemoryTokens: [(MemoryTokens(count=m), place())],
    Position: [
        (Position(), place()),
        (Position(length=L), place()),
        (Position(form="separate"), place(grid=Grid((s, s), 1))),
        (Position(form="axial", shape=[L] * 4, widths=[d] * 4), place()),
    ],
    TokenType: [(TokenType(types=2), place())],
    Norm: [(Norm(norm=kind), place()) for kind in NORMS],
    NormLayer: [(NormLayer(norm=kind), place()) for kind in NORMS],
    Conv: [
        *((Conv(size=[2 * W + 1] * r, norm="batch_norm", act="relu"), place(grid=RANKS[r], dim=C)) for r in RANKS),
        *((Conv(**tiles(r), norm="layer_norm", act="relu"), place(grid=tiled(r), dim=C)) for r in RANKS),
    ],
    Pool: [
        *((Pool(size=[2 * W + 1] * r, stride=[1] * r, form="mean"), place(grid=RANKS[r])) for r in RANKS),
        *((Pool(**tiles(r), form="mean"), place(grid=tiled(r))) for r in RANKS),
    ],
    AxisPosition: [(AxisPosition(), place())],
    Shift: [
        (Shift(axis="row", start=start), place(**text))
        for start in ("zeros", "learned")
        for text in ({}, {"grid": Grid((s * s,))})
    ],
    Context: [(Context(), place(memory=SQUARE, memory_dim=d))],
    Fold: [(Fold(), place(grid=Grid((s * s,))))],
    Pixels: [(Pixels(), place(dim=C, out_dim=d))],
    Fourier: [(Fourier(), place(dim=C, out_dim=d))],
    Projection: [(Projection(), place(dim=C))],
    PoolingAttention: [
        spot
        for where in ("pre", "post", "res_post")
        for spot in both(place(), PoolingAttention(heads=h, count=k, residual=Residual(place=where)))
    ],
    PatchMerging: [(PatchMerging(), place(out_dim=2 * d))],
    Upsample: [(Upsample(factor=4), place(memory=Grid((4 * s * s,)), memory_dim=d))],
    Classifier: [
        (Classifier(pool=pool, classes=K), place(grid=Grid((s, s), 2)))
        for pool in ("mean", "class_token", ["class_token", "distillation_token"], "none")
    ],
    LanguageModel: [
        (LanguageModel(scale="rsqrt_dim"), place(vocabulary=V)),
        (LanguageModel(scale="rsqrt_dim"), place(vocabulary=V, logits="last")),
    ],
    Pooler: [(Pooler(norm=kind, classes=K), place()) for kind in ("layer_norm", "rms_norm")],
}
