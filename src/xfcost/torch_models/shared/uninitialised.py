"""Modules whose `meta` weights are not initialised, which takes time."""

from __future__ import annotations

from typing import Any


class Uninitialised:
    """To stand before a module of torch.nn: its weights are initialised as torch does it, but not on `meta`."""

    weight: Any

    def reset_parameters(self) -> None:
        if not self.weight.is_meta:
            super().reset_parameters()  # type: ignore[misc]
