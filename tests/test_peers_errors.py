"""Models on which other counters err (docs/how-it-is-checked.md): parameters and MACs are the truth by hand."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import xfcost
from transformers_models import transformers

pytestmark = pytest.mark.rest


class PlainViT(nn.Module):
    """ViT-B/16 out of `nn.TransformerEncoder`, whose fast path hides its products."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 768, 16, 16)
        self.cls = nn.Parameter(torch.zeros(1, 1, 768))
        self.positions = nn.Parameter(torch.zeros(1, 197, 768))
        layer = nn.TransformerEncoderLayer(768, 12, 3072, activation="gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 12, norm=nn.LayerNorm(768), enable_nested_tensor=False)
        self.head = nn.Linear(768, 1000)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).mT
        x = torch.cat((self.cls.expand(len(x), -1, -1), x), 1) + self.positions
        return self.head(self.encoder(x)[:, 0])


IMAGE = (1, 3, 224, 224)
GPT3 = {"n_embd": 12288, "n_layer": 96, "n_head": 96, "n_positions": 2048}
# name -> class, fields of the config, shape of the input, parameters, MACs
MODELS: dict[str, tuple[str, dict[str, Any], tuple[int, ...], int, int]] = {
    "vit": ("ViTForImageClassification", {"num_labels": 1000}, IMAGE, 86_567_656, 17_563_828_224),
    "swin": ("SwinForImageClassification", {"num_labels": 1000}, IMAGE, 28_288_354, 4_490_566_656),
    "gpt2": ("GPT2LMHeadModel", {}, (1, 1024), 124_439_808, 145_824_153_600),
    "gpt3": ("GPT2LMHeadModel", GPT3, (1, 2048), 174_604_259_328, 367_402_130_866_176),
}


def built(name: str, attention: str) -> nn.Module:
    model = getattr(transformers, MODELS[name][0])
    with torch.device("meta"):
        return model(model.config_class(**MODELS[name][1], attn_implementation=attention)).eval()


@pytest.mark.parametrize(
    ("name", "attention"), [("vit", "eager"), ("vit", "sdpa"), ("swin", "sdpa"), ("gpt2", "sdpa"), ("gpt3", "eager")]
)
def test_attention_counts_however_it_runs(name: str, attention: str) -> None:
    _, _, shape, params, macs = MODELS[name]
    dtype = torch.int64 if len(shape) == 2 else torch.float32
    ledger = xfcost.analyze(built(name, attention), example_inputs=torch.zeros(shape, dtype=dtype, device="meta"))
    assert (ledger.total("params"), ledger.total("macs")) == (params, macs)
    assert ledger.module is not None
    assert not ledger.module.uncounted
    assert next(iter(ledger.by("module", depth=1).values()))


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_the_fast_path_of_an_encoder_counts(device: str) -> None:
    with torch.device(device):
        model, images = PlainViT().eval(), torch.zeros(IMAGE)
    for _ in range(2):  # and a second count starts at zero
        ledger = xfcost.analyze(model, example_inputs=images, trace=False)
        assert (ledger.total("params"), ledger.total("macs")) == (86_567_656, 17_563_828_224)
