"""The autoregressive Axial Transformer: an outer decoder, an inner one, and two shifts that keep pixels in order."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor, nn

import places
from refused import refusals
from specs import architecture_of, counted
from whole_probe import probe
from xfcost.layers.positions import AxisPosition
from xfcost.layers.shift import Context, Shift
from xfcost.ledger.errors import SpecError
from xfcost.ledger.grid import Grid
from xfcost.torch_models.build import build

# Ho et al. 2019, §4.2 and figure 3, on 3×4 pixels of one width: the outer decoder reads rows whole and columns upwards,
# its output goes down by a row; the inner one reads the pixels, shifted right, to the left in their row.
TWO_STAGES = """\
name: small axial transformer
input: {kind: image, size: [3, 4], channels: 6}
encoder:
  embed: [{kind: patch, size: 1}, {kind: axis_position, share: places}]
  stages:
    - dim: 6
      depth: 2
      pattern:
        - [{kind: axial, axis: row, heads: 2}, {kind: mlp, ratio: 1}]
        - [{kind: axial, axis: column, heads: 2, causal: true}, {kind: mlp, ratio: 1}]
decoder:
  embed: [{kind: patch, size: 1}, SHIFT_RIGHT, {kind: axis_position, share: places}]
  stages:
    - dim: 6
      blocks:
        - [CONTEXT]
        - {repeat: 2, blocks: [[{kind: axial, axis: row, heads: 2}, {kind: mlp, ratio: 1}]]}
"""
RIGHT, CONTEXT = "{kind: shift, axis: row}", "{kind: context, shift: column}"
N, W = 12, 4


def written(tmp_path, right: str = RIGHT, context: str = CONTEXT) -> str:
    text = TWO_STAGES.replace("SHIFT_RIGHT, ", f"{right}, " if right else "").replace("CONTEXT", context)
    file = tmp_path / "axial.yaml"
    file.write_text(text)
    return str(file)


class Alike(nn.Module):
    """Both streams are given the same image."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, image: Tensor) -> Tensor:
        return self.model(image, image)


def seen(file: str) -> tuple[frozenset[int], ...]:
    """The pixels that every output pixel of the whole model reads."""
    model = Alike(build(architecture_of(file), "cpu").model)
    return probe(model, (torch.zeros(1, 6, 3, 4),), tokens=(2, 3), out_tokens=(1,)).reads


def test_a_pixel_reads_exactly_the_pixels_before_it(tmp_path):
    # In raster order, as Π p(x_i | x_1 … x_{i-1}) wants it: all rows above through the outer decoder, the row's own
    # pixels left of it through the inner one. The first pixel reads nothing.
    assert seen(written(tmp_path)) == tuple(frozenset(range(pixel)) for pixel in range(N))


def test_without_the_shift_right_a_pixel_reads_itself(tmp_path):
    assert seen(written(tmp_path, right="")) == tuple(frozenset(range(pixel + 1)) for pixel in range(N))


def test_without_the_shift_down_a_pixel_reads_its_whole_row(tmp_path):
    leaking = seen(written(tmp_path, context="{kind: context}"))
    assert leaking == tuple(frozenset(range((pixel // W + 1) * W)) for pixel in range(N))


# The parts ---------------------------------------------------------------------------------------------------------


at = partial(places.at, dim=2)


MEMORY = {"memory": Grid((2, 3)), "memory_dim": 2}


test_places_that_can_not_be = refusals(
    [
        (Shift(axis="column"), at(5), "axis", "'column' is not an axis of the 5 tokens; it could be 'row'"),
        (Shift(axis="row"), at(2, 2, special=1), "axis", "expected no special tokens, got 1"),
        (Context(shift="depth"), at(2, 3, **MEMORY), "shift", "'depth' is not an axis"),
        (Context(), at(2, 3), "kind", "the spec has no `encoder:`"),
        (Context(), at(3, 2, **MEMORY), "kind", r"encoder gives 6 \(2×3\) tokens of width 2, here are 6 \(3×2\)"),
        (Context(), at(2, 3, **MEMORY | {"memory_dim": 4}), "kind", "of width 4, here are .* of width 2"),
        (AxisPosition(), at(5), "kind", "needs a 2-D grid .* not 5; lay a sequence out"),
        (AxisPosition(), at(2, 2, special=1), "kind", r"not 4 \(2×2\) \+ 1"),
    ]
)


def test_a_decoder_that_adds_the_encoder_s_output_reads_it(tmp_path):
    architecture_of(written(tmp_path))
    with pytest.raises(SpecError, match=r"decoder: no sub-layer reads the encoder's output"):
        architecture_of(written(tmp_path, context="{kind: mlp}"))


# The published model -----------------------------------------------------------------------------------------------


def test_the_two_decoders_of_the_imagenet_model_are_the_paper_s():
    ledger = counted("axial-transformer-imagenet64")
    scores = [row for row in ledger.rows if row.operation == "scores"]
    # 4 rows and 4 masked columns outside, 1 + 7 masked rows inside; a line of 64 everywhere.
    assert [(row.times, row.reads_tokens) for row in scores] == [(4, 64), (4, 64), (1, 64), (7, 64)]
    full, causal = 4096 * 64, 4096 * 65 // 2
    assert [row.pairs for row in scores] == [full, causal, causal, causal]
    assert ledger.metadata.tokens == "encoder 4,096 (64×64) + decoder 4,096 (64×64)"
