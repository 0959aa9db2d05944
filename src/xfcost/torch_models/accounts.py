"""The live accounts of a spec: its model built, traced and timed, laid beside the counted ledger."""

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
from xfcost.torch_models.memory.process import of_forward
from xfcost.torch_models.timing.clock import check_device, time_model, time_steps
from xfcost.torch_models.tracing.dispatch import dispatched_rows
from xfcost.torch_models.tracing.trace import traced_rows
from xfcost.torch_models.training import timed_step, walked

# What torch says of a tensor whose bytes it can't number.
_TOO_LARGE: Final = "overflow"


def traced(architecture: Architecture, ledger: Ledger) -> Ledger:
    """`ledger` joined with the real model on `meta`: its trace, and the operations that its dispatcher sees.

    Raises:
        DeviceError: a tensor of the model would be larger than torch can address, even on `meta`.
    """
    check_addressable(ledger)
    with _within_torch(ledger.metadata.name):
        live = build(architecture)
        joined = reconciled(_with_versions(ledger), live.model, live.inputs, live.rows)
        return joined if ledger.training is None else walked(live, joined)


def reconciled(ledger: Ledger, model: nn.Module, inputs: tuple[Tensor, ...], rows: dict[str, str]) -> Ledger:
    """`ledger` joined with the traced and the dispatched account of `model`; `rows` are those of `Live`."""
    dispatched = dispatched_rows(model, inputs, rows)
    return join(join(ledger, *traced_rows(model, inputs, rows)), *dispatched, account="dispatched", quantities=RUN)


def with_traced(ledger: Ledger, step: Architecture) -> Ledger:
    """`ledger` of a text that is generated, with what a trace of one of its steps finds."""
    one = traced(step, count(step, orders=False))
    found, ours = one.agreement, ledger.agreement
    if found is None or ours is None:
        raise TypeError("an account without a trace has no agreement to add to")
    tokens = step.streams[-1].grid.tokens
    differences = (dict(each, path=f"decode at {tokens}: {each['path']}") for each in found.differences)
    loose = (f"decode at {tokens}: {text}" for text in found.uncounted)
    agreement = Agreement(
        exact=ours.exact and found.exact,
        accounts=ours.accounts,
        differences=(*ours.differences, *differences),
        uncounted=(*ours.uncounted, *loose),
    )
    return msgspec.structs.replace(ledger, agreement=agreement)


@contextmanager
def _within_torch(name: str) -> Iterator[None]:
    """Tensors that torch makes on its way can be too large where the model's own are not, on `meta` too.

    Raises:
        DeviceError: torch says so.
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
    """`ledger` with the seconds of the real model on `device`.

    Raises:
        DeviceError: the device isn't there, or the model doesn't fit; nothing was allocated.
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
    """The peak of tensors of one call, and on the CPU what the process grows by; walked on `meta`.

    Raises:
        DeviceError: `device` has not so many bytes free.
    """
    with _within_torch(name):
        on_meta = build(architecture)
        predicted = peak_bytes(on_meta.model, on_meta.inputs)
        process = of_forward(architecture) if on_cpu(device) else None
    check_room(predicted if process is None else process.high, device, name)
    return predicted, process


def timed_text(
    prefill: Architecture, step: Architecture, ledger: Ledger, device: str, say: Callable[[str], None]
) -> Ledger:
    """`ledger` of a generated text with the seconds of its prefill and of all its steps, run on `device`.

    Raises:
        DeviceError: as `timed`.
    """
    alone = timed(prefill, count(prefill, orders=False), device, say)
    generation, timing = ledger.generation, alone.timing
    if generation is None or timing is None:
        raise TypeError("a text is timed where its mode is to generate one")
    _room_for(step, ledger.metadata.name, device)
    positions = range(generation.prompt, generation.prompt + generation.new_tokens - 1)
    say(f"timing {len(positions):,} steps on {device} …")
    seconds = statistics.median(time_steps(build(step, device), device, positions)) if positions else 0.0
    both = msgspec.structs.replace(generation, prefill_seconds=timing.seconds, decode_seconds=seconds)
    timing = msgspec.structs.replace(timing, seconds=timing.seconds + seconds)
    rows = {in_phase("prefill", row).path: row.seconds for row in alone.rows if row.seconds is not None}
    return msgspec.structs.replace(with_seconds(_with_versions(ledger), rows, timing), generation=both)


def _with_versions(ledger: Ledger) -> Ledger:
    """What ran beside xfcost."""
    versions = {package: version(package) for package in ("torch", "fvcore")}
    metadata = msgspec.structs.replace(ledger.metadata, versions=ledger.metadata.versions | versions)
    return msgspec.structs.replace(ledger, metadata=metadata)
