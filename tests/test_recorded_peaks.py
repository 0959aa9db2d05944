"""Memory of runs on `meta`, against what torch's allocator gave out and reserved when they were recorded on an H100."""

import csv
from pathlib import Path

import pytest
import torch
from torch import nn

import xfcost
from xfcost.torch_models.memory.allocator import reserved_bytes
from xfcost.torch_models.memory.peak import peak_of_call, peak_of_forward, reserved_range
from xfcost.torch_models.memory.training_step import Stepping

# max_memory_allocated during one call in eager PyTorch 2.11 (an H200 gave the same within 0.9 %), and memory_reserved
# after it. All ran in one process: a block that a model leaves taken keeps its segment, of up to 2 GiB here.
with (Path(__file__).parent / "data" / "gpu" / "peaks.csv").open(encoding="utf-8") as file:
    RECORDED = list(csv.DictReader(file))
# Their convolutions have workspaces that live tensors don't: 0.84 to 0.89 of the recorded peak.
WITH_WORKSPACES = {"regnety-1.6gf", "efficientnet-b0"}


MIB = 2**20


def on_meta(row):
    run = {"batch": int(row["batch"]), "mode": row["mode"], "dtype": row["dtype"], "attention": row["attention"]}
    live = xfcost.build(row["preset"], device="meta", **run, **({"N": int(row["N"])} if row["N"] else {}))
    if row["mode"] == "train":
        return Stepping(live, "adamw", lists=True).peak()
    return peak_of_forward(live.model, live.inputs)


def ratio(row):
    return on_meta(row).live / int(row["peak"])


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
def test_nine_in_ten_recorded_peaks_are_predicted_within_a_twentieth_and_none_reserves_less():
    runs = [on_meta(row) for row in RECORDED]
    ratios = [(one.live / int(row["peak"]), row["preset"]) for one, row in zip(runs, RECORDED, strict=True)]
    assert len(ratios) == 153
    assert sum(abs(found - 1) <= 0.05 for found, _ in ratios) >= 0.9 * len(ratios)
    assert all(0.84 <= found <= 1.1 for found, _ in ratios)
    assert {preset for found, preset in ratios if found < 0.9} == WITH_WORKSPACES
    # no process reserved less; those in bfloat16 were built in float32 first
    plain = [(one, row) for one, row in zip(runs, RECORDED, strict=True) if row["dtype"] == "float32"]
    assert len(plain) == 80
    bounds = [(*reserved_range(one), int(row["reserved"])) for one, row in plain]
    assert all(low <= recorded for low, _, recorded in bounds)
    # most no more than the range; the others hold segments in which an earlier model had left a block
    assert sum(recorded <= high for _, high, recorded in bounds) / len(plain) >= 0.7


@pytest.mark.parametrize(
    "row",
    [chosen("pvt-v2-b2", batch="1"), chosen("vgg-11", batch="8"), chosen("vit-ti16", batch="8", mode="train")],
    ids=lambda row: f"{row['preset']}-{row['mode']}",
)
def test_torch_reserves_what_its_rules_say_and_two_workspaces(row):
    # of cuBLAS and cuBLASLt, 32 MiB each
    assert on_meta(row).reserved + 64 * MIB == int(row["reserved"])


def test_blocks_of_segments_are_split_and_merged_again():
    # 1 MiB: a segment of 2 MiB, whose other half holds the next
    assert reserved_bytes([(0, MIB), (1, MIB)], []) == 2 * MIB
    # 9 MiB twice: one segment of 20 MiB, with 2 MiB left for a third tensor
    large = [(0, 9 * MIB), (1, 9 * MIB), (2, 2 * MIB)]
    assert reserved_bytes(large, []) == 20 * MIB
    # without the first two there are 18 MiB at its start; a tensor of 19 MiB gets a segment of its own
    freed = [(0, -9 * MIB), (1, -9 * MIB)]
    assert reserved_bytes([*large, *freed, (3, 18 * MIB)], []) == 20 * MIB
    assert reserved_bytes([*large, *freed, (3, 18 * MIB + 1)], []) == (20 + 20) * MIB
    # 30.5 MiB: whole 2 MiB, and what is left, half a MiB, is too little for a large tensor to split off
    assert reserved_bytes([(0, 61 * MIB // 2), (1, MIB // 2)], []) == (32 + 2) * MIB


def test_a_second_call_may_reserve_more_than_the_first():
    # x of 12 MiB lies alone; once it is freed, y of 11 MiB takes its segment, and the next x needs another
    call = [(0, 12 * MIB), (0, -12 * MIB), (1, 11 * MIB), (2, 12 * MIB), (1, -11 * MIB), (2, -12 * MIB)]
    assert reserved_bytes([], call) == (12 + 12) * MIB


def test_a_state_that_each_call_replaces_is_reserved_once_more():
    class Stateful(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("state", torch.zeros(3 * MIB, device="meta"))

        def forward(self, x):
            self.state = self.state + x

    # 12 MiB each: x, the old state and the new one; later calls find the block of the state before
    x = torch.zeros(3 * MIB, device="meta")
    model = Stateful()
    found = peak_of_call(lambda: model(x), model, (x,))
    assert (found.live, found.reserved) == (36 * MIB, 36 * MIB)
