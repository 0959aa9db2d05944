"""Memory of runs on `meta`, against what torch's allocator gave out and reserved when they were recorded on an H100."""

import csv
from pathlib import Path

import pytest

import xfcost
from xfcost.parts.timing.text import RESERVED_MORE, RESERVED_RUNS
from xfcost.torch_models.memory.peak import peak_bytes
from xfcost.torch_models.memory.training_step import Stepping

# max_memory_allocated during one call in eager PyTorch 2.11 (an H200 gave the same within 0.9 %), and memory_reserved
# after it. All ran in one process: a block that a model leaves taken keeps its segment, of up to 2 GiB here.
with (Path(__file__).parent / "data" / "gpu" / "peaks.csv").open(encoding="utf-8") as file:
    RECORDED = list(csv.DictReader(file))
# Their convolutions have workspaces that live tensors don't: 0.84 to 0.89 of the recorded peak.
WITH_WORKSPACES = {"regnety-1.6gf", "efficientnet-b0"}


def on_meta(row):
    run = {"batch": int(row["batch"]), "mode": row["mode"], "dtype": row["dtype"], "attention": row["attention"]}
    live = xfcost.build(row["preset"], device="meta", **run, **({"N": int(row["N"])} if row["N"] else {}))
    if row["mode"] == "train":
        return Stepping(live, "adamw", lists=True).peak()
    return peak_bytes(live.model, live.inputs)


def ratio(row):
    return on_meta(row) / int(row["peak"])


def chosen(preset, **fields):
    (row,) = (row for row in RECORDED if row["preset"] == preset and fields.items() <= row.items())
    return row


@pytest.mark.parametrize(
    "row",
    [
        chosen("vit-s8", batch="1", dtype="float32"),
        # the kernel keeps no matrix, although a bias is added to its scores
        chosen("swin-t", batch="8", dtype="float32", attention="fused"),
        chosen("vit-s8", mode="train", dtype="bfloat16"),
    ],
    ids=lambda row: f"{row['preset']}-{row['mode']}",
)
def test_live_tensors_are_the_peak(row):
    assert ratio(row) == pytest.approx(1, abs=0.05)


@pytest.mark.rest
def test_nine_in_ten_recorded_peaks_are_predicted_within_a_twentieth():
    ratios = [(ratio(row), row["preset"]) for row in RECORDED]
    assert len(ratios) == 153
    assert sum(abs(found - 1) <= 0.05 for found, _ in ratios) >= 0.9 * len(ratios)
    assert all(0.84 <= found <= 1.1 for found, _ in ratios)
    assert {preset for found, preset in ratios if found < 0.9} == WITH_WORKSPACES


def test_reserved_bytes_are_the_recorded_ones():
    # runs in bfloat16 are left out: their models were built in float32 first, which reserves more than they need
    more = [int(row["reserved"]) - int(row["peak"]) for row in RECORDED if row["dtype"] == "float32"]
    assert (len(more), (min(more), max(more))) == (RESERVED_RUNS, RESERVED_MORE)
