"""The traced account on every kind of module that torch.nn has, and on what torch.nn.functional has beside them.

MACs are held to torch's own counter on `meta` (with the fast path off), FLOPs to arithmetic written beside them.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from modules import Call, Module, halves, torch_macs, traced
from xfcost.torch_models.running.by_row import dispatch
from xfcost.torch_models.tracing.trace import trace

on_both_devices = pytest.mark.parametrize("device", ["cpu", "meta"])


# An encoder layer of d = 8, h = 2, f = 16 on B·N tokens: 4 maps of d², 2 of d·f; and 2·N·d per token for attention.
CONTRACTING: dict[str, tuple[Callable[[], nn.Module], tuple[tuple[int, ...], ...]]] = {
    "linear of one vector": (lambda: nn.Linear(3, 4), ((3,),)),
    "conv2d same, reflected": (lambda: nn.Conv2d(3, 4, 3, padding="same", padding_mode="reflect"), ((2, 3, 9, 9),)),
    "conv2d of one sample": (lambda: nn.Conv2d(3, 4, 3, padding="same"), ((3, 9, 9),)),
    "conv3d valid": (lambda: nn.Conv3d(3, 4, 2, padding="valid"), ((2, 3, 5, 5, 4),)),
    "transposed conv1d": (lambda: nn.ConvTranspose1d(4, 6, 3, stride=2, output_padding=1), ((2, 4, 5),)),
    "transposed conv3d": (lambda: nn.ConvTranspose3d(4, 2, 3, stride=2, padding=1), ((2, 4, 3, 3, 3),)),
    "lstm in layers, both ways": (
        lambda: nn.LSTM(6, 4, num_layers=3, bidirectional=True, batch_first=True, dropout=0.1), ((3, 5, 6),),
    ),
    "lstm projected": (lambda: nn.LSTM(6, 4, num_layers=2, proj_size=3, bidirectional=True), ((5, 3, 6),)),
    "lstm of one sample, no bias": (lambda: nn.LSTM(6, 4, bias=False), ((5, 6),)),
    "gru": (lambda: nn.GRU(6, 4, num_layers=2, bidirectional=True), ((5, 3, 6),)),
    "gru cell": (lambda: nn.GRUCell(6, 4), ((3, 6),)), "rnn cell": (lambda: nn.RNNCell(6, 4), ((3, 6),)),
    "attention across": (lambda: nn.MultiheadAttention(8, 2, kdim=6, vdim=4), ((5, 3, 8), (7, 3, 6), (7, 3, 4))),
    "attention with key and value of its own": (
        lambda: nn.MultiheadAttention(8, 2, add_bias_kv=True, add_zero_attn=True), ((5, 3, 8),) * 3,
    ),
    "encoder layer, norm first": (
        lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True, activation="gelu"),
        ((3, 5, 8),),
    ),
    "decoder": (lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16), 2), ((5, 3, 8), (7, 3, 8))),
    "transformer": (lambda: nn.Transformer(8, 2, 2, 2, 16, batch_first=True), ((3, 5, 8), (3, 7, 8))),
}  # fmt: skip


@on_both_devices
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("name", CONTRACTING)
def test_macs_of_modules_are_those_of_torchs_own_counter(name: str, training: bool, device: str) -> None:
    make, shapes = CONTRACTING[name]
    module = make().train(training)
    found = traced(module, *shapes, device=device)
    assert found.unsupported == {}
    assert found.complete
    assert found.macs == torch_macs(module, *(halves(shape, "meta") for shape in shapes)) > 0


@on_both_devices
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_packed_sequences_are_counted_token_by_token(kind: type[nn.Module], device: str) -> None:
    def unpacked(self: Any, x: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 3, 2]), batch_first=True)
        return nn.utils.rnn.pad_packed_sequence(self.layer(packed)[0])[0]

    def model() -> Module:
        return Module(unpacked, layer=kind(6, 4, bidirectional=True))

    gates = {nn.LSTM: 4, nn.GRU: 3, nn.RNN: 1}[kind]
    found = traced(model(), (3, 5, 6), device=device)
    assert found.unsupported == {}
    # 5 + 3 + 2 = 10 tokens and not 15, both ways, each through maps of 6 and of 4 numbers to 4 per gate.
    assert found.macs == 10 * 2 * gates * 4 * (6 + 4) == torch_macs(model(), halves((3, 5, 6), "meta"))
    recorded = dispatch(model().to(device), (halves((3, 5, 6), device),))
    assert sum(one["macs"] for one in recorded.costs_by_module().values()) == found.macs


def test_what_an_encoder_masks_as_padding_is_counted() -> None:
    # In evaluation mode torch would leave padding out, on nested tensors; the dense product is what is counted.
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
    encoder_of = Call(lambda x, padding: encoder(x, src_key_padding_mask=padding))
    encoder_of.inner = encoder
    padding = torch.zeros(3, 5, dtype=torch.bool)
    padding[1, 3:] = True
    found = trace(encoder_of, (halves((3, 5, 8), "cpu"), padding))
    assert found.unsupported == {}
    # per layer 15 tokens · (4·64 + 2·128 + 2·5·8) = 15·592
    assert found.macs == 2 * 15 * 592
    assert trace(encoder, (halves((3, 5, 8), "cpu"),)).macs == 2 * 15 * 592


A, B, C, D = (2, 3), (3, 4), (4, 5), (5, 6)


def einsum(equation: str) -> Callable[..., Tensor]:
    return lambda *operands: torch.einsum(equation, *operands)


@on_both_devices
@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        pytest.param(einsum("ij->ji"), (A,), id="one operand"),
        pytest.param(einsum("ij,jk->ik"), ((2, 3), (1, 4)), id="summed side broadcast"),
        pytest.param(einsum("ii,ij->j"), ((3, 3), B), id="diagonal"),
        pytest.param(einsum("b h i d, b h j d -> b h i j"), ((2, 3, 5, 4), (2, 3, 7, 4)), id="attention"),
        pytest.param(lambda a, b: torch.einsum(a, [0, 1], b, [1, 2], [0, 2]), (A, B), id="by numbers"),
        pytest.param(lambda a, b: torch.tensordot(a, b, ([0, -1], [2, 0])), ((2, 3, 4), (4, 5, 2)), id="axes"),
        pytest.param(lambda a, b: torch.tensordot(a, b, ([1], [0])), ((2, 3), (1, 5)), id="tensordot, broadcast"),
        pytest.param(torch.inner, (A, (4, 3)), id="inner"),
        pytest.param(torch.inner, ((2, 5, 3), (4, 3)), id="inner of higher ranks"),
        pytest.param(lambda *a: torch.linalg.multi_dot(a), (A, B, C), id="multi_dot"),
        pytest.param(
            lambda *a: torch.linalg.multi_dot(a), ((9, 2), (2, 8), (8, 3), (3, 7)), id="multi_dot, best order"
        ),
        pytest.param(lambda *a: torch.linalg.multi_dot(a), ((3,), B, C, (5,)), id="multi_dot between vectors"),
        pytest.param(lambda *a: torch.linalg.multi_dot(a), (A, B), id="multi_dot of two"),
        pytest.param(torch.chain_matmul, (A, B, C, D), id="chain_matmul"),
    ],
)
def test_macs_of_functions_are_those_of_torchs_own_counter(function, shapes, device: str) -> None:
    found = traced(function, *shapes, device=device)
    assert found.unsupported == {}
    assert found.macs == torch_macs(function, *(halves(shape, "meta") for shape in shapes))


@on_both_devices
@pytest.mark.parametrize(
    ("function", "shapes", "macs", "elementwise"),
    [
        # torch's counter knows none of these.
        pytest.param(torch.dot, ((3,), (3,)), 3, 0, id="dot"),
        pytest.param(torch.vdot, ((3,), (3,)), 3, 0, id="vdot"),
        pytest.param(torch.inner, ((3,), (3,)), 3, 0, id="inner of vectors"),
        pytest.param(torch.inner, (A, ()), 0, 6, id="inner with a number: 6 products"),
        pytest.param(torch.outer, ((3,), (4,)), 0, 12, id="outer: 12 products and no sum"),
        pytest.param(torch.addr, (B, (3,), (4,)), 0, 24, id="addr: 12 products, 12 sums"),
        pytest.param(torch.kron, (A, B), 0, 6 * 12, id="kron"),
        pytest.param(torch.addmv, ((2,), A, (3,)), 6, 2, id="addmv"),
        pytest.param(
            lambda a, b, c: torch.empty_like(a).baddbmm_(b, c), ((7, 2, 4), (7, 2, 3), (7, 3, 4)), 168, 56,
            id="in place",
        ),
        # torch multiplies and sums: 7·3 of each
        pytest.param(torch.linalg.vecdot, ((7, 3), (7, 3)), 0, 42, id="vecdot"),
        pytest.param(nn.Bilinear(3, 4, 5, bias=False), ((7, 3), (7, 4)), 35 * 16, 35, id="bilinear without bias"),
        # at most 25 vectors on a side: 3·5 pairs of 4 numbers, subtract, square, add
        pytest.param(torch.cdist, ((3, 4), (5, 4)), 0, 15 * 4 * 3, id="cdist"),
        pytest.param(lambda a, b: torch.cdist(a, b, p=1.0), ((30, 4), (40, 4)), 0, 1200 * 12, id="cdist, p = 1"),
        pytest.param(
            lambda a, b: torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist"), ((2, 30, 4), (2, 40, 4)),
            0, 2 * 1200 * 12, id="cdist told not to",
        ),
        # 2 + 3 numbers summed, then 2·1 products: nothing is summed by a product
        pytest.param(einsum("ij,k->i"), (A, (4,)), 0, 6 + 4 + 2, id="einsum that sums first"),
        pytest.param(einsum("ij->i"), (A,), 0, 6, id="einsum of one operand"),
        pytest.param(einsum("...->"), (A,), 0, 6, id="einsum of an ellipsis"),
    ],
)  # fmt: skip
def test_products_that_torchs_counter_does_not_know(function, shapes, macs, elementwise, device: str) -> None:
    found = traced(function, *shapes, device=device)
    assert found.unsupported == {}
    assert (found.macs, found.flops) == (macs, 2 * macs + elementwise)


def test_einsum_along_the_path_of_opt_einsum() -> None:
    # the path goes with the call: first the last two operands, 3·4·5 MACs, then 2·3·5
    def contract(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return torch._C._VariableFunctions.einsum("ij,jk,kl->il", (a, b, c), path=[1, 2, 0, 1])

    assert traced(contract, A, B, C).macs == 60 + 30 == torch_macs(contract, *(halves(s, "meta") for s in (A, B, C)))


def test_products_of_8_bit_floats() -> None:
    def scaled(a: Tensor, b: Tensor) -> Tensor:
        one = torch.ones((), device=a.device)
        small = torch.float8_e4m3fn
        return torch._scaled_mm(a.to(small), b.to(small).t(), scale_a=one, scale_b=one, out_dtype=torch.float32)

    found = traced(scaled, (16, 32), (48, 32), device="meta")
    assert (found.unsupported, found.macs) == ({}, 16 * 32 * 48)
    assert torch_macs(scaled, halves((16, 32), "meta"), halves((48, 32), "meta")) == 16 * 32 * 48
