"""Kinds whose rows do not yet declare what autograd saves: models with them have no saved activations in closed form.

The files of their formulas, `layers.conv` for `layers/conv.py`.
"""

from __future__ import annotations

from typing import Final

UNDECLARED: Final[frozenset[str]] = frozenset()


def file_of(component: object) -> str:
    """The file of a component's formulas, as on the list."""
    return type(component).__module__.removeprefix("xfcost.")
