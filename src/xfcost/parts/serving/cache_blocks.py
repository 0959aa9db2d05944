"""Ledger -> the same with its cache in whole blocks of tokens, as serving engines reserve memory for it.

Recurrent states, and an encoder's keys and values, are no blocks: they are as large as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from math import ceil
from typing import Final

import msgspec

from xfcost.ledger.cache_blocks import CacheBlocks
from xfcost.ledger.errors import SpecError, UsageError
from xfcost.ledger.execution import Mode
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.modes import CacheBytes
from xfcost.ledger.operation import Operation

# The first N that a module's decode step is counted at, to find what a token adds before any window is full.
_FIRST: Final = (2, 4, 8, 16)


def in_blocks(ledger: Ledger, blocks: CacheBlocks | None, at: Callable[[int, Mode, int], Ledger]) -> Ledger:
    """`ledger` of a mode with a cache, which `with_blocks` can then enlarge; `at` gives its run of (N, mode, batch).

    Raises:
        UsageError: a module's layers have windows, and it can't be counted at another N.
    """
    if blocks is None:
        return ledger
    blocks = CacheBlocks(tokens=blocks.tokens, whole=blocks.whole)
    mode, batch = ledger.metadata.mode, ledger.metadata.batch
    if not ledger.metadata.stages and ledger.cache is not None and _window_bytes(ledger.cache):
        blocks = msgspec.structs.replace(blocks, start_elements=_start_elements(ledger, at))
    elif ledger.metadata.stages and mode == "prefill":
        with suppress(SpecError):  # no decode step, and so no cache
            step = at(_tokens(ledger)[0], "decode", batch)
            recurrent = sum(step.cached_bytes_of(row) for row in step.rows if row.cache and row.cache.recurrent)
            exact = step.cached_bytes - recurrent
            reserved = with_blocks(_stamped(step, blocks)).cached_bytes - recurrent
            blocks = msgspec.structs.replace(blocks, share=Fraction(reserved, exact) if exact else None)
    return _stamped(ledger, blocks)


def _stamped(ledger: Ledger, blocks: CacheBlocks) -> Ledger:
    return msgspec.structs.replace(ledger, metadata=msgspec.structs.replace(ledger.metadata, cache_blocks=blocks))


def with_blocks(ledger: Ledger) -> Ledger:
    """`ledger`, which is `in_blocks`, with the cache that the blocks take, instead of its own."""
    blocks, cache = ledger.metadata.cache_blocks, ledger.cache
    if blocks is None:
        return ledger
    if not ledger.metadata.stages:  # of a module, whose rows write no caches
        return ledger if cache is None else msgspec.structs.replace(ledger, cache=_enlarged(ledger, cache, blocks))
    if blocks.share is not None and cache is not None:  # the rows of a prefill have no caches
        reserved = cache.recurrent_bytes + ceil((cache.bytes - cache.recurrent_bytes) * blocks.share)
        return msgspec.structs.replace(ledger, cache=msgspec.structs.replace(cache, bytes=reserved))
    context = _context(ledger)
    enlarged = ledger.part(_in_blocks(row, blocks, context) for row in ledger.rows)
    if cache is not None:
        cache = msgspec.structs.replace(cache, bytes=enlarged.cached_bytes)
    return msgspec.structs.replace(enlarged, cache=cache)


def _in_blocks(row: Operation, blocks: CacheBlocks, context: int) -> Operation:
    """`row` with the elements of all tokens that its blocks have room for."""
    cache = row.cache
    if cache is None or not cache.tokens:
        return row
    held = blocks.held(int(cache.tokens), context, in_windows=True)
    elements = cache.elements * held // cache.tokens
    return msgspec.structs.replace(row, cache=msgspec.structs.replace(cache, elements=elements, tokens=held))


def _tokens(ledger: Ledger) -> tuple[int, int]:
    """N of what decodes, and its special tokens."""
    metadata = ledger.metadata
    last = metadata.streams[-1] if metadata.streams else {}
    return last.get("tokens", metadata.grid_tokens), last.get("extra_tokens", metadata.extra_tokens)


def _context(ledger: Ledger) -> int:
    """The tokens of a sequence, special ones among them; of a generation at its end."""
    return sum(_tokens(ledger)) + (0 if ledger.generation is None else ledger.generation.new_tokens - 1)


def _window_bytes(cache: CacheBytes) -> int:
    """Of windows that are full."""
    return int(cache.state_bytes - cache.recurrent_bytes - cache.cross_attention_bytes)


def _start_elements(ledger: Ledger, at: Callable[[int, Mode, int], Ledger]) -> int:
    error = UsageError("")
    for tokens in _FIRST:
        try:
            first = at(tokens, "decode", 1)
        except UsageError as refused:
            error = refused
            continue
        if first.cache is not None and first.metadata.grid_tokens == tokens:
            return int(first.cache.bytes_per_token) // first.bytes_per_cached
    raise UsageError(
        f"--cache-blocks: the layers of {ledger.metadata.name} have windows, which are found by counting it at another "
        f"N; give inputs with an N{f' ({error})' if str(error) else ''}"
    )


def _enlarged(ledger: Ledger, cache: CacheBytes, blocks: CacheBlocks) -> CacheBytes:
    """Of a module, whose rows have no caches: layers that grow with N, and others whose windows are full.

    Windows of several sizes count as their mean.
    """
    batch, context, windows = ledger.metadata.batch, _context(ledger), _window_bytes(cache)
    growing, added = int(cache.bytes - cache.state_bytes), int(cache.bytes_per_token) * batch
    reserved = int(cache.bytes) - growing - windows
    if added:
        reserved += added * blocks.held(ceil(Fraction(growing, added)), context, in_windows=False)
    rate = (blocks.start_elements or 0) * ledger.bytes_per_cached * batch - added
    if windows and rate > 0:
        windows = rate * blocks.held(ceil(Fraction(windows, rate)), context, in_windows=True)
    return msgspec.structs.replace(cache, bytes=reserved + windows)
