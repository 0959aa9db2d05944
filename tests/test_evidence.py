"""Published runs like a run: how they are found, the range that they give, and what the files hold."""

import csv
from pathlib import Path

import evidence as tool
import msgspec
import pytest

import xfcost
from helpers import report_text, xf
from xfcost.counting.devices import device, device_names
from xfcost.ledger.errors import SpecError
from xfcost.parts.serving.evidence import LEVELS, Collection, PublishedRun, enough, published_runs
from xfcost.parts.training.evidence import published_training

DATA = Path(__file__).with_name("data")
DECODE = {"mode": "decode", "N": "8k", "trace": False}
LIKE = "published runs like this"


def run(number=0, engine="a", share=0.5, **features):
    """A run of inference: a decode step of one sample in 16 bits on one Hopper GPU."""
    usual = {"phase": "decode", "devices": 1, "generation": "Hopper", "bits": 16, "tokens": 1000}
    named = {"id": f"{engine}-{number}", "engine": engine, "model": "m", "device": "h100-sxm", "source": "s"}
    return PublishedRun(**usual | named | features, share=share)


def several(count, engine="a", **features):
    return [run(number, engine, **features) for number in range(count)]


def published(name):
    with (DATA / name).open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def evidence_of(spec, on, **options):
    return xfcost.analyze(spec, on=on, **DECODE | options).on.evidence


# How runs are found ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_five_runs_of_two_engines_make_a_range():
    assert not enough([*several(3), *several(1, "b")])
    assert not enough(several(9))
    assert enough([*several(4), *several(1, "b")])


def test_features_are_given_up_in_the_stated_order():
    """Each pool differs from the run in one feature more; runs that differ in fewer are found alone."""
    differing = [
        {},
        {"generation": "Ampere"},
        {"devices": 4},
        {"phase": "generate"},
        {"bits": 4},
        {"bits": 16},
        {"devices": 1},
        {"batch": 8},
    ]
    asked, features, pools = run(devices=8, bits=8), {"devices": 8, "bits": 8}, []
    for number, differs in enumerate(differing):
        features |= differs
        pools.append([*several(4, f"a{number}", **features), run(0, f"b{number}", **features)])
    for most in range(len(pools)):
        left = [one for pool in pools[most:] for one in pool]
        found, alike = Collection(left, LEVELS).like(asked)
        assert found == tuple(pools[most]), differing[most]
        assert len(alike) == len(LEVELS[most])


def test_a_prefill_is_never_like_a_step():
    found, alike = Collection(several(9, phase="prefill"), LEVELS).like(run())
    assert (found, alike) == ((), ("decode or generation",))


def test_the_range_is_of_all_runs_found_and_time_is_bound_by_share():
    runs = [
        *several(4, share=0.5),
        run(0, "b", share=0.4),
        run(1, "b", share=0.8),
        run(2, "b", phase="prefill", share=0.1),
    ]
    found = Collection(runs, LEVELS).evidence(run(), 2.0, 2.0)
    assert found.shares == (0.4, 0.8)
    assert found.seconds == (2.5, 5.0)
    assert len(found.runs) == 6


def test_no_time_is_below_the_whole_bound():
    """With communication it is longer than the bound of which the shares are."""
    found = Collection([*several(4, share=0.8), run(0, "b", share=0.4)], LEVELS).evidence(run(), 2.0, 3.0)
    assert found.seconds == (3.0, 5.0)


def test_too_few_runs_give_no_range():
    found = Collection([*several(3), run(0, "b")], LEVELS).evidence(run(), 2.0, 2.0)
    assert (found.shares, found.seconds, len(found.runs)) == (None, None, 4)
    assert found.to_object()["why_none"] == "with decode or generation"


# What the files hold ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_llama_2_7b_s_share_is_worked_out_by_hand():
    """Of gpt-fast's 104.9 tokens/s: 16-bit weights but the embedding's, and keys and values of 105 tokens."""
    layer = 4 * 4096**2 + 3 * 4096 * 11008 + 2 * 4096
    weights = 32 * layer + 4096 + 32000 * 4096 + 4096  # of the embedding a row
    least = (2 * weights + 2 * 105 * 32 * 2 * 4096) / 2039e9
    found = next(one for one in published_runs().runs if one.id == "gptfast-llama-2-7b-bf16-tp1")
    assert found.share == pytest.approx(least * 104.9, rel=2e-4)


def test_every_measured_run_with_a_batch_is_there_and_no_other():
    lines = [line for line in published("serving.csv") if line["what"] == "measured"]
    assert len(lines) == 109
    whole = [line for line in lines if not line["compute_only"]]
    found = published_runs().runs
    assert [(one.id, one.source) for one in found] == [(line["id"], line["source"]) for line in whole]
    assert len(found) == 92


def test_training_runs_are_measured_speeds_of_gpus():
    lines = {line["id"]: line for name in ("runs.csv", "throughput.csv") for line in published(f"training-runs/{name}")}
    found = published_training().runs
    assert len(found) == 206
    for one in found:
        line = lines[one.id]
        assert one.source == line["source"]
        assert line["kind"] != "prediction"
        assert line["speed"] not in ("device-hours", "days x devices")
        # all pairs of a causal mask are counted by the published utilisation, by the bound those that it keeps
        if line["mfu"] and line["speed"] == "tok/s per device":
            assert 0.5 * float(line["mfu"]) < 100 * one.share < 1.01 * float(line["mfu"]), one.id
    assert min(one.params for one in found) == 124_131_840
    # FP8's peak is twice as high
    assert {one.id.rpartition("-")[2] for one in found if one.bits == 8} == {"fp8"}


def test_every_run_has_a_source_an_engine_and_a_gpu_s_generation():
    for one in (*published_runs().runs, *published_training().runs):
        assert one.source
        assert one.engine
        assert one.generation == device(one.device).generation is not None
        assert 0.09 < one.share < 0.85, one.id


def test_generations_are_those_of_gpus():
    others = ("tpu", "trainium", "inferentia", "ryzen", "core", "epyc", "xeon")
    for name in device_names():
        one = device(name)
        assert (one.generation is None) == name.startswith(others), name
    assert {one for one in device_names() if device(one).generation == "Hopper"} == {
        "h100-pcie", "h100-sxm", "h100-nvl", "h200-sxm", "h20", "gh200-96", "gh200-144",
    }  # fmt: skip


@pytest.mark.rest
@pytest.mark.parametrize("part", ["serving", "training"])
def test_the_files_are_what_the_tool_writes(part):
    assert tool.FILES[part].read_text(encoding="utf-8") == tool.written(part)


# How far such comparisons hold ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("collection", [published_runs(), published_training()], ids=["inference", "training"])
def test_no_run_is_compared_with_its_own_engine(collection):
    levels = LEVELS if collection is published_runs() else tool.of_training.LEVELS
    found = tool.left_out("part", collection.runs, levels)
    assert sum(one.runs for one in found) == len(collection.runs)
    for one in found:
        others = [other for other in collection.runs if other.engine != one.engine]
        for left, shares in one.shares:
            assert sorted(shares) == sorted(run.share for run in Collection(others, levels).like(left)[0])


def test_seven_of_ten_runs_are_in_the_range_of_other_engines():
    inference, training = (line for line in tool.left_out_lines() if line["left out"] == "all")
    for line, runs, with_range in ((inference, "92", "92"), (training, "206", "199")):
        assert (line["number"], line["with a range"]) == (runs, with_range)
        assert 70 <= int(line["inside the range"].split()[0]) < 80
        assert int(line["between the quartiles"].split()[0]) < 45
        assert int(line["median error of the median"].split()[0]) <= 25


def test_the_figures_of_runs_left_out():
    """Worked out by hand: shares 0.2, 0.4, 0.4, 0.5, 0.8 of two engines; the third one's 0.4 and 0.9."""
    others = [run(0, "a", 0.2), run(1, "a", 0.4), run(2, "a", 0.4), run(0, "b", 0.5), run(1, "b", 0.8)]
    found = tool.left_out("part", [*others, run(0, "c", 0.4), run(1, "c", 0.9)], LEVELS)
    third = next(one for one in found if one.engine == "c")
    assert (third.runs, third.inside, third.between_quartiles) == (2, 1, 1)
    assert third.errors == pytest.approx([0, 1.25])


# What reports say ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_decode_step_has_the_range_in_text_json_and_the_list():
    command = ["analyze", "llama-3.3-70b", "--mode", "decode", "--on", "h100-sxmx8", "--N", "8k"]
    on = xfcost.analyze("llama-3.3-70b", on="h100-sxmx8", **DECODE).on
    found = on.evidence
    least, most = found.shares
    assert (len(found.runs), found.bound_seconds) == (12, on.seconds)
    assert found.seconds == (on.seconds / most, on.seconds / least)
    text = " ".join(xf(*command).stdout.split())
    assert f"{LIKE} reach {100 * least:.0f} to {100 * most:.0f} % of the bound (12 runs; decode or generation" in text
    assert "16 bits, several devices): 7.35 to 21.7 ms per step" in text
    saved = msgspec.json.decode(xf(*command, "--format", "json").stdout)["on"]["evidence"]
    assert saved["shares"] == [least, most]
    assert saved["seconds"] == list(found.seconds)
    assert saved["ids"] == [one.id for one in found.runs]
    assert saved["runs"] == 12
    assert "gpt-fast README" not in text
    listed = " ".join(xf(*command, "--verbose").stdout.split())
    assert all(" ".join(one.source.split()) in listed for one in found.runs)
    assert all(listed.count(f"{one.devices} × {one.device}") >= 1 for one in found.runs)
    assert sum(listed.count(f" × {name} 16 ") for name in ("a100-sxm-40", "a100-sxm-80")) == 12


def test_an_estimate_stays_beside_it():
    ledger = xfcost.analyze("llama-3.3-70b", on="h100-sxmx8", mbu=0.6, **DECODE)
    text = report_text(ledger)
    assert ledger.on.estimate == pytest.approx(ledger.on.seconds / 0.6)
    assert "estimate at 60 % MBU" in text
    assert LIKE in text


@pytest.mark.parametrize(
    ("spec", "on", "options", "why"),
    [
        ("vit-b16", "h100-sxm", {"mode": "forward", "N": None}, "of a forward pass"),
        ("mamba-130m", "h100-sxm", {}, "with recurrent states"),
        ("t5-3b", "h100-sxm", {}, "with cross-attention"),
        ("llama3-8b", "h100-sxm", {"offload": 4}, "with blocks on the host"),
        ("llama3-8b", "h100-sxmx4", {"pipeline": 2}, "with pipeline stages"),
        ("llama3-8b", "h100-sxmx4", {"tensor_parallel": 2}, "replicas"),
        ("llama3-8b", "h100-sxmx16", {}, "on more than 8 devices"),
        ("llama3-8b", "tpu-v5p", {}, "no generation of GPUs"),
        ("gpt2", "h100-sxm", {"N": 1000}, "that of published runs is 782 µs or more"),
        ("gpt2", "h100-sxm", {"N": 1000, "mode": "prefill"}, "that of published runs is 1.75 ms or more"),
    ],
)
def test_runs_that_no_published_run_is_like_have_no_range(spec, on, options, why):
    found = evidence_of(spec, on, **options)
    assert why in found.why_none
    assert (found.runs, found.shares, found.seconds) == ((), None, None)


def test_measured_rates_are_not_those_of_a_datasheet():
    """Of a machine that was calibrated a run may reach another share; so may a training run."""
    calibrated = msgspec.structs.replace(device("h100-sxm"), calibrated="2026-11-22T12:00:00Z")
    assert evidence_of("llama3-8b", device("h100-sxm")).shares is not None
    plan = xfcost.analyze("gpt2", **TRAIN | {"on": calibrated}).training.plan
    for found in (evidence_of("llama3-8b", calibrated), plan.evidence):
        assert found.why_none == "with the measured rates of a calibrated machine"


def test_a_run_that_does_not_fit_has_none():
    ledger = xfcost.analyze("llama-3.3-70b", on="h100-sxm", **DECODE)
    assert ledger.on.evidence is None
    assert ledger.on.to_object()["evidence"] is None
    assert LIKE not in report_text(ledger)


def test_quantised_weights_are_compared_with_quantised_runs():
    found = evidence_of("llama3-8b", "a100-sxm-80", weights="int8", N=100)
    assert {one.bits for one in found.runs} == {8}
    assert found.alike[-2:] == ("8 bits", "1 device")
    found = evidence_of("llama3-8b", "a100-sxm-80", weights="int4", N=100)
    assert {one.bits for one in found.runs} == {4, 6, 8}
    assert found.alike[-2:] == ("8 bits or fewer", "1 device")


def test_a_model_on_devices_that_exchange_is_not_faster_than_its_bound():
    ledger = xfcost.analyze("llama3-8b", on="l4x8", tensor_parallel=8, mode="prefill", N="2k", trace=False)
    found = ledger.on.evidence
    assert found.bound_seconds < found.least_seconds == ledger.on.seconds
    assert found.seconds[0] == max(found.bound_seconds / found.shares[1], ledger.on.seconds)
    assert "% of the bound without communication (" in " ".join(report_text(ledger).split())


# Training ────────────────────────────────────────────────────────────────────────────────────────────────────────────

TRAIN = {"mode": "train", "dtype": "bfloat16", "on": "h100-sxmx64", "zero": 3, "checkpoint": "full", "trace": False}


def test_a_training_plan_has_the_range_of_its_step_and_of_its_days():
    ledger = xfcost.analyze("llama3.1-8b", N="2k", tokens=1e12, **TRAIN)
    plan = ledger.training.plan
    found = plan.evidence
    assert found.bound_seconds == plan.bound_step_seconds
    assert plan.to_object()["evidence"]["ids"] == [one.id for one in found.runs]
    assert {one.generation for one in found.runs} == {"Hopper"}
    least, most = (plan.steps * seconds / 86400 for seconds in found.seconds)
    assert f"{least:.4g} to {most:.4g} days" in " ".join(report_text(ledger).split())
    assert all(one.phase == "train" for one in found.runs)


@pytest.mark.parametrize(
    ("spec", "options", "why"),
    [
        ("vit-b16", {}, "without a vocabulary"),
        ("mamba-130m", {"N": 1000}, "without attention"),
        ("mixtral-8x7b", {"N": 1000}, "with experts"),
        ("llama3-8b", {"N": 1000, "dtype": "float32"}, "with 32 bits"),
        ("gpt2", {"settings": ["stages.0.depth=6"]}, "models of published runs have 124.1 M or more"),
    ],
)
def test_training_that_no_published_run_is_like_has_no_range(spec, options, why):
    found = xfcost.analyze(spec, **TRAIN | options).training.plan.evidence
    assert why in found.why_none
    assert found.shares is None


def test_a_step_of_the_shortest_published_bound_has_a_range():
    """Its bound is the least of all, and a generation's is that of one of its tokens."""
    shortest = min(published_runs().runs, key=lambda one: one.pass_seconds if one.phase == "decode" else 1)
    assert shortest.id == "gptfast-mixtral-8x7b-int8-tp8"
    # 279.35 tokens/s are 21.8 % of the bound
    assert shortest.pass_seconds == pytest.approx(shortest.share / 279.35, rel=1e-3)
    assert (
        published_runs().shortest(shortest) == published_runs().shortest(run(phase="generate")) == shortest.pass_seconds
    )
    generation = evidence_of("llama3-8b", "h100-sxm", mode="generate", N=100, new_tokens=100)
    assert generation.shares is not None
    step = xfcost.analyze("llama3-8b", on="h100-sxm", **DECODE).on.evidence
    assert step.shares is not None


def test_a_device_of_one_s_own_says_its_generation(tmp_path, monkeypatch):
    own = "devices:\n  mine:\n    memory: 80 GB\n    bandwidth: 3000 GB/s\n    peaks: {bfloat16: 900T}\n"
    monkeypatch.setattr("xfcost.ledger.calibration.folder", lambda: tmp_path)
    file = tmp_path / "devices.yaml"
    file.write_text(own, encoding="utf-8")
    assert "no generation of GPUs" in evidence_of("llama3-8b", "mine").why_none
    file.write_text(f"{own}    generation: Hopper\n", encoding="utf-8")
    assert evidence_of("llama3-8b", "mine").shares is not None
    file.write_text(f"{own}    generation: [1]\n", encoding="utf-8")
    with pytest.raises(SpecError, match=r"generation: .* expected a text"):
        evidence_of("llama3-8b", "mine")
