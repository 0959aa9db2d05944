"""The traced account of a training step: its backward pass traced on `meta`."""

from __future__ import annotations

from xfcost.counting.training import with_saved_activations
from xfcost.ledger.join import with_backward
from xfcost.ledger.ledger import Ledger
from xfcost.torch_models.build import BuiltModel
from xfcost.torch_models.memory.batch_statistics import batch_statistics
from xfcost.torch_models.memory.training_step import adafactor_states
from xfcost.torch_models.running.by_row import train, trained_rows


def walked(live: BuiltModel, ledger: Ledger) -> Ledger:
    """`ledger` joined with the backward pass of the torch model on `meta`, and with its saved activations."""
    live.model.train().requires_grad_()
    with batch_statistics(ledger.metadata.name):
        found = train(live.model, live.inputs)
    blocks, saved, outside = trained_rows(live.model, found, live.rows)
    joined = with_backward(ledger, blocks, saved, outside)
    return with_saved_activations(joined, sum(found.saved.values()), adafactor_states(live.model.parameters()))
