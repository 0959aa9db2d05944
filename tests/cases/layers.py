"""Layers under the contract: every layer of the written lists, with its options, at places that are awkward for it."""

from typing import NamedTuple, get_args

import torch
from torch import Tensor

from xfcost.formulas.component import ActKind, Component, NormKind, Place, Residual
from xfcost.layers.feed_forward import Dense, Geglu, Mlp, Norm, NormSubLayer, Swiglu
from xfcost.layers.heads import Classifier, FlattenClassifier, LanguageModel, MaskedLanguageModel, Pooler
from xfcost.layers.local_relation import LocalRelationEmbed
from xfcost.layers.moe import Groups, Moe, Shared
from xfcost.layers.shift import Context, Shift
from xfcost.layers.stage_entries import Concatenate, PatchMerging, PoolingAttention, Upsample
from xfcost.layers.stems import ConvEmbed, Fold, FoldAxis, Patch, Pixels, Pool, Projection
from xfcost.layers.tokens import (
    AxisPosition,
    ClassToken,
    DistillationToken,
    Fourier,
    MemoryTokens,
    Position,
    Token,
    TokenType,
)
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid

DIM = 6


class LayerCase(NamedTuple):
    """A layer on a grid; with the grid and the width of another stream where it reads one."""

    layer: Component
    grid: Grid
    out_dim: int = DIM
    other: tuple[Grid, int] | None = None
    fused: bool = False

    def __str__(self) -> str:
        return f"{self.layer}-{self.grid.sides}+{self.grid.special}" + ("-fused" if self.fused else "")

    @property
    def place(self) -> Place:
        other = {} if self.other is None else {"memory": self.other[0], "memory_dim": self.other[1]}
        return Place(grid=self.grid, dim=DIM, out_dim=self.out_dim, vocabulary=11, fused=self.fused, **other)

    def inputs(self, batch: int = 2) -> tuple[Tensor, ...]:
        noise = torch.Generator().manual_seed(1)
        if isinstance(self.layer, Token):
            return (torch.randint(11, (batch, self.grid.total), generator=noise),)
        shape = (
            (batch, DIM, *self.grid.sides) if isinstance(self.layer, Patch | Pixels) else (batch, self.grid.total, DIM)
        )
        shapes = [shape] if self.other is None else [shape, (batch, self.other[0].total, self.other[1])]
        return tuple(torch.randn(one, generator=noise, dtype=torch.float64) for one in shapes)


# Even and oblong, odd sides, a volume, a sequence.
OBLONG, ODD, VOLUME, ROW = Grid((4, 6)), Grid((3, 5)), Grid((2, 3, 4)), Grid((7,))
NORMS: tuple[NormKind, ...] = ("layer_norm", "rms_norm", "batch_norm", "group_norm", "affine")
CONVS = (
    ConvEmbed(size=3),
    ConvEmbed(size=3, stride=2, channels=6, groups=2, bias=False, norm="batch_norm", act="relu"),
    ConvEmbed(size=2, stride=1, padding=0, norm="layer_norm", act="silu"),
    ConvEmbed(size=1, norm="group_norm"),
    ConvEmbed(size=2, stride=2, padding=1, groups=3, norm="affine", act="gelu"),
    ConvEmbed(size=1, stride=3, norm="rms_norm"),
    ConvEmbed(size=3, stride=1, padding=4),
)
POOLS = (
    Pool(),
    Pool(form="mean"),
    Pool(size=3, stride=2),
    Pool(size=3, stride=2, form="mean"),
    Pool(size=2, stride=1, padding=0),
    Pool(size=1, stride=3, form="mean"),
)
# As small as a kernel, odd under a stride, one row, a volume.
KERNEL_GRIDS = tuple(Grid(sides) for sides in [(3,), (1, 5), (7, 9), (3, 5, 4)])


def stands(component: Component, grid: Grid) -> bool:
    """Can a layer whose width stays stand on the grid?"""
    try:
        component.check(LayerCase(component, grid).place)
    except ComponentError:
        return False
    return True


POOLING_ATTENTION = (
    PoolingAttention(count=3, heads=2),
    PoolingAttention(count=1, heads=3, output_projection=False, residual=Residual(place="post", norm="none")),
    PoolingAttention(count=4, heads=1, head_dim=5, residual=Residual()),
    PoolingAttention(count=2, heads=2, residual=Residual(place="res_post"), projection_bias=False),
    PoolingAttention(count=2, heads=2, head_dim=7, residual="none"),
)
# Mixtures of experts without slots, and with.
PACKED = (
    Moe(),
    Moe(experts=4, active=1, expert=Mlp(act="relu", bias=False), normalize=False),
    Moe(experts=3, active=3, expert=Mlp(hidden=5)),
    Moe(experts=5, active=2, router="sigmoid", expert=Geglu(hidden=4), scale=2.5, normalize=False),
    Moe(experts=6, active=2, groups=Groups(count=3, active=1), expert=Swiglu(hidden=4, bias=True)),
    Moe(
        experts=8,
        active=3,
        router="sigmoid",
        correction=True,
        groups=Groups(count=4, active=2, score="top_two"),
        scale=1.5,
        expert=Swiglu(hidden=5),
        shared=Shared(count=2),
    ),
    Moe(experts=1, active=1, expert=Mlp(), shared=Shared(hidden=7), router="sigmoid", normalize=False),
)
SLOTTED = (
    Moe(capacity=1.0),
    Moe(experts=3, active=1, capacity=0.5, expert=Mlp(), normalize=False),
    Moe(experts=4, active=2, capacity=4.0, expert=Mlp(bias=False, act="relu"), shared=Shared()),
)

LAYER_CASES: list[LayerCase] = [
    *(LayerCase(Patch(size=size), OBLONG, out_dim=5) for size in (1, 2)),
    LayerCase(Patch(size=2, norm="layer_norm", bias=False), OBLONG, out_dim=8),
    *(
        LayerCase(PatchMerging(norm=norm), grid, out_dim=10)
        for norm in ("pre", "post")
        for grid in (OBLONG, ODD, Grid((1, 1)))
    ),
    LayerCase(Upsample(factor=2), Grid((4,)), other=(ROW, DIM)),
    LayerCase(Upsample(factor=3), Grid((3,)), other=(Grid((8,)), DIM)),
    LayerCase(Upsample(factor=4, separate_cls=False), Grid((2,)), other=(ROW, DIM)),
    *(LayerCase(Shift(axis=axis, start=start), ODD) for axis in ("row", "column") for start in ("zeros", "learned")),
    LayerCase(Shift(axis="depth"), VOLUME),
    LayerCase(Shift(axis="row", start="learned"), ROW),
    *(LayerCase(Context(shift=shift), ODD, other=(ODD, DIM)) for shift in (None, "row", "column")),
    LayerCase(Concatenate(stage=1), ODD, other=(ODD, 4)),
    LayerCase(FoldAxis(), ODD),
    LayerCase(FoldAxis(), VOLUME),
    LayerCase(AxisPosition(), ODD),
    LayerCase(ClassToken(), ODD),
    *(LayerCase(DistillationToken(), Grid((3, 5), special)) for special in (1, 2)),
    LayerCase(MemoryTokens(count=3), ODD),
    *(LayerCase(Position(), grid) for grid in (ODD, Grid((3, 5), 1))),
    LayerCase(Position(length=20), ROW),
    LayerCase(Position(form="sinusoidal"), Grid((13,))),
    LayerCase(Position(form="axial", shape=[3, 4], widths=[4, 2]), Grid((12,))),
    LayerCase(Position(form="axial", shape=[3, 4], widths=[2, 4]), ROW),
    LayerCase(Position(form="axial", shape=[3, 2, 2], widths=[1, 3, 2]), Grid((11,))),
    *(LayerCase(Position(form="separate"), grid) for grid in (VOLUME, Grid((2, 3, 4), 1), ODD)),
    *(LayerCase(Fourier(bands=bands), grid) for bands in (1, 4) for grid in (ODD, VOLUME)),
    *(LayerCase(Projection(bias=bias), ROW, out_dim=4) for bias in (False, True)),
    LayerCase(Token(), ROW),
    LayerCase(Token(scale="sqrt_dim"), ROW),
    LayerCase(TokenType(), ROW),
    *(LayerCase(Mlp(hidden=9, act=act), ROW) for act in get_args(ActKind)),
    LayerCase(Mlp(ratio=1.5, bias=False), ROW),
    *(LayerCase(Mlp(hidden=9, chunks=chunks), ROW) for chunks in (3, 50)),
    *(LayerCase(layer(hidden=5, bias=bias), ROW) for layer in (Swiglu, Geglu) for bias in (False, True)),
    LayerCase(Geglu(hidden=5, act="gelu_tanh"), ROW),
    *(LayerCase(layer(norm=norm), ODD) for layer in (Norm, NormSubLayer) for norm in NORMS),
    LayerCase(Fold(), Grid((12,))),
    *(LayerCase(Pixels(), grid) for grid in (ODD, VOLUME)),
    LayerCase(Dense(), ROW),
    LayerCase(Dense(norm="rms_norm"), ROW),
    LayerCase(Dense(norm="layer_norm", act="none", bias=False), ROW),
    LayerCase(LocalRelationEmbed(size=3, share=2, stride=2, norm="layer_norm", act="relu"), ODD),
    *(LayerCase(Classifier(classes=4, pool=pool), Grid((3, 5), 1)) for pool in ("class_token", "mean", "none")),
    *(
        LayerCase(Classifier(classes=4, norm=norm, pool="class_token", norm_after_pool=True), Grid((3, 5), 1))
        for norm in ("layer_norm", "rms_norm", "batch_norm", "affine", "none")
    ),
    LayerCase(Classifier(classes=4, norm_after_pool=True), ODD),
    LayerCase(Classifier(classes=4, pool="none", norm="none", bias=False), ROW),
    LayerCase(Classifier(classes=4, pool=["class_token", "distillation_token"], norm="none"), Grid((3, 5), 2)),
    *(
        LayerCase(FlattenClassifier(pooled=pooled, hidden=hidden, classes=4), grid)
        for pooled, hidden, grid in ((2, [7], OBLONG), (2, [7, 8], ODD), (3, [5], VOLUME), (4, [5], ROW))
    ),
    LayerCase(FlattenClassifier(pooled=7, hidden=[5], act="gelu", classes=4), ODD),
    LayerCase(LanguageModel(), ROW),
    LayerCase(LanguageModel(norm="none", bias=True, scale="rsqrt_dim"), ROW),
    LayerCase(Pooler(), ROW),
    LayerCase(Pooler(norm="layer_norm", width=5, act="gelu", classes=3), ROW),
    LayerCase(MaskedLanguageModel(), ROW),
    LayerCase(MaskedLanguageModel(act="silu", norm="rms_norm", next_sentence=True), ROW),
    *(LayerCase(kernel, grid) for kernel in (*CONVS, *POOLS) for grid in KERNEL_GRIDS if stands(kernel, grid)),
    LayerCase(ConvEmbed(size=2, stride=2, channels=4, groups=2, bias=False, act="relu"), OBLONG, out_dim=4),
    *(
        LayerCase(pooling, grid, fused=fused)
        for pooling in POOLING_ATTENTION
        for grid in (Grid((1,)), Grid((2, 2), 1))
        for fused in (False, True)
    ),
    *(LayerCase(moe, grid) for moe in (*PACKED, *SLOTTED) for grid in (Grid((1,)), Grid((2, 4), 1))),
]
