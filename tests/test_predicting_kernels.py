"""Predicted seconds on GPUs: kernels against 153 recorded configurations, two lanes, an RMSNorm as CUDA fuses it."""

import statistics
import sys
from pathlib import Path

import pytest

import xfcost
from calibrated import layout
from helpers import PLAIN, stdout_of
from xfcost.ledger.calibration import Baseline, DeviceCache, shipped_calibration, shipped_devices
from xfcost.ledger.errors import UsageError
from xfcost.torch_models.predicting.regression import CallFeatures, as_kernels, baseline_seconds, kernel_features
from xfcost.torch_models.running.prediction_calls import LayoutCall

sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))
import fit_kernels


def within(predicted, runs):
    """The median of the errors, and the share of them within 15 %."""
    errors = [abs(seconds / run.kernels - 1) for seconds, run in zip(predicted, runs, strict=True)]
    return statistics.median(errors), sum(error <= 0.15 for error in errors) / len(errors)


@pytest.fixture(scope="module")
def h100():
    return fit_kernels.read_runs(0)


@pytest.mark.rest
def test_the_other_half_of_the_configurations(h100):
    pairs = [(h100[::2], h100[1::2]), (h100[1::2], h100[::2])]
    predicted = [fit_kernels.kernel_seconds(known, asked, 0, 0) for known, asked in pairs]
    median, near = within([*predicted[0], *predicted[1]], [*h100[1::2], *h100[::2]])
    assert median <= 0.06
    assert near >= 0.80


@pytest.mark.rest
def test_presets_that_were_not_recorded(h100):
    predicted, truth = [], []
    for known, asked in fit_kernels.without_presets(h100):
        predicted += fit_kernels.kernel_seconds(known, asked, 0, 0)
        truth += asked
    assert len(truth) == 153
    median, near = within(predicted, truth)
    assert median <= 0.06
    assert near >= 0.80


@pytest.mark.rest
def test_another_device_by_its_peaks(h100):
    runs = fit_kernels.read_runs(1)
    median, near = within(fit_kernels.kernel_seconds(h100, runs, 0, 1), runs)
    assert median <= 0.06
    assert near >= 0.80


@pytest.mark.rest
@pytest.mark.parametrize(("device", "name"), list(enumerate(fit_kernels.DEVICES)))
def test_shipped_calls_are_those_of_the_recording(device, name):
    runs = fit_kernels.read_runs(device)
    for dtype in ("float32", "bfloat16"):
        shipped, expected = shipped_calibration(name, dtype), fit_kernels.samples(runs, device, dtype)
        assert sum(len(one.ratios) for one in shipped.samples) == sum(len(one.ratios) for one in expected)
        assert {one.operation for one in shipped.samples} == {one.operation for one in expected}


# ViT-S/16, batch 8, fused attention, float32 on the H100: 3.372 ms of kernels in a call of 7.11 ms were recorded.
def test_a_gpu_that_is_not_here_is_predicted_in_two_lanes():
    found = xfcost.analyze("vit-s16", batch=8, attention="fused", predict=True, on="h100-sxm")
    prediction = found.prediction
    assert prediction.lanes.kernels == pytest.approx(3.372e-3, rel=0.03)
    assert prediction.seconds == prediction.lanes.host > prediction.lanes.kernels
    assert prediction.low < 7.11e-3 < prediction.high
    assert prediction.torch == "2.11, CUDA 13.0"
    rows = sum((row.predicted_seconds or 0) * row.times for row in found.rows)
    assert rows + prediction.not_attributed == pytest.approx(prediction.lanes.kernels)


# The launches of two images are those of 128, which take the GPU longer than the host.
def test_the_longer_lane_is_the_prediction():
    few, many = (xfcost.analyze("vit-s16", batch=batch, predict=True, on="h200-sxm").prediction for batch in (2, 128))
    assert few.lanes.host == many.lanes.host == few.seconds
    assert many.seconds == many.lanes.kernels > many.lanes.host


def test_the_report_names_the_lanes_and_the_recording():
    text = stdout_of("analyze", "vit-ti32", "--predict", "--on", "h100-sxm", **PLAIN)
    assert "host-bound" in text
    assert "calls recorded 2026-11-23 on NVIDIA H100 80GB HBM3, torch 2.11, CUDA 13.0" in " ".join(text.split())


def test_compare_names_the_lanes_of_each_system():
    text = stdout_of("compare", "vit-ti32", "vit-l16", "--batch", "16", "--predict", "--on", "h100-sxm", **PLAIN)
    bounds = [(row.split()[0], row.split()[-1]) for row in text.splitlines() if "  kernels " in row]
    assert bounds == [("ViT-Ti/32", "host-bound"), ("ViT-L/16", "device-bound")]  # 200 times FLOPs, twice the blocks


def test_a_dtype_that_was_not_recorded_is_refused():
    assert shipped_devices() == ("h100-sxm", "h200-sxm")
    with pytest.raises(UsageError, match="recorded in bfloat16 and float32, not in float16"):
        xfcost.analyze("vit-ti32", dtype="float16", predict=True, on="h100-sxm")


# Two multiprocessors, 1e9 MACs/s, 1 µs per kernel. (65, 10) by (10, 64) is 2 tiles of 64 x 64, one wave:
# 64 * 64 * (10 + 64) * 2 / 1e9 = 606.2 µs. A row of tiles more makes 3, two waves.
# 3000 bytes, 1000 of them held at 2e9 bytes/s: 3000 / 2e9 + 2000 / 1e9 = 3.5 µs.
def test_the_baseline_of_a_gpu():
    cache = DeviceCache(held_bytes=1000.0, bytes_per_second=2e9)
    baseline = Baseline(call_seconds=1e-6, macs_per_second=1e9, bytes_per_second=1e9, cache=cache, multiprocessors=2)
    one, more = (
        kernel_features(LayoutCall("aten.mm", (layout(rows, 10), layout(10, 64)), (layout(rows, 64),)))
        for rows in (65, 129)
    )
    assert baseline_seconds(baseline, one) == pytest.approx(1e-6 + 606.208e-6)
    assert baseline_seconds(baseline, more) == pytest.approx(1e-6 + 2 * 606.208e-6)
    assert baseline_seconds(baseline, CallFeatures("aten.exp", "", (), 0, 3000)) == pytest.approx(4.5e-6)


def test_an_rms_norm_is_one_kernel():
    x, line = layout(2, 3, 8), layout(2, 3, 1)
    parts = [
        LayoutCall("aten.pow", (x,), (x,)), LayoutCall("aten.mean", (x,), (line,)),
        LayoutCall("aten.add_", (line,), (line,)), LayoutCall("aten.rsqrt", (line,), (line,)),
        LayoutCall("aten.mul", (x, line), (x,)),
    ]  # fmt: skip
    found = as_kernels([*((("norm", part), 2) for part in parts), (("mlp", parts[-1]), 1)])
    assert dict(found) == {("norm", LayoutCall("aten._fused_rms_norm", (x,), (x,))): 2, ("mlp", parts[-1]): 1}
