"""Bytes on the device that needs most: model states, activations in flight, recomputed ones, the loss's logits.

Stage i of p pipeline stages (from 0) has p - i micro-batches in flight (one forward, one backward; Narayanan et al.
2021, §2.2): the first holds the activations of as many blocks as the whole model has, whatever p is.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from xfcost.counting.distributed.held import Held, Holdings
from xfcost.counting.distributed.model_states import model_states
from xfcost.counting.distributed.pipeline import PipelineStage, pipeline_stages
from xfcost.ledger.distributed import DeviceMemory, Mesh
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.training import TrainingStep
from xfcost.spec.architecture import Architecture


def device_memory(
    ledger: Ledger, architecture: Architecture, step: TrainingStep, mesh: Mesh, micro_batches: int
) -> DeviceMemory:
    """The bytes of the device that needs most; `micro_batches` of a replica make a step."""
    of_stages = stage_memories(ledger, architecture, step, mesh, micro_batches)
    return max(of_stages, key=lambda memory: memory.known)


def stage_memories(
    ledger: Ledger, architecture: Architecture, step: TrainingStep, mesh: Mesh, micro_batches: int
) -> list[DeviceMemory]:
    """The bytes of a device of each pipeline stage; of stages that hold the same, only of the first."""
    holdings = Holdings(ledger, architecture, mesh)
    stages = pipeline_stages(architecture, mesh.pipeline)
    return [_of_stage(stage, holdings, ledger, architecture, step, micro_batches) for stage in stages]


def _of_stage(
    stage: PipelineStage, holdings: Holdings, ledger: Ledger, architecture: Architecture, step: TrainingStep, m: int
) -> DeviceMemory:
    mesh = holdings.mesh
    blocks = [(holdings.block(block), times) for block, times in stage.blocks]
    layers = [holdings.layer(part) for part in stage.layers]
    params = holdings.shared_tables(stage.layers, (block for block, _ in stage.blocks))
    params += sum(held.params * times for held, times in blocks) + sum(held.params for held in layers)
    states = model_states(step, ceil(params), ledger.total("params") or 0, mesh.gradients).among(mesh.data, mesh.zero)
    saved = sum((_saved(held, mesh) * times for held, times in blocks), Fraction(0)) + sum(one.saved for one in layers)
    in_flight = mesh.in_flight(stage.number + 1, m)
    again = max((_recomputed(held, mesh) for held, _ in blocks), default=Fraction(0))
    known = step.kept_bytes is not None
    head = architecture.head is not None and any(part is architecture.head for part in stage.layers)
    return DeviceMemory(
        pipeline_stage=stage.number + 1,
        **states._asdict(),
        activations=ceil(saved * in_flight) if known else None,
        recomputed=ceil(again) if known or not again else None,
        logits=ceil(Fraction(step.loss_logits_bytes, mesh.tensor)) if head else 0,
    )


def _saved(held: Held, mesh: Mesh) -> Fraction:
    """Bytes of a block's activations that are saved for its backward pass."""
    if mesh.checkpoint == "full":
        return held.inputs
    return held.saved - held.matrices if mesh.checkpoint == "selective" else held.saved


def _recomputed(held: Held, mesh: Mesh) -> Fraction:
    """Bytes of a block's activations that come back while its backward pass runs."""
    return {"none": Fraction(0), "selective": held.matrices, "full": held.saved}[mesh.checkpoint]
