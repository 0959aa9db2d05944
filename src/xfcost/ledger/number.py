"""The numbers that formulas compute with."""

from __future__ import annotations

from typing import Any, TypeAlias

# A whole number: an int in every count that users see, a `Lettered` where an order is derived.
Number: TypeAlias = Any
