"""Saved activations and operands in closed form: those of the real model, row by row, to the byte."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from specs import architecture_of
from test_presets import thinned
from tiers import tiered_presets
from xfcost.counting.forward import count
from xfcost.counting.saved_activations import followed
from xfcost.spec.architecture import Architecture
from xfcost.spec.load import preset_names
from xfcost.torch_models.build import build
from xfcost.torch_models.running.by_row import train, trained_rows
from xfcost.torch_models.shared.no_compiler import no_compiler
from xfcost.torch_models.timing.rows import row_bytes


class Bytes(NamedTuple):
    """Bytes by row, and saved in all."""

    saved: dict[str, int]
    operands: dict[str, int]
    total: int


def in_training(name: str, **options) -> Architecture:
    return thinned(architecture_of(name, mode="train", **options))


def of_torch(architecture: Architecture) -> Bytes:
    with no_compiler():
        live = build(architecture)
        operands = row_bytes(live)
        live.model.train().requires_grad_()
        found = train(live.model, live.inputs)
    _, saved, _ = trained_rows(live.model, found, live.rows)
    paths = [row.path for row in count(architecture, orders=False).rows]
    each = ({path: bytes_.get(path, 0) for path in paths} for bytes_ in (saved, operands))
    return Bytes(*each, sum(found.saved.values()))


def declared(architecture: Architecture) -> Bytes:
    found = followed(count(architecture, orders=False), architecture)
    return Bytes(*found, sum(found.saved.values()))


OPTIONS = [
    {"attention": attention, "dtype": dtype, "batch": batch}
    for attention, dtype, batch in (("eager", "float32", 1), ("fused", "bfloat16", 2))
]


# Each of its 4096 steps would save what the others do.
FEW_STEPS = {"common-lstm": {"tokens": (64,)}}


@pytest.mark.parametrize("options", OPTIONS, ids=["eager", "fused"])
@pytest.mark.parametrize("name", tiered_presets(preset_names()))
def test_what_is_declared_is_what_torch_saves_reads_and_writes(name, options):
    architecture = in_training(name, **options, **FEW_STEPS.get(name, {}))
    assert declared(architecture) == of_torch(architecture)


def test_a_product_with_a_constant_saves_only_the_constant():
    architecture = in_training("retnet-1.3b", **OPTIONS[0])  # decays of a buffer times the scores
    assert declared(architecture) == of_torch(architecture)
