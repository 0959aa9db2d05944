"""The inputs that a model of transformers takes: texts, images, speech, and texts with the places of images."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import nn

from xfcost.ledger.errors import UsageError
from xfcost.torch_models.any_model.inputs import Given, noise
from xfcost.torch_models.any_model.user_errors import OwnError, message, refused

_DEFAULT_TOKENS: Final = 512
_WAVE: Final = 16_000


def usual_inputs(model: Any, letters: Mapping[str, int | None], device: str) -> Given:
    """The inputs of a model, by the name of its main input.

    A text has N tokens, or as many as the model has positions for, at most 512. N is the decoder's tokens where the
    encoder takes images or speech.

    Raises:
        UsageError: its main input is another.
    """
    config, main, batch = model.config, getattr(model, "main_input_name", "input_ids"), letters.get("B") or 1
    makers = {"input_ids": _text, "pixel_values": _image, "input_features": _spectrogram, "input_values": _sound}
    if main not in makers:
        raise UsageError(
            f"{type(model).__name__}: its main input is {main}; say its shape by --input {main}=…, and the others"
        )
    decodes = getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in _parameters(model)
    number = None if decodes and main != "input_ids" else letters.get("N")
    tensors = {main: makers[main](config, batch, number, device)}
    both = {"input_ids", "pixel_values"}
    if main in both and _takes_both(model):
        other = (both - {main}).pop()
        tensors[other] = makers[other](config, batch, number, device)
        tensors["input_ids"] = _with_images(model, tensors["input_ids"], tensors["pixel_values"])
    if decodes:
        start = getattr(config, "decoder_start_token_id", None) or 0
        tokens = tensors["input_ids"].shape[1] if "input_ids" in tensors else _tokens(config, letters.get("N"))
        tensors["decoder_input_ids"] = torch.full((batch, tokens), start, dtype=torch.int64, device=device)
    return Given((), tensors)


def text_tokens(model: Any, tokens: int | None) -> int | None:
    """N of the text that `usual_inputs` makes, or of other inputs where `tokens` are given; None of images alone."""
    main = getattr(model, "main_input_name", "input_ids")
    return _tokens(model.config, tokens) if main == "input_ids" else tokens


def _parameters(model: nn.Module) -> set[str]:
    return set(inspect.signature(model.forward).parameters)


def _takes_both(model: Any) -> bool:
    """Does it take texts and images of one size together? Images as lists of patches need their grid, which is left."""
    names, config = _parameters(model), model.config
    has_both = hasattr(config, "text_config") or _of(config, "image_size") is not None
    return {"input_ids", "pixel_values"} <= names and has_both and "image_grid_thw" not in names


def _with_images(model: Any, text: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
    """The text after as many image tokens as the model puts images' features in the place of.

    Raises:
        UsageError: the model's part for images does not run, such as on `meta`.
    """
    token = _of(model.config, "image_token_id", "image_token_index")
    if not isinstance(token, int) or not hasattr(model, "get_image_features"):
        return text
    try:
        with torch.no_grad():
            found = model.get_image_features(pixel_values=images)
    except Exception as error:
        looks_at_numbers = "meta" in message(error).lower()  # as torch words it
        raise refused(model, error, kind=UsageError if looks_at_numbers else OwnError) from error
    features = getattr(found, "pooler_output", found)
    parts = features if isinstance(features, tuple | list) else [features]
    width = parts[0].shape[-1]
    places = sum(part.numel() for part in parts) // (width * len(text))
    ahead = torch.full((len(text), places), token, dtype=text.dtype, device=text.device)
    return torch.cat((ahead, text), dim=1)


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
    return noise((batch, _of(config, "num_channels", "in_channels") or 3, *sides), device)


def _spectrogram(config: Any, batch: int, tokens: int | None, device: str) -> torch.Tensor:
    frames = tokens or 2 * (_of(config, "max_source_positions") or 500)
    return noise((batch, _of(config, "num_mel_bins") or 80, frames), device)


def _sound(config: Any, batch: int, tokens: int | None, device: str) -> torch.Tensor:
    """A wave; a spectrogram where the model has a number of frequencies and no convolutions over a wave."""
    bins, frames = getattr(config, "num_mel_bins", None), getattr(config, "max_length", None)
    if bins and frames and not hasattr(config, "conv_kernel"):
        return noise((batch, frames, bins), device)
    return noise((batch, tokens or _WAVE), device)
