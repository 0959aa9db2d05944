"""A model of transformers out of its config.json: the class that the config's architectures name, on `meta`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import nn

from xfcost.ledger.errors import UsageError, printable
from xfcost.torch_models.any_model.inputs import Given
from xfcost.torch_models.any_model.user_errors import raised

_DEFAULT_TOKENS: Final = 512


def configured(path: str, device: str) -> nn.Module:
    """The model of the config at `path`, without weights.

    Raises:
        UsageError: transformers isn't installed, or does not know the config.
    """
    shown = printable(path, 200)
    try:
        import transformers
    except ImportError:
        raise UsageError(
            f"{shown}: no spec can be made of it, and its own code is in transformers, which is not installed: "
            "pip install transformers"
        ) from None
    values = _values(path, shown)
    names = values.get("architectures") or []
    cls = getattr(transformers, str(names[0]), None) if names else None
    if names and cls is None:
        raise UsageError(
            f"{shown}: transformers {transformers.__version__} has no {printable(str(names[0]), 80)}; architectures "
            "names the class to look at"
        )
    try:
        config = transformers.AutoConfig.for_model(**values)
        with torch.device(device):
            return (cls or transformers.AutoModel.from_config)(config).eval()
    except Exception as error:
        raise UsageError(f"{shown}: transformers refuses it: {raised(error)}") from error


def _values(path: str, shown: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            values = json.load(file)
    except OSError as error:
        raise UsageError(f"{shown}: {error.strerror or 'it can not be read'}") from None
    except ValueError as error:
        raise UsageError(f"{shown}: expected JSON: {raised(error)}") from None
    if not isinstance(values, dict) or not isinstance(values.get("model_type"), str):
        raise UsageError(f"{shown}: expected a config.json of transformers, with its model_type")
    return values


def usual_inputs(model: Any, letters: Mapping[str, int | None], device: str) -> Given:
    """The inputs that a model of transformers takes, by its main input's name: texts, images, speech.

    A text has N tokens, or as many as the model has positions for, at most 512.

    Raises:
        UsageError: its main input is another.
    """
    config, main, batch = model.config, getattr(model, "main_input_name", "input_ids"), letters.get("B") or 1
    makers = {"input_ids": _text, "pixel_values": _image, "input_features": _spectrogram, "input_values": _wave}
    if main not in makers:
        raise UsageError(
            f"{type(model).__name__}: its main input is {main}; say its shape by --input {main}=…, and the others"
        )
    tensors = {main: makers[main](config, batch, letters.get("N"), device)}
    both = {"input_ids", "pixel_values"}
    if main in both and {"input_ids", "pixel_values"} <= _parameters(model) and hasattr(config, "text_config"):
        other = (both - {main}).pop()
        tensors[other] = makers[other](config, batch, letters.get("N"), device)
    if getattr(config, "is_encoder_decoder", False):
        start = getattr(config, "decoder_start_token_id", None) or 0
        tokens = tensors["input_ids"].shape[1] if "input_ids" in tensors else _tokens(config, None)
        tensors["decoder_input_ids"] = torch.full((batch, tokens), start, dtype=torch.int64, device=device)
    return Given((), tensors)


def text_tokens(model: Any, tokens: int | None) -> int | None:
    """N of the text that `usual_inputs` makes, or of other inputs where `tokens` are given; None of images alone."""
    main = getattr(model, "main_input_name", "input_ids")
    if main == "input_ids":
        return _tokens(model.config, tokens)
    return tokens


def _parameters(model: nn.Module) -> set[str]:
    import inspect

    return set(inspect.signature(model.forward).parameters)


def _of(config: Any, *names: str) -> Any:
    """The first of these fields that the config has, or the part of it that is of the same input."""
    parts = [config, *(getattr(config, part, None) for part in ("text_config", "vision_config", "audio_config"))]
    for part in parts:
        for name in names:
            found = getattr(part, name, None)
            if found is not None:
                return found
    return None


def _tokens(config: Any, tokens: int | None) -> int:
    most = _of(config, "max_position_embeddings", "n_positions", "max_target_positions")
    return tokens or min(_DEFAULT_TOKENS, most if isinstance(most, int) and most > 0 else _DEFAULT_TOKENS)


def _text(config: Any, batch: int, tokens: int | None, device: str) -> torch.Tensor:
    return torch.zeros((batch, _tokens(config, tokens)), dtype=torch.int64, device=device)


def _image(config: Any, batch: int, _: int | None, device: str) -> torch.Tensor:
    size = _of(config, "image_size") or 224
    sides = [size, size] if isinstance(size, int) else list(size)
    return torch.randn((batch, _of(config, "num_channels", "in_channels") or 3, *sides), device=device)


def _spectrogram(config: Any, batch: int, tokens: int | None, device: str) -> torch.Tensor:
    frames = tokens or 2 * (_of(config, "max_source_positions") or 500)
    return torch.randn((batch, _of(config, "num_mel_bins") or 80, frames), device=device)


def _wave(config: Any, batch: int, tokens: int | None, device: str) -> torch.Tensor:
    return torch.randn((batch, tokens or 16_000), device=device)
