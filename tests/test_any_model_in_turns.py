"""Torch modules timed in turns with specs and with each other: `compare --device`."""

from __future__ import annotations

import csv
import io
import json
from itertools import count
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import xfcost
from any_models import two_blocks
from helpers import xf
from xfcost.api.runs import make_run
from xfcost.api.specs import AccountOptions, ready_to_time
from xfcost.ledger.errors import DeviceError, UsageError
from xfcost.ledger.timing_plan import TimingPlan
from xfcost.spec.load import load
from xfcost.spec.run import Run
from xfcost.torch_models.any_model.ledger import How, ModuleOnDevice
from xfcost.torch_models.any_model.system import ModuleSystem
from xfcost.torch_models.any_model.targets import GivenModule
from xfcost.torch_models.memory import peak
from xfcost.torch_models.memory.shortage import Limit
from xfcost.torch_models.timing import systems as turns
from xfcost.torch_models.timing.devices import read_system
from xfcost.torch_models.timing.systems import SystemOnDevice
from xfcost.torch_models.timing.turns import Meters

PLAN = TimingPlan(runs=3, threads=1)
SPEC = """
name: Toy
input: {kind: vectors, length: 16, channels: 8}
stages:
  - {dim: 8, depth: 1, pattern: [[{kind: full, heads: 2}, {kind: mlp, ratio: 2}]]}
"""


class Twice(nn.Module):
    """A map that runs twice, and a copy."""

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.map(self.map(x).clone())


def ticking() -> Meters:
    """A clock that goes on by a second each time it is read."""
    ticks = count()
    return Meters(lambda: float(next(ticks)), read_system)


def module(model: nn.Module, meters: Meters, plan: TimingPlan = PLAN) -> ModuleOnDevice:
    system = ModuleSystem(GivenModule(model, torch.ones(1, 16, 8)))
    return system.on_device(Run(), How(trace=False, device="cpu", timing=plan, meters=meters))


def spec(folder: Path, meters: Meters) -> SystemOnDevice:
    (folder / "toy.yaml").write_text(SPEC)
    loaded = load(str(folder / "toy.yaml"))
    ready = ready_to_time(loaded, Run(), "cpu", AccountOptions(orders=False))
    return SystemOnDevice(ready, "cpu", PLAN, meters)


def test_a_module_takes_turns_with_a_spec(tmp_path: Path) -> None:
    meters, model = ticking(), Twice()
    weight = model.map.weight
    said: list[str] = []
    both = [spec(tmp_path, meters), module(model, meters)]
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
    assert said[-1] == "timing Toy and Twice on cpu in turns …"
    assert model.map.weight is weight


def test_steps_of_training_take_turns(tmp_path: Path) -> None:
    meters, model = ticking(), Twice()
    weight = model.map.weight.detach().clone()
    (tmp_path / "toy.yaml").write_text(SPEC)
    run = make_run(mode="train", optimizer="sgd")
    loaded = load(str(tmp_path / "toy.yaml"))
    ready = ready_to_time(loaded, run, "cpu", AccountOptions(orders=False))
    system = ModuleSystem(GivenModule(model, torch.ones(1, 16, 8)))
    how = How(trace=False, plan=run.plan, device="cpu", timing=PLAN)
    both = [SystemOnDevice(ready, "cpu", PLAN, meters), system.on_device(run, how._replace(meters=meters))]
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


def test_a_step_of_training_is_compared_without_a_device(tmp_path: Path) -> None:
    (tmp_path / "toy.yaml").write_text(SPEC)
    pair = (Twice(), torch.ones(1, 16, 8))
    found = xfcost.compare(str(tmp_path / "toy.yaml"), pair, mode="train", optimizer="sgd")
    own = xfcost.analyze(pair[0], example_inputs=pair[1], mode="train", optimizer="sgd", trace=False)
    assert own.training is not None
    assert found.figures["Twice"]["step_flops"] == own.training.step.model_flops
    assert found.figures["Twice"]["macs"] == 2 * 16 * 8 * 8
    with pytest.raises(UsageError, match="--tokens 1000: Twice is a torch module"):
        xfcost.compare(str(tmp_path / "toy.yaml"), pair, mode="train", tokens=1000)


def test_modules_that_do_not_fit_together_are_timed_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    meters, said = ticking(), []
    both = [module(Twice(), meters), module(Twice(), meters)]
    limit = Limit(max(one.needed for one in both), "the test")
    monkeypatch.setattr(turns, "limit_on", lambda device: limit)
    ledgers = turns.in_turns(both, "cpu", PLAN, said.append, meters)
    assert [ledger.timing.in_turns for ledger in ledgers if ledger.timing] == [False, False]
    assert "one after the other, not in turns" in said[0]


def test_a_module_that_does_not_fit_is_told_what_helps_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peak, "limit_on", lambda device: Limit(50, "the test"))
    meters = ticking()
    with pytest.raises(DeviceError, match=r"the test leaves 50 bytes .*; take smaller inputs, or leave --device out"):
        turns.in_turns([module(Twice(), meters)], "cpu", PLAN, lambda text: None, meters)


def test_one_module_with_two_inputs_is_two_systems() -> None:
    model = nn.Linear(8, 8)
    pairs = [(model, torch.ones(1, 4, 8)), (model, torch.ones(1, 64, 8))]
    found = xfcost.compare(*pairs, device="cpu", runs=6, threads=1)
    assert list(found.time_ratios) == ["Linear #2"]
    assert found.time_ratios["Linear #2"].in_turns
    assert [ledger.total("macs") for ledger in found.ledgers] == [256, 4096]


@pytest.mark.parametrize("option", ["compile", "composed"])
def test_what_is_of_specs_is_refused(option: str) -> None:
    with pytest.raises(UsageError, match=rf"--{option}: Twice is a torch module, which is timed as it is counted"):
        module(Twice(), ticking(), PLAN._replace(**{option: True}))
    with pytest.raises(UsageError, match=rf"--{option}: Linear is a torch module"):
        xfcost.analyze(nn.Linear(8, 8), example_inputs=torch.ones(1, 8), device="cpu", **{option: True})


CODE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.map = nn.Linear(8, 8)

    def forward(self, x):
        return self.map(x).softmax(-1)
"""


def test_the_command(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(CODE)
    (tmp_path / "full.yaml").write_text(two_blocks("Full", {"kind": "full", "heads": 2}))
    words = ["compare", "full.yaml", "model.py:Net", "--N", "16", "--input", "1xNx8", "--device", "cpu", "--runs", "6"]
    done = xf(*words, "--threads", "1", "--format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [one["timing"]["in_turns"] for one in found["systems"]] == [True, True]
    assert found["time_ratios"]["Net"]["in_turns"] is True
    assert found["figures"]["Net"]["seconds_local"] == 0
    assert found["figures"]["Net"]["seconds_per-token"] > 0
    rows = list(csv.DictReader(io.StringIO(xf(*words, "--format", "csv", cwd=tmp_path).stdout)))
    assert [row["system"] for row in rows] == ["Full", "Net"]
    assert rows[1]["seconds_ratio"]
    assert "seconds_unknown" not in rows[0]
