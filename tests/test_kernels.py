"""Kernels belong to the rows that launched them, held to traces that an H100 recorded; no GPU is needed."""

import gzip
import json
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import nn

from clocks import Machine
from xfcost.api.roofline import CalibratedRoofs, under_roofs, with_roofs
from xfcost.api.runs import make_run, timing_plan
from xfcost.counting.devices import device, device_names, device_reported
from xfcost.counting.forward import count
from xfcost.counting.system import AccountOptions
from xfcost.ledger.achieved import COPIES, NOT_ATTRIBUTED, UPDATE, beside_rows, whole_of_peak
from xfcost.ledger.errors import DeviceError, UsageError
from xfcost.ledger.join import with_seconds
from xfcost.ledger.metadata import CudaGraph, Load
from xfcost.ledger.roofline import roofline_of
from xfcost.ledger.roofs import Roofs
from xfcost.ledger.timing_plan import TimingPlan
from xfcost.parts.timing.text import timing_texts
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.spec.run import Run
from xfcost.systems.spec import SpecSystem
from xfcost.torch_models.any_model.ledger import _by_operation
from xfcost.torch_models.build import build
from xfcost.torch_models.running.by_row import leaf_rows
from xfcost.torch_models.timing import kernels, systems, turns
from xfcost.torch_models.timing.devices import accelerators
from xfcost.torch_models.timing.kernels import RowSeconds, attributed, replayed
from xfcost.torch_models.timing.rows import kernel_seconds, row_bytes
from xfcost.torch_models.timing.systems import SystemOnDevice, TimedSystem, in_turns
from xfcost.torch_models.timing.turns import Measured, Subject, take_turns, timing_of
from xfcost.views.analyze import document
from xfcost.views.roofline import document as roofline_document

DATA = Path(__file__).parent / "data" / "gpu"


def recorded(name):
    with gzip.open(DATA / f"{name}.json.gz", "rt", encoding="utf-8") as file:
        return attributed(json.load(file)["traceEvents"])


@pytest.mark.parametrize(
    ("name", "total", "launches", "rows", "fc2"),
    [
        # sums of the same runs by another script, by leaf: of all kernels, all leaves, the second product of the MLP
        ("vit-s8", 2623.1, 174, 2593.6, 684.04),
        ("swin-t-fused", 4274.0, 302, 4111.2, 1005.96),
    ],
)
def test_kernels_of_a_forward_belong_to_its_leaves(name, total, launches, rows, fc2):
    found = recorded(name)
    assert found.total * 1e6 == pytest.approx(total, abs=0.1)
    assert found.launches == launches
    assert sum(found.rows.values()) * 1e6 == pytest.approx(rows, abs=0.1)
    products = [spent for path, spent in found.rows.items() if path.endswith(".inner.fc2")]
    assert sum(products) * 1e6 == pytest.approx(fc2, abs=0.1)
    # what is left are copies between operations
    assert found.copies == pytest.approx(found.total - sum(found.rows.values()))
    assert found.others == 0
    assert sum(found.rows.values()) + found.copies >= 0.97 * found.total


def test_kernels_of_a_training_step_belong_to_forward_operations_and_to_the_update():
    found = recorded("vit-s16-train")
    assert found.total * 1e6 == pytest.approx(10702.4, abs=0.1)
    assert found.launches == 752
    assert found.update is not None
    assert found.others <= 0.05 * found.total
    # a product's backward pass has two products of its size
    first = sum(spent for path, spent in found.rows.items() if path.endswith(".inner.fc1"))
    forward = 694.79e-6
    assert 2.5 * forward < first < 4 * forward


def event(cat, name, ts, dur, tid=1, **args):
    return {"cat": cat, "name": name, "tid": tid, "ts": ts, "dur": dur, "args": args}


def launched(ts, correlation, dur, tid=1, cat="kernel"):
    launch = event("cuda_runtime", "cudaLaunchKernel", ts, 1, tid, correlation=correlation)
    return [launch, event(cat, "k", ts + 500, dur, 7, correlation=correlation)]


def test_a_kernel_belongs_to_the_innermost_range_and_a_backward_kernel_to_its_forward_operation():
    events = [
        event("user_annotation", "xf::outer", 0, 100),
        event("user_annotation", "xf::inner", 10, 20),
        event("cpu_op", "aten::view", 11, 1, **{"Sequence number": 5, "Fwd thread id": 0}),
        event("cpu_op", "aten::mm", 50, 10, **{"Sequence number": 5, "Fwd thread id": 0}),
        *launched(15, 1, 3),  # inner
        *launched(52, 2, 5),  # outer
        *launched(120, 3, 7),  # after both, in no operation
        event("cpu_op", "aten::copy_", 130, 10),
        *launched(131, 4, 11),  # a copy between operations
        *launched(150, 5, 13, cat="gpu_memset"),
        # the node of `aten::mm`, which alone made one; its thread has ranges of its own
        event(
            "cpu_op", "autograd::engine::evaluate_function: MmBackward0", 200, 50, 2,
            **{"Sequence number": 5, "Fwd thread id": 1},
        ),
        event("cpu_op", "aten::mm", 210, 5, 2),
        *launched(211, 6, 17, 2),  # outer
        event("user_annotation", "Optimizer.step#AdamW.step", 300, 50),
        *launched(310, 7, 19),
        event("kernel", "k", 900, 23, 7, correlation=99),  # its launch was not recorded
    ]  # fmt: skip
    found = attributed(events)
    assert found.rows == pytest.approx({"inner": 3e-6, "outer": 22e-6})
    assert found.update == pytest.approx(19e-6)
    assert found.copies == pytest.approx(24e-6)
    assert found.others == pytest.approx(30e-6)
    assert found.launches == 8
    assert found.total == pytest.approx(98e-6)


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """Every product and every GELU of the CPU launches a kernel of a microsecond."""
    launching = {f"aten::{name}" for name in ("addmm", "mm", "bmm", "mkldnn_convolution", "gelu")}

    def with_kernels(events):
        operations, more = [one for one in events if one.get("name") in launching], []
        for number, one in enumerate(operations):
            middle, end = one["ts"] + one["dur"] / 2, one["ts"] + one["dur"]
            # under a dispatch mode an operation is called twice, once by the mode
            if not any(other is not one and one["ts"] <= other["ts"] <= end for other in operations):
                more.append(event("cuda_runtime", "launch", middle, 0, one["tid"], correlation=number))
                more.append(event("kernel", "k", 0, 1, 7, correlation=number))
        return attributed([*events, *more])

    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    monkeypatch.setattr(kernels, "attributed", with_kernels)


@pytest.mark.filterwarnings("ignore:CUDA is not available")
def test_every_operation_of_a_spec_has_a_range(as_on_a_gpu):
    architecture = place(load("vit-ti32", ["stages.0.depth=2"]), Run())
    live = build(architecture, "cpu")
    with torch.no_grad():
        found = kernel_seconds(live, lambda: live.model(*live.inputs), "cuda")
    rows = count(architecture).rows
    assert set(found.rows) <= {row.path for row in rows}
    assert {row.path for row in rows if row.macs} <= set(found.rows)


@pytest.mark.filterwarnings("ignore:CUDA is not available")
def test_operations_of_a_module_have_the_rows_of_the_clock(as_on_a_gpu):
    model, x = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)), torch.randn(4, 8)
    with torch.no_grad():
        by_clock = _by_operation(model, "cpu", iter(range(1000)).__next__, lambda recorder: model(x))
        by_kernel = _by_operation(model, "cuda", lambda: 0.0, lambda recorder: model(x))
    assert set(by_kernel.rows) == set(by_clock.rows)
    assert list(by_kernel.rows.values()) == pytest.approx([1e-6] * 3)
    assert by_kernel.total == pytest.approx(3e-6)


@pytest.mark.filterwarnings("ignore:CUDA is not available")
def test_a_backward_pass_belongs_to_the_operations_of_its_forward(as_on_a_gpu):
    model, x = nn.Linear(8, 8, bias=False), torch.randn(4, 8)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)

    def both(recorder):
        recorder.differentiate(model(x).sum())

    found = _by_operation(model, "cuda", lambda: 0.0, both, optimizer.step)
    (product,) = [spent for key, spent in found.rows.items() if key[1] == "aten::mm"]
    # the product, and of its backward pass the product that gives the weight's gradient
    assert product == pytest.approx(2e-6)


def small():
    return count(place(load("vit-ti32", ["stages.0.depth=1"]), Run()))


def measured_on(passes, seconds, host, ledger, held, monkeypatch, device="cuda"):
    monkeypatch.setattr(turns, "machine", lambda device: "NVIDIA H100 80GB HBM3")
    found = Measured(
        phases={"": (seconds,) * 6}, passes=passes, warm_up=0.0, load=Load(), threads=1, in_turns=False,
        host=(host,) * 6 if host is not None else (),
    )  # fmt: skip
    return with_seconds(ledger, found.row_seconds(), held, timing_of(found, device, None, None), found.update)


def told(ledger):
    return [text.plain for text in timing_texts(ledger)]


def test_shares_are_of_the_kernels_and_the_longer_lane_is_named(monkeypatch):
    rows = {"stages.0.block.0.scores": 1e-3}
    passes = (RowSeconds(rows, update=0.5e-3, copies=0.25e-3, others=0.25e-3, launches=42),)
    ledger = measured_on(passes, 10e-3, 9e-3, small(), None, monkeypatch)
    beside = beside_rows(ledger)
    # 2 ms of kernels = 1 ms of rows + 0.5 ms of the update + 0.25 ms of copies + 0.25 ms of others
    assert beside[UPDATE]["seconds"] == pytest.approx(0.5e-3)
    assert beside[COPIES]["seconds"] == pytest.approx(0.25e-3)
    assert beside[NOT_ATTRIBUTED]["seconds"] == pytest.approx(0.25e-3)
    bound = "host-bound: the GPU is idle 80.0 % of the time; kernels take 2.00 ms (42 launches), the host 9.00 ms"
    of_kernels = "times of operations are those of their kernels, 75.0 % of all kernels"
    assert {bound, f"{of_kernels}, copies and fills between operations 12.5 %"} <= {*told(ledger)}
    # kernels that take longer than the host are the bound
    passes = (RowSeconds({"stages.0.block.0.scores": 9.9e-3}, launches=7),)
    bound = "device-bound: kernels take 9.90 ms (7 launches), the host issues them in 2.00 ms"
    assert bound in told(measured_on(passes, 10e-3, 2e-3, small(), None, monkeypatch))


RECORDED = {
    "vit-s8": ("vit-s8", Run()),
    "swin-t-fused": ("swin-t", Run(batch=8, attention="fused")),
    "vit-s16-train": ("vit-s16", make_run(batch=8, mode="train")),
}


def from_trace(name):
    """The kernels of a recorded run by rows of the spec that was recorded, and its ledger."""
    spec, run = RECORDED[name]
    architecture = place(load(spec), run)
    live = build(architecture)
    paths, found = leaf_rows(live.model, live.rows), recorded(name)
    rows = {}
    for leaf, spent in found.rows.items():
        rows[paths[leaf]] = rows.get(paths[leaf], 0.0) + spent
    return found._replace(rows=rows), count(architecture), row_bytes(live)


def share_sums(*documents):
    """Of every printed table the sum of its shares of time, without the row of the whole."""
    for one in documents:
        for part in one.parts():
            heads = [column.head for column in getattr(part, "columns", ())]
            if "of time" in heads:
                at = heads.index("of time")
                cells = [row[at] for row in part.rows if row[0] != "all" and row[at] != "–"]
                yield sum(float(str(cell).removesuffix(" %")) for cell in cells)


def documents_of(ledger):
    kinds = [document(ledger), document(ledger, "mixing"), document(ledger, verbose=True)]
    roofs = Roofs(flops_per_second=67e12, bytes_per_second=3.35e12)
    return [*kinds, roofline_document([roofline_of(ledger, roofs)])]


@pytest.mark.parametrize("name", ["vit-s8", "swin-t-fused"])
@pytest.mark.parametrize("slower", [1.0, 7.0])
def test_shares_of_a_recorded_forward_add_up_to_the_whole(name, slower, monkeypatch):
    kernels_found, ledger, held = from_trace(name)
    total = kernels_found.total
    timed_ledger = measured_on((kernels_found,) * 6, slower * total, 0.9 * slower * total, ledger, held, monkeypatch)
    sums = list(share_sums(*documents_of(timed_ledger)))
    assert len(sums) == 7  # two tables of a report each, and the roofline
    # operations that only move data are hidden in some tables: 6 % of Swin-T
    assert min(sums) > 93
    assert max(sums) < 102


@pytest.mark.parametrize("on_gpu", [True, False])
def test_shares_add_up_to_the_whole_where_rows_take_longer_than_it(on_gpu, monkeypatch):
    # each pass has a total of 3 ms; the medians of the rows are 2 ms and 2 ms, 4 ms together
    paths, launches = [f"stages.0.block.0.{name}" for name in ("scores", "weighted_sum")], 2 if on_gpu else None
    spent = ((1e-3, 2e-3), (2e-3, 1e-3), (2e-3, 2e-3))
    passes = tuple(RowSeconds(dict(zip(paths, one, strict=True)), launches=launches) for one in spent)
    ledger = small()
    held = {row.path: 1000 for row in ledger.rows}
    device, host = ("cuda", 1e-3) if on_gpu else ("cpu", None)
    ledger = measured_on(passes, 3e-3, host, ledger, held, monkeypatch, device)
    assert ledger.timing.not_attributed == pytest.approx(-1e-3)
    assert ledger.timing.share_base == pytest.approx(4e-3)
    sums = list(share_sums(*documents_of(ledger)))
    assert len(sums) == 7
    assert sums == pytest.approx([100.0] * 7, abs=0.2)
    texts = document(ledger).text("table")
    assert ("measuring overhead" in texts) is not on_gpu


@pytest.fixture
def uncalibrated(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr("xfcost.api.roofline.calibrated_roofs", lambda *run: CalibratedRoofs(None, "not calibrated"))


def test_a_recorded_forward_is_set_against_the_figures_of_its_gpu(monkeypatch, uncalibrated):
    found, ledger, held = from_trace("vit-s8")
    # recorded on the H100: a call takes 4.5222 ms, the kernels of the trace 2.6231 ms
    timed = with_roofs(measured_on((found,), 4.5222e-3, 4.4803e-3, ledger, held, monkeypatch), TimingPlan())
    assert timed.timing.roofs.nominal == "h100-sxm"
    # a block has 12·N·d² + 2·N²·d MACs, N = 785, d = 384: 1.862 G, twelve of them and 784·192·384 of the patches
    # 22.41 G; element-wise work is 3 % more FLOPs at most
    share = 2 * 22.41e9 / 4.5222e-3 / 66.9e12
    assert share <= whole_of_peak(timed)["of_peak"] <= 1.03 * share
    while_kernels = next(text for text in told(timed) if text.startswith("achieved while kernels run: "))
    of_kernels = 100 * whole_of_peak(timed)["of_peak"] * 4.5222 / 2.6231
    assert float(while_kernels.split()[4]) == pytest.approx(of_kernels, 1e-2)
    (drawn,) = under_roofs([timed], [SpecSystem(load("vit-s8"))], Run(), AccountOptions(device="cuda"))
    assert drawn.roofs == timed.timing.roofs
    # the second product of the MLP: 12·785·384·1536 MACs in 684.04 µs of kernels
    point = max(drawn.points, key=lambda one: one.seconds)
    assert point.flops_per_second == pytest.approx(2 * 12 * 785 * 384 * 1536 / 684.04e-6, rel=1e-2)


def test_bytes_per_second_are_those_of_every_timed_row(monkeypatch, uncalibrated):
    passes = (RowSeconds({"stages.0.block.0.scores": 1e-3}, others=1e-3, launches=2),)
    # 3.35 GB in 10 ms are 10 % of 3.35 TB/s, and in 2 ms of kernels 50 %
    for held, shares in (({"stages.0.block.0.scores": 3_350_000_000}, " and 50.0 %"), (None, " %")):
        timed = with_roofs(measured_on(passes, 10e-3, 9e-3, small(), held, monkeypatch), TimingPlan())
        assert whole_of_peak(timed).get("of_bandwidth") == (held and pytest.approx(0.1))
        achieved = next(text for text in told(timed) if text.startswith("achieved while"))
        assert achieved.endswith(shares)
        assert achieved.count("%") == (2 if held else 1)


def test_drivers_name_devices():
    # names that torch.cuda.get_device_name gives; the first two were recorded
    names = {
        "NVIDIA H100 80GB HBM3": "h100-sxm", "NVIDIA H200": "h200-sxm", "Tesla T4": "t4",
        "NVIDIA A100-SXM4-40GB": "a100-sxm-40", "AMD Instinct MI300X": "mi300x",
    }  # fmt: skip
    assert {name: device_reported(name).name for name in names} == names
    assert device_reported("AMD EPYC") is None
    drivers = [driver for name in device_names() if (driver := device(name).driver)]
    assert len(set(drivers)) == len(drivers)


@pytest.fixture
def gpu(monkeypatch):
    """A GPU's name and its waiting, without one."""
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    monkeypatch.setattr(turns, "machine", lambda device: "NVIDIA H100 80GB HBM3")


def taking_turns(clock, plan):
    """A call whose seconds on the host vary by half, and whose kernels take 1 to 1.01 ms."""
    kernel_times = iter((1e-3, 1.01e-3) * 100)

    def rows():
        spent = next(kernel_times)
        return RowSeconds({"a": spent}, others=0.25e-3, launches=3)

    call = clock.taking("a", *(one for base in (1.0, 1.5, 2.0, 1.2, 1.8) for one in (base, base, base)))
    return take_turns([Subject({"": call}, rows)], "cuda", plan, clock.meters)[0]


def test_turns_end_once_the_chosen_lane_is_precise(gpu):
    by_wall = taking_turns(Machine(), TimingPlan(max_time=60.0))
    plan = TimingPlan(max_time=60.0, lane="device")
    by_kernels = taking_turns(Machine(), plan)
    assert len(by_kernels.times) == 6 < len(by_wall.times)
    timing = timing_of(by_kernels, "cuda", None, None, plan)
    # rows and others together: 1.25 and 1.26 ms, three of each
    assert timing.times == pytest.approx((1.25e-3, 1.26e-3) * 3)
    assert (timing.lane, timing.seconds) == ("device", pytest.approx(1.255e-3))
    assert timing.interval == pytest.approx((1.25e-3, 1.26e-3))
    assert timing.noisy is None
    assert timing.wall == timing.lanes.wall > 1.0


def test_a_gpu_whose_kernels_are_not_traced_has_no_lanes(gpu):
    plan = TimingPlan(runs=6, lane="device")
    clock = Machine()
    subject = Subject({"": clock.taking("a", 1.0)}, lambda: RowSeconds({}, launches=0))
    (found,) = take_turns([subject], "cuda", plan, clock.meters)
    assert timing_of(found, "cuda", None, None).lanes is None
    with pytest.raises(DeviceError, match="--lane device: torch's profiler saw no kernels on cuda"):
        timing_of(found, "cuda", None, None, plan)


@pytest.mark.parametrize("options", [{"lane": "host"}, {"lane": "device"}, {"cuda_graph": True}, {"composed": True}])
def test_only_a_gpu_has_lanes_and_graphs(options):
    assert timing_plan("cuda", options) == TimingPlan(**options)
    if "composed" not in options:
        with pytest.raises(UsageError, match="--device cpu has "):
            timing_plan("cpu", options)
    assert timing_plan("cpu", {"lane": "wall"}) == TimingPlan()


@pytest.mark.parametrize("mode", ["forward", "train"])
def test_on_mps_the_whole_is_timed_and_no_operation(mode, monkeypatch):
    monkeypatch.setattr(torch.mps, "synchronize", lambda: None)
    monkeypatch.setattr(turns, "machine", lambda device: "Apple M1")
    monkeypatch.setattr(systems, "build", lambda architecture, device="meta": build(architecture, device=at(device)))

    def at(device):
        return device.replace("mps", "cpu")

    architecture = place(load("vit-ti32", ["stages.0.depth=1"]), Run(mode=mode))
    plan = TimingPlan(runs=2)
    (ledger,) = in_turns(
        [SystemOnDevice(TimedSystem(architecture, count(architecture)), "mps", plan)], "mps", plan, print, turns.REAL
    )
    assert ledger.timing.seconds > 0
    assert [row.path for row in ledger.rows if row.seconds is not None] == []
    assert (ledger.timing.lanes, ledger.timing.not_attributed, ledger.timing.update_seconds) == (None, None, None)
    assert not beside_rows(ledger)
    text = document(ledger).text("table")
    assert "of time" not in text
    assert "operations: not measured on mps" in text
    with pytest.raises(UsageError, match="operations have no seconds of their own on mps; time it on cpu or cuda"):
        under_roofs([ledger], [], Run(mode=mode), AccountOptions(device="mps"))


@pytest.mark.parametrize(
    ("cuda", "hip", "library", "tool"),
    [("12.8", None, "CUDA 12.8", "nvidia-smi"), (None, "6.4.43482", "ROCm 6.4.43482", "rocm-smi")],
)
def test_gpus_are_named_with_the_library_of_torch(cuda, hip, library, tool, monkeypatch):
    for owner, name, value in (
        (torch.version, "cuda", cuda), (torch.version, "hip", hip),
        (torch.cuda, "is_available", lambda: True), (torch.cuda, "device_count", lambda: 1),
        (torch.cuda, "get_device_name", lambda device: "A GPU"),
        (torch.cuda, "mem_get_info", lambda device: (0, 64 * 2**30)),
    ):  # fmt: skip
        monkeypatch.setattr(owner, name, value)
    assert accelerators() == (["A GPU, 64 GiB"], f"torch was built for {library}")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert accelerators() == ([], f"torch was built for {library}, and no driver answers {tool}")


@pytest.mark.parametrize(
    ("graph", "text"),
    [
        (CudaGraph(seconds=1.7e-3), "a CUDA graph takes 1.70 ms"),
        (CudaGraph(not_captured="a value was read"), "no CUDA graph: a value was read"),
    ],
)
def test_a_cuda_graph_is_named_with_the_longer_lane(gpu, graph, text):
    plan = TimingPlan(runs=6)
    found = taking_turns(Machine(), plan)._replace(cuda_graph=graph)
    timing = timing_of(found, "cuda", None, None, plan)
    (lanes,) = [one for one in told(with_seconds(small(), {}, None, timing)) if one.startswith("host-bound")]
    assert lanes.endswith(f"; {text}")


class FakeGraphs:
    """torch.cuda as `replayed` uses it: what it does is a list, and every replay takes 2 ms of its clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        self.now = 0.0
        fake = self

        class Stream:
            def wait_stream(self, other: object) -> None:
                fake.done.append("wait")

        class Graph:
            def replay(self) -> None:
                fake.done.append("replay")
                fake.now += 2.0

        class Event:
            def __init__(self, *, enable_timing: bool) -> None:
                assert enable_timing

            def record(self) -> None:
                self.at = fake.now

            def synchronize(self) -> None:
                fake.done.append("synchronize")

            def elapsed_time(self, end):
                return end.at - self.at

        @contextmanager
        def inside(name):
            fake.done.append(f"{name} begins")
            yield
            fake.done.append(f"{name} ends")

        for name, value in {
            "Stream": Stream, "CUDAGraph": Graph, "Event": Event, "current_stream": Stream,
            "device": inside, "stream": lambda stream: inside("side stream"),
            "graph": lambda graph: inside("capture"),
        }.items():  # fmt: skip
            monkeypatch.setattr(torch.cuda, name, value)


def test_a_graph_is_captured_after_warm_up_and_its_replays_are_timed(monkeypatch):
    fake = FakeGraphs(monkeypatch)
    found = replayed([lambda: fake.done.append("call")], "cuda:1")
    assert found == CudaGraph(seconds=0.002)
    warm_up = ["cuda:1 begins", "wait", "side stream begins", "call", "call", "call", "side stream ends", "wait"]
    capture = ["capture begins", "call", "capture ends", "replay"]
    assert fake.done == [*warm_up, *capture, *["replay", "synchronize"] * 20, "cuda:1 ends"]


def test_what_cannot_be_captured_says_why(monkeypatch):
    fake = FakeGraphs(monkeypatch)

    def call():
        if fake.done[-1] == "capture begins":
            raise RuntimeError("operation not permitted when stream is capturing\nmore")

    assert replayed([call], "cuda") == CudaGraph(not_captured="operation not permitted when stream is capturing")
