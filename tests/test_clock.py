"""Timing and memory: exact where a clock is handed in, consistent where a real model runs; composed of blocks."""

import json
from collections import Counter

import pytest
import torch
from torch import nn

from calibrated import Ticks
from helpers import xf
from specs import architecture_of, counted
from xfcost.counting.forward import count
from xfcost.ledger.errors import DeviceError
from xfcost.ledger.join import with_seconds
from xfcost.ledger.metadata import Load, Timing
from xfcost.torch_models.build import build
from xfcost.torch_models.memory.peak import peak_bytes
from xfcost.torch_models.memory.shortage import within_torch
from xfcost.torch_models.timing.devices import check_device
from xfcost.torch_models.timing.kernels import RowSeconds
from xfcost.torch_models.timing.rows import leaves, row_bytes, row_seconds
from xfcost.torch_models.timing.systems import composed, passes, with_distinct_blocks
from xfcost.torch_models.timing.turns import Measured


def hooks_of(model):
    return [hook for module in model.modules() for hook in (*module._forward_hooks, *module._forward_pre_hooks)]


def test_rows_are_timed_by_hooks_with_the_clock_given():
    live = build(architecture_of("vit-ti32"), "cpu")
    seconds = row_seconds(live, lambda: live.model(*live.inputs), Ticks(1.0))
    # Every leaf looks at the clock before and after: one tick, so one second, in each of 12 blocks.
    assert seconds["stages.0.block.0.scores"] == 12.0
    assert seconds["embed.0.projection"] == 1.0
    assert Counter(path for path, _ in leaves(live)) == seconds
    assert not hooks_of(live.model)


def test_rows_of_a_generation_are_those_of_all_its_decode_steps():
    small = ("gpt2", "stages.0.depth=2", "stages.0.dim=48")
    prompt, step = (
        architecture_of(*small, tokens=(8,), mode=mode, attention="eager") for mode in ("prefill", "decode")
    )
    ready = passes(prompt, step, range(8, 11), "cpu", Ticks(1.0), compile_=False)
    seconds = ready.rows().rows
    # a tick in each of 2 blocks: once in the prefill, in three decode steps thrice
    assert seconds["prefill.stages.0.block.0.scores"] == 2.0
    assert seconds["decode.stages.0.block.0.scores"] == 6.0


def test_hooks_are_removed_when_the_model_fails():
    live = build(architecture_of("vit-ti32"), "cpu")
    with pytest.raises(RuntimeError):
        row_seconds(live, lambda: live.model(torch.zeros(1, 3, 7, 7)), Ticks(1.0))
    assert not hooks_of(live.model)


def test_bytes_of_a_row_are_its_inputs_and_outputs():
    live = build(architecture_of("vit-ti32"))
    held = row_bytes(live)
    # Layer norm: 50 tokens of 192 in and out. QKᵀ: Q and K of 50·192 in, 3 heads of 50² out.
    assert held["stages.0.block.0.residual_norm"] == 12 * 4 * 2 * 50 * 192
    assert held["stages.0.block.0.scores"] == 12 * 4 * (2 * 50 * 192 + 3 * 50 * 50)
    assert not hooks_of(live.model)


def test_bytes_of_operands_have_the_weights_that_are_read():
    ledger = counted("gpt2", tokens=(8,))
    timing = Timing(device="cpu", machine="m", seconds=1.0, spread=0.0, runs=1, threads=1)
    paths = [row.path for row in ledger.rows]
    timed = with_seconds(ledger, dict.fromkeys(paths, 0.0), dict.fromkeys(paths, 24), timing)
    held = {row.path: row.operand_bytes for row in timed.rows}
    # 24 bytes of inputs and outputs over 12 blocks or one; then weights, of 4 bytes each.
    assert held["stages.0.block.0.scores"] == 2
    assert held["stages.0.block.1.fc1"] == 2 + 4 * (768 * 3072 + 3072)
    assert held["embed.0.lookup"] == 24 + 4 * 8 * 768  # the rows of 8 tokens, of 50257
    assert held["embed.1.table"] == 24  # a slice of it is its output
    assert held["head.linear"] == 24 + 4 * 50257 * 768  # the embedding's table, which is not its own


def test_a_backward_pass_is_timed_by_the_rows_that_made_its_nodes():
    live = build(architecture_of("vit-ti32", "stages.0.depth=1"), "cpu")
    live.model.train().requires_grad_()
    seconds = row_seconds(live, lambda: live.model(*live.inputs).sum(), Ticks(1.0), backward=True)
    assert not hooks_of(live.model)
    # The sum itself is no row's. The classifier is one product of a matrix and a bias: addmm, the transposed weight,
    # and one node for each of its two parameters; each takes a tick, as its forward does.
    assert seconds["head.linear"] == 1.0 + 4.0
    assert seconds.keys() == dict(leaves(live)).keys()
    # QKᵀ: the batched product, its two operands spread over the batch and laid out, and three views of shapes.
    assert seconds["stages.0.block.0.scores"] == 1.0 + 7.0


def test_peak_bytes_of_a_chain_is_parameters_and_two_neighbours():
    # Linear(4, 8) without bias on (2, 4): weights 32, input 8, output 16 floats; then ReLU makes another 16.
    # Alive at the peak: 32 + 8 + 16 + 16 = 72 floats = 288 bytes.
    model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.ReLU())
    assert peak_bytes(model, (torch.zeros(2, 4),)) == 288


def test_peak_bytes_on_meta_are_those_of_the_cpu():
    # RegNetY has batch norms, whose running statistics are all that a forward needs
    for spec, tokens in (("vit-ti32", 49), ("swin-t", 49), ("regnety-200mf", 1024)):
        architecture = architecture_of(spec, tokens=(tokens,))
        on_meta, on_cpu = (build(architecture, device) for device in ("meta", "cpu"))
        assert peak_bytes(on_meta.model, on_meta.inputs) == peak_bytes(on_cpu.model, on_cpu.inputs)


@pytest.mark.parametrize("spec", ["vit-ti32", "swin-t"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_peak_of_fused_attention_is_within_a_twentieth_of_what_runs(spec, dtype):
    architecture = architecture_of(spec, tokens=(64,), batch=2, attention="fused", dtype=dtype)
    on_meta, on_cpu = (build(architecture, device) for device in ("meta", "cpu"))
    predicted, measured = (peak_bytes(live.model, live.inputs) for live in (on_meta, on_cpu))
    # the CPU decomposes attention with a mask of three axes, which GPUs' kernels take
    assert predicted == pytest.approx(measured, rel=0.05)


# torch.cuda.max_memory_allocated of one forward on an H100 (torch 2.11, CUDA 13.0), libraries' workspaces left out
ON_AN_H100 = [
    ("swin-t", 8, "float32", "fused", 234_038_784),
    ("swin-s", 32, "bfloat16", "fused", 348_465_664),
    ("swin-t", 16, "bfloat16", "eager", 182_074_880),
    ("swinv2-t-w8-256", 32, "bfloat16", "fused", 350_450_176),
    ("vit-s8", 8, "float32", "fused", 209_092_608),
    ("vit-s8", 16, "bfloat16", "eager", 365_924_352),
]


@pytest.mark.parametrize(("preset", "batch", "dtype", "attention", "allocated"), ON_AN_H100)
def test_the_peak_is_what_a_gpu_allocated(preset, batch, dtype, attention, allocated):
    live = build(architecture_of(preset, batch=batch, dtype=dtype, attention=attention))
    assert peak_bytes(live.model, live.inputs) == pytest.approx(allocated, rel=0.05)


@pytest.mark.parametrize("device", ["tpu", "cpu:x", "cuda:99", ""])
def test_devices_that_are_not_there(device):
    with pytest.raises(DeviceError, match="this machine has cpu"):
        check_device(device)


def test_analyze_on_the_cpu_adds_seconds():
    done = xf("analyze", "vit-ti32", "--device", "cpu", "--format", "json", "--runs", "3", "--threads", "1")
    told = json.loads(done.stdout)
    timing = told["timing"]
    assert {name: timing[name] for name in ("device", "threads", "runs", "compiled")} == {
        "device": "cpu", "threads": 1, "runs": 3, "compiled": False,
    }  # fmt: skip
    assert timing["seconds"] > 0
    assert timing["spread"] >= 0
    assert len(timing["times"]) == 3
    # 6,131,560 parameters of 4 bytes are alive throughout.
    assert timing["peak_bytes"] >= 6_131_560 * 4
    assert all(row["seconds"] > 0 for row in told["operations"])
    assert all(row["bytes_per_second"] > 0 for row in told["operations"])
    assert "timing" in done.stderr
    # The rows and the rest are the whole.
    spent = sum(row["seconds"] * row["times"] for row in told["operations"])
    assert spent + timing["not_attributed"] == pytest.approx(timing["seconds"])
    kinds = told["by_mixing"]
    assert sum(kind["seconds"] or 0 for kind in kinds.values()) == pytest.approx(timing["seconds"])
    assert kinds["not attributed"]["seconds"] == timing["not_attributed"]


@pytest.mark.parametrize(
    "mode", [("--mode", "decode"), ("--mode", "train"), ("--mode", "generate", "--new-tokens", "2")]
)
def test_every_mode_has_seconds_of_its_rows(mode):
    small = ("--set", "stages.0.depth=1", "--set", "stages.0.dim=48", "--N", "8")
    done = xf("analyze", "gpt2", *small, *mode, "--no-trace", "--device", "cpu", "--format", "json", "--runs", "1")
    told = json.loads(done.stdout)
    timing = told["timing"]
    # The table of embeddings runs nothing itself: the look-up and the head read it.
    assert all(row["path"].endswith("shared.embedding") for row in told["operations"] if row["seconds"] is None)
    spent = sum((row["seconds"] or 0) * row["times"] for row in told["operations"])
    whole = spent + timing["not_attributed"] + (timing["update_seconds"] or 0)
    assert whole == pytest.approx(timing["seconds"])
    if "train" in mode:
        assert timing["update_seconds"] > 0
    if "generate" in mode:
        assert [phase["name"] for phase in timing["phases"]] == ["prefill", "decode"]
        assert told["generation"]["decode_seconds"] == timing["phases"][1]["seconds"]


def test_what_torch_can_not_number_is_refused_before_it_is_built():
    # 65,536² tokens of one pixel: a score matrix of 4 heads has 4·2⁶⁴ entries.
    ledger = counted("pixels-128", "input.size=65536", "stages.0.depth=1")
    with pytest.raises(DeviceError, match="--no-trace still counts it"), within_torch(ledger):
        pytest.fail("it was built")
    with within_torch(counted("gpt3")):
        pass


def test_rows_count_as_often_as_their_blocks_and_the_rest_grows_with_them():
    # once: 2 + 1 s of rows in 3.3 s; twelve blocks of the first and one of the second: 24 + 1 s, in 25·3.3/3 s
    once = Measured({"": (3.3, 3.3)}, (RowSeconds({"a": 2.0, "b": 1.0}),) * 2, 0.0, Load(), 1, in_turns=False)
    found = composed(once, {"a": 12, "b": 1})
    assert [one.rows for one in found.passes] == [{"a": 24.0, "b": 1.0}] * 2
    assert found.times == pytest.approx((27.5, 27.5))


def test_every_distinct_block_stands_once():
    architecture = architecture_of("swin-t")
    once = with_distinct_blocks(architecture, count(architecture))
    # W-MSA and SW-MSA in each of four stages; 2, 2, 6 and 2 blocks before
    assert [list(stage.order) for stage in architecture.streams[0].stages] == [[0, 1], [0, 1], [0, 1] * 3, [0, 1]]
    assert [list(stage.order) for stage in once.streams[0].stages] == [[0, 1]] * 4
    sizes = [sum(one.numel() for one in build(each).model.parameters()) for each in (architecture, once)]
    rows = count(architecture).rows
    assert sizes[0] - sizes[1] == sum(row.params * 2 for row in rows if row.times == 3)


@pytest.mark.parametrize("name", ["vit-ti32", "swin-t", "gpt2", "t5-small"])
def test_every_row_is_in_the_model_of_distinct_blocks(name):
    architecture = architecture_of(name, tokens=(49,))
    ledger = count(architecture)
    once = count(with_distinct_blocks(architecture, ledger))
    assert [row.path for row in once.rows] == [row.path for row in ledger.rows]
    assert {row.times for row in once.rows} == {1}
