"""A model of transformers out of its config.json: the class that the config's architectures name, on `meta`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from xfcost.ledger.errors import UsageError, printable
from xfcost.torch_models.any_model.user_errors import raised
from xfcost.torch_models.build import MOST_BLOCKS


def configured(path: str, device: str) -> nn.Module:
    """The model of the config at `path`, which has a model_type, without weights.

    Raises:
        UsageError: transformers isn't installed, or does not know the config.
    """
    shown = printable(path, 200)
    try:
        import transformers
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "transformers":
            raise UsageError(
                f"{shown}: no spec can be made of it, and its own code is in transformers, which is not installed: "
                "pip install transformers"
            ) from None
        raise UsageError(f"{shown}: importing transformers raised {raised(error)}") from error
    with open(path, encoding="utf-8-sig") as file:
        values = json.load(file)
    _check_depth(values, shown)
    try:
        make = _class(values.get("architectures"), shown) or transformers.AutoModel.from_config
        config = transformers.AutoConfig.for_model(**values)
        with torch.device(device):
            return make(config).eval()
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"{shown}: transformers refuses it: {raised(error)}") from error


def _check_depth(values: Any, shown: str, place: str = "") -> None:
    """Refuse numbers of layers that would be built without end.

    Raises:
        UsageError: one is too large.
    """
    for key, value in values.items() if isinstance(values, dict) else ():
        if isinstance(value, dict):
            _check_depth(value, shown, f"{place}{key}.")
        counts = value if isinstance(value, list) else [value]
        if ("layer" in key or "depth" in key) and any(type(one) is int and one > MOST_BLOCKS for one in counts):
            raise UsageError(
                f"{shown}: {place}{key}: expected at most {MOST_BLOCKS:,} layers, which are built one by one, got "
                f"{max(one for one in counts if type(one) is int):,}"
            )


def _class(architectures: Any, shown: str) -> Callable[[Any], nn.Module] | None:
    """The class that the config names first; None where it names none."""
    import transformers

    names = [architectures] if isinstance(architectures, str) else architectures
    if not names:
        return None
    name = names[0] if isinstance(names, list) and isinstance(names[0], str) else None
    cls = getattr(transformers, name, None) if name is not None else None
    if not isinstance(cls, type) or not issubclass(cls, nn.Module):
        raise UsageError(
            f"{shown}: transformers {transformers.__version__} has no model {printable(str(name or names), 80)}; "
            "architectures names the class to look at"
        )
    return cls
