"""`xfcost measure --check`: predicted seconds beside measured ones."""

import json
from pathlib import Path

import msgspec
import pytest

from calibrated import keep_calibration
from helpers import error_of, stdout_of
from measured import measured, row, spec_file
from xfcost.api.measuring.row import relative_pace
from xfcost.ledger.timing_plan import USUAL
from xfcost.views.measurements import document

SWEEP = ("A.yaml", "--N", "16", "--runs", "1", "--threads", "1", "--check", "--save", "runs.jsonl")


def test_the_table_has_the_errors_and_sums_them_up() -> None:
    # half a second measured: predicted 0.55 and 0.4, so +10 % and -20 %; the median of 10 and 20 is 15 %
    rows = [
        row("A", 16, msgspec.structs.replace(measured(0.5), predicted_seconds=0.55)),
        row("A", 64, msgspec.structs.replace(measured(0.5), predicted_seconds=0.4)),
        row("A", 256, measured(0.5)),
    ]
    text = " ".join(document(rows).text("table").split())
    assert "+10.0%" in text
    assert "-20.0%" in text
    assert "2 rows: median error 15.0%, nine in ten within 20.0%" in text
    assert "predicted s" not in document(rows[2:]).text("table")
    first, second = (line.split(",") for line in document(rows[:1]).text("csv").splitlines())
    assert second[first.index("predicted_seconds")] == "0.55"


def test_rows_at_another_pace_are_told() -> None:
    rows = [
        row("A", n, msgspec.structs.replace(measured(0.5), predicted_seconds=0.5, pace=pace))
        for n, pace in ((16, 1.25), (64, 1.01), (256, 0.8))
    ]
    text = " ".join(document(rows).text("table").split())
    assert "2 of 3 rows ran while the machine took 0.80 to 1.25 times as long as during its calibration" in text
    assert "times as long" not in document(rows[1:2]).text("table")
    header, line = (line.split(",") for line in document(rows[:1]).text("csv").splitlines())
    assert line[header.index("pace")] == "1.25"


def test_a_pace_is_that_of_the_reference_product_over_the_calibration_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_calibration(tmp_path, monkeypatch, pace=2e-3)
    monkeypatch.setattr("xfcost.torch_models.predicting.calibrate.pace", lambda *_: 3e-3)
    configuration = row("A", 16, measured(0.5)).configuration
    checked = USUAL._replace(threads=1, checks=True)
    assert relative_pace(configuration, checked) == pytest.approx(1.5)
    assert relative_pace(configuration, USUAL) is None
    keep_calibration(tmp_path, monkeypatch)  # measured no pace
    assert relative_pace(configuration, checked) is None


def test_without_a_calibration_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    spec_file(tmp_path, "A")
    done = error_of("measure", *SWEEP, cwd=tmp_path)
    assert done.startswith("error: --check: ")
    assert "is not calibrated" in " ".join(done.split())
    assert not (tmp_path / "runs.jsonl").exists()


def test_a_row_is_predicted_and_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_calibration(tmp_path, monkeypatch, samples=(), pace=1e-3)
    spec_file(tmp_path, "A")
    assert "predicted against measured seconds, 1 row:" in " ".join(stdout_of("measure", *SWEEP, cwd=tmp_path).split())
    (kept,) = (json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()[1:])
    assert kept["outcome"]["predicted_seconds"] > kept["counted"]["macs"] / 1e9
    assert kept["outcome"]["pace"] > 0
