"""The traced account: whose work it is, and what it refuses."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.flop_counter import FlopCounterMode

import xfcost
from modules import Call, traced
from xfcost.ledger.errors import UsageError
from xfcost.torch_models.running.by_row import dispatch, row_path
from xfcost.torch_models.tracing import trace as live_trace
from xfcost.torch_models.tracing.trace import trace, traced_rows


class Nested(nn.Module):
    """Two linear maps, 3·4 and 4·3 MACs per token, the second twice; and an add of its own."""

    def __init__(self, *, adds: bool) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4, bias=False)
        self.second = nn.Sequential(nn.Linear(4, 3, bias=False))
        self.adds = adds

    def forward(self, x: Tensor) -> Tensor:
        y = self.second(self.first(x))
        y = self.second(self.first(y))
        return x + y if self.adds else y


scaled = nn.Sequential(nn.Linear(3, 3))
scaled.scale = nn.Parameter(torch.ones(3))


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_queries_that_samples_share_are_multiplied_for_each(device: str) -> None:
    # 3·2 heads of 5 queries and 7 keys, width 4: two products
    found = traced(nn.functional.scaled_dot_product_attention, (1, 2, 5, 4), *[(3, 2, 7, 4)] * 2, device=device)
    assert found.macs == 2 * 3 * 2 * 5 * 7 * 4


def test_work_belongs_to_the_module_that_does_it_and_to_no_other() -> None:
    # 5 tokens through both maps, twice: 2·5·12 MACs each. The add, 15 FLOPs, is the model's own.
    found = traced(Nested(adds=True), (1, 5, 3), device="meta")
    assert {name: (costs.macs, costs.flops, costs.leaf) for name, costs in found.modules.items()} == {
        "": (0, 15, False),
        "first": (120, 240, True),
        "second": (0, 0, False),
        "second.0": (120, 240, True),
    }
    assert (found.macs, found.flops, found.params) == (240, 495, 24)


@pytest.mark.parametrize(
    ("model", "width", "found", "lost"),
    [
        (Nested(adds=True), 3, None, ["0: 15 flops outside the leaves of any mechanism"]),
        (Nested(adds=False), 3, [("x.first", 120), ("x.second_0", 120)], []),
        # 3 parameters of the model's own
        (scaled, 3, [("x.0", 45)], ["0: 3 params outside the leaves of any mechanism"]),
    ],
)
def test_work_and_parameters_outside_a_leaf_are_reported(model, width, found, lost) -> None:
    rows, loose = traced_rows(nn.Sequential(model.to("meta")), (torch.empty(1, 5, width, device="meta"),), {"0": "x"})
    assert loose == lost
    assert found is None or [(row.path, row.macs) for row in rows] == found


def test_a_leaf_that_stands_in_no_component_is_reported() -> None:
    # 3·3 MACs and 3 adds of the bias that no row owns: 21 FLOPs.
    rows, loose = traced_rows(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), (torch.ones(1, 3),), {"0": "x"})
    assert [(row.path, row.macs) for row in rows] == [("x", 9)]
    assert loose == ["1: 12 params, 9 macs, 21 flops outside the leaves of any mechanism"]


def test_repeated_blocks_are_one_row_and_must_be_alike() -> None:
    rows = {"0": "x", "1": "x", "2": "x"}
    three = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4)) for _ in range(3)))
    (row,), loose = traced_rows(three, (torch.ones(1, 4),), rows)
    # 4·4 MACs and 4 adds of the bias, three times over.
    assert (row.path, row.times, row.macs, row.flops, row.params, loose) == ("x.0", 3, 16, 36, 20, [])
    three[1][0] = nn.Linear(4, 4, bias=False)
    _, loose = traced_rows(three, (torch.ones(1, 4),), rows)
    assert len(loose) == 1
    assert loose[0].startswith("x.0: repeated blocks differ")


def test_the_row_of_a_leaf_is_that_of_the_nearest_component_around_it() -> None:
    rows = {"stages.0": "s", "stages.0.run.1": "s.block", "shared.t": "shared.t"}
    assert row_path("stages.0.run.1.core.scores", rows) == "s.block.scores"
    assert row_path("stages.0.norm", rows) == "s.norm"
    assert row_path("shared.t", rows) == "shared.t"
    assert row_path("elsewhere.linear", rows) is None


def test_a_module_with_two_names_is_one_row_with_both_its_runs() -> None:
    # 2·2 MACs and 2 adds, run twice; its 6 parameters stand once.
    layer = nn.Linear(2, 2)
    found = trace(nn.Sequential(layer, nn.ReLU(), layer), (torch.ones(1, 2),))
    assert (found.macs, found.flops, found.params) == (8, 22, 6)  # flops 2·(8 + 2) + 2 of the ReLU


def test_shared_parameters_are_counted_once() -> None:
    # one 6×4 table, for looking up and for scoring: 24 parameters, 5·4·6 MACs
    tied = nn.Sequential(nn.Embedding(6, 4), nn.Linear(4, 6, bias=False))
    tied[1].weight = tied[0].weight
    found = trace(tied, (torch.zeros(1, 5, dtype=torch.long),))
    assert (found.params, found.macs, found.unsupported) == (24, 120, {})
    assert (found.modules["0"].params, found.modules["1"].params) == (24, 0)


def test_torch_is_as_before_after_a_trace_on_meta() -> None:
    names = ["aten::convolution", "aten::_convolution", "aten::native_layer_norm"]
    kernels = [torch._C._dispatch_dump(name) for name in names]
    convolution = nn.Conv2d(3, 8, 3, device="meta")
    image = torch.empty(1, 3, 9, 9, device="meta")
    for _ in range(2):  # a second trace finds the first one's mending gone, and mends anew
        # 7·7 positions · 8 · 9·3 = 10 584
        assert trace(convolution, (image,)).macs == 10_584
        assert convolution(image).shape == (1, 8, 7, 7)
        with FlopCounterMode(display=False) as counter:
            convolution(image)
        assert counter.get_total_flops() == 2 * 10_584
    with pytest.raises(RuntimeError, match="channel"):
        trace(convolution, (torch.empty(1, 4, 9, 9, device="meta"),))
    assert convolution(image).shape == (1, 8, 7, 7)
    assert [torch._C._dispatch_dump(name) for name in names] == kernels
    answer = nn.Conv2d(3, 8, 3)(torch.ones(1, 3, 9, 9))
    assert answer.isfinite().all()
    assert torch.is_grad_enabled()


X = torch.zeros(2, 3)
NUMPY = "Tensor.numpy (work outside torch is not seen)"


def refused(model, *inputs) -> str:
    with pytest.raises(UsageError) as caught:
        xfcost.trace(model, *inputs)
    return str(caught.value)


def test_a_compiled_module_is_traced_as_it_was_written():
    # 2 rows · 3 · 4
    compiled, inside = torch.compile(nn.Linear(3, 4), backend="eager"), nn.Sequential(nn.Linear(3, 4))
    inside[0].compile(backend="eager")
    assert xfcost.trace(compiled, X).macs == 24
    for model in (nn.Sequential(compiled), inside):
        before = model[0]
        assert {name: each.macs for name, each in xfcost.trace(model, X).modules.items()} == {"": 0, "0": 24}
        assert model[0] is before


@pytest.mark.parametrize(
    ("model", "inputs", "said"),
    [
        (nn.Linear, (X,), "got the class Linear"),
        (lambda x: x, (X,), "got function"),
        (nn.MultiheadAttention(3, 1), ((X, X, X),), "one by one"),  # advice where it helps
        (nn.Linear(3, 3), ([1.0],), "input 0 is list, expected a tensor"),
        (nn.Sequential(nn.LazyLinear(3)), (X,), "0 (LazyLinear) has no shapes yet; run the model"),
        (nn.Sequential(torch.jit.script(nn.Linear(3, 3))), (X,), "is scripted, and its operations can"),
    ],
)
def test_what_can_not_be_traced_is_refused(model, inputs, said):
    told = refused(model, *inputs)
    assert said in told
    assert ("one by one" in told) == (said == "one by one")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (lambda: torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(3, 4)), {nn.Linear}), (2, 3)),
        (lambda: Call(lambda x: flex_attention(x, x, x)), (1, 2, 16, 16)),
        (lambda: Call(torch.func.grad(lambda x: (x * x).sum())), (2, 3)),
    ],
    ids=["quantized", "flex_attention", "torch.func.grad"],
)
def test_what_the_tracer_gives_up_on_is_a_usage_error(model, shape):
    built, x = model(), torch.zeros(shape)
    built(x)
    assert refused(built, x).startswith("trace: this module can't be traced: ")


def test_what_the_module_itself_raises_passes_through(monkeypatch):
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        xfcost.trace(nn.Linear(4, 4), X)

    def fails(*_: object) -> Tensor:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        xfcost.trace(Call(fails), X)
    # a fault of a handle is no fault of the module
    monkeypatch.setitem(live_trace._HANDLES, "aten::linear", fails)
    with pytest.raises(ZeroDivisionError, match="mine"):
        xfcost.trace(nn.Linear(3, 4), X)


def test_finding_out_whether_it_runs_changes_nothing():
    class Counting(nn.Module):
        calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return torch.func.grad(lambda y: (y * y).sum())(x.add_(1))

    model, x = Counting(), torch.zeros(2, 3)
    refused(model, x)
    assert model.calls == 0
    assert torch.equal(x, torch.zeros(2, 3))
    assert not model._forward_hooks


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_a_module_whose_weight_another_used_is_not_called_unused(device, training):
    layer = nn.TransformerEncoderLayer(8, 2, 16)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).train(training).to(device)
    assert xfcost.trace(encoder, torch.zeros(5, 2, 8, device=device)).uncalled == ()
    q = torch.zeros(5, 2, 8, device=device)
    assert xfcost.trace(nn.MultiheadAttention(8, 2).to(device), q, q, q).uncalled == ()


def test_of_two_modules_that_were_not_called_the_one_without_use_is_named():
    model = Call(lambda x: model.called(x @ model.by_weight.weight.T))
    model.by_weight, model.spare, model.called = nn.Linear(3, 4), nn.Linear(3, 4), nn.Linear(4, 3)
    found = xfcost.trace(model, X)
    assert found.uncalled == ("spare",)
    assert str(found).splitlines()[-1] == "never called: spare"
    assert found.macs == 2 * 3 * 4 + 2 * 4 * 3


@pytest.mark.parametrize("read", [lambda x: x.detach().numpy(), np.asarray], ids=["numpy", "asarray"])
def test_a_product_that_runs_in_numpy_is_named_and_whole_numbers_that_go_there_are_no_work(read):
    weight = np.ones((3, 4), dtype=np.float32)
    model = Call(lambda x: torch.from_numpy(read(x) @ weight) + 1)
    found = xfcost.trace(model, X)
    assert (found.complete, found.unsupported) == (False, {NUMPY: 1})
    assert dispatch(model, (X,)).uncounted() == {NUMPY: 1}
    assert "numpy" not in vars(Tensor)
    model = Call(lambda x: x[: int(x.argmax(1).numpy().max()) + 1] + 1)
    assert xfcost.trace(model, X).complete
    assert not dispatch(model, (X,)).uncounted()
