"""Does a run fit on devices, and up to which batch and N: weights, KV cache and attention matrices."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import msgspec

from xfcost.counting.decoding import run_at
from xfcost.counting.forward import count
from xfcost.ledger.errors import SpecError, UsageError
from xfcost.ledger.execution import MOST_BATCH
from xfcost.ledger.grid import MOST_TOKENS
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.on_devices import MemoryNeed
from xfcost.spec.architecture import Architecture
from xfcost.spec.load import Loaded
from xfcost.spec.placement import place
from xfcost.spec.run import Run


def memory_need(ledger: Ledger, available: int | None) -> MemoryNeed:
    """The bytes of a pass, a decode step or a generation."""
    return MemoryNeed(
        weights=(ledger.total("params") or 0) * ledger.bytes_per_element,
        cache=cache_bytes(ledger),
        attention=ledger.attention_memory()["peak"],
        available=available,
    )


def cache_bytes(ledger: Ledger) -> int:
    """Of the cache that its mode found, or else that its rows read."""
    return ledger.cache.bytes if ledger.cache is not None else ledger.cached_bytes


def with_largest(need: MemoryNeed, loaded: Loaded, run: Run, architecture: Architecture) -> MemoryNeed:
    """`need` of a decode step, with the largest batch and the largest N that fit."""
    if need.available is None:
        return need
    tokens, positions = _largest_tokens(need, loaded, run, architecture)
    return msgspec.structs.replace(
        need, largest_batch=_largest_batch(need, run), largest_tokens=tokens, positions=positions
    )


def _largest_batch(need: MemoryNeed, run: Run) -> int | None:
    """Cache and matrices are as many times larger as the batch; None where there are none."""
    each = (need.cache + need.attention) // run.batch
    return (
        None if not each or need.available is None else max(0, min((need.available - need.weights) // each, MOST_BATCH))
    )


def _largest_tokens(need: MemoryNeed, loaded: Loaded, run: Run, architecture: Architecture) -> tuple[int | None, bool]:
    """The largest N that fits; None where every N does. And whether the model has no more positions."""

    @cache
    def at(tokens: int) -> MemoryNeed | None:
        """None where the model has no such positions."""
        try:
            step = count(place(loaded, run_at(tokens, architecture, run, "decode")), orders=False)
        except (SpecError, UsageError):
            return None
        return memory_need(step, need.available)

    def fits(tokens: int) -> bool:
        found = at(tokens)
        return found is not None and found.fits is True

    largest = last_true(fits, architecture.streams[-1].grid.tokens, MOST_TOKENS)
    return largest, largest is not None and at(largest + 1) is None


def last_true(holds: Callable[[int], bool], start: int, most: int) -> int | None:
    """The largest number for which it holds, by doubling and halving; 0 where never, None where up to `most`."""
    low, high = 0, start
    while holds(high):
        if high == most:
            return None
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
