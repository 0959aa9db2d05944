"""The peak of activations without torch, of a pass and of a decode step: that of the real model, to the byte."""

import pytest
import torch
from torch import nn

import xfcost
from specs import architecture_of, thinned
from strategies import same_rows
from test_decoding import TWO, WITH_STATES
from tiers import of_distinct_presets
from transformers_models import theirs_of
from xfcost.counting.model_record import forward_record
from xfcost.spec.architecture import Architecture
from xfcost.torch_models.any_model.ledger import module_ledger
from xfcost.torch_models.build import build
from xfcost.torch_models.memory.peak import peak_bytes
from xfcost.torch_models.shared.private_torch import no_compiler
from xfcost.torch_models.timing.rows import row_bytes

FORWARD = {"eager": {}, "fused": {"attention": "fused", "dtype": "bfloat16", "batch": 2}}
DECODERS = ("gpt2", "llama3-8b", "mistral-7b-sliding", "bloom-560m", "deepseek-v2", "t5-small")
# Of its steps each runs.
FEW_STEPS = {"common-lstm": {"tokens": (64,)}}
# Under a recorder, torch adds a bias to a copy of a product that it otherwise overwrites: of inputs that are no rows.
BIAS_ON_A_COPY = ("gmlp-", "hyenadna-")
# In torch a loop over chunks keeps what each step gives; on the tape one step stands for those in the middle.
CHUNKS_IN_A_LOOP = ("gated-deltanet-",)
# Tables with a number for each copy of a token and each expert, from which the places of tokens are worked out.
PLACES = 0.08
OF_EXPERTS = ("common-gshard", "common-switch", "deepseek-v3", "mixtral-", "switch-")


def of_torch(architecture: Architecture) -> int:
    """The peak of the model on `meta`, without its parameters and buffers."""
    with no_compiler():
        live = build(architecture)
        held = {id(one): one for one in (*live.model.parameters(), *live.model.buffers())}
        return peak_bytes(live.model, live.inputs) - sum(one.untyped_storage().nbytes() for one in held.values())


def agree(name: str, **options: object) -> None:
    architecture = thinned(architecture_of(name, **options, **FEW_STEPS.get(name, {})))
    ours, theirs = forward_record(architecture).peak_bytes(), of_torch(architecture)
    if name.startswith(OF_EXPERTS):
        assert (1 - PLACES) * theirs <= ours <= theirs
    elif name.startswith(CHUNKS_IN_A_LOOP):
        assert 0.99 * theirs < ours < theirs
    elif name.startswith(BIAS_ON_A_COPY):
        assert 0.89 * theirs < ours < theirs
    else:
        assert ours == theirs


@pytest.mark.parametrize("options", FORWARD.values(), ids=FORWARD)
@pytest.mark.parametrize("name", of_distinct_presets())
def test_a_forward_pass(name, options):
    agree(name, **options)


@pytest.mark.parametrize("name", [*dict.fromkeys([*DECODERS, *TWO, *WITH_STATES])])
def test_a_decode_step(name):
    agree(name, mode="decode")
    architecture = thinned(architecture_of(name, mode="decode", batch=2))
    with no_compiler():
        moved = row_bytes(build(architecture))
    same_rows(forward_record(architecture).operands, moved, "bytes of operands")


TWO_STAGES = (
    "[{dim: 4, depth: 1, block: [{kind: mlp, hidden: 4}]}, {dim: 8, enter: [{kind: conv, size: 1}], "
    "blocks: [[{kind: mlp, hidden: 32}], [{kind: mlp, hidden: 64}]]}]"
)
# Stages over 10 tokens of 8 bytes, and the numbers of 4 bytes that are alive beside them at the peak.
PEAKS = {
    # of 4·10 numbers what enters the stage, the block and, normed, the MLP; its hidden layer of 32·10, before and after
    # the activation
    "a block": ("[{dim: 4, depth: 9, block: [{kind: mlp, hidden: 32}]}]", 3 * (4 * 10) + 2 * (32 * 10)),
    # what the first stage has left, what enters the last block, also normed, and its hidden layer
    "what enters a stage is freed": (TWO_STAGES, 4 * 10 + 2 * (8 * 10) + 2 * (64 * 10)),
}


@pytest.mark.parametrize("name", PEAKS)
def test_a_pass_by_hand(name, tmp_path):
    stages, numbers = PEAKS[name]
    file = tmp_path / "spec.yaml"
    head = "name: s\ninput: {kind: tokens, vocabulary: 11, length: 10}\nembed: [{kind: token}]\n"
    file.write_text(f"{head}stages: {stages}\n", encoding="utf-8")
    ledger = xfcost.analyze(file, on="h100-sxm", dtype="float32", trace=False)
    assert ledger.on.memory.activations == 10 * 8 + 4 * numbers
    assert ledger.on.memory.needed == ledger.on.memory.weights + 10 * 8 + 4 * numbers


def test_a_module_by_hand():
    # what comes in, 10·4 numbers, and the hidden layer of 10·8 before and after the activation
    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
    need = xfcost.analyze(module, example_inputs=torch.zeros(10, 4), on="h100-sxm").on.memory
    assert (need.weights, need.activations) == (4 * (4 * 8 + 8 + 8 * 4 + 4), 4 * (10 * 4 + 2 * (10 * 8)))
    assert need.needed == need.weights + need.activations


@pytest.mark.parametrize("name", ["tiny", "gpt2", "swin-t", "t5-small", "common-performer"])
def test_a_module_holds_what_its_spec_does(name):
    architecture = thinned(architecture_of(name))
    with no_compiler():
        live = build(architecture)
        found = module_ledger(live.model, live.inputs, trace=False)
    assert found.activations == forward_record(architecture).peak_bytes()


@pytest.mark.parametrize("mode", ["prefill", "decode"])
def test_the_cache_of_a_module_is_no_activation_of_it(mode):
    def need(layers: int):
        theirs = theirs_of("GPT2LMHeadModel", n_layer=layers, n_embd=8, n_head=2, vocab_size=11)
        zeros = lambda N: {"input_ids": torch.zeros(1, N, dtype=torch.int64)}  # noqa: E731 - one line
        return xfcost.analyze(theirs, example_inputs=zeros, N=16, mode=mode, on="h100-sxm", trace=False).on.memory

    few, many = need(3), need(6)
    assert many.cache == 2 * few.cache == 6 * 2 * 8 * 16 * 4
    assert many.activations == few.activations > 0


def test_a_generation_holds_what_its_prompt_or_its_last_step_needs():
    given = {"on": "h100-sxm", "attention": "eager", "dtype": "float32", "trace": False}
    given["settings"] = ["input.vocabulary=11"]
    prompt = xfcost.analyze("gpt2", mode="prefill", N=20, **given).on.memory.activations
    step = xfcost.analyze("gpt2", mode="decode", N=519, **given).on.memory.activations
    short, long = (
        xfcost.analyze("gpt2", mode="generate", N=tokens, new_tokens=500, **given).on.memory.activations
        for tokens in (20, 1)
    )
    first, last = (
        xfcost.analyze("gpt2", mode="decode", N=tokens, **given).on.memory.activations for tokens in (1, 500)
    )
    assert short == prompt > step
    assert long == last > first
