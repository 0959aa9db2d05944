"""The gallery: presets equal the reference to the unit, agree with their trace, and stand beside their papers."""

import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import nn

from modules import counted_by_torch
from published import MILLION, PUBLISHED, Judgement, Off, PartOf, RoundedDown, Without
from specs import EXACT, WHOLE, architecture_of, counted, thinned
from strategies import both_accounts, counted_spec, exact, placed, stack
from tiers import covering_presets, of_presets
from xfcost.counting.forward import count
from xfcost.spec.architecture import Architecture
from xfcost.spec.load import canonical, load, preset_files, preset_names
from xfcost.spec.models import squeezed
from xfcost.spec.presets import gallery
from xfcost.torch_models.accounts import reconciled
from xfcost.torch_models.build import build

# The gallery: presets equal the reference to the unit, agree with their trace, and stand beside their papers ──────────

ALIASES = {"vit": "vit-s8", "swin": "swin-t", "gpt3": "gpt3-175b"}


def test_the_reference_knows_every_preset_and_no_other():
    assert sorted(EXACT) == sorted(preset_names())


def test_a_family_alone_is_a_model_of_it():
    usual = {
        "mamba": "mamba-130m",
        "ConvNeXt": "convnext-t",
        "wide_resnet": "wide-resnet-50-2",
        "mlp-mixer": "mixer-b16",
    }
    assert {family: canonical(family) for family in usual} == usual
    # what has a name of its own keeps it
    assert {canonical(name) for name in preset_names()} == {*preset_names()}


# family -> its presets; a family is one case, so that what its presets extend is loaded once
FAMILIES: dict[str, list[str]] = {}
for _name, _path in preset_files().items():
    FAMILIES.setdefault(_path.parent.name, []).append(_name)
every_family = pytest.mark.parametrize("names", FAMILIES.values(), ids=FAMILIES)


@every_family
def test_counted_equals_the_reference_to_the_unit(names):
    for name in names:
        counts = counted(name)
        for quantity in ("params", "macs", "attention_entries"):
            assert counts.total(quantity) == int(EXACT[name][quantity]), (name, quantity)


# every family, and each kind; the others have other numbers of the same options, and their reference
@pytest.mark.parametrize("name", of_presets(covering_presets()))
def test_counted_and_traced_agree_to_the_unit(name):
    agree(architecture_of(name), thinned)


@pytest.mark.rest
@pytest.mark.parametrize("name", sorted(set(WHOLE))[::9])
def test_counted_and_traced_agree_at_full_depth(name):
    agree(architecture_of(name), lambda architecture: architecture)


def agree(architecture: Architecture, traced_part: Callable[[Architecture], Architecture]) -> None:
    """Both accounts of what is traced of an architecture, to the unit; and it has the rows of the whole."""
    traced = traced_part(architecture)
    live = build(traced)
    ledger = reconciled(count(traced), *live)
    assert {row.path for row in ledger.rows} == {row.path for row in count(architecture).rows}
    exact(ledger)
    totals = ledger.totals()
    for quantity in ("params", "macs", "flops"):
        assert totals[f"traced_{quantity}"] == totals[quantity]
    # shared tables once: what torch itself says the model has
    assert sum(parameter.numel() for parameter in live.model.parameters()) == totals["params"]


def last_printed_digit(printed: float) -> float:
    """Its place, to which a figure is rounded: 100,000 of 86.6e6; of an exact count 1, or 10 where that ends on 0."""
    exponent = Decimal(repr(printed)).normalize().as_tuple().exponent
    return float(Decimal(1).scaleb(int(exponent)))


@every_family
def test_published_figures_are_ours_rounded_or_the_reason_is_known(names):
    for name in names:
        for row in counted(name).published_beside_ours():
            figure = name, row["quantity"], row["published"]
            judge(row["ours"], row["published"], PUBLISHED.get(figure, last_printed_digit(row["published"])))
            tell(row, PUBLISHED.get(figure))


def judge(ours: int, printed: float, judged: Judgement) -> None:
    if isinstance(judged, Without):
        assert ours + judged.parameters == printed
    elif isinstance(judged, PartOf):
        assert judged.least <= printed - ours <= judged.most
    elif isinstance(judged, RoundedDown):
        assert printed + judged.unit / 2 < ours < printed + judged.unit, "rounded down, and not to the nearest"
    elif isinstance(judged, (str, Off)):
        judged = judged if isinstance(judged, Off) else Off(MILLION, judged)
        assert abs(ours - printed) > judged.unit / 2, "an exception that the count now gives is none"
        assert abs(ours - printed) < judged.within * printed, "near it all the same"
    else:
        assert abs(ours - printed) <= judged / 2


def tell(row: dict[str, Any], judged: Judgement | None) -> None:
    """Where the print and the count differ, the spec's note says so (a figure within 1 % needs no note)."""
    assert row["source"]
    assert not isinstance(judged, (str, Off)) or abs(row["difference"]) < 0.01 or row["note"]
    assert not isinstance(judged, RoundedDown | Without | PartOf) or row["note"]


def printed(name: str) -> list[tuple[str, str, float]]:
    """(preset, quantity, figure) of every figure in its spec."""
    return [
        (name, quantity, figure)
        for figures in load(name).spec.published
        for quantity, figure in msgspec.to_builtins(figures).items()
        if quantity in ("params", "active_params", "macs", "flops") and figure is not None
    ]


def test_only_published_figures_are_judged():
    judged = {name for name, _, _ in PUBLISHED}
    assert set(PUBLISHED) <= {figure for name in judged for figure in printed(name)}


def test_no_figure_of_a_paper_stands_twice_in_a_spec():
    figures = [figure for name in preset_names() for figure in printed(name)]
    assert len(set(figures)) == len(figures)


def test_every_file_of_the_gallery_is_a_preset_in_a_family():
    files = sorted(gallery().rglob("*.y*ml"))
    assert sorted(preset_files().values()) == files
    assert all(file.parent.parent == gallery() for file in files)
    assert len({file.stem for file in files}) == len(files)


@every_family
def test_every_file_loads_by_its_path_and_names_its_paper(names):
    for name in names:
        spec = load(str(preset_files()[name])).spec
        assert re.search(r"(19|20)\d\d|lecture", spec.paper or ""), name
        assert spec == load(name).spec


def test_names_are_unique_but_for_the_aliases():
    names = [load(name).spec.name for name in preset_names() if name not in ALIASES]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("spelling", "name"),
    {
        "ViT": "vit", "gpt-2": "gpt2", "GPT2_medium": "gpt2-medium", "llama-2-7b": "llama2-7b",
        "Llama-2-7b-hf": "llama2-7b", "llama-3-8b": "llama3-8b", "bert": "bert-base", "bert-base-uncased": "bert-base",
        "transformer": "transformer-base", "resnet50": "resnet-50", "vit_base_patch16_224": "vit-b16",
        "vit_tiny_patch16_224": "vit-ti16", "vit-base-patch16-224": "vit-b16", "deit_small_patch16_224": "deit-s",
        "deit_tiny_patch16_224": "deit-ti", "swin_tiny_patch4_window7_224": "swin-t", "swin_t": "swin-t",
        "convnext_base": "convnext-b", "mixer_b16_224": "mixer-b16", "vit_b_16": "vit-b16",
        "qwen3_32b": "qwen3-32b", "gemma3-27b": "gemma-3-27b",
        # these are others
        "bert-base-cased": "bert-base-cased", "swin_tiny_patch4_window12_384": "swin_tiny_patch4_window12_384",
        "qwen2.5-7b-instruct": "qwen2.5-7b-instruct", "regnetx16gf": "regnetx-16gf",
    }.items(),
)  # fmt: skip
def test_names_of_other_libraries_are_presets(spelling, name):
    assert canonical(spelling) == name


@pytest.mark.parametrize(
    ("text", "settings", "name"),
    [
        ("vit:depth=6", ["stages.0.depth=6"], "ViT-S/8 (depth=6)"),
        ("llama-3-8b:num_key_value_heads=32", ["**.kv_heads=32"], "Llama 3 8B (num_key_value_heads=32)"),
        ("ViT:stages.0.depth=6:**.heads=12", ["stages.0.depth=6", "**.heads=12"],
         "ViT-S/8 (stages.0.depth=6, **.heads=12)"),
    ],
)  # fmt: skip
def test_a_preset_has_settings_of_its_own_behind_colons(text, settings, name):
    mine, theirs = load(text), load(canonical(text.split(":")[0]), settings)
    assert mine.spec.stages == theirs.spec.stages
    assert mine.spec.name == name


def test_a_spelling_is_of_one_preset():
    assert len({*map(squeezed, preset_names())}) == len(preset_names())


@pytest.mark.parametrize(("alias", "target"), ALIASES.items())
def test_an_alias_is_its_target_word_for_word(alias, target):
    assert preset_files()[alias].read_text(encoding="utf-8") == f"extends: {target}\n"
    mine, theirs = counted(alias), counted(target)
    assert mine.rows == theirs.rows
    assert mine.metadata.name == theirs.metadata.name
    assert mine.metadata.published == theirs.metadata.published


# Models of public packages as specs: their parameters and MACs to the unit, or what sets them apart by name ───────────
#
# Their figures: parameters of the module; half of what torch's FlopCounterMode counts (torch 2.13) at the length given.
# Further packages: routing-transformer and sinkhorn-transformer are presets (`routing-lm`, `sinkhorn-lm`); tests of
# mechanisms hold compressive-transformer-pytorch (test_relative.py) and axial-attention (test_axial.py).

N, D, LAYERS, WORDS = 2048, 512, 6, 20_000
POSITION = {"kind": "position"}


def language_model(*block: dict[str, Any], position: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Six layers of 512 over 2048 tokens out of 20,000, with a table of the vocabulary at either end."""
    ends = {"embed": [{"kind": "token"}, *([position] if position else [])], "head": {"kind": "language_model"}}
    return stack(*block, dim=D, depth=LAYERS, length=N, vocabulary=WORDS, **ends | more)


# What x-transformers and others are given, and their figures: a spec, parameters and MACs.
# x-transformers: TransformerWrapper(num_tokens=20000, max_seq_len=2048, attn_layers=Decoder(dim=512, depth=6, heads=8,
# …)): projections of attention have no bias, those of the feed-forward have one; its LayerNorms, two of each layer and
# one at the end, scale and do not shift.
SHIFTS = (2 * LAYERS + 1) * D
X_FULL = {"kind": "full", "heads": 8, "causal": True, "projection_bias": False}
# local-attention: around its 12 sub-layers stand hyper-connections, which are no residuals: four streams, mixed by
# weights of their own and of the tokens. Each has 512·5 + 4·5 + 1 parameters that say how streams are mixed, 512 + 4 +
# 1 that say to which the output goes, and a norm's 512. Of their work torch's counter sees, per token and column, 4·5
# products that make the mixing weights and 5·4 that mix the streams, and 4 that say where the output goes: these in
# eleven of the twelve, for the first runs them as `mv`, counted as 0.
HYPER = 12 * (D * 5 + 4 * 5 + 1 + D + 4 + 1 + D)
HYPER_MACS = N * D * (12 * (4 * 5 + 5 * 4) + 11 * 4)
PACKAGES = {
    **{
        f"x-transformers, {name}": (
            language_model(X_FULL | {"kv_heads": kv_heads}, {"kind": "mlp"}, position=POSITION), params + SHIFTS, macs,
        )
        for name, kv_heads, params, macs in (
            ("default", None, 40_424_960, 85_396_029_440), ("attn_kv_heads=2", 2, 38_065_664, 80_564_191_232),
            ("attn_one_kv_head", 1, 37_672_448, 79_758_884_864),
        )
    },
    # rotary_pos_emb=True (which leaves the table of positions out), use_rmsnorm=True, ff_glu=True, ff_swish=True
    "x-transformers, rotary": (
        language_model(
            X_FULL | {"position": "rope"}, {"kind": "swiglu", "hidden": 2048, "bias": True},
            residual={"norm": "rms_norm"}, head={"kind": "language_model", "norm": "rms_norm"},
        ),
        45_680_128, 98_280_931_328,
    ),
    "local-attention 1.11.2, LocalTransformer(20000, max_seq_len=2048, dim=512, depth=6, local_attn_window_size=256)": (
        language_model(
            {"kind": "blockwise", "heads": 8, "block": 256, "before": 256, "causal": True, "projection_bias": False},
            {"kind": "geglu", "hidden": 1365}, position=POSITION,
        ),
        40_456_504 - HYPER, 66_611_838_976 - HYPER_MACS,
    ),
    # Rotary positions. Its W_O has a bias, which is not in the spec; it hashes into N/c buckets, half of the paper's.
    "reformer-pytorch 1.4.4, ReformerLM(20000, 512, 6, 2048, heads=8, bucket_size=64, n_hashes=4)": (
        language_model(
            {"kind": "lsh", "heads": 8, "rounds": 4, "bucket": 64, "buckets": N // 64}, {"kind": "mlp"},
            residual={"form": "reversible", "join": "mean"}, head={"kind": "language_model", "bias": True},
        ),
        37_833_248 - LAYERS * D, 63_250_104_320,
    ),
    # Its W_O has a bias, and its positions are axial, (16 + 128)·512.
    "linear-attention-transformer 0.19.1, LM(20000, 512, 6, 2048, heads=8, causal=True, blindspot_size=64)": (
        language_model(
            {"kind": "kernel", "heads": 8, "causal": True, "form": "recurrent", "projection_bias": False},
            {"kind": "mlp"}, head={"kind": "language_model", "bias": True},
        ),
        39_479_840 - LAYERS * D - (16 + 128) * D, 60_437_823_488,
    ),
    "performer-pytorch 1.1.4, PerformerLM(20000, 2048, dim=512, depth=6, heads=8, nb_features=256)": (
        language_model(
            {
                "kind": "kernel", "heads": 8, "features": {"kind": "random", "count": 256}, "projection_bias": False,
            },
            {"kind": "mlp"}, position=POSITION, head={"kind": "language_model", "bias": True},
        ),
        40_451_616, 66_093_842_432,
    ),
    # Its Q, K, V have no bias, and it has no last norm.
    "linformer 0.2.3, LinformerLM(20000, dim=512, seq_len=2048, depth=6, heads=8, k=256)": (
        language_model(
            {"kind": "low_rank", "heads": 8, "rank": 256}, {"kind": "mlp"}, position=POSITION,
            head={"kind": "language_model", "norm": "none", "bias": True},
        ),
        46_745_120 + LAYERS * 3 * D, 66_068_676_608,
    ),
    # On 2048 vectors. Its W_O has a bias, which is not in the spec.
    "nystrom-attention 0.0.14, Nystromformer(dim=512, depth=6, heads=8, num_landmarks=256)": (
        stack(
            {"kind": "nystrom", "heads": 8, "landmarks": 256, "conv": 33, "projection_bias": False}, {"kind": "mlp"},
            dim=D, depth=LAYERS, input={"kind": "vectors", "channels": D, "length": N}, embed=[],
        ),
        18_906_672 - LAYERS * D, 71_275_905_024,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PACKAGES)
def test_models_of_packages(name: str, tmp_path: Path) -> None:
    spec, params, macs = PACKAGES[name]
    ledger = counted_spec(spec, tmp_path)
    assert (ledger.total("params"), ledger.total("macs")) == (params, macs)


# torch.nn.Transformer ────────────────────────────────────────────────────────────────────────────────────────────────


def torch_transformer(width: int, heads: int, hidden: int) -> dict[str, Any]:
    """Two streams of vectors; each stack ends with a norm more; biases everywhere."""
    last = [{"kind": "norm", "norm": "layer_norm", "residual": "none"}]
    mlp = {"kind": "mlp", "hidden": hidden, "act": "relu"}
    stacks = {
        "encoder": [{"kind": "full", "heads": heads}, mlp],
        "decoder": [{"kind": "full", "heads": heads, "causal": True}, {"kind": "cross", "heads": heads}, mlp],
    }
    return {
        "input": {"kind": "vectors", "channels": width, "length": 512},
        "residual": {"norm": "layer_norm", "place": "post"},
    } | {
        stream: {"stages": [{"dim": width, "blocks": [{"repeat": 6, "blocks": [block]}, last]}]}
        for stream, block in stacks.items()
    }


@pytest.mark.parametrize(
    ("sizes", "params", "macs"),
    [((512, 8, 2048), 44_140_544, 27_380_416_512), ((1024, 16, 4096), 176_361_472, 99_857_989_632)],
    ids=["base", "big"],
)
def test_torch_s_own_transformer(sizes: tuple[int, int, int], params: int, macs: int, tmp_path: Path) -> None:
    width, heads, hidden = sizes
    architecture = placed({"name": "torch.nn.Transformer"} | torch_transformer(*sizes), tmp_path)
    ledger = exact(both_accounts(architecture))
    assert (ledger.total("params"), ledger.total("macs")) == (params, macs)
    with torch.device("meta"):
        theirs = nn.Transformer(width, heads, 6, 6, hidden, batch_first=True)
        source, target = torch.empty(1, 512, width), torch.empty(1, 512, width)
    assert sum(parameter.numel() for parameter in theirs.parameters()) == params
    # training, for evaluation's fast path is one that counters miss
    assert counted_by_torch(lambda: theirs(source, target))[1] == macs
