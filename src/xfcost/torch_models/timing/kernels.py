"""Seconds of the kernels that a GPU ran, by what launched them, from a trace of torch's profiler (CUPTI).

A clock that waits for the GPU around every operation adds the host's time to each: on an H100 such rows add up to 118
to 200 % of the whole. Kernels have their own times. A kernel belongs to the launch with its correlation id, the launch
to the innermost range of `launched_by` around it on its thread. In a backward pass the launch belongs to the autograd
node around it, and the node to the range around the forward operation with its sequence number.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from xfcost.ledger.metadata import CudaGraph
from xfcost.torch_models.running.recorder import Recorder

# The name of a range is this and the name of the row.
_PREFIX: Final = "xf::"
_KERNEL: Final = "kernel"
_COPIES: Final = ("gpu_memcpy", "gpu_memset")
# ATen operations whose kernels copy and fill.
_COPYING: Final = ("aten::copy_", "aten::fill_", "aten::zero_")
_LAUNCHES: Final = ("cuda_runtime", "cuda_driver")
_RANGES: Final = ("cpu_op", "user_annotation")
# Beginnings of the names that torch gives to the nodes of a backward pass, and to an optimizer's step.
_NODE: Final = "autograd::engine::evaluate_function"
_OPTIMIZER: Final = "Optimizer.step#"
# Runs before a capture, as torch's documentation has them; and replays that are timed.
_WARM_UPS: Final = 3
_REPLAYS: Final = 20


class RowSeconds(NamedTuple):
    """Where the seconds of one call go, by a clock around every operation or by the kernels of a GPU."""

    rows: dict[Any, float]
    """Of each row over all its blocks, its backward pass with it."""
    update: float | None = None
    """Of the optimizer's step."""
    copies: float = 0.0
    """Of copies and fills on a GPU that no row launched."""
    others: float = 0.0
    """Of other kernels that no row launched."""
    launches: int | None = None
    """The number of kernels, copies and fills; None of what a clock measured."""

    @property
    def total(self) -> float:
        """Of everything; kernels that ran side by side count one by one."""
        return sum(self.rows.values()) + (self.update or 0.0) + self.copies + self.others


def launched_by(row: str | int) -> AbstractContextManager[Any]:
    """Kernels that are launched inside belong to `row`."""
    return record_function(f"{_PREFIX}{row}")


def kernels_of(call: Callable[[], object], device: str) -> RowSeconds:
    """What `call` lets the GPU do, by the ranges of `launched_by` inside it."""
    torch.cuda.synchronize(device)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
        call()
        torch.cuda.synchronize(device)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiled.export_chrome_trace(str(path))
        return attributed(json.loads(path.read_text(encoding="utf-8"))["traceEvents"])


def recorded_kernels(recorder: Recorder, call: Callable[[], object], device: str) -> RowSeconds:
    """The same of a call that `recorder` records: its calls get the seconds of their kernels, and are the rows."""
    recorder.around = launched_by
    found = kernels_of(call, device)
    for one in recorder.run.aten_calls():
        one.seconds = found.rows.get(str(one.number), 0.0)
    return found


def replayed(calls: Collection[Callable[[], object]], device: str) -> CudaGraph:
    """The seconds of `calls`, one after the other, as one CUDA graph; or why they can't be captured."""
    try:
        with torch.cuda.device(device):
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):  # libraries take their workspaces outside the capture
                for _ in range(_WARM_UPS):
                    for call in calls:
                        call()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for call in calls:
                    call()
            graph.replay()  # the first one uploads the graph
            return CudaGraph(seconds=statistics.median(_replay_seconds(graph) for _ in range(_REPLAYS)))
    except Exception as error:  # noqa: BLE001 whatever code of the model raises
        return CudaGraph(not_captured=(str(error).strip() or type(error).__name__).partition("\n")[0])


def _replay_seconds(graph: torch.cuda.CUDAGraph) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    graph.replay()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3  # of milliseconds


class _Spans:
    """Ranges of one thread, which are nested or apart."""

    def __init__(self, spans: list[tuple[float, float, Any]]) -> None:
        self._spans = sorted(spans, key=lambda span: (span[0], -span[1]))
        self._starts = [start for start, _, _ in self._spans]
        self._outer: list[int | None] = []
        """Of each range the one around it."""
        around: list[int] = []
        for number, (start, _, _) in enumerate(self._spans):
            while around and self._spans[around[-1]][1] < start:
                around.pop()
            self._outer.append(around[-1] if around else None)
            around.append(number)

    def around(self, time: float) -> Iterator[Any]:
        """What the ranges around a moment are, the innermost first."""
        found = bisect_right(self._starts, time) - 1
        number = found if found >= 0 else None
        while number is not None:
            if self._spans[number][1] >= time:
                yield self._spans[number][2]
            number = self._outer[number]


_Event = Mapping[str, Any]


class _Launches:
    """The launches of a trace, and what stands around each."""

    def __init__(self, events: list[dict[str, Any]]) -> None:
        self._launches: dict[int, _Event] = {}
        nodes = []
        by_thread: dict[Any, list[tuple[float, float, _Event]]] = defaultdict(list)
        for event in events:
            category, more = event.get("cat"), event.get("args", {})
            if category in _LAUNCHES and "correlation" in more:
                self._launches[more["correlation"]] = event
            elif category in _RANGES:
                by_thread[event["tid"]].append((event["ts"], event["ts"] + event["dur"], event))
                if "Sequence number" in more and not more.get("Fwd thread id"):
                    nodes.append(event)
        self._spans = {thread: _Spans(found) for thread, found in by_thread.items()}
        # operations that make no node have the number of the next one that does
        self._forward = {one["args"]["Sequence number"]: one for one in sorted(nodes, key=lambda one: one["ts"])}

    def _around(self, event: _Event) -> Iterator[_Event]:
        spans = self._spans.get(event["tid"])
        return iter(()) if spans is None else spans.around(event["ts"])

    def owner(self, kernel: _Event) -> str | None:
        """The name of the range that a kernel belongs to, or of the optimizer's step."""
        event = self._launches.get(kernel["args"].get("correlation"))
        while event is not None:
            node = None
            for one in self._around(event):
                name = str(one["name"])
                if name.startswith((_PREFIX, _OPTIMIZER)):
                    return name
                if name.startswith(_NODE):
                    node = self._forward.get(one.get("args", {}).get("Sequence number"))
                    break
            event = node
        return None

    def copies(self, kernel: _Event) -> bool:
        """Does a kernel copy or fill?"""
        launch = self._launches.get(kernel["args"].get("correlation"))
        inner = None if launch is None else next(self._around(launch), None)
        return kernel["cat"] in _COPIES or (inner is not None and inner["name"] in _COPYING)


def attributed(events: list[dict[str, Any]]) -> RowSeconds:
    """The same from the events of a trace, whose times are microseconds."""
    launches, seconds, update = _Launches(events), Counter[str](), None
    copies = others = 0.0
    kernels = [event for event in events if event.get("cat") in (_KERNEL, *_COPIES)]
    for kernel in kernels:
        owner, spent = launches.owner(kernel), kernel["dur"] / 1e6
        if owner is None and launches.copies(kernel):
            copies += spent
        elif owner is None:
            others += spent
        elif owner.startswith(_OPTIMIZER):
            update = (update or 0.0) + spent
        else:
            seconds[owner.removeprefix(_PREFIX)] += spent
    return RowSeconds(dict(seconds), update, copies, others, len(kernels))
