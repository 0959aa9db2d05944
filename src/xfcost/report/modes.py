"""Ledger -> the lines that say what a mode adds: the cache, what a token more reads, what a text costs."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from xfcost.ledger import units
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.metadata import Metadata
from xfcost.ledger.modes import Cache, Generation, Step, Work
from xfcost.spec.architecture import PROMPTED


def asked(metadata: Metadata) -> str:
    """How the mode stands in a report's header; nothing of a plain forward."""
    words = {"decode": "decode, one token more", "train": "train, one step"}
    if metadata.mode == "forward":
        return ""
    return f"   mode {words.get(metadata.mode, metadata.mode)}{_logits(metadata)}"


def _logits(metadata: Metadata) -> str:
    """Of which positions of a prompt the logits are."""
    if metadata.logits is None or metadata.mode not in PROMPTED:
        return ""
    return ", logits of the last position" if metadata.logits == "last" else ", logits of all positions"


def mode_parts(ledger: Ledger) -> Iterator[Text | Table]:
    """What stands beside the rows."""
    if ledger.cache is not None:
        yield cache_text(ledger.cache, ledger.metadata)
    if ledger.step is not None:
        yield step_text(ledger.step)
    if ledger.generation is not None:
        yield Text()
        yield generation_table(ledger.generation)


def cache_text(cache: Cache, metadata: Metadata) -> Text:
    """How much is kept of the past, and how that grows."""
    text = Text("cache: ", style="bold")
    text.append(f"{units.size(cache.bytes)} {metadata.dtype}, batch {metadata.batch}; ", style="not bold")
    if cache.bytes_per_token:
        text.append(f"{units.size(cache.bytes_per_token)} more per token of a sample", style="not bold")
        if cache.state_bytes:
            text.append(f", {units.size(cache.state_bytes)} that grow no more with N", style="not bold")
    elif cache.bytes:
        text.append("it grows no more with N", style="not bold")
    else:
        text.append("nothing is kept", style="not bold")
    return text


def step_text(step: Step) -> Text:
    """What a token has to read, and how much work there is for every byte."""
    text = Text("read per step: ", style="bold")
    intensity = "" if step.intensity is None else f"; {units.ratio(step.intensity)[:-1]} FLOPs per byte read"
    most = "at most " if step.at_most else ""
    shared = "; the samples' experts may be the same" if step.at_most else ""
    text.append(
        f"{most}{units.size(step.bytes_read)} "
        f"({units.size(step.weight_bytes)} of weights, {units.size(step.cache_bytes)} "
        f"of cache{shared}){intensity} (a device with more FLOP/s per byte/s waits for its memory)",
        style="not bold",
    )
    return text


def generation_table(generation: Generation) -> Table:
    """With a cache, and without one."""
    m, n = generation.new_tokens, generation.prompt
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(f"{m:,} new tokens after {n:,}")
    for title in ("MACs", "FLOPs"):
        table.add_column(title, justify="right")
    lines: list[tuple[str, Work | None, str]] = [("  prefill, which gives the first", generation.prefill, "")]
    if generation.decode is not None:
        lines += [(f"  {m - 1:,} steps, one token each", generation.decode, "")]
        lines += [("with a cache", generation.with_cache, "bold")]
    passes = "1 pass" if m == 1 else f"{m:,} passes"
    lines += [(f"without: {passes} over all tokens so far", generation.without_cache, "bold")]
    for words, work, style in lines:
        cells = (None, None) if work is None else (work.macs, work.flops)
        table.add_row(words, *(units.count(value) for value in cells), style=style)
    if generation.with_cache is not None:
        table.add_row("", *_saved(generation.with_cache, generation.without_cache))
    return table


def _saved(less: Work, more: Work) -> list[str]:
    pairs = ((less.macs, more.macs), (less.flops, more.flops))
    return [f"{units.ratio(high / low)} more" if low else units.DASH for low, high in pairs]
