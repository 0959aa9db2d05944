"""A training step of any module: by hand, against torch's counter, against specs; and what a module may do in it."""

import json
from functools import partial
from pathlib import Path

import msgspec
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import xfcost
from any_models import Attention, Pair
from modules import Module
from small_networks import Square
from specs import WHOLE, architecture_of, thinned
from xfcost.api.analysis import account_options
from xfcost.api.systems import module_run, named_module
from xfcost.ledger.errors import UsageError
from xfcost.parts.training.result import RunPlan
from xfcost.spec.targets import ModuleTarget
from xfcost.systems.module import ModuleSystem
from xfcost.torch_models.any_model.ledger import module_ledger
from xfcost.torch_models.build import build
from xfcost.torch_models.running.by_row import dispatch


def two_maps(function):
    """Two maps of width 4, and what `function` makes of them."""
    return Module(function, first=nn.Linear(4, 4, bias=False), second=nn.Linear(4, 4, bias=False))


X = torch.ones(3, 4)
# 3 rows of 4·4 products
MAP = 3 * 16


def trained(module, inputs=X, **more):
    return xfcost.analyze(module, example_inputs=inputs, **{"mode": "train", "trace": False, "mixing": False, **more})


def backward(module, inputs=X):
    return {row.path: row.times_over("backward_macs") for row in trained(module, inputs).rows if row.macs}


# ── by hand ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_two_maps():
    ledger = trained(two_maps(lambda own, x: own.second(own.first(x).relu())))
    # the input needs no gradient; of the second map both do
    assert {row.path: row.backward_macs for row in ledger.rows if row.macs} == {"first.mm": MAP, "second.mm": 2 * MAP}
    step = ledger.training.step
    assert (step.forward_macs, step.backward_macs, step.model_flops) == (2 * MAP, 3 * MAP, 10 * MAP)
    # saved: the input, and the ReLU's result, which the second map takes: 12 numbers of 4 bytes each
    assert {row.path: row.training.kept_bytes for row in ledger.rows} == {"first.mm": 48, "relu": 48, "second.mm": 0}
    assert (step.params_bytes, step.gradients_bytes, step.optimizer_bytes) == (128, 128, 256)
    assert step.total_bytes == 128 + 128 + 256 + 96


def test_the_gradients_of_a_bilinear_map():
    # 8 pairs of 5 and 7 numbers to 3. Forward: 8·3·5·7 products, and 8·3·7 with the second vector. The gradients of the
    # vectors and of the weights: 840 + 8·5·7, 840 + 8·3·7, and 8·5·3 + 840.
    given = tuple(torch.zeros(8, width, requires_grad=True) for width in (5, 7))
    ledger = trained(nn.Bilinear(5, 7, 3, bias=False), given)
    assert ledger.total("macs") == 840 + 168
    assert ledger.total("backward_macs") == (840 + 280) + (840 + 168) + (120 + 840)


def test_a_tensor_in_a_list_learns_as_it_does_outside():
    # the input has no gradient: one product of 3 tokens for that of the map
    ledger = trained(Module(lambda self, x: x @ self.maps[0], maps=[torch.zeros(4, 4, requires_grad=True)]))
    assert ledger.total("backward_macs") == 3 * 4 * 4


def test_a_first_block_saves_the_gradient_of_the_input():
    ledger = trained(nn.Sequential(*(Attention() for _ in range(3))), torch.ones(1, 5, 8))
    row = next(row for row in ledger.rows if row.component.endswith("qkv"))
    assert (row.times, row.macs, row.backward_macs) == (3, 5 * 8 * 24, 2 * 5 * 8 * 24)
    assert row.times_over("backward_macs") == 3 * 2 * row.macs - row.macs


def test_a_recurrent_layer():
    # 3 tokens, 4 gates, maps of 4·4 of the input and of the state; gradients of both maps, and of states but the first
    ledger = trained(nn.LSTM(4, 4, bias=False), torch.ones(3, 1, 4))
    assert (ledger.total("macs"), ledger.total("backward_macs")) == (3 * 128, 3 * 64 + 3 * 64 + 2 * 64)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "momentum", "adafactor", "lion"])
def test_optimizer_states_are_torch_s(optimizer):
    module = two_maps(lambda own, x: own.second(own.first(x)))
    numbers = {"adamw": 2 * 32, "sgd": 0, "momentum": 32, "adafactor": 2 * 8, "lion": 32}[optimizer]
    assert trained(module, optimizer=optimizer).training.step.optimizer_bytes == 4 * numbers


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_states_are_as_wide_as_torch_makes_them(dtype):
    module = two_maps(lambda own, x: own.second(own.first(x))).to(dtype)
    step = trained(module, X.to(dtype)).training.step
    optimizer = torch.optim.AdamW(module.parameters())
    module(X.to(dtype)).sum().backward()
    optimizer.step()
    states = [
        value for one in optimizer.state.values() for value in one.values() if value.dim()
    ]  # not the step's number
    assert step.optimizer_bytes == sum(value.nbytes for value in states)


# ── what a module may do ─────────────────────────────────────────────────────────────────────────────────────────────


def test_frozen_parameters_have_no_gradient_and_no_state():
    module = two_maps(lambda own, x: own.second(own.first(x)))
    module.first.requires_grad_(False)
    ledger = trained(module)
    assert backward(module) == {"first.mm": 0, "second.mm": MAP}
    assert (ledger.training.step.params_bytes, ledger.training.step.gradients_bytes) == (128, 64)


@pytest.mark.parametrize(
    ("function", "macs"),
    [
        (lambda own, x: (own.first(x), [own.second(x), None]), 2 * MAP),
        (lambda own, x: Pair(own.first(x), own.second(x).argmax(-1)), MAP),
        (lambda own, x: {"loss": own.first(x).mean(), "auxiliary": own.second(x)}, MAP),
        (lambda own, x: own.second(own.first(x).relu_().mul_(2)), 3 * MAP),
        (lambda own, x: own.second(own.first(x).detach()), MAP),
    ],
    ids=["several outputs", "a dataclass and an argmax", "a loss alone", "in place", "detached"],
)
def test_outputs(function, macs):
    assert trained(two_maps(function)).total("backward_macs") == macs


@pytest.mark.parametrize(
    "function", [lambda own, x: None, lambda own, x: own.first(x).argmax(-1), lambda own, x: own.first(x).detach()]
)
def test_nothing_to_learn_from_is_refused(function):
    with pytest.raises(UsageError):
        trained(two_maps(function))


def test_a_custom_function_s_own_backward_pass():
    ledger = trained(two_maps(lambda own, x: Square.apply(own.first(x))))
    rows = {row.path: (row.macs, row.backward_macs, row.training.kept_bytes) for row in ledger.rows if row.macs}
    assert rows == {"first.mm": (MAP, MAP, 48), "mm": (9 * 4, 9 * 4, 48)}


def test_a_backward_pass_that_raises_is_one_message():
    class Refuses(Square):
        @staticmethod
        def backward(ctx, gradient: Tensor) -> Tensor:
            raise ValueError("no gradient for you")

    with pytest.raises(UsageError, match=r"does not run on these inputs: ValueError: no gradient for you \(.*:\d+\)"):
        trained(two_maps(lambda own, x: Refuses.apply(own.first(x))))


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_runs_the_forward_again_and_saves_its_input(reentrant):
    def function(own, x):
        return checkpoint(lambda v: own.second(own.first(v).relu()).relu(), x, use_reentrant=reentrant)

    x = X.clone().requires_grad_()
    ledger = trained(two_maps(function), x)
    assert {row.path: row.backward_macs for row in ledger.rows if row.macs} == {
        "first.mm": 3 * MAP,
        "second.mm": 3 * MAP,
    }
    assert ledger.training.step.recomputed_macs == 2 * MAP
    assert ledger.training.step.kept_bytes == 48


def test_checkpointing_of_attention_names_the_same_rows():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    x = torch.ones(1, 5, 8, requires_grad=True)
    plain, again = (
        trained(layer, x),
        trained(Module(lambda self, x: checkpoint(self.layer, x, use_reentrant=False), layer=layer), x),
    )
    assert [row.path for row in again.rows if row.macs] == [f"layer.{row.path}" for row in plain.rows if row.macs]
    assert again.total("backward_macs") == plain.total("backward_macs") + plain.total("macs")


def test_an_unknown_operation_of_the_backward_pass_is_named():
    @torch.library.custom_op("xfcosttest::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    twice.register_fake(torch.empty_like)
    twice.register_autograd(lambda ctx, gradient: torch.ops.xfcosttest.twice(gradient))
    ledger = trained(two_maps(lambda own, x: torch.ops.xfcosttest.twice(own.first(x))))
    assert "xfcosttest::twice in the backward pass" in ledger.module.uncounted


# ── other counts ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0), (2, 5, 8)),
        (nn.Sequential(nn.Conv2d(3, 6, 3, stride=2), nn.BatchNorm2d(6), nn.Flatten(), nn.Linear(54, 5)), (2, 3, 8, 8)),
        (nn.Sequential(nn.Linear(8, 8), nn.GRU(8, 6)), (4, 2, 8)),
    ],
    ids=["encoder layer", "convolutions", "GRU"],
)
def test_it_is_torch_s_own_counter(module, shape):
    module, x = module.to("meta"), torch.empty(shape, device="meta")
    ledger = trained(module, x)
    fused = 0
    with FlopCounterMode(display=False) as counter:
        result = module(x)
        (result[0] if isinstance(result, tuple) else result).sum().backward()
    if isinstance(module, nn.TransformerEncoderLayer):  # a fused kernel computes its scores again
        fused = 2 * 5 * 5 * 8
    assert 2 * (ledger.total("macs") + ledger.total("backward_macs") - fused) == counter.get_total_flops()


SAMPLE = sorted(set(WHOLE))[::12]


@pytest.mark.parametrize("name", SAMPLE)
def test_a_preset_looked_at_without_its_spec(name):
    live = build(thinned(architecture_of(name, attention="fused" if len(name) % 2 else "eager")))
    live.model.train().requires_grad_()
    declared = dispatch(live.model, live.inputs, backward=True)
    found = module_ledger(live.model, tuple(live.inputs), plan=RunPlan(), trace=False)
    totals = [found.total(quantity) for quantity in ("macs", "backward_macs", "kept_bytes")]
    forward = sum(one["macs"] for one in declared.costs_by_module().values())
    assert totals == [forward, declared.backward_by_module().total(), declared.saved_by_module().total()]
    assert found.module.complete


@pytest.mark.rest
@pytest.mark.parametrize(("module", "noted"), [(nn.GRU(4, 4), True), (nn.Linear(4, 4), False)], ids=["gru", "linear"])
def test_a_recurrent_network_of_torch_is_said_to_save_its_steps(module, noted):
    ledger = xfcost.analyze(module, example_inputs=torch.ones(3, 2, 4), mode="train", trace=False)
    assert any("the steps one by one" in note for note in ledger.metadata.notes) == noted
    forward = xfcost.analyze(module, example_inputs=torch.ones(3, 2, 4), trace=False)
    assert not any("the steps one by one" in note for note in forward.metadata.notes)


# ── a whole run, and a plan on devices ───────────────────────────────────────────────────────────────────────────────

CONFIGS = Path(__file__).parent / "data" / "configs"
# What a class saves is its own; of its masks the pairs that are kept are not known.
OWN = {"kept_bytes", "attention_kept_bytes", "memory"}
# From release 5.24 on the class keeps the weights of its routers in float32.
OF_ROUTERS = {"params_bytes", "gradients_bytes", "master_bytes"}
# Config -> options, and fields of a run in which transformers runs something else than the importer's spec.
PLANNED = {
    "gpt2": ({}, set()), "llama-3.2-1b": ({}, set()), "mistral-7b-v0.1": ({}, set()), "mixtral-8x7b": ({}, set()),
    "deepseek-v2-lite": ({}, OF_ROUTERS),
    "t5-small": ({}, {"least_step_flops", "least_recomputed_flops", "kept_flops", "evidence"}),
}  # fmt: skip
QUICK = ("llama-3.2-1b",)


def planned_both_ways(path, **more):
    """A training run of a config by the importer's spec, and by the class of transformers."""
    given = {"mode": "train", "N": 12, "batch": 2, "tokens": 10**9, "on": "h100-sxmx8", "zero": 2, "trace": False}
    given |= more
    target, run = ModuleTarget("config", str(path), "", str(path)), module_run(given, "config", str(path))
    run = run._replace(tokens=(12,))
    module = named_module(target, (), (), 2, run)
    return xfcost.analyze(str(path), **given), ModuleSystem(module).account(run, account_options(given))


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(one, marks=pytest.mark.rest) for one in PLANNED if one not in QUICK)]
)
def test_a_training_run_of_a_config_is_that_of_its_spec(name, tmp_path):
    fields, (options, own) = json.loads((CONFIGS / f"{name}.json").read_text()), PLANNED[name]
    layers = {"num_hidden_layers", "n_layer", "num_layers", "num_decoder_layers"} & fields.keys()
    path = tmp_path / "config.json"
    path.write_text(json.dumps(fields | dict.fromkeys(layers, 2)))
    spec, module = (one.training for one in planned_both_ways(path, **options))
    for part in ("step", "run", "plan"):
        ours, theirs = (msgspec.structs.asdict(getattr(one, part)) for one in (spec, module))
        assert {key: each for key, each in ours.items() if key not in OWN | own} == {
            key: each for key, each in theirs.items() if key not in OWN | own
        }
    memory = [one.plan.memory for one in (spec, module)]
    assert memory[0].logits == memory[1].logits
    assert memory[0].states == memory[1].states or own == OF_ROUTERS


def words(self, input_ids):
    """16 words of width 4, and a score of each."""
    return self.head(self.table(input_ids))


def of_words(**more):
    ids = {"input_ids": torch.zeros(2, 8, dtype=torch.long)}
    return trained(
        Module(words, table=nn.Embedding(16, 4), head=nn.Linear(4, 16, bias=False)).bfloat16(),
        ids,
        tokens=1000,
        on="h100-sxmx4",
        **more,
    )


def test_a_run_of_a_module_on_devices_by_hand():
    plan = of_words(mfu=0.5).training.plan
    # 4 replicas of 2 samples of 8 tokens: 64 tokens a step, 16 steps for 1000; 8·2 tokens of 4·16 MACs, 3 passes
    assert (plan.step_tokens, plan.steps, plan.step_flops) == (64, 16, 4 * 2 * 3 * 16 * 4 * 16)
    assert plan.at[0].step_seconds == pytest.approx(plan.step_flops / (4 * 0.5 * 989.4e12), rel=1e-4)
    # 2·64 parameters: 2 bytes each and of its gradient, 4 of the master copy and of each of Adam's two numbers
    assert plan.memory.states == 2 * 64 * (2 + 2 + 4 + 8)
    shared = of_words(zero=3).training.plan.memory
    assert shared.states == 2 * 64 * (2 + 2 + 4 + 8) // 4


@pytest.mark.parametrize("options", [{"tensor_parallel": 2}, {"pipeline": 2}, {"sequence_parallel": True}])
def test_devices_share_only_the_states_of_a_module(options):
    for run in (of_words, partial(trained, nn.Linear(4, 4), torch.ones(4))):
        with pytest.raises(UsageError, match="for specs only"):
            run(**options)
