"""PoolFormer: what kernels of any stride read, what mixes globally, and transformers' model beside ours."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from specs import architecture_of, counted
from strategies import as_yaml
from transformers_models import transformers
from xfcost.counting.forward import count
from xfcost.formulas.component import Place
from xfcost.formulas.conv_kernel import Kernel
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.average_pool import AveragePool
from xfcost.torch_models.build import build


def spot(grid: Grid, dim: int = 1) -> Place:
    return Place(grid=grid, dim=dim, out_dim=dim)


@pytest.mark.parametrize(
    ("component", "grid", "message"),
    [
        (AveragePool(size=4), Grid((5, 5)), "4 is even, and the kernel is centred; try 3 or 5"),
        (AveragePool(), Grid((5, 5), 1), "slides over a grid: expected no special tokens, got 1"),
        (AveragePool(size=5), Grid((5, 5, 4)), "5 is larger than a side of the volume 5×5×4"),
    ],
)
def test_pools_that_can_not_stand_are_refused(component: AveragePool, grid: Grid, message: str) -> None:
    with pytest.raises(ComponentError, match=message):
        component.check(spot(grid))


@st.composite
def kernels(draw: st.DrawFn) -> tuple[Kernel, tuple[int, ...]]:
    rank = draw(st.integers(1, 2))
    axes = []
    for _ in range(rank):
        kernel, side = draw(st.integers(1, 6)), draw(st.integers(1, 9))
        least = max(0, -(-(kernel - side) // 2))
        axes.append((kernel, draw(st.integers(1, 4)), draw(st.integers(least, max(least, kernel - 1))), side))
    kernel, stride, padding, sides = zip(*axes, strict=True)
    return Kernel(kernel, stride, padding), sides


@given(drawn=kernels())
@settings(max_examples=200, deadline=None)
def test_what_a_kernel_of_any_stride_reads(drawn: tuple[Kernel, tuple[int, ...]]) -> None:
    kernel, sides = drawn
    # torch's unfold says which positions stand under every output; padding is 0, so tokens are numbered from 1.
    numbered = torch.arange(1.0, 1 + Grid(sides).tokens).reshape(1, 1, *sides)
    if len(sides) == 1:
        numbered, kernel = (
            numbered.unsqueeze(2),
            Kernel(
                *(
                    (fill, *axis)
                    for fill, axis in zip((1, 1, 0), (kernel.sides, kernel.stride, kernel.padding), strict=True)
                )
            ),
        )
        sides = (1, *sides)
    columns = nn.functional.unfold(numbered, kernel.sides, stride=kernel.stride, padding=kernel.padding)[0].T
    listed = [kernel.reads(sides, output) for output in range(len(columns))]
    assert [sorted(tokens) for tokens in listed] == [sorted(int(n) - 1 for n in column if n) for column in columns]
    assert all(list(tokens) == sorted(tokens) for tokens in listed)
    assert kernel.pairs(sides) == sum(map(len, listed))


def test_pooling_is_local_and_its_group_norms_are_global() -> None:
    ledger = counted("poolformer-s12")
    mixing = {row.operation: (row.mixing, row.reads) for row in ledger.rows if row.mixes}
    assert mixing == {
        "conv": ("local", "W²"),
        "pool": ("local", "W²"),
        "residual_norm": ("global", "N"),
        "norm": ("global", "N"),
    }
    # a group norm's statistics come from the content; nothing else that mixes does
    assert {row.operation for row in ledger.rows if row.content_dependent} == {"residual_norm", "norm"}
    assert any("over all tokens: the norms of the residuals mix globally" in note for note in ledger.metadata.notes)
    assert not any("mix globally" in note for note in counted("convnext-t").metadata.notes)
    # in MACs it mixes by the convolutions at its stem_layers alone
    assert {row.operation for row in ledger.rows if row.mixes and row.macs} == {"conv"}


# transformers ────────────────────────────────────────────────────────────────────────────────────────────────────────


def theirs(**settings: object) -> nn.Module:
    config = transformers.PoolFormerConfig(**settings)
    return transformers.PoolFormerForImageClassification(config).eval().requires_grad_(requires_grad=False)


def test_outputs_and_macs_are_transformers_with_the_same_weights(tmp_path: Path) -> None:
    dims, depths, size = [6, 8, 10, 12], [1, 2, 1, 1], [71, 54]  # nothing divides: 17×14, 9×7, 5×4, 3×2
    stages = [
        {
            "dim": dim,
            "depth": depth,
            "enter": [{"kind": "conv", "size": 3, "stride": 2, "padding": 1}] if number else [],
            "block": [{"kind": "average_pool"}, {"kind": "mlp"}],
        }
        for number, (dim, depth) in enumerate(zip(dims, depths, strict=True))
    ]
    file = tmp_path / "small.yaml"
    small = {"extends": "poolformer-s12", "name": "small", "input": {"size": size}, "stages": stages}
    file.write_text(as_yaml(small | {"head": {"kind": "classifier", "norm": "group_norm", "classes": 7}}))
    architecture = architecture_of(str(file), batch=2)
    live = build(architecture, "cpu")
    model = theirs(hidden_sizes=dims, depths=depths, num_labels=7)
    torch.manual_seed(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    copy(model, live.model)
    image = torch.randn(2, 3, *size, dtype=torch.float64)
    torch.testing.assert_close(live.model.double()(image), model.double()(image).logits, rtol=1e-9, atol=1e-10)
    with FlopCounterMode(display=False) as counter:
        model(image)
    assert counter.get_total_flops() == 2 * count(architecture).total("macs")


def copy(model: nn.Module, ours: nn.Module) -> None:
    """Their weights into ours, name by name; every one of ours is given."""
    encoder = model.poolformer.encoder
    given: dict[str, torch.Tensor] = {}

    def put(at: str, module: nn.Module) -> None:
        given.update({f"{at}.{name}": weight for name, weight in module.named_parameters()})

    for number, (entry, blocks) in enumerate(zip(encoder.patch_embeddings, encoder.block, strict=True)):
        stage = f"streams.0.stages.{number}"
        put(f"{stage}.enter.0.conv" if number else "streams.0.embed.0.conv", entry.projection)
        for at, block in enumerate(blocks):
            put(f"{stage}.run.{at}.0.residual_norm", block.before_norm)
            put(f"{stage}.run.{at}.1.residual_norm", block.after_norm)
            put(f"{stage}.run.{at}.1.inner.fc1", block.output.conv1)
            put(f"{stage}.run.{at}.1.inner.fc2", block.output.conv2)
            given[f"{stage}.run.{at}.0.residual_layer_scale.weight"] = block.layer_scale_1
            given[f"{stage}.run.{at}.1.residual_layer_scale.weight"] = block.layer_scale_2
    put("head.norm", model.norm)
    put("head.linear", model.classifier)
    mine = ours.state_dict()
    ours.load_state_dict({name: weight.reshape(mine[name].shape) for name, weight in given.items()})
