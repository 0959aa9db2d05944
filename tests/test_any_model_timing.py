"""Any module timed on a device, alone and in turns with specs and other modules."""

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import xfcost
from any_models import TOKENS, Model, two_blocks
from helpers import report_text, stdout_of, table_of, xf
from modules import Call, Module
from repositories import spec as spec_of
from xfcost.api.runs import make_run
from xfcost.counting.system import AccountOptions
from xfcost.ledger.errors import DeviceError, UsageError
from xfcost.ledger.json_objects import grouped
from xfcost.ledger.timing_plan import TimingPlan
from xfcost.parts.training.result import RunPlan
from xfcost.spec.load import load
from xfcost.spec.run import Run
from xfcost.systems.module import ModuleSystem
from xfcost.systems.spec import SpecSystem
from xfcost.torch_models.any_model.ledger import ModuleOnDevice, module_ledger
from xfcost.torch_models.any_model.targets import GivenModule
from xfcost.torch_models.memory import peak
from xfcost.torch_models.memory.shortage import Limit
from xfcost.torch_models.timing import systems as turns
from xfcost.torch_models.timing.devices import read_system
from xfcost.torch_models.timing.systems import SystemOnDevice
from xfcost.torch_models.timing.turns import Meters

# Any module timed on a device, with an injected clock: seconds of operations, of modules, of the rest ─────────────────


def ticking() -> Meters:
    """A clock that goes on by a second each time it is read, and a machine without load."""
    ticks = count()
    return Meters(lambda: float(next(ticks)), read_system)


def timed(model: nn.Module, *inputs, **more):
    how = {"device": "cpu", "timing": TimingPlan(runs=3), "meters": ticking()}
    return module_ledger(model, inputs, trace=False, **how, **more)


def twice_turned(self: Any, x: Tensor) -> Tensor:
    """A map that runs twice, a copy, and a view."""
    return self.map(self.map(x).clone()).mT


def test_every_operation_takes_its_ticks():
    ledger = timed(Module(twice_turned, map=nn.Linear(4, 4)), torch.ones(3, 4))
    # a clock is read before and after each kernel: a second each
    assert {row.path: (row.seconds, row.figure("calls")) for row in ledger.rows} == {
        "map.addmm": (2.0, 2), "clone": (1.0, 1)
    }  # fmt: skip
    assert ledger.timing.not_attributed == ledger.timing.seconds - 3


def test_repeated_blocks_share_their_seconds():
    ledger = timed(Model().eval(), TOKENS)
    rows = {row.path: row for row in ledger.rows}
    assert (rows["blocks.*.qkv.mm"].times, rows["blocks.*.qkv.mm"].seconds) == (4, 1.0)
    assert ledger.total("seconds") == sum(row.seconds * row.times for row in ledger.rows if row.seconds is not None)


def test_blocks_that_left_an_operation_out_took_no_time_for_it():
    def rectified(self: Any, x: Tensor) -> Tensor:
        """Rectifies where a switch says so: off in one block when it is timed."""
        return self.map(x).relu() if self.on or x.is_meta else self.map(x)

    blocks = nn.Sequential(*(Module(rectified, map=nn.Linear(4, 4), on=True) for _ in range(4)))
    blocks[1].on = False
    rows = {row.path: row for row in timed(blocks, torch.ones(3, 4)).rows}
    assert (rows["*.relu"].times, rows["*.relu"].seconds) == (4, 3 / 4)
    assert (rows["*.map.addmm"].times, rows["*.map.addmm"].seconds) == (4, 1.0)


def test_the_tree_of_modules_has_seconds():
    tree = {group["module"]: group for group in grouped(timed(Model().eval(), TOKENS), "module", 1)}
    # 4 blocks of 5 operations; a table, 4 sums, a head
    assert (tree["blocks"]["seconds"], tree["table"]["seconds"], tree[""]["seconds"]) == (20.0, 1.0, 26.0)
    assert "not attributed" in tree


@pytest.mark.parametrize(("form", "line"), [("markdown", "| Model "), ("latex", "Model & ")])
def test_the_whole_has_a_name_in_a_paper_s_tree_of_modules(form, line):
    ledger = timed(Model().eval(), TOKENS)
    text = report_text(ledger, form, "module", depth=1)
    assert sum(row.startswith(line) for row in text.splitlines()) == 1
    rows = table_of(report_text(ledger, "csv", "module", depth=1))
    assert rows[0]["module"] == ""


def test_functions_that_count_as_one():
    ledger = timed(nn.LSTM(4, 4), torch.ones(3, 2, 4))
    # and the two states of zeros that it begins with
    assert [row.path for row in ledger.rows if row.seconds] == ["zeros", "zeros_2", "lstm"]


def test_another_kernel_for_the_same_call_is_that_call_s():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    rows = timed(layer, torch.ones(1, 5, 8)).rows
    assert all(row.seconds for row in rows if row.macs)


def test_a_cache_among_the_inputs_does_not_grow_from_call_to_call():
    class Cache:
        def __init__(self):
            self.keys = torch.ones(2, 4)

    def reads(x: Tensor, cache: Cache) -> Tensor:
        cache.keys = torch.cat([cache.keys, x])
        assert len(cache.keys) == 3
        return cache.keys @ x.mT

    cache = Cache()
    assert timed(Call(reads), torch.ones(1, 4), cache).timing.runs == 3
    assert len(cache.keys) == 2


def test_weights_on_meta_are_random_and_that_is_said():
    ledger = timed(nn.Linear(4, 4, device="meta"), torch.ones(3, 4))
    assert "timed with random weights" in report_text(ledger)
    assert ledger.timing.runs == 3


def test_a_compiled_module_is_timed_uncompiled_and_that_is_said():
    module = nn.Linear(4, 4)
    module.compile()
    assert "timed without torch.compile" in report_text(timed(module, torch.ones(3, 4)))


def test_the_peak_is_predicted_and_refused_where_it_does_not_fit(monkeypatch):
    ledger = timed(nn.Linear(4, 4, bias=False), torch.ones(3, 4))
    # weights, input, output: 16 + 12 + 12 numbers of 4 bytes
    assert (ledger.timing.predicted_peak_bytes, ledger.timing.peak_bytes) == (160, 160)
    monkeypatch.setattr(peak, "limit_on", lambda device: Limit(50, "a small limit"))
    # 96 bytes beside the weights, half of them again, 64 MiB
    with pytest.raises(DeviceError, match=r"67,109,008 bytes .* 50 bytes"):
        timed(nn.Linear(4, 4, bias=False), torch.ones(3, 4))


def test_a_module_that_runs_on_meta_and_not_there():
    def big(x: Tensor) -> Tensor:
        if not x.is_meta:
            raise ValueError("not here")
        return x @ x.mT

    with pytest.raises(UsageError, match="ValueError: not here"):
        timed(Call(big), torch.ones(3, 4))


def test_timing_the_command():
    words = ("torch.nn:Linear", "--build", "in_features=4", "--build", "out_features=6", "--input", "3x4")
    text = stdout_of("analyze", *words, "--device", "cpu", "--runs", "3", "--by", "module", "--format", "csv")
    rows = table_of(text)
    assert [row["module"] for row in rows] == ["", "not attributed"]
    assert float(rows[0]["seconds"]) > 0


def test_a_step_of_training_with_its_update():
    model = nn.Linear(4, 4, bias=False)
    before = model.weight.detach().clone()
    ledger = timed(model, torch.ones(3, 4), plan=RunPlan(optimizer="sgd"))
    # the product, and one for the weight's gradient; views and the transposition of the gradient take no kernel
    assert {row.path: row.seconds for row in ledger.rows} == {"mm": 2.0}
    assert ledger.timing.update_seconds == 1.0
    assert ledger.timing.not_attributed == ledger.timing.seconds - 3
    assert torch.equal(model.weight, before)
    # weight, its gradient, input, and two more of the weights' size while it is made
    assert ledger.timing.predicted_peak_bytes == ledger.timing.peak_bytes


# Torch modules timed in turns with specs and with each other: `compare --device` ──────────────────────────────────────

PLAN = TimingPlan(runs=3, threads=1)


class Twice(nn.Module):
    """A map that runs twice, and a copy."""

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.map(self.map(x).clone())


def module(model: nn.Module, meters: Meters, plan: TimingPlan = PLAN) -> ModuleOnDevice:
    system = ModuleSystem(GivenModule(model, torch.ones(1, 16, 8)), meters=meters)
    return system.on_device(Run(), AccountOptions(device="cpu", timing=plan))


@pytest.fixture
def toy(tmp_path: Path) -> str:
    (tmp_path / "toy.yaml").write_text(spec_of("Toy", depth=1))
    return str(tmp_path / "toy.yaml")


def spec(toy: str, meters: Meters) -> SystemOnDevice:
    loaded = load(toy)
    ready = SpecSystem(loaded).ready(Run(), AccountOptions(orders=False), "cpu")
    return SystemOnDevice(ready, "cpu", PLAN, meters)


def test_a_module_takes_turns_with_a_spec(toy: str) -> None:
    meters, model = ticking(), Twice()
    weight = model.map.weight
    said: list[str] = []
    both = [spec(toy, meters), module(model, meters)]
    ledgers = turns.in_turns(both, "cpu", PLAN, said.append, meters)
    assert [ledger.metadata.name for ledger in ledgers] == ["Toy", "Twice"]
    for ledger in ledgers:
        assert ledger.timing is not None
        assert (ledger.timing.in_turns, len(ledger.timing.times), ledger.timing.threads) == (True, 3, 1)
    # a clock is read before and after each kernel: a second each
    assert {row.path: row.seconds for row in ledgers[1].rows if row.seconds} == {"map.addmm": 2.0, "clone": 1.0}
    assert ledgers[1].timing is not None
    # weights and biases, the input, and one more of its size at least
    assert (ledgers[1].timing.peak_bytes or 0) >= 4 * (8 * 8 + 8 + 2 * 16 * 8)
    assert model.map.weight is weight


def test_steps_of_training_take_turns(toy: str) -> None:
    meters, model = ticking(), Twice()
    weight = model.map.weight.detach().clone()
    run = make_run(mode="train", optimizer="sgd")
    ready = SpecSystem(load(toy)).ready(run, AccountOptions(orders=False), "cpu")
    system = ModuleSystem(GivenModule(model, torch.ones(1, 16, 8)), meters=meters)
    how = AccountOptions(device="cpu", timing=PLAN)
    both = [SystemOnDevice(ready, "cpu", PLAN, meters), system.on_device(run, how)]
    ledgers = turns.in_turns(both, "cpu", PLAN, lambda text: None, meters)
    for ledger in ledgers:
        assert ledger.timing is not None
        assert ledger.timing.in_turns
        assert ledger.timing.update_seconds == 1.0
        assert ledger.training is not None
    # of the map two products forward; backward two for the weight and one for the first map's output; two biases
    assert ledgers[1].total("backward_macs") == 3 * 16 * 8 * 8
    assert torch.equal(model.map.weight, weight)
    assert model.map.weight.grad is None


def test_a_step_of_training_is_compared_without_a_device(toy: str) -> None:
    pair = (Twice(), torch.ones(1, 16, 8))
    found = xfcost.compare(toy, pair, mode="train", optimizer="sgd")
    own = xfcost.analyze(pair[0], example_inputs=pair[1], mode="train", optimizer="sgd", trace=False)
    assert own.training is not None
    assert found.figures["Twice"]["step_flops"] == own.training.step.model_flops
    assert found.figures["Twice"]["macs"] == 2 * 16 * 8 * 8


def test_modules_that_do_not_fit_together_are_timed_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    meters, said = ticking(), []
    both = [module(Twice(), meters), module(Twice(), meters)]
    limit = Limit(max(one.needed for one in both), "the test")
    monkeypatch.setattr(turns, "limit_on", lambda device: limit)
    ledgers = turns.in_turns(both, "cpu", PLAN, said.append, meters)
    assert [ledger.timing.in_turns for ledger in ledgers if ledger.timing] == [False, False]


def test_a_module_that_does_not_fit_is_told_what_helps_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peak, "limit_on", lambda device: Limit(50, "the test"))
    meters = ticking()
    with pytest.raises(DeviceError, match="the test leaves 50 bytes"):
        turns.in_turns([module(Twice(), meters)], "cpu", PLAN, lambda text: None, meters)


def test_one_module_with_two_inputs_is_two_systems() -> None:
    model = nn.Linear(8, 8)
    pairs = [(model, torch.ones(1, 4, 8)), (model, torch.ones(1, 64, 8))]
    found = xfcost.compare(*pairs, device="cpu", runs=6, threads=1)
    assert list(found.time_ratios) == ["Linear #2"]
    assert found.time_ratios["Linear #2"].in_turns
    assert [ledger.total("macs") for ledger in found.ledgers] == [256, 4096]


def test_in_turns_the_command(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(
        "from torch import nn\n\ndef Net(): return nn.Sequential(nn.Linear(8, 8), nn.Softmax(-1))\n"
    )
    (tmp_path / "full.yaml").write_text(two_blocks("Full", {"kind": "full", "heads": 2}))
    words = ["compare", "full.yaml", "model.py:Net", "--N", "16", "--input", "1xNx8", "--device", "cpu", "--runs", "6"]
    text = stdout_of(*words, "--threads", "1", "--format", "json", cwd=tmp_path)
    found = json.loads(text)
    assert [one["timing"]["in_turns"] for one in found["systems"]] == [True, True]
    assert found["time_ratios"]["Net"]["in_turns"] is True
    assert found["figures"]["Net"]["seconds_local"] == 0
    assert found["figures"]["Net"]["seconds_per-token"] > 0
    rows = table_of(xf(*words, "--format", "csv", cwd=tmp_path).stdout)
    assert [row["system"] for row in rows] == ["Full", "Net"]
    assert rows[1]["seconds_ratio"]
    assert "seconds_unknown" not in rows[0]
