"""Calibration and prediction: calls, their features, the regression and its file, exact on injected clocks."""

import json
import math

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import xfcost
from calibrated import BASELINE, MACHINE, Ticks, calibration, keep_calibration, live, network, points, runs
from helpers import PLAIN, report_text, xf
from modules import Call
from xfcost.ledger import calibration as files
from xfcost.ledger import units
from xfcost.ledger.calibration import Calibration, Overhead, Samples, read_calibration
from xfcost.ledger.errors import OutputError, UsageError
from xfcost.ledger.statistics import nine_in_ten
from xfcost.questions.calibrate.text import calibration_parts
from xfcost.report.console import plain_text
from xfcost.report.document import drawn
from xfcost.torch_models.predicting import calibrate as measuring
from xfcost.torch_models.predicting.calibrate import NetworkRun, fitted, overhead_of, steady
from xfcost.torch_models.predicting.operations import SingleOperations
from xfcost.torch_models.predicting.predict import Predictor, Seconds, by_clock, interval_of, recorded
from xfcost.torch_models.predicting.regression import (
    CallFeatures,
    Regression,
    baseline_seconds,
    features,
    joined,
    samples_of,
)
from xfcost.torch_models.running.prediction_calls import FUSED_ATTENTION


def totals(found):
    """Calls without the modules that ran them."""
    counts = {}
    for (_, call), times in found.calls.items():
        counts[call] = counts.get(call, 0) + times
    return counts


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("vit-ti32", {}),
        ("swin-t", {"N": 196}),
        ("gpt2", {"N": 8, "settings": ("stages.0.depth=1",)}),
        ("mixer-s32", {}),
        ("common-performer", {"N": 64, "settings": ("stages.0.depth=1",)}),
        # more steps than the dispatcher runs on meta; on the CPU every step runs
        ("common-lstm", {"N": 100, "settings": ("stages.0.depth=1",)}),
    ],
)
def test_calls_on_meta_are_those_of_the_cpu(name, options):
    settings = options.pop("settings", ())
    on_meta, on_cpu = (recorded(one.model, one.inputs) for one in (
        live(name, "meta", settings, **options), live(name, "cpu", settings, **options)
    ))  # fmt: skip
    assert totals(on_meta) == totals(on_cpu)
    assert on_meta.views == on_cpu.views
    assert on_meta.modules == on_cpu.modules


def test_fused_attention_is_one_call_on_meta_and_on_the_cpu():
    for device in ("meta", "cpu"):
        one = live("vit-ti32", device, attention="fused")
        found = totals(recorded(one.model, one.inputs))
        attention = {call: times for call, times in found.items() if call.operation == FUSED_ATTENTION}
        # 12 blocks; 49 patches and [CLS]; 3 heads of 64
        assert list(attention.values()) == [12]
        assert next(iter(attention)).inputs[0].sizes == (1, 3, 50, 64)


def test_a_timed_run_times_every_call_alone():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    found = recorded(model, (torch.zeros(3, 4),), by_clock(Ticks(), 2))
    # two addmm of different sizes and a ReLU, each between two looks; the transposed weights are views
    assert sorted(call.operation for call in found.seconds) == ["aten.addmm", "aten.addmm", "aten.relu"]
    assert all(seconds == pytest.approx(1e-3) for times in found.seconds.values() for seconds in times)
    assert sum(found.calls.values()) == 3
    assert found.views["0"] == found.views["2"] == 1
    assert sum(found.modules.values()) == 4


def test_a_calibration_runs_the_same_operations_of_every_kind_each_time():
    first, second = (SingleOperations(torch.float32, "meta") for _ in range(2))
    found = recorded(first, ())
    assert found.calls == recorded(second, ()).calls
    kinds = {(features(call).operation, features(call).variant) for _, call in found.calls}
    assert kinds >= {
        ("product", "nt"), ("product", "nn"), ("product", "tn"), ("convolution", "1×1 c>c 2-D"),
        ("convolution", "1×1 c>c 2-D few"),
        ("convolution", "grouped c>c 2-D"),  ("aten.index", "1 of c"),
        ("convolution backward", "depthwise c>c 2-D iw"), ("convolution backward", " c>c 2-D w"),
        ("aten.add", "c/t>c"), ("aten.max_pool2d_with_indices", "c"), (FUSED_ATTENTION, "causal"),
    }  # fmt: skip
    products = [call for _, call in found.calls if call.operation == "aten.addmm"]
    assert min(call.inputs[1].sizes[0] for call in products) < 4
    assert max(features(call).macs for call in products) <= 2e9


@given(st.floats(0.05, 20), st.floats(2, 14))
def test_a_kind_that_is_always_so_much_slower_is_predicted_so(ratio, size):
    regression = Regression(BASELINE, samples_of(BASELINE, points(lambda _: ratio)))
    found = CallFeatures("aten.exp", "c>c", (size, size, 3.0), 0, 1000)
    assert regression(found).seconds == pytest.approx(ratio * baseline_seconds(BASELINE, found), rel=2e-3)


def test_between_measured_calls_the_ratio_follows_them():
    # the ratio grows by 20 % with every doubling: at 2⁹ it is 1.2⁹
    regression = Regression(BASELINE, samples_of(BASELINE, points(lambda size: 1.2**size)))
    found = CallFeatures("aten.exp", "c>c", (9.0, 9.0, 3.0), 0, 512)
    assert regression(found).seconds == pytest.approx(1.2**9 * baseline_seconds(BASELINE, found), rel=0.1)


def test_far_from_the_measured_calls_their_slope_is_followed_for_a_factor_of_four():
    # the ratio doubles with every doubling of the size, to 2¹² at the last one: nowhere is it predicted above 2¹⁴
    regression = Regression(BASELINE, samples_of(BASELINE, points(lambda size: 2.0**size)))
    far, farther = (
        regression(found).seconds / baseline_seconds(BASELINE, found)
        for found in (CallFeatures("aten.exp", "c>c", (size, size, 3.0), 0, 1000) for size in (20.0, 30.0))
    )
    assert max(far, farther) <= 2.0**14


def test_a_calibration_of_other_numbers_is_refused(tmp_path, monkeypatch):
    def of(variant, *numbers):
        return Samples(operation="product", variant=variant, numbers=(numbers,), ratios=(0.0,))

    told = "has 3 numbers of each measured call of product, expected 4: .*xfcost calibrate"
    four, three = of("nt", 1.0, 2.0, 3.0, 4.0), of("nt", 1.0, 2.0, 3.0)
    with pytest.raises(UsageError, match=told):
        Regression(BASELINE, [four, of("nn", 1.0, 2.0, 3.0)])
    with pytest.raises(UsageError, match=told):
        joined([four], [three])
    keep_calibration(tmp_path, monkeypatch, samples=(three,))
    for model, inputs in (("vit", {"N": 196}), (nn.Linear(4, 4), {"example_inputs": (torch.zeros(2, 4),)})):
        with pytest.raises(UsageError, match=told):
            xfcost.analyze(model, predict=True, threads=1, **inputs)


def test_what_was_never_measured_is_told():
    regression = Regression(BASELINE, samples_of(BASELINE, points(lambda _: 2.0)))
    numbers = (8.0, 8.0, 3.0)
    assert regression(CallFeatures("aten.exp", "c>c", numbers, 0, 256)).known == "kind"
    assert regression(CallFeatures("aten.exp", "t>c", numbers, 0, 256)).known == "operation"
    found = CallFeatures("aten.erfinv", "c>c", numbers, 10**6, 10**6)
    # the baseline alone: 1 µs + 10⁶ MACs and 10⁶ bytes at 10⁹ per second
    assert regression(found) == (pytest.approx(1e-6 + 1e-3 + 1e-3), "none")


def test_overhead_is_fitted_to_whole_networks():
    overhead = Overhead(call=2e-6, view=1e-6, module=5e-6)
    networks = runs(overhead)
    found = overhead_of(networks)
    for name in ("call", "view", "module"):
        assert getattr(found, name) == pytest.approx(getattr(overhead, name), rel=1e-6)
    # a network far from the others, and networks cut to few blocks, move nothing
    far = networks[3]._replace(whole=networks[3].spent + 40 * (networks[3].whole - networks[3].spent))
    assert overhead_of([*networks, far]).seconds(calls=10, views=10, modules=10) == pytest.approx(80e-6, rel=1e-6)
    cut = [one._replace(whole=2 * one.whole, cut=True) for one in networks]
    found = fitted(MACHINE, BASELINE, [*networks, *cut], NetworkRun("operations", {}, {}, 0, 0, 0.0)).overhead
    assert found.seconds(calls=10, views=10, modules=10) == pytest.approx(80e-6, rel=1e-6)


def test_no_overhead_is_below_zero():
    # calls that take longer alone than in their network: the rest is 100 ns a view less 50 ns a call
    networks = [
        one._replace(whole=one.spent + 1e-7 * one.views - 5e-8 * sum(one.calls.values()))
        for one in runs(Overhead(call=0.0, view=0.0, module=0.0))
    ]
    found = overhead_of(networks)
    assert min(found.call, found.view, found.module) == 0.0
    assert max(found.call, found.view, found.module) >= 0.0


def test_runs_that_differ_are_not_timed_together():
    class Other(nn.Module):
        def forward(self, x):
            self.runs = getattr(self, "runs", 0) + 1
            return x.relu() if self.runs == 1 else x.relu().exp()

    with pytest.raises(RuntimeError, match="a run of 2 calls after one of 1"):
        recorded(Other(), (torch.zeros(3),), by_clock(Ticks()))


def test_equal_calls_of_a_run_keep_their_own_times():
    ticks = iter([1.0, 1.5, 2.0, 2.25, 3.0, 3.125])
    found = recorded(Call(lambda x: x.relu().t().relu().exp()), (torch.zeros(3, 3),), by_clock(lambda: next(ticks)))
    by_name = {}
    for call, times in found.seconds.items():
        by_name.setdefault(call.operation, []).extend(times)
    # a view between them; the second ReLU is of a transposed tensor
    assert by_name == {"aten.relu": [0.5, 0.25], "aten.exp": [0.125]}
    assert (found.views[""], found.modules[""]) == (1, 1)


def test_a_disturbed_network_is_measured_again():
    (quiet, *_) = runs(Overhead(call=0.0, view=0.0, module=0.0))
    slow, slower = (quiet._replace(whole=factor * quiet.whole) for factor in (2, 3))
    assert steady(iter([slow, quiet]).__next__) == quiet
    # a fourth would be one too many
    assert steady(iter([slower, slow, slower]).__next__) == slow


def test_nine_in_ten_errors_are_at_most_so_large():
    assert nine_in_ten([0.01 * one for one in range(1, 11)]) == pytest.approx(0.09)
    # of 57 errors nine in ten are 51.3: 52 of them
    assert nine_in_ten([-one for one in range(1, 58)]) == 52
    assert nine_in_ten([0.5]) == 0.5


def test_networks_at_another_pace_are_told():
    slow = msgspec.structs.replace(network(1.0, 1.1), pace=1.2e-3)
    found = calibration(networks=(network(1.0, 1.1), slow), pace=1e-3)
    assert found.off_pace == 1
    assert calibration(networks=(slow,), pace=1.15e-3).off_pace == 0


def test_disturbed_networks_are_told():
    one = msgspec.structs.replace(network(1.0, 1.0), calls=0.5)
    assert one.disturbed
    for networks, words in (((one, network(1.0, 1.1)), True), ((network(1.0, 1.1),), False)):
        told = plain_text(lambda width: drawn(calibration_parts(calibration(networks=networks)), width))  # noqa: B023
        assert ("1 of 2 networks were disturbed" in " ".join(told.split())) == words


def test_a_network_is_predicted_from_the_others():
    overhead = Overhead(call=2e-6, view=1e-6, module=5e-6)
    alone = NetworkRun("operations", {}, {}, 0, 0, 0.0)
    calibration = fitted(MACHINE, BASELINE, runs(overhead), alone)
    # each kind is always 2 or 3 times its baseline, so that the others tell it exactly
    for one in calibration.networks:
        assert one.predicted == pytest.approx(one.seconds, rel=1e-3)
    slower = runs(overhead)
    slower[2] = slower[2]._replace(
        whole=slower[2].whole, seconds={one: 10 * each for one, each in slower[2].seconds.items()}
    )
    wrong = fitted(MACHINE, BASELINE, slower, alone).networks[2]
    assert wrong.predicted < wrong.seconds * 3


def test_a_model_takes_the_sum_of_its_calls():
    # nothing of it was measured: every product takes the baseline, 1 µs + MACs/10⁹ + bytes/10⁹
    model = nn.Sequential(nn.Linear(64, 128, bias=False), nn.Linear(128, 32, bias=False)).to("meta")
    one = live("vit-ti32")._replace(
        model=model, inputs=(torch.empty(10, 64, device="meta"),), rows={"0": "a", "1": "b"}
    )
    found = Predictor(calibration()).seconds(lambda: one)
    first = 1e-6 + (10 * 64 * 128 + 4 * (10 * 64 + 64 * 128 + 10 * 128)) / 1e9
    second = 1e-6 + (10 * 128 * 32 + 4 * (10 * 128 + 128 * 32 + 10 * 32)) / 1e9
    assert found.rows == {"a": pytest.approx(first), "b": pytest.approx(second)}
    assert found.whole == pytest.approx(first + second)
    assert found.unknown == {"aten.mm": pytest.approx(first + second)}


def test_overhead_stands_in_the_rows_whose_modules_have_it():
    overhead = Overhead(call=1e-3, view=2e-3, module=4e-3)
    model = nn.Sequential(nn.Linear(8, 8, bias=False)).to("meta")
    one = live("vit-ti32")._replace(model=model, inputs=(torch.empty(2, 8, device="meta"),), rows={"0": "a"})
    predictor = Predictor(calibration(overhead=overhead))
    found = predictor.seconds(lambda: one)
    # in the linear map: a product, a view (the weight transposed) and its own call; around it the model's call
    assert found.rows["a"] == pytest.approx(7e-3, rel=1e-2)
    assert found.whole - found.rows["a"] == pytest.approx(4e-3)


@pytest.mark.parametrize(
    ("errors", "widest"), [(1, 1), (8, 8), (9, 9), (10, 10), (18, 18), (19, 18), (20, 19), (29, 27)]
)
def test_an_interval_ends_at_nine_tenths_of_one_error_more(errors, widest):
    """Of n errors, in either direction, the ⌈0.9·(n + 1)⌉-th, and at most the last."""
    low, high = interval_of([number / 100 * (-1) ** number for number in range(1, errors + 1)])
    assert (math.log(low), math.log(high)) == (pytest.approx(-widest / 100), pytest.approx(widest / 100))


def test_what_is_unknown_widens_the_interval():
    predictor = Predictor(calibration())
    sure = predictor.prediction(Seconds({}, 1.0, {}))
    unsure = predictor.prediction(Seconds({}, 1.0, {"aten.erfinv": 0.5}))
    # one network, 10 % off: 1/1.1 to 1.1; half of it unknown: 0.5/1.1 + 0.5/3 to 0.5·1.1 + 0.5·3
    assert (sure.low, sure.high) == (pytest.approx(1 / 1.1), pytest.approx(1.1))
    assert (unsure.low, unsure.high) == (pytest.approx(0.5 / 1.1 + 0.5 / 3), pytest.approx(0.55 + 1.5))
    assert unsure.unknown == ("aten.erfinv",)


def test_the_file_gives_back_what_was_written(tmp_path):
    path = tmp_path / "settings" / "calibration.json"
    files.write_calibration(path, calibration())
    assert read_calibration(path, MACHINE) == calibration()
    assert [each.name for each in path.parent.iterdir()] == ["calibration.json"]


def replaced(**changes):
    return msgspec.structs.replace(BASELINE, **changes)


def edited(before, after):
    """The text of a calibration with one call, edited by hand."""
    one = Samples(operation="mm", variant="", numbers=((1.0,),), ratios=(0.5,))
    nothing = Overhead(call=0.0, view=0.0, module=0.0)
    text = msgspec.json.encode(calibration(samples=(one,), overhead=nothing))
    assert text.count(before) == 1
    return text.replace(before, after)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "is not calibrated; measure this one: xfcost calibrate --device cpu --threads 2"),
        (calibration(version=9), "of version 9, expected 4"),
        (b'{"format": "xfcost calibration", "version": 0}', "of version 0, expected 4"),
        (calibration(machine=msgspec.structs.replace(MACHINE, threads=8)), "8 threads"),
        (calibration(machine=msgspec.structs.replace(MACHINE, name="another")), "another"),
        *(
            (content, "is no calibration of xfcost")
            for content in (
                b"",
                b"\xff\xfe",
                b'{"format": "runs"}',
                calibration(baseline=replaced(macs_per_second=0.0)),
                calibration(baseline=replaced(bytes_per_second=-1.0)),
                calibration(baseline=replaced(call_seconds=1e300)),
                calibration(networks=(network(1.0, 0.0),)),
                calibration(networks=(network(-1.0, 1.0),)),
                edited(b'"view":0.0', b'"view":-1.0'),
                edited(b'"ratios":[0.5]', b'"ratios":[]'),
                edited(b'"ratios":[0.5]', b'"ratios":[1e5]'),
                edited(b'"numbers":[[1.0]]', b'"numbers":[[1.0],[1.0,2.0]]'),
            )
        ),
    ],
)
def test_a_file_that_is_not_this_machines_is_refused(tmp_path, content, says):
    path = tmp_path / "calibration.json"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else msgspec.json.encode(content))
    with pytest.raises(UsageError, match="xfcost calibrate --device cpu") as caught:
        read_calibration(path, MACHINE)
    assert says in str(caught.value)


def test_where_no_calibration_can_be_kept_none_is_measured(tmp_path, monkeypatch):
    def measured(*_):
        raise AssertionError("it was measured")

    monkeypatch.setattr(measuring, "calibrated", measured)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    (tmp_path / "settings").write_text("")
    with pytest.raises(OutputError, match="can't be written: Not a directory"):
        xfcost.calibrate("cpu", threads=1)
    (tmp_path / "settings").unlink()
    with pytest.raises(AssertionError, match="it was measured"):
        xfcost.calibrate("cpu", threads=1)
    assert list((tmp_path / "settings" / "xfcost").iterdir()) == []


@pytest.fixture
def calibrated_here(tmp_path, monkeypatch):
    """This machine's calibration: element-wise exponentials alone were measured, one network is 10 % off."""
    return keep_calibration(tmp_path, monkeypatch)


def test_a_spec_is_predicted_in_every_form(calibrated_here):
    ledger = xfcost.analyze("vit-ti32", trace=False, predict=True, threads=1)
    # 1.26 GMACs at 10⁹ MACs per second, and at least as many seconds for each part
    assert ledger.prediction.seconds > ledger.total("macs") / 1e9
    rows = ledger.total("predicted_seconds")
    assert ledger.prediction.seconds == pytest.approx(rows + ledger.prediction.not_attributed)
    assert ledger.timing is None
    shown = json.loads(ledger.to_json())
    assert shown["prediction"]["seconds"] == ledger.prediction.seconds
    assert sum(one["predicted_seconds"] * one["times"] for one in shown["operations"]) == pytest.approx(rows)
    by_kind = {kind: one["predicted_seconds"] for kind, one in shown["by_mixing"].items()}
    assert sum(spent or 0 for spent in by_kind.values()) == pytest.approx(rows)
    assert by_kind["local"] is None


def test_a_predicted_row_is_one_block_and_nothing_is_predicted_twice(calibrated_here):
    ledger = xfcost.analyze("vit-ti32", trace=False, predict=True, threads=1)
    scores = next(row for row in ledger.rows if row.operation == "scores")
    # 3 heads, 50·64·50 MACs each, at 10⁹ per second; Q, K and the scores at 10⁹ bytes per second, and one call
    product = 480_000 / 1e9 + 4 * (2 * 3 * 50 * 64 + 3 * 50 * 50) / 1e9 + 1e-6
    assert scores.times == 12
    assert product <= scores.predicted_seconds < 2 * product
    # without overheads of views and modules no time is left beside the operations, and none is missing
    assert 0 <= ledger.prediction.not_attributed < 0.05 * ledger.prediction.seconds


def test_predicted_tables_have_what_no_operation_accounts_for(calibrated_here):
    found = msgspec.json.decode(calibrated_here.read_bytes(), type=Calibration)
    overhead = Overhead(call=0.0, view=0.0, module=1e-2)
    files.write_calibration(calibrated_here, msgspec.structs.replace(found, overhead=overhead))
    ledger = xfcost.analyze("vit-ti32", trace=False, predict=True, threads=1)
    # calls of the modules around the operations: blocks, sublayers and the model itself
    rest = units.seconds(ledger.prediction.not_attributed)
    assert ledger.prediction.not_attributed > 1e-2
    for by in ("mixing", "stage"):
        lines = report_text(ledger, "table", by).splitlines()
        # of the groups, and of the totals by mixing kind
        both = [line.split() for line in lines if line.startswith("not attributed")]
        assert len(both) == 2
        assert all(rest in " ".join(words) for words in both)
    groups, _, _ = report_text(ledger, "table", "mixing").partition("totals by mixing kind")
    assert "traced MACs" not in groups


def test_a_generation_is_predicted_phase_by_phase(calibrated_here):
    ledger = xfcost.analyze(
        "gpt2", settings=["stages.0.depth=1"], N=8, mode="generate", new_tokens=4, trace=False, predict=True, threads=1,
        **PLAIN,
    )  # fmt: skip
    prefill, decode = ledger.prediction.phases
    assert (prefill.name, decode.name) == ("prefill", "decode")
    assert ledger.prediction.seconds == pytest.approx(prefill.seconds + decode.seconds)
    # three steps; each has the head's product, by far the largest, of one position as the prefill has it
    assert 2 * prefill.seconds < decode.seconds < 3 * prefill.seconds


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--predict", "--threads", "1", "--mode", "train"), "predicted from a calibration with training steps"),
        (("--predict", "--threads", "1", "--dtype", "bfloat16"), "xfcost calibrate --device cpu --dtype bfloat16"),
        (("--predict", "--device", "cuda"), "this machine has"),
    ],
)
def test_what_cannot_be_predicted_is_one_error(calibrated_here, arguments, says):
    result = xf("analyze", "vit-ti32", "--no-trace", *arguments)
    assert result.returncode == 2
    assert says in " ".join(result.stderr.split())
