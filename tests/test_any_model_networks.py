"""Small networks whose costs are worked out by hand, on the CPU and on `meta`."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import xfcost
from modules import Call
from small_networks import NETWORKS


def example(shape: tuple[int, ...], device: str) -> Tensor:
    return torch.empty(shape, device=device).fill_(0.5)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_figure_is_the_one_worked_out_by_hand(name, device):
    network = NETWORKS[name]
    inputs = tuple(example(shape, device) for shape in network.shapes)
    ledger = xfcost.analyze(
        network.module().to(device), example_inputs=inputs, example_kwargs=network.keywords, trace=False, strict=True
    )
    assert {quantity: ledger.total(quantity) for quantity in network.expected} == network.expected


@pytest.mark.parametrize("name", ["linear", "conv2d grouped, dilated", "einsum of three", "encoder in evaluation"])
def test_inference_mode_hides_nothing(name):
    network = NETWORKS[name]

    class Hidden(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = network.module()

        @torch.inference_mode()
        def forward(self, *inputs: Tensor) -> Tensor:
            return self.inner(*inputs)

    inputs = tuple(example(shape, "cpu") for shape in network.shapes)
    ledger = xfcost.analyze(Hidden(), example_inputs=inputs, trace=False, strict=True)
    assert {quantity: ledger.total(quantity) for quantity in network.expected} == network.expected


TOKENS = torch.tensor([1, 2, 3, 4, 4])


def test_embedding_bags_move_rows_and_add_them():
    # 5 rows of 4, in two bags
    ledger = xfcost.analyze(nn.EmbeddingBag(10, 4), example_inputs=(TOKENS, torch.tensor([0, 2])), trace=False)
    assert (ledger.total("moved"), ledger.total("flops"), ledger.total("params")) == (20, 20, 40)


def test_an_embedding_moves_rows_and_reads_no_more_than_those():
    ledger = xfcost.analyze(nn.Embedding(10, 4), example_inputs=TOKENS, trace=False)
    assert (ledger.total("moved"), ledger.weights_read(), ledger.total("params")) == (20, 20, 40)


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("layout", ["to_sparse", "to_sparse_csr"])
def test_a_sparse_product_counts_its_stored_elements(layout):
    matrix = getattr(torch.eye(4), layout)()
    ledger = xfcost.analyze(Call(lambda a, b: a @ b), example_inputs=(matrix, torch.ones(4, 3)), trace=False)
    # 4 stored elements meet 3 columns
    assert (ledger.total("macs"), ledger.total("flops")) == (12, 24)
    assert (ledger.module.tensors, ledger.module.complete) == ("real", True)


class Quantised(nn.Module):
    """A quantised linear map, by its kernel."""

    def __init__(self):
        super().__init__()
        weight = torch.quantize_per_tensor(torch.ones(5, 4), 0.1, 0, torch.qint8)
        self.packed = torch.ops.quantized.linear_prepack(weight, torch.zeros(5))

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.quantized.linear_dynamic(x, self.packed)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_a_quantised_product_counts():
    ledger = xfcost.analyze(Quantised(), example_inputs=torch.ones(2, 4), trace=False)
    # 2·5 outputs of width 4, and a bias each
    assert (ledger.total("macs"), ledger.total("flops")) == (40, 80 + 10)


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
        ((6, 16), (16, 8), [4, 16], 6 * 8 * 16),  # two products of (6, 8), over 4 and over 12
    ],
    ids=["rows", "batches", "summed axis"],
)
def test_a_grouped_product_feeds_the_next_operation(left, right, ends, macs, device):
    groups = None if ends is None else torch.tensor(ends, dtype=torch.int32, device=device)
    inputs = (torch.ones(left, device=device), torch.ones(right, device=device), groups)
    ledger = xfcost.analyze(Call(lambda x, w, offs: F.grouped_mm(x, w, offs=offs).relu()), example_inputs=inputs)
    # each has 96 results, and a ReLU of each
    assert (ledger.total("macs"), ledger.total("flops")) == (macs, 2 * macs + 96)


def test_a_packed_sequence_counts_its_tokens_without_padding():
    class Packed(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(6, 4, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.lstm(nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 3])))[0].data

    ledger = xfcost.analyze(Packed(), example_inputs=torch.ones(5, 2, 6), trace=False)
    # 8 tokens of 16·(6 + 4) weights
    assert ledger.total("macs") == 8 * 160
