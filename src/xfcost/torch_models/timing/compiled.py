"""torch.compile, with its failures as one error."""

from __future__ import annotations

import torch
from torch import nn


def compiled(model: nn.Module) -> nn.Module:
    """`model` compiled by torch.compile; it compiles at the first call."""
    return torch.compile(model)  # type: ignore[return-value]
