"""Embeddings, layers that change the grid and heads give what slow references say, which share nothing with them."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from compared import given, options_of, scattered
from references import layers
from references.plain import Place as Stand
from xfcost.formulas.component import Place, SubLayer, tag_of
from xfcost.layers import EMBEDS, ENTERS, HEADS, SUBLAYERS
from xfcost.layers.axis_position import AxisPosition
from xfcost.layers.class_token import ClassToken
from xfcost.layers.classifier import Classifier
from xfcost.layers.concatenate import Concatenate
from xfcost.layers.context import Context
from xfcost.layers.conv import Conv
from xfcost.layers.dense import Dense
from xfcost.layers.distillation_token import DistillationToken
from xfcost.layers.fold import Fold
from xfcost.layers.fold_axis import FoldAxis
from xfcost.layers.fourier import Fourier
from xfcost.layers.geglu import Geglu
from xfcost.layers.language_model import LanguageModel
from xfcost.layers.local_relation import LocalRelationEmbed
from xfcost.layers.masked_language_model import MaskedLanguageModel
from xfcost.layers.memory_tokens import MemoryTokens
from xfcost.layers.mlp import Mlp
from xfcost.layers.moe import Moe
from xfcost.layers.norm import Norm, NormSubLayer
from xfcost.layers.patch import Patch
from xfcost.layers.patch_merging import PatchMerging
from xfcost.layers.pixels import Pixels
from xfcost.layers.pool import Pool
from xfcost.layers.pooler import Pooler
from xfcost.layers.pooling_attention import PoolingAttention
from xfcost.layers.position import Position
from xfcost.layers.projection import Projection
from xfcost.layers.shift import Shift
from xfcost.layers.swiglu import Swiglu
from xfcost.layers.token import Token
from xfcost.layers.token_type import TokenType
from xfcost.layers.upsample import Upsample
from xfcost.ledger.grid import Grid
from xfcost.torch_models.modules import MODULES

DIM = 6
DISTILLED = ["class_token", "distillation_token"]


class Try(NamedTuple):
    """A layer on a grid; with the grid and the width of another stream where it reads one."""

    layer: SubLayer
    grid: Grid
    out_dim: int = DIM
    other: tuple[Grid, int] | None = None

    def __str__(self) -> str:
        return f"{self.layer}-{self.grid.sides}+{self.grid.extra}"

    @property
    def place(self) -> Place:
        other = {} if self.other is None else {"memory": self.other[0], "memory_dim": self.other[1]}
        return Place(grid=self.grid, dim=DIM, out_dim=self.out_dim, vocabulary=11, **other)

    def inputs(self) -> tuple[Tensor, ...]:
        noise = torch.Generator().manual_seed(1)
        if isinstance(self.layer, Token):
            return (torch.randint(11, (2, self.grid.total), generator=noise),)
        shape = (2, DIM, *self.grid.sides) if isinstance(self.layer, Patch | Pixels) else (2, self.grid.total, DIM)
        shapes = [shape] if self.other is None else [shape, (2, self.other[0].total, self.other[1])]
        return tuple(torch.randn(one, generator=noise, dtype=torch.float64) for one in shapes)


OBLONG, ODD, VOLUME, ROW = Grid((4, 6)), Grid((3, 5)), Grid((2, 3, 4)), Grid((7,))
TRIED = [
    *(Try(Patch(size=size), OBLONG, out_dim=5) for size in (1, 2)),
    Try(Patch(size=2, norm="layer_norm", bias=False), OBLONG, out_dim=8),
    *(
        Try(PatchMerging(norm=norm), grid, out_dim=10)
        for norm in ("pre", "post")
        for grid in (OBLONG, ODD, Grid((1, 1)))
    ),
    Try(Upsample(factor=2), Grid((4,)), other=(ROW, DIM)),
    Try(Upsample(factor=3), Grid((3,)), other=(Grid((8,)), DIM)),
    Try(Upsample(factor=4, separate_cls=False), Grid((2,)), other=(ROW, DIM)),
    *(Try(Shift(axis=axis, start=start), ODD) for axis in ("row", "column") for start in ("zeros", "learned")),
    Try(Shift(axis="depth"), VOLUME),
    Try(Shift(axis="row", start="learned"), ROW),
    *(Try(Context(shift=shift), ODD, other=(ODD, DIM)) for shift in (None, "row", "column")),
    Try(Concatenate(stage=1), ODD, other=(ODD, 4)),
    Try(FoldAxis(), ODD),
    Try(FoldAxis(), VOLUME),
    Try(AxisPosition(), ODD),
    Try(ClassToken(), ODD),
    *(Try(DistillationToken(), Grid((3, 5), extra)) for extra in (1, 2)),
    Try(MemoryTokens(count=3), ODD),
    *(Try(Position(), grid) for grid in (ODD, Grid((3, 5), 1))),
    Try(Position(length=20), ROW),
    Try(Position(form="sinusoidal"), Grid((13,))),
    Try(Position(form="axial", shape=[3, 4], widths=[4, 2]), Grid((12,))),
    Try(Position(form="axial", shape=[3, 4], widths=[2, 4]), ROW),
    *(Try(Position(form="separate"), grid) for grid in (VOLUME, Grid((2, 3, 4), 1), ODD)),
    *(Try(Fourier(bands=bands), grid) for bands in (1, 4) for grid in (ODD, VOLUME)),
    *(Try(Projection(bias=bias), ROW, out_dim=4) for bias in (False, True)),
    Try(Token(), ROW),
    Try(Token(scale="sqrt_dim"), ROW),
    Try(TokenType(), ROW),
    *(Try(Mlp(hidden=9, act=act), ROW) for act in ("gelu", "relu", "silu")),
    *(Try(layer(hidden=5, bias=bias), ROW) for layer in (Swiglu, Geglu) for bias in (False, True)),
    Try(Norm(), ROW),
    Try(NormSubLayer(), ROW),
    Try(Fold(), Grid((12,))),
    *(Try(Pixels(), grid) for grid in (ODD, VOLUME)),
    Try(Dense(), ROW),
    Try(Dense(norm="layer_norm", act="none", bias=False), ROW),
    Try(LocalRelationEmbed(size=3, share=2, stride=2, norm="layer_norm", act="relu"), ODD),
    *(Try(Classifier(classes=4, pool=pool), Grid((3, 5), 1)) for pool in ("class_token", "mean", "none")),
    Try(Classifier(classes=4, norm_after_pool=True), ODD),
    Try(Classifier(classes=4, pool=DISTILLED, norm="none"), Grid((3, 5), 2)),
    Try(LanguageModel(), ROW),
    Try(LanguageModel(norm="none", bias=True, scale="rsqrt_dim"), ROW),
    Try(Pooler(), ROW),
    Try(Pooler(norm="layer_norm", width=5, act="gelu", classes=3), ROW),
    Try(MaskedLanguageModel(), ROW),
]


@pytest.mark.parametrize("tried", TRIED, ids=str)
def test_a_layer_gives_what_its_reference_says(tried: Try) -> None:
    torch.manual_seed(0)
    place, inputs = tried.place, tried.inputs()
    module = scattered(MODULES[type(tried.layer)](tried.layer, place).double().eval())
    weights, stand = given(module), Stand(place.grid.sides, place.grid.extra, DIM, tried.out_dim)
    copies = [one.clone() for one in inputs]
    smooth = [one for one in (*inputs, *copies) if one.is_floating_point()]
    for one in smooth:
        one.requires_grad_()
    ours = module(*inputs)
    plain = getattr(layers, tag_of(type(tried.layer)))(options_of(tried.layer), stand, weights, *copies)
    # tables of waves are worked out in single precision
    waves = isinstance(tried.layer, Fourier) or getattr(tried.layer, "form", None) == "sinusoidal"
    torch.testing.assert_close(ours, plain, rtol=1e-11, atol=1e-6 if waves else 1e-11)
    sways = torch.randn(ours.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    named = [weights.tensors[name] for name, _ in module.named_parameters()]
    half = len(smooth) // 2
    leaves = ([*smooth[:half], *module.parameters()], [*smooth[half:], *named])
    first, second = (
        torch.autograd.grad((answer * sways).sum(), mine, materialize_grads=True)
        for answer, mine in zip((ours, plain), leaves, strict=True)
    )
    assert first
    for one, other in zip(first, second, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


# Their references stand in test_conv_doors.py, test_pooling_attention.py and test_moe.py.
ELSEWHERE = {Conv, Pool, PoolingAttention, Moe}


def test_every_layer_has_a_reference() -> None:
    known = {type(tried.layer) for tried in TRIED}
    assert not known & ELSEWHERE
    assert known | ELSEWHERE == {one for kinds in (EMBEDS, ENTERS, SUBLAYERS, HEADS) for one in kinds.values()}


def test_what_is_tried_stands_where_it_may() -> None:
    for tried in TRIED:
        if not isinstance(tried.layer, Patch | Pixels):
            tried.layer.check(tried.place)
