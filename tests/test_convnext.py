"""ConvNeXt: what is refused, and totals beside transformers'."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import nn

from specs import architecture_of
from strategies import as_yaml
from test_against_transformers import same_totals
from xfcost.formulas.component import Place
from xfcost.ledger.errors import ComponentError, SpecError
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.convnext import ConvNext

transformers = pytest.importorskip("transformers")
SPOT = Place(grid=Grid((3, 4)), dim=10, out_dim=10)


@pytest.mark.parametrize(
    ("component", "spot", "message"),
    [
        (ConvNext(size=6), SPOT, "6 is even, and the kernel is centred; try 5 or 7"),
        (ConvNext(ratio=0.25), SPOT, r"0.25·10 is not a whole width; give `hidden` instead"),
        (ConvNext(), Place(grid=Grid((3, 4), 1), dim=10, out_dim=10), "expected no special tokens, got 1"),
    ],
)
def test_blocks_that_can_not_stand_are_refused(component: ConvNext, spot: Place, message: str) -> None:
    with pytest.raises(ComponentError, match=message):
        component.check(spot)


def test_norm_after_pool_is_told_where_it_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    file.write_text(as_yaml({"extends": "poolformer-s12", "name": "one", "head": {"norm_after_pool": True}}))
    with pytest.raises(SpecError, match=r"one\.yaml:\d+ head\.norm_after_pool: the group norm of one vector"):
        architecture_of(str(file))


# transformers ────────────────────────────────────────────────────────────────────────────────────────────────────────


def theirs(**settings: object) -> nn.Module:
    config = transformers.ConvNextConfig(**settings)
    return transformers.ConvNextForImageClassification(config).eval().requires_grad_(requires_grad=False)


SIZES = {"t": (96, 9), "s": (96, 27), "b": (128, 27), "l": (192, 27), "xl": (256, 27)}


@pytest.mark.parametrize("size", SIZES)
def test_parameters_and_macs_are_transformers_to_the_unit(size: str) -> None:
    dim, third = SIZES[size]
    sizes = {"hidden_sizes": [dim, 2 * dim, 4 * dim, 8 * dim], "depths": [3, 3, third, 3], "num_labels": 1000}
    same_totals(f"convnext-{size}", lambda: theirs(**sizes))
