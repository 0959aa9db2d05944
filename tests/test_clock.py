"""Timing and memory: exact where a clock is handed in, consistent where a real model runs."""

import json

import pytest
import torch
from torch import nn

from helpers import xf
from xfcost.counting.forward import count
from xfcost.ledger.errors import DeviceError
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.spec.run import Run
from xfcost.torch_models.build import BuiltModel, build
from xfcost.torch_models.memory.addressable import check_addressable
from xfcost.torch_models.memory.peak import check_room, peak_bytes
from xfcost.torch_models.timing.clock import check_device, time_model, time_rows


class Ticks:
    """A clock that goes on by one second at every look."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1.0
        return self.now


def test_rows_are_timed_by_hooks_with_the_clock_given():
    live = build(place(load("vit-ti32"), Run()), "cpu")
    seconds = time_rows(live, "cpu", clock=Ticks())
    # Every leaf looks at the clock before and after: one tick, so one second, per row and block.
    assert set(seconds.values()) == {1.0}
    assert "stages.0.block.0.scores" in seconds
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in live.model.modules())


def test_hooks_are_removed_when_the_model_fails():
    live = build(place(load("vit-ti32"), Run()), "cpu")
    broken = live._replace(inputs=(torch.zeros(1, 3, 7, 7),))
    with pytest.raises(RuntimeError):
        time_rows(broken, "cpu")
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in live.model.modules())


def test_peak_bytes_of_a_chain_is_parameters_and_two_neighbours():
    # Linear(4, 8) without bias on (2, 4): weights 32, input 8, output 16 floats; then ReLU makes another 16.
    # Alive at the peak: 32 + 8 + 16 + 16 = 72 floats = 288 bytes.
    model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.ReLU())
    assert peak_bytes(model, (torch.zeros(2, 4),)) == 288


def test_peak_bytes_on_meta_are_those_of_the_cpu():
    # RegNetY has batch norms, whose running statistics are all that a forward needs
    for spec, tokens in (("vit-ti32", 49), ("swin-t", 49), ("regnety-200mf", 1024)):
        architecture = place(load(spec), Run(tokens=(tokens,)))
        on_meta, on_cpu = (build(architecture, device) for device in ("meta", "cpu"))
        assert peak_bytes(on_meta.model, on_meta.inputs) == peak_bytes(on_cpu.model, on_cpu.inputs)


def test_fused_attention_is_predicted_without_its_matrix():
    # One head-row of log-sum-exps in place of 785² scores per head: fused fits where eager would not.
    eager, fused = (
        peak_bytes(live.model, live.inputs)
        for live in (build(place(load("vit-ti8"), Run(attention=how))) for how in ("eager", "fused"))
    )
    assert eager - fused >= 3 * 785 * 785 * 4


@pytest.mark.parametrize("spec", ["vit-ti32", "swin-t"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_peak_of_fused_attention_is_never_below_what_runs(spec, dtype):
    run = Run(tokens=(64,), batch=2, attention="fused", dtype=dtype)
    on_meta, on_cpu = (build(place(load(spec), run), device) for device in ("meta", "cpu"))
    predicted, measured = (peak_bytes(live.model, live.inputs) for live in (on_meta, on_cpu))
    assert measured <= predicted <= 1.05 * measured


def test_the_forward_is_timed_with_the_threads_that_are_reported():
    seen = []

    class Watching(nn.Module):
        def forward(self, x):
            seen.append(torch.get_num_threads())
            return x

    _, timing = time_model(BuiltModel(Watching(), (torch.zeros(1),), {}), "cpu", 0, lambda text: None)
    assert set(seen) == {timing.threads} == {torch.get_num_threads()}
    assert timing.runs >= 3


def test_peak_memory_of_full_attention_grows_with_the_square_and_of_windows_linearly():
    def peak(spec, tokens):
        live = build(place(load(spec, ["stages.0.depth=1"]), Run(tokens=(tokens,))))
        weights = sum(parameter.nbytes for parameter in live.model.parameters())
        return peak_bytes(live.model, live.inputs) - weights

    # 28² and 56² patches: four times the tokens.
    assert peak("vit-ti8", 56 * 56) / peak("vit-ti8", 28 * 28) == pytest.approx(16, rel=0.25)
    assert peak("swin-t", 112 * 112) / peak("swin-t", 56 * 56) == pytest.approx(4, rel=0.25)


def test_what_does_not_fit_is_refused():
    with pytest.raises(DeviceError, match=r"needs 1,125,899,906,842,624 bytes \(1 PiB\)"):
        check_room(2**50, "cpu", "Toy")
    check_room(1, "cpu", "Toy")


@pytest.mark.parametrize("device", ["tpu", "cpu:x", "cuda:99", ""])
def test_devices_that_are_not_there(device):
    with pytest.raises(DeviceError, match="this machine has cpu"):
        check_device(device)


def test_analyze_on_the_cpu_adds_seconds():
    done = xf("analyze", "vit-ti32", "--device", "cpu", "--format", "json")
    told = json.loads(done.stdout)
    timing = told["timing"]
    assert timing["device"] == "cpu"
    assert timing["seconds"] > 0
    assert timing["spread"] >= 0
    assert timing["runs"] >= 3
    # 6,131,560 parameters of 4 bytes are alive throughout.
    assert timing["peak_bytes"] >= 6_131_560 * 4
    scores = next(row for row in told["operations"] if row["operation"] == "scores")
    assert scores["seconds"] > 0
    assert "timing" in done.stderr


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_analyze_on_cuda():
    import xfcost

    ledger = xfcost.analyze("vit-ti32", device="cuda")
    assert ledger.timing.seconds > 0
    assert ledger.timing.peak_bytes >= 6_131_560 * 4


def test_what_torch_can_not_number_is_refused_before_it_is_built():
    # 65,536² tokens of one pixel: a score matrix of 4 heads has 4·2⁶⁴ entries.
    loaded = load("pixels-128", ["input.size=65536", "stages.0.depth=1"])
    ledger = count(place(loaded, Run()))
    with pytest.raises(DeviceError, match="--no-trace counts it"):
        check_addressable(ledger)
    check_addressable(count(place(load("gpt3"), Run())))
