"""A model of transformers out of its config.json: the class that the config's architectures name, on `meta`."""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import nn

from xfcost.ledger.errors import UsageError, printable
from xfcost.torch_models.any_model.user_errors import raised


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
