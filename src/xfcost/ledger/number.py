"""The numbers in formulas."""

from __future__ import annotations

from typing import Any, TypeAlias

# An int in every count; a `LetteredInt` where an order is derived.
Number: TypeAlias = Any
