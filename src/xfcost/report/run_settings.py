"""Run options that all systems of a comparison share and no header shows."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from xfcost.ledger import units
from xfcost.ledger.ledger import Ledger
from xfcost.report.training import speed_text


def run_texts(ledger: Ledger) -> Iterator[Text]:
    """New tokens, the memory level, the optimizer, the length and the speed of a training run."""
    if ledger.generation is not None:
        m, n = ledger.generation.new_tokens, ledger.generation.prompt
        yield Text(f"MACs and FLOPs: {m:,} new tokens after {n:,}, with a KV cache", style="dim")
    if ledger.metadata.memory_level is not None:
        level = units.size(ledger.metadata.memory_level)
        yield Text(f"attention traffic: main memory, plain and tiled for {level} on chip (FlashAttention)", style="dim")
    if ledger.training is None:
        return
    yield Text(f"optimizer: {ledger.training.step.optimizer}", style="dim")
    run = ledger.training.run
    if run is not None:
        speed = "" if run.rate is None else f" on {speed_text(run)}"
        yield Text(f"run: {units.count(run.tokens)} tokens{speed}", style="dim")
