"""Twins: the order of its sub-layers, its published figures' convention, and its forward in plain torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from contract import OneStage
from specs import counted
from transformers_models import CLASSES, ours_of
from whole_probe import probe

PRINTED = {
    "twins-pcpvt-s": 3.7,
    "twins-pcpvt-b": 6.4,
    "twins-pcpvt-l": 9.5,
    "twins-svt-s": 2.8,
    "twins-svt-b": 8.3,
    "twins-svt-l": 14.8,
}


@pytest.mark.parametrize(("name", "printed"), PRINTED.items())
def test_the_printed_figures_leave_out_the_products_of_attention(name: str, printed: float) -> None:
    ledger = counted(name)
    products = ("scores", "weighted_sum")
    assert round(ledger.total("macs", lambda row: row.operation not in products) / 1e9, 1) == printed
    assert round(ledger.total("macs") / 1e9, 1) > printed


def test_positions_stand_behind_the_first_block_of_every_stage_alone() -> None:
    for name in PRINTED:
        encoders = [row for row in counted(name).rows if row.operation == "conv" and "blocks" in row.path]
        assert [(row.path, row.times) for row in encoders] == [(f"stages.{i}.blocks.0.2.conv", 1) for i in range(4)]
        assert {row.mixing for row in encoders} == {"local"}


def spec(size: int) -> dict[str, Any]:
    """Twins-SVT, small: windows of 2, patches of 4, 2 and 1."""

    def stage(number: int) -> dict[str, Any]:
        local, mlp = {"kind": "window", "size": 2, "heads": 2, "bias": "none"}, {"kind": "mlp", "ratio": 2}
        pooled = {"kind": "spatial_reduction", "heads": 2, "reduction": [4, 2, 1][number]}
        positions = {"kind": "depthwise_conv", "residual": {"norm": "none"}}
        enter = [{"kind": "conv", "size": 2, "stride": 2, "norm": "layer_norm"}] if number else []
        return {"enter": enter, "dim": 6 * 2**number, "blocks": [[local, mlp, positions], [pooled, mlp]]}

    return {
        "input": {"kind": "image", "size": size},
        "embed": [{"kind": "patch", "size": 4, "norm": "layer_norm"}],
        "stages": [stage(number) for number in range(3)],
        "head": {"kind": "classifier", "pool": "mean", "classes": CLASSES},
    }


def test_two_blocks_read_everything(tmp_path: Path) -> None:
    _, live = ours_of(spec(32), tmp_path)
    stage = live.model.get_submodule("streams.0.stages.0")
    x = torch.zeros(1, 64, 6)
    assert {len(reads) for reads in probe(OneStage(stage), (x,)).reads} == {64}
    # The first alone: a window, its neighbours by the position encoding, a kernel wide. A corner's 2×2 window and those
    # that touch it: 4×4 tokens.
    del stage.run[1]
    first = probe(OneStage(stage), (x,)).reads
    assert first[0] == frozenset(8 * y + x for y in range(2) for x in range(2))
    assert first[9] == frozenset(8 * y + x for y in range(4) for x in range(4))


# In plain torch ──────────────────────────────────────────────────────────────────────────────────────────────────────


def attention(q_BND: Tensor, k_BMD: Tensor, v_BMD: Tensor, heads: int) -> Tensor:
    """One head after the other."""
    parts = zip(*(part.chunk(heads, -1) for part in (q_BND, k_BMD, v_BMD)), strict=True)
    return torch.cat([(q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v for q, k, v in parts], dim=-1)


def normed(leaf: nn.Module, x: Tensor) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:], leaf.weight, leaf.bias)


def mapped(leaf: nn.Module, x: Tensor) -> Tensor:
    return x @ leaf.weight.T + leaf.bias


def grouped(mixer: Any, x_BYXD: Tensor) -> Tensor:
    """Windows of 2×2, one after the other."""
    y_BYXD = torch.zeros_like(x_BYXD)
    for top in range(0, x_BYXD.shape[1], 2):
        for left in range(0, x_BYXD.shape[2], 2):
            window = (slice(None), slice(top, top + 2), slice(left, left + 2))
            q, k, v = mapped(mixer.qkv, x_BYXD[window].flatten(1, 2)).chunk(3, -1)
            y_BYXD[window] = mapped(mixer.out, attention(q, k, v, 2)).unflatten(1, (2, 2))
    return y_BYXD


def subsampled(mixer: Any, x_BYXD: Tensor) -> Tensor:
    """Keys of patches."""
    keys = x_BYXD.flatten(1, 2)
    if mixer.reduce is not None:
        stride = mixer.reduce.weight.shape[-1]
        reduced = functional.conv2d(x_BYXD.permute(0, 3, 1, 2), mixer.reduce.weight, mixer.reduce.bias, stride)
        keys = normed(mixer.norm, reduced.flatten(2).mT)
    k, v = mapped(mixer.kv, keys).chunk(2, -1)
    attended = attention(mapped(mixer.q, x_BYXD.flatten(1, 2)), k, v, 2)
    return mapped(mixer.out, attended).unflatten(1, x_BYXD.shape[1:3])


def plain(model: Any, image: Tensor) -> Tensor:
    """Twins-SVT as its paper draws it (figure 2), its weights those of our model."""
    stream, x = model.streams[0], image
    for index, stage in enumerate(stream.stages):
        (entry,) = stage.enter if index else stream.embed
        leaf = entry.conv if index else entry.projection
        x = functional.conv2d(x, leaf.weight, leaf.bias, stride=leaf.weight.shape[-1])
        x_BYXD = normed(entry.norm, x.permute(0, 2, 3, 1))
        for mixer, mlp, *positions in stage.run:
            mix = grouped if positions else subsampled
            x_BYXD = x_BYXD + mix(mixer.inner, normed(mixer.residual_norm, x_BYXD))
            hidden = functional.gelu(mapped(mlp.inner.fc1, normed(mlp.residual_norm, x_BYXD)))
            x_BYXD = x_BYXD + mapped(mlp.inner.fc2, hidden)
            for encoder in positions:
                kernel = encoder.inner.conv
                x = x_BYXD.permute(0, 3, 1, 2)
                more = functional.conv2d(x, kernel.weight, kernel.bias, padding=1, groups=x.shape[1])
                x_BYXD = (x + more).permute(0, 2, 3, 1)
        x = x_BYXD.permute(0, 3, 1, 2)
    return mapped(model.head.linear, normed(model.head.norm, x_BYXD).flatten(1, 2).mean(1))
