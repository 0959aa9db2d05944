"""Seven systems of docs/reach.md: how far information travels in each, at its own size."""

from __future__ import annotations

from typing import Final

import cog

import xfcost
from xfcost.counting.reach.result import BlockReach, Reach
from xfcost.ledger.grid import sides_text
from xfcost.questions.reach.text import input_text
from xfcost.report.document import table_of, to_markup

# Windows as the character model has them, the layers' dilation growing with depth (Beltagy et al. 2020, §4.1).
_DILATED: Final = [f"stages.0.blocks.{number}.blocks.0.0.dilation={number}" for number in (1, 2, 3, 4)]
_SYSTEMS: Final = (
    ("Swin-T", "swin-t", []),
    ("ResNet-50", "resnet-50", []),
    ("Longformer, character LM, dilations 1 to 4", "longformer-char-small", _DILATED),
    ("BigBird-base", "bigbird-base", []),
    ("GPT-2", "gpt2", []),
    ("Mamba-130M", "mamba-130m", []),
    ("MLP-Mixer-B/16", "mixer-b16", []),
)


def write() -> None:
    """The table."""
    cog.outl("")
    cog.outl(
        to_markup(
            table_of([_row(name, xfcost.reach(preset, settings=more)) for name, preset, more in _SYSTEMS]), "markdown"
        )
    )


def _row(name: str, found: Reach) -> dict[str, str]:
    blocks = found.blocks
    some = (blocks[0], blocks[len(blocks) // 2 - 1], blocks[-1])
    length = f"block {found.path_length} of {len(blocks)}" if found.path_length else f"never, {len(blocks)} blocks"
    return {
        "system": name,
        "input": input_text(found.inputs[0]),
        **dict(zip(("after block 1", "after half of them", "after the last"), map(_met, some), strict=True)),
        "receptive field": sides_text(found.receptive_field) if found.receptive_field else "–",
        "all depend on all": length,
        "in a layer": f"{found.sequential} steps" if found.sequential > 1 else "at once",
    }


def _met(step: BlockReach) -> str:
    met = step.met[0]
    if met.whole:
        return "all" if met.smallest == met.largest else "all earlier"
    return f"{met.smallest:,}" + (f" to {met.largest:,}" if met.largest > met.smallest else "")
