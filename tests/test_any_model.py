"""The ledger of any module: its rows and blocks, inputs of any form, what is left uncounted, what is left alone."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import xfcost
from modules import Call
from xfcost.ledger.errors import IncompleteError, UsageError
from xfcost.torch_models.any_model.ledger import module_ledger
from xfcost.torch_models.any_model.registry import unregister
from xfcost.torch_models.any_model.run import run_on


class Attention(nn.Module):
    """Eager self-attention of d = 8, one head."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24, bias=False), nn.Linear(8, 8, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return self.out((q @ k.mT).softmax(-1) @ v)


class Model(nn.Module):
    """An embedding, 4 equal blocks, and a head that shares the table."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(11, 8)
        self.blocks = nn.ModuleList(Attention() for _ in range(4))
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.table.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


TOKENS = torch.tensor([[1, 2, 3, 4, 5]])


def rows(ledger: xfcost.Ledger) -> list[tuple[str, int, int, int]]:
    return [(row.path, row.times, row.params, row.macs) for row in ledger.rows]


class TestRows:
    """One row per operation of a module, equal blocks as one."""

    def test_every_operation_in_the_order_it_ran(self):
        assert rows(module_ledger(Model(), (TOKENS,))) == [
            ("table.embedding", 1, 88, 0),
            ("blocks.*.qkv.mm", 4, 192, 5 * 192),
            ("blocks.*.bmm", 4, 0, 25 * 8),
            ("blocks.*._softmax", 4, 0, 0),
            ("blocks.*.bmm_2", 4, 0, 25 * 8),
            ("blocks.*.out.mm", 4, 64, 5 * 64),
            ("add", 1, 0, 0),
            ("head.mm", 1, 0, 5 * 88),
        ]

    def test_shapes_and_calls(self):
        ledger = module_ledger(Model(), (TOKENS,))
        scores, add = (next(row for row in ledger.rows if row.path == path) for path in ("blocks.*.bmm", "add"))
        assert (scores.ran.input_shapes, scores.ran.output_shapes) == ("1×5×8, 1×8×5", "1×5×5")
        assert (add.ran.calls, add.flops) == (4, 4 * 40)

    def test_attention_matrices_are_a_softmax_over_a_product_of_activations(self):
        ledger = module_ledger(Model(), (TOKENS,))
        assert ledger.total("attention_entries") == 4 * 25
        # 4 layers of 25 weights saved for training; scores and weights of one layer alive at once
        assert ledger.attention_memory()["all_layers"] == 4 * 25 * 4
        assert ledger.attention_memory()["peak"] == 2 * 25 * 4
        # fused, each of 4 layers would write 5 log-sum-exps
        assert (ledger.module.eager_bytes, ledger.module.fused_bytes) == (4 * 25 * 4, 4 * 5 * 4)
        assert ledger.metadata.attention == "eager"

    def test_a_shared_table_is_counted_once_and_read_twice(self):
        ledger = module_ledger(Model(), (TOKENS,))
        head = ledger.rows[-1]
        assert (head.params, head.shared, head.figure("read")) == (0, "table.weight", 88)
        # 5 rows of the table, the blocks, the whole table
        assert ledger.weights_read() == 40 + 4 * (192 + 64) + 88
        assert ledger.total("params") == sum(one.numel() for one in Model().parameters())

    def test_parameters_live_where_they_are_first_taken(self):
        class Tied(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.ones(8, 4))

            def forward(self, x: Tensor) -> Tensor:
                code = x @ self.weight
                return code @ self.weight.T

        assert rows(module_ledger(Tied(), (torch.ones(2, 8),))) == [("mm", 1, 32, 64), ("mm_2", 1, 0, 64)]

    def test_a_block_of_another_width_stays_its_own(self):
        model = Model()
        model.blocks[2].out = nn.Linear(8, 8)
        paths = [row.path for row in module_ledger(model, (TOKENS,)).rows]
        assert "blocks.0,1,3.qkv.mm" in paths
        assert "blocks.2.out.addmm" in paths

    def test_equal_layers_that_do_not_follow_each_other_stay_apart(self):
        model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, 8))
        found = [(row.path, row.times) for row in module_ledger(model, (torch.ones(2, 8),)).rows]
        assert found == [("0.addmm", 1), ("1.relu", 1), ("2-3.addmm", 2)]

    def test_parameters_that_their_own_module_does_not_use_have_a_row(self):
        ledger = module_ledger(nn.MultiheadAttention(8, 2), (torch.ones(5, 1, 8),) * 3)
        assert [row.params for row in ledger.rows if row.path == "out_proj.parameters"] == [64 + 8]
        assert ledger.total("params") == 288

    def test_parameters_that_nothing_takes_are_told(self):
        model = nn.Sequential(nn.Linear(8, 8))
        model.idle = nn.Linear(3, 3)
        model.forward = lambda x: model[0](x).relu()
        ledger = module_ledger(model, (torch.ones(2, 8),))
        assert ledger.module.uncalled == ("idle",)
        assert ledger.total("params") == 72 + 12

    def test_a_module_called_twice_has_its_parameters_once(self):
        class Twice(nn.Module):
            def __init__(self):
                super().__init__()
                self.map = nn.Linear(8, 8, bias=False)

            def forward(self, x: Tensor) -> Tensor:
                return self.map(self.map(x))

        (row,) = module_ledger(Twice(), (torch.ones(2, 8),)).rows
        assert (row.params, row.macs, row.times, row.ran.calls) == (64, 2 * 2 * 64, 1, 2)


class TestViews:
    """Groups and the tree of modules."""

    def test_the_tree_has_totals_of_everything_inside(self):
        from xfcost.ledger.objects import module_tree

        tree = {node["module"]: node["macs"] for node in module_tree(module_ledger(Model(), (TOKENS,)), depth=2)}
        block = 5 * (192 + 64) + 2 * 200
        assert tree == {
            "": 4 * block + 440, "table": 0, "blocks": 4 * block, "blocks.*": 4 * block, "head": 440,
        }  # fmt: skip

    def test_a_name_that_begins_like_another_is_not_inside_it(self):
        from xfcost.ledger.objects import module_tree

        model = nn.Sequential()
        model.add_module("map", nn.Linear(8, 8))
        model.add_module("mapped", nn.Linear(8, 4))
        tree = {node["module"]: node["params"] for node in module_tree(module_ledger(model, (torch.ones(2, 8),)))}
        assert tree == {"": 72 + 36, "map": 72, "mapped": 36}

    def test_groups_by_module_to_a_depth(self):
        groups = module_ledger(Model(), (TOKENS,)).by("module", depth=1)
        assert {name: len(found) for name, found in groups.items()} == {"table": 1, "blocks": 5, "": 1, "head": 1}

    @pytest.mark.parametrize("form", ["json", "csv", "markdown", "latex", "table"])
    @pytest.mark.parametrize("by", [None, "module", "operation", "block", "stage", "mixing"])
    def test_every_report(self, form, by):
        from xfcost.report.export import ledger_text

        text = ledger_text(module_ledger(Model(), (TOKENS,)), form, by, depth=2)
        assert "embedding" in text if by in (None, "operation") else "8" in text

    def test_frame_and_notebook(self):
        ledger = xfcost.analyze(Model(), example_inputs=TOKENS)
        frame = ledger.to_frame()
        assert int((frame["macs"] * frame["times"]).sum()) == ledger.total("macs")
        assert frame["aten"][0] == "aten::embedding"
        assert "blocks.*" in ledger._repr_html_()

    def test_the_table_says_what_it_ran_on(self):
        from xfcost.report.table import ledger_plain

        text = ledger_plain(module_ledger(Model(), (TOKENS,)))
        assert "inputs tokens: 1×5 int64" in text
        assert "every ATen operation of one forward on meta tensors" in text
        assert "trace: agrees" in text
        assert "mixing" not in text


@dataclasses.dataclass
class Pair:
    left: Tensor
    right: Tensor | None = None


class Cache:
    """A cache as a user writes one: a plain object."""

    def __init__(self):
        self.keys = torch.ones(2, 8)

    def append(self, x: Tensor) -> Tensor:
        self.keys = torch.cat([self.keys, x])
        return self.keys


class Takes(nn.Module):
    """A map of whatever `pick` finds in its inputs."""

    def __init__(self, pick):
        super().__init__()
        self.map, self.pick = nn.Linear(8, 8, bias=False), pick

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return Pair(self.map(self.pick(*args, **kwargs)))


X = torch.ones(3, 8)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(
    ("inputs", "keywords", "pick"),
    [
        (X, None, lambda x: x),
        ((X,), None, lambda x: x),
        ([X, 3], None, lambda x, number: x),
        ({"x": X}, None, lambda x: x),
        ((X,), {"flag": True, "mask": None}, lambda x, flag, mask: x),
        (({"deep": [(1, X)]},), None, lambda nested: nested["deep"][0][1]),
        (Pair(X), None, lambda pair: pair.left),
        ((None, X), None, lambda nothing, x: x),
        (nn.Parameter(X), None, lambda x: x),
        ((X * nn.Parameter(torch.ones(8)),), None, lambda x: x),  # a tensor with a history
    ],
    ids=["tensor", "tuple", "list", "dictionary", "both", "nested", "dataclass", "none", "parameter", "not a leaf"],
)
def test_inputs_of_any_form(inputs, keywords, pick, device):
    ledger = xfcost.analyze(Takes(pick).to(device), example_inputs=inputs, example_kwargs=keywords)
    assert ledger.total("macs") == 3 * 64
    assert ledger.module.traced == "agrees"


def test_a_cache_among_the_inputs_is_left_as_it_was():
    cache = Cache()
    ledger = module_ledger(Takes(lambda x, cache: cache.append(x)), (X, cache))
    assert ledger.total("macs") == (2 + 3) * 64
    assert (cache.keys.shape, cache.keys.is_meta) == ((2, 8), False)


def test_inputs_are_left_as_they_were():
    given = torch.ones(3, 8)
    run_on("real", Call(lambda x: x.mul_(2)), (given,), {})
    module_ledger(Call(lambda x: x.mul_(2)), (given,))
    assert torch.equal(given, torch.ones(3, 8))


# What is run on ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("how", ["fake", "real"])
def test_every_way_counts_the_same(how):
    first, other = (run_on(way, Model(), (TOKENS,), {}).works for way in ("meta", how))
    assert [(work.path, work.operation, work.costs) for work in first] == [
        (work.path, work.operation, work.costs) for work in other
    ]


def test_the_fast_path_of_an_encoder_is_off_on_real_tensors_too():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2).eval()
    on_meta, on_real = (run_on(how, encoder, (torch.ones(2, 5, 8),), {}).works for how in ("meta", "real"))
    macs = [sum(work.costs["macs"] for work in works) for works in (on_meta, on_real)]
    # 10 tokens of 4·d² + 2·d·f, and d per pair for QKᵀ and AV
    assert macs == [2 * 10 * (4 * 64 + 2 * 128 + 2 * 5 * 8)] * 2


def test_code_that_looks_at_values_runs_on_real_tensors_and_says_so():
    ledger = module_ledger(Takes(lambda x: x[x.sum(-1) > 28]), (torch.arange(24.0).reshape(3, 8),))
    # rows 1 and 2 are chosen
    assert (ledger.total("macs"), ledger.module.tensors) == (2 * 64, "real")
    assert "nonzero" in ledger.module.reason or "index" in ledger.module.reason


def test_a_tensor_of_another_device_runs_on_fake_tensors():
    ledger = module_ledger(Takes(lambda x: x + torch.ones(8)), (X,))
    assert (ledger.total("macs"), ledger.module.tensors) == (192, "fake")


def test_values_are_refused_on_meta():
    model = Takes(lambda x: x[x.sum(-1) > 28]).to("meta")
    with pytest.raises(UsageError, match=r"Takes does not run on these inputs: .*needs real ones"):
        module_ledger(model, (X.to("meta"),))


# What is not counted ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def scan():
    """A custom operation that no table knows."""

    @torch.library.custom_op("xfcosttest::scan", mutates_args=())
    def scan(x: Tensor) -> Tensor:
        return x.clone()

    scan.register_fake(torch.empty_like)
    return scan


class TestUncounted:
    """What no formula knows is named, and totals are lower bounds."""

    def test_it_is_named(self, scan):
        from xfcost.report.export import ledger_text

        ledger = module_ledger(Takes(scan), (X,))
        assert ledger.module.uncounted == {"xfcosttest::scan": 1}
        assert (ledger.module.complete, ledger.agreement.exact) == (False, False)
        table = ledger_text(ledger, "table")
        assert "at least 192 MACs   at least 384 FLOPs" in table
        assert "not counted, for no formula knows it: xfcosttest::scan (1×)" in table
        assert "at least 192 macs" in ledger_text(ledger, "markdown")

    def test_strict_refuses_it(self, scan):
        with pytest.raises(IncompleteError, match="xfcosttest::scan") as refusal:
            xfcost.analyze(Takes(scan), example_inputs=X, strict=True)
        assert refusal.value.exit_code == 1

    def test_a_user_counts_it(self, scan):
        xfcost.register("xfcosttest::scan")(lambda x, out: {"macs": x.numel(), "flops": 3 * out.numel()})
        try:
            ledger = xfcost.analyze(Takes(scan), example_inputs=X, strict=True)
            with pytest.raises(UsageError, match="has a count already"):
                xfcost.register("xfcosttest::scan")(len)
        finally:
            unregister("xfcosttest::scan")
        assert (ledger.total("macs"), ledger.total("flops")) == (24 + 192, 72 + 384)

    def test_macs_alone(self, scan):
        @xfcost.register("xfcosttest::scan")
        def count(x, *, out):
            return x.numel()

        try:
            ledger = module_ledger(Takes(scan), (X,))
        finally:
            unregister("xfcosttest::scan")
        assert (ledger.total("macs"), ledger.total("flops")) == (24 + 192, 48 + 384)

    @pytest.mark.parametrize("wrong", [1.5, {"macs": -1}, {"bytes": 3}, None, True])
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

    def test_work_in_numpy_is_named(self):
        ledger = module_ledger(Takes(lambda x: torch.from_numpy(x.numpy() * 2)), (X,))
        assert "Tensor.numpy (work outside torch is not seen)" in ledger.module.uncounted

    def test_an_operation_without_a_formula(self):
        ledger = module_ledger(Takes(lambda x: torch.linalg.svd(x).Vh), (torch.eye(8),))
        assert ledger.module.uncounted == {"aten::_linalg_svd": 1}


class TestBesideTheTrace:
    """fvcore's trace, laid beside."""

    def test_agreeing_rows_have_its_figures(self):
        ledger = module_ledger(Model(), (TOKENS,))
        assert ledger.total("traced_macs") == ledger.total("macs")
        assert ledger.agreement.exact

    def test_a_difference_is_named(self):
        class Counted(nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                return torch.fft.fft(x)

        model = nn.Sequential(nn.Linear(8, 8), Counted())
        ledger = module_ledger(model, (X,))
        (difference,) = ledger.agreement.differences
        # 3·8 reals are 12 complex numbers, 5·3 FLOPs each
        assert difference == {"path": "1", "quantity": "flops", "counted": 180, "traced": 0}
        assert ledger.module.traced == "differs; the trace does not know aten::fft_fft (1×)"
        assert ledger.total("traced_flops") == ledger.total("flops") - 180

    def test_a_module_that_it_cannot_trace_is_told(self):
        def shy(x: Tensor) -> Tensor:
            if torch.jit.is_tracing():
                raise ValueError("not in a trace")
            return x

        ledger = module_ledger(Takes(shy), (X,))
        assert ledger.total("macs") == 192
        assert ledger.module.traced.startswith("fvcore can't trace it: this module can't be traced: not in a trace")

    def test_a_module_without_inputs(self):
        ledger = module_ledger(Call(lambda: torch.ones(2, 3) @ torch.ones(3, 4)), ())
        assert (ledger.total("macs"), ledger.module.traced) == (24, "agrees")

    def test_without_it(self):
        ledger = module_ledger(Model(), (TOKENS,), trace=False)
        assert (ledger.total("traced_macs"), ledger.module.traced) == (None, "not traced")


def test_options_of_specs_are_refused():
    with pytest.raises(UsageError, match="N=784: that is of specs"):
        xfcost.analyze(Model(), example_inputs=TOKENS, N=784)
    with pytest.raises(UsageError, match=r"device='?cpu'?: that is of specs"):
        xfcost.analyze(Model(), example_inputs=TOKENS, device="cpu")
    with pytest.raises(UsageError, match="a spec knows its inputs"):
        xfcost.analyze("vit", example_inputs=TOKENS)
