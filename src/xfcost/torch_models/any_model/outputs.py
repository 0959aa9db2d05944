"""What a module returns that has not run yet: generators run to their end, futures are waited for."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from itertools import islice
from typing import Any, Final

import torch

from xfcost.ledger.errors import UsageError
from xfcost.torch_models.shared.private_torch import pytree

# A generator that gives more is not run further; it may never end.
MOST_ITEMS: Final = 10_000


def finished(outputs: Any, unfinished: Counter[str]) -> Any:
    """`outputs` with what generators give and futures hold in their place; what is not run is counted in `unfinished`.

    Raises:
        UsageError: the module is asynchronous, and only an event loop runs it.
    """
    return pytree.tree_map(lambda leaf: _finished(leaf, unfinished), outputs)


def _finished(leaf: Any, unfinished: Counter[str]) -> Any:
    if isinstance(leaf, AsyncIterator) or inspect.iscoroutine(leaf):
        if inspect.iscoroutine(leaf):
            leaf.close()
        raise UsageError("its forward is asynchronous, and nothing runs until it is awaited; give a plain forward")
    if isinstance(leaf, Future):
        return finished(leaf.result(), unfinished)
    if isinstance(leaf, torch.futures.Future):
        return finished(leaf.wait(), unfinished)
    if not isinstance(leaf, Iterator):
        return leaf
    items = [finished(item, unfinished) for item in islice(leaf, MOST_ITEMS)]
    if next(leaf, items) is not items:
        unfinished[f"a generator after {MOST_ITEMS:,} items"] += 1
    return items
