"""The torch accounts of a spec: its model is built, traced and timed, and joined with the counted ledger."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Final

import msgspec
from torch import Tensor, nn

from xfcost.counting.decoding import in_phase
from xfcost.counting.forward import count
from xfcost.ledger.accounts import RUN
from xfcost.ledger.errors import DeviceError
from xfcost.ledger.join import join, with_seconds
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.metadata import Agreement, ProcessMemory
from xfcost.spec.architecture import Architecture
from xfcost.torch_models.build import build
from xfcost.torch_models.memory.peak import check_addressable, check_room, on_cpu, peak_bytes
from xfcost.torch_models.memory.process import forward_memory
from xfcost.torch_models.shared.no_compiler import no_compiler
from xfcost.torch_models.timing.clock import check_device, time_model, time_steps
from xfcost.torch_models.tracing.dispatch import dispatched_rows
from xfcost.torch_models.tracing.trace import traced_rows
from xfcost.torch_models.training import timed_step, walked

# torch's error text for a tensor too large to address.
_TOO_LARGE: Final = "overflow"


def traced(architecture: Architecture, ledger: Ledger) -> Ledger:
    """`ledger` joined with the traced and the dispatched account of the torch model on `meta`.

    Raises:
        DeviceError: a tensor of the model would be larger than torch can address, even on `meta`.
    """
    check_addressable(ledger)
    with _within_torch(ledger.metadata.name), no_compiler():
        live = build(architecture)
        joined = reconciled(_with_versions(ledger), live.model, live.inputs, live.rows)
        return joined if ledger.training is None else walked(live, joined)


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


@contextmanager
def _within_torch(name: str) -> Iterator[None]:
    """Report a tensor that torch cannot address, also a temporary one, as a DeviceError.

    Raises:
        DeviceError: a tensor is too large for torch.
    """
    try:
        yield
    except RuntimeError as error:
        first = str(error).partition("\n")[0]
        if _TOO_LARGE not in first:
            raise
        raise DeviceError(
            f"{name} is too large to be laid out here, even on `meta` ({first}); take a smaller --N, "
            "or leave --device out and take --no-trace, which counts it all the same"
        ) from None


def timed(architecture: Architecture, ledger: Ledger, device: str, say: Callable[[str], None]) -> Ledger:
    """`ledger` with the measured seconds of the torch model on `device`.

    Raises:
        DeviceError: the device does not exist, or the model does not fit; nothing is allocated.
    """
    check_device(device)
    check_addressable(ledger)
    if ledger.training is not None:
        with _within_torch(ledger.metadata.name):
            return timed_step(architecture, _with_versions(ledger), ledger.training.step.optimizer, device, say)
    predicted, process = _room_for(architecture, ledger.metadata.name, device)
    say(f"building {ledger.metadata.name} on {device} …")
    live = build(architecture, device)
    seconds, timing = time_model(live, device, predicted, say)
    timing = msgspec.structs.replace(timing, process_memory=process)
    return with_seconds(_with_versions(ledger), seconds, timing)


def _room_for(architecture: Architecture, name: str, device: str) -> tuple[int, ProcessMemory | None]:
    """The peak of live tensors in one call and, on the CPU, the growth of the process; both predicted on `meta`.

    Raises:
        DeviceError: `device` has fewer bytes free.
    """
    with _within_torch(name), no_compiler():
        on_meta = build(architecture)
        predicted = peak_bytes(on_meta.model, on_meta.inputs)
        process = forward_memory(architecture) if on_cpu(device) else None
    check_room(predicted if process is None else process.high, device, name)
    return predicted, process


def timed_text(
    prefill: Architecture, step: Architecture, ledger: Ledger, device: str, say: Callable[[str], None]
) -> Ledger:
    """`ledger` of a generation with the seconds of its prefill and of all its decode steps on `device`.

    Raises:
        DeviceError: as `timed`.
    """
    alone = timed(prefill, count(prefill, orders=False), device, say)
    generation, timing = ledger.generation, alone.timing
    if generation is None or timing is None:
        raise TypeError("only a ledger of mode generate can be timed as a generation")
    _room_for(step, ledger.metadata.name, device)
    positions = range(generation.prompt, generation.prompt + generation.new_tokens - 1)
    say(f"timing {len(positions):,} steps on {device} …")
    seconds = statistics.median(time_steps(build(step, device), device, positions)) if positions else 0.0
    timed_generation = msgspec.structs.replace(generation, prefill_seconds=timing.seconds, decode_seconds=seconds)
    timing = msgspec.structs.replace(timing, seconds=timing.seconds + seconds)
    rows = {in_phase("prefill", row).path: row.seconds for row in alone.rows if row.seconds is not None}
    return msgspec.structs.replace(with_seconds(_with_versions(ledger), rows, timing), generation=timed_generation)


def _with_versions(ledger: Ledger) -> Ledger:
    """`ledger` with the versions of torch and fvcore."""
    versions = {package: version(package) for package in ("torch", "fvcore")}
    metadata = msgspec.structs.replace(ledger.metadata, versions=ledger.metadata.versions | versions)
    return msgspec.structs.replace(ledger, metadata=metadata)
