"""What tests of configs share: models as transformers builds and runs them, specs and ledgers as we count them."""

import json
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from modules import counted_by_torch
from transformers_models import cache_bytes, cache_name, transformers
from xfcost.api.analysis import analyze
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


def real(name: str, fields: dict[str, Any]) -> Any:
    """The model itself, in float32 with random weights on the CPU."""
    torch.manual_seed(0)
    made = getattr(transformers, name)
    model = made(made.config_class(**fields)).eval().requires_grad_(requires_grad=False)
    model.config._experts_implementation = "eager"
    return model


def stepped(model: Any, prompt: dict[str, torch.Tensor]) -> tuple[int, int]:
    """MACs of the step after a prompt, and the bytes of the cache after it."""
    ids = "decoder_input_ids" if "decoder_input_ids" in prompt else "input_ids"
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        first = model(**prompt, use_cache=True)
        key = next(one for one in (cache_name(), "cache_params") if first.get(one) is not None)
        step = {ids: prompt[ids][:, -1:], key: first[key]}
        if ids == "decoder_input_ids":
            step["encoder_outputs"] = model.get_encoder()(**{name: one for name, one in prompt.items() if name != ids})
        second, macs = counted_by_torch(lambda: model(**step, use_cache=True))
    return macs, cache_bytes(second[key])


def step_of(path: Path | str, **options: Any) -> Ledger:
    """The ledger of a decode step of two samples, of the class that a config names."""
    given = {"mode": "decode", "batch": 2, "dtype": "float32", "trace": False, "mixing": False, "closed_form": False}
    return analyze(str(path), **given | options)
