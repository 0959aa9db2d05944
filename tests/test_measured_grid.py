"""What `xfcost measure` measures: sizes that each system can have, shared where they can, and their order."""

from pathlib import Path
from typing import Any

import pytest

from measured import spec_file
from xfcost.api.measuring.plan import SweepPlan, SweptSizes, planned, run_of, spec_hash, variants_of
from xfcost.counting.sweep import PIXELS, TOKENS, measured_grids, targets_of
from xfcost.counting.system import SpecSystem
from xfcost.ledger.errors import SpecError, UsageError
from xfcost.ledger.timing_plan import TimingPlan
from xfcost.spec.load import load
from xfcost.spec.run import Run


def points(names: list[str], low: int, high: int, number: int, axis: Any = TOKENS) -> list[list[int]]:
    grids = measured_grids([SpecSystem(load(name)) for name in names], Run(), axis, (low, high), number)
    return [list(grid.points.values()) for grid in grids]


def test_targets_have_equal_ratios_and_both_ends() -> None:
    assert targets_of((64, 16384), 9) == [64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384]
    assert targets_of((64, 64), 9) == [64]
    assert targets_of((64, 128), 1) == [64]
    assert targets_of((1, 3), 9) == [1, 2, 3]


def test_images_take_the_nearest_squares_and_sequences_follow_them() -> None:
    # squares near 64, 128, 256, 512, 1024
    squares = [64, 121, 256, 529, 1024]
    assert points(["gpt2", "vit-s8"], 64, 1024, 5) == [squares, squares]
    # alone, a sequence takes the targets themselves
    assert points(["gpt2"], 64, 1024, 5) == [[64, 128, 256, 512, 1024]]


def test_sides_are_multiples_of_the_patches_of_each() -> None:
    # patches of 16 take what patches of 32 take; the sides 96, 190 and 376 have ratios of about 2
    assert points(["vit-ti16", "vit-ti32"], 96, 376, 3, PIXELS) == [[96, 192, 352], [96, 192, 352]]
    assert points(["vit-ti16"], 96, 376, 3, PIXELS) == [[96, 192, 368]]


def test_what_a_system_can_not_have_is_left_out_with_its_reason() -> None:
    (grid,) = measured_grids([SpecSystem(load("gpt2"))], Run(), TOKENS, (256, 4096), 5)
    assert grid.points == {0: 256, 1: 512, 2: 1024}
    assert list(grid.refused) == [2048, 4096]
    assert "N can be at most 1024" in grid.refused[2048]


def test_the_nearest_possible_size_is_looked_for() -> None:
    # of squares from 33² to 132² MobileViT has those whose sides are 29 to 32 over a multiple of 32
    assert points(["mobilevit-s"], 33**2, 132**2, 2) == [[61**2, 128**2]]


def test_one_size_is_that_one_or_refused() -> None:
    assert points(["vit-s8", "gpt2"], 200, 200, 9) == [[200], [200]]
    with pytest.raises(
        UsageError, match=r"--N 211: ViT-S/8 is measured at square grids, and there is none; the nearest"
    ):
        points(["vit-s8"], 211, 211, 9)


def test_a_system_without_any_size_is_an_error_with_its_reason() -> None:
    with pytest.raises(SpecError, match="N can be at most 1024"):
        points(["gpt2", "vit-s8"], 2048, 4096, 3)


def plan(tmp_path: Path, **options: Any) -> SweepPlan:
    loaded = [load(str(spec_file(tmp_path, name))) for name in "AB"]
    return planned(loaded, SweptSizes(TOKENS, (16, 64), 2), variants_of(options), "cpu", TimingPlan(threads=3))


def test_the_order_is_small_to_large_with_the_systems_in_turns(tmp_path: Path) -> None:
    found = [
        (one.configuration.N, one.configuration.batch, one.configuration.attention, one.configuration.system)
        for one in plan(tmp_path, batch="1,2", attention="eager,fused,eager").planned
    ]
    assert found == [
        (N, batch, attention, system)
        for N in (16, 64)
        for batch in (1, 2)
        for attention in ("eager", "fused")
        for system in "AB"
    ]


def test_a_configuration_says_what_runs_and_is_counted(tmp_path: Path) -> None:
    first = plan(tmp_path, batch="2", mode="prefill", logits="all", dtype="bf16").planned[0]
    one = first.configuration
    assert (one.device, one.threads, one.compiled, one.dtype) == ("cpu", 3, False, "bfloat16")
    assert one.run_options == {"logits": "all"}
    run = run_of(one)
    assert (run.tokens, run.batch, run.dtype, run.mode, run.logits) == ((16,), 2, "bfloat16", "prefill", "all")
    # per block: q, k, v and out 8·8 each, the MLP 2·8·16; scores and weighted sum 16² ·8 each: times 16 tokens, batch 2
    assert first.counted.macs == 2 * (16 * (4 * 64 + 2 * 128) + 2 * 16 * 16 * 8)
    assert first.counted.by_mixing["global"]["macs"] == 2 * 2 * 16 * 16 * 8
    # 2 heads · 16² scores · 2 samples in bfloat16; the softmax's output beside them
    assert first.counted.attention_bytes == 2 * (2 * 16 * 16 * 2) * 2


def test_options_of_a_mode_go_to_the_modes_that_have_them() -> None:
    one, two = variants_of({"mode": "forward,train", "optimizer": "sgd", "logits": None})
    assert one == {"mode": "forward"}
    assert two == {"mode": "train", "optimizer": "sgd"}
    with pytest.raises(UsageError, match="--new-tokens: only for --mode generate; add it"):
        variants_of({"mode": "forward,decode", "new_tokens": "4"})


def test_training_counts_its_backward_pass(tmp_path: Path) -> None:
    forward, step = (plan(tmp_path, mode=mode).planned[0].counted for mode in ("forward", "train"))
    assert step.macs == 3 * forward.macs  # both operands of every product get a gradient
    assert step.attention_bytes == forward.attention_bytes // 2  # one of the two matrices is saved
    assert step.flops is None


@pytest.mark.parametrize("value", ["0", "1,0", "1,", "x"])
def test_a_bad_value_in_a_list_is_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(UsageError, match="--batch"):
        plan(tmp_path, batch=value)


def test_too_many_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="measure: 20,004 configurations, and at most 10,000 are measured"):
        plan(tmp_path, batch=",".join(map(str, range(1, 5002))))


def test_a_mode_that_a_system_has_not_is_refused_before_anything_runs() -> None:
    with pytest.raises(SpecError):
        planned(
            [load("vit-ti32")], SweptSizes(TOKENS, (16, 64), 2), variants_of({"mode": "decode"}), "cpu", TimingPlan()
        )


def test_equal_specs_have_equal_hashes_whatever_they_are_called(tmp_path: Path) -> None:
    one, two = (load(str(spec_file(tmp_path, name))) for name in "AB")
    assert spec_hash(one.spec) == spec_hash(two.spec)
    for setting in ("stages.0.depth=2", "stages.0.pattern.0.0.heads=4", "input.length=32"):
        changed = load(str(tmp_path / "A.yaml"), [setting])
        assert spec_hash(changed.spec) != spec_hash(one.spec), setting
