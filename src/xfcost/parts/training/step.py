"""A training step in closed form: MACs of the backward pass row by row, memory of a step, FLOPs of a whole run.

The backward pass of a product y = a·b costs two such products, one for the gradient of each operand. Exceptions are
given by the row (`Operation.backward_macs`) or by its place: pixels need no gradient, and reversible residuals
recompute their forward pass.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from xfcost.counting.model_record import training_record
from xfcost.formulas.arithmetic import ceil_div
from xfcost.formulas.optimizers import OPTIMIZERS, STATE_BYTES
from xfcost.ledger.accounts import TrainingFigures
from xfcost.ledger.errors import UsageError, any_of
from xfcost.ledger.execution import CHECKPOINTS
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.lora import Lora
from xfcost.ledger.model_flops import model_flops, recomputed_macs
from xfcost.ledger.operation import Operation
from xfcost.ledger.record import Record
from xfcost.parts.training.plan import check_mesh, loss_logits_bytes, step_batch
from xfcost.parts.training.result import BesideEstimate, RunPlan, Training, TrainingStep, WholeRun
from xfcost.program.residual import component_rows
from xfcost.program.tape import TapeCall
from xfcost.spec.architecture import Architecture, Stream

HALF: frozenset[str] = frozenset(("float16", "bfloat16"))


def with_training(ledger: Ledger, architecture: Architecture, plan: RunPlan) -> Ledger:
    """`ledger` with the backward pass of every row, and what a step and the whole run cost.

    Raises:
        UsageError: what is recomputed are paths, which a spec has not.
    """
    _check_recomputation(plan)
    if architecture.lora is None:
        no_gradient = {path for stream in architecture.streams for path in _first_products(stream)}
        rows = tuple(with_backward_macs(row, input_gradient=row.path not in no_gradient) for row in ledger.rows)
        ledger = with_closed_activations(msgspec.structs.replace(ledger, rows=rows), architecture)
    else:
        ledger = _beside_frozen(ledger, architecture, architecture.lora)
    tokens = ledger.metadata.batch * sum(stream["tokens"] for stream in ledger.metadata.streams)
    again = ledger.total("macs", lambda row: row.recomputed) or 0
    trained = ledger.total("params", ledger.trains) or 0
    gradients, master = (
        trained * ledger.bytes_per_element,
        trained * STATE_BYTES if ledger.metadata.dtype in HALF else 0,
    )
    parameters = TrainedParameters(ledger.held_bytes, trained, gradients, master, trained * _state_bytes(ledger))
    step = training_step(ledger, plan.optimizer, parameters, tokens=tokens, recomputed=again)
    step = msgspec.structs.replace(step, loss_logits_bytes=loss_logits_bytes(architecture))
    if plan.mesh is not None:
        check_mesh(plan.mesh, architecture)
    return with_run(msgspec.structs.replace(ledger, training=Training(step=step)), plan, tokens_seen(architecture))


def tokens_seen(architecture: Architecture) -> dict[str, int]:
    """The tokens of a batch that each component sees."""
    return {part.path: part.place.grid.total * architecture.batch for part, *_ in architecture.parts()}


def _check_recomputation(plan: RunPlan) -> None:
    if plan.recompute not in CHECKPOINTS:
        raise UsageError(f"--recompute {plan.recompute}: expected {any_of(CHECKPOINTS)}; paths are of torch modules")


def with_run(ledger: Ledger, plan: RunPlan, seen: Mapping[str, int]) -> Ledger:
    """`ledger` of a training step with the whole run over the tokens of the plan, where it has some.

    `seen` are the tokens that a component sees, where those are other ones than the step has.
    """
    if plan.tokens is None or ledger.training is None or ledger.training.step.tokens is None:
        return ledger
    passes = 1  # of the batch through the model in a step; of devices on every replica
    tokens, batch = ledger.training.step.tokens, ledger.metadata.batch
    if plan.mesh is not None:
        passes = step_batch(plan.mesh, batch, tokens // batch)[0] * plan.mesh.data
    run = _run(ledger, plan, plan.tokens, tokens, passes, _beside_estimate(ledger, seen, tokens))
    return msgspec.structs.replace(ledger, training=msgspec.structs.replace(ledger.training, run=run))


def with_backward_macs(row: Operation, *, input_gradient: bool) -> Operation:
    """`row` with the backward MACs per block; without `input_gradient` its first block saves one product."""
    macs = 2 * row.macs if row.backward_macs is None else row.backward_macs
    macs += row.macs if row.recomputed else 0
    saved = 0 if input_gradient else min(macs, row.macs)
    if row.times == 1:
        return msgspec.structs.replace(row, backward_macs=macs - saved)
    return msgspec.structs.replace(row, backward_macs=macs, training=TrainingFigures(saved_macs=saved))


def _beside_frozen(ledger: Ledger, architecture: Architecture, lora: Lora) -> Ledger:
    """`ledger` with the backward pass beside frozen weights, which ends at the first adapter, and what it saves.

    Raises:
        UsageError: no closed form of that is known.
    """
    record = training_record(architecture)
    if record is None or any(row.recomputed for row in ledger.rows):
        raise UsageError(
            f"--lora {lora.rank}: {ledger.metadata.name} has reversible residuals, whose recomputation is counted with "
            "trained weights only; leave it out"
        )
    products: Counter[str] = Counter()
    for call in record.calls:
        if call.backward_macs is not None and call.result is not None:
            products[call.module] += call.backward_macs * call.times

    def with_backward(row: Operation) -> Operation:
        each = 2 * row.macs if row.backward_macs is None else row.backward_macs
        each = each if products[row.path] else 0
        saved = max(0, each * row.times - products[row.path])
        if row.times == 1:
            return msgspec.structs.replace(row, backward_macs=each - saved)
        return msgspec.structs.replace(row, backward_macs=each, training=TrainingFigures(saved_macs=saved))

    return _with_saved(msgspec.structs.replace(ledger, rows=tuple(map(with_backward, ledger.rows))), record)


def with_closed_activations(ledger: Ledger, architecture: Architecture) -> Ledger:
    """`ledger` with the saved activations of every row in closed form, where all rows declare their tensors."""
    record = training_record(architecture)
    return ledger if record is None else _with_saved(ledger, record)


def _with_saved(ledger: Ledger, record: Record[TapeCall]) -> Ledger:
    saved, masks, inputs = record.saved_by_module(), record.masks_by_module(), record.inputs_by_module()

    def known(row: Operation) -> Operation:
        figures = row.training or TrainingFigures()
        figures = msgspec.structs.replace(
            figures, kept_bytes=saved[row.path], kept_masks=masks[row.path], kept_inputs=inputs[row.path]
        )
        return msgspec.structs.replace(row, training=figures)

    return msgspec.structs.replace(ledger, rows=tuple(map(known, ledger.rows)))


def _first_products(stream: Stream) -> Iterator[str]:
    """Paths of the rows that multiply the raw input, pixels or vectors, which needs no gradient."""
    for part in stream.parts():
        rows = component_rows(part.component, part.place, part.residual)
        yield from (f"{part.path}.{row.path}" for row in rows if row.takes_input)
        if any(row.params or row.shared for row in rows):
            return


def with_saved_activations(ledger: Ledger, kept: int, factored: int) -> Ledger:
    """`ledger` with two figures of the traced model: bytes of saved activations, and adafactor's state numbers."""
    if ledger.training is None:
        return ledger
    step = msgspec.structs.replace(ledger.training.step, kept_bytes=kept)
    if step.optimizer_bytes is None:
        step = msgspec.structs.replace(step, optimizer_bytes=factored * _state_bytes(ledger))
    return msgspec.structs.replace(ledger, training=msgspec.structs.replace(ledger.training, step=step))


def _state_bytes(ledger: Ledger) -> int:
    """Bytes of one number of optimizer state: float32, or the parameters' dtype where it is wider."""
    return max(STATE_BYTES, ledger.bytes_per_element)


class TrainedParameters(NamedTuple):
    """Parameters in training, in bytes."""

    held_bytes: int
    trained: int
    """The number of those with a gradient."""
    gradients_bytes: int
    master_bytes: int
    state_bytes: int
    """One number of optimizer state for each of those."""


def training_step(
    ledger: Ledger, name: str, parameters: TrainedParameters, *, tokens: int | None, recomputed: int
) -> TrainingStep:
    """The step of a ledger whose rows have backward passes, with the optimizer `name`; `recomputed` MACs run again."""
    forward, backward = ledger.total("macs") or 0, ledger.total("backward_macs") or 0
    optimizer = OPTIMIZERS[name]
    return TrainingStep(
        optimizer=name,
        tokens=tokens,
        forward_macs=forward,
        backward_macs=backward,
        recomputed_macs=recomputed,
        model_flops=2 * (forward + backward),
        update_flops=parameters.trained * optimizer.flops,
        trained_params=parameters.trained,
        params_bytes=parameters.held_bytes,
        gradients_bytes=parameters.gradients_bytes,
        master_bytes=parameters.master_bytes,
        optimizer_bytes=None if optimizer.numbers is None else optimizer.numbers * parameters.state_bytes,
        kept_bytes=ledger.total("kept_bytes"),
        attention_kept_bytes=ledger.attention_kept_bytes(),
    )


def _beside_estimate(ledger: Ledger, seen: Mapping[str, int], tokens: int) -> Counter[str]:
    """MACs of a pass of `tokens` tokens, forward and backward, that 3·P per token do not foresee: by cause."""
    cores = {row.component for row in ledger.rows if row.core is not None or (row.ran and row.attention_entries)}
    found: Counter[str] = Counter()
    weights: dict[str, list[Operation]] = defaultdict(list)
    for row in ledger.rows:
        if (row.params or row.shared) and row.core is None:
            name = row.shared or row.path  # without stages that of a weight, or of an operation, in a module
            weights[name if ledger.metadata.stages else name.rpartition(".")[0]].append(row)
            continue
        again = recomputed_macs(row)
        found["attention" if row.component in cores else "without_params"] += _both_passes(row) - again
        found["recomputed"] += again
    for rows in weights.values():
        here = max((seen.get(row.component, tokens) for row in rows if row.macs), default=tokens)
        found.update(_weights_beside_estimate(rows, tokens, here))
    if ledger.training is not None and ledger.training.step.mostly_frozen(ledger.total("params") or 0):
        found["frozen"] = found.pop("input_gradient", 0)
    return found


def _weights_beside_estimate(rows: Iterable[Operation], tokens: int, here: int) -> Counter[str]:
    """The same of one weight's `rows`; `here` is the number of tokens where it stands, `tokens` that of the model.

    A map of d inputs and a bias multiplies d of d + 1 parameters, at least half: with less, it sees fewer tokens.
    """
    params = sum(row.active_params * row.times for row in rows)
    forward = sum(row.macs * row.times for row in rows)
    again = sum(map(recomputed_macs, rows))
    backward = sum(map(_both_passes, rows)) - again - 3 * forward
    found = Counter({"recomputed": again})
    found["input_gradient" if backward < 0 else "repeated"] += backward
    if not forward:
        found["tables"] -= 3 * params * tokens
        return found
    seen = next((each for each in (here, tokens) if 2 * forward > params * each), None)
    rest = 0 if seen is None else 3 * (forward - params * seen)
    others = 3 * (forward - params * tokens) - rest
    found["biases" if rest < 0 else "repeated"] += rest
    found["fewer_tokens" if others < 0 else "repeated"] += others
    return found


def _both_passes(row: Operation) -> int:
    return row.macs * row.times + (row.times_over("backward_macs") or 0)


def _run(ledger: Ledger, plan: RunPlan, tokens: int, batch_tokens: int, passes: int, beside: Counter[str]) -> WholeRun:
    """The whole steps that D tokens need, `passes` batches of `batch_tokens` each."""
    steps = ceil_div(tokens, batch_tokens * passes)
    flops_per_mac = 2 * passes * steps
    flops = flops_per_mac * sum(map(_both_passes, ledger.rows))
    # a core may take a weight too: biases by position
    products = [row for row in ledger.rows if row.core is not None or not (row.params or row.shared)]
    without = flops_per_mac * sum(map(_both_passes, products))
    rate, peak, mfu = plan.rate, plan.peak, plan.mfu
    if plan.mesh is not None and len(plan.mesh.mfus) == 1:
        (mfu,), peak = plan.mesh.mfus, plan.mesh.on.device.peak(ledger.metadata.dtype)
        rate = mfu * peak
    return WholeRun(
        tokens=tokens,
        steps=steps,
        step_tokens=batch_tokens * passes,
        flops=flops,
        kept_flops=passes * steps * model_flops(ledger).kept,
        convention=plan.flops,
        estimate=6 * (ledger.total("active_params") or 0) * tokens,
        without_params_flops=without,
        with_params_flops=flops - without,
        recomputed_flops=flops_per_mac * sum(recomputed_macs(row) for row in ledger.rows),
        recomputed_without_params=flops_per_mac * sum(recomputed_macs(row) for row in products),
        beside_estimate=BesideEstimate(**{cause: flops_per_mac * macs for cause, macs in beside.items()}),
        devices=plan.devices,
        rate=rate,
        peak=peak,
        mfu=mfu,
    )
