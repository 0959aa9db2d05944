"""`xfcost diff` of saved runs: reports of `analyze`, files of `measure`; seconds have a verdict, others are refused."""

from __future__ import annotations

import json

import msgspec
import pytest

import xfcost
from measured import HEADER, THERE, changed, row, timed
from xfcost.api.difference import diff
from xfcost.ledger.errors import UsageError
from xfcost.ledger.saved_report import read_report, report_of
from xfcost.report.differences import document


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


# Saved runs ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def saved(name, file, **options):
    file.write_text(xfcost.analyze(name, trace=False, **options).to_json(), encoding="utf-8")
    return str(file)


def test_a_saved_report_is_the_ledger_again(here):
    ledger = xfcost.analyze("swin", trace=False)
    assert read_report(ledger.to_json(), "a.json") == report_of(ledger)
    assert diff(saved("swin", here / "a.json"), "swin").operations == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"batch": 8}, "batch 1 and 8"),
        ({"dtype": "float16"}, "dtype float32 and float16"),
        ({"size": 448}, "images 224×224 and 448×448"),
        ({"mode": "train"}, "mode forward and train"),
        ({"memory_level": "1KiB"}, "memory_level None and 1024"),
    ],
)
def test_saved_runs_that_differ_are_refused(here, options, told):
    first, second = saved("swin", here / "a.json"), saved("swin", here / "b.json", **options)
    with pytest.raises(UsageError, match=f"not comparable: .*{told}"):
        diff(first, second)
    assert diff(first, saved("vit", here / "c.json")).changes


def test_two_saved_runs_take_no_options(here):
    first, second = saved("swin", here / "a.json"), saved("swin", here / "b.json")
    with pytest.raises(UsageError, match="--batch, --set: both sides are saved"):
        diff(first, second, batch=8, settings=["stages.0.depth=1"])
    assert diff(first, second, batch="1", mode="forward").operations == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "cut, or no JSON"),
        ('{"name": "a", "operations": [', "cut, or no JSON"),
        ("[" * 100_000, "cut, or no JSON"),
        ("[]", "no operations, and may be of another tool"),
        ('{"benchmark": 3}', "may be of another tool"),
        ('{"operations": [], "totals": {}}', "missing required field"),
        ('{"systems": []}', "but of `xfcost compare`"),
        ('{"asked": {}, "fits": 3}', "but of `xfcost find`"),
        ('{"before": {}, "operations": [], "totals": {}}', "but of `xfcost diff`"),
    ],
)
def test_json_that_is_no_report(here, text, told):
    (here / "a.json").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=told):
        diff("a.json", "vit")


def test_a_report_with_figures_that_can_not_be(here):
    fields = json.loads(xfcost.analyze("vit", trace=False).to_json())
    fields["operations"][0]["macs"] = -5
    (here / "a.json").write_text(json.dumps(fields), encoding="utf-8")
    with pytest.raises(UsageError, match=r"is no report.*operations\[0\].macs"):
        diff("a.json", "vit")


ONE_TIME = {"device": "cpu", "machine": "m", "seconds": 1.0, "spread": 0.1, "runs": 9, "threads": 1}
SOON = {"device": "cpu", "machine": "m", "threads": 1, "seconds": 0.0, "low": 0.0, "high": 1.0, "calibrated": "now"}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"totals": {"macs": "x"}}, r"Expected `int \| null`, got `str` - at `\$.totals.macs`"),
        ({"totals": {"macs": 0.5}}, r"at `\$.totals.macs`"),
        ({"totals": {"attention_bytes": -1}}, r"`int` >= 0 - at `\$.totals.attention_bytes`"),
        ({"training": {"step": [1]}}, r"Expected `object \| null`, got `array` - at `\$.training.step`"),
        ({"training": {"step": {"optimizer": 1}}}, r"at `\$.training.step.optimizer`"),
        ({"generation": {"with_cache": {"macs": "1"}}}, r"at `\$.generation.with_cache.macs`"),
        ({"cache": [1]}, r"at `\$.cache`"),
        ({"module": {"inputs": [1]}}, r"at `\$.module.inputs\[0\]`"),
        ({"module": {"uncounted": [1]}}, r"at `\$.module.uncounted`"),
        ({"timing": ONE_TIME | {"seconds": 0}}, "its time is 0.0 s; expected more than 1e-12"),
        ({"timing": ONE_TIME | {"times": [1.0, 1e308]}}, "its time is 1e"),
        ({"prediction": SOON}, "its time is 0.0 s"),
    ],
)
def test_a_damaged_report_is_refused_at_its_place(here, changed, told):
    fields = json.loads(xfcost.analyze("vit", trace=False).to_json())
    whole = json.dumps(fields | {"timing": ONE_TIME, "prediction": SOON | {"seconds": 0.5, "low": 0.1}})
    (here / "whole.json").write_text(whole, encoding="utf-8")
    (here / "a.json").write_text(json.dumps(json.loads(whole) | changed), encoding="utf-8")
    assert diff("whole.json", "whole.json").operations == []
    for both in (("a.json", "whole.json"), ("whole.json", "a.json")):
        with pytest.raises(UsageError, match=f"a.json: is no report of .*{told}"):
            diff(*both)


def runs_file(path, *rows):
    lines = [HEADER, *rows]
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    return str(path)


def test_seconds_within_their_intervals_are_no_difference(here):
    before = runs_file(here / "a.jsonl", row("A", 64, timed(1.0, 0.9, 1.1)), row("A", 128, timed(2.0, 1.95, 2.05)))
    after = runs_file(here / "b.jsonl", row("A", 64, timed(1.05, 0.95, 1.2)), row("A", 128, timed(3.0, 2.9, 3.1)))
    found = diff(before, after)
    by_n = {one.configuration.N: one for one in found.rows}
    assert by_n[64].seconds.different is False
    assert by_n[128].seconds.different is True
    assert by_n[128].seconds.ratio == pytest.approx(1.5)
    assert [one.configuration.N for one in found.rows] == [128, 64]
    text = document(found).text("table")
    assert "1 slower, 0 faster, 1 without a difference beyond noise" in text
    assert "no difference beyond noise" in text
    for form in ("json", "csv", "markdown", "latex"):
        assert document(found).text(form)


def test_the_most_changed_in_time_comes_first_and_noise_last(here):
    def file(name, *seconds):
        sizes = (64, 128, 256, 512)
        return runs_file(here / name, *(row("A", n, timed(*one)) for n, one in zip(sizes, seconds, strict=True)))

    before = file("a.jsonl", *[(1.0, 0.99, 1.01)] * 4)
    # 20 % slower; 9 times as slow, with an interval that holds 1; 40 % faster; 30 % slower
    after = file("b.jsonl", (1.2, 1.19, 1.21), (9.0, 0.5, 20.0), (0.6, 0.59, 0.61), (1.3, 1.29, 1.31))
    assert [one.configuration.N for one in diff(before, after).rows] == [256, 512, 64, 128]


def test_seconds_of_another_machine_are_not_compared(here):
    before = runs_file(here / "a.jsonl", row("A", 64, timed(1.0, 0.9, 1.1)))
    after = runs_file(here / "b.jsonl", row("A", 64, timed(9.0, 8.9, 9.1), machine=THERE), row("A", 128))
    found = diff(before, after)
    assert found.rows[0].seconds is None
    assert found.only_after == 1
    text = document(found).text("table")
    assert "another machine" in text
    assert "their seconds are not compared" in text


def test_files_of_measurements_that_have_nothing_in_common(here):
    before, after = runs_file(here / "a.jsonl", row("A", 64)), runs_file(here / "b.jsonl", row("B", 64))
    with pytest.raises(UsageError, match="no row of one is of the same system and run"):
        diff(before, after)
    with pytest.raises(UsageError, match="no row of one is of the same system and run"):
        diff(before, runs_file(here / "d.jsonl", changed(row("A", 64), batch=8)))
    with pytest.raises(UsageError, match="has no rows"):
        diff(before, runs_file(here / "c.jsonl"))
    with pytest.raises(UsageError, match="holds measurements, which have no operations"):
        diff(before, "vit")


def timed_report(here, name, seconds, low, high, **more):
    """A saved report whose run was timed, a hundredth of the time in its first operation."""
    fields = json.loads(xfcost.analyze("vit", trace=False).to_json())
    timing = timed(seconds, low, high, **more).timing
    fields["timing"] = msgspec.to_builtins(timing)
    fields["operations"][0]["seconds"] = seconds / 100
    (here / name).write_text(json.dumps(fields), encoding="utf-8")
    return name


def test_timed_reports_have_a_verdict(here):
    first = timed_report(here, "a.json", 1.0, 0.98, 1.02)
    slow = diff(first, timed_report(here, "b.json", 1.2, 1.18, 1.22))
    assert slow.seconds.different is True
    assert "slower, by" in document(slow).text("table")
    assert [change.kind for change in slow.changes] == ["same"]
    assert slow.changes[0].differences["seconds"] == pytest.approx(0.002)
    same = diff(first, timed_report(here, "c.json", 1.01, 0.97, 1.05))
    assert same.seconds.different is False
    assert "no difference beyond noise" in document(same).text("table")


def test_a_report_timed_with_other_threads_says_so(here):
    first = timed_report(here, "a.json", 1.0, 0.98, 1.02)
    fields = json.loads((here / "a.json").read_text(encoding="utf-8"))
    fields["timing"]["threads"] = 1
    (here / "b.json").write_text(json.dumps(fields), encoding="utf-8")
    found = diff(first, "b.json")
    assert found.seconds is None
    assert found.changes == ()
    assert any("timed with another threads" in note for note in found.notes)


def predicted_report(here, name, seconds, low, high):
    fields = json.loads(xfcost.analyze("vit", trace=False).to_json())
    fields["prediction"] = {
        "device": "cpu", "machine": "P", "threads": 4, "seconds": seconds, "low": low, "high": high,
        "calibrated": "2025-01-31",
    }  # fmt: skip
    (here / name).write_text(json.dumps(fields), encoding="utf-8")
    return name


def test_predictions_differ_beyond_their_error_or_not(here):
    first = predicted_report(here, "a.json", 1.0, 0.8, 1.25)
    close = diff(first, predicted_report(here, "b.json", 1.1, 0.9, 1.4))
    assert close.predicted_seconds.different is False
    assert "no difference beyond the error of the prediction" in document(close).text("table")
    far = diff(first, predicted_report(here, "c.json", 3.0, 2.4, 3.75))
    assert far.predicted_seconds.different is True
    # Both errors at once: 3 / √((1.25)² ...) on a logarithmic scale, ln 1.25 · √2 either way
    assert far.predicted_seconds.interval == pytest.approx((3 / 1.25**2**0.5, 3 * 1.25**2**0.5))


def test_predictions_of_two_calibrations_are_not_compared(here):
    first, second = predicted_report(here, "a.json", 1.0, 0.8, 1.25), predicted_report(here, "b.json", 1.1, 0.9, 1.4)
    fields = json.loads((here / second).read_text(encoding="utf-8"))
    fields["prediction"]["calibrated"] = "2025-02-28"
    (here / second).write_text(json.dumps(fields), encoding="utf-8")
    found = diff(first, second)
    assert found.predicted_seconds is None
    assert any("another calibration" in note for note in found.notes)
