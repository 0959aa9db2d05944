"""What the tests of `xfcost import` share: models as transformers builds them, and specs as we count them."""

import json
from pathlib import Path
from typing import Any

import torch

from transformers_models import transformers
from xfcost.counting.forward import count
from xfcost.importing import ImportedSpec, import_config
from xfcost.ledger.ledger import Ledger
from xfcost.spec.architecture import Architecture
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.spec.run import Run

CONFIGS = Path(__file__).parent / "data" / "configs"
# Sizes of a small decoder.
TEXT = {
    "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4,
    "intermediate_size": 24, "vocab_size": 29, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
OWN = Run()  # the spec's own size
# Classes of transformers before its version 5.
RENAMED = {"T5WithLMHeadModel": "T5ForConditionalGeneration"}


def write(folder: Path, values: dict[str, Any]) -> Path:
    """A config.json with these fields."""
    path = folder / "config.json"
    path.write_text(json.dumps(values))
    return path


def placed(path: Path, run: Run = OWN, architecture: str | None = None) -> tuple[ImportedSpec, Architecture]:
    """The spec that the config makes, written to a file beside it and loaded as a user's."""
    spec = import_config(path, architecture)
    file = path.with_suffix(".yaml")
    file.write_text(spec.text)
    return spec, place(load(str(file)), run)


def ours(path: Path, run: Run = OWN, architecture: str | None = None) -> Ledger:
    return count(placed(path, run, architecture)[1])


def theirs(values: dict[str, Any], architecture: str, device: str = "meta", **more: Any) -> Any:
    """The model that transformers builds from the same fields, without weights."""
    fields = {name: value for name, value in values.items() if name != "architectures"}
    config = transformers.AutoConfig.for_model(**(fields | more))
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"  # the default's products are not seen by counters
    with torch.device(device):
        model = getattr(transformers, RENAMED.get(architecture, architecture))(config)
    return model.eval().requires_grad_(requires_grad=False)
