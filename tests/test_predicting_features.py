"""What decides how long an ATen call takes: its kind and its numbers, by hand."""

import math
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from calibrated import layout
from xfcost.torch_models.predicting.calibrate import run_of
from xfcost.torch_models.predicting.predict import Recorded
from xfcost.torch_models.predicting.regression import features, loops
from xfcost.torch_models.running.prediction_calls import LayoutCall


def test_features_of_a_product():
    # (784, 64) · (64, 256), the weight stored transposed: 784·64·256 MACs; (784·64 + 64·256 + 784·256)·4 bytes
    call = LayoutCall("aten.mm", (layout(784, 64), layout(64, 256, strides=(1, 64))), (layout(784, 256),))
    found = features(call)
    assert (found.operation, found.variant) == ("product", "nt")
    assert found.macs == 784 * 64 * 256
    assert found.moved_bytes == 4 * (784 * 64 + 64 * 256 + 784 * 256)
    assert found.numbers == (0.0, math.log2(784), 6.0, 8.0)


def test_small_matrices_of_a_batch_are_of_another_kind():
    # 1·49·8 MACs each: torch's own loops; 1·50·8 are 400
    small, large = (
        LayoutCall("aten.bmm", (layout(90, 1, inner), layout(90, inner, 8)), (layout(90, 1, 8),)) for inner in (49, 50)
    )
    assert features(small).variant == "nn small"
    assert features(large).variant == "nn"
    alone = LayoutCall("aten.mm", (layout(1, 49), layout(49, 8)), (layout(1, 8),))
    assert features(alone).variant == "nn"


def test_the_steps_of_a_recurrence_find_their_weights_in_the_caches():
    step = LayoutCall("aten.addmm", (layout(64), layout(1, 64), layout(64, 64)), (layout(1, 64),))
    batch = LayoutCall("aten.addmm", (layout(64), layout(5, 64), layout(64, 64)), (layout(5, 64),))
    calls = {("cell", step): 32, ("cell", batch): 32, ("head", step): 1}
    assert loops(calls) == {step}
    assert loops({("cell", step): 31}) == set()
    assert features(step, looped=True).variant == "nn looped"
    found = run_of("lstm", Recorded(calls, Counter(), Counter(), [("cell", step, [1.0]), ("cell", batch, [2.0])]), 99.0)
    assert {one.variant: found.seconds[one] for one in found.calls} == {"nn looped": 1.0, "nn": 2.0}


def test_features_of_a_depthwise_convolution():
    call = LayoutCall(
        "aten.convolution",
        (layout(2, 32, 14, 14), layout(32, 1, 7, 7), layout(32)),
        (layout(2, 32, 14, 14),),
        ((1, 1), (3, 3), (1, 1), False, 32),
    )
    found = features(call)
    assert found.variant == "depthwise c>c 2-D"
    assert found.macs == 2 * 32 * 14 * 14 * 49
    # 32 channels, one of them per filter, 32 groups, 49 weights each, 2·14·14 places, stride 1; nothing is transposed
    assert found.numbers == (5.0, 0.0, 5.0, math.log2(49), math.log2(14 * 14 * 2), 0.0, 0.0)


def test_a_broadcast_axis_is_read_once():
    # a bias expanded over 1,024 rows: 8 numbers in memory; with a (1024, 8) input and output
    call = LayoutCall("aten.add", (layout(1024, 8), layout(1024, 8, strides=(0, 1))), (layout(1024, 8),))
    assert features(call).moved_bytes == 4 * (1024 * 8 + 8 + 1024 * 8)
    assert features(call).variant == "c/bc>c"


@given(
    sizes=st.tuples(*[st.integers(1, 4)] * 4),
    order=st.permutations(range(4)),
    stride=st.sampled_from((0, 1, 2, 4, 64, 1000)),
)
def test_images_are_channels_last_where_torch_takes_them_so(sizes, order, stride):
    strides, step = [0] * 4, 1
    for axis in order:
        strides[axis], step = step, step * sizes[axis]
    if sizes[0] == 1:  # any stride: there is one image
        strides[0] = stride
    image = torch.empty_strided(sizes, strides)
    pooled = F.max_pool2d(image, 1)  # its result has the memory format that torch sees in its input
    found = features(
        LayoutCall("aten.avg_pool2d", (layout(*sizes, strides=tuple(strides)),), (layout(*sizes),), ((1, 1),))
    )
    if found.variant == "l":
        assert pooled.is_contiguous(memory_format=torch.channels_last)
    elif found.variant != "c":
        assert pooled.is_contiguous()


def test_tokens_that_are_looked_at_as_one_image_are_copied():
    # (Y·X, C) = (196, 8) as (1, C, Y, X): the stride of the one image is that of a row, not of an image
    tokens = torch.zeros(196, 8).t().view(1, 8, 14, 14)
    image = torch.zeros(1, 14, 14, 8).permute(0, 3, 1, 2)
    variants = []
    for x in (tokens, image):
        given = layout(*x.shape, strides=x.stride())
        variants.append(features(LayoutCall("aten.avg_pool2d", (given,), (layout(1, 8, 7, 7),), ((2, 2),))).variant)
    assert variants == ["t", "l"]


def convolution(*weight, groups=1, image=None):
    outer, inner = weight[0], weight[1] * groups
    given = image or layout(1, inner, 28, 28)
    options = ((1, 1), (1, 1), (1, 1), False, groups)
    return features(LayoutCall("aten.convolution", (given, layout(*weight)), (layout(1, outer, 28, 28),), options))


@pytest.mark.parametrize(
    ("weight", "groups", "ragged"),
    [
        ((32, 1, 3, 3), 32, False),
        ((24, 1, 3, 3), 24, True),  # 24 channels: a vector of 16, and half of one
        ((64, 8, 3, 3), 8, False),
        ((32, 4, 3, 3), 8, True),  # groups of 4 channels
        ((64, 3, 7, 7), 1, False),  # colours are read as they are
        ((24, 3, 7, 7), 1, True),
        ((64, 24, 3, 3), 1, True),
        ((24, 24, 1, 1), 1, False),  # products need no blocks
    ],
)
def test_channels_that_do_not_fill_a_block_are_a_kind_of_their_own(weight, groups, ragged):
    assert ("ragged" in convolution(*weight, groups=groups).variant) == ragged


@pytest.mark.parametrize(("width", "number"), [(1024, 5), (512, 4), (640, 2), (256, 3), (64, 1), (32, 0), (1032, 0)])
def test_columns_of_tokens_that_share_sets_of_the_cache_are_told(width, number):
    # float32: rows of 1,024 channels are 4 KiB apart, of 640 = 5·128 channels a multiple of 512 bytes
    tokens = torch.empty(28 * 28, width).t().view(1, width, 28, 28)
    image = layout(*tokens.shape, strides=tokens.stride())
    assert convolution(width, width, 1, 1, image=image).numbers[-1] == number
    assert convolution(width, width, 1, 1).numbers[-1] == 0
    added = LayoutCall("aten.add", (layout(width, 784, strides=(1, width)), layout(width, 784)), (layout(width, 784),))
    assert features(added).numbers[-1] == number
