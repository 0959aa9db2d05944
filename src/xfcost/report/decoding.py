"""Ledger -> the lines of prefill, decode and generate: the cache, bytes read per step, the cost of new tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.table import Table
from rich.text import Text

from xfcost.ledger import units
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.metadata import Metadata
from xfcost.ledger.modes import CacheBytes, DecodeStep, Generation, PassWork
from xfcost.report.console import bare_table

EXPECTED: Final = "with the expected experts"


def cache_answers(ledger: Ledger) -> Iterator[Text]:
    """The header's lines of the cache, and of the total of a generation."""
    if ledger.generation is not None:
        yield generation_text(ledger.generation)
    if ledger.cache is not None:
        yield cache_text(ledger.cache, ledger.metadata)


def step_answers(ledger: Ledger) -> Iterator[Text]:
    """The header's lines of a decode step: bytes read, intensity, tokens at once."""
    if ledger.step is not None:
        yield from step_texts(ledger.step, cache_name(ledger.cache))
        yield Text.assemble(("tokens at once: ", "bold"), f"{ledger.metadata.batch:,} (one per sample)")


def cache_name(*caches: CacheBytes | None) -> str:
    """`KV cache`, `recurrent state`, or both, of one system or several."""
    known = [cache for cache in caches if cache is not None]
    recurrent = any(cache.recurrent_bytes for cache in known)
    if not recurrent or any(cache.bytes > cache.recurrent_bytes for cache in known):
        return "KV cache and recurrent state" if recurrent else "KV cache"
    return "recurrent state"


def cache_text(cache: CacheBytes, metadata: Metadata) -> Text:
    """Its bytes, and how they grow with N."""
    growth = "it does not grow with N" if cache.bytes else "nothing is cached"
    if cache.bytes_per_token:
        growth = f"{units.size(cache.bytes_per_token)} more per token of a sample"
        growth += f"; {units.size(cache.state_bytes)} do not grow with N" if cache.state_bytes else ""
    size = f"{units.size(cache.bytes)} {metadata.dtype}, batch {metadata.batch}"
    return Text.assemble((f"{cache_name(cache)}: ", "bold"), f"{size}; {growth}")


def step_texts(step: DecodeStep, cache: str) -> Iterator[Text]:
    """Bytes that one decode step reads; FLOPs per byte, and below which ridge point that is memory-bound."""
    fewest = step.least_weight_bytes + step.cache_bytes
    least = f"; {units.size(fewest)} if all samples choose the same experts" if step.expected else ""
    yield Text.assemble(
        ("bytes read per step: ", "bold"),
        f"{'expected ' if step.expected else ''}{units.size(round(step.bytes_read))} "
        f"({units.size(round(step.weight_bytes))} of weights, {units.size(step.cache_bytes)} of {cache}{least})",
    )

    if step.intensity is not None:
        yield Text.assemble(
            ("arithmetic intensity ", "bold"),
            f"{intensity_number(step.intensity)} FLOP/byte{f' {EXPECTED}' if step.expected else ''}: memory-bound "
            "wherever the ridge point is higher",
        )


def intensity_number(intensity: float) -> str:
    """`0.50`, `151`: three digits, two of them behind the point where it is small."""
    return f"{intensity:.2f}" if intensity < 10 else f"{intensity:,.4g}"  # noqa: PLR2004 - two digits behind the point


def generation_text(generation: Generation) -> Text:
    """The total of prompt and new tokens, and how much more it is without a cache."""
    m, n = generation.new_tokens, generation.prompt
    total = generation.with_cache
    work = total or generation.without_cache
    words = f"{units.exact(work.macs)} MACs   {units.exact(work.flops)} FLOPs"
    if total is None:
        return Text.assemble((f"{m:,} new tokens after {n:,}, without a cache: ", "bold"), words)
    more = _times_more(total.macs, generation.without_cache.macs)
    return Text.assemble((f"{m:,} new tokens after {n:,}: ", "bold"), f"{words} ({more} without a cache)")


def generation_table(generation: Generation) -> Table:
    """With a cache, and without one."""
    m, n = generation.new_tokens, generation.prompt
    table = bare_table(f"{m:,} new tokens after {n:,}", "MACs", "FLOPs")
    lines: list[tuple[str, PassWork | None, str]] = [("  prefill (gives the first)", generation.prefill, "")]
    if generation.decode is not None:
        lines += [(f"  {m - 1:,} decode steps", generation.decode, "")]
        lines += [("with a cache", generation.with_cache, "bold")]
    passes = "1 pass" if m == 1 else f"{m:,} passes"
    lines += [(f"without a cache: {passes} over all tokens so far", generation.without_cache, "bold")]
    for words, work, style in lines:
        cells = (None, None) if work is None else (work.macs, work.flops)
        table.add_row(words, *(units.count(value) for value in cells), style=style)
    if generation.with_cache is not None:
        cached, anew = generation.with_cache, generation.without_cache
        table.add_row("", _times_more(cached.macs, anew.macs), _times_more(cached.flops, anew.flops))
    return table


def _times_more(less: int, more: int) -> str:
    return f"{units.ratio(more / less)} more" if less else units.DASH
