"""MViT and MViTv2: presets against a plain model, videos, and what is refused."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch

import places
from growth import orders_at
from refused import refusals
from specs import counted
from strategies import as_yaml
from xfcost.counting.sweep import sweep
from xfcost.counting.system import SpecSystem
from xfcost.formulas.component import Place, Residual
from xfcost.layers.conv import Conv
from xfcost.layers.mlp import Mlp
from xfcost.layers.position import Position
from xfcost.ledger.errors import SpecError, UsageError
from xfcost.ledger.grid import Grid, video_sides
from xfcost.mechanisms.pooling import Pooling
from xfcost.mechanisms.window_pooling import WindowPooling
from xfcost.spec.architecture import Part
from xfcost.spec.inputs import image_size_for_grid
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.spec.run import Run
from xfcost.torch_models.build import SubLayerModel, build
from xfcost.torch_models.modules import ModuleMaker

here = partial(places.at, dim=8)


# Presets against a plain model ───────────────────────────────────────────────────────────────────────────────────────


def test_parameters_follow_the_resolution_and_are_marked() -> None:
    # 51,599,464 at 384: the figure of the public code. Tables alone differ.
    small, large = counted("mvitv2-b"), counted("mvitv2-b", size=(384, 384))
    assert (small.total("params"), large.total("params")) == (51_472_744, 51_599_464)
    for before, after in zip(small.rows, large.rows, strict=True):
        assert (before.params != after.params) == after.bound == before.bound
        assert not after.bound or after.operation == "tables"
    before, after = counted("mvit-b-16x4"), counted("mvit-b-16x4", size=(256, 256))
    assert [row.operation for row in after.rows if row.bound] == ["tables"]
    assert after.total("params") - before.total("params") == (64**2 - 56**2) * 96


# By hand ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_mlp_that_widens_projects_what_it_takes() -> None:
    component, spot = Mlp(out_width=12), here(5)
    torch.manual_seed(0)
    model = SubLayerModel(Part("it", component, spot, Residual()), ModuleMaker({})).double()
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    normed = model.residual_norm(x)
    assert torch.equal(model(x), model.residual_projection(normed) + model.inner(normed))
    after = SubLayerModel(Part("it", component, spot, Residual(place="post")), ModuleMaker({})).double()
    assert torch.equal(after(x), after.residual_norm(after.residual_projection(x) + after.inner(x)))
    assert [row.path for row in component.shortcut(spot)] == ["residual_projection"]
    assert not list(Mlp(out_width=8).shortcut(spot))


# Videos ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_frames_stay_whatever_n() -> None:
    architecture = place(load("mvit-b-16x4"), Run(tokens=(8 * 14 * 14,)))
    assert architecture.streams[0].input.sides == (16, 56, 56)
    assert architecture.grid == Grid((8, 14, 14), 1)
    assert place(load("mvit-b-16x4"), Run(tokens=(8 * 12,))).grid.sides == (8, 3, 4)
    assert place(load("mvit-b-16x4"), Run(size=(112, 224))).grid.sides == (8, 28, 56)
    assert place(load("mvit-b-16x4"), Run(scale=(1, 2))).grid.sides == (4, 28, 28)
    assert image_size_for_grid(load("mvit-b-16x4"), Run(), (14, 20)) == (56, 80)


def test_what_no_video_has_is_refused_with_its_neighbours() -> None:
    with pytest.raises(UsageError, match=r"--N 3137: .* 8 time steps.* the nearest that do: 3136 \(8×14×28\) or 31"):
        place(load("mvit-b-16x4"), Run(tokens=(3137,)))
    with pytest.raises(UsageError, match=r"the nearest that do: 8 \(8×1×1\)"):
        video_sides(7, 8)
    with pytest.raises(UsageError, match="at least 1 token"):
        video_sides(0, 8)


def test_costs_of_videos_are_swept_over_whole_steps() -> None:
    swept = sweep("mvit", SpecSystem(load("mvit-b-16x4")), Run(), (800, 12800))
    assert all(x % 8 == 0 for x in swept.xs)
    assert (swept.xs[0], swept.xs[-1]) == (800, 12800)


def spec_of_video(folder: Path, entry: dict[str, object]) -> str:
    spec = {
        "name": "video",
        "input": {"kind": "video", "frames": 4, "size": [16, 20]},
        "embed": [entry],
        "stages": [{"dim": 8, "depth": 1, "block": [{"kind": "full", "heads": 2}]}],
    }
    file = folder / "video.yaml"
    file.write_text(as_yaml(spec), encoding="utf-8")
    return str(file)


def test_a_video_wants_a_entry_that_slides(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"kind 'video', and 'patch'.*\{kind: conv"):
        place(load(spec_of_video(tmp_path, {"kind": "patch", "size": 4})), Run())
    loaded = load(spec_of_video(tmp_path, {"kind": "conv", "size": [3, 7, 7], "stride": [2, 4, 4]}))
    assert place(loaded, Run()).grid == Grid((2, 4, 5))
    live = build(place(loaded, Run(batch=2)), "cpu")
    assert live.inputs[0].shape == (2, 3, 4, 16, 20)
    assert live.model(*live.inputs).shape == (2, 40, 8)


# What is refused ─────────────────────────────────────────────────────────────────────────────────────────────────────


test_what_can_not_stand_is_refused = refusals(
    [
        (Pooling(heads=2, q_size=2), here(4, 4), "q_size", "odd sizes, got 2"),
        (Pooling(heads=2, kv_size=[3, 4]), here(4, 4), "kv_size", "odd sizes"),
        (Pooling(heads=2, kv_stride=[1, 2, 2]), here(4, 4), "kv_stride", "or 2 for the grid 4×4"),
        (Pooling(heads=2, q_stride=3), here(4, 4), "q_stride", "expected 1 or an even stride, got 3"),
        (Pooling(heads=3, out_width=8), here(4, 4, dim=9), "heads", "3 does not divide the width 8"),
        (Pooling(heads=2, causal=True), here(4, 4), "causal", "no causal form"),
        (Pooling(heads=2, function="mean"), here(2, 4, 4), "q_size", "does not fit the grid 2×4×4"),
        (WindowPooling(heads=2, window=4), here(4, 4, special=1), "window", "expected no special tokens, got 1"),
        (WindowPooling(heads=2, window=6, kv_stride=4), here(4, 4), "window", "a multiple of the `kv_stride` 4, got 6"),
        (Mlp(tokens="class_token", out_width=4), here(4, special=1), "out_width", "pass by"),
        (Position(form="separate"), here(4), "form", "two axes or more"),
        (Position(form="separate", length=4), here(2, 2), "length", "as many as the grid has"),
    ]
)


def test_heads_divide_the_width_that_comes_out() -> None:
    # 9 columns come in and 8 go out: 2 heads of 4.
    Pooling(heads=2, out_width=8).check(here(4, 4, dim=9))


def test_orders_along_one_two_and_three_axes() -> None:
    stem_layers = [
        orders_at(Conv(size=3), Place(grid=Grid(sides), dim=3, out_dim=8)) for sides in [(9,), (9, 9), (9, 9, 9)]
    ]
    assert [entry["conv"] for entry in stem_layers] == ["O(N·W·d²)", "O(N·W²·d²)", "O(N·W³·d²)"]
    # Frames have no strides: l² tokens to a key, whatever the kernel's reach in time.
    video = orders_at(Pooling(heads=2, kv_stride=[1, 4, 4], bias="decomposed"), here(4, 8, 8))
    assert (video["pool_k"], video["scores"]) == ("O(N·W³·d/l²)", "O(N²·d/l²)")
    image = orders_at(Pooling(heads=2, kv_stride=4, bias="decomposed"), here(8, 8))
    assert image["position_scores"] == "O(N√N·d/l)"
    windows = orders_at(WindowPooling(heads=2, kv_stride=4, window=8), here(8, 8))
    assert windows["scores"] == "O(N·W²·d)"
