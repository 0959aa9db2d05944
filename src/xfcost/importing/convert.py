"""config.json -> the YAML of a spec that loads, and remarks on what was assumed.

The list of families is by `model_type`; the file of a family is imported when a config needs it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from xfcost.importing.configs import config_values, stated_dtype
from xfcost.importing.family import (
    COST_FREE,
    SUPPORTED_VALUES,
    ConfigFile,
    Family,
    name_in_file,
    read_config,
    read_family,
)
from xfcost.ledger.errors import ComponentError, SpecError, UsageError, combined_message, nearest, printable
from xfcost.ledger.quantization import WeightFormat
from xfcost.spec.checkpoints import positions_of_config, published_weights
from xfcost.spec.hub import config_label, hub_source
from xfcost.spec.load import Loaded, checked
from xfcost.spec.models import config_of, models
from xfcost.spec.overrides import apply_settings
from xfcost.spec.placement import place
from xfcost.spec.reader import read, shown_value
from xfcost.spec.run import Run
from xfcost.spec.show import spec_text
from xfcost.spec.targets import folder_name

# model_type -> (file of this folder, struct in it)
FAMILIES: Final[dict[str, tuple[str, str]]] = {
    "bert": ("text", "Bert"),
    "roberta": ("text", "Roberta"),
    "xlm-roberta": ("text", "XlmRoberta"),
    "distilbert": ("text", "DistilBert"),
    "openai-gpt": ("text", "Gpt1"),
    "gpt2": ("text", "Gpt2"),
    "bloom": ("text", "Bloom"),
    "t5": ("text", "T5"),
    "mt5": ("text", "Mt5"),
    "llama": ("llama", "Llama"),
    "mistral": ("llama", "Mistral"),
    "qwen2": ("llama", "Qwen2"),
    "mixtral": ("llama", "Mixtral"),
    "deepseek_v2": ("llama", "DeepseekV2"),
    "deepseek_v3": ("llama", "DeepseekV3"),
    "mamba": ("recurrent", "MambaFamily"),
    "mamba2": ("recurrent", "Mamba2Family"),
    "rwkv": ("recurrent", "Rwkv"),
    "vit": ("vision", "Vit"),
    "deit": ("vision", "Deit"),
    "pvt": ("vision", "Pvt"),
    "poolformer": ("vision", "PoolFormer"),
    "convnext": ("vision", "ConvNextFamily"),
    "resnet": ("vision", "ResNet"),
    "swin": ("vision", "Swin"),
    "swinv2": ("vision", "Swinv2"),
}


def family_of(model_type: str) -> type[Family]:
    """The family of a `model_type` in the list."""
    module, name = FAMILIES[model_type]
    family: type[Family] = getattr(import_module(f"xfcost.importing.{module}"), name)
    return family


_MAX_NAME_LENGTH: Final = 80


class ImportedSpec(NamedTuple):
    """A spec made from a config."""

    text: str
    """YAML, with comments on its source."""
    data: dict[str, Any]
    """The keys of the spec."""
    model_type: str
    architecture: str
    remarks: tuple[str, ...]
    """Sentences: assumptions, and fields that change no count."""
    weights: WeightFormat | str | None
    """The format of its checkpoint's weights, or what is not known of that."""
    positions: int | None
    """The most tokens that it has positions for."""


def import_config(path: Path, architecture: str | None = None, ignored: Collection[str] = ()) -> ImportedSpec:
    """The spec of the config at `path`.

    Args:
        path: the file.
        architecture: the class to count instead of the one in the config.
        ignored: unknown fields to skip.

    Raises:
        SpecError: the file is no config, or a spec cannot express it; with file, line and field.
        UsageError: `architecture` is not supported.
    """
    file = read_config(path, printable(config_label(str(path)), most=200))
    model_type = _model_type(file)
    family_type, family_remarks = _family_type(model_type, file)
    chosen, architecture_remarks = _architecture(file, family_type, architecture)
    family, field_remarks = read_family(family_type, file, ignored)
    try:
        draft = family.draft(chosen)
    except ComponentError as error:
        raise file.error(name_in_file(error.field, family_type, file), error.message) from None
    ignored_remarks = (f"{name}: ignored (--ignore)." for name in ignored)
    remarks = (
        *family_remarks,
        *architecture_remarks,
        *ignored_remarks,
        *field_remarks,
        *_defaults(family, chosen, file),
        *draft.remarks,
    )
    data = {"name": f"{_name(path, file)} ({chosen})", "paper": family_type.paper, **draft.keys}
    source = f"Made by `xfcost import` from {file.name}: model_type {model_type}, architecture {chosen}."
    text = spec_text(data, (source, *remarks))
    place(_loaded(text, file.name), Run())  # checks every component in its place
    of_checkpoint = published_weights(file.values, file.name), positions_of_config(file.values)
    return ImportedSpec(text, data, model_type, chosen, remarks, *of_checkpoint)


def _model_type(file: ConfigFile) -> str:
    if "model_type" not in file.values:
        raise SpecError(
            f"{file.name}: has no model_type; expected a config.json of transformers with one of {', '.join(FAMILIES)}"
        )
    model_type = file.values["model_type"]
    if not isinstance(model_type, str):
        raise file.error("model_type", f"expected text, got {shown_value(model_type)}")
    return model_type


def _family_type(model_type: str, file: ConfigFile) -> tuple[type[Family], list[str]]:
    """The family of `model_type`, or of the config's architecture where `model_type` is unknown; and remarks."""
    if model_type in FAMILIES:
        return family_of(model_type), []
    architectures = file.values.get("architectures")
    first = architectures[0] if isinstance(architectures, list) and architectures else None
    families = [family for family in map(family_of, FAMILIES) if first in family.architectures]
    if not families:
        other = "" if first is None else f", nor is its architecture {shown_value(first)}"
        raise file.error(
            "model_type",
            f"{shown_value(model_type)} is not supported{other}; a config of another model_type is another model. "
            f"Expected one of {', '.join(FAMILIES)}",
        )
    remark = f"Assumed: {first}, from the config's architectures; no family has the model_type {printable(model_type)}."
    return families[0], [remark]


def _architecture(file: ConfigFile, family_type: type[Family], requested: str | None) -> tuple[str, list[str]]:
    """The class that is counted, and remarks."""
    known = family_type.architectures
    if requested is not None:
        if requested not in known:
            raise UsageError(
                f"--architecture {printable(str(requested))}: {nearest(requested, known)} "
                f"({file.name}: model_type {file.values['model_type']})"
            )
        return requested, []
    names = file.values.get("architectures")
    if names is None or names == []:
        others = f"; --architecture takes {', '.join(known[1:])}" if known[1:] else ""
        return known[0], [f"Assumed: {known[0]}; the config names no architectures{others}."]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise file.error("architectures", f"expected a list of names, got {shown_value(names)}")
    if names[0] not in known:
        raise file.error(
            "architectures",
            f"{shown_value(names[0])} is not supported; expected one of {', '.join(known)} (choose by --architecture)",
        )
    remarks = [f"Assumed: {names[0]}, the first of {len(names)} architectures."] if len(names) > 1 else []
    return names[0], remarks


def _defaults(family: Family, architecture: str, file: ConfigFile) -> Iterator[str]:
    """One remark on the defaults of fields that the file doesn't have; switches that are off are not listed."""
    fields = type(family).__struct_fields__
    missing = [name for name in fields if name_in_file(name, type(family), file) not in file.lines]
    assumed = [
        f"{name} {shown_value(getattr(family, name))}"
        for name in missing
        if getattr(family, name) not in (None, False) and (name != "num_labels" or "Classification" in architecture)
    ]
    if assumed:
        yield f"Assumed: {', '.join(assumed)}; transformers' defaults of fields that the config doesn't have."


def _name(path: Path, file: ConfigFile) -> str:
    """A name for the model: the file's, the config's, or the folder's."""
    own = file.values.get("_name_or_path")
    in_config = own.rstrip("/").rpartition("/")[2] if isinstance(own, str) else ""
    model = hub_source(str(path))
    if model is not None:
        return model.repo.rpartition("/")[2]
    candidates = (path.stem if path.stem != "config" else "", in_config, folder_name(path), "model")
    plain = (re.sub(r"[^\w .+-]", "", name).strip(" .") for name in candidates)
    return next(name for name in plain if name)[:_MAX_NAME_LENGTH]


def _loaded(text: str, name: str, settings: Sequence[str] = ()) -> Loaded:
    data, source = read(text, f"{name}: the spec that it makes")
    if unset := apply_settings(data, source, settings):
        raise UsageError(combined_message(unset))
    return checked(data, source, name, settings)


def loaded_config(path: Path, settings: Sequence[str] = ()) -> Loaded:
    """The spec of the config at `path`, loaded, with the `--set` options.

    Raises:
        SpecError: the file is no config, or a spec cannot express it.
        UsageError: a setting matches nothing.
    """
    spec, name = import_config(path), printable(config_label(str(path)), most=200)
    loaded = _loaded(spec.text, name, settings)
    dtype = stated_dtype(config_values(str(path)) or {})
    return msgspec.structs.replace(loaded, weights=spec.weights, positions=spec.positions, dtype=dtype)


# Beside those that no family counts: what a class of transformers, which makes its weights itself, does not read.
_IGNORED_BY_CLASSES: Final = COST_FREE | {"auto_map", "quantization_config"}


def listed_model(values: Mapping[str, Any], *, all_fields: bool = True) -> str | None:
    """The model of the list whose config has these fields, but for null and those that change no count; or None.

    The metadata of a GGUF do not have `all_fields` of a config: those that both have decide, where one model has them.
    """
    fields = _counted_fields(values)
    configs = {name: msgspec.json.decode(config_of(name).read_bytes()) for name in models()}
    if all_fields:
        return next((name for name, config in configs.items() if _counted_fields(config) == fields), None)
    found = [name for name, config in configs.items() if _alike(_counted_fields(config), fields)]
    return found[0] if len(found) == 1 else None


# Fields of a GGUF without which two models are not called alike: their class, and what gives their matrices.
_SHAPES: Final = ("model_type", "hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
# What does not change a count, and is written otherwise in a GGUF.
_POSITIONS: Final = ("rope_theta", "max_position_embeddings")


def _alike(listed: Mapping[str, Any], fields: Mapping[str, Any]) -> bool:
    both = (listed.keys() & fields.keys()) - {*_POSITIONS}
    return all(name in both for name in _SHAPES) and all(listed[name] == fields[name] for name in both)


def _counted_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that may change a count, of a config and of its parts, such as `text_config`."""
    return {
        name: dict(_counted(value)) if isinstance(value, dict) and name.endswith("_config") else value
        for name, value in _counted(values)
    }


def _counted(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        usual = name in SUPPORTED_VALUES and value in SUPPORTED_VALUES[name][0]
        if value is not None and name not in _IGNORED_BY_CLASSES and not usual:
            yield name, value
