"""ConvNeXt: what is refused, a head that normalises behind the pool, transformers' model beside ours."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from specs import architecture_of
from strategies import as_yaml
from transformers_models import transformers
from xfcost.counting.forward import count
from xfcost.formulas.component import Place
from xfcost.ledger.errors import ComponentError, SpecError
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.convnext import ConvNext
from xfcost.torch_models.build import build

SPOT = Place(grid=Grid((3, 4)), dim=10, out_dim=10)


@pytest.mark.parametrize(
    ("component", "spot", "message"),
    [
        (ConvNext(size=6), SPOT, "6 is even, and the kernel is centred; try 5 or 7"),
        (ConvNext(ratio=0.25), SPOT, r"0.25·10 is not a whole width; give `hidden` instead"),
        (ConvNext(), Place(grid=Grid((3, 4), 1), dim=10, out_dim=10), "expected no special tokens, got 1"),
    ],
)
def test_blocks_that_can_not_stand_are_refused(component: ConvNext, spot: Place, message: str) -> None:
    with pytest.raises(ComponentError, match=message):
        component.check(spot)


def test_norm_after_pool_is_told_where_it_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    file.write_text(as_yaml({"extends": "poolformer-s12", "name": "one", "head": {"norm_after_pool": True}}))
    with pytest.raises(SpecError, match=r"one\.yaml:\d+ head\.norm_after_pool: the group norm of one vector"):
        architecture_of(str(file))


# transformers ────────────────────────────────────────────────────────────────────────────────────────────────────────


def theirs(**settings: object) -> nn.Module:
    config = transformers.ConvNextConfig(**settings)
    return transformers.ConvNextForImageClassification(config).eval().requires_grad_(requires_grad=False)


@pytest.mark.parametrize("size", [[64, 96], [66, 75]], ids=["divided", "left over"])
def test_outputs_and_macs_are_transformers_with_the_same_weights(size: list[int], tmp_path: Path) -> None:
    dims, depths = [6, 8, 10, 12], [1, 2, 1, 1]
    stages = [
        {
            "dim": dim,
            "depth": depth,
            "enter": [{"kind": "norm"}, {"kind": "conv", "size": 2, "stride": 2}] if number else [],
            "block": [{"kind": "convnext"}],
        }
        for number, (dim, depth) in enumerate(zip(dims, depths, strict=True))
    ]
    file = tmp_path / "small.yaml"
    small = {"extends": "convnext-t", "name": "small", "input": {"size": size}, "stages": stages}
    file.write_text(as_yaml(small | {"head": {"classes": 7}}))
    architecture = architecture_of(str(file), batch=2)
    live = build(architecture, "cpu")
    model = theirs(hidden_sizes=dims, depths=depths, num_labels=7)
    torch.manual_seed(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = 1e-5  # ours is PyTorch's own; it costs nothing
    copy(model, live.model)
    image = torch.randn(2, 3, *size, dtype=torch.float64)
    torch.testing.assert_close(live.model.double()(image), model.double()(image).logits, rtol=1e-9, atol=1e-10)
    with FlopCounterMode(display=False) as counter:
        model(image)
    assert counter.get_total_flops() == 2 * count(architecture).total("macs")


def copy(model: nn.Module, ours: nn.Module) -> None:
    """Their weights into ours, name by name; every one of ours is given."""
    given: dict[str, torch.Tensor] = {}

    def put(at: str, module: nn.Module) -> None:
        given.update({f"{at}.{name}": weight for name, weight in module.named_parameters()})

    put("streams.0.embed.0.conv", model.convnext.embeddings.patch_embeddings)
    put("streams.0.embed.0.norm", model.convnext.embeddings.layernorm)
    for number, stage in enumerate(model.convnext.encoder.stages):
        at = f"streams.0.stages.{number}"
        if number:
            put(f"{at}.enter.0.norm", stage.downsampling_layer[0])
            put(f"{at}.enter.1.conv", stage.downsampling_layer[1])
        for index, block in enumerate(stage.layers):
            parts = {"conv": block.dwconv, "norm": block.layernorm, "fc1": block.pwconv1, "fc2": block.pwconv2}
            for name, part in parts.items():
                put(f"{at}.run.{index}.0.inner.{name}", part)
            given[f"{at}.run.{index}.0.residual_layer_scale.weight"] = block.layer_scale_parameter
    put("head.norm", model.convnext.layernorm)
    put("head.linear", model.classifier)
    ours.load_state_dict(given)
