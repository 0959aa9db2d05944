"""Refuses a mesh that doesn't divide: the devices, heads, tokens, blocks, or the global batch."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from xfcost.formulas.component import Mixer, divisors_text
from xfcost.ledger.distributed import Mesh
from xfcost.ledger.errors import UsageError
from xfcost.spec.architecture import Architecture


def check_mesh(mesh: Mesh, architecture: Architecture) -> None:
    """Refuse what doesn't divide.

    Raises:
        UsageError: something doesn't; the message says what would.
    """
    replicas, rest = divmod(mesh.on.count, mesh.tensor * mesh.pipeline)
    if rest or not replicas:
        both = mesh.tensor > 1 and mesh.pipeline > 1
        options = f"--tensor-parallel {mesh.tensor} x --pipeline {mesh.pipeline} = {mesh.tensor * mesh.pipeline}"
        single = f"--tensor-parallel {mesh.tensor}" if mesh.tensor > 1 else f"--pipeline {mesh.pipeline}"
        raise UsageError(
            f"{options if both else single}: {mesh.on.count} devices don't divide by it; expected a product of the two "
            f"that is {divisors_text(mesh.on.count)}, or another number of devices in --on"
        )
    _check_tensor_parallel(mesh, architecture)
    blocks = sum(len(stage.order) for stream in architecture.streams for stage in stream.stages)
    if blocks % mesh.pipeline:
        raise UsageError(
            f"--pipeline {mesh.pipeline}: {blocks} blocks don't divide into so many stages; it could be "
            f"{divisors_text(blocks)}"
        )


def _check_tensor_parallel(mesh: Mesh, architecture: Architecture) -> None:
    t = mesh.tensor
    if mesh.sequence_parallel and t == 1:
        raise UsageError("--sequence-parallel: it shares tokens among tensor-parallel devices; add --tensor-parallel 8")
    if t == 1:
        return
    for name, heads in _heads(architecture):
        if heads % t:
            fitting = gcd(heads, mesh.on.count)
            raise UsageError(
                f"--tensor-parallel {t}: {name} has {heads}, which don't divide by it; with {mesh.on.count} devices it "
                f"could be {divisors_text(fitting)}"
            )
    for stream in architecture.streams:
        if mesh.sequence_parallel and stream.grid.total % t:
            raise UsageError(
                f"--sequence-parallel: {stream.grid.total} tokens don't divide by --tensor-parallel {t}; it could be "
                f"{divisors_text(gcd(stream.grid.total, mesh.on.count))}"
            )


def _heads(architecture: Architecture) -> Iterator[tuple[str, int]]:
    """The heads of every mixer, and its key and value heads where those are fewer.

    Raises:
        UsageError: a mixer has none.
    """
    for labelled in architecture.parts():
        component = labelled.part.component
        if not isinstance(component, Mixer) or not labelled.in_block:
            continue
        heads = getattr(component, "heads", None)
        name = f"{component.label()} ({labelled.part.path})"
        if not isinstance(heads, int):
            raise UsageError(
                f"--tensor-parallel: it divides attention by heads (Shoeybi et al. 2019, §3), and {name} has none; "
                "leave it out"
            )
        yield f"{name}: `heads`", heads
        kv_heads = getattr(component, "kv_heads", None)
        if isinstance(kv_heads, int):
            yield f"{name}: `kv_heads`", kv_heads


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
