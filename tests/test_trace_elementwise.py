"""Element-wise work by hand, in both live accounts; and no class of torch.nn is silently counted as nothing."""

import math
from collections import Counter
from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from modules import Call, as_module, halves, traced, work
from xfcost.formulas.contractions import SizesAlone, is_tensor
from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.formulas.letters import LetteredInt, lettered
from xfcost.formulas.operation_costs import COSTS
from xfcost.torch_models.running.by_row import dispatch
from xfcost.torch_models.shared.leaves import GeluQuick
from xfcost.torch_models.tracing import trace as tracing
from xfcost.torch_models.tracing.trace import trace


def dispatched(function, *shapes: tuple[int, ...], device: str = "cpu") -> dict[str, int]:
    """What torch's dispatcher sees of the same."""
    found = dispatch(as_module(function).to(device), tuple(halves(shape, device) for shape in shapes))
    assert not found.uncounted()
    return {name: amount for name, amount in sum(found.costs_by_module().values(), Counter()).items() if amount}


# On 2·4·6 = 48 numbers; what a number costs is worked out beside it. A mean costs per element that enters.
TABLE = {
    "relu": nn.ReLU(), "gelu": nn.GELU(), "gelu_tanh": nn.GELU(approximate="tanh"), "gelu_quick": GeluQuick(),
    "softmax": nn.Softmax(dim=-1), "layer_norm": nn.LayerNorm(6), "rms_norm": nn.RMSNorm(6),
    "add": lambda x: x - 1, "multiply": lambda x: x / 2, "mean": lambda x: x.mean(dim=1),
}  # fmt: skip
PER_ELEMENT = {
    **{name: (function, FLOPS_PER_ELEMENT[name]) for name, function in TABLE.items()},
    "leaky relu: slope, maximum": (nn.LeakyReLU(), 2), "prelu": (nn.PReLU(), 2), "rrelu": (nn.RReLU().eval(), 2),
    "relu6: two bounds": (nn.ReLU6(), 2), "hardtanh: two bounds": (nn.Hardtanh(), 2),
    "hardsigmoid: add, two bounds, divide": (nn.Hardsigmoid(), 4), "hardswish: and the product": (nn.Hardswish(), 5),
    "mish: softplus 3, tanh 5, product": (nn.Mish(), 9), "elu": (nn.ELU(), 2), "selu: and a scale": (nn.SELU(), 3),
    "celu: divide, elu, multiply": (nn.CELU(0.5), 4), "softplus": (nn.Softplus(), 3),
    "softsign: absolute value, add, divide": (nn.Softsign(), 3),
    "logsigmoid: softplus of the negative": (nn.LogSigmoid(), 3), "tanhshrink: tanh, subtract": (nn.Tanhshrink(), 6),
    "softshrink": (nn.Softshrink(), 1), "hardshrink": (nn.Hardshrink(), 1), "threshold": (nn.Threshold(0.1, 0.2), 1),
    "softmin: negative, softmax": (nn.Softmin(-1), 6), "log softmax": (nn.LogSoftmax(-1), 5),
    "one bound": (lambda x: x.clamp(min=0.1), 1), "two bounds": (lambda x: x.clamp(0.1, 0.9), 2),
    "absolute value": (torch.abs, 1), "rounding": (torch.round, 1), "erf": (torch.erf, 1), "log1p": (torch.log1p, 1),
    "addcmul: product, sum": (lambda x: torch.addcmul(x, x, x), 2),
    "lerp: subtract, multiply, add": (lambda x: torch.lerp(x, x, 0.5), 3),
    "variance: mean, subtract, square, sum": (lambda x: x.var(1), 4),
    "standard deviation": (lambda x: torch.std_mean(x, -1)[0], 4), "product": (lambda x: x.prod(1), 1),
    "length: square, sum": (lambda x: x.norm(), 2), "logsumexp": (lambda x: x.logsumexp(1), 4),
    "cumulative sum": (lambda x: x.cumsum(1), 1),
    "sum, in another type": (lambda x: x.sum(1, dtype=torch.float64), 1),
    "cosine similarity: 3 products, 3 sums": (lambda x: F.cosine_similarity(x, x, 1), 6),
    "distance: subtract, square, sum": (lambda x: F.pairwise_distance(x, x), 3),
    "instance norm": (nn.InstanceNorm1d(4), 5),
    "instance norm with statistics that run": (nn.InstanceNorm1d(4, track_running_stats=True).eval(), 2),
    "group norm": (nn.GroupNorm(2, 4), 5), "batch norm": (nn.BatchNorm1d(4).eval(), 2),
    "batch norm of this batch: mean and variance too": (nn.BatchNorm1d(4).train(), 5),
    "in place: add, subtract, multiply, tanh": (lambda x: x.clone().add_(1).sub_(1).mul_(2).tanh_(), 8),
    "comparisons": (lambda x: (x > 1) & (x <= 2) | (x == 3) | ~(x != 4) | x.isnan(), 0),
}  # fmt: skip


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("name", PER_ELEMENT)
def test_element_wise_work_by_the_table(name: str, device: str) -> None:
    function, flops = PER_ELEMENT[name]
    found = traced(function, (2, 4, 6), device=device)
    assert found.unsupported == {}
    assert (found.macs, found.flops) == (0, 48 * flops)
    if "statistics that run" not in name:  # torch repeats them, which the dispatcher sees
        assert dispatched(function, (2, 4, 6), device=device) == ({"flops": 48 * flops} if flops else {})


def points(*shape: int) -> Tensor:
    return torch.linspace(-1, 1, math.prod(shape)).reshape(shape)


# An image of 2·4·6·6 = 288 numbers, or what is written.
BY_HAND = [
    # a·sigmoid(b): 4 per element of an output half as wide
    (nn.GLU(), (2, 4, 6), {"flops": 24 * 4}),
    # twice the sides: 4·288 = 1152 outputs, of 4, 16 or no neighbours, each a product and a sum
    (nn.Upsample(scale_factor=2, mode="bilinear"), (2, 4, 6, 6), {"flops": 1152 * 8}),
    (nn.Upsample(scale_factor=2, mode="bicubic"), (2, 4, 6, 6), {"flops": 1152 * 32}),
    (nn.Upsample(scale_factor=2), (2, 4, 6, 6), {"moved": 1152}),
    (nn.Upsample(scale_factor=2, mode="nearest-exact"), (2, 4, 6, 6), {"moved": 1152}),
    (nn.Upsample(scale_factor=2, mode="linear"), (2, 4, 6), {"flops": 96 * 4}),
    (nn.Upsample(scale_factor=2, mode="trilinear"), (1, 2, 3, 3, 3), {"flops": 432 * 16}),
    # 2 images · 3·5 points, 4 channels: 120 samples of 4 or 16 neighbours, a product and a sum each; for each of 30
    # points their weights, 4 FLOPs each; in a volume of 8 neighbours 2·3·5 points
    (lambda x: F.grid_sample(x, points(2, 3, 5, 2), align_corners=False), (2, 4, 6, 6),
     {"flops": 120 * 8 + 30 * 4 * 4}),
    (lambda x: F.grid_sample(x, points(2, 3, 5, 2), mode="bicubic", align_corners=False), (2, 4, 6, 6),
     {"flops": 120 * 32 + 30 * 16 * 4}),
    (lambda x: F.grid_sample(x, points(2, 3, 5, 2), mode="nearest", align_corners=False), (2, 4, 6, 6),
     {"moved": 120}),
    (lambda x: F.grid_sample(x, points(1, 2, 3, 5, 3), align_corners=False), (1, 4, 3, 3, 3),
     {"flops": 120 * 16 + 30 * 8 * 4}),
    # sorting lists of n takes ⌈log₂ n⌉ comparisons per element
    (lambda x: x.sort(dim=1)[0], (2, 5, 6), {"comparisons": 180}),
    (lambda x: torch.sort(x, dim=0, stable=True)[0], (16, 3), {"comparisons": 192}),
    (lambda x: x.argsort(dim=0), (2, 5, 6), {"comparisons": 60}),
    (lambda x: x.topk(2, dim=1)[0], (2, 5, 6), {"comparisons": 180}),
    (lambda x: x.argmax(-1), (2, 5, 6), {"comparisons": 60}),
    (lambda x: x.amax(1), (2, 5, 6), {"comparisons": 60}),
    # what is written elsewhere; a change of layout is no move
    (lambda x: x.roll(1, 1), (2, 5, 6), {"moved": 60}),
    (lambda x: x[:, torch.tensor([0, 0, 1])], (2, 5, 6), {"moved": 36}),
    (lambda x: torch.cat([x, x], dim=1), (2, 5, 6), {"moved": 120}),
    (lambda x: x.repeat_interleave(3, dim=1), (2, 5, 6), {"moved": 180}),
    (lambda x: F.pad(x, (0, 0, 1, 0)), (2, 5, 6), {"moved": 72}),
    (lambda x: x.gather(1, torch.zeros(2, 3, 6, dtype=torch.long)), (2, 5, 6), {"moved": 36}),
    (lambda x: x.new_zeros(2, 9, 6).scatter(1, torch.zeros(2, 5, 6, dtype=torch.long), x), (2, 5, 6),
     {"moved": 60}),
    (lambda x: x.new_zeros(2, 9, 6).index_copy(1, torch.arange(5), x), (2, 5, 6), {"moved": 60}),
    (lambda x: x.new_zeros(2, 9, 6).scatter_add(1, torch.zeros(2, 5, 6, dtype=torch.long), x), (2, 5, 6),
     {"moved": 60, "flops": 60}),
    # two rows of 6 are written into 5, or added to them
    (lambda x: x.index_put((torch.tensor([1, 3]),), x[:2]), (5, 6), {"moved": 12}),
    (lambda x: x.index_put((torch.tensor([1, 1]),), x[:2], accumulate=True), (5, 6), {"moved": 12, "flops": 12}),
    (lambda x: x.transpose(1, 2).flatten(1), (2, 5, 6), {}),
    (lambda x: x.masked_fill(torch.ones(5, 1) > 2, 0), (2, 5, 6), {}),
    (lambda x: x // 3.0, (4, 5), {"flops": 20}),
    # x²·x²·x of 4·4 matrices: three products of 64
    (lambda x: torch.linalg.matrix_power(x, 5), (4, 4), {"macs": 192, "flops": 384}),
    # n/2 complex numbers: 5 · 8/2 · log₂ 8; the filling up is the transform's
    (lambda x: torch.fft.rfft(x, n=8), (5,), {"flops": 60}),
    (lambda x: torch.outer(x[0], x[1]), (4, 4), {"flops": 16}),
    # every output is the mean of one number; sizes that are worked out in floats cost nothing
    (lambda x: F.interpolate(x, scale_factor=2.0, mode="area"), (2, 4, 6, 6), {"flops": 1152}),
    # 6 numbers to 4: windows of 2, 2, 2 and 2; both ways 64 numbers enter, 8 images
    (nn.AdaptiveMaxPool2d(4), (2, 4, 6, 6), {"comparisons": 8 * 64}),
    (lambda x: F.max_pool2d(x, 2, return_indices=True)[0], (2, 4, 6, 6), {"comparisons": 288}),
    # squares, 3 channels averaged; times α plus k, to the power, the quotient: 1 + 3 + 1 + 1 + 1 + 1; 2 channels
    # of padding are written around 4, in 2·6·36 numbers
    (nn.LocalResponseNorm(3), (2, 4, 6, 6), {"flops": 288 * 8, "moved": 2 * 6 * 36}),
    # squares of both vectors, a bound and a quotient each
    (lambda x: F.normalize(x, dim=-1), (2, 4, 6), {"flops": 48 * 2 + 8 + 48}),
    (nn.PixelShuffle(2), (2, 4, 6, 6), {"moved": 288}),
    (nn.PixelUnshuffle(2), (2, 4, 6, 6), {"moved": 288}),
    (nn.ChannelShuffle(2), (2, 4, 6, 6), {"moved": 288}),
    # 5·5 windows of 2·2·4 numbers; folded back, each is added where it came from
    (nn.Unfold(2), (2, 4, 6, 6), {"moved": 2 * 16 * 25}),
    (nn.Fold((6, 6), 2), (2, 16, 25), {"moved": 800, "flops": 800}),
    # the larger of two, broadcast: 6·5 outputs
    (lambda x: torch.maximum(x, x.mT), (6, 1), {"comparisons": 36}),
    (lambda x: torch.max(x, x.mT), (6, 1), {"comparisons": 36}),
    # a direction's length (2) and its scale (1) on 4·6 weights, and the map of 2 vectors
    (parametrizations.weight_norm(nn.Linear(6, 4)), (2, 6), {"macs": 48, "flops": 24 * 3 + 96 + 8}),
    # complex numbers are two: both are added
    (lambda x: (torch.fft.rfft(x) + 1).real, (6,), {"flops": 5 * 6 * 3 // 2 + 2 * 4}),
]  # fmt: skip


@pytest.mark.parametrize(("function", "shape", "expected"), BY_HAND)
def test_work_by_hand(function, shape, expected) -> None:
    found = traced(function, shape)
    assert found.unsupported == {}
    assert work(found) == expected
    if "nearest" not in str(function):  # torch works places out in floats, which the dispatcher sees
        assert dispatched(function, shape) == expected


def test_embedding_bags() -> None:
    # 2 bags of 3 rows of 4 numbers: 24 are read, and summed, averaged or compared; a weight each is a product more
    rows, weights = torch.zeros(2, 3, dtype=torch.long), torch.ones(2, 3)
    for mode, counted in (("sum", "flops"), ("mean", "flops"), ("max", "comparisons")):
        assert work(trace(nn.EmbeddingBag(5, 4, mode=mode), (rows,))) == {"moved": 24, counted: 24}
    bag = nn.EmbeddingBag(5, 4, mode="sum")
    weighted = Call(lambda rows, weights: bag(rows, per_sample_weights=weights))
    weighted.bag = bag
    assert work(trace(weighted, (rows, weights))) == {"moved": 24, "flops": 48}


X, IMAGE, VIDEO = (2, 4, 6), (2, 4, 6, 6), (2, 4, 6, 6, 6)
_OF_RANK = {1: X, 2: IMAGE, 3: VIDEO}


def _of_ranks(name: str, *arguments, ranks=(1, 2, 3), **options) -> dict:
    return {f"{name}{rank}d": (arguments, options, (_OF_RANK[rank],)) for rank in ranks}


# class -> its arguments, its options, the shapes of its inputs (whole numbers where they are a tuple's only number)
WORKING: dict[str, tuple] = {
    **{
        name: ((), {}, (X,))
        for name in [
            "CELU", "ELU", "GELU", "GLU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU",
            "LogSigmoid", "Mish", "PReLU", "RReLU", "ReLU", "ReLU6", "SELU", "SiLU", "Sigmoid", "Softplus",
            "Softshrink", "Softsign", "Tanh", "Tanhshrink",
        ]
    },
    **{name: ((-1,), {}, (X,)) for name in ("LogSoftmax", "Softmax", "Softmin")},
    "Softmax2d": ((), {}, (IMAGE,)), "Threshold": ((0.1, 0.2), {}, (X,)),
    **_of_ranks("BatchNorm", 4),
    **_of_ranks("InstanceNorm", 4),
    "SyncBatchNorm": ((4,), {}, (IMAGE,)), "GroupNorm": ((2, 4), {}, (X,)), "LayerNorm": ((6,), {}, (X,)),
    "RMSNorm": ((6,), {}, (X,)), "LocalResponseNorm": ((3,), {}, (IMAGE,)), "CrossMapLRN2d": ((3,), {}, (IMAGE,)),
    **_of_ranks("AvgPool", 2),
    **_of_ranks("MaxPool", 2),
    **_of_ranks("LPPool", 2, 2),
    **_of_ranks("AdaptiveAvgPool", 4),
    **_of_ranks("AdaptiveMaxPool", 4),
    **_of_ranks("FractionalMaxPool", 2, ranks=(2, 3), output_size=2),
    **_of_ranks("Conv", 4, 3, 3, padding="same"),
    **_of_ranks("ConvTranspose", 4, 3, 3),
    "Linear": ((6, 3), {}, (X,)), "Bilinear": ((6, 6, 3), {}, (X, X)),
    **{name: ((6, 3), {}, (X,)) for name in ("LSTM", "GRU", "RNN")},
    **{name: ((6, 3), {}, ((2, 6),)) for name in ("LSTMCell", "GRUCell", "RNNCell")},
    "MultiheadAttention": ((6, 2), {}, (X, X, X)), "TransformerEncoderLayer": ((6, 2, 8), {}, (X,)),
    "TransformerDecoderLayer": ((6, 2, 8), {}, (X, X)), "Transformer": ((6, 2, 1, 1, 8), {"batch_first": True}, (X, X)),
    "CosineSimilarity": ((), {}, (X, X)), "PairwiseDistance": ((), {}, (X, X)),
    "Upsample": ((), {"scale_factor": 2}, (IMAGE,)), "UpsamplingBilinear2d": ((), {"scale_factor": 2}, (IMAGE,)),
    "UpsamplingNearest2d": ((), {"scale_factor": 2}, (IMAGE,)), "PixelShuffle": ((2,), {}, (IMAGE,)),
    "PixelUnshuffle": ((2,), {}, (IMAGE,)), "ChannelShuffle": ((2,), {}, (IMAGE,)),
    "Fold": (((6, 6), 2), {}, ((2, 16, 25),)), "Unfold": ((2,), {}, (IMAGE,)),
    **{
        f"{kind}Pad{rank}d": ((1,), {}, (_OF_RANK[rank],))
        for rank in (1, 2, 3)
        for kind in ("Circular", "Constant", "Reflection", "Replication", "Zero")
    },
    "ConstantPad1d": ((1, 0.5), {}, (X,)), "ConstantPad2d": ((1, 0.5), {}, (IMAGE,)),
    "ConstantPad3d": ((1, 0.5), {}, (VIDEO,)),
    **{
        name: ((), {}, (X, X))
        for name in [
            "BCELoss", "BCEWithLogitsLoss", "HuberLoss", "KLDivLoss", "L1Loss", "MSELoss", "MultiLabelSoftMarginLoss",
            "PoissonNLLLoss", "SmoothL1Loss", "SoftMarginLoss",
        ]
    },
    "TripletMarginLoss": ((), {}, (X, X, X)), "TripletMarginWithDistanceLoss": ((), {}, (X, X, X)),
    "GaussianNLLLoss": ((), {}, (X, X, X)), "HingeEmbeddingLoss": ((), {}, (X, X)),
    "CrossEntropyLoss": ((), {}, (X, X)), "MarginRankingLoss": ((), {}, (X, X, X)),
}  # fmt: skip
# Data is shaped, or in training masked: nothing by convention.
NOTHING = {
    "Flatten": ((), {}, (X,)), "Unflatten": ((1, (2, 2)), {}, (X,)), "Identity": ((), {}, (X,)),
    **{
        name: ((), {}, (IMAGE,))
        for name in ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "FeatureAlphaDropout"]
    },
    "Dropout1d": ((), {}, (X,)), "Dropout3d": ((), {}, (VIDEO,)),
}  # fmt: skip
# Held to hand arithmetic elsewhere (whole numbers enter), or run nothing of their own.
ELSEWHERE = {
    "Embedding", "EmbeddingBag", "TransformerEncoder", "TransformerDecoder", "Module", "Sequential", "ModuleList",
    "ModuleDict", "ParameterList", "ParameterDict", "Container", "DataParallel", "RNNBase", "RNNCellBase", "NLLLoss",
    "NLLLoss2d", "CTCLoss", "CosineEmbeddingLoss", "MultiLabelMarginLoss", "MultiMarginLoss",
    "AdaptiveLogSoftmaxWithLoss", "LinearCrossEntropyLoss", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d",
}  # fmt: skip


def test_every_class_of_torch_nn_is_held_to_something() -> None:
    named = {name: getattr(nn, name) for name in nn.modules.__all__ if not name.startswith("Lazy")}
    classes = {name for name, one in named.items() if issubclass(one, nn.Module)}
    assert classes - WORKING.keys() - NOTHING.keys() - ELSEWHERE == set()


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("name", WORKING)
def test_no_module_that_works_is_silently_nothing(name: str, training: bool) -> None:
    arguments, options, shapes = WORKING[name]
    module = getattr(nn, name)(*arguments, **options).train(training)
    found = traced(module, *shapes)
    assert work(found) or found.unsupported
    if found.unsupported:
        assert str(found).startswith("at least ")


@pytest.mark.parametrize("name", NOTHING)
def test_modules_that_only_shape_and_mask_cost_nothing(name: str) -> None:
    arguments, options, shapes = NOTHING[name]
    found = traced(getattr(nn, name)(*arguments, **options).eval(), *shapes)
    assert (work(found), found.unsupported) == ({}, {})


def test_unpooling_writes_what_enters() -> None:
    # 8 images of 3·3 maxima
    def and_back(x: Tensor) -> Tensor:
        maxima, places = F.max_pool2d(x, 2, return_indices=True)
        return torch._C._nn.max_unpool2d(maxima, places, (6, 6))

    assert work(traced(and_back, IMAGE)) == {"comparisons": 288, "moved": 72}


# The formulas need no torch: a tensor's sizes may be any sequence of numbers, in letters too ────────────────────────


class Lettered(SizesAlone):
    """The sizes and the type of a tensor, each size in letters."""

    def __init__(self, letters: str, *shape: int, is_complex: bool = False, is_float: bool = True) -> None:
        self._sizes = [lettered(size, letter) for letter, size in zip(letters, shape, strict=True)]
        self._is_complex, self._is_float = is_complex, is_float

    @property
    def shape(self) -> list[LetteredInt]:
        return self._sizes

    def is_floating_point(self) -> bool:
        return self._is_float

    def is_complex(self) -> bool:
        return self._is_complex


def in_letters(value: object) -> object:
    """An argument or a result with each tensor as its sizes, all in one letter."""
    if isinstance(value, list | tuple):
        return type(value)(map(in_letters, value))
    if not is_tensor(value):
        return value
    kinds = {"is_complex": value.is_complex(), "is_float": value.is_floating_point()}
    return Lettered("N" * value.ndim, *value.shape, **kinds)


def test_formulas_take_sizes_in_letters(monkeypatch) -> None:
    met = set()

    def checked(kind, formula):
        def costs(args, result):
            found = formula(args, result)
            also = formula(in_letters(args), in_letters(result))
            assert also == found, kind
            assert all(isinstance(count, LetteredInt) for count in (also or {}).values() if count), kind
            met.add(formula)
            return found

        return tracing._handle(kind, costs)

    handles = tracing._Handles({kind: checked(kind, formula) for kind, formula in COSTS.items()})
    monkeypatch.setattr(tracing, "_HANDLES", handles)
    for function, _ in PER_ELEMENT.values():
        traced(deepcopy(function), X, device="meta")
    for function, shape, _ in BY_HAND:
        traced(function, shape)
    for name, (arguments, options, shapes) in WORKING.items():
        traced(getattr(nn, name)(*arguments, **options).eval(), *shapes)
    assert len(met) > 70


@pytest.mark.parametrize(
    ("operation", "args", "result", "orders"),
    [
        # x (N, d) · weight (k, d)ᵀ + bias (k,)
        ("aten::linear", (Lettered("Nd", 8, 6), Lettered("kd", 4, 6), Lettered("k", 4)), Lettered("Nk", 8, 4),
         {"macs": "O(N·k·d)", "flops": "O(N·k·d)"}),
        # heads h of N queries and M keys, of width dₖ
        ("aten::scaled_dot_product_attention", tuple(Lettered(each, *sizes) for each, sizes in (
            (("h", "N", "dₖ"), (2, 8, 3)), (("h", "M", "dₖ"), (2, 5, 3)), (("h", "M", "dₖ"), (2, 5, 3)))),
         Lettered(("h", "N", "dₖ"), 2, 8, 3), {"macs": "O(N·M·d)", "flops": "O(N·M·d)"}),
        # N numbers enter k windows: each once, and twice at the edges of windows that overlap
        ("aten::adaptive_avg_pool1d", (Lettered("dN", 6, 8),), Lettered("dk", 6, 3), {"flops": "O(N·d)"}),
    ],
)  # fmt: skip
def test_costs_in_letters_have_an_order(operation, args, result, orders) -> None:
    costs = COSTS[operation](args, result)
    assert {quantity: count.form.order() for quantity, count in costs.items()} == orders
