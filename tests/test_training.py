"""A step of training and a whole run: by hand, against the walk of the real model, and what is refused."""

import json
import math
import re
from collections import Counter
from functools import partial
from pathlib import Path

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import xfcost
from helpers import error_of
from saved import saved_bytes
from specs import WHOLE, architecture_of, thinned
from strategies import placed, stack, stored
from xfcost.api.runs import make_plan
from xfcost.counting.forward import count
from xfcost.formulas.optimizers import OPTIMIZERS
from xfcost.ledger.accounts import TrainingFigures
from xfcost.ledger.errors import UsageError
from xfcost.ledger.join import with_backward
from xfcost.ledger.ledger import Ledger, Metadata
from xfcost.ledger.operation import Operation
from xfcost.parts.training.result import RunPlan
from xfcost.parts.training.step import with_training
from xfcost.torch_models import accounts
from xfcost.torch_models.accounts import traced
from xfcost.torch_models.build import build
from xfcost.torch_models.memory.training_step import Lion, adafactor_states
from xfcost.torch_models.memory.training_step import optimizer as optimizer_of
from xfcost.torch_models.running.by_row import dispatch, trained_rows
from xfcost.torch_models.running.loops import MOST_STEPS
from xfcost.torch_models.running.recorder import Recorder
from xfcost.torch_models.shared.recurrence import in_few_steps

MLP = {"kind": "mlp", "ratio": 4}
FULL = {"kind": "full", "heads": 2}


def trained(data: dict, folder: Path, **more):
    return xfcost.analyze(stored(data, folder), mode="train", **more)


tokens = partial(stack, length=3, vocabulary=10)


def by_operation(ledger):
    return {row.operation: row for row in ledger.rows}


def test_a_linear_map_by_hand(tmp_path):
    # 3 tokens, 2 samples: y = xW, 4 -> 16: 3·2·4·16 = 384 MACs; the gradients of x and of W as many each.
    ledger = trained(tokens(MLP, dim=4, depth=5), tmp_path, batch=2)
    row = by_operation(ledger)["fc1"]
    assert (row.macs, row.backward_macs, row.training.traced_backward_macs, row.times) == (384, 768, 768, 5)
    assert ledger.total("backward_macs") == 2 * ledger.total("macs") == ledger.total("traced_backward_macs")
    # fc1 is the first to keep what the norm gave (3·2·4 numbers of 4 bytes); fc2 what the activation gave
    assert row.training.kept_bytes == 5 * 3 * 2 * 4 * 4
    assert by_operation(ledger)["fc2"].training.kept_bytes == 5 * 3 * 2 * 16 * 4


def test_attention_by_hand(tmp_path):
    # scores: 2 samples × 3·3 pairs × width 4 = 72 MACs; gradients of Q and of K as many each.
    eager = by_operation(trained(tokens(FULL, dim=4), tmp_path, batch=2))
    assert [(eager[name].macs, eager[name].backward_macs) for name in ("scores", "weighted_sum")] == [(72, 144)] * 2
    assert eager["softmax"].training.kept_bytes == 2 * 2 * 3 * 3 * 4  # 2 samples, 2 heads, 9 pairs
    # fused: the scores again, and four gradients: 5·72
    fused = by_operation(trained(tokens(FULL, dim=4), tmp_path, batch=2, attention="fused"))["attention"]
    assert (fused.macs, fused.backward_macs, fused.training.traced_backward_macs) == (144, 360, 360)
    # Q and the output, a log-sum-exp per query; K and V are views of what Q is a view of
    assert fused.training.kept_bytes == 2 * 3 * (3 * 4 + 4) * 4 + 2 * 2 * 3 * 4


def test_pixels_have_no_gradient(tmp_path):
    # 8×8 pixels in patches of 4: 4 tokens of 48 numbers to width 6: 4·48·6 = 1152 MACs, and again for W's gradient.
    spec = stack(MLP, dim=6, input={"kind": "image", "size": 8}, embed=[{"kind": "patch", "size": 4}])
    ledger = trained(spec, tmp_path)
    row = by_operation(ledger)["projection"]
    assert (row.macs, row.times_over("backward_macs"), row.training.traced_backward_macs) == (1152, 1152, 1152)
    assert row.training.kept_bytes == 8 * 8 * 3 * 4  # the image itself
    assert ledger.agreement.exact


@pytest.mark.parametrize("residual", ["none", {"place": "post"}, {"place": "pre"}, {"norm": "none"}])
@pytest.mark.parametrize("mixer", [FULL, {"kind": "lsh", "heads": 2, "bucket": 2, "rounds": 1}, MLP])
def test_vectors_without_a_entry_have_no_gradient_in_the_first_block_alone(mixer, residual, tmp_path):
    vectors = {"kind": "vectors", "channels": 4, "length": 8}
    ledger = trained(stack(mixer, dim=4, depth=3, input=vectors, embed=[], residual=residual), tmp_path)
    assert ledger.agreement.exact, ledger.agreement
    assert any(row.training.saved_macs for row in ledger.rows) == (residual != {"place": "pre"})


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_a_recurrence_s_first_state_has_no_gradient(cell, tmp_path):
    ledger = trained(tokens({"kind": cell}, dim=4, residual="none"), tmp_path)
    gates = {"rnn": 1, "lstm": 4, "gru": 3}[cell]
    row = by_operation(ledger)["recurrence"]
    # 3 steps of g·4·4 MACs, gradients of h and of W: 6, but for h_0
    assert (row.macs, row.backward_macs) == (3 * gates * 16, 5 * gates * 16)
    assert ledger.agreement.exact


@pytest.mark.parametrize("name", sorted(set(WHOLE))[::3])
def test_both_accounts_of_a_backward_pass_agree_in_families(name):
    architecture = thinned(architecture_of(name))
    ledger = with_training(count(architecture), architecture, RunPlan())
    live = build(architecture)
    live.model.requires_grad_()
    ran = dispatch(live.model, live.inputs, backward=True)
    found = with_backward(ledger, *trained_rows(live.model, ran, live.rows))
    assert found.agreement.exact, found.agreement


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        *(("gpt3-small", "train"), ("swin-t", "train"), ("reformer-enwik8", "forward")),
        *(("seq2seq-lstm", "forward"), ("switch-base-8", "train")),
    ],
)
def test_a_few_of_repeated_blocks_give_the_ledger_of_all(name, mode, monkeypatch) -> None:
    architecture = architecture_of(
        name, mode=mode, tokens=(256,) if name in {"gpt3-small", "reformer-enwik8"} else None
    )
    ledger = count(architecture, orders=False)
    ledger = with_training(ledger, architecture, RunPlan(optimizer="adafactor")) if mode == "train" else ledger
    few = traced(architecture, ledger)
    monkeypatch.setattr(accounts, "thinned", lambda whole: (whole, {}))
    assert few.agreement.exact
    assert few == traced(architecture, ledger)


@pytest.mark.parametrize("name", ["vit-s8", "gpt2", "t5-small", "transformer-base", "swin-t"])
def test_the_walk_is_torch_s_own_counter_forwards_and_backwards(name):
    live = build(architecture_of(name, tokens=None))
    live.model.requires_grad_()
    found = dispatch(live.model, live.inputs, backward=True)
    for parameter in live.model.parameters():
        parameter.grad = None
    with FlopCounterMode(display=False) as counter:
        live.model(*live.inputs).sum().backward()
    forward = sum(one["macs"] for one in found.costs_by_module().values())
    assert 2 * (forward + found.backward_by_module().total()) == counter.get_total_flops()


def test_groups_of_a_convolution_are_not_forgotten():
    # 5 positions, 3 taps, 4 channels in 2 groups: 5·3·2·4 = 120 MACs; torch's formula says 240 for the weights
    with torch.device("meta"):
        model, x = nn.Conv1d(4, 4, 3, groups=2, bias=False), torch.randn(1, 4, 7, requires_grad=True)
    found = dispatch(nn.Sequential(model), (x,), backward=True)
    assert (found.costs_by_module()["0"]["macs"], found.backward_by_module()["0"]) == (120, 240)
    with torch.device("meta"):
        model, x = nn.ConvTranspose1d(4, 6, 3, groups=2, bias=False), torch.randn(1, 4, 7, requires_grad=True)
    # 7 positions that enter, 3 taps, 4·3 weights of a tap
    found = dispatch(nn.Sequential(model), (x,), backward=True)
    assert found.backward_by_module()["0"] == 2 * 7 * 3 * 4 * 3


@pytest.mark.parametrize("name", ["vit-s8", "gpt2", "swin-t", "t5-small", "resnet-50", "mixer-b16", "perceiver-io"])
def test_what_is_kept_is_what_autograd_saves(name):
    live = build(architecture_of(name))
    live.model.requires_grad_()
    saved = dispatch(live.model, live.inputs, backward=True).saved_by_module()
    assert saved.total() == saved_bytes(live.model, live.inputs) > 0


LOOPS = [{"kind": kind} for kind in ("gru", "mamba")]
LOOPS += [
    {"kind": "retention", "heads": 2} | form for form in ({"form": "recurrent"}, {"form": "chunkwise", "chunk": 2})
]


@pytest.mark.parametrize("mixer", LOOPS, ids=str)
def test_a_loop_of_many_steps_costs_what_a_few_say(mixer, tmp_path):
    spec = stack(mixer, dim=4, depth=2, residual="none")
    live = build(placed(spec, tmp_path, tokens=(MOST_STEPS + 7,), batch=2))
    live.model.requires_grad_()
    quick = dispatch(live.model, live.inputs, backward=True)

    class Whole(type(live.model)):
        def forward(self, *inputs):
            with in_few_steps(lambda loop, shapes, args: loop(*args)):
                return super().forward(*inputs)

    live.model.__class__ = Whole
    whole = dispatch(live.model, live.inputs, backward=True)
    for fold in ("costs_by_module", "backward_by_module", "saved_by_module"):
        assert getattr(quick, fold)() == getattr(whole, fold)()
    assert quick.saved_by_module().total() == saved_bytes(live.model, live.inputs)


@pytest.mark.parametrize("shared", [1, 2])
def test_the_kernel_on_meta_costs_what_torch_s_formula_for_flash_attention_says(shared):
    with torch.device("meta"):
        q = torch.randn(2, 4, 8, 16, requires_grad=True)
        k, v = (torch.randn(2, 4 // shared, 12, 16, requires_grad=True) for _ in range(2))
    recorder = Recorder()
    with recorder.modes():
        recorder.differentiate(nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=shared > 1))
    macs = Counter()
    for call in recorder.run.calls:
        macs.update({call.phase: call.costs["macs"]} if call.costs["macs"] else {})
    product = 2 * 4 * 8 * 12 * 16
    assert macs == {"forward": 2 * product, "backward": 5 * product}
    assert (q.grad.shape, k.grad.shape) == (q.shape, k.shape)


def step_of(optimizer, dtype, folder, **more):
    ledger = trained(tokens(FULL, MLP, dim=4, depth=2), folder, optimizer=optimizer, dtype=dtype, **more)
    return ledger, ledger.training.step


def test_mixed_precision_with_adam_takes_16_bytes_per_parameter(tmp_path):
    # Rajbhandari et al. 2020, §3.1: 2 + 2 for parameters and gradients, 4 + 4 + 4 for their copy, mean and variance
    for dtype in ("bfloat16", "float16"):
        ledger, step = step_of("adamw", dtype, tmp_path)
        assert step.fixed_bytes == 16 * ledger.total("params")
        assert step.total_bytes == step.fixed_bytes + ledger.total("kept_bytes")


def test_optimizer_states_by_hand(tmp_path):
    numbers = {"sgd": 0, "momentum": 1, "lion": 1, "adamw": 2}
    for name, each in numbers.items():
        ledger, step = step_of(name, "float32", tmp_path, trace=False)
        params = ledger.total("params")
        assert (step.optimizer_bytes, step.master_bytes) == (4 * each * params, 0)
        assert step.update_flops == OPTIMIZERS[name].flops * params
    _, step = step_of("adamw", "float64", tmp_path, trace=False)
    assert step.optimizer_bytes == 2 * 8 * params
    _, step = step_of("adafactor", "float32", tmp_path, trace=False)
    assert step.optimizer_bytes is None
    assert step.total_bytes is None


def test_adafactor_s_states_by_hand(tmp_path):
    # embedding 10×4: 14; per block: norms 4·4 numbers, qkv 12×4 + 12: 28, out 4×4 + 4: 12, fc1 16×4 + 16: 36,
    # fc2 4×16 + 4: 24; two blocks: 14 + 2·(16 + 28 + 12 + 36 + 24)
    _, step = step_of("adafactor", "float32", tmp_path)
    assert step.optimizer_bytes == 4 * (14 + 2 * (16 + 28 + 12 + 36 + 24))


def test_adafactor_s_states_are_torch_s():
    model = nn.Sequential(nn.Conv2d(3, 5, 3), nn.Flatten(), nn.Linear(5 * 36, 7))
    optimizer = torch.optim.Adafactor(model.parameters())
    model(torch.randn(1, 3, 8, 8)).sum().backward()
    optimizer.step()
    states = (part for state in optimizer.state.values() for key, part in state.items() if key != "step")
    assert adafactor_states(model.parameters()) == sum(part.numel() for part in states)


def test_a_whole_run_by_hand(tmp_path):
    # One batch is 2·3 tokens: 100 tokens are 17 steps. 2 blocks of fc1 and fc2: 2·2·6·64 MACs forward, thrice in all.
    ledger = trained(tokens(MLP, dim=4, depth=2), tmp_path, batch=2, tokens=100, sustained=1e3, devices=4)
    run = ledger.training.run
    assert ledger.total("macs") == 1536
    assert (run.steps, run.flops) == (17, 17 * 2 * 3 * 1536)
    assert run.estimate == 6 * ledger.total("params") * 100
    assert run.flops == run.with_params_flops + run.without_params_flops
    assert run.without_params_flops == 0
    assert run.seconds == run.flops / 4000
    assert run.days == run.seconds / 86400
    assert run.device_days == 4 * run.days


def test_the_tokens_of_a_step_are_those_of_both_streams():
    # three samples of 512 tokens in the encoder and in the decoder
    assert xfcost.analyze("t5-small", mode="train", batch=3, trace=False).training.step.tokens == 3 * 2 * 512


@given(
    d=st.integers(1, 10**12), devices=st.integers(1, 10**5), rate=st.floats(1, 1e18), batch=st.sampled_from([1, 3, 8])
)
def test_a_run_grows_with_its_tokens(d, devices, rate, batch):
    architecture = architecture_of("gpt2", batch=batch)
    plan = make_plan("train", tokens=d, devices=devices, sustained=rate)
    training = with_training(count(architecture), architecture, plan).training
    assert (training.run.steps - 1) * training.step.tokens < d <= training.run.steps * training.step.tokens
    assert training.run.flops == training.run.steps * training.step.model_flops
    assert math.isclose(training.run.device_days, training.run.flops / plan.rate / 86400)


@pytest.mark.parametrize("bad", ["0", "", True, math.nan, -3, "३"])
@pytest.mark.parametrize("option", ["tokens", "sustained", "devices"])
def test_bad_numbers_are_refused(option, bad):
    with pytest.raises(UsageError, match=f"--{option} "):
        make_plan("train", **{"tokens": 10, "sustained": 10, "devices": 1} | {option: bad})


def test_a_peak_and_its_utilisation_are_a_rate():
    # 312 TFLOP/s · 0.4 = 124.8 TFLOP/s, which is what one device does all the time.
    for mfu in (0.4, "0.4", "40%", "40 %"):
        plan = make_plan("train", tokens="300B", peak="312T", mfu=mfu, devices=8)
        assert (plan.rate, plan.peak, plan.mfu) == (pytest.approx(124.8e12), 312e12, 0.4)
    plain = make_plan("train", tokens="300B", sustained="124.8 TFLOP/s", devices=8)
    assert (plain.rate, plain.peak, plain.mfu) == (124.8e12, None, None)
    ledgers = [
        xfcost.analyze("gpt2", mode="train", tokens="300B", devices=8, trace=False, **speed)
        for speed in ({"peak": "312T", "mfu": 0.5}, {"sustained": 156e12})
    ]
    assert ledgers[0].training.run.days == ledgers[1].training.run.days
    told = json.loads(ledgers[0].to_json())["training"]["run"]
    assert (told["rate"], told["peak"], told["mfu"]) == (156e12, 312e12, 0.5)


@pytest.mark.parametrize("bad", [0, -0.1, 1.01, "40", True, math.nan])
def test_a_bad_utilisation_is_refused(bad):
    with pytest.raises(UsageError, match="--mfu "):
        make_plan("train", tokens="300B", peak="312T", mfu=bad)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_step_is_timed_and_its_memory_was_predicted(optimizer, tmp_path):
    ledger = trained(tokens(FULL, MLP, depth=2), tmp_path, optimizer=optimizer, trace=False, device="cpu", runs=1)
    timing = ledger.timing
    assert timing.seconds > 0
    assert timing.peak_bytes == timing.predicted_peak_bytes
    # parameters, gradients and states are there, and activations beside them
    numbers = OPTIMIZERS[optimizer].numbers or 0
    assert timing.peak_bytes > (2 + numbers) * 4 * ledger.total("params")


@pytest.mark.parametrize("how", [{"attention": "fused"}, {"dtype": "bfloat16"}])
def test_what_a_device_does_in_other_kernels_takes_no_more_than_was_predicted(how, tmp_path):
    timing = trained(tokens(FULL, MLP, depth=2), tmp_path, trace=False, device="cpu", runs=1, **how).timing
    assert 0.9 * timing.predicted_peak_bytes < timing.peak_bytes <= timing.predicted_peak_bytes


def test_momentum_by_hand():
    # a gradient of 1 in each step: the average is 1, then 0.9·1 + 1, then 0.9·1.9 + 1
    model = nn.Linear(1, 1, bias=False)
    momentum, start = optimizer_of("momentum", model, lists=False), model.weight.item()
    momentum.param_groups[0]["lr"] = 0.5
    for moved in (1, 1 + 1.9, 1 + 1.9 + 2.71):
        model.weight.grad = torch.ones(1, 1)
        momentum.step()
        assert start - model.weight.item() == pytest.approx(0.5 * moved, rel=1e-4)


def test_states_of_optimizers_that_run_are_as_many_as_predicted():
    # 3·2 weights and 2 biases, of 4 bytes: SGD has no state, momentum and Lion one number for each
    for name, each in {"sgd": 0, "momentum": 1, "lion": 1}.items():
        model = nn.Linear(3, 2)
        made = optimizer_of(name, model, lists=False)
        model(torch.ones(4, 3)).sum().backward()
        made.step()
        held = [part for state in made.state.values() for part in state.values() if torch.is_tensor(part)]
        assert sum(part.numel() for part in held) == each * 8, name


def test_lion_is_its_paper_s_algorithm():
    """Chen et al. 2023, algorithm 2, number by number: β₁ = 0.9 in the update, β₂ = 0.99 in the average, λ = 0.01."""
    torch.manual_seed(0)
    gradients = torch.randn(40, 5, dtype=torch.float64).tolist()
    weight = nn.Parameter(torch.ones(5, dtype=torch.float64))
    lion = Lion([weight], lr=0.1)
    for row in gradients:
        weight.grad = torch.tensor(row, dtype=torch.float64)
        lion.step()
    for column, trained in zip(zip(*gradients, strict=True), weight.tolist(), strict=True):
        w, m = 1.0, 0.0
        for g in column:
            c = 0.9 * m + 0.1 * g
            w -= 0.1 * (math.copysign(1, c) + 0.01 * w)
            m = 0.99 * m + 0.01 * g
        assert trained == pytest.approx(w)


def test_what_does_not_fit_is_refused_before_it_is_built():
    told = error_of("analyze", "gpt3-175b", "--mode", "train", "--no-trace", "--device", "cpu")
    assert re.search(r"for a step of training on cpu, and .+ leaves? [\d,]+ bytes", told)


def test_the_estimate_of_a_mixture_takes_the_parameters_that_a_token_uses() -> None:
    """Mixtral: 6 · 12,879,925,248 · D, not 6 · 46,702,792,704 · D."""
    ledger = xfcost.analyze("mixtral-8x7b", N=512, mode="train", trace=False, tokens=10**12)
    assert ledger.training.run.estimate == 6 * 12_879_925_248 * 10**12
    assert ledger.training.run.flops == pytest.approx(ledger.training.run.estimate, rel=0.03)


def test_a_difference_of_backward_passes_is_told():
    row = Operation(path="it.fc", title="fc", macs=5, backward_macs=10, times=3)
    ledger = Ledger(metadata=Metadata(name="one", tokens="", grid_tokens=1), rows=(row,))
    assert with_backward(ledger, {"it.fc": [10, 10, 10]}, {}).agreement.exact
    for blocks in ([10, 10], [10, 10, 9], [9, 10, 10], [12, 9, 9]):
        found = with_backward(ledger, {"it.fc": blocks}, {}).agreement
        assert found.differences == (
            {"path": "it.fc", "quantity": "backward_macs", "counted": 30, "traced": sum(blocks)},
        )
        assert not found.exact
    saving = ledger.part([msgspec.structs.replace(row, training=TrainingFigures(saved_macs=5))])
    assert with_backward(saving, {"it.fc": [5, 10, 10]}, {}).agreement.exact
    assert not with_backward(saving, {"it.fc": [10, 10, 5]}, {}).agreement.exact
