"""The tables of families in docs/import.md, and of architectures in docs/checkpoints.md."""

from __future__ import annotations

import cog

from xfcost.importing.convert import FAMILIES, family_of
from xfcost.importing.gguf import ARCHITECTURES


def families_table() -> None:
    """A row per family: model_type and default architecture."""
    cog.outl("\n| `model_type` | default architecture |\n|---|---|")
    for model_type in FAMILIES:
        cog.outl(f"| `{model_type}` | `{family_of(model_type).architectures[0]}` |")
    cog.outl()


def architectures_table() -> None:
    """A row per architecture of GGUF: its class of transformers."""
    cog.outl("\n| `general.architecture` | class |\n|---|---|")
    for name, model_class in ARCHITECTURES.items():
        cog.outl(f"| `{name}` | `{model_class}` |")
    cog.outl()
