"""A training plan: shares, activations and time by hand, and its reports."""

import json
import re

import msgspec
import pytest

import xfcost
from helpers import stdout_of, xf
from strategies import stack, stored
from xfcost.api.runs import make_run
from xfcost.ledger.device import Device, DeviceFigure, DeviceGroup
from xfcost.ledger.errors import UsageError
from xfcost.ledger.execution import CHECKPOINTS
from xfcost.parts.training.plan import ModelStates, stage_memories, step_batch
from xfcost.parts.training.result import Mesh
from xfcost.parts.training.text import days_text, device_days_text
from xfcost.questions.check.result import BudgetFigure
from xfcost.spec.load import load
from xfcost.spec.placement import place

GIB = 2**30
# 24 blocks of width 2048, N = 2048; 12·d² weights of a block, its biases and norms.
XL = {"mode": "train", "dtype": "bfloat16", "attention": "eager", "trace": False}
D, N, BLOCKS, HEADS = 2048, 2048, 24, 16
WEIGHTS = 12 * D * D
TABLES = (50257 * D, 2048 * D)


def device(*, memory: float = 80e9, price: float | None = None) -> Device:
    figures = {"bandwidth": DeviceFigure(value=2e12, sources=()), "memory": DeviceFigure(value=memory, sources=())}
    peaks = {"bfloat16": DeviceFigure(value=100e12, sources=())}
    return Device(name="one", title="One", vendor="None", peaks=peaks, price_per_hour=price, **figures)


def group(count: int = 8, **figures) -> DeviceGroup:
    return DeviceGroup(device=device(**figures), count=count)


def planned(spec: str = "gpt3-xl", *, on: DeviceGroup | None = None, **options):
    ledger = xfcost.analyze(spec, on=on or group(), **(XL | options))
    return ledger.training.plan


@pytest.mark.parametrize(("zero", "expected"), [(0, 16.0), (1, 4 + 12 / 8), (2, 2 + 14 / 8), (3, 16 / 8)])
def test_zero_shares_out_what_its_table_says(zero, expected):
    plan = planned(zero=zero)
    params = xfcost.analyze("gpt3-xl", trace=False).total("params")
    assert plan.memory.states == pytest.approx(expected * params, abs=8)
    assert plan.bytes_per_parameter == 16


def test_float32_gradients_are_18_bytes_and_float32_parameters_have_no_master_copy():
    assert planned(gradients="float32").bytes_per_parameter == 18
    peaks = {"float32": DeviceFigure(value=1e12, sources=())}
    on = Device(name="one", title="One", vendor="None", bandwidth=DeviceFigure(value=1e12, sources=()), peaks=peaks)
    plan = planned(on=DeviceGroup(device=on), dtype="float32")
    assert (plan.bytes_per_parameter, plan.memory.master, plan.fits, plan.device_bytes) == (16, 0, None, None)


def test_a_part_that_is_not_shared_out_stays_whole():
    assert ModelStates(100, 100, 200, 400).among(3, 1) == (100, 100, 67, 134)
    assert ModelStates(100, 100, 200, None).among(4, 3) == (25, 25, 50, None)


def test_tensor_parallelism_divides_maps_and_vocabulary_and_leaves_norms_and_positions():
    maps = BLOCKS * (WEIGHTS + 9 * D) + TABLES[0]
    whole = BLOCKS * 4 * D + 2 * D + TABLES[1]
    assert planned().memory.parameters == 2 * (maps + whole)
    assert planned(tensor_parallel=4).memory.parameters == 2 * (maps // 4 + whole)
    # LLaMA 7B's head has a table of its own: 32 blocks of 4·d² and 3·d·11008 weights, and 65 RMS norms
    maps, norms = 32 * (4 * 4096**2 + 3 * 4096 * 11008) + 2 * 32000 * 4096, 65 * 4096
    assert planned("llama-7b", tensor_parallel=8).memory.parameters == 2 * (maps // 8 + norms)


def test_a_pipeline_has_equal_blocks_and_a_copy_of_the_shared_table_at_both_ends():
    block = WEIGHTS + 13 * D
    outside = {1: TABLES[0] + TABLES[1], 2: 0, 4: TABLES[0] + 2 * D}  # the third holds what the second does
    found = {memory.pipeline_stage: memory.parameters for memory in _stages(pipeline=4)}
    assert found == {stage: 2 * (BLOCKS // 4 * block + more) for stage, more in outside.items()}
    assert planned(pipeline=4).memory.pipeline_stage == 1


def _stages(pipeline: int, name: str = "gpt3-xl"):
    ledger = xfcost.analyze(name, **XL)
    run = make_run(mode="train", dtype="bfloat16", attention="eager")
    architecture = place(load(name), run)
    mesh = Mesh(on=group(), pipeline=pipeline)
    return stage_memories(ledger, architecture, ledger.training.step, mesh, micro_batches=8)


SOME = (
    "axial-transformer-imagenet64", "t5-small", "swin-t", "mixtral-8x7b", "deepseek-v2-lite", "reformer-enwik8",
    "resnet-50", "bloom-560m", "gpt3-175b-banded", "mamba-130m", "conformer-s", "vit-b16",
)  # fmt: skip


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
@pytest.mark.parametrize("name", SOME)
def test_rows_and_step_have_what_one_device_holds_and_computes(name, checkpoint):
    ledger = xfcost.analyze(name, on=group(1), checkpoint=checkpoint, **XL)
    plan, step = ledger.training.plan, ledger.training.step
    assert plan.memory.parameters == step.params_bytes
    assert plan.memory.activations == step.kept_bytes == ledger.total("kept_bytes")
    assert plan.memory.recomputed == step.recomputed_bytes
    assert plan.step_flops + plan.recomputed_flops == step.model_flops


@pytest.mark.parametrize("name", SOME)
def test_pipeline_stages_hold_all_blocks_and_layers_once(name):
    ledger = xfcost.analyze(name, **XL)
    if sum(stage["blocks"] for stage in ledger.metadata.stages) % 2:
        with pytest.raises(UsageError):
            planned(name, pipeline=2)
        return
    first, *second = _stages(2, name)
    total, tables = ledger.training.step.params_bytes, ledger.total("params", lambda row: row.component == "shared")
    held = first.parameters + sum(memory.parameters for memory in second)
    # of stages that hold the same the first is shown; a table that both halves use is held twice
    assert (held if second else 2 * held) in (total, total + 2 * tables)


def _kept(where=None, spec="gpt3-xl", **options) -> int:
    return xfcost.analyze(spec, **(XL | options)).total("kept_bytes", where)


def test_selective_recomputation_keeps_no_attention_matrix_or_mask_and_one_comes_back():
    matrices = 2 * HEADS * N * N + N * N  # bfloat16, and the causal mask of all heads, a byte for each pair
    memory = planned(checkpoint="selective").memory
    assert memory.activations == _kept() - BLOCKS * matrices
    assert memory.recomputed == matrices


def test_full_recomputation_keeps_the_input_of_every_block_and_one_block_comes_back():
    memory = planned(checkpoint="full").memory
    assert memory.activations == _kept(lambda row: not row.in_block) + BLOCKS * 2 * N * D
    assert memory.recomputed == _kept(lambda row: row.in_block) // BLOCKS - 2 * N * D  # its input is saved anyway
    outside = _kept(lambda row: not row.in_block, batch=3)
    assert planned(checkpoint="full", batch=3).memory.activations == outside + BLOCKS * 3 * 2 * N * D
    outside = _kept(lambda row: not row.in_block, "vit-b16")  # 196 patches and [CLS], of width 768
    assert planned("vit-b16", checkpoint="full").memory.activations == outside + 12 * 2 * 197 * 768


def test_full_recomputation_divides_the_inputs_of_blocks_where_tokens_are_divided():
    outside = _kept(lambda row: not row.in_block)
    plans = [planned(tensor_parallel=8, sequence_parallel=one, checkpoint="full") for one in (False, True)]
    assert [plan.memory.activations - outside for plan in plans] == [BLOCKS * 2 * N * D, BLOCKS * 2 * N * D // 8]


def test_of_unlike_blocks_the_one_that_saves_most_comes_back():
    # blocks are recomputed one after the other: Swin's of the first stage, whose 56² tokens of width 96 are the most
    ledger = xfcost.analyze("swin-t", **XL)
    saved = {}
    for row in ledger.rows:
        if row.in_block:
            saved[row.block] = saved.get(row.block, 0) + row.figure("kept_bytes") // row.times
    assert len(set(saved.values())) == 4
    recomputed = planned("swin-t", checkpoint="full").memory.recomputed
    assert recomputed == max(saved.values()) - 2 * 56**2 * 96 == saved["stage 1 · W-MSA"] - 2 * 56**2 * 96


def test_tensor_parallelism_leaves_inputs_of_norms_and_first_maps_whole_and_sequence_parallelism_divides_them():
    outside = _kept(lambda row: not row.in_block)
    # two norms and their statistics, inputs of QKV and of the MLP
    whole = _kept(lambda row: row.in_block and (row.role == "norm" or row.operation in {"qkv", "fc1"}))
    masks = BLOCKS * N * N  # one for all heads of a block, whole on every device
    inside = _kept(lambda row: row.in_block) - whole - masks
    assert whole > 4 * BLOCKS * 2 * N * D
    assert planned(tensor_parallel=8).memory.activations == outside + whole + masks + inside // 8
    divided = planned(tensor_parallel=8, sequence_parallel=True).memory.activations
    assert divided == outside + masks + (whole + inside) // 8


def test_tensor_parallelism_does_not_divide_the_causal_mask_of_all_heads():
    # 175B: 96 blocks of 96 heads; what grows with t = 8 against an eighth of t = 1 is what every device holds whole:
    # with sequence parallelism only masks in blocks, 96·2048² bytes = 0.375 GiB, and what stands outside them
    one, eight = (planned("gpt3-175b", tensor_parallel=t, sequence_parallel=t > 1).memory for t in (1, 8))
    outside = xfcost.analyze("gpt3-175b", **XL).total("kept_bytes", lambda row: not row.in_block)
    assert eight.activations - outside - (one.activations - outside) // 8 == 96 * 2048**2 * 7 // 8
    assert 96 * 2048**2 == 0.375 * 2**30


def test_the_first_pipeline_stage_holds_as_many_micro_batches_as_there_are_stages():
    inside = _kept(lambda row: row.in_block)
    embedding = _kept(lambda row: row.component.startswith("embed"))
    few = planned(pipeline=4, global_batch=2 * 2 * N)
    assert few.micro_batches == 2
    assert few.memory.activations == 2 * (inside // 4 + embedding)
    assert planned(pipeline=4).memory.activations == inside + 4 * embedding


def test_logits_of_the_loss_are_float32_on_the_last_stage():
    assert planned().memory.logits == 4 * N * 50257
    assert planned(batch=3).memory.logits == 4 * 3 * N * 50257
    assert planned(tensor_parallel=8).memory.logits == -(-4 * N * 50257 // 8)
    assert planned(pipeline=8).memory.logits == 0
    assert [memory.logits for memory in _stages(pipeline=2)] == [0, 4 * N * 50257]


def test_fused_attention_keeps_no_matrix_that_selective_recomputation_could_drop():
    plans = [planned(attention="fused", checkpoint=one) for one in ("none", "selective")]
    assert plans[0].memory.activations == plans[1].memory.activations
    assert plans[0].recomputed_flops == plans[1].recomputed_flops


# a block's products of one sample: 12·d² per token, 2·N·d of attention; the head's N·d·V
MATMULS = BLOCKS * N * WEIGHTS
ATTENTION = BLOCKS * 2 * N * N * D
HEAD = N * D * 50257


def test_model_flops_and_what_each_recomputation_adds():
    model = 6 * (MATMULS + ATTENTION + HEAD)
    for checkpoint, again in (("none", 0), ("selective", 2 * ATTENTION), ("full", 2 * (MATMULS + ATTENTION))):
        plan = planned(checkpoint=checkpoint)
        assert (plan.step_flops, plan.recomputed_flops) == (8 * model, 8 * again)
    fused = planned(attention="fused")
    assert (fused.step_flops, fused.recomputed_flops) == (8 * model, 8 * ATTENTION)


@pytest.mark.parametrize("attention", ["eager", "fused"])
def test_reversible_blocks_run_again_and_fused_ones_compute_their_scores_once_more(attention, tmp_path):
    # 3 blocks of 16 tokens of width 12: per token 4·d² of attention, 4·d² of an MLP of 2·d; 2·N²·d of both products;
    # the head's N·d·11. A block is run again from its output, and the fused backward computes QKᵀ of N²·d once more.
    over = {"residual": {"form": "reversible", "join": "mean"}, "head": {"kind": "language_model"}}
    block = ({"kind": "full", "heads": 3}, {"kind": "mlp", "ratio": 2})
    file = stored(stack(*block, dim=12, depth=3, length=16, **over), tmp_path)
    blocks, products = 3 * 16 * 8 * 12**2, 3 * 2 * 16**2 * 12
    plan = planned(file, attention=attention)
    assert plan.step_flops == 8 * 6 * (blocks + products + 16 * 12 * 11)
    assert plan.recomputed_flops == 8 * 2 * (blocks + products + (products // 2 if attention == "fused" else 0))


def test_days_are_model_flops_over_utilisation_peak_and_devices():
    plan = planned(tokens=300e9, mfu="40%", checkpoint="full", on=group(price=2))
    model, again = 6 * (MATMULS + ATTENTION + HEAD), 2 * (MATMULS + ATTENTION)
    steps = -(-300_000_000_000 // (8 * N))
    (one,) = plan.at
    seconds = 8 * model / (0.4 * 100e12 * 8)
    assert plan.steps == steps
    assert one.step_seconds == pytest.approx(seconds)
    assert one.days == pytest.approx(steps * seconds / 86400)
    assert one.device_days == pytest.approx(8 * one.days)
    assert one.cost == pytest.approx(one.device_days * 24 * 2)
    assert one.hfu == pytest.approx(0.4 * (model + again) / model)
    assert one.recomputation_days == pytest.approx(one.days * again / (model + again))


@pytest.mark.parametrize("options", [{}, {"checkpoint": "full"}, {"checkpoint": "selective"}, {"attention": "fused"}])
def test_the_lower_bound_counts_pairs_that_the_mask_keeps_and_no_recomputation(options):
    plan = planned(tokens=300e9, **options)
    attention = BLOCKS * N * (N + 1) * D  # half of the square, and its diagonal
    assert plan.least_step_flops == 8 * 6 * (MATMULS + attention + HEAD)
    assert plan.least_recomputed_flops == 8 * {"full": 2 * (MATMULS + attention), "selective": 2 * attention}.get(
        options.get("checkpoint"), attention if options else 0
    )
    assert plan.bound_step_seconds == pytest.approx(plan.least_step_flops / 800e12)
    assert plan.bound_days == pytest.approx(plan.least_run_flops / 800e12 / 86400)


def test_without_a_mask_all_pairs_count_in_the_lower_bound():
    plan = planned("vit-b16", attention="fused")
    assert plan.least_step_flops == plan.step_flops
    assert plan.least_recomputed_flops == plan.recomputed_flops > 0


def test_a_utilisation_above_the_peak_by_the_dense_count_is_one_where_masked_scores_can_be_skipped():
    long = {"attention": "fused", "mfu": 0.98, "on": group(memory=1e15)}
    plan = planned("llama3-8b", N=131072, **long)
    assert plan.at[0].hfu == pytest.approx(1.114, abs=1e-3)
    assert plan.at[0].step_seconds > plan.bound_step_seconds
    with pytest.raises(UsageError, match=r"100\.6% .* 99\.3%"):
        planned("vit-b16", **(long | {"mfu": 0.999}))


def test_a_global_batch_changes_steps_and_not_days():
    small, large = (planned(tokens=2**36, mfu=0.4, global_batch=size) for size in (2**17, 2**20))
    assert (small.micro_batches, large.micro_batches) == (8, 64)
    assert (small.steps, large.steps) == (2**19, 2**16)
    assert small.at[0].days == pytest.approx(large.at[0].days)


def test_a_range_goes_from_low_to_high_and_none_gives_three_with_their_sources():
    assert [one.mfu for one in planned(mfu="35%:50%").at] == [0.35, 0.5]
    assert [one.mfu for one in planned(mfu="50%:50%").at] == [0.5]
    assert [one.mfu for one in planned(mfu=(0.35, 0.5)).at] == [0.35, 0.5]
    three = planned().at
    assert [one.mfu for one in three] == [0.3, 0.4, 0.5]
    assert all("et al." in one.in_print or "Team" in one.in_print for one in three)
    assert planned(mfu=0.5).at[0].in_print is None


def test_a_utilisation_leaves_out_what_fused_attention_recomputes():
    options = {"mode": "train", "dtype": "bfloat16", "trace": False, "tokens": 300e9, "devices": 8}
    eager, fused = (
        xfcost.analyze("gpt3-xl", attention=attention, peak="100T", mfu=0.4, **options).training.run
        for attention in ("eager", "fused")
    )
    assert fused.flops > eager.flops
    assert fused.flops - fused.recomputed_flops == eager.flops
    assert fused.days == eager.days
    sustained = xfcost.analyze("gpt3-xl", attention="fused", sustained="40T", **options).training.run
    assert sustained.seconds == pytest.approx(eager.flops / (40e12 * 8))


# GPT-2's step of 32 · 1024 tokens: three forward passes; fused attention computes N²·d scores of 12 blocks again.
FORWARD = 2 * (32 * 1024 * (12 * 12 * 768**2 + 768 * 50257) + 12 * 2 * 32 * 1024**2 * 768)
SCORES = 2 * 12 * 32 * 1024**2 * 768
MASKED = 3 * 2 * SCORES * 1023 / 2048
STEPS = {
    "dense": (3 * FORWARD, 3 * FORWARD + SCORES),
    "kept": (3 * FORWARD - MASKED, 3 * FORWARD - MASKED + SCORES * 1025 / 2048),
    "6nd": (6 * 124_439_808 * 32_768, 3 * FORWARD + SCORES),
}


@pytest.mark.parametrize("where", [{"on": "a100-sxm-80"}, {"peak": "312T"}], ids=["on", "peak"])
@pytest.mark.parametrize("convention", STEPS)
def test_a_measured_step_has_its_utilisation(where, convention):
    run = {"mode": "train", "N": 1024, "batch": 32, "flops": convention, "step_time": "210ms", "trace": False}
    ledger = xfcost.analyze("gpt2", tokens=10 * 32_768, **run, **where)
    whole, (model, computed) = 0.21 * 312e12, STEPS[convention]
    found = json.loads(ledger.to_json())["step_time"]
    assert (found["seconds"], found["mbu"], found["peak"]) == (0.21, None, 312e12)
    assert (found["mfu"], found["model_flops"]) == (pytest.approx(model / whole), model)
    assert found["hfu"] == pytest.approx(computed / whole)
    assert found["of_bound"] == pytest.approx(STEPS["kept"][0] / whole)
    assert ledger.training.run.days == pytest.approx(10 * 0.21 / 86_400)
    if ledger.training.plan is not None:
        (at,) = ledger.training.plan.at
        assert (at.step_seconds, at.mfu, at.hfu) == (0.21, found["mfu"], pytest.approx(found["hfu"]))


def test_a_measured_pass_is_held_to_the_bound():
    ledger = xfcost.analyze("gpt2", N=512, mode="prefill", on="h100-sxmx2", step_time=0.003)
    found, (part,) = json.loads(ledger.to_json())["step_time"], ledger.on.parts
    assert found["of_bound"] == pytest.approx(ledger.on.seconds / 0.003)
    assert found["mfu"] == pytest.approx(part.flops / 0.003 / (2 * 989.4e12), rel=1e-3)
    assert found["mbu"] == pytest.approx(part.bytes / 0.003 / (2 * 3.35e12), rel=1e-3)
    assert (found["hfu"], found["recomputes"]) == (None, False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "--step-time 3ms: needs the peak that it is a share of, as in --on h100-sxm"),
        ({"mode": "train"}, "--step-time 3ms: needs the peak"),
        ({"mode": "train", "on": "h100-sxm", "mfu": "40%"}, "--mfu 40% and --step-time"),
        ({"on": "h100-sxm", "device": "cpu"}, "--device cpu and --step-time"),
        ({"on": "h100-sxm,l4"}, "--step-time: needs one device, and --on has 2"),
        ({"mode": "decode", "draft": "ngram", "on": "h100-sxm"}, "--step-time 3ms: rounds of --draft"),
    ],
)
def test_a_measured_step_that_says_nothing_is_refused(options, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        xfcost.analyze("gpt2", step_time="3ms", **options)


def test_run_and_plan_count_the_same_model_flops():
    options = XL | {"attention": "fused", "tokens": 2**36, "global_batch": 2**20, "mfu": 0.4}
    ledger = xfcost.analyze("gpt3-xl", on=group(), **options)
    run, plan = ledger.training.run, ledger.training.plan
    assert run.days == pytest.approx(plan.at[0].days)
    assert (run.steps, run.flops - run.recomputed_flops) == (plan.steps, plan.run_flops)
    assert run.without_recomputation.flops == plan.run_flops
    assert run.without_recomputation.without_params_flops == 6 * ATTENTION * 2**36 // N


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_with_a_remedy_it_fits_and_no_option_that_was_given_is_taken_back(zero, checkpoint):
    for gib in (3, 6, 8, 12, 20):
        plan = planned(on=group(memory=gib * GIB), zero=zero, checkpoint=checkpoint)
        options = dict(one.removeprefix("--").split() for one in plan.remedies)
        made = {"zero": int(options.get("zero", zero)), "checkpoint": options.get("recompute", checkpoint)}
        count = int(options.get("on", "onex8").removeprefix("onex"))
        mended = planned(on=group(count, memory=gib * GIB), **made)
        assert mended.fits is (plan.fits or bool(plan.remedies))
        assert made["zero"] >= zero
        assert CHECKPOINTS.index(made["checkpoint"]) >= CHECKPOINTS.index(checkpoint)


def test_a_plan_that_does_not_fit_says_of_which_memory():
    """The device of these tests has its label alone."""
    plan = planned(on=group(memory=16e9))
    assert plan.shortage.endswith(" too much for 14.90 GiB (nominal) of each")
    usable = msgspec.structs.replace(device(memory=16e9), memory_kind="usable")
    assert planned(on=DeviceGroup(device=usable, count=8)).shortage.endswith(" too much for 14.90 GiB of each")


def test_compute_does_not_depend_on_memory():
    small, large = (
        json.loads(
            xfcost.analyze(
                "gpt3-xl", on=group(memory=memory, price=2.0), tokens=10**12, mfu="30%:50%", **XL
            ).to_json()
        )["training"]["plan"]
        for memory in (4e9, 400e9)
    )  # fmt: skip
    assert (small["fits"], large["fits"]) == (False, True)
    assert small["shortage"].startswith("does not fit: ")
    assert large["shortage"] is None
    for name in ("at", "bound_step_seconds", "bound_days", "evidence"):
        assert small[name] == large[name], name
    assert small["at"][0]["days"] > small["bound_days"] > 0


def test_the_first_remedy_is_the_first_way_that_fits():
    """Tried one by one, with p = 4 stages: on more devices a step of 16 sequences has fewer micro-batches in flight."""
    ways = [(zero, "none") for zero in (1, 2, 3)] + [(zero, "selective") for zero in (0, 1, 3)]
    ways += [(zero, "full") for zero in range(4)]
    options = {"pipeline": 4, "global_batch": 16 * N, "settings": ["input.vocabulary=1000"]}
    for more in (4, 8):
        memory = planned(on=group(8 * more), zero=3, checkpoint="full", **options).memory.known
        plan = planned(on=group(8, memory=memory), **options)
        tried = ((times, *way) for times in (1, 2, 4, 8) for way in ways)
        first = next(
            (times, zero, checkpoint)
            for times, zero, checkpoint in tried
            if planned(on=group(8 * times, memory=memory), zero=zero, checkpoint=checkpoint, **options).fits
        )
        found = dict(one.removeprefix("--").split() for one in plan.remedies)
        count = int(found.get("on", "onex8").removeprefix("onex"))
        assert (count // 8, int(found.get("zero", 0)), found.get("recompute", "none")) == first


def test_a_remedy_adds_to_what_is_given():
    # states of 1.3 G parameters: 2.45 GiB with --zero 3; the matrices of 24 layers, 24 · 2 · 16 · 2048² bytes, 3 GiB
    tight = planned(on=group(memory=8 * GIB), zero=3)
    assert tight.remedies == ("--recompute selective",)
    assert planned(on=group(memory=20 * GIB), checkpoint="full").remedies == ("--zero 1",)
    # 8 samples in a step are one for each of 8 devices, and more devices have nothing to share
    assert planned(on=group(memory=GIB), global_batch=8 * N).remedies == ()


def test_without_a_trace_the_states_of_adafactor_are_not_known():
    plan = planned("gpt3-xl", optimizer="adafactor")
    assert (plan.memory.optimizer, plan.memory.states, plan.fits, plan.bytes_per_parameter) == (None,) * 4
    assert planned("gpt3-xl", optimizer="adafactor", on=group(memory=GIB)).fits is False


@pytest.mark.parametrize(
    ("seconds", "words", "devices", "short"),
    [
        (12_345 * 86_400, "12,345 days", "12,345 device-days, 296,280 device-hours", "12,345"),
        (129_600, "1.5 days", "1.5 device-days, 36 device-hours", "1.5"),
        (86_400, "1 day", "1 device-days, 24 device-hours", "1"),
        (86_399, "24 hours", "24 device-hours", "24 h"),
        (5400, "1.5 hours", "1.5 device-hours", "1.5 h"),
        (3599, "59.98 minutes", "59.98 device-minutes", "59.98 min"),
        (90, "1.5 minutes", "1.5 device-minutes", "1.5 min"),
        (60, "1 minute", "1 device-minutes", "1 min"),
        (30, "30.0 s", "30.0 s of one device", "30.0 s"),
    ],
)
def test_a_time_is_in_the_largest_unit_that_is_not_longer(seconds, words, devices, short):
    days = seconds / 86_400
    assert (days_text(days), device_days_text([days]), days_text(days, "")) == (words, devices, short)


def test_every_report_counts_the_logits_of_the_loss():
    options = XL | {"attention": "fused"}
    alone, on = xfcost.analyze("gpt2", **options), xfcost.analyze("gpt2", on=group(1), **options)
    step, logits = alone.training.step, 4 * 1024 * 50257
    assert step.loss_logits_bytes == logits
    assert step.total_with_loss_bytes == step.total_bytes + logits == on.training.plan.memory.known
    assert xfcost.analyze("vit-b16", **options).training.step.loss_logits_bytes == 0


def test_logits_that_outweigh_all_else_are_no_operation_s():
    parts = {"saved activations": 3, "parameters, gradients and optimizer": 2, "logits of the loss": 5}
    figure = BudgetFigure(10, "memory", parts)
    assert figure.largest == "saved activations"


def test_json_has_every_part_and_compare_s_csv_too():
    options = ("--mode", "train", "--tokens", "1B", "--on", "a100-sxm-80x8", "--dtype", "bf16", "--mfu", "40%")
    plan = json.loads(xf("analyze", "gpt3-xl", *options, "--format", "json").stdout)["training"]["plan"]
    parts = ("parameters", "gradients", "master", "optimizer", "activations", "recomputed", "logits")
    assert sum(plan["memory"][part] for part in parts) == plan["memory"]["total"]
    assert plan["spare_bytes"] == plan["device_bytes"] - plan["memory"]["total"]
    assert (plan["device"], plan["devices"], plan["data"], plan["fits"]) == ("a100-sxm-80", 8, 8, True)
    lines = xf("compare", "gpt3-xl", "gpt2-xl", *options, "--format", "csv").stdout.splitlines()
    columns = dict(zip(lines[0].split(","), lines[1].split(","), strict=True))
    assert int(columns["device_bytes"]) == plan["memory"]["total"]
    assert int(columns["device_optimizer_bytes"]) == plan["memory"]["optimizer"]
    assert float(columns["run_days"]) == pytest.approx(plan["at"][0]["days"])


def test_a_global_batch_is_rounded_to_whole_samples():
    mesh = Mesh(on=group(8), global_batch=10**6)
    assert step_batch(mesh, 1, 2048) == (61, 488)
    assert step_batch(Mesh(on=group(8), pipeline=4), 3, 2048) == (4, 24)


def test_a_run_of_hardly_any_tokens_is_asked_about():
    # 124.4 M parameters of GPT-2: 12,444 tokens would be a ten-thousandth of them
    for tokens, few in (("12k", True), ("13k", False)):
        assert ("are few" in stdout_of("analyze", "gpt2", "--mode", "train", "--no-trace", "--tokens", tokens)) == few
