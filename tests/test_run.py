"""The folds over a record, on calls made by hand: no model runs."""

from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from xfcost.ledger.record import SavedStorage
from xfcost.torch_models.accounts import chains
from xfcost.torch_models.running.prediction_calls import calls_of, in_all_steps
from xfcost.torch_models.running.record import NodeOwners, RecordedCall, RunRecord, TensorRecord
from xfcost.torch_models.running.recorder import Recorder

CODE = compile("", "model.py", "exec")


def tensor(number, *shape, storage=None):
    shape = torch.Size(shape)
    strides = torch.empty(shape, device="meta").stride()
    storage = number if storage is None else storage
    return TensorRecord(shape, strides, 0, torch.float32, shape.numel(), number, storage, is_nested=False, source=None)


def call(func, inputs, outputs, *, module="", macs=0, phase="forward", next_node=0, node=None, **more):
    packet = getattr(func, "overloadpacket", None)
    return RecordedCall(
        operation=str(packet).replace(".", "::"), func=func, module=module, place=(CODE, 0), args=tuple(inputs),
        kwargs={}, inputs=list(inputs), outputs=list(outputs), costs=Counter(macs=macs, flops=2 * macs),
        phase=phase, next_node=next_node, node=node, number=0, **more,
    )  # fmt: skip


MM, ADD, VIEW, RELU = (
    torch.ops.aten.mm.default, torch.ops.aten.add.Tensor, torch.ops.aten.view.default, torch.ops.aten.relu.default,
)  # fmt: skip


def test_the_peak_is_the_most_bytes_at_once():
    # 100, 150, 170, 150, 250, 150
    assert RunRecord(changes=[(0, 100), (1, 50), (2, 20), (2, -20), (3, 100), (0, -100)]).peak_bytes() == 250


def test_a_storage_is_saved_once_and_weights_are_not():
    saved = [
        SavedStorage(1, 8, "a", 0),
        SavedStorage(2, 4, "a", 0),
        SavedStorage(1, 8, "b", 1),
        SavedStorage(None, 3, "b", 1),
        SavedStorage(None, 3, "c", 2),
    ]
    found = RunRecord(saved=saved, weights={2}).first_saved()
    assert [(one.module, one.nbytes) for one in found] == [("a", 8), ("b", 3), ("c", 3)]


def test_nodes_made_since_the_last_call_are_a_call_s():
    owners = NodeOwners()
    owners.own(3, "first", has_costs=True)  # made nodes 0, 1 and 2
    owners.own(4, "second", has_costs=True)  # made node 3
    assert [owners.owner(node) for node in (0, 2, 3, 4, None)] == ["first", "first", "second", None, None]


def test_of_a_custom_function_the_first_part_with_costs_owns_it():
    # the node is made before its parts run, none of which makes one
    owners = NodeOwners()
    owners.own(1, "view", has_costs=False)
    owners.own(1, "product", has_costs=True)
    owners.own(1, "sum", has_costs=True)
    assert owners.owner(0) == "product"


def test_gradients_are_the_leaf_s_that_made_the_node():
    x = tensor(0, 2, 2)
    run = RunRecord(
        calls=[
            call(MM, [x, x], [x], module="a", macs=8, next_node=1),
            call(MM, [x, x], [x], module="b", macs=8, next_node=2),
            call(MM, [x, x], [x], macs=5, phase="backward", node=1),
            call(MM, [x, x], [x], macs=6, phase="backward", node=0),
            call(MM, [x, x], [x], macs=7, phase="again", node=1, module="a", next_node=3),
            call(MM, [x, x], [x], macs=9, phase="backward", node=2),
        ],
        saved=[SavedStorage(4, 16, "b", 1), SavedStorage(5, 16, "outside", 1)],
    )
    assert run.costs_by_module() == {name: {"macs": 8, "flops": 16} for name in ("a", "b")}
    # node 2 was made when a ran again
    assert run.backward_by_module() == {"a": 6 + 7 + 9, "b": 5}
    assert run.saved_by_module() == {"b": 16, "outside": 16}


def test_the_calls_of_all_steps_are_in_their_order_so_that_sums_are_the_same_in_every_process():
    every = [call(RELU, [x], [x]) for x in (tensor(width, 2, width) for width in range(30, 50))]
    found = in_all_steps(*(calls_of(RunRecord(calls=every * steps))[0] for steps in (17, 19)), (17, 19), 100)
    assert [one.inputs[0].sizes[1] for one in found.calls] == [*range(30, 50)]


def test_a_chain_is_as_long_as_results_wait_for_results():
    a, b, c, d = (tensor(number, 2) for number in range(4))
    seen = tensor(4, 2, storage=2)
    run = RunRecord(
        calls=[call(ADD, [a, a], [b]), call(ADD, [b, a], [c]), call(VIEW, [c], [seen]), call(ADD, [seen, b], [d])]
    )
    assert chains(run) == {1: 1, 2: 2, 3: 3}


def test_parts_of_a_function_are_atens_and_the_function_is_one_call():
    x = tensor(0, 2, 2)
    norm = call(ADD, [x], [x], is_function=True, parts=[call(MM, [x, x], [x]), call(ADD, [x], [x])])
    norm.func = SimpleNamespace(__name__="rms_norm")
    run = RunRecord(calls=[norm, call(RELU, [x], [x])])
    assert [one.func for one in run.aten_calls()] == [MM, ADD, RELU]
    norm.operation = "scaled_dot_product_attention"
    assert [one.operation for one in run.dispatched()] == ["scaled_dot_product_attention", "aten::relu"]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_tensor_of_strided_layout_is_saved_once():
    nested = torch.nested.nested_tensor([torch.ones(3, 4), torch.ones(5, 4)], requires_grad=True)
    recorder = Recorder(nn.Identity(), [nested])
    with recorder.modes(), recorder.saving():
        nested * nested
    # a product saves both factors, here one storage of 3·4 + 5·4 numbers of 4 bytes
    assert len(recorder.run.saved) == 2
    assert [one.nbytes for one in recorder.run.first_saved()] == [(3 + 5) * 4 * 4]
