"""`--recompute` of any module: which modules run again, what that costs, and transformers' own checkpoints."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import xfcost
from modules import Module
from transformers_models import transformers
from xfcost.api.analysis import account_options
from xfcost.api.systems import module_run, named_module
from xfcost.ledger.errors import UsageError
from xfcost.ledger.model_flops import recomputed_macs
from xfcost.spec.targets import ModuleTarget
from xfcost.systems.module import ModuleSystem

X = torch.ones(3, 4)
# 3 rows of 4·4 products
MAP = 3 * 16


def trained(module, inputs=X, **more):
    return xfcost.analyze(module, example_inputs=inputs, mode="train", trace=False, mixing=False, **more)


def block(function=lambda own, x: own.second(own.first(x).relu()).relu(), **parts):
    return Module(function, first=nn.Linear(4, 4, bias=False), second=nn.Linear(4, 4, bias=False), **parts)


def chain(own, x):
    for one in own.blocks:
        x = one(x)
    return x


def blocks(number=3, **more):
    return Module(chain, blocks=nn.ModuleList(block(**more) for _ in range(number)))


def step_of(module, inputs=X, **more):
    return trained(module, inputs, **more).training.step


def recomputed(module, inputs=X, words="full"):
    """The note on what runs again."""
    [note] = [one for one in trained(module, inputs, checkpoint=words).metadata.notes if "recompute" in one]
    return note.removeprefix("the backward pass recomputes ")


# ── what it costs, by hand ───────────────────────────────────────────────────────────────────────────────────────────


def test_blocks_save_their_inputs_and_run_again():
    step = step_of(blocks(), checkpoint="full")
    # each block saves 12 numbers, and while it runs again what two ReLUs save
    assert (step.recomputed_macs, step.kept_bytes, step.recomputed_bytes) == (3 * 2 * MAP, 3 * 48, 2 * 48)
    assert step.total_bytes == step.fixed_bytes + 3 * 48 + 2 * 48


def test_a_block_that_ends_in_a_product_is_not_run_to_its_end():
    # its result is saved by nobody: torch stops before it
    ledger = trained(blocks(function=lambda own, x: own.second(own.first(x).relu())), checkpoint="full")
    again = {row.path: row.figure("recomputed_macs") for row in ledger.rows if row.macs}
    assert again == {"blocks.*.first.mm": 3 * MAP, "blocks.*.second.mm": 0}


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_in_its_code_holds_as_much(reentrant):
    def checkpointed(own, x):
        for one in own.blocks:
            x = checkpoint(one, x, use_reentrant=reentrant)
        return x

    inputs = torch.ones(3, 4, requires_grad=True)  # a reentrant one asks for it
    assert step_of(Module(checkpointed, blocks=blocks().blocks), inputs).recomputed_bytes == 2 * 48
    # what a function has from outside is there anyway
    outside = Module(
        lambda own, x: checkpoint(lambda: own.block(x), use_reentrant=False), block=block()
    )  # fmt: skip
    assert step_of(outside, inputs).recomputed_bytes == 2 * 48


def test_it_is_the_same_model_with_checkpoints_in_its_code():
    def checkpointed(own, x):
        for one in own.blocks:
            x = checkpoint(one, x, use_reentrant=False)
        return x

    own, ours = trained(Module(checkpointed, blocks=blocks().blocks)), trained(blocks(), checkpoint="full")
    figures = [
        {
            row.path: [row.figure(name) for name in ("backward_macs", "recomputed_macs", "kept_bytes")]
            for row in one.rows
        }
        for one in (own, ours)
    ]
    assert figures[0] == figures[1]
    # what runs again in its code is left to it
    both = trained(Module(checkpointed, blocks=blocks().blocks), checkpoint="full")
    assert any("by the model's own code" in note for note in both.metadata.notes)
    assert both.training.step.recomputed_macs == own.training.step.recomputed_macs
    assert both.training.step.recomputed_bytes == own.training.step.recomputed_bytes == 2 * 48


def test_some_of_several_blocks_run_again():
    ledger = trained(blocks(), checkpoint="blocks.[0-1]")
    assert ledger.training.step.recomputed_macs == 2 * 2 * MAP
    # of the rows of all three blocks, two thirds
    assert sum(row.figure("recomputed_macs") for row in ledger.rows) == 2 * 2 * MAP
    assert ledger.training.step.kept_bytes == 2 * 48 + 3 * 48


def test_what_is_given_by_name_and_learns_is_saved():
    named = Module(
        lambda own, x: own.blocks[1](x=own.blocks[0](x=x)),
        blocks=nn.ModuleList(block(lambda own, x: own.second(own.first(x).relu()).relu()) for _ in range(2)),
    )
    # the first input learns nothing and is held, not saved
    assert step_of(named, checkpoint="full").kept_bytes == 48


def test_a_tensor_that_is_given_twice_stays_one():
    # attention takes one product for queries, keys and values that are the same tensor
    attention = nn.MultiheadAttention(4, 2, bias=False, batch_first=True)
    module = Module(lambda own, x: own.it(x, x, x, need_weights=False)[0].relu(), it=attention)
    ledger = trained(module, torch.ones(1, 3, 4), checkpoint="it")
    rows = {row.path: row.macs for row in ledger.rows if row.macs}
    assert rows == {"it.mm": 3 * MAP, "it.scaled_dot_product_attention": 2 * 3 * 3 * 4, "it.out_proj.mm": MAP}
    # its last product does not run again: the ReLU saves its own result
    assert {row.path: row.figure("recomputed_macs") for row in ledger.rows if row.macs} == rows | {"it.out_proj.mm": 0}


def test_frozen_blocks_are_blocks():
    module = blocks()
    module.blocks[:2].requires_grad_(False)
    assert recomputed(module) == "3 modules (blocks.*)"
    assert not module.blocks[0].first.weight.requires_grad


def test_the_module_is_left_as_it_was():
    module = blocks()
    trained(module, checkpoint="full")
    assert all("forward" not in vars(one) for one in module.modules())
    assert not any(one._forward_hooks or one._forward_pre_hooks for one in module.modules())


def test_a_step_on_the_cpu_holds_less():
    module = Module(chain, blocks=nn.ModuleList(
        nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 8), nn.GELU()) for _ in range(6)
    ))  # fmt: skip
    given = {"inputs": torch.ones(64, 8), "device": "cpu", "runs": 1}
    plain, again = (trained(module, **given, **more).timing for more in ({}, {"checkpoint": "full"}))
    # the hidden layer and its GELU, 64·64 numbers each, of one block and not of six
    assert plain.peak_bytes - again.peak_bytes > 4 * (64 * 64) * 4 * 2
    assert again.predicted_peak_bytes == again.peak_bytes


def test_a_plan_on_devices_has_what_is_recomputed():
    plan = trained(blocks(), on="h100-sxmx4", checkpoint="full").training.plan
    assert (plan.recomputed_flops, plan.memory.recomputed) == (4 * 2 * 3 * 2 * MAP, 2 * 48)
    # forward and backward, but for the gradient of the input
    assert plan.step_flops == 4 * 2 * (3 * 3 * 2 - 1) * MAP
    assert plan.evidence.why_none == "of a module whose number of tokens is not known"
    with pytest.raises(UsageError, match="--global-batch: of this module's step no number of tokens is known"):
        trained(blocks(), on="h100-sxmx4", global_batch="1M")


# ── which modules ────────────────────────────────────────────────────────────────────────────────────────────────────


def heads(own, x):
    return own.out(torch.cat([one(x) for one in own.blocks], -1))


def stages(own, x):
    for stage in own.stages:
        x = stage(x).relu()
    return x


def of_stages(*depths):
    return Module(stages, stages=nn.ModuleList(nn.Sequential(*(block() for _ in range(depth))) for depth in depths))


def unrolled(own, x):
    for attention, mlp in own.layers:
        x = mlp(attention(x) + x) + x
    return x


def turns(own, x):
    for _ in range(4):
        x = own.shared(x)
    return x


def sequence(*parts):
    return nn.Sequential(*parts)


def pair():
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU())


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (lambda: sequence(nn.Linear(4, 4), block(), block(), nn.Linear(4, 4)), "2 modules (1, 2)"),
        (lambda: of_stages(2, 3), "5 modules (stages.*.*)"),
        # a list of one block repeats nothing: its stage does
        (lambda: of_stages(1, 2), "3 modules (stages.0, stages.1.0, stages.1.1)"),
        (
            lambda: Module(chain, blocks=nn.ModuleList(
                Module(heads, blocks=nn.ModuleList(block() for _ in range(3)), out=nn.Linear(12, 4)) for _ in range(2)
            )),
            "2 modules (blocks.*)",
        ),
        (
            lambda: Module(unrolled, layers=nn.ModuleList(nn.ModuleList([block(), pair()]) for _ in range(2))),
            "4 modules (layers.*.*)",
        ),
        (lambda: Module(turns, shared=block()), None),
        (lambda: Module(turns, shared=sequence(block())), "1 module (shared.*)"),
        (
            lambda: Module(chain, blocks=nn.ModuleList(sequence(pair(), pair(), nn.Linear(4, 4)) for _ in range(2))),
            "2 modules (blocks.*)",
        ),
        (lambda: sequence(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)), None),
    ],
    ids=["a list", "stages", "a stage of one", "heads", "lists of lists", "no list", "a shared block", "mixed parts",
         "single layers"],
)  # fmt: skip
def test_the_innermost_repeated_blocks(module, said):
    if said is None:
        with pytest.raises(UsageError, match="has no repeated blocks"):
            recomputed(module())
    else:
        assert recomputed(module()) == said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("blocks.*", "3 modules (blocks.*)"), ("blocks.1", "1 module (blocks.1)"),
        ("blocks.*.first", "3 modules (blocks.*.first)"),
        ("blocks.0,blocks.*.first", "3 modules (blocks.0, blocks.1.first, blocks.2.first)"),
    ],
)  # fmt: skip
def test_modules_by_their_paths(words, said):
    assert recomputed(blocks(), words=words) == said


@pytest.mark.parametrize(
    ("module", "words", "message"),
    [
        (blocks, "block", "--recompute block: expected none, full or paths of modules that run in Module; it could be"),
        (blocks, "selective", "whole modules are recomputed; give full, or the paths of its attention"),
        (blocks, "full!", "--recompute full!: expected none, selective or full, or paths"),
        (lambda: nn.Linear(4, 4), "full", "it has no modules inside that could be recomputed"),
        (lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU()), "full", "it could be 0 or 1$"),
    ],
)  # fmt: skip
def test_what_can_t_be_recomputed(module, words, message):
    with pytest.raises(UsageError, match=message.replace("(", r"\(")):
        trained(module(), checkpoint=words)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"checkpoint": "blocks.*"}, "expected none, selective or full; paths are of torch modules"),
        ({"checkpoint": "full", "device": "cpu"}, "runs without checkpoints; leave --device out"),
        ({"checkpoint": "full", "predict": "cpu"}, "runs without checkpoints; leave --predict out"),
    ],
)
def test_a_spec_has_words_and_runs_without_checkpoints(options, message):
    with pytest.raises(UsageError, match=message):
        xfcost.analyze("vit-ti32", mode="train", **options)


# ── a spec without devices ───────────────────────────────────────────────────────────────────────────────────────────

# Models whose blocks are unlike each other, read an encoder, save no input of a norm, or whose matrices others save.
SPECS = ("gpt2", "swin-t", "t5-small", "bert-base", "cait-m24", "common-linear", "reformer-enwik8")


@pytest.mark.parametrize("attention", ["eager", "fused"])
@pytest.mark.parametrize("words", ["full", "selective"])
@pytest.mark.parametrize("name", SPECS)
def test_a_spec_recomputes_the_same_on_no_device_as_on_one(name, words, attention):
    given = {"mode": "train", "attention": attention, "checkpoint": words, "tokens": "1B", "trace": False}
    ledger, plan = xfcost.analyze(name, **given), xfcost.analyze(name, **given, on="h100-sxm").training.plan
    step, run = ledger.training.step, ledger.training.run
    assert (step.kept_bytes, step.recomputed_bytes) == (plan.memory.activations, plan.memory.recomputed)
    assert step.total_with_loss_bytes == plan.memory.total
    assert (ledger.total("kept_bytes"), ledger.total("backward_macs")) == (step.kept_bytes, step.backward_macs)
    assert all((row.figure("kept_bytes") or 0) >= 0 for row in ledger.rows)
    assert step.model_flops == plan.step_flops + plan.recomputed_flops
    assert 2 * sum(map(recomputed_macs, ledger.rows)) == plan.recomputed_flops
    assert run.recomputed_flops == run.steps * plan.recomputed_flops
    assert run.flops - run.recomputed_flops == plan.run_flops


def test_the_rows_of_a_spec_are_those_that_run_again():
    plain, full = (xfcost.analyze("vit-ti32", mode="train", trace=False, checkpoint=one) for one in ("none", "full"))
    for before, after in zip(plain.rows, full.rows, strict=True):
        again = before.macs if before.in_block else 0
        assert (after.backward_macs or 0) - (before.backward_macs or 0) == again
        assert after.figure("recomputed_macs") == again * before.times
        assert after.recomputed == before.in_block
    norm, *others = [row.figure("kept_bytes") for row in full.rows if row.in_block]
    # the input of 12 blocks, 49 patches and [CLS], 192 wide
    assert (norm, sum(others)) == (12 * 50 * 192 * 4, 0)
    assert full.training.step.recomputed_macs == full.total("macs", lambda row: row.in_block)
    # fused attention saves no matrix
    plain, selective = (
        xfcost.analyze("vit-ti32", mode="train", trace=False, attention="fused", checkpoint=one)
        for one in ("none", "selective")
    )
    assert selective.training == plain.training
    assert "--recompute selective changes nothing: no attention saves a matrix" in selective.metadata.notes


# ── transformers' own checkpoints ────────────────────────────────────────────────────────────────────────────────────

_WORDS = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 128,
}
_PIXELS = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
# Type of model -> fields, the class, and its inputs.
MODELS = {
    "llama": (_WORDS | {"num_key_value_heads": 2}, "LlamaForCausalLM", ("input_ids",)),
    "gpt2": ({"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 128}, "GPT2LMHeadModel", ("input_ids",)),
    "bert": (_WORDS, "BertForMaskedLM", ("input_ids",)),
    "mixtral": (_WORDS | {"num_key_value_heads": 2, "num_local_experts": 4}, "MixtralForCausalLM", ("input_ids",)),
    "t5": (
        {"d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_heads": 4, "vocab_size": 128},
        "T5ForConditionalGeneration", ("input_ids", "decoder_input_ids"),
    ),
    "vit": (_PIXELS | {"image_size": 32, "patch_size": 8}, "ViTForImageClassification", ("pixel_values",)),
    "swin": (
        {"embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "image_size": 32, "patch_size": 4, "window_size": 4},
        "SwinForImageClassification", ("pixel_values",),
    ),
}  # fmt: skip
QUICK = ("llama", "swin")


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(one, marks=pytest.mark.rest) for one in MODELS if one not in QUICK)]
)
def test_it_is_the_checkpoint_of_transformers(name):
    fields, kind, takes = MODELS[name]
    image = torch.zeros(2, 3, 32, 32)
    inputs = {key: image if key == "pixel_values" else torch.zeros(2, 12, dtype=torch.long) for key in takes}

    def figures(*, own: bool):
        model = getattr(transformers, kind)(transformers.AutoConfig.for_model(name, **fields))
        if own:
            enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
            enable()
        for part in model.modules():  # of a stage that runs again, transformers would run the blocks three times
            if type(part).__name__ == "SwinStage":
                part.gradient_checkpointing = False
        ledger = trained(model, (), example_kwargs=inputs, **({} if own else {"checkpoint": "full"}))
        step = ledger.training.step
        assert step.recomputed_macs > 0
        rows = {
            row.path: (row.backward_macs, row.figure("recomputed_macs"), row.figure("kept_bytes"))
            for row in ledger.rows
        }
        return step.backward_macs, step.recomputed_macs, step.kept_bytes, step.recomputed_bytes, rows

    assert figures(own=False) == figures(own=True)


CONFIGS = Path(__file__).parent / "data" / "configs"


# Llama's class saves copies of keys and values that a spec has not, and tables of rotations outside its blocks: cosines
# and sines of 12 positions, 64 wide, in float32.
@pytest.mark.parametrize(
    ("name", "numbers", "outside"),
    [("llama-3.2-1b", 12, 2 * 12 * 64 * 4), pytest.param("vit-base-patch16-224", 197, 0, marks=pytest.mark.rest)],
)
def test_the_plan_of_a_class_has_the_activations_of_its_spec(name, numbers, outside, tmp_path):
    """torch does not run a block's last product again, whose result nobody saves; a spec counts the whole block."""
    fields, path = json.loads((CONFIGS / f"{name}.json").read_text()), tmp_path / "config.json"
    fields |= {"num_hidden_layers": 2, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    path.write_text(json.dumps(fields))
    given = {"mode": "train", "batch": 2, "on": "h100-sxm", "dtype": "float32", "checkpoint": "full"}
    given |= {"attention": "eager", "trace": False, **({"N": numbers} if "vocab_size" in fields else {})}
    target = ModuleTarget("config", str(path), "", str(path))

    def plans(**more):
        asked = given | more
        run = module_run(asked, "config", str(path))._replace(tokens=(numbers,) if "vocab_size" in fields else None)
        module = ModuleSystem(named_module(target, (), (), 2, run)).account(run, account_options(asked))
        return [one.training.plan for one in (xfcost.analyze(str(path), **asked), module)]

    spec, own = plans()
    assert own.memory.activations == spec.memory.activations
    # a block saves as much more as it does without checkpoints
    plain = [plan.memory.activations for plan in plans(checkpoint="none")]
    assert 2 * (own.memory.recomputed - spec.memory.recomputed) == plain[1] - plain[0] - outside
    assert own.step_flops == spec.step_flops
    last = 2 * numbers * fields["hidden_size"] * fields["intermediate_size"]
    assert own.recomputed_flops == spec.recomputed_flops - 2 * 2 * last
