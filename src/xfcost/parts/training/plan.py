"""Training on several devices: bytes of each, what recomputation adds, FLOPs, days and money at each utilisation.

Tensor parallelism (Shoeybi et al. 2019) divides linear maps, attention heads and the vocabulary by t. What stands
outside these, norms and the inputs of a sub-layer's first map, every device holds whole, unless sequence parallelism
divides tokens there (Korthikanti et al. 2022, §4.2.2). A mask that all heads share every device holds whole too.

Stage i of p pipeline stages (from 0) holds an equal number of consecutive blocks (Huang et al. 2019), and has p - i
micro-batches in flight (one forward, one backward; Narayanan et al. 2021, §2.2): the first holds the activations of as
many blocks as the whole model has, whatever p is.

With Ψ parameters of 16 bits, Adam and N_d replicas, one device holds (ZeRO; Rajbhandari et al. 2020, §5, table 1)

    stage 0  16Ψ             everything on every replica
    stage 1  4Ψ + 12Ψ/N_d    the optimizer's states and the master copy are shared out
    stage 2  2Ψ + 14Ψ/N_d    gradients too
    stage 3  16Ψ/N_d         parameters too

Full checkpointing runs every block's forward again, selective the products of eager attention cores only
(Korthikanti et al. 2022, §5). Model FLOPs, which a utilisation (MFU) counts, are without any of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import product
from math import ceil, floor, gcd
from typing import Final, NamedTuple

import msgspec

from xfcost.formulas.arithmetic import ceil_div
from xfcost.formulas.component import divisors_text
from xfcost.ledger.achieved import StepTime, step_rates
from xfcost.ledger.errors import UsageError
from xfcost.ledger.execution import CHECKPOINTS, Checkpoint
from xfcost.ledger.least_work import least_of
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.model_flops import model_flops, model_macs, recomputed_macs
from xfcost.ledger.operation import Operation
from xfcost.ledger.units import BYTES_PER_ELEMENT, DAY, HOUR
from xfcost.parts.serving.parallel import check_replicas, check_stages, heads_of
from xfcost.parts.training.evidence import training_evidence
from xfcost.parts.training.result import (
    MESH_FIELDS,
    AtUtilisation,
    DeviceMemory,
    Mesh,
    RunPlan,
    TrainingPlan,
    TrainingStep,
)
from xfcost.spec.architecture import Architecture, Block, Part
from xfcost.spec.grammar import TokenInput


def check_mesh(mesh: Mesh, architecture: Architecture | None) -> None:
    """Refuse what doesn't divide; of a module, which has no architecture, all but replicas and recomputation.

    Raises:
        UsageError: something doesn't; the message says what would.
    """
    if architecture is None:
        plain = Mesh(on=mesh.on)
        for option, flag in (
            ("tensor_parallel", "--tensor-parallel"),
            ("pipeline", "--pipeline"),
            ("sequence_parallel", "--sequence-parallel"),
        ):
            if getattr(mesh, MESH_FIELDS[option]) != getattr(plain, MESH_FIELDS[option]):
                raise UsageError(
                    f"{flag}: for specs only; every device runs all of a torch module, and "
                    "--zero 1, 2 or 3 shares out its optimizer states, gradients and parameters"
                )
        return
    check_replicas(mesh.tensor, mesh.pipeline, mesh.on)
    _check_tensor_parallel(mesh, architecture)
    blocks = sum(len(stage.order) for stream in architecture.streams for stage in stream.stages)
    check_stages(mesh.pipeline, blocks)


def _check_tensor_parallel(mesh: Mesh, architecture: Architecture) -> None:
    t = mesh.tensor
    if mesh.sequence_parallel and t == 1:
        raise UsageError("--sequence-parallel: it shares tokens among tensor-parallel devices; add --tensor-parallel 8")
    if t == 1:
        return
    for path, sharing in heads_of(architecture).items():
        own = {"heads": sharing.heads} | ({"kv_heads": sharing.kv_heads} if sharing.of_keys else {})
        for name, heads in own.items():
            if heads % t:
                raise UsageError(
                    f"--tensor-parallel {t}: `{name}` of {path} is {heads}, which {t} does not divide; with "
                    f"{mesh.on.count} devices it could be {divisors_text(gcd(heads, mesh.on.count))}"
                )
    for stream in architecture.streams:
        if mesh.sequence_parallel and stream.grid.total % t:
            raise UsageError(
                f"--sequence-parallel: {stream.grid.total} tokens don't divide by --tensor-parallel {t}; it could be "
                f"{divisors_text(gcd(stream.grid.total, mesh.on.count))}"
            )


def step_batch(mesh: Mesh, micro_batch: int, tokens: int) -> tuple[int, int]:
    """Micro-batches of one replica in a step, and the samples of the step; `tokens` are those of one sample.

    A global batch in tokens is rounded to whole samples: papers print 0.5M, 1M, 3.2M.

    Raises:
        UsageError: the replicas can't share it equally in whole micro-batches.
    """
    least = mesh.data * micro_batch
    if mesh.global_batch is None:
        return mesh.pipeline, mesh.pipeline * least
    samples = round(mesh.global_batch / tokens)
    micro_batches, rest = divmod(samples, least)
    if rest or not micro_batches:
        below = max(micro_batches, 1) * least
        others = [below] if not micro_batches else [below, below + least]
        could = " or ".join(f"{other * tokens:,} ({other:,} samples)" for other in others)
        raise UsageError(
            f"--global-batch {mesh.global_batch}: {samples:,} samples of {tokens:,} tokens don't divide over "
            f"{mesh.data:,} data-parallel replicas with micro-batches of {micro_batch} (--batch); it could be {could}"
        )
    return micro_batches, samples


# A loss over a vocabulary computes its logits in float32 (Korthikanti et al. 2022, §4.3).
LOGIT_BYTES: Final = 4


def loss_logits_bytes(architecture: Architecture) -> int:
    """Of one batch, where a head predicts tokens; else 0."""
    stream = architecture.streams[-1]
    if architecture.head is None or architecture.logits is None or not isinstance(stream.input, TokenInput):
        return 0
    return LOGIT_BYTES * int(stream.grid.total) * architecture.batch * int(stream.input.vocabulary)


def all_recomputed_macs(ledger: Ledger, checkpoint: str) -> Callable[[Operation], int]:
    """A row -> what its backward pass and checkpointing recompute of it, in MACs of all blocks.

    The backward pass of a module ran with its checkpoints: they are in its rows.
    """
    if ledger.module is not None:
        return recomputed_macs
    again = checkpointed_rows(ledger, checkpoint)
    return lambda row: recomputed_macs(row) + (row.macs * row.times if row.path in again else 0)


def checkpointed_rows(ledger: Ledger, checkpoint: str) -> set[str]:
    """Paths of the rows of a spec whose forward `checkpoint` runs again."""
    rows = [row for row in ledger.rows if row.in_block and not row.recomputed and checkpoint != "none"]
    if checkpoint == "selective":
        cores = {row.component for row in rows if row.matrix_kept and not row.fused}
        rows = [row for row in rows if row.component in cores and not (row.params or row.shared)]
    return {row.path for row in rows}


class PipelineStage(NamedTuple):
    """Consecutive blocks, and layers before, between and behind them."""

    number: int
    """From 0."""
    blocks: tuple[tuple[Block, int], ...]
    """Each block, and how often this stage has it."""
    layers: tuple[Part, ...]
    """Embeddings, stage entries and exits, the head."""


def pipeline_stages(architecture: Architecture, pipeline: int) -> Iterator[PipelineStage]:
    """The stages in order; of stages that hold the same, only the first."""
    blocks, layers = _placed(architecture)
    length, seen = len(blocks) // pipeline, set()
    for number in range(pipeline):
        first, last = number * length, (number + 1) * length
        counts = Counter(id(block) for block in blocks[first:last])
        held = {id(block): block for block in blocks[first:last]}
        own = tuple(part for place, part in layers if place // max(length, 1) == number)
        key = (tuple(counts.items()), tuple(part.path for part in own))
        if key not in seen:
            seen.add(key)
            yield PipelineStage(number, tuple((held[one], times) for one, times in counts.items()), own)


def _placed(architecture: Architecture) -> tuple[list[Block], list[tuple[int, Part]]]:
    """All blocks in the order in which they run; the other layers, each with the number of the block next to it."""
    blocks: list[Block] = []
    layers: list[tuple[int, Part]] = []
    for stream in architecture.streams:
        layers += [(len(blocks), part) for part in stream.embed]
        for stage in stream.stages:
            layers += [(len(blocks), part) for part in stage.enter]
            blocks += [stage.blocks[number] for number in stage.order]
            if stage.exit:
                layers.append((len(blocks), stage.exit))
    if architecture.head:
        layers.append((len(blocks), architecture.head))
    last = max(len(blocks) - 1, 0)
    return blocks, [(min(number, last), part) for number, part in layers]


class DeviceShare(NamedTuple):
    """Of a block once, or of a layer, on one device."""

    held: Fraction
    """Bytes of parameters."""
    trained: Fraction
    """The number of those that are trained."""
    saved: Fraction
    """Bytes saved for the backward pass of one micro-batch."""
    matrices: Fraction
    """Those of `saved` that are attention matrices and their masks, which selective recomputation does not save."""
    saved_inputs: Fraction
    """Those of `saved` that are a block's input, which full recomputation saves anyway."""
    inputs: Fraction = Fraction(0)
    """Bytes of a block's input, all that full recomputation saves."""

    def kept(self, checkpoint: str) -> Fraction:
        """Bytes of activations that are saved for the backward pass of a block."""
        return {"none": self.saved, "selective": self.saved - self.matrices, "full": self.inputs}[checkpoint]

    def recomputed(self, checkpoint: str) -> Fraction:
        """Bytes of activations that come back while the backward pass of a block runs."""
        return {"none": Fraction(0), "selective": self.matrices, "full": self.saved - self.saved_inputs}[checkpoint]


class Holdings:
    """The rows of a ledger by component, and what each of `tensor` devices holds of them."""

    def __init__(
        self, ledger: Ledger, architecture: Architecture, tensor: int = 1, *, sequence_parallel: bool = False
    ) -> None:
        self.tensor, self.sequence_parallel = tensor, sequence_parallel
        self.element, self.batch = ledger.bytes_per_element, ledger.metadata.batch
        self.stored, self.trains = ledger.storage, ledger.trains
        self.rows: dict[str, list[Operation]] = defaultdict(list)
        for row in ledger.rows:
            self.rows[row.component].append(row)
        self.tables = {row.shared: row for row in self.rows.get("shared", ()) if row.shared}
        self.vocabulary = {
            labelled.part.path
            for labelled in architecture.parts()
            if labelled.part.component.__struct_config__.tag == "token" or labelled.part is architecture.head
        }

    def block(self, block: Block) -> DeviceShare:
        """Of `block` once."""
        rows = [row for part in block.parts for row in self.rows.get(part.path, ())]
        held = self._held(rows, block.times)
        if not block.parts or any(row.recomputed for row in rows):  # a reversible block saves no input of its own
            return held._replace(inputs=held.saved, saved_inputs=held.saved)
        place = block.parts[0].place
        inputs = Fraction(place.grid.total * place.dim * self.batch * self.element)
        return held._replace(inputs=inputs / self.tensor if self.sequence_parallel else inputs)

    def layer(self, part: Part) -> DeviceShare:
        """Of an embedding, a stage's entry or exit, or the head."""
        return self._held(self.rows.get(part.path, ()), 1)

    def shared_tables(self, layers: Iterable[Part], blocks: Iterable[Block]) -> tuple[Fraction, Fraction]:
        """Bytes, and trained parameters, of the shared tables that any of them uses: each pipeline stage has a copy."""
        parts = [*layers, *(part for block in blocks for part in block.parts)]
        used = {name for part in parts for name in part.component.tables(part.place)}
        rows = [self.tables[name] for name in used]
        numbers = sum(map(self.stored.held_in_all, rows)), sum(row.params for row in rows if self.trains(row))
        return Fraction(numbers[0], self.tensor), Fraction(numbers[1], self.tensor)

    def _held(self, rows: Sequence[Operation], times: int) -> DeviceShare:
        held = trained = saved = matrices = inputs = Fraction(0)
        first: dict[
            str, int
        ] = {}  # the rows that save their sub-layer's input: the first with parameters behind its norm
        for row in rows:
            if row.role is None and (row.params or row.shared) and self.trains(row):
                first.setdefault(row.component, id(row))
        cores = {
            row.component for row in rows
            if row.matrix is not None and row.in_block and not row.fused and not row.recomputed
        }  # fmt: skip
        for row in rows:
            of_vocabulary = row.component in self.vocabulary and row.role is None
            outside = of_vocabulary and (row.macs > 0 or row.weights_read is not None)
            divided = row.macs > 0 if row.in_block else outside
            devices = times * (self.tensor if divided else 1)
            held += Fraction(self.stored.held_in_all(row), devices)
            trained += Fraction(row.params * row.times if self.trains(row) else 0, devices)
            whole = row.role is not None or not row.in_block or id(row) in first.values()
            share = 1 if whole and not (self.sequence_parallel and row.in_block) else self.tensor
            kept = row.figure("kept_bytes") or 0
            # masks that a block makes and saves are the same for all samples, and for all heads
            masks = 0 if row.training is None else min(row.training.kept_masks, kept)
            saved += Fraction(kept - masks, times * share) + Fraction(masks, times)
            inputs += Fraction(0 if row.training is None else min(row.training.kept_inputs, kept), times * share)
            if row.component in cores:
                matrices += Fraction(row.matrix_kept * self.element * row.times, times * self.tensor)
                matrices += Fraction(masks, times)
        return DeviceShare(held, trained, saved, matrices, inputs)


# Which parts each ZeRO stage shares out among the replicas.
SHARED_OUT: Final[dict[str, int]] = {"optimizer": 1, "master": 1, "gradients": 2, "parameters": 3}


class ModelStates(NamedTuple):
    """Bytes by part."""

    parameters: int
    gradients: int
    master: int
    optimizer: int | None
    """None where it depends on the parameters' shapes, and no model was built."""

    def among(self, replicas: int, zero: int) -> ModelStates:
        """What a device holds of them with the ZeRO stage `zero`."""
        held = {
            name: size if size is None or zero < SHARED_OUT[name] else ceil_div(size, replicas)
            for name, size in self._asdict().items()
        }
        return ModelStates(**held)


def model_states(step: TrainingStep, held: int, trained: int, gradients: str | None) -> ModelStates:
    """The states where so many bytes of parameters are held, and so many of the trained parameters of `step`.

    Gradients are in a dtype of their own, or the model's.
    """
    total, of_gradients = step.trained_params, step.gradients_bytes
    if gradients is not None:
        of_gradients = total * BYTES_PER_ELEMENT[gradients]
    parts = (of_gradients, step.master_bytes, step.optimizer_bytes)
    return ModelStates(held, *(None if part is None else ceil_div(part * trained, max(total, 1)) for part in parts))  # type: ignore[arg-type]


def device_memory(
    ledger: Ledger, architecture: Architecture | None, step: TrainingStep, mesh: Mesh, micro_batches: int
) -> DeviceMemory:
    """The bytes of the device that needs most; `micro_batches` of a replica make a step."""
    if architecture is None:
        states = model_states(step, step.params_bytes, step.trained_params, mesh.gradients)
        states = states.among(mesh.data, mesh.zero)
        kept, again, logits = step.kept_bytes, step.recomputed_bytes, step.loss_logits_bytes
        return DeviceMemory(pipeline_stage=1, **states._asdict(), activations=kept, recomputed=again, logits=logits)
    of_stages = stage_memories(ledger, architecture, step, mesh, micro_batches)
    return max(of_stages, key=lambda memory: memory.known)


def stage_memories(
    ledger: Ledger, architecture: Architecture, step: TrainingStep, mesh: Mesh, micro_batches: int
) -> list[DeviceMemory]:
    """The bytes of a device of each pipeline stage; of stages that hold the same, only of the first."""
    holdings = Holdings(ledger, architecture, mesh.tensor, sequence_parallel=mesh.sequence_parallel)
    stages = pipeline_stages(architecture, mesh.pipeline)
    return [_of_stage(stage, holdings, mesh, architecture, step, micro_batches) for stage in stages]


def _of_stage(
    stage: PipelineStage, holdings: Holdings, mesh: Mesh, architecture: Architecture, step: TrainingStep, m: int
) -> DeviceMemory:
    blocks = [(holdings.block(block), times) for block, times in stage.blocks]
    layers = [holdings.layer(part) for part in stage.layers]
    bytes_held, trained = holdings.shared_tables(stage.layers, (block for block, _ in stage.blocks))
    bytes_held += sum(one.held * times for one, times in blocks) + sum(one.held for one in layers)
    trained += sum(one.trained * times for one, times in blocks) + sum(one.trained for one in layers)
    states = model_states(step, ceil(bytes_held), ceil(trained), mesh.gradients).among(mesh.data, mesh.zero)
    saved = sum((held.kept(mesh.checkpoint) * times for held, times in blocks), Fraction(0))
    saved += sum(one.saved for one in layers)
    in_flight = mesh.in_flight(stage.number + 1, m)
    again = max((held.recomputed(mesh.checkpoint) for held, _ in blocks), default=Fraction(0))
    known = step.kept_bytes is not None
    head = architecture.head is not None and any(part is architecture.head for part in stage.layers)
    return DeviceMemory(
        pipeline_stage=stage.number + 1,
        **states._asdict(),
        activations=ceil(saved * in_flight) if known else None,
        recomputed=ceil(again) if known or not again else None,
        logits=ceil(Fraction(step.loss_logits_bytes, mesh.tensor)) if head else 0,
    )


# Published utilisations, without recomputation, shown below the table where no --mfu is given.
IN_PRINT: Final[dict[float, str]] = {
    0.3: "MT-NLG 530B on 2,240 A100: 30.2 % (Chowdhery et al. 2022, table 3)",
    0.4: "Llama 3.1 405B on 8,192 to 16,384 H100: 38 to 43 % (Llama Team 2024, table 4)",
    0.5: "GPT 175B on 64 A100: 51.4 % (Korthikanti et al. 2022, table 5)",
}
# Remedies in the order in which they are tried: sharing out costs no FLOPs, recomputation does.
_REMEDIES: Final[tuple[tuple[int, Checkpoint], ...]] = (
    (1, "none"), (2, "none"), (3, "none"), (0, "selective"), (1, "selective"), (3, "selective"),
    (0, "full"), (1, "full"), (2, "full"), (3, "full"),
)  # fmt: skip
_WITHOUT_RECOMPUTATION: Final = 3  # the first of them
_MORE_DEVICES: Final = tuple(2**power for power in range(11))


NO_TOKENS: Final = "--flops 6nd: of this module's step no number of tokens is known; expected dense or kept"


def with_training_plan(ledger: Ledger, architecture: Architecture | None, plan: RunPlan | None) -> Ledger:
    """`ledger` with its training plan, where the run has devices; a module has no architecture.

    Raises:
        UsageError: the mesh doesn't divide, or no peak of the device is known.
    """
    if plan is None or plan.mesh is None or ledger.training is None:
        return ledger
    mesh, tokens = plan.mesh, plan.tokens
    step, batch = ledger.training.step, ledger.metadata.batch
    check_mesh(mesh, architecture)
    if mesh.global_batch is not None and not step.tokens:
        raise UsageError("--global-batch: of this module's step no number of tokens is known; leave it out")
    sample = (step.tokens or 0) // batch
    micro_batches, sequences = step_batch(mesh, batch, sample)
    again = all_recomputed_macs(ledger, mesh.checkpoint)
    passes, params = micro_batches * mesh.data, ledger.total("params") or 0
    states = model_states(step, step.params_bytes, step.trained_params, mesh.gradients)
    per_parameter = None  # of one replica, before ZeRO
    if states.optimizer is not None and params:
        per_parameter = (states.parameters + states.gradients + states.master + states.optimizer) / params
    made = TrainingPlan(
        mesh=mesh,
        micro_batch=batch,
        micro_batches=micro_batches,
        step_sequences=sequences,
        step_tokens=sequences * sample,
        batch_known=ledger.metadata.batch_known,
        memory=device_memory(ledger, architecture, step, mesh, micro_batches),
        step_flops=passes * 2 * sum(map(model_macs, ledger.rows)),
        recomputed_flops=passes * 2 * sum(map(again, ledger.rows)),
        least_step_flops=passes * 2 * least_of(ledger, model_macs),
        least_recomputed_flops=passes * 2 * least_of(ledger, again),
        convention=plan.flops,
        estimate_step_flops=passes * (model_flops(ledger).by_params or 0),
        bytes_per_parameter=per_parameter,
        tokens=tokens,
        steps=None if tokens is None else ceil_div(tokens, sequences * sample),
        peak=mesh.on.device.peak(ledger.metadata.dtype),
    )
    if plan.flops == "6nd" and not made.estimate_step_flops:
        raise UsageError(NO_TOKENS)
    made = msgspec.structs.replace(made, at=tuple(_at(made, mfu) for mfu in mesh.mfus or IN_PRINT))
    remedies = _remedies(made, ledger, architecture, step)
    made = msgspec.structs.replace(made, remedies=remedies, evidence=training_evidence(ledger, made))
    return msgspec.structs.replace(ledger, training=msgspec.structs.replace(ledger.training, plan=made))


def with_step_time(ledger: Ledger, given: StepTime) -> Ledger:
    """`ledger` with the measured time of its run: a plan and a whole run are at its utilisation.

    Raises:
        UsageError: 6·P·D of a module whose tokens are not known.
    """
    ledger = msgspec.structs.replace(ledger, step_time=given)
    training = ledger.training
    if training is None:
        return ledger
    if given.convention == "6nd" and model_flops(ledger).by_params is None:
        raise UsageError(NO_TOKENS)
    found, plan, run = step_rates(ledger), training.plan, training.run
    if found is None:
        return ledger
    if plan is not None:
        at = msgspec.structs.replace(_at(plan, found.mfu), step_seconds=given.seconds)
        plan = msgspec.structs.replace(plan, mesh=msgspec.structs.replace(plan.mesh, mfus=(found.mfu,)), at=(at,))
    if run is not None:
        devices = run.devices if plan is not None else given.devices
        peak = found.peak / devices
        run = msgspec.structs.replace(run, devices=devices, rate=found.mfu * peak, peak=peak, mfu=found.mfu)
        run = msgspec.structs.replace(run, convention=given.convention) if plan is None else run
    return msgspec.structs.replace(ledger, training=msgspec.structs.replace(training, plan=plan, run=run))


def _at(plan: TrainingPlan, mfu: float) -> AtUtilisation:
    """The run at one utilisation.

    Raises:
        UsageError: with recomputation the devices would compute above their peak, even if they skip masked scores.
    """
    model = plan.model_flops
    hfu = mfu * (plan.pass_flops / model) * (1 + plan.recomputation)
    computed = mfu * plan.least_computed
    if computed > 1 and plan.mesh.mfus:
        most = floor(1000 / plan.least_computed) / 1000
        skipped = plan.convention != "kept" and plan.least_step_flops < plan.step_flops
        masks = " even if masked scores are skipped" if skipped else ""
        raise UsageError(
            f"--mfu {mfu:.4g}: with what is recomputed (+{plan.recomputation:.1%} FLOPs) the devices would compute at "
            f"{computed:.1%} of their peak{masks}; expected at most {most:.1%}"
        )
    devices = plan.mesh.on.count
    seconds = model / (mfu * plan.peak * devices)
    days = None if plan.steps is None else plan.steps * seconds / DAY
    price = plan.mesh.on.device.price_per_hour
    return AtUtilisation(
        mfu=mfu,
        hfu=hfu,
        step_seconds=seconds,
        days=days,
        device_days=None if days is None else days * devices,
        recomputation_days=None if days is None else days * plan.recomputation / (1 + plan.recomputation),
        cost=None if days is None or price is None else days * devices * (DAY / HOUR) * price,
        in_print=None if plan.mesh.mfus or plan.convention != "dense" else IN_PRINT.get(mfu),
    )


def _remedies(
    plan: TrainingPlan, ledger: Ledger, architecture: Architecture | None, step: TrainingStep
) -> tuple[str, ...]:
    """Options with which it fits: the first ZeRO stage and checkpointing, above those given, with which it does.

    On twice as many devices, and twice that, where it fits on these with none.
    """
    if plan.fits is not False or plan.device_bytes is None:
        return ()
    mesh = plan.mesh
    ways = _REMEDIES[: None if architecture else _WITHOUT_RECOMPUTATION]
    for times, (zero, checkpoint) in product(_MORE_DEVICES, ways):
        shares = 1 if mesh.global_batch is None else times  # of a step's micro-batches
        if plan.micro_batches % shares:
            continue
        more = max(checkpoint, mesh.checkpoint, key=CHECKPOINTS.index) if architecture else mesh.checkpoint
        on = msgspec.structs.replace(mesh.on, count=times * mesh.on.count)
        other = msgspec.structs.replace(mesh, on=on, zero=max(zero, mesh.zero), checkpoint=more)
        memory = device_memory(ledger, architecture, step, other, plan.micro_batches // shares)
        if memory.complete and memory.known <= plan.device_bytes:
            options = [f"--on {on.device.name}x{on.count}"] if times > 1 else []
            options += [f"--zero {other.zero}"] if other.zero != mesh.zero else []
            options += [f"--recompute {other.checkpoint}"] if other.checkpoint != mesh.checkpoint else []
            return tuple(options)
    return ()
