"""`analyze --trace-file`: slices of a timeline add up to the seconds of the rows, in the order of the model."""

import json

import msgspec
import pytest

import xfcost
from helpers import error_of, xf
from xfcost.ledger.errors import UsageError
from xfcost.ledger.metadata import Timing
from xfcost.parts.timing.timeline import timeline


def timed(**more):
    """ViT of 1 token, whose k-th row takes k ms in each of its blocks, and 5 ms that no row has."""
    ledger = xfcost.analyze("vit", N=1, trace=False)
    rows = tuple(msgspec.structs.replace(row, seconds=number / 1e3) for number, row in enumerate(ledger.rows, 1))
    timing = Timing(device="cpu", machine="this", seconds=1.0, spread=0.0, runs=3, threads=1, not_attributed=0.005)
    return msgspec.structs.replace(ledger, rows=rows, timing=timing, **more)


def test_slices_are_the_rows_in_order_as_often_as_they_run():
    ledger = timed()
    slices = [one for one in json.loads(timeline(ledger))["traceEvents"] if one["ph"] == "X"]
    operations = [one for one in slices if "path" in one["args"]]
    by_path = {row.path: row for row in ledger.rows}
    assert len(operations) == sum(row.times for row in ledger.rows)
    assert {one["args"]["path"]: one["dur"] for one in operations} == pytest.approx(
        {path: row.seconds * 1e6 for path, row in by_path.items()}
    )
    ends = [one["ts"] + one["dur"] for one in operations]
    assert [one["ts"] for one in operations[1:]] == pytest.approx(ends[:-1])
    assert sum(one["args"]["macs"] for one in operations) == ledger.total("macs")
    assert slices[-1]["name"] == "not attributed"
    assert slices[-1]["dur"] == pytest.approx(5000)
    blocks = [one["name"] for one in slices if one["name"].startswith("stage 1 · Self-attention")]
    assert blocks == [f"stage 1 · Self-attention {number}" for number in range(1, 13)]


def test_a_run_that_was_not_timed_has_none(tmp_path):
    with pytest.raises(UsageError, match="add --device"):
        timeline(xfcost.analyze("vit", N=1, trace=False))
    assert "--trace-file" in error_of("analyze", "vit", "--trace-file", tmp_path / "t.json")
    assert not list(tmp_path.iterdir())


def test_the_command_writes_it_once(tmp_path):
    words = ("analyze", "vit", "--N", "1", "--device", "cpu", "--runs", "1", "--trace-file", tmp_path / "t.json")
    assert xf(*words).returncode == 0
    assert json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))["otherData"]["device"] == "cpu"
    assert "t.json" in error_of(*words)
