"""Training steps predicted from a calibration: their calls, features and fits, exact on injected clocks."""

import json
import math
from collections import Counter

import msgspec
import pytest
import torch

import xfcost
from calibrated import BASELINE, MACHINE, Ticks, calibration, keep_calibration, layout, live, network, points, runs
from helpers import table_of, xf
from modules import Module
from xfcost.formulas.optimizers import OPTIMIZERS
from xfcost.ledger import calibration as files
from xfcost.ledger.achieved import UPDATE
from xfcost.ledger.calibration import Overhead, TrainingSteps
from xfcost.torch_models.memory.training_step import Stepping
from xfcost.torch_models.predicting.calibrate import NetworkRun, fitted
from xfcost.torch_models.predicting.operations import TRAINED, placed
from xfcost.torch_models.predicting.predict import OUTSIDE, Predictor, by_clock, recorded_step
from xfcost.torch_models.predicting.regression import features, samples_of
from xfcost.torch_models.running.prediction_calls import FLASH_ATTENTION, FUSED_ATTENTION, LayoutCall
from xfcost.torch_models.shared.experts import ExpertLinear

ONE = ("stages.0.depth=1",)
SMALL = (*ONE, "input.vocabulary=100")
NOTHING = Overhead(call=0.0, view=0.0, module=0.0)


def recorded_on(device, name, optimizer="adamw", settings=(), **options):
    built = live(name, device, settings, mode="train", dtype="float32", optimizer=optimizer, **options)
    return recorded_step(built, Stepping(built, optimizer, lists=False))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("vit-ti32", {"N": 49, "attention": "fused", "optimizer": "lion"}),
        ("gpt2", {"N": 8, "settings": SMALL, "attention": "fused", "optimizer": "adafactor"}),
        ("llama3.2-1b", {"N": 8, "settings": SMALL, "attention": "fused", "optimizer": "sgd"}),
        ("swin-t", {"N": 196, "attention": "fused", "optimizer": "momentum"}),
        ("resnet-18", {"N": 196, "optimizer": "momentum"}),
        ("common-lstm", {"N": 70, "settings": ONE, "batch": 2, "optimizer": "sgd"}),
        ("hyena-125m", {"N": 64, "settings": ONE, "optimizer": "sgd"}),
        ("t5-small", {"N": 8, "optimizer": "sgd"}),
    ],
)
def test_a_step_makes_on_meta_the_calls_of_the_cpu(name, options):
    # forward, backward and update: operations, layouts and numbers of calls, each in its row
    on_meta, on_cpu = (recorded_on(device, name, **options) for device in ("meta", "cpu"))
    assert on_meta.calls == on_cpu.calls
    assert on_meta.views == on_cpu.views
    assert on_meta.modules == on_cpu.modules


def test_tokens_are_spread_evenly_over_experts():
    found = []
    for device in ("meta", "cpu"):
        spread = Module(
            lambda self, x: self.experts(x, torch.tensor([2, 2, 3])), experts=ExpertLinear(3, 4, 5, bias=True)
        )
        built = live("vit-ti32", "meta")._replace(
            model=spread.to(device), inputs=(torch.ones(7, 4, device=device),), rows={"experts": "a"}
        )
        found.append(recorded_step(built, Stepping(built, "sgd", lists=False)))
    on_meta, on_cpu = found
    products = [call for row, call in on_meta.calls if row == "a" and call.operation == "aten.addmm"]
    assert sorted(call.inputs[1].sizes for call in products) == [(2, 4), (3, 4)]
    assert on_meta.calls == on_cpu.calls


def test_backward_calls_belong_to_the_row_that_made_their_nodes():
    found = recorded_on("meta", "vit-ti32", "sgd", N=49)
    products = Counter()
    for (row, call), times in found.calls.items():
        if call.operation in ("aten.mm", "aten.addmm"):
            products[row] += times
    # 12 blocks: a product forward, for the gradient of the input and for that of the weights
    assert products["stages.0.block.1.fc1"] == 36
    # the image has no gradient; its patches are cut by a convolution or a product
    assert products[OUTSIDE] == 0
    parameters = sum(1 for _ in live("vit-ti32", N=49).model.parameters())
    # sgd adds each gradient to its parameter
    assert sum(times for (row, call), times in found.calls.items() if row == UPDATE) == parameters
    # the two gradients of a residual stream are summed when the second, that of the branch, is there
    added = Counter({row: times for (row, call), times in found.calls.items() if call.operation == "aten.add"})
    assert added["stages.0.block.1.residual_norm"] == added["stages.0.block.0.residual_norm"] == 12


def test_states_of_the_optimizer_are_there_already():
    found = recorded_on("meta", "vit-ti32", "adamw", settings=ONE, N=49)
    update = Counter(call.operation for row, call in found.calls if row == UPDATE)
    assert update["aten.zeros_like"] == 0
    assert update["aten.addcdiv_"] > 0


def test_a_step_on_a_clock_times_forward_backward_and_update():
    built = live("vit-ti32", "cpu", ONE, N=49, mode="train")
    stepping, before = Stepping(built, "sgd", lists=False), []
    found = recorded_step(built, stepping, by_clock(Ticks(), 2, lambda: before.append(1)))
    # once where the calls are noted, twice where they are timed
    assert len(before) == 3
    assert {call for _, call in found.calls} == set(found.seconds)
    runs_of = dict.fromkeys(found.seconds, 0)
    for (_, call), times in found.calls.items():
        runs_of[call] += 2 * times
    assert {call: len(times) for call, times in found.seconds.items()} == runs_of
    assert all(spent == pytest.approx(1e-3) for times in found.seconds.values() for spent in times)


IMAGE, KERNELS, GRADIENT = layout(2, 32, 14, 14), layout(64, 32, 3, 3), layout(2, 64, 14, 14)


@pytest.mark.parametrize(("image", "weight", "products"), [(True, True, 2), (False, True, 1), (True, False, 1)])
def test_features_of_the_backward_pass_of_a_convolution(image, weight, products):
    options = ((1, 1), (1, 1), (1, 1), False, 1, (image, weight, True))
    call = LayoutCall("aten.convolution_backward", (GRADIENT, IMAGE, KERNELS), (IMAGE, KERNELS, layout(64)), options)
    found = features(call)
    # as many MACs as forward for each gradient that is needed: 2·64·14·14 outputs of 32·9 each
    assert found.macs == products * 2 * 64 * 14 * 14 * 32 * 9
    assert found.variant == f" c>c 2-D {'i' * image}{'w' * weight}"
    assert found.numbers == (6.0, 5.0, 0.0, math.log2(9), math.log2(14 * 14 * 2), 0.0, 0.0)


def test_features_of_fused_attention_and_of_its_backward_pass():
    q, k, v = layout(1, 3, 50, 64), layout(1, 3, 20, 64), layout(1, 3, 20, 64)
    forward = features(LayoutCall(FLASH_ATTENTION, (q, k, v), (q, layout(1, 3, 50)), (True,)))
    assert (forward.operation, forward.variant) == (FUSED_ATTENTION, "causal")
    assert forward.macs == 3 * 50 * 20 * (64 + 64)
    inputs = (q, q, k, v, q, layout(1, 3, 50))
    backward = features(LayoutCall(f"{FLASH_ATTENTION}_backward", inputs, (q, k, v), (False,)))
    # five products: scores, and the gradients of values, weights, queries and keys
    assert backward.macs == 3 * 50 * 20 * 5 * 64
    assert backward.variant == ""
    masked = features(LayoutCall(f"{FLASH_ATTENTION}_backward", (*inputs, layout(50, 20)), (q, k, v), (False,)))
    assert masked.variant == "masked"


def trained(**changes):
    """A calibration of which steps take three times the baseline, and one network was half as long as predicted."""
    kinds = samples_of(BASELINE, points(lambda _: 3.0))
    steps = TrainingSteps(overhead=NOTHING, networks=(network(0.5, 1.0),), samples=kinds)
    return calibration(training=msgspec.structs.replace(steps, **changes))


def test_a_step_has_its_own_interval_and_overhead():
    overhead = Overhead(call=0.0, view=0.0, module=1.0)
    built = live("vit-ti32", mode="train", N=49, settings=ONE)
    predictor = Predictor(trained(overhead=overhead))
    forward, step = predictor.seconds(lambda: built), predictor.step_seconds(lambda: built, "sgd")
    modules = sum(1 for _ in built.model.modules() if _.__class__)
    assert forward.whole < 1.0 < step.whole
    assert step.whole == pytest.approx(modules, abs=modules / 2)
    assert 0 < step.update < step.whole
    interval = predictor.prediction(step._replace(unknown={}))
    assert (interval.low, interval.high) == (pytest.approx(0.5 * step.whole), pytest.approx(2 * step.whole))
    assert predictor.prediction(forward).update_seconds is None


def test_calibrated_steps_are_predicted_from_the_other_steps_and_from_forwards():
    overhead, apart = Overhead(call=2e-6, view=1e-6, module=5e-6), Overhead(call=9e-6, view=4e-6, module=8e-6)
    alone, forwards = NetworkRun("operations", {}, {}, 0, 0, 0.0), runs(overhead)
    found = fitted(MACHINE, BASELINE, forwards, alone, runs(apart))
    without = fitted(MACHINE, BASELINE, forwards, alone)
    assert without.training is None
    # what steps take changes nothing of forwards
    assert (found.samples, found.networks, found.overhead) == (without.samples, without.networks, without.overhead)
    assert found.training.overhead.module == pytest.approx(8e-6, rel=1e-6)
    for one in found.training.networks:
        assert one.predicted == pytest.approx(one.seconds, rel=1e-3)


def test_every_optimizer_is_calibrated():
    assert {one.optimizer for one in TRAINED} == set(OPTIMIZERS)
    names = [name for name, _, _ in placed(TRAINED, "float32")]
    assert len(set(names)) == len(names) == len(TRAINED)


@pytest.fixture
def calibrated_steps(tmp_path, monkeypatch):
    """This machine's calibration, with training steps."""
    return keep_calibration(tmp_path, monkeypatch, training=trained().training)


TRAIN = ("--mode", "train", "--N", "49", "--predict", "--threads", "1", "--dtype", "float32")


def test_a_step_is_predicted_in_every_form(calibrated_steps):
    ledger = xfcost.analyze("vit-ti32", N=49, mode="train", trace=False, predict=True, threads=1)
    found = ledger.prediction
    assert found.seconds > 3 * ledger.total("macs") / 1e9
    rows = ledger.total("predicted_seconds")
    assert found.seconds == pytest.approx(rows + found.update_seconds + found.not_attributed)
    shown = json.loads(ledger.to_json())
    assert shown["prediction"]["update_seconds"] == found.update_seconds
    assert shown["by_mixing"]["update"]["predicted_seconds"] == found.update_seconds


def test_rows_have_forward_and_backward(calibrated_steps):
    step = xfcost.analyze("vit-ti32", N=49, mode="train", trace=False, predict=True, threads=1)
    forward = xfcost.analyze("vit-ti32", N=49, trace=False, predict=True, threads=1)
    ratios = [
        one.predicted_seconds / other.predicted_seconds
        for one, other in zip(step.rows, forward.rows, strict=True)
        if one.operation in ("fc1", "fc2", "scores")
    ]
    assert len(ratios) == 3
    # a product forward, two backward; biases and their sums too
    assert all(2 < ratio < 4 for ratio in ratios)


def test_timed_and_predicted_stand_in_one_row(calibrated_steps):
    done = xf(
        "analyze", "vit-ti32", "--set", ONE[0], "--no-trace", *TRAIN, "--device", "cpu", "--runs", "1", "--format",
        "csv",
    )  # fmt: skip
    rows = {row["operation"]: row for row in table_of(done.stdout)}
    assert list(rows)[-2:] == ["update", "not attributed"]
    assert float(rows["update"]["seconds"]) > 0
    assert float(rows["update"]["predicted_seconds"]) > 0


@pytest.mark.parametrize("command", [("analyze", "--no-trace", *TRAIN), ("measure", "--check", *TRAIN[:4], *TRAIN[5:])])
def test_an_older_calibration_is_one_error(calibrated_steps, tmp_path, command):
    found = msgspec.json.decode(calibrated_steps.read_bytes(), type=files.Calibration)
    files.write_calibration(calibrated_steps, msgspec.structs.replace(found, training=None))
    more = ("--save", str(tmp_path / "runs.jsonl")) if command[0] == "measure" else ()
    result = xf(command[0], "vit-ti32", *command[1:], *more)
    assert result.returncode == 2
    assert "measure it again: xfcost calibrate --device cpu --threads 1" in " ".join(result.stderr.split())
