"""MViT and MViTv2: presets against a plain model, videos, and what is refused."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import places
from growth import orders_at
from plain_mvit import CONFIGS, Config, PlainMViT
from refused import refusals
from specs import counted
from strategies import as_yaml, exact
from transformers_models import parameters, same_totals
from xfcost.counting.forward import count
from xfcost.counting.sweep import sweep
from xfcost.counting.system import SpecSystem
from xfcost.formulas.component import Place, Residual
from xfcost.layers.feed_forward import Mlp
from xfcost.layers.positions import Position
from xfcost.layers.stems import ConvEmbed
from xfcost.ledger.errors import SpecError, UsageError
from xfcost.ledger.grid import Grid, video_sides
from xfcost.mechanisms.pooling import Pooling
from xfcost.mechanisms.window_pooling import WindowPooling
from xfcost.spec.architecture import Part
from xfcost.spec.inputs import image_size_for_grid
from xfcost.spec.load import load, preset_files
from xfcost.spec.placement import place
from xfcost.spec.run import Run
from xfcost.torch_models.accounts import reconciled
from xfcost.torch_models.build import SubLayerModel, build
from xfcost.torch_models.modules import ModuleMaker

here = partial(places.at, dim=8)


# Presets against a plain model ───────────────────────────────────────────────────────────────────────────────────────


def test_the_plain_model_knows_every_preset() -> None:
    family = {name for name, file in preset_files().items() if file.parent.name == "mvit"}
    assert family == set(CONFIGS)


@pytest.mark.parametrize("name", CONFIGS)
def test_presets_are_what_their_public_configurations_give(name: str) -> None:
    same_totals(name, lambda: PlainMViT(CONFIGS[name]))


TINY = Config(4, (1, 3), width=12, heads=2, input=(36, 52), classes=5)
RELATIVE = TINY._replace(positions="relative", residual_pooling="all", pool_all_queries=True)
SMALL = {
    "v1": TINY,
    "v1-max": TINY._replace(maxima=True),
    "v1-video": TINY._replace(input=(6, 36, 52), positions="separate"),
    "v2": RELATIVE._replace(class_token=False, in_attention=True),
    "v2-mlp": RELATIVE._replace(class_token=False),
    "v2-windows": RELATIVE._replace(class_token=False, in_attention=True, window=8, classes=0),
    "v2-video": RELATIVE._replace(input=(6, 36, 52), residual_pooling="grid", in_attention=True, kv_stride=8),
}


def spec_of_config(config: Config) -> dict[str, object]:
    """A spec with the blocks of a small configuration, its grids 9×13, 5×7 and 3×4: odd ones among them."""
    video = len(config.input) > 2
    entry = {"kind": "video", "frames": config.input[0]} if video else {"kind": "image"}
    stem = {"size": [3, 7, 7], "stride": [2, 4, 4], "padding": [1, 3, 3]} if video else {"size": 7, "stride": 4}
    extras = [{"kind": "class_token"}] if config.class_token else []
    forms = {"absolute": "learned", "separate": "separate"}
    positions = [{"kind": "position", "form": forms[config.positions]}] if config.positions in forms else []
    stages, width, heads, stride = [], config.width, config.heads, config.kv_stride
    window = config.window or 0
    for start, end in zip((0, *config.opens), (*config.opens, config.depth), strict=True):
        stride = max(stride // 2, 1) if start else stride
        heads = 2 * heads if start else heads
        into = 2 * width if start else width
        blocks = []
        for index in range(start, end):
            opens, ends = index == start > 0, index + 1 == end < config.depth
            strides = {"q_stride": ([1, 2, 2] if video else 2) if opens else 1}
            strides["kv_stride"] = [1, stride, stride] if video else stride
            attention = {"kind": "pooling", "heads": heads, "residual_pooling": config.residual_pooling, **strides}
            attention |= {"bias": "decomposed"} if config.positions == "relative" else {}
            attention |= {} if opens or config.pool_all_queries else {"q_size": 1}
            attention |= {"function": "max", "kv_size": {4: 5, 2: 3, 1: 1}[stride]} if config.maxima else {}
            attention |= {"out_width": into} if config.in_attention else {}
            if config.window and not (start and index + 1 == end):
                attention |= {"kind": "window_pooling", "window": window}
            elif config.window and end < config.depth:
                attention["kv_stride"] = 2 * stride
            window = window // 2 if opens else window
            mlp = {"kind": "mlp"} | ({"out_width": 2 * into} if ends and not config.in_attention else {})
            blocks.append([attention, mlp])
        stages.append({"dim": into, "blocks": blocks})
        width = into
    pool = "class_token" if config.class_token else "mean"
    head = {"head": {"kind": "classifier", "pool": pool, "classes": config.classes}} if config.classes else {}
    return {
        "name": "small",
        "input": entry | {"size": list(config.input[-2:])},
        "embed": [{"kind": "conv", **stem}, *extras, *positions],
        "stages": stages,
    } | head


def copy_weights(ours: nn.Module, plain: PlainMViT) -> None:
    """Noise for our weights, and the same for the plain model's."""
    noise = torch.Generator().manual_seed(3)
    for weights in ours.parameters():
        weights.copy_(torch.randn(weights.shape, generator=noise, dtype=weights.dtype) * 0.3)
    stream = ours.get_submodule("streams.0")
    mine = dict(stream.named_parameters())
    pairs = [(mine["embed.0.conv.weight"], plain.entry.weight), (mine["embed.0.conv.bias"], plain.entry.bias)]
    if plain.config.class_token:
        pairs.append((mine["embed.1.prepend.weight"], plain.token))
    named = {1: ["table.weight"], 2: ["table.weight"], 3: ["tables.special", "tables.steps", "tables.places"]}
    if len(plain.positions) == 2 and plain.config.positions == "absolute":
        whole = mine["embed.2.table.weight"]
        pairs += [(whole[:1], plain.positions[0]), (whole[1:], plain.positions[1])]
    elif plain.positions:
        pairs += list(zip((mine[f"embed.2.{name}"] for name in named[3]), plain.positions, strict=True))
    blocks = [block for stage in stream.stages for block in stage.run]
    for (attention, mlp), theirs in zip(blocks, plain.blocks, strict=True):
        pairs += of_block(attention, mlp, theirs)
    if plain.config.classes:
        head = ours.get_submodule("head")
        pairs += [*weights_of(head.norm, plain.norm), *weights_of(head.linear, plain.head)]
    assert sum(one.numel() for one, _ in pairs) == parameters(ours)
    for one, other in pairs:
        other.copy_(one.reshape(other.shape))


def weights_of(one: nn.Module, other: nn.Module) -> list[tuple[Tensor, Tensor]]:
    return list(zip(one.parameters(), other.parameters(), strict=True))


def of_block(attention: SubLayerModel, mlp: SubLayerModel, theirs: nn.Module) -> list[tuple[Tensor, Tensor]]:
    inner = attention.inner
    pairs = [*weights_of(attention.residual_norm, theirs.norm1), *weights_of(mlp.residual_norm, theirs.norm2)]
    pairs += [*weights_of(inner.qkv, theirs.qkv), *weights_of(inner.out, theirs.proj)]
    for name, pool in theirs.pools.items():
        if not pool.maxima:
            pairs.append((getattr(inner, f"pool_{name}").weight, pool.weight))
            pairs += weights_of(getattr(inner, f"norm_{name}"), pool.norm)
    if theirs.config.positions == "relative":
        pairs += weights_of(inner.core.inner.tables, theirs.tables)
    pairs += [*weights_of(mlp.inner.fc1, theirs.up), *weights_of(mlp.inner.fc2, theirs.down)]
    for sublayer in (attention, mlp):
        if sublayer.residual_projection is not None:
            pairs += weights_of(sublayer.residual_projection, theirs.widen)
    return pairs


@pytest.mark.parametrize("name", SMALL)
def test_whole_models_give_the_numbers_of_a_plain_one(name: str, tmp_path: Path) -> None:
    config, file = SMALL[name], tmp_path / "small.yaml"
    file.write_text(as_yaml(spec_of_config(config)), encoding="utf-8")
    architecture = place(load(str(file)), Run(dtype="float64", batch=2))
    ours, (pixels,), _ = build(architecture, "cpu")
    plain = PlainMViT(config).double().eval().requires_grad_(requires_grad=False)
    copy_weights(ours, plain)
    torch.testing.assert_close(ours(pixels), plain(pixels), rtol=1e-9, atol=1e-10)
    exact(reconciled(count(architecture), *build(architecture)))


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
        orders_at(ConvEmbed(size=3), Place(grid=Grid(sides), dim=3, out_dim=8)) for sides in [(9,), (9, 9), (9, 9, 9)]
    ]
    assert [entry["conv"] for entry in stem_layers] == ["O(N·W·d²)", "O(N·W²·d²)", "O(N·W³·d²)"]
    # Frames have no strides: l² tokens to a key, whatever the kernel's reach in time.
    video = orders_at(Pooling(heads=2, kv_stride=[1, 4, 4], bias="decomposed"), here(4, 8, 8))
    assert (video["pool_k"], video["scores"]) == ("O(N·W³·d/l²)", "O(N²·d/l²)")
    image = orders_at(Pooling(heads=2, kv_stride=4, bias="decomposed"), here(8, 8))
    assert image["position_scores"] == "O(N√N·d/l)"
    windows = orders_at(WindowPooling(heads=2, kv_stride=4, window=8), here(8, 8))
    assert windows["scores"] == "O(N·W²·d)"
