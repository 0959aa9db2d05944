"""The live accounts of a training step: its backward pass walked on `meta`, and the whole step timed on a device."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod

import msgspec
from torch import nn

from xfcost.counting.training import with_saved_activations
from xfcost.ledger.errors import DeviceError
from xfcost.ledger.join import with_backward, with_seconds
from xfcost.ledger.ledger import Ledger
from xfcost.spec.architecture import Architecture
from xfcost.torch_models.build import Live, build
from xfcost.torch_models.memory.peak import check_room, on_cpu
from xfcost.torch_models.memory.process import of_training
from xfcost.torch_models.memory.training_step import Stepping, peak_of_steps
from xfcost.torch_models.timing.clock import peak_on_cuda, time_calls, timing_of
from xfcost.torch_models.tracing.backward import Walked, walk
from xfcost.torch_models.tracing.rows import row_path


def walked(live: Live, ledger: Ledger) -> Ledger:
    """`ledger` joined with the backward pass of the real model on `meta`, and with what autograd keeps for it."""
    live.model.train().requires_grad_()
    with _statistics_of_one_value(ledger.metadata.name):
        found = walk(live.model, live.inputs)
    blocks, kept, loose = by_rows(live, found)
    joined = with_backward(ledger, blocks, kept, loose)
    return with_saved_activations(joined, sum(found.kept.values()), factored_numbers(live.model))


def timed_step(
    architecture: Architecture, ledger: Ledger, optimizer: str, device: str, say: Callable[[str], None]
) -> Ledger:
    """`ledger` with the seconds of a step of training on `device`: forward, backward, update by torch's optimizer.

    Raises:
        DeviceError: it doesn't fit; nothing was allocated.
    """
    name, lists = ledger.metadata.name, device.startswith("cuda")
    with _statistics_of_one_value(name):
        predicted = peak_of_steps(build(architecture), optimizer, lists=lists)
        process = of_training(architecture, optimizer) if on_cpu(device) else None
    check_room(predicted if process is None else process.high, device, name, "a step of training")
    say(f"building {name} on {device} …")
    stepping = Stepping(build(architecture, device), optimizer, lists=lists)
    say(f"timing steps on {device} …")
    stepping()  # it makes the states
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
    """In training a batch norm takes its batch's statistics.

    Raises:
        DeviceError: there is but one value of a channel, which has no variance.
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


def by_rows(live: Live, found: Walked) -> tuple[dict[str, list[int]], dict[str, int], list[str]]:
    """By row: MACs of the backward pass in each of its blocks; bytes kept in all of them. And what no row owns."""
    blocks: dict[str, list[int]] = defaultdict(list)
    kept: dict[str, int] = defaultdict(int)
    owned = set()
    for name, module in live.model.named_modules():
        path = row_path(name, live.rows)
        if path is not None and next(module.children(), None) is None:
            owned.add(name)
            blocks[path].append(found.backward[name])
            kept[path] += found.kept[name]
    loose = [
        f"{name or 'the model itself'}: {macs} backward_macs outside the leaves of any mechanism"
        for name, macs in found.backward.items()
        if macs and name not in owned
    ]
    for name in found.kept.keys() & live.rows.keys() - owned:  # the two streams of a reversible stage
        kept[live.rows[name]] += found.kept[name]
    return blocks, kept, loose


def factored_numbers(model: nn.Module) -> int:
    """Adafactor's numbers of state: rows and columns of what has two axes or more (its last two), else one each.

    Shazeer and Stern 2018, algorithms 4 and 5 (without β₁); axes before the last two as torch.optim.Adafactor has them.
    """
    total = 0
    for parameter in model.parameters():
        *lead, rows, columns = (1, 1, *parameter.shape)
        total += prod(lead) * (rows + columns) if parameter.ndim > 1 else parameter.numel()
    return total
