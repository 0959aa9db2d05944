"""The torch accounts of a training step: its backward pass traced on `meta`, and the step timed on a device."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from xfcost.counting.training import with_saved_activations
from xfcost.ledger.errors import DeviceError
from xfcost.ledger.join import with_backward, with_seconds
from xfcost.ledger.ledger import Ledger
from xfcost.spec.architecture import Architecture
from xfcost.torch_models.build import BuiltModel, build
from xfcost.torch_models.memory.peak import check_room, on_cpu
from xfcost.torch_models.memory.process import training_memory
from xfcost.torch_models.memory.training_step import Stepping, adafactor_states, peak_of_steps
from xfcost.torch_models.timing.clock import peak_on_cuda, time_calls, timing_of
from xfcost.torch_models.tracing.backward import Walked, walk
from xfcost.torch_models.tracing.rows import row_path


def walked(live: BuiltModel, ledger: Ledger) -> Ledger:
    """`ledger` joined with the backward pass of the torch model on `meta`, and with its saved activations."""
    live.model.train().requires_grad_()
    with _statistics_of_one_value(ledger.metadata.name):
        found = walk(live.model, live.inputs)
    blocks, saved, outside = costs_by_row(live, found)
    joined = with_backward(ledger, blocks, saved, outside)
    return with_saved_activations(joined, sum(found.saved.values()), adafactor_states(live.model.parameters()))


def timed_step(
    architecture: Architecture, ledger: Ledger, optimizer: str, device: str, say: Callable[[str], None]
) -> Ledger:
    """`ledger` with the seconds of a training step on `device`: forward, backward, update by torch's optimizer.

    Raises:
        DeviceError: the step does not fit; nothing is allocated.
    """
    name, lists = ledger.metadata.name, device.startswith("cuda")
    with _statistics_of_one_value(name):
        predicted = peak_of_steps(build(architecture), optimizer, lists=lists)
        process = training_memory(architecture, optimizer) if on_cpu(device) else None
    check_room(predicted if process is None else process.high, device, name, "a step of training")
    say(f"building {name} on {device} …")
    stepping = Stepping(build(architecture, device), optimizer, lists=lists)
    say(f"timing steps on {device} …")
    stepping()  # the first step creates the optimizer states
    times = time_calls(stepping, device)
    if lists:
        peak = peak_on_cuda(stepping, device)
    else:
        del stepping
        peak = peak_of_steps(build(architecture, device), optimizer, lists=lists)
    timing = msgspec.structs.replace(timing_of(times, device, peak, predicted), process_memory=process)
    return with_seconds(ledger, {}, timing)


@contextmanager
def _statistics_of_one_value(name: str) -> Iterator[None]:
    """In training a batch norm computes the statistics of its batch.

    Raises:
        DeviceError: a channel has a single value, which has no variance.
    """
    try:
        yield
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise DeviceError(
            f"{name}: in training a batch norm takes the variance of its batch, and a channel has one value here; take "
            "a larger --batch (or --N, --size), or leave --device out and take --no-trace"
        ) from None


def costs_by_row(live: BuiltModel, found: Walked) -> tuple[dict[str, list[int]], dict[str, int], list[str]]:
    """By row: backward MACs of each block, and bytes saved by all blocks; and texts about work outside all rows."""
    blocks: dict[str, list[int]] = defaultdict(list)
    saved: dict[str, int] = defaultdict(int)
    owned = set()
    for name, module in live.model.named_modules():
        path = row_path(name, live.rows)
        if path is not None and next(module.children(), None) is None:
            owned.add(name)
            blocks[path].append(found.backward[name])
            saved[path] += found.saved[name]
    outside = [
        f"{name or 'the model itself'}: {macs} backward_macs outside the leaves of any mechanism"
        for name, macs in found.backward.items()
        if macs and name not in owned
    ]
    for name in found.saved.keys() & live.rows.keys() - owned:  # the two streams of a reversible stage
        saved[live.rows[name]] += found.saved[name]
    return blocks, saved, outside
