"""DeiT's second token and second classifier, beside transformers' code; positions that follow the resolution."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import nn

import transformers_models as hf
from strategies import placed
from xfcost.counting.comparison import compared
from xfcost.counting.forward import count
from xfcost.counting.system import SpecSystem
from xfcost.formulas.component import Place
from xfcost.layers.classifier import Classifier
from xfcost.layers.distillation_token import DistillationToken
from xfcost.ledger.errors import ComponentError, SpecError
from xfcost.ledger.grid import Grid
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.spec.run import Run

CLASSES = 7
BOTH = ["class_token", "distillation_token"]
STEM_LAYERS: list[dict[str, Any]] = [{"kind": "class_token"}, {"kind": "distillation_token"}]


def deit_spec(*stem_layers: dict[str, Any], pool: Any = BOTH) -> dict[str, Any]:
    return {
        "name": "a small DeiT",
        "input": {"kind": "image", "size": [16, 24]},
        "embed": [{"kind": "patch", "size": 8}, *(stem_layers or STEM_LAYERS), {"kind": "position"}],
        "stages": [{"dim": 12, "depth": 2, "block": [{"kind": "full", "heads": 3}, {"kind": "mlp"}]}],
        "head": {"kind": "classifier", "pool": pool, "classes": CLASSES},
    }


def theirs_deit(**settings: Any) -> nn.Module:
    settings = {"layer_norm_eps": 1e-5, "num_labels": CLASSES} | settings
    return hf.theirs_of("DeiTForImageClassificationWithTeacher", **settings)


def copied_deit(theirs: nn.Module, ours: Any) -> None:
    weights, stream = hf.TheirWeights(theirs), ours.streams[0]
    patch, token, distillation, position = stream.embed
    weights.put(patch.projection, "deit.embeddings.patch_embeddings.projection")
    token.prepend.weight.copy_(weights.take("deit.embeddings.cls_token"))
    distillation.insert.weight.copy_(weights.take("deit.embeddings.distillation_token"))
    position.table.weight.copy_(weights.take("deit.embeddings.position_embeddings")[0])
    for number, block in enumerate(stream.stages[0].run):  # a DeiT block is a ViT block, tensor for tensor
        hf.copy_block("vit", block, weights, f"deit.layers.{number}.")
    weights.put(ours.head.norm, "deit.layernorm")
    weights.put(ours.head.linear, "cls_classifier")
    weights.put(ours.head.distillation_linear, "distillation_classifier")
    assert not weights


@pytest.mark.parametrize("attention", ["eager", "fused"])
def test_a_distilled_deit_with_their_weights(attention: str, tmp_path: Path) -> None:
    theirs = theirs_deit(
        hidden_size=12,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=48,
        image_size=(16, 24),
        patch_size=8,
    )
    ours = hf.ours_of(deit_spec(), tmp_path, batch=2, dtype="float64", attention=attention)
    hf.compare(theirs, ours, copied_deit, tolerance=1e-6)  # their softmax runs in float32


def test_tokens_that_are_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ComponentError, match="no class token; the distillation token follows it"):
        DistillationToken().check(Place(grid=Grid((4,)), dim=4, out_dim=4))
    with pytest.raises(
        ComponentError, match=r"expected \[class_token, distillation_token\], got \[class_token, class_tok"
    ):
        Classifier(pool=["class_token", "class_token"]).check(Place(grid=Grid((4,), 2), dim=4, out_dim=4))
    with pytest.raises(ComponentError, match="`pool` takes two"):
        Classifier(pool=BOTH, norm_after_pool=True).check(Place(grid=Grid((4,), 2), dim=4, out_dim=4))
    # two special tokens, and none of them for distillation: the head must not take another for it
    for stem_layers in ([{"kind": "class_token"}], [{"kind": "memory_tokens", "count": 1}, {"kind": "class_token"}]):
        with pytest.raises(SpecError, match=r"head\.pool: there is no distillation token to pool; add"):
            placed(deit_spec(*stem_layers), tmp_path)
    for pool in (["class_token"], "distillation_token", []):
        with pytest.raises(SpecError, match=r"head\.pool"):
            placed(deit_spec(pool=pool), tmp_path)


def test_on_the_grid_alone_both_tokens_are_left_out(tmp_path: Path) -> None:
    alone = placed(deit_spec(), tmp_path, extra_tokens=False)
    assert alone.grid == Grid((2, 3))
    assert alone.head.component.pool == "mean"
    loaded = load("deit-ti-distilled")
    figures = compared([SpecSystem(loaded)], [count(place(loaded, Run()))], Run()).figures["DeiT-Ti distilled"]
    assert figures["score_dot_products"] == 196**2
    assert figures["score_dot_products_with_extra_tokens"] == 198**2


def test_a_position_table_is_told_to_follow_the_resolution(tmp_path: Path) -> None:
    small, large = (count(place(load(name), Run())) for name in ("deit-b", "deit-b-384"))
    assert large.total("params") - small.total("params") == (577 - 197) * 768
    assert [row.title for row in large.rows if row.bound] == ["Position table"]
    (note,) = large.metadata.notes
    assert "one row per token (577), bound to the resolution: another N needs new weights, or these" in note
    # positions before the class token: a row per patch
    assert "one row per token (196)" in count(place(load("deit3-b"), Run())).metadata.notes[0]
    # what is no image has nothing to interpolate on
    stem_layers = [{"kind": "token"}, {"kind": "position"}]
    text = {"input": {"kind": "tokens", "vocabulary": 7, "length": 5}, "embed": stem_layers, "head": None}
    assert "(5): another N needs new weights" in count(placed(deit_spec() | text, tmp_path)).metadata.notes[0]
