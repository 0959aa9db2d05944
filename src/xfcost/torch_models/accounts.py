"""The torch accounts of a spec: its model is built and traced, and joined with the counted ledger; chains of layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import torch
from torch import Tensor, nn

from xfcost.counting.forward import count
from xfcost.counting.layer_types import CriticalPath
from xfcost.formulas.component import Grid, Place
from xfcost.ledger.accounts import RUN
from xfcost.ledger.join import join, with_backward
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.metadata import Agreement
from xfcost.parts.training.step import with_saved_activations
from xfcost.spec.architecture import Architecture
from xfcost.torch_models.build import build, thinned
from xfcost.torch_models.memory.shortage import within_torch
from xfcost.torch_models.memory.training_step import adafactor_states
from xfcost.torch_models.program import ProgramModule
from xfcost.torch_models.running.by_row import ALL, dispatch, dispatched_rows, trained_rows
from xfcost.torch_models.running.record import RunRecord
from xfcost.torch_models.running.recorder import Recorder
from xfcost.torch_models.shared.leaves import trained
from xfcost.torch_models.shared.private_torch import no_compiler, pytree
from xfcost.torch_models.tracing.trace import traced_rows


def traced(architecture: Architecture, ledger: Ledger) -> Ledger:
    """`ledger` joined with the traced and the dispatched account of the torch model on `meta`.

    Of training also with its backward pass and its saved activations. Of repeated blocks a few are built.
    """
    with within_torch(ledger), no_compiler():
        few, blocks = thinned(architecture)
        live = build(few)
        stands_for = {
            name: times
            for block, times in blocks.items()
            for name, _ in live.model.get_submodule(block).named_modules(prefix=block)
        }
        joined = reconciled(ledger.run_with("torch", "fvcore"), *live, stands_for)
        if ledger.training is None:
            return joined
        trained(live.model.train())
        found = dispatch(live.model, live.inputs, backward=True)
        joined = with_backward(joined, *trained_rows(live.model, found, live.rows, stands_for))
        saved = sum(nbytes * stands_for.get(name, 1) for name, nbytes in found.saved_by_module().items())
        states = sum(
            adafactor_states([parameter]) * stands_for.get(name.rpartition(".")[0], 1)
            for name, parameter in live.model.named_parameters()
            if parameter.requires_grad
        )
        return with_saved_activations(joined, saved, states)


def reconciled(
    ledger: Ledger,
    model: nn.Module,
    inputs: tuple[Tensor, ...],
    rows: dict[str, str],
    stands_for: Mapping[str, int] = ALL,
) -> Ledger:
    """`ledger` joined with the traced and the dispatched account of `model`; `rows` are those of `BuiltModel`.

    A module `stands_for` those of so many blocks.
    """
    dispatched = dispatched_rows(model, inputs, rows, stands_for)
    found = traced_rows(model, inputs, rows, stands_for)
    return join(join(ledger, *found), *dispatched, account="dispatched", quantities=RUN)


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


# Sizes at which a layer is run: its chain must grow alike between them.
_TOKENS: Final = (8, 16, 24)
_WIDTH: Final = 4


def longest_chain(module: nn.Module, *inputs: Tensor) -> int:
    """The longest chain of one forward pass that ends in its result."""
    recorder = Recorder(module, whole_loops=True)
    with torch.no_grad(), recorder.of(module):
        result = module(*inputs)
        ends = [recorder.storage(leaf) for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor)]
    lengths = chains(recorder.run)
    return max((lengths.get(end, 0) for end in ends), default=0)


def chains(run: RunRecord) -> dict[int | None, int]:
    """For each piece of memory, the length of the longest chain that ends in it."""
    lengths: dict[int | None, int] = {}
    for call in run.aten_calls():
        if call.func.is_view:
            continue
        before = max((lengths.get(tensor.storage, 0) for tensor in call.inputs), default=0)
        for tensor in call.outputs:
            lengths[tensor.storage] = before + bool(call.inputs)
    return lengths


def chain_of(layer: Any) -> CriticalPath:
    """How the longest chain of a mechanism's module grows with the tokens."""
    lengths = []
    for n in _TOKENS:
        module = ProgramModule(layer, Place(grid=Grid((n,)), dim=_WIDTH, out_dim=_WIDTH)).eval()
        lengths.append(longest_chain(module, torch.randn(1, n, _WIDTH)))
    short, middle, long = lengths
    per_token = (middle - short) // (_TOKENS[1] - _TOKENS[0])
    chain = CriticalPath(per_token=per_token, always=short - per_token * _TOKENS[0])
    if [chain.at(n) for n in _TOKENS] != [short, middle, long]:
        raise ArithmeticError(f"{type(layer).__name__}: chains of {short}, {middle} and {long} operations are no line")
    return chain
