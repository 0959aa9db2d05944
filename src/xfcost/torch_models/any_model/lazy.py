"""Lazy modules, which take their shapes from the first inputs that they see."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from xfcost.torch_models.any_model.user_errors import refused


def with_shapes(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Run a model that has lazy parameters once, on its example inputs; for a model of ours, which may change.

    Raises:
        UsageError: it does not run on these inputs.
    """
    if not any(is_lazy(tensor) for tensor in (*model.parameters(), *model.buffers())):
        return
    try:
        with torch.no_grad():
            model(*args, **kwargs)
    except (Exception, SystemExit) as error:
        raise refused(model, error) from error
