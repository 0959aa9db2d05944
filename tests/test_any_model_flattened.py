"""Tokens that are merged into one vector, and those that such a vector is divided into again, in any module."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import xfcost
from modules import Module
from xfcost.formulas.component import Grid, Place
from xfcost.layers.heads import FlattenClassifier
from xfcost.ledger.ledger import Ledger

SEQUENCE, IMAGE = torch.randn(2, 16, 8), torch.randn(1, 3, 16, 16)
FLAT = 16 * 8


def analyzed(module: nn.Module, x: Tensor) -> Ledger:
    return xfcost.analyze(module, example_inputs=x, mixing=True, trace=False)


def tokens_read(module: nn.Module, x: Tensor) -> int:
    """Of so many tokens (B, N, D), or pixels (B, C, *S), the gradient of the middle one that leaves is not zero."""
    given = x[:1].double().requires_grad_()
    rows = [one.flatten(2).mT if x.dim() > 3 else one for one in (given, module.double()(given))]
    gradient = torch.autograd.grad(rows[1][0, rows[1].shape[1] // 2].sum(), given)[0]
    module.float()
    return int((gradient.abs().sum(1 if x.dim() > 3 else -1) > 0).sum())


def flattened(self: Any, x: Tensor) -> Tensor:
    return self.map(x.flatten(1)).view(x.shape)


def autoencoder(self: Any, x: Tensor) -> Tensor:
    return self.second(F.softplus(self.first(x.flatten(1)))).unflatten(1, x.shape[1:])


def parted(self: Any, x: Tensor) -> Tensor:
    return torch.stack(self.map(F.silu(x.flatten(1))).split(8, -1), 1)


def contracted(self: Any, x: Tensor) -> Tensor:
    return torch.einsum("bnd,ndme->bme", x, self.map.weight.view(16, 8, 16, 8))


def residual(self: Any, x: Tensor) -> Tensor:
    return x + flattened(self, x)


def summary_added(self: Any, x: Tensor) -> Tensor:
    return x + self.map(x.flatten(1))[:, None]


def spread_mean(self: Any, x: Tensor) -> Tensor:
    return self.map(x.mean(1, keepdim=True).expand_as(x))


def mean_at_positions(self: Any, x: Tensor) -> Tensor:
    return self.map(x.mean(1, keepdim=True) + self.positions.weight)


def attended(self: Any, x: Tensor) -> Tensor:
    x = flattened(self, x)
    return (x @ x.mT).softmax(-1) @ x


def of_windows(self: Any, x: Tensor) -> Tensor:
    return self.map(x.reshape(-1, 4 * 8)).reshape(x.shape)


def of_patches(self: Any, x: Tensor) -> Tensor:
    return self.up(F.softplus(self.down(x)))


def bottleneck(self: Any, x: Tensor) -> Tensor:
    small = self.down(x)
    return self.up(self.second(self.first(small.flatten(1))).view(small.shape))


def decoded(self: Any, x: Tensor) -> Tensor:
    """A map of another size than any that was encoded."""
    return self.up(self.map(x.flatten(1)).view(-1, 8, 5, 5))


MAP, STRIDED, UP = nn.Linear(FLAT, FLAT), nn.Conv2d(3, 6, 4, 4), nn.ConvTranspose2d(6, 3, 4, 4)
CASES = {
    "a linear map and a view": (Module(flattened, map=MAP), SEQUENCE, ["map.addmm"]),
    "a bottleneck": (
        Module(autoencoder, first=nn.Linear(FLAT, 9), second=nn.Linear(9, FLAT)), SEQUENCE, ["first.addmm"],
    ),
    "a split and a stack": (Module(parted, map=MAP), SEQUENCE, ["map.addmm"]),
    "a contraction over tokens and channels": (Module(contracted, map=MAP), SEQUENCE, ["map.bmm"]),
    "a residual connection": (Module(residual, map=MAP), SEQUENCE, ["map.addmm"]),
    "a summary that is added": (Module(summary_added, map=nn.Linear(FLAT, 8)), SEQUENCE, ["map.addmm", "add"]),
    "a mean for each token": (Module(spread_mean, map=nn.Linear(8, 8)), SEQUENCE, ["mean"]),
    "a mean and positions": (
        Module(mean_at_positions, map=nn.Linear(8, 8), positions=nn.Embedding(16, 8)), SEQUENCE, ["mean"],
    ),
    "attention among the tokens": (Module(attended, map=MAP), SEQUENCE, ["map.addmm", "bmm", "_softmax", "bmm_2"]),
    "windows": (Module(of_windows, map=nn.Linear(32, 32)), SEQUENCE, ["map.addmm"]),
    "patches": (Module(of_patches, down=STRIDED, up=UP), IMAGE, ["down.convolution"]),
    "a map": (Module(flattened, map=nn.Linear(768, 768)), IMAGE, ["map.addmm"]),
    "a map of another size": (
        Module(decoded, map=nn.Linear(768, 200), up=nn.ConvTranspose2d(8, 3, 2, 2)), IMAGE, ["map.addmm"],
    ),
}  # fmt: skip
# Of their tokens, a fixed number is merged.
FIXED = ("windows", "patches")


@pytest.mark.parametrize("case", CASES)
def test_what_merges_tokens_that_are_divided_again_mixes_them(case: str) -> None:
    module, x, rows = CASES[case]
    read, found = tokens_read(module, x), analyzed(module, x)
    mixing = [row for row in found.rows if row.mixes]
    assert [row.path for row in mixing] == rows
    assert {row.reads_tokens for row in mixing} == {read}
    assert {row.mixing for row in mixing} == {"local" if case in FIXED else "global"}


def test_of_a_flattened_bottleneck_between_strided_convolutions_the_tokens_are_patches() -> None:
    parts = {"down": STRIDED, "first": nn.Linear(96, 9), "second": nn.Linear(9, 96), "up": UP}
    found = analyzed(Module(bottleneck, **parts), IMAGE)
    assert [(row.path, row.mixing, row.reads_tokens) for row in found.rows if row.mixes] == [
        ("first.addmm", "global", 16)
    ]


def classifier(self: Any, x: Tensor) -> Tensor:
    return self.head(F.relu(self.map(x.flatten(1))))


def pooled_heads(self: Any, x: Tensor) -> Tensor:
    """Softmax over groups of logits, which are no tokens."""
    return self.map(self.first(x).mean(1)).view(-1, self.groups, 4).softmax(-1)


@pytest.mark.parametrize(
    ("module", "x"),
    [
        (Module(classifier, map=nn.Linear(FLAT, 16), head=nn.Linear(16, 16)), SEQUENCE),
        (Module(classifier, map=nn.Linear(768, FLAT), head=nn.Linear(FLAT, 256)), IMAGE),
        (Module(pooled_heads, first=nn.Linear(8, 8), map=nn.Linear(8, 16), groups=4), SEQUENCE),
        # at one of the small sizes there are as many tokens
        *(
            (Module(pooled_heads, first=nn.Linear(8, 8), map=nn.Linear(8, 4 * n), groups=n), torch.randn(2, 120, 8))
            for n in (24, 36)
        ),
    ],
)  # fmt: skip
def test_a_head_that_never_comes_back_to_tokens_is_per_token(module: nn.Module, x: Tensor) -> None:
    found = analyzed(module, x)
    assert not [row.path for row in found.rows if row.mixes]


def test_a_note_names_the_products_that_merge_all_tokens_and_no_means() -> None:
    two = Module(
        lambda self, x: self.a(x.flatten(1)) * self.b(x.flatten(1)).sigmoid(),
        a=nn.Linear(FLAT, 9),
        b=nn.Linear(FLAT, 9),
    )
    mean = Module(pooled_heads, first=nn.Linear(8, 8), map=nn.Linear(8, 16), groups=4)
    notes = [[one for one in analyzed(module, SEQUENCE).metadata.notes if "merged" in one] for module in (two, mean)]
    assert [len(one) for one in notes] == [1, 0]
    assert " a and 1 more:" in notes[0][0]


@pytest.mark.parametrize(("pooled", "noted"), [(7, True), (1, False)])
def test_the_head_of_a_spec_has_the_note_where_its_hidden_layer_reads_several_tokens(pooled: int, noted: bool) -> None:
    head = FlattenClassifier(pooled=pooled, hidden=[8])
    assert bool([*head.notes(Place(grid=Grid((14, 14)), dim=4, out_dim=4))]) == noted


@pytest.mark.parametrize("heads", [2, 4, 8])
def test_heads_as_wide_as_the_image_are_channels_of_its_patches(heads: int) -> None:
    def attended(self: Any, image: Tensor) -> Tensor:  # heads of 32, 16 and 8 channels, patches of 4×4
        x = self.patches(image).flatten(2).mT
        return x + self.attention(x, x, x, need_weights=False)[0]

    attention = nn.MultiheadAttention(64, heads, batch_first=True)
    module = Module(attended, patches=nn.Conv2d(3, 64, 4, 4), attention=attention)
    for side in (8, 16, 32):
        mixed = [row for row in analyzed(module, torch.randn(1, 3, side, side)).rows if row.mixing != "per-token"]
        assert [row.ran.aten for row in mixed] == ["scaled_dot_product_attention"]
