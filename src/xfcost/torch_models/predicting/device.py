"""A device as a few numbers: its peaks, its shortest call, its pace, and what it takes to record a call."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor, nn

from xfcost.ledger.calibration import Baseline
from xfcost.torch_models.predicting.calls import recorded
from xfcost.torch_models.running.recorder import Clock

_PEAK_SIDE: Final = 2048
_PEAK_BYTES: Final = 2**27
# A peak is the best of so many runs.
_PEAK_RUNS: Final = 20
_SMALL_CALLS: Final = 200
# The reference product, and how often it runs.
_ROWS: Final = 196
_WIDTH: Final = 384
_RUNS: Final = 40


def peaks(device: str, dtype: str, clock: Clock) -> Baseline:
    """The rate of a large matrix product, of a large addition, and the seconds of the smallest call."""
    with torch.device(device), torch.no_grad():
        matrix = torch.randn(_PEAK_SIDE, _PEAK_SIDE, dtype=getattr(torch, dtype))
        numbers = torch.zeros(_PEAK_BYTES // matrix.element_size(), dtype=matrix.dtype)
        one, kept = torch.zeros(1), torch.empty_like(numbers)
        return Baseline(
            macs_per_second=_PEAK_SIDE**3 / _shortest(lambda: matrix @ matrix, clock),
            bytes_per_second=3 * _PEAK_BYTES / _shortest(lambda: torch.add(numbers, numbers, out=kept), clock),
            call_seconds=_shortest(lambda: _Small()(one), clock) / _SMALL_CALLS,
        )


def _shortest(call: Callable[[], Any], clock: Clock) -> float:
    call()
    return max(min(_times(call, clock, _PEAK_RUNS)), 1e-9)


def _times(call: Callable[[], Any], clock: Clock, runs: int) -> list[float]:
    found = []
    for _ in range(runs):
        started = clock()
        call()
        found.append(clock() - started)
    return found


class _Small(nn.Module):
    """The smallest calls."""

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(_SMALL_CALLS):
            x + x
        return x


def recording_seconds(device: str, clock: Clock) -> float:
    """What recording a call adds to its time: a call of a recorded run over one of a plain run."""
    small, x = _Small(), torch.zeros(1, device=device)
    plain = _shortest(lambda: small(x), clock) / _SMALL_CALLS
    alone = [time for times in recorded(small, (x,), clock, _PEAK_RUNS).seconds.values() for time in times]
    return max(statistics.median(alone) - plain, 0.0)


def pace(device: str, dtype: str, clock: Clock) -> float:
    """How fast the machine runs at the moment: seconds of a product that all threads share, run for a tenth of one.

    A machine has more than one pace. A virtual machine's cores may move to other cores of the host, for minutes, where
    the same product takes a quarter longer; a processor may be throttled. Large products and the bandwidth of memory
    need not show it: this one is of the size that models have.
    """
    kind = getattr(torch, dtype)
    tokens = torch.ones(_ROWS, _WIDTH, dtype=kind, device=device)
    weight = torch.ones(_WIDTH, 4 * _WIDTH, dtype=kind, device=device)
    return statistics.median(_times(lambda: torch.mm(tokens, weight), clock, _RUNS))
