"""The table of families in docs/import.md."""

from __future__ import annotations

import cog

from xfcost.importing.convert import FAMILIES, family_of


def families_table() -> None:
    """A row per family: model_type and default architecture."""
    cog.outl("\n| `model_type` | default architecture |\n|---|---|")
    for model_type in FAMILIES:
        cog.outl(f"| `{model_type}` | `{family_of(model_type).architectures[0]}` |")
    cog.outl()
