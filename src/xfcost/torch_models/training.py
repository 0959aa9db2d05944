"""The traced account of a training step: its backward pass traced on `meta`."""

from __future__ import annotations

from collections import defaultdict

from xfcost.counting.training import with_saved_activations
from xfcost.ledger.join import with_backward
from xfcost.ledger.ledger import Ledger
from xfcost.torch_models.build import BuiltModel
from xfcost.torch_models.memory.batch_statistics import batch_statistics
from xfcost.torch_models.memory.training_step import adafactor_states
from xfcost.torch_models.tracing.backward import Walked, walk
from xfcost.torch_models.tracing.rows import row_path


def walked(live: BuiltModel, ledger: Ledger) -> Ledger:
    """`ledger` joined with the backward pass of the torch model on `meta`, and with its saved activations."""
    live.model.train().requires_grad_()
    with batch_statistics(ledger.metadata.name):
        found = walk(live.model, live.inputs)
    blocks, saved, outside = costs_by_row(live, found)
    joined = with_backward(ledger, blocks, saved, outside)
    return with_saved_activations(joined, sum(found.saved.values()), adafactor_states(live.model.parameters()))


def costs_by_row(live: BuiltModel, found: Walked) -> tuple[dict[str, list[int]], dict[str, int], list[str]]:
    """By row: backward MACs of each block, and bytes saved by all blocks; and texts about work outside all rows."""
    blocks: dict[str, list[int]] = defaultdict(list)
    saved: dict[str, int] = defaultdict(int)
    owned = set()
    for name, module in live.model.named_modules():
        path = row_path(name, live.rows)
        if path is not None and next(module.children(), None) is None:
            owned.add(name)
            blocks[path].append(found.backward[name])
            saved[path] += found.saved[name]
    outside = [
        f"{name or 'the model itself'}: {macs} backward_macs outside the leaves of any mechanism"
        for name, macs in found.backward.items()
        if macs and name not in owned
    ]
    for name in found.saved.keys() & live.rows.keys() - owned:  # the two streams of a reversible stage
        saved[live.rows[name]] += found.saved[name]
    return blocks, saved, outside
