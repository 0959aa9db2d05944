"""Kernel attention: its three causal forms, FAVOR+'s estimate, what leaks and what doesn't, figures of public code."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import places
from refused import refusals
from strategies import as_yaml, counted_spec
from xfcost.api.analysis import analyze
from xfcost.formulas.component import Place
from xfcost.formulas.feature_maps import EluPlusOne, RandomFeatures
from xfcost.ledger.errors import DeviceError
from xfcost.mechanisms.full import Full
from xfcost.mechanisms.kernel import Kernel
from xfcost.torch_models.mechanisms.full import FullAttention
from xfcost.torch_models.mechanisms.kernel import KernelAttention
from xfcost.torch_models.shared.features import SoftmaxFeatures, orthogonal_features

spot = partial(places.at, dim=8)


def torch_module(component: Kernel, n: int, dim: int = 8, like: nn.Module | None = None) -> KernelAttention:
    """The torch_module in float64, with the weights (and random features) of `like`."""
    torch.manual_seed(0)
    module = KernelAttention(component, spot(n, dim=dim)).double().eval()
    if like is not None:
        module.load_state_dict(like.state_dict(), strict=False)
    return module


def noise(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def costs(component: Kernel, place: Place) -> dict[str, int]:
    return {row.path: row.macs for row in component.operations(place)}


# FAVOR+ ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("device", [None, "cpu"])
def test_what_torch_can_not_lay_out_is_refused(device: str | None, tmp_path: Path) -> None:
    # On `meta` torch's running sum lays every state beside every other: 2²⁶ chunks, squared, of 24·24 numbers.
    block = {"kind": "kernel", "heads": 2, "causal": True}
    file = tmp_path / "long.yaml"
    file.write_text(
        as_yaml(
            {
                "name": "long",
                "input": {"kind": "tokens", "vocabulary": 11, "length": 2**32},
                "embed": [{"kind": "token"}],
                "stages": [{"dim": 48, "depth": 1, "block": [block]}],
            }
        ),
        encoding="utf-8",
    )
    assert analyze(file, trace=False).total("macs") > 0
    with pytest.raises(DeviceError, match=r"long is too large to be laid out here, .*overflow.*; take a smaller --N"):
        analyze(file, trace=device is None, device=device)


def test_random_features_are_orthogonal_in_blocks_and_as_long_as_gaussians() -> None:
    torch.manual_seed(0)
    features = orthogonal_features(2050, 16).double()
    blocks = features[:2048].unflatten(0, (128, 16))
    products = (blocks @ blocks.mT)[:, ~torch.eye(16, dtype=torch.bool)]
    assert products.abs().max() < 1e-4  # made in float64, kept in float32
    lengths = features.norm(dim=-1)
    # χ with 16 degrees of freedom: mean 3.938, and the mean square is 16.
    assert lengths.mean() == pytest.approx(3.938, abs=0.06)
    assert lengths.square().mean() == pytest.approx(16, abs=0.5)
    assert lengths.std() > 0.5
    # No direction is favoured: 128 numbers of variance 1 at each place of the diagonal, their means 0 ± 0.09. (QR's own
    # signs, which public code keeps, make them -0.5 to -0.9.)
    assert blocks.diagonal(dim1=-2, dim2=-1).mean(0).abs().max() < 0.35


def test_random_features_are_a_buffer_that_is_drawn_anew_for_every_layer_and_by_torch_s_seed() -> None:
    component = Kernel(heads=2, features=RandomFeatures(count=12))
    module = torch_module(component, 4)
    assert "project.features_FK" in module.state_dict()
    assert not any("project" in name for name, _ in module.named_parameters())
    assert torch.equal(module.project.features_FK, torch_module(component, 4).project.features_FK)
    other = KernelAttention(component, spot(4)).double()
    assert not torch.equal(module.project.features_FK, other.project.features_FK)
    with torch.device("meta"):
        assert KernelAttention(component, spot(4)).project.features_FK.shape == (12, 4)


def test_more_features_come_nearer_to_softmax_attention() -> None:
    # The error of an average of m draws falls as 1/√m: by 16 from 16 to 4096. Over 12 draws, for short queries and
    # keys: long ones need more features (exp has heavy tails), and leave a floor, the ε of the public implementation.
    torch.manual_seed(0)
    full = FullAttention(Full(heads=2), spot(24)).double().requires_grad_(requires_grad=False)
    x, errors = noise(4, 24, 8) / 2, []
    for count in (16, 64, 256, 1024, 4096):
        component, found = Kernel(heads=2, features=RandomFeatures(count=count)), []
        for seed in range(12):
            torch.manual_seed(seed)
            module = KernelAttention(component, spot(24)).double()
            module.load_state_dict(full.state_dict(), strict=False)
            found.append((module(x) - full(x)).detach().square().mean())
        errors.append(float(torch.stack(found).mean().sqrt() / full(x).std()))
    assert all(later < 0.85 * earlier for earlier, later in itertools.pairwise(errors)), errors
    assert 10 < errors[0] / errors[-1] < 25, errors


def test_the_public_stabiliser_would_leak_and_ours_does_not() -> None:
    # Lowering keys by their maximum over all tokens tells the past of the future, through ε.
    component = Kernel(heads=2, causal=True, form="parallel", features=RandomFeatures(count=12))
    module, x = torch_module(component, 16), 3 * noise(1, 16, 8)
    changed = x.clone()
    changed[:, 8:] = x[:, 8:].flip(1) * 1.5
    assert torch.equal(module(x)[:, :8], module(changed)[:, :8])
    module.k_features = SoftmaxFeatures(12, over=(-1, -2))
    assert (module(x) - module(changed))[:, :8].abs().max() > 1e-9


def test_causal_features_stay_finite_where_keys_are_huge() -> None:
    module = torch_module(Kernel(heads=1, causal=True, chunk=4, features=RandomFeatures(count=64)), 12, dim=64).float()
    assert module(1e3 * noise(1, 12, 64).float()).isfinite().all()


# Options that can't be ───────────────────────────────────────────────────────────────────────────────────────────────


test_options_that_can_not_be = refusals(
    [
        (Kernel(heads=2, form="chunked"), "form", "'chunked' is a causal form; add causal: true"),
        (Kernel(heads=2, chunk=4), "chunk", "there are no chunks where attention isn't causal"),
        (Kernel(heads=2, causal=True, form="recurrent", chunk=4), "chunk", "no chunks in the recurrent form"),
        (Kernel(heads=3), "heads", "3 does not divide the width 8"),
    ],
    spot(6),
)


def test_notes_tell_of_padding_of_one_chunk_of_steps_and_of_a_bad_bargain() -> None:
    notes = {
        "padded": list(Kernel(heads=2, causal=True, chunk=4).notes(spot(10))),
        "one": list(Kernel(heads=2, causal=True).notes(spot(10))),
        "steps": list(Kernel(heads=2, causal=True, form="recurrent").notes(spot(10))),
        "few": list(Kernel(heads=2, features=RandomFeatures(count=6)).notes(spot(12))),
        "nothing": list(Kernel(heads=2, features=RandomFeatures(count=6)).notes(spot(13))),
    }
    assert "10 tokens padded to 3 chunks of 4: 2 padding tokens" in notes["padded"][0]
    assert "one chunk holds all 10 tokens" in notes["one"][0]
    assert "10 steps run one after the other, each on a state of 2·4·4 numbers" in notes["steps"][0]
    assert "cheaper than full attention only where N exceeds 12" in notes["few"][0]
    assert notes["nothing"] == []


def test_what_the_note_says_of_the_price_is_so() -> None:
    for features, least in ((RandomFeatures(count=6), 12), (EluPlusOne(), 4)):
        for n in (least, least + 1):
            kernel = costs(Kernel(heads=2, features=features), spot(n))
            mine = sum(kernel[name] for name in kernel if name in ("project", "state", "read"))
            full = 2 * n * n * 8
            assert (mine < full) == (n > least)


# Public code ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def language_model(**mixer: Any) -> dict[str, Any]:
    """6 layers, d=512, 8 heads, 2048 tokens out of 20,000."""
    return {
        "input": {"kind": "tokens", "vocabulary": 20_000, "length": 2048},
        "embed": [{"kind": "token"}, {"kind": "position"}],
        "stages": [{"dim": 512, "depth": 6, "block": [{"kind": "kernel", "heads": 8, **mixer}, {"kind": "mlp"}]}],
        "head": {"kind": "language_model", "bias": True},
    }


def test_performer_pytorch(tmp_path: Path) -> None:
    # performer-pytorch 1.1.4, PerformerLM(num_tokens=20000, dim=512, depth=6, heads=8, nb_features=256), not causal:
    # 40,451,616 parameters and 66,093,842,432 MACs by FlopCounterMode.
    mixer = {"features": {"kind": "random", "count": 256}, "projection_bias": False}
    ledger = counted_spec(language_model(**mixer), tmp_path)
    assert ledger.total("params") == 40_451_616
    assert ledger.total("macs") == 66_093_842_432
