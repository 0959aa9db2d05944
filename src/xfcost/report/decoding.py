"""Ledger -> the lines of prefill, decode and generate: the cache, bytes read per step, the cost of new tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from xfcost.ledger import units
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.metadata import Metadata
from xfcost.ledger.modes import CacheBytes, DecodeStep, Generation, PassWork
from xfcost.report.document import DataTable, Lines, line, numbers

EXPECTED: Final = "with the expected experts"


def cache_answers(ledger: Ledger) -> Iterator[Lines]:
    """The header's lines of the cache, and of the total of a generation."""
    if ledger.generation is not None:
        yield generation_text(ledger.generation)
    if ledger.cache is not None:
        yield cache_text(ledger.cache, ledger.metadata)


def step_answers(ledger: Ledger) -> Iterator[Lines]:
    """The header's lines of a decode step: bytes read, intensity, tokens at once."""
    if ledger.step is not None:
        yield from step_texts(ledger.step, cache_name(ledger.cache))
        yield line(f"{ledger.metadata.batch:,} (one per sample)", head="tokens at once: ")


def cache_name(*caches: CacheBytes | None) -> str:
    """`KV cache`, `recurrent state`, or both, of one system or several."""
    known = [cache for cache in caches if cache is not None]
    recurrent = any(cache.recurrent_bytes for cache in known)
    if not recurrent or any(cache.bytes > cache.recurrent_bytes for cache in known):
        return "KV cache and recurrent state" if recurrent else "KV cache"
    return "recurrent state"


def cache_text(cache: CacheBytes, metadata: Metadata) -> Lines:
    """Its bytes, and how they grow with N."""
    growth = "it does not grow with N" if cache.bytes else "nothing is cached"
    if cache.bytes_per_token:
        growth = f"{units.size(cache.bytes_per_token)} more per token of a sample"
        growth += f"; {units.size(cache.state_bytes)} do not grow with N" if cache.state_bytes else ""
    size = f"{units.size(cache.bytes)} {metadata.dtype}, batch {metadata.batch}"
    return line(f"{size}; {growth}", head=f"{cache_name(cache)}: ")


def step_texts(step: DecodeStep, cache: str) -> Iterator[Lines]:
    """Bytes that one decode step reads; FLOPs per byte, and below which ridge point that is memory-bound."""
    fewest = step.least_weight_bytes + step.cache_bytes
    least = f"; {units.size(fewest)} if all samples choose the same experts" if step.expected else ""
    yield line(
        f"{'expected ' if step.expected else ''}{units.size(round(step.bytes_read))} "
        f"({units.size(round(step.weight_bytes))} of weights, {units.size(step.cache_bytes)} of {cache}{least})",
        head="bytes read per step: ",
    )

    if step.intensity is not None:
        yield line(
            f"{intensity_number(step.intensity)} FLOP/byte{f' {EXPECTED}' if step.expected else ''}: memory-bound "
            "wherever the ridge point is higher",
            head="arithmetic intensity ",
        )


def intensity_number(intensity: float) -> str:
    """`0.50`, `151`: three digits, two of them behind the point where it is small."""
    return f"{intensity:.2f}" if intensity < 10 else f"{intensity:,.4g}"  # noqa: PLR2004 - two digits behind the point


def generation_text(generation: Generation) -> Lines:
    """The total of prompt and new tokens, and how much more it is without a cache."""
    m, n = generation.new_tokens, generation.prompt
    total = generation.with_cache
    work = total or generation.without_cache
    words = f"{units.exact(work.macs)} MACs   {units.exact(work.flops)} FLOPs"
    if total is None:
        return line(words, head=f"{m:,} new tokens after {n:,}, without a cache: ")
    more = _times_more(total.macs, generation.without_cache.macs)
    return line(f"{words} ({more} without a cache)", head=f"{m:,} new tokens after {n:,}: ")


def generation_table(generation: Generation) -> DataTable:
    """With a cache, and without one."""
    m, n = generation.new_tokens, generation.prompt
    lines: list[tuple[str, PassWork | None, str]] = [("  prefill (gives the first)", generation.prefill, "")]
    if generation.decode is not None:
        lines += [(f"  {m - 1:,} decode steps", generation.decode, "")]
        lines += [("with a cache", generation.with_cache, "bold")]
    passes = "1 pass" if m == 1 else f"{m:,} passes"
    lines += [(f"without a cache: {passes} over all tokens so far", generation.without_cache, "bold")]
    rows = [
        [words, units.count(None if work is None else work.macs), units.count(None if work is None else work.flops)]
        for words, work, _ in lines
    ]
    if generation.with_cache is not None:
        cached, anew = generation.with_cache, generation.without_cache
        rows.append(["", _times_more(cached.macs, anew.macs), _times_more(cached.flops, anew.flops)])
    columns = numbers(f"{m:,} new tokens after {n:,}", "MACs", "FLOPs")
    return DataTable(columns, rows, [*(style for _, _, style in lines), ""])


def _times_more(less: int, more: int) -> str:
    return f"{units.ratio(more / less)} more" if less else units.DASH
