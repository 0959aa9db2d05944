"""The memory that a timed system needs, predicted on `meta` before anything is allocated."""

from __future__ import annotations

from typing import NamedTuple

from xfcost.ledger.ledger import Ledger
from xfcost.spec.architecture import Architecture
from xfcost.torch_models.build import build
from xfcost.torch_models.memory.addressable import check_addressable, within_torch
from xfcost.torch_models.memory.batch_statistics import batch_statistics
from xfcost.torch_models.memory.peak import bytes_to_run, peak_bytes
from xfcost.torch_models.memory.training_step import peak_of_steps
from xfcost.torch_models.shared.no_compiler import no_compiler
from xfcost.torch_models.timing.rows import row_bytes
from xfcost.torch_models.timing.step_bytes import generation_bytes, training_bytes


class Room(NamedTuple):
    """Predicted memory, and the bytes of inputs and outputs of each row over all its blocks."""

    predicted: int | None
    """Peak of live tensors in one call; None of a composed run."""
    needed: int
    """Bytes that must be free, of a generation for both phases."""
    what: str
    """What is run."""
    row_bytes: dict[str, int]
    """Without the weights that a forward reads; in decode steps of a generation with them."""


def room_for(architecture: Architecture, ledger: Ledger, step: Architecture | None, device: str) -> Room:
    """The memory of what the ledger's mode runs.

    Raises:
        DeviceError: a tensor is too large for torch, or a batch norm has one value per channel.
    """
    check_addressable(ledger)
    name = ledger.metadata.name
    with within_torch(name):
        if ledger.training is not None:
            with batch_statistics(name):
                return _of_training(architecture, ledger.training.step.optimizer, device)
        with no_compiler():
            first = _of_forward(architecture, device)
            text = ledger.generation
            if step is None or text is None:
                return first
            positions = range(text.prompt, text.prompt + text.new_tokens - 1)
            held = generation_bytes(first.row_bytes, step, positions)
            return first._replace(needed=first.needed + _of_forward(step, device).needed, row_bytes=held)


def _of_forward(architecture: Architecture, device: str) -> Room:
    on_meta = build(architecture)
    predicted = peak_bytes(on_meta.model, on_meta.inputs)
    return Room(predicted, bytes_to_run(predicted, device), "one forward", row_bytes(on_meta))


def _of_training(architecture: Architecture, optimizer: str, device: str) -> Room:
    predicted = peak_of_steps(build(architecture), optimizer, lists=device.startswith("cuda"))
    held = training_bytes(architecture, optimizer)
    return Room(predicted, bytes_to_run(predicted, device), "a step of training", held)
