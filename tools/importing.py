"""The families that `xfcost import` knows, as docs/import.md lists them."""

from __future__ import annotations

import cog

from xfcost.importing.families import FAMILIES, family_of


def families_table() -> None:
    """A row per family: model_type, the architecture that is assumed."""
    cog.outl("\n| `model_type` | where no architecture is named |\n|---|---|")
    for model_type in FAMILIES:
        cog.outl(f"| `{model_type}` | `{family_of(model_type).architectures[0]}` |")
    cog.outl()
