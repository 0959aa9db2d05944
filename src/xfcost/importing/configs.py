"""The text of a config, in a config.json, as YAML or in the metadata of a GGUF; and what it says of the model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from xfcost.importing.checkpoints import Checkpoint, config_place, read_checkpoint
from xfcost.importing.stored import format_as_stored, stored_weights
from xfcost.ledger.errors import printable
from xfcost.ledger.quantization import WeightFormat
from xfcost.spec import targets
from xfcost.spec.checkpoints import fused_map, published_weights
from xfcost.spec.hub import hub_source
from xfcost.spec.reader import read, read_file
from xfcost.spec.targets import CONFIG, ModuleTarget, is_gguf, is_yaml


def config_text(place: str) -> str:
    """The text of the config at `place`, as JSON.

    Raises:
        SpecError: the file can't be read, or is YAML with an error.
        UsageError: it is a bad GGUF, or one of an unknown architecture.
    """
    if is_yaml(place):
        name = printable(place, 200)
        return json.dumps(read(read_file(Path(place), name, CONFIG), name)[0], indent=1)
    if not is_gguf(place):
        return read_file(Path(place), printable(place, 200), CONFIG)
    from xfcost.importing.gguf import gguf_config

    return json.dumps(gguf_config(place), indent=1)


def config_values(place: str) -> dict[str, Any] | None:
    """The values of a config; None where the file has none.

    Raises:
        UsageError: it is a bad GGUF, or one of an unknown architecture.
    """
    return json.loads(config_text(place)) if is_gguf(place) else targets.config_values(place)


def stated_dtype(values: Mapping[str, Any]) -> str | None:
    """The dtype that a config, or its part for text, says its weights have; None where it does not."""
    text = values.get("text_config")
    parts = (values, text) if isinstance(text, dict) else (values,)
    found = (part.get(name) for part in parts for name in ("dtype", "torch_dtype"))
    return next((one.removeprefix("torch.") for one in found if isinstance(one, str)), None)


def weights_at(target: ModuleTarget, config: Mapping[str, Any]) -> WeightFormat | str | None:
    """The format of the weights of a target with this config: by its tensors, where it names a checkpoint.

    Raises:
        UsageError: a file of the checkpoint is bad, or a regular expression in the config is none.
    """
    published = published_weights(config, target.place)
    if target.checkpoint is None:
        return published
    checkpoint, own = _checkpoint(target, config), "its metadata" if is_gguf(target.place) else "config.json"
    if not checkpoint.tensors:  # of a folder that has its weights in another format, or none
        return published
    bits = published.bits if isinstance(published, WeightFormat) else 4
    return format_as_stored(stored_weights(checkpoint, own, bits), published, checkpoint.format, fused_map(config))


def _checkpoint(target: ModuleTarget, config: Mapping[str, Any]) -> Checkpoint:
    if (model := hub_source(target.place)) is not None and target.checkpoint == model.text:
        from xfcost.importing.hub import tensors_of

        tensors = tensors_of(model)
        return Checkpoint(model.text, config, tensors, len({one.file for one in tensors}))
    if not is_gguf(target.place):
        return read_checkpoint(target.checkpoint or target.place, config)
    from xfcost.importing.gguf import read_gguf

    return read_gguf(target.place)


def checked_place(target: ModuleTarget) -> ModuleTarget:
    """The target with the place of its config, where it names a checkpoint.

    Raises:
        UsageError: it has no config; with what its tensors say.
    """
    if target.checkpoint is None:
        return target
    return msgspec.structs.replace(target, place=config_place(target.checkpoint))
