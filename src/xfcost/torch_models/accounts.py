"""The torch accounts of a spec: its model is built and traced, and joined with the counted ledger."""

from __future__ import annotations

import msgspec
from torch import Tensor, nn

from xfcost.counting.forward import count
from xfcost.counting.training import with_saved_activations
from xfcost.ledger.accounts import RUN
from xfcost.ledger.join import join, with_backward
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.metadata import Agreement
from xfcost.spec.architecture import Architecture
from xfcost.torch_models.build import build
from xfcost.torch_models.memory.shortage import within_torch
from xfcost.torch_models.memory.training_step import adafactor_states
from xfcost.torch_models.running.by_row import dispatched_rows, train, trained_rows
from xfcost.torch_models.shared.environment import with_versions
from xfcost.torch_models.shared.private_torch import no_compiler
from xfcost.torch_models.tracing.trace import traced_rows


def traced(architecture: Architecture, ledger: Ledger) -> Ledger:
    """`ledger` joined with the traced and the dispatched account of the torch model on `meta`.

    Of training also with its backward pass and its saved activations.
    """
    with within_torch(ledger), no_compiler():
        live = build(architecture)
        joined = reconciled(with_versions(ledger), live.model, live.inputs, live.rows)
        if ledger.training is None:
            return joined
        live.model.train().requires_grad_()
        found = train(live.model, live.inputs)
        joined = with_backward(joined, *trained_rows(live.model, found, live.rows))
        return with_saved_activations(joined, sum(found.saved.values()), adafactor_states(live.model.parameters()))


def reconciled(ledger: Ledger, model: nn.Module, inputs: tuple[Tensor, ...], rows: dict[str, str]) -> Ledger:
    """`ledger` joined with the traced and the dispatched account of `model`; `rows` are those of `BuiltModel`."""
    dispatched = dispatched_rows(model, inputs, rows)
    return join(join(ledger, *traced_rows(model, inputs, rows)), *dispatched, account="dispatched", quantities=RUN)


def with_traced(ledger: Ledger, step: Architecture) -> Ledger:
    """`ledger` of a generation, with the trace of one decode step."""
    step_ledger = traced(step, count(step, orders=False))
    found, ours = step_ledger.agreement, ledger.agreement
    if found is None or ours is None:
        raise TypeError("only a traced ledger has an agreement to extend")
    tokens = step.streams[-1].grid.tokens
    differences = (dict(each, path=f"decode at {tokens}: {each['path']}") for each in found.differences)
    uncounted = (f"decode at {tokens}: {text}" for text in found.uncounted)
    agreement = Agreement(
        exact=ours.exact and found.exact,
        accounts=ours.accounts,
        differences=(*ours.differences, *differences),
        uncounted=(*ours.uncounted, *uncounted),
    )
    return msgspec.structs.replace(ledger, agreement=agreement)
