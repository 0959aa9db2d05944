"""Small networks by hand, modules of transformers, presets without their spec, and what is left uncounted."""

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import xfcost
from any_models import Takes, X
from helpers import environment
from hugging_face import TEXT
from modules import Call, halves, torch_macs
from small_networks import NETWORKS
from specs import architecture_of
from transformers_models import parameters, transformers
from xfcost.counting.forward import count
from xfcost.ledger.errors import IncompleteError, UsageError
from xfcost.torch_models.any_model.ledger import module_ledger
from xfcost.torch_models.build import build
from xfcost.torch_models.running.costs import operation_costs
from xfcost.torch_models.running.registry import unregister
from xfcost.torch_models.tracing.trace import trace

# Small networks whose costs are worked out by hand, on the CPU and on `meta` ──────────────────────────────────────────


# What a graph does not show inside.
HIDDEN = ("autograd function",)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_figure_is_the_one_worked_out_by_hand(name, device):
    network = NETWORKS[name]
    inputs = tuple(halves(shape, device) for shape in network.shapes)
    given = {"example_inputs": inputs, "example_kwargs": network.keywords}
    ledger = xfcost.analyze(network.module().to(device), **given, trace=False, strict=True, mixing=False)
    assert {quantity: ledger.total(quantity) for quantity in network.expected} == network.expected


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("name", [name for name, one in NETWORKS.items() if not one.keywords and name not in HIDDEN])
def test_the_trace_has_the_same_figures(name, device):
    network = NETWORKS[name]
    found = trace(network.module().to(device), tuple(halves(shape, device) for shape in network.shapes))
    assert found.unsupported == {}
    expected = {quantity: network.expected.get(quantity) for quantity in ("macs", "flops", "params")}
    assert {quantity: value and getattr(found, quantity) for quantity, value in expected.items()} == expected


@pytest.mark.parametrize("name", ["linear", "conv2d grouped, dilated", "einsum of three", "encoder in evaluation"])
def test_inference_mode_hides_nothing(name):
    network = NETWORKS[name]
    inner = network.module()
    hidden = Call(torch.inference_mode()(inner.__call__))
    hidden.inner = inner
    inputs = tuple(halves(shape, "cpu") for shape in network.shapes)
    ledger = xfcost.analyze(hidden, example_inputs=inputs, trace=False, strict=True)
    assert {quantity: ledger.total(quantity) for quantity in network.expected} == network.expected


def test_tables_move_rows_and_read_no_more_than_those():
    tokens = torch.tensor([1, 2, 3, 4, 4])
    ledger = xfcost.analyze(nn.Embedding(10, 4), example_inputs=tokens, trace=False)
    assert (ledger.total("moved"), ledger.weights_read(), ledger.total("params")) == (20, 20, 40)
    # 5 rows of 4, in two bags
    ledger = xfcost.analyze(nn.EmbeddingBag(10, 4), example_inputs=(tokens, torch.tensor([0, 2])), trace=False)
    assert (ledger.total("moved"), ledger.total("flops"), ledger.total("params")) == (20, 20, 40)


class Experts(nn.Module):
    """8 experts of 4 inputs and 6 outputs with biases; 2 for each token."""

    def __init__(self, run: Callable[[Any, Tensor, Tensor], Tensor], choose: Callable[[Tensor], Tensor]):
        super().__init__()
        self.router = nn.Linear(4, 8, bias=False)
        self.w, self.b = nn.Parameter(torch.ones(8, 4, 6)), nn.Parameter(torch.ones(8, 6))
        self.run, self.choose = run, choose

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, x, self.choose(self.router(x)))


def by_row(self, x, i):
    return (x[:, None, None] @ self.w[i])[..., 0, :] + self.b[i]


def by_selection(self, x, i):
    w, b = (one.index_select(0, i.flatten()) for one in (self.w, self.b))
    return torch.bmm(w.mT, x.repeat_interleave(2, 0)[..., None])[..., 0] + b


def by_table(self, x, i):
    return (x[:, None, None] @ F.embedding(i, self.w.flatten(1)).view(-1, 2, 4, 6))[..., 0, :] + F.embedding(i, self.b)


def by_gathering(self, x, i):
    w = self.w[None].expand(len(x), -1, -1, -1).gather(1, i[..., None, None].expand(-1, -1, 4, 6))
    return (x[:, None, None] @ w)[..., 0, :] + torch.take_along_dim(self.b[None], i[..., None], 1)


def one_by_one(self, x, i):
    return sum((x[:, None] @ self.w[one])[:, 0] + self.b[one] for one in i.unbind(-1))


@pytest.mark.parametrize("choose", [lambda x: x.topk(2).indices, lambda x: x.argsort(-1)[:, :2]], ids=["topk", "sort"])
@pytest.mark.parametrize("run", [by_row, by_selection, by_table, by_gathering, one_by_one])
def test_of_stacked_parameters_the_chosen_rows_are_read_and_active(run, choose):
    for tokens in (1, 3):
        ledger = module_ledger(nn.Sequential(Experts(run, choose)), (torch.ones(tokens, 4),), trace=False)
        each = 4 * 6 + 6  # of the router 8·4; of 8 experts every token leaves 6, and 8·(1 - (6/8)^T) are read
        assert (ledger.total("params"), ledger.total("active_params")) == (32 + 8 * each, 32 + 2 * each)
        assert ledger.weights_read() == 32 + round(8 * (1 - 0.75**tokens) * each)
        stacked = [one for row in ledger.rows for one in row.weight_matrices if one.count > 1]
        assert [(one.inputs, one.outputs, one.count) for one in stacked] == [(4, 6, 8)]


@pytest.mark.parametrize(
    ("run", "read"),
    [
        (lambda self, x: x @ self.w[0] @ self.w[2], 2 * 16),  # of 4 matrices
        (lambda self, x: sum(x @ one for one in self.w), 4 * 16),
        (lambda self, x: x + self.w.view(16, 4)[: len(x)], 3 * 4),  # positions
        (lambda self, x: x + self.w.view(16, 4)[torch.arange(len(x))], 3 * 4),
        (lambda self, x: x + self.w.view(16, 4)[x[:, 0].long()], 3 * 4),
        (lambda self, x: x + self.w.view(16, 4)[torch.zeros(99, dtype=torch.long)].sum(0), 4 * 16),  # no more than all
    ],
    ids=["two", "all", "slice", "positions", "ids", "often"],
)
def test_of_a_parameter_the_parts_that_are_used_are_read(run, read):
    module = Call(lambda x: run(module, x))
    module.w = nn.Parameter(torch.ones(4, 4, 4))
    ledger = xfcost.analyze(module, example_inputs=torch.ones(3, 4), trace=False)
    assert (ledger.weights_read(), ledger.total("params"), ledger.total("active_params")) == (read, 64, 64)


WARNING = """
import warnings
import torch
from torch import nn

class Graph(nn.Module):
    def __init__(self):
        super().__init__()
        self.map, self.edges = nn.Linear(16, 16), torch.eye(32).to_sparse_csr()

    def forward(self, x):
        warnings.warn("edges are fixed")
        places = torch.arange(32)
        once = torch.sparse_coo_tensor(torch.stack([places, places]), torch.ones(32), (32, 32))
        return self.edges @ torch.sparse.mm(once, self.map(x))
"""


def test_of_sparse_tensors_a_module_s_own_warnings_alone_are_shown(tmp_path):
    (tmp_path / "model.py").write_text(WARNING)
    # torch warns once in a process
    command = [sys.executable, "-m", "xfcost", "analyze", "model.py:Graph", "--input", "x=32x16"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True)
    warned = [line for line in done.stderr.splitlines() if "Warning" in line]
    assert {line.partition("UserWarning: ")[2] for line in warned} == {"edges are fixed"}


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("layout", ["to_sparse", "to_sparse_csr"])
def test_a_sparse_product_counts_its_stored_entries_or_is_named(layout):
    matrix = getattr(torch.eye(4), layout)()
    ledger = xfcost.analyze(Call(lambda a, b: a @ b), example_inputs=(matrix, torch.ones(4, 3)), trace=False)
    # 4 stored elements meet 3 columns
    assert (ledger.total("macs"), ledger.total("flops"), ledger.module.complete) == (12, 24, True)

    def multiplied(x):
        return getattr(x.relu(), layout)() @ x

    x = torch.tensor([[1.0, -1, -1], [1, 1, -1], [-1, -1, -1]])  # 3 entries above 0 meet 3 columns
    ledger = xfcost.analyze(Call(multiplied), example_inputs=x, trace=False)
    assert (ledger.total("macs"), ledger.module.tensors, ledger.module.complete) == (9, "real", True)
    unknown = module_ledger(Call(multiplied), (x.to("meta"),), trace=False)
    assert (unknown.total("macs"), sum(unknown.module.uncounted.values())) == (0, 1)


@pytest.mark.filterwarnings("ignore:Sparse")
def test_a_sampled_product_counts_its_stored_outputs():
    mask = torch.eye(4).to_sparse_csr()
    ledger = module_ledger(Call(torch.sparse.sampled_addmm), (mask, torch.ones(4, 3), torch.ones(3, 4)), trace=False)
    assert (ledger.total("macs"), ledger.total("flops")) == (4 * 3, 2 * 4 * 3)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_a_quantised_product_counts():
    weight = torch.quantize_per_tensor(torch.ones(5, 4), 0.1, 0, torch.qint8)
    packed = torch.ops.quantized.linear_prepack(weight, torch.zeros(5))
    module = Call(lambda x: torch.ops.quantized.linear_dynamic(x, packed))
    ledger = xfcost.analyze(module, example_inputs=torch.ones(2, 4), trace=False)
    # 2·5 outputs of width 4, and a bias each
    assert (ledger.total("macs"), ledger.total("flops")) == (40, 80 + 10)


@pytest.mark.parametrize("ones", [False, True])
@pytest.mark.parametrize("left", [False, True])
def test_a_triangular_system_counts_as_substitution(left, ones):
    matrix, given = torch.eye(4).expand(2, 4, 4), torch.ones(2, 4, 3) if left else torch.ones(2, 3, 4)
    solve = partial(torch.linalg.solve_triangular, upper=False, left=left, unitriangular=ones)
    ledger = module_ledger(Call(solve), (matrix, given))
    # of 2 samples · 3 right sides: the 4 unknowns take 0 + 1 + 2 + 3 MACs, and a division each
    assert (ledger.total("macs"), ledger.total("flops")) == (6 * 6, 2 * 6 * 6 + (0 if ones else 6 * 4))
    assert ledger.module.traced == "agrees"


def test_an_integer_product_counts():
    eight = torch.ones(32, 16, dtype=torch.int8)
    ledger = xfcost.analyze(Call(torch._int_mm), example_inputs=(eight, eight.T.contiguous()), trace=False)
    assert ledger.total("macs") == 32 * 32 * 16


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(
    ("left", "right", "ends", "macs"),
    [
        ((6, 8), (2, 8, 16), [2, 6], 6 * 16 * 8),  # every row meets one matrix
        ((2, 6, 8), (2, 8, 8), None, 2 * 6 * 8 * 8),
        ((2, 6, 8), (8, 16), [8, 16], 6 * 16 * 8),  # every column meets one matrix
        ((6, 16), (16, 8), [4, 16], 6 * 8 * 16),  # two products of (6, 8), over 4 and over 12
    ],
    ids=["rows", "batches", "columns", "summed axis"],
)
def test_a_grouped_product_feeds_the_next_operation(left, right, ends, macs, device):
    groups = None if ends is None else torch.tensor(ends, dtype=torch.int32, device=device)
    inputs = (torch.ones(left, device=device), torch.ones(right, device=device), groups)
    ledger = xfcost.analyze(Call(lambda x, w, offs: F.grouped_mm(x, w, offs=offs).relu()), example_inputs=inputs)
    # each has 96 results, and a ReLU of each
    assert (ledger.total("macs"), ledger.total("flops")) == (macs, 2 * macs + 96)
    assert ledger.agreement.exact


@pytest.mark.parametrize(("chosen", "experts", "read"), [(2, 8, 6), (2, 5, 5), (1, 8, 3), (8, 8, 8), (3, 3, 3)])
def test_experts_that_no_token_chose_idle_and_at_most_one_per_choice_is_read(chosen, experts, read):
    """3 tokens choose so many experts of 16·4 weights each; their rows are sorted by expert."""

    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.weight = nn.Embedding(9, 16), nn.Parameter(torch.zeros(experts, 16, 4))

        def forward(self, input_ids):
            ends = torch.full((experts,), 3 * chosen, dtype=torch.int32, device=input_ids.device)
            return F.grouped_mm(self.words(input_ids).repeat_interleave(chosen, 1)[0], self.weight, offs=ends)

    ids = {"input_ids": torch.ones(1, 3, dtype=torch.long)}
    ledger = xfcost.analyze(Experts(), example_inputs=ids, trace=False, mixing=False)
    row = next(one for one in ledger.rows if "grouped" in one.path)
    assert (row.params, row.idle_params) == (experts * 64, (experts - chosen) * 64)
    assert row.weights_read.elements == read * 64


# Modules of `transformers`, from small configs, as they come: MACs are torch's own on `meta`, where that runs ─────────

VISION = {key: TEXT[key] for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")}
VISION |= {"image_size": 16, "patch_size": 4}
B, N = 2, 7


def tokens(number=N):
    return torch.ones(B, number, dtype=torch.long)


def images():
    return torch.ones(B, 3, 16, 16)


# class, fields of its configuration, inputs
TEXT_INPUT = lambda: {"input_ids": tokens()}  # noqa: E731
IMAGE_INPUT = lambda: {"pixel_values": images()}  # noqa: E731
MODELS = {
    "BertModel": (TEXT, TEXT_INPUT),
    "GPT2LMHeadModel": ({"n_embd": 16, "n_layer": 3, "n_head": 4, "vocab_size": 29}, TEXT_INPUT),
    "LlamaForCausalLM": (TEXT, TEXT_INPUT),
    "Llama4ForCausalLM": (TEXT | {"intermediate_size_mlp": 24, "num_local_experts": 4}, TEXT_INPUT),
    "MambaForCausalLM": (
        {"hidden_size": 16, "num_hidden_layers": 2, "vocab_size": 29, "state_size": 4}, TEXT_INPUT,
    ),
    "T5Model": (
        {"d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 3, "num_heads": 4, "vocab_size": 29},
        lambda: {"input_ids": tokens(), "decoder_input_ids": tokens(3)},
    ),
    "ViTModel": (VISION, IMAGE_INPUT),
    "SwinModel": (
        {"image_size": 16, "patch_size": 2, "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4},
        IMAGE_INPUT,
    ),
    "CLIPModel": (
        {"text_config": TEXT | {"max_position_embeddings": N}, "vision_config": VISION, "projection_dim": 8},
        lambda: {"input_ids": tokens(), "pixel_values": images()},
    ),
}  # fmt: skip
EAGER_AND_FUSED = ("BertModel", "GPT2LMHeadModel", "LlamaForCausalLM", "ViTModel")


def built(name, **more):
    made, fields = getattr(transformers, name), MODELS[name][0]
    return made(made.config_class(**fields | more)).eval()


@pytest.mark.parametrize("name", [name for name in MODELS if name not in EAGER_AND_FUSED])
def test_macs_are_torch_s_own_and_nothing_is_left_uncounted(name):
    model, inputs = built(name), MODELS[name][1]()
    ledger = xfcost.analyze(model, example_inputs=inputs, strict=True)
    assert ledger.total("params") == parameters(model)
    assert ledger.total("traced_macs") == ledger.total("macs") == torch_macs(model, **inputs)


@pytest.mark.parametrize("name", EAGER_AND_FUSED)
def test_eager_and_fused_cost_the_same_and_keep_another_memory(name):
    eager, fused = (
        module_ledger(built(name, attn_implementation=how), (), MODELS[name][1](), trace=False)
        for how in ("eager", "sdpa")
    )
    assert (eager.metadata.attention, fused.metadata.attention) == ("eager", "fused")
    assert eager.total("macs") == fused.total("macs")
    for quantity in ("eager_bytes", "fused_bytes"):
        assert getattr(eager.module, quantity) == getattr(fused.module, quantity) > 0
    # 3 layers · B·h matrices of as many tokens as there are
    side = 17 if name == "ViTModel" else N
    assert eager.total("attention_entries") == 3 * B * 4 * side * side
    assert fused.total("attention_entries") == 3 * B * 4 * side


# A preset's module looked at without its spec costs what the spec's formulas say ──────────────────────────────────────

TOTALS = ("params", "macs", "flops", "comparisons", "moved", "attention_entries")


@pytest.mark.parametrize("attention", ["eager", "fused"])
@pytest.mark.parametrize("preset", ["vit-ti16", "swin", "gpt2", "t5-small", "convnext-t"])
def test_totals_and_attention_memory_are_the_formulas(preset, attention):
    architecture = architecture_of(preset, attention=attention)
    counted, live = count(architecture, orders=False), build(architecture)
    found = module_ledger(live.model, tuple(live.inputs), strict=True, trace=False)
    assert {name: found.total(name) for name in TOTALS} == {name: counted.total(name) for name in TOTALS}
    for name in ("all_layers", "peak"):
        assert found.attention_memory()[name] == counted.attention_memory()[name]


# What no formula knows is named, and a user's own counts ──────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def scan():
    """A custom operation that no table knows."""

    @torch.library.custom_op("xfcosttest::scan", mutates_args=())
    def scan(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    scan.register_fake(torch.empty_like)
    return scan


class TestUncounted:
    """What no formula knows is named, and totals are lower bounds."""

    def test_strict_refuses_it(self, scan):
        with pytest.raises(IncompleteError, match="xfcosttest::scan") as refusal:
            xfcost.analyze(Takes(scan), example_inputs=X, strict=True)
        assert refusal.value.exit_code == 1

    @pytest.mark.parametrize(
        ("given", "flops"),
        [(lambda x, out: {"macs": x.numel(), "flops": 3 * out.numel()}, 72), (lambda x, out: 24, 48)],
    )
    def test_a_user_counts_it(self, scan, given, flops):
        xfcost.register("xfcosttest::scan")(given)
        try:
            ledger = xfcost.analyze(Takes(scan), example_inputs=X, strict=True)
            with pytest.raises(UsageError, match="has a count already"):
                xfcost.register("xfcosttest::scan")(len)
        finally:
            unregister("xfcosttest::scan")
        assert (ledger.total("macs"), ledger.total("flops")) == (24 + 192, flops + 384)

    @pytest.mark.parametrize("wrong", [1.5, -3, {"macs": -1}, {"bytes": 3}, None, True])
    def test_a_count_that_is_none_is_refused(self, scan, wrong):
        xfcost.register("xfcosttest::scan")(lambda x, out: wrong)
        try:
            with pytest.raises(UsageError, match="expected MACs as a whole number"):
                module_ledger(Takes(scan), (X,))
        finally:
            unregister("xfcosttest::scan")

    @pytest.mark.parametrize("wrong", ["scan", "a::b::c", 3])
    def test_a_name_that_is_none_is_refused(self, wrong):
        with pytest.raises(UsageError, match="library::operation"):
            xfcost.register(wrong)

    def test_a_part_of_a_function_that_counts_as_one(self, monkeypatch):
        def of_known(func, args, kwargs, result):
            return None if "rsqrt" in str(func) else operation_costs(func, args, kwargs, result)

        monkeypatch.setattr("xfcost.torch_models.running.recorder.operation_costs", of_known)
        norm = Takes(lambda x: F.rms_norm(x, (8,)))
        assert module_ledger(norm, (X,), trace=False).module.uncounted == {"aten::rsqrt": 1}

    def test_it_is_named(self, scan):
        numpy = "Tensor.numpy (work outside torch is not seen)"
        for function, inputs, name in (
            (scan, X, "xfcosttest::scan"),
            (lambda x: torch.from_numpy(x.numpy() * 2), X, numpy),
            (lambda x: torch.linalg.svd(x).Vh, torch.eye(8), "aten::_linalg_svd"),
        ):
            ledger = module_ledger(Takes(function), (inputs,))
            assert (ledger.module.uncounted, ledger.module.complete) == ({name: 1}, False)
            assert not ledger.agreement.exact
