"""The ledger of any module: its rows, blocks and views, and fvcore's trace beside."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import xfcost
from any_models import TOKENS, Model, Takes, X
from modules import Call, Module
from xfcost.ledger.errors import UsageError
from xfcost.ledger.json_objects import distinct_modules, module_levels, module_tree
from xfcost.torch_models.any_model.ledger import module_ledger
from xfcost.views.analyze import document


def rows(ledger):
    return [(row.path, row.times, row.params, row.macs) for row in ledger.rows]


class TestRows:
    """One row per operation of a module, equal blocks as one."""

    def test_every_operation_in_the_order_it_ran(self):
        ledger = module_ledger(Model(), (TOKENS,))
        assert rows(ledger) == [
            ("table.embedding", 1, 88, 0),
            ("blocks.*.qkv.mm", 4, 192, 5 * 192),
            ("blocks.*.bmm", 4, 0, 25 * 8),
            ("blocks.*._softmax", 4, 0, 0),
            ("blocks.*.bmm_2", 4, 0, 25 * 8),
            ("blocks.*.out.mm", 4, 64, 5 * 64),
            ("add", 1, 0, 0),
            ("head.mm", 1, 0, 5 * 88),
        ]
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
        tied = Call(lambda x: x @ tied.weight @ tied.weight.T)
        tied.weight = nn.Parameter(torch.ones(8, 4))
        assert rows(module_ledger(tied, (torch.ones(2, 8),))) == [("mm", 1, 32, 64), ("mm_2", 1, 0, 64)]

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

    def test_a_product_with_the_parameters_of_a_module_inside_is_the_row_of_that(self):
        """`out_proj` of torch's attention is never called: its parent multiplies by its weights."""
        ledger = module_ledger(nn.MultiheadAttention(8, 2), (torch.ones(5, 1, 8),) * 3)
        out = next(row for row in ledger.rows if row.path == "out_proj.addmm")
        assert (out.component, out.params, out.macs, out.shared, out.figure("read")) == (
            "out_proj", 64 + 8, 5 * 64, None, None,
        )  # fmt: skip
        assert ledger.total("params") == ledger.weights_read() == 288
        assert (ledger.module.traced, ledger.total("traced_macs")) == ("agrees", ledger.total("macs"))

    def test_a_weight_that_two_products_take_lives_in_the_first(self):
        """The same where both are made by a module around, and where the inner module is called too."""
        inner = nn.Linear(8, 8, bias=False)
        twice = Module(lambda self, x: F.linear(F.linear(x, self.inner.weight), self.inner.weight), inner=inner)
        assert rows(module_ledger(twice, (torch.ones(2, 8),))) == [("inner.mm", 1, 64, 128), ("mm", 1, 0, 128)]
        called = Module(lambda self, x: self.inner(F.linear(x, self.inner.weight)), inner=inner)
        assert rows(module_ledger(called, (torch.ones(2, 8),))) == [("mm", 1, 0, 128), ("inner.mm", 1, 64, 128)]

    def test_a_product_with_the_parameters_of_several_modules_is_its_own_module_s(self):
        """They have rows of their own, and so has a table that its parent adds."""
        both = Module(
            lambda self, x: F.linear(x, torch.cat([self.one.weight, self.two.weight])) + self.table.weight,
            one=nn.Linear(8, 4, bias=False), two=nn.Linear(8, 4, bias=False), table=nn.Embedding(2, 8),
        )  # fmt: skip
        found = {row.path: row.params for row in module_ledger(both, (torch.ones(2, 8),)).rows}
        assert found == {"cat": 0, "mm": 0, "add": 0} | {
            f"{name}.parameters": params for name, params in {"one": 32, "two": 32, "table": 16}.items()
        }

    def test_parameters_that_nothing_takes_are_told(self):
        model = nn.Sequential(nn.Linear(8, 8))
        model.idle = nn.Linear(3, 3)
        model.forward = lambda x: model[0](x).relu()
        ledger = module_ledger(model, (torch.ones(2, 8),))
        assert ledger.module.uncalled == ("idle",)
        assert ledger.total("params") == 72 + 12

    def test_a_module_called_twice_has_its_parameters_once(self):
        twice = Call(lambda x: twice.map(twice.map(x)))
        twice.map = nn.Linear(8, 8, bias=False)
        (row,) = module_ledger(twice, (torch.ones(2, 8),)).rows
        assert (row.params, row.macs, row.times, row.ran.calls) == (64, 2 * 2 * 64, 1, 2)


class TestViews:
    """Groups and the tree of modules."""

    def test_the_tree_has_totals_of_everything_inside(self):
        tree = {node["module"]: node["macs"] for node in module_tree(module_ledger(Model(), (TOKENS,)), depth=1)}
        block = 5 * (192 + 64) + 2 * 200
        assert tree == {
            "": 4 * block + 440, "table": 0, "blocks": 4 * block, "blocks.*": 4 * block, "head": 440,
        }  # fmt: skip

    def test_a_name_that_begins_like_another_is_not_inside_it(self):
        model = nn.Sequential()
        model.add_module("map", nn.Linear(8, 8))
        model.add_module("mapped", nn.Linear(8, 4))
        tree = {node["module"]: node["params"] for node in module_tree(module_ledger(model, (torch.ones(2, 8),)))}
        assert tree == {"": 72 + 36, "map": 72, "mapped": 36}

    def test_a_module_with_only_one_other_in_it_is_no_level(self):
        inner = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        ledger = module_ledger(nn.Sequential(nn.Sequential(nn.Sequential(inner)), nn.Linear(8, 2)), (torch.ones(2, 8),))
        assert {one["module"]: one["depth"] for one in module_tree(ledger)} == {
            "": 0, "0": 1, "0.0": 1, "0.0.0": 1, "0.0.0.0": 2, "0.0.0.1": 2, "1": 1,  # noqa: S104 - paths
        }  # fmt: skip
        assert module_levels(ledger) == 2
        tree = distinct_modules(module_tree(ledger, depth=1))
        # 8·8 + 8 + 8·2 + 2
        assert {one["module"]: one["params"] for one in tree} == {"": 90, "0.0.0": 72, "1": 18}

    def test_a_tree_that_is_cut_off_says_how_deep_it_goes(self):
        ledger = module_ledger(nn.Sequential(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 2)), (X,))
        text = document(ledger, "module", depth=1).text("table")
        assert "deeper: --depth 2\n" in text
        assert "\n  1 linear " in text
        assert "deeper" not in document(ledger, "module", depth=2).text("table")

    def test_groups_by_module_to_a_depth(self):
        groups = module_ledger(Model(), (TOKENS,)).by("module", depth=1)
        assert {name: len(found) for name, found in groups.items()} == {"table": 1, "blocks": 5, "": 1, "head": 1}

    def test_groups_by_operation_have_all_calls(self):
        module = Takes(lambda x: (x.cos() @ x.T).cos() @ x)
        groups = module_ledger(module, (X,)).by("operation")
        assert {name: len(found) for name, found in groups.items()} == {"cos": 2, "mm": 3}

    def test_frame_and_notebook(self):
        ledger = xfcost.analyze(Model(), example_inputs=TOKENS)
        frame = ledger.to_frame()
        assert int((frame["macs"] * frame["times"]).sum()) == ledger.total("macs")
        assert frame["aten"][0] == "aten::embedding"
        assert "blocks.*" in ledger._repr_html_()


class TestBesideTheTrace:
    """fvcore's trace, laid beside."""

    def test_agreeing_rows_have_its_figures(self):
        ledger = module_ledger(Model(), (TOKENS,))
        assert ledger.total("traced_macs") == ledger.total("macs")
        assert ledger.agreement.exact
        ledger = module_ledger(Model(), (TOKENS,), trace=False)
        assert (ledger.total("traced_macs"), ledger.module.traced) == (None, "not traced")

    def test_a_difference_is_named(self):
        counted = Call(lambda x: x if torch.jit.is_tracing() else torch.fft.fft(x))
        model = nn.Sequential(nn.Linear(8, 8), counted)
        ledger = module_ledger(model, (X,))
        (difference,) = ledger.agreement.differences
        # 3·8 reals are 12 complex numbers, 5·3 FLOPs each
        assert difference == {"path": "1", "quantity": "flops", "counted": 180, "traced": 0}
        assert ledger.module.traced == "differs"
        assert ledger.total("traced_flops") == ledger.total("flops") - 180

    def test_a_module_that_it_cannot_trace_is_told(self):
        def shy(x):
            if torch.jit.is_tracing():
                raise ValueError("not in a trace")
            return x

        ledger = module_ledger(Takes(shy), (X,))
        assert ledger.total("macs") == 192
        assert "not in a trace" in ledger.module.traced

    def test_a_module_without_inputs(self):
        ledger = module_ledger(Call(lambda: torch.ones(2, 3) @ torch.ones(3, 4)), ())
        assert (ledger.total("macs"), ledger.module.traced) == (24, "agrees")


@pytest.mark.parametrize(
    ("model", "options", "said"),
    [
        (Model(), {"N": 784}, "N=784: for a module, N is the argument of example_inputs"),
        (Model(), {"mode": "decode"}, "takes no cache; expected parameters use_cache"),
        (Model(), {"mode": "train", "tokens": 300}, "reads no token ids"),
        (Model(), {"inputs": ["1x5:int64"]}, "--input: only for modules that are named"),
        (Model(), {"build": ["depth=2"]}, "--build: only for modules that are named"),
        ("vit", {}, "a spec has its inputs"),
        (Model, {}, "got the class Model"),
    ],
)
def test_what_is_of_specs_or_of_modules_alone_is_refused(model, options, said):
    with pytest.raises(UsageError, match=said):
        xfcost.analyze(model, example_inputs=TOKENS, **options)


@pytest.mark.parametrize("tokens", [0, -3, 2**33])
def test_an_n_out_of_range_is_refused(tokens):
    with pytest.raises(UsageError, match=r"expected at (least 1 token|most 4,294,967,296 tokens)"):
        xfcost.analyze(nn.Linear(8, 8), example_inputs=lambda N: torch.zeros(1, N, 8), N=tokens)
