"""LoRA: adapters beside frozen weights, by hand, against plain torch, against published figures, in every mode."""

import json
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

import xfcost
from helpers import error_of, xf
from saved import saved_bytes
from specs import architecture_of, counted
from strategies import placed, stack, stored
from xfcost.ledger.errors import UsageError
from xfcost.ledger.lora import Adapter, Lora
from xfcost.torch_models.build import build

MLP = {"kind": "mlp", "ratio": 4}
FULL = {"kind": "full", "heads": 2, "causal": True}
GROUPED = {"kind": "full", "heads": 4, "kv_heads": 2, "causal": True}
GATED = {"kind": "swiglu", "hidden": 12}


def trained(data, folder, **more):
    return xfcost.analyze(stored(data, folder), mode="train", mixing=False, **more)


def by_operation(ledger):
    return {row.operation: row for row in ledger.rows}


def test_a_linear_map_by_hand(tmp_path):
    """2 samples of 3 tokens, width 4, H = 16, r = 2: y = xW, and BAx beside it."""
    ledger = trained(stack(MLP, dim=4, depth=5, length=3), tmp_path, batch=2, lora=2, lora_on="fc1", dtype="float32")
    rows = by_operation(ledger)
    base, down, up, add = (rows[name] for name in ("fc1", "lora_fc1_a", "lora_fc1_b", "lora_fc1_add"))
    assert (down.params, up.params, add.params) == (4 * 2, 2 * 16, 0)
    assert (base.macs, down.macs, up.macs) == (6 * 4 * 16, 6 * 4 * 2, 6 * 2 * 16)
    assert add.flops == 2 * 6 * 16  # times α/r, and the sum
    # no gradient of W; of A and of B one product more. No gradient goes to the tokens before the first adapter.
    backward = [(row.backward_macs, row.figure("backward_saved")) for row in (base, down, up)]
    assert backward == [(384, 384), (2 * 48, 48), (2 * 192, 0)]
    # A saves what the norm gave, B what A gave; W nothing
    kept = [row.training.kept_bytes for row in (base, down, up)]
    assert kept == [0, 5 * 6 * 4 * 4, 5 * 6 * 2 * 4]
    step = ledger.training.step
    assert step.trained_params == 5 * (8 + 32)
    assert (step.gradients_bytes, step.optimizer_bytes) == (4 * 200, 8 * 200)
    assert step.update_flops == 15 * 200
    assert step.params_bytes == 4 * ledger.total("params")
    assert ledger.agreement.exact


class Lowered(nn.Module):
    """Attention of 2 heads with y + α/r·BAx of two of its frozen maps, which are separate as in transformers."""

    def __init__(self, width, rank):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.a_q, self.b_q = nn.Linear(width, rank, bias=False), nn.Linear(rank, width, bias=False)
        self.a_v, self.b_v = nn.Linear(width, rank, bias=False), nn.Linear(rank, width, bias=False)

    def forward(self, x):
        q, k, v = self.q(x) + 2 * self.b_q(self.a_q(x)), self.k(x), self.v(x) + 2 * self.b_v(self.a_v(x))
        q, k, v = (one.unflatten(-1, (2, -1)).transpose(1, 2) for one in (q, k, v))
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Plain(nn.Module):
    """A Transformer of pre-norm blocks over token numbers, whose adapters alone are trained."""

    def __init__(self, vocabulary, width, depth, rank):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * depth))
        self.attention = nn.ModuleList(Lowered(width, rank) for _ in range(depth))
        self.fc1 = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(depth))
        self.fc2 = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(depth))
        for name, parameter in self.named_parameters():
            parameter.requires_grad_(".a_" in name or ".b_" in name)

    def forward(self, numbers):
        x = self.embed(numbers)
        for number, attention in enumerate(self.attention):
            x = x + attention(self.norms[2 * number](x))
            x = x + self.fc2[number](F.gelu(self.fc1[number](self.norms[2 * number + 1](x))))
        return x


def test_parameters_gradients_and_macs_are_those_of_plain_torch(tmp_path):
    width, depth, rank, length = 8, 2, 3, 6
    blocks = [{"kind": "full", "heads": 2}, MLP]
    ledger = trained(
        stack(*blocks, dim=width, depth=depth, length=length), tmp_path, lora=rank, attention="fused", dtype="float32"
    )
    model = Plain(11, width, depth, rank)
    numbers = torch.randint(11, (1, length))
    with FlopCounterMode(display=False) as forward:
        loss = model(numbers).sum()
    with FlopCounterMode(display=False) as backward:
        loss.backward()
    step = ledger.training.step
    assert step.trained_params == sum(one.numel() for one in model.parameters() if one.requires_grad)
    assert ledger.total("params") == sum(one.numel() for one in model.parameters())
    assert step.gradients_bytes == sum(one.grad.nbytes for one in model.parameters() if one.grad is not None)
    assert step.kept_bytes == saved_bytes(model, (numbers,))
    # torch's counter may see no fused attention on a CPU, and of its backward pass four products
    of_maps = ("qkv", "out", "fc1", "fc2", *(f"lora_{part}_{one}" for part in "qv" for one in "ab"))
    cores = sum(flops for name, flops in forward.get_flop_counts()["Global"].items() if "attention" in str(name))
    back_cores = sum(flops for name, flops in backward.get_flop_counts()["Global"].items() if "attention" in str(name))
    rows = [row for row in ledger.rows if row.operation in of_maps]
    assert 2 * sum(row.macs * row.times for row in rows) == forward.get_total_flops() - cores
    assert 2 * sum(row.times_over("backward_macs") for row in rows) == backward.get_total_flops() - back_cores
    assert ledger.agreement.exact


@pytest.mark.parametrize("on", [("q", "v"), ("all",), ("mlp",)], ids=",".join)
@pytest.mark.parametrize("attention", ["eager", "fused"])
def test_saved_activations_are_those_that_autograd_saves(tmp_path, on, attention):
    """Of the model on a CPU, whose own hooks see each tensor."""
    data = stack(GROUPED, GATED, dim=8, depth=3, length=6, residual={"norm": "rms_norm"})
    ledger = trained(data, tmp_path, lora=2, lora_on=",".join(on), batch=2, attention=attention, dtype="float32")
    live = build(placed(data, tmp_path, lora=Lora(2, on), batch=2, attention=attention, dtype="float32"), "cpu")
    from xfcost.torch_models.shared.leaves import trained as trains

    model = trains(live.model)
    assert ledger.training.step.kept_bytes == saved_bytes(model, live.inputs)
    names = {name for name, one in model.named_parameters() if one.requires_grad}
    assert names
    assert all(".lora." in name for name in names)
    assert ledger.agreement.exact


@pytest.mark.parametrize("on", [("q", "v"), ("k",), ("all",), ("qkv", "fc2")], ids=",".join)
@pytest.mark.parametrize("mixer", [FULL, GROUPED], ids=["heads", "fewer of keys"])
def test_adapters_are_those_of_the_merged_weights(tmp_path, on, mixer):
    """W + 2·BA in place of W gives the same outputs: each adapter adds to the columns of its own map."""
    data = stack(mixer, MLP, dim=8, depth=2, length=6)
    beside = build(placed(data, tmp_path, lora=Lora(2, on), dtype="float64"), "cpu")
    merged = build(placed(data, tmp_path, dtype="float64"), "cpu")
    merged.model.load_state_dict(beside.model.state_dict(), strict=False)
    kv = 8 * mixer.get("kv_heads", mixer["heads"]) // mixer["heads"]
    first = {"q": 0, "k": 8, "v": 8 + kv}
    seen = set()
    for name, module in beside.model.named_modules():
        around, found, part = name.rpartition(".lora.")
        if found and "." not in part:
            update = 2.0 * module.b.weight @ module.a.weight
            own = merged.model.get_submodule(f"{around}.{'qkv' if part in first else part}").weight
            own.data.narrow(0, first.get(part, 0), len(update)).add_(update)
            seen.add(part)
    assert seen == ({"q", "k", "v", "out", "fc1", "fc2"} if on == ("all",) else set(on))
    with torch.no_grad():
        outputs = beside.model(*beside.inputs), merged.model(*beside.inputs)
    torch.testing.assert_close(*outputs)
    assert not torch.equal(outputs[0], build(placed(data, tmp_path, dtype="float64"), "cpu").model(*beside.inputs))


# Hu et al. 2022, "LoRA": table 2 (RoBERTa, r = 8 on q and v: 0.3 M and 0.8 M, whose blocks are BERT's), table 4 (GPT-3,
# 4.7 M of r = 1 and 37.7 M of r = 8 on q and v), table 5 (18 M of r = 8 on one of the maps, or 4 on two); and what
# `print_trainable_parameters()` of peft prints of Llama 2 7B with its defaults, r = 8 on q_proj and v_proj, and of both
# Llamas with r = 16 on all linear maps.
PUBLISHED = [
    ("bert-base", 8, "q,v", 294_912, None),
    ("bert-large", 8, "q,v", 786_432, None),
    ("gpt3-175b", 1, "q,v", 4_718_592, None),
    ("gpt3-175b", 8, "q,v", 37_748_736, None),
    ("gpt3-175b", 8, "q", 18_874_368, None),
    ("gpt3-175b", 4, "q,v", 18_874_368, None),
    ("llama2-7b", 8, "q_proj,v_proj", 4_194_304, 6_742_609_920),
    ("llama2-7b", 16, "all-linear", 39_976_960, None),
    ("llama3-8b", 16, "all-linear", 41_943_040, None),
]


@pytest.mark.parametrize(("name", "rank", "on", "trainable", "params"), PUBLISHED)
def test_published_numbers_of_trainable_parameters(name, rank, on, trainable, params):
    ledger = xfcost.analyze(name, mode="train", lora=rank, lora_on=on, trace=False)
    assert ledger.training.step.trained_params == trainable
    assert ledger.total("params", lambda row: row.adapter) == trainable
    assert params in (None, ledger.total("params"))


def test_65b_parameters_are_trained_on_one_gpu_of_48_gb():
    """Dettmers et al. 2023, "QLoRA", §1: instead of more than 780 GB; the base in NF4, r = 64 on all maps (B.2)."""
    run = {"mode": "train", "N": 512, "on": "a6000", "checkpoint": "full", "trace": False}
    quantised = xfcost.analyze("llama-65b", lora=64, lora_on="all", weights="nf4", **run)
    plan, step = quantised.training.plan, quantised.training.step
    assert plan.fits is True
    base = quantised.total("params") - step.trained_params
    # 4 bits, 8 of each 64 elements, 32 of each 256·64: §3, 0.127 bits per parameter; embedding and head in bfloat16
    in_dtype = quantised.total("params", lambda row: not row.weight_matrices and not row.adapter)
    bits = 4 + 8 / 64 + 32 / (256 * 64)
    assert step.params_bytes == pytest.approx((base - in_dtype) * bits / 8 + 2 * (in_dtype + step.trained_params), 1e-6)
    full = xfcost.analyze("llama-65b", **run)
    assert full.training.plan.fits is False
    # 16 bits and Adam in 32 bits without a master copy: 12 bytes per parameter
    states = full.training.step
    assert states.params_bytes + states.gradients_bytes + states.optimizer_bytes > 780e9


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gpt2", {"lora_on": "all"}),
        ("mistral-7b", {}),
        ("t5-small", {"lora_on": "attention", "attention": "eager"}),
        ("deepseek-v2-lite", {"lora_on": "q,kv_down,down"}),
        ("mixtral-8x7b", {"dtype": "float32"}),
        ("mamba-130m", {"lora_on": "in_proj,out_proj"}),
        ("vit", {"lora_on": "qkv,fc1"}),
        ("efficientnet-b0", {"lora_on": "all"}),
    ],
)
def test_every_account_of_a_step_agrees(name, options):
    ledger = xfcost.analyze(name, mode="train", lora=4, mixing=False, trace=True, **options)
    assert ledger.agreement.exact, ledger.agreement


@pytest.mark.parametrize(
    ("name", "mode"),
    [*(("gpt2", mode) for mode in ("forward", "prefill", "decode", "generate")), ("t5-small", "decode")],
)
def test_adapters_run_unmerged_in_every_other_mode(name, mode):
    options = {"mode": mode, "N": 16, "new_tokens": 3 if mode == "generate" else None, "trace": True, "mixing": False}
    beside, merged = xfcost.analyze(name, lora=4, lora_on="all", **options), xfcost.analyze(name, **options)
    assert beside.agreement.exact
    more = beside.total("params") - merged.total("params")
    assert more == beside.total("params", lambda row: row.adapter) > 0
    assert beside.total("macs") > merged.total("macs")
    assert [row.path for row in beside.rows if "lora_" not in row.path] == [row.path for row in merged.rows]


def test_a_server_reads_the_adapters_too():
    options = {"mode": "decode", "N": 512, "on": "a100-sxm-80", "weights": "nf4"}
    beside, merged = xfcost.analyze("llama2-7b", lora=8, **options), xfcost.analyze("llama2-7b", **options)
    assert beside.step.weight_bytes - merged.step.weight_bytes == 2 * 4_194_304  # in bfloat16, whatever the weights
    assert beside.held_bytes - merged.held_bytes == 2 * 4_194_304


def test_devices_share_out_what_is_trained():
    options = {"mode": "train", "lora": 8, "lora_on": "all", "weights": "int4", "N": 512, "trace": False}
    one = xfcost.analyze("llama2-7b", on="a100-sxm-80", **options)
    step, alone = one.training.step, one.training.plan.memory
    found = (alone.parameters, alone.gradients, alone.master, alone.optimizer)
    assert found == (step.params_bytes, step.gradients_bytes, step.master_bytes, step.optimizer_bytes)
    assert step.optimizer_bytes == 8 * step.trained_params
    assert alone.activations == step.kept_bytes
    shared = xfcost.analyze("llama2-7b", on="a100-sxm-80x4", zero=2, **options).training.plan.memory
    assert (shared.parameters, shared.gradients) == (alone.parameters, math.ceil(alone.gradients / 4))
    wide = xfcost.analyze("llama2-7b", on="a100-sxm-80x4", zero=1, gradients="float32", **options).training.plan
    assert wide.memory.gradients == 4 * step.trained_params
    # of pipeline stages and tensor-parallel shares, each holds a part of the frozen bytes and of the trained numbers
    plan = xfcost.analyze("llama2-7b", on="a100-sxm-80x4", tensor_parallel=2, pipeline=2, **options).training.plan
    assert alone.parameters / 5 < plan.memory.parameters < alone.parameters / 3
    assert step.optimizer_bytes / 5 < plan.memory.optimizer < step.optimizer_bytes / 3


def test_a_run_counts_no_gradients_of_frozen_weights():
    ledger = xfcost.analyze("llama2-7b", mode="train", lora=8, tokens="100M", trace=False)
    run = ledger.training.run
    causes = run.beside_estimate
    assert causes.input_gradient == 0
    # a third of 6·P·D, less what has no weights that are multiplied, and the first layer
    assert 0.31 < -causes.frozen / run.filled_estimate < 1 / 3
    assert run.flops - run.filled_estimate == sum(getattr(causes, name) for name in causes.__struct_fields__)
    plan = xfcost.analyze("llama2-7b", mode="train", lora=8, on="h100-sxm", trace=False).training.plan
    assert plan.evidence.why_none == "with frozen weights"


# ── names ──


def test_names_of_maps_and_of_their_parts():
    both = Lora(8)
    assert both.adapters("qkv", 96, (32, 16, 48)) == [Adapter("q", 0, 32), Adapter("v", 48, 48)]
    assert both.adapters("qkv", 96, ()) == [Adapter("q", 0, 32), Adapter("v", 64, 32)]
    assert both.adapters("local_kv", 64, ()) == [Adapter("local_v", 32, 32)]
    assert both.adapters("out", 32, ()) == []
    assert Lora(8, ("c_attn",)).adapters("qkv", 96, ()) == [Adapter("qkv", 0, 96)]
    assert Lora(8, ("all",)).adapters("gate.linear", 5, ()) == [Adapter("gate_linear", 0, 5)]
    assert Lora(8, ("o_proj", "down_proj")).adapters("out", 32, ()) == [Adapter("out", 0, 32)]
    assert Lora(8, ("query",)).adapters("value", 32, ()) == []


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("q,k,v,out", "q_proj,k_proj,v_proj,o_proj"), ("gate,up,down", "gate_proj,up_proj,down_proj"),
        ("all", "all-linear"), ("attention,mlp", "all"), ("attention", "query,key,value,o"),
        (None, ["q_proj", "v_proj"]),
    ],
)  # fmt: skip
def test_names_of_peft(ours, theirs):
    rows = [
        [(row.path, row.params) for row in xfcost.analyze("llama2-7b", lora=4, lora_on=on, trace=False).rows]
        for on in (ours, theirs)
    ]
    assert rows[0] == rows[1]


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("gpt2", {"lora": 4, "lora_on": "gate"}, "q, k, v, out, fc1, fc2"),
        ("mamba-130m", {"lora": 4}, "in_proj, x_proj, dt_proj, out_proj"),
        ("resnet-18", {"lora": 4}, "no linear maps"),
        ("gpt2", {"lora_on": "q"}, "--lora 8"),
        ("gpt2", {"lora": 0}, "1 to"),
        ("gpt2", {"lora": 4, "lora_on": "q,,v"}, "expected names"),
        ("gpt2", {"weights": "nf4", "mode": "train"}, "--lora 8"),
        ("reformer-enwik8", {"lora": 4, "lora_on": "value", "mode": "train"}, "reversible"),
    ],
)
def test_what_is_refused(name, options, words):
    with pytest.raises(UsageError, match=words):
        xfcost.analyze(name, trace=False, **options)


def test_the_command_says_what_is_trained():
    done = xf("analyze", "llama2-7b", "--mode", "train", "--lora", "8", "--no-trace", "--format", "json")
    found = json.loads(done.stdout)
    assert found["lora"] == {"rank": 8, "on": ["q", "v"]}
    assert found["training"]["step"]["trained_params"] == 4_194_304
    assert "lora" not in json.loads(xf("analyze", "tiny", "--no-trace", "--format", "json").stdout)
    assert "nope" in error_of("analyze", "gpt2", "--lora", "8", "--lora-on", "nope")


def test_adapters_have_a_letterless_rank():
    orders = {row.operation: row.order for row in counted("gpt2", lora=Lora(8)).rows}
    assert orders["lora_q_a"] == orders["lora_q_b"] == "O(N·d)"
    assert architecture_of("gpt2", lora=Lora(8)).streams[0].embed[0].place.lora == Lora(0, ())


# ── modules ──


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x):
        return self.out(F.scaled_dot_product_attention(self.q_proj(x), self.k_proj(x), self.v_proj(x)))


class Net(nn.Module):
    def __init__(self, width=8, depth=2):
        super().__init__()
        self.blocks = nn.ModuleList(Attention(width) for _ in range(depth))
        self.head = nn.Linear(width, 5)

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


def test_adapters_of_a_module_are_added_to_a_copy():
    model, x = Net(), torch.randn(1, 6, 8)
    before = {name: one.clone() for name, one in model.state_dict().items()}
    ledger = xfcost.analyze(model, x, lora=3, mode="train", mixing=False)
    assert ledger.training.step.trained_params == 2 * 2 * (3 * 8 + 8 * 3)
    assert ledger.total("params") == sum(one.numel() for one in model.parameters()) + 192
    assert ledger.training.step.gradients_bytes == 4 * 192
    rows = {row.path: row for row in ledger.rows}
    base, down = rows["blocks.*.q_proj.base_layer.addmm"], rows["blocks.*.q_proj.lora_A.mm"]
    assert (base.macs, base.times_over("backward_macs")) == (6 * 8 * 8, 6 * 8 * 8)  # of the second block
    assert (down.macs, down.times_over("backward_macs")) == (6 * 8 * 3, 3 * 6 * 8 * 3)
    assert ledger.metadata.lora == Lora(3)
    assert ledger.total("params", ledger.trains) == 192
    assert {*model.state_dict()} == {*before}
    assert all(one.requires_grad for one in model.parameters())


def test_adapters_of_a_module_add_what_they_say():
    from xfcost.torch_models.any_model.adapters import AdaptedLinear, with_adapters

    model, x = Net(), torch.randn(1, 6, 8)
    copied = with_adapters(model, Lora(3, ("all",)), "Net")
    assert copied.head.base_layer.weight.data_ptr() == model.head.weight.data_ptr()
    assert copied.head.weight is copied.head.base_layer.weight
    assert (copied.head.bias is copied.head.base_layer.bias, copied.head.out_features) == (True, 5)
    assert sum(isinstance(one, AdaptedLinear) for one in copied.modules()) == 9
    head = copied.head
    y = torch.randn(2, 8)
    expected = F.linear(y, head.weight + 2.0 * head.lora_B.weight @ head.lora_A.weight, head.bias)
    torch.testing.assert_close(head(y), expected)
    assert {name.rpartition(".")[2] for name, one in copied.named_parameters() if one.requires_grad} == {"weight"}
    assert not torch.equal(copied(x), model(x))


def test_a_module_without_such_maps_is_refused():
    for on, words in ((None, "v_proj"), ("fc1", "q_proj, k_proj, v_proj, out, head")):
        model = nn.Sequential(nn.Conv1d(4, 4, 1)) if on is None else Net()
        with pytest.raises(UsageError, match="requires_grad" if on is None else words):
            xfcost.analyze(model, torch.randn(1, 4, 8), lora=2, lora_on=on)


def test_parameters_that_are_frozen_in_python_are_not_trained():
    """Counted without an option: what torch computes no gradient of, and saves nothing for."""
    model, x = Net(), torch.randn(1, 6, 8)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.startswith("head"))
    ledger = xfcost.analyze(model, x, mode="train", mixing=False)
    step = ledger.training.step
    assert step.trained_params == 8 * 5 + 5
    assert (step.gradients_bytes, step.optimizer_bytes) == (4 * 45, 8 * 45)
    assert step.backward_macs == 6 * 8 * 5  # of the head's weights alone
    assert step.kept_bytes == saved_bytes(model, (x,)) == 4 * 6 * 8


def test_adapters_that_somebody_else_wrote_are_counted_as_they_are(tmp_path):
    """As `get_peft_model` leaves a model: frozen maps, trained adapters, in the module itself."""
    model = Plain(11, 8, 2, 3)
    numbers = torch.randint(11, (1, 6))
    theirs = xfcost.analyze(model, numbers, mode="train", mixing=False).training.step
    blocks = [{"kind": "full", "heads": 2}, MLP]
    data = stack(*blocks, dim=8, depth=2, length=6)
    ours = trained(data, tmp_path, lora=3, attention="fused", dtype="float32").training.step
    assert theirs.trained_params == ours.trained_params
    assert (theirs.forward_macs, theirs.backward_macs) == (ours.forward_macs, ours.backward_macs)
    assert theirs.gradients_bytes == ours.gradients_bytes
    assert theirs.optimizer_bytes == ours.optimizer_bytes
    assert theirs.kept_bytes == ours.kept_bytes


def test_adapters_of_a_module_are_in_its_dtype_and_its_weights_quantised(tmp_path):
    file = tmp_path / "net.py"
    file.write_text(
        "from torch import nn\n"
        "class Block(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.fc1, self.fc2 = nn.Linear(64, 128, bias=False), nn.Linear(128, 64, bias=False)\n"
        "    def forward(self, x):\n"
        "        return x + self.fc2(self.fc1(x).relu())\n"
        "class Net(nn.Sequential):\n"
        "    def __init__(self):\n"
        "        super().__init__(Block(), Block())\n",
        encoding="utf-8",
    )
    options = {"inputs": ["1xNx64"], "N": 4, "mode": "train", "lora": 2, "lora_on": "fc1", "weights": "nf4"}
    ledger = xfcost.analyze(f"{file}:Net", **options)
    adapters = 2 * 2 * (64 + 128)
    each = 64 * 128 // 2 + 64 * 128 // 64 + 4  # 4 bits, a byte of 64 elements, a float32 of up to 256 of those
    assert ledger.training.step.params_bytes == 4 * each + 4 * adapters
    assert ledger.training.step.trained_params == adapters
    with pytest.raises(UsageError, match="--lora 8"):
        xfcost.analyze(f"{file}:Net", **options | {"lora": None, "lora_on": None})
