"""Every report says which image a system sees and where they differ; figures in print stand beside what they are of."""

from __future__ import annotations

import json

import pytest

import xfcost
from helpers import csv_of, table_of, xf
from xfcost.ledger.metadata import Metadata
from xfcost.report.compare import comparison_plain
from xfcost.report.export import comparison_text, ledger_text
from xfcost.report.input_description import circumstances, input_warnings
from xfcost.report.table import ledger_plain

# Patches of 8: 28·8 = 224. Patches of 4: 28·4 = 112.
DIFFER = "images differ: ViT-S/8 sees 224×224, Swin-T 112×112; --size compares equal images"


def flat(text: str) -> str:
    return " ".join(text.split())


def test_the_image_is_that_of_the_run() -> None:
    assert xfcost.analyze("vit", trace=False).metadata.image == (224, 224)
    assert xfcost.analyze("vit", N=196, trace=False).metadata.image == (112, 112)
    assert xfcost.analyze("swin-t", size="224x320", trace=False).metadata.image == (224, 320)
    # 16 frames of 224×224, of which N = 8·28² takes half the side
    assert xfcost.analyze("mvit-b-16x4", trace=False).metadata.image == (16, 224, 224)
    assert xfcost.analyze("mvit-b-16x4", N=8 * 28 * 28, trace=False).metadata.image == (16, 112, 112)
    assert xfcost.analyze("gpt2", trace=False).metadata.image is None


def test_every_header_carries_the_image() -> None:
    vit = xfcost.analyze("vit", trace=False)
    assert "image 224×224   tokens 784 (28×28) + 1   batch 1" in ledger_plain(vit)
    assert json.loads(vit.to_json())["image"] == [224, 224]
    assert "image 224×224 tokens 784" in ledger_text(vit, "markdown")
    assert json.loads(xfcost.analyze("gpt2", trace=False).to_json())["image"] is None
    assert "image" not in ledger_plain(xfcost.analyze("gpt2", trace=False)).splitlines()[1]
    video = xfcost.analyze("mvit-b-16x4", trace=False)
    assert "video 16×224×224   tokens" in circumstances(video.metadata)


def test_a_comparison_at_one_n_says_that_images_differ() -> None:
    comparison = xfcost.compare("vit", "swin", N=784)
    text = comparison_plain(comparison)
    assert "ViT-S/8   image 224×224   tokens 784 (28×28) + 1\nSwin-T    image 112×112   tokens 784 (28×28)\n" in text
    assert DIFFER in flat(text)
    rows = table_of(comparison_text(comparison, "csv"))
    assert [row["image"] for row in rows] == ["224x224", "112x112"]
    assert [one["image"] for one in json.loads(comparison.to_json())["systems"]] == [[224, 224], [112, 112]]
    assert "image 112×112" in comparison_text(comparison, "markdown")


def test_equal_images_do_not_differ() -> None:
    text = comparison_plain(xfcost.compare("vit", "swin", size=224))
    assert "images differ" not in text
    assert "each at its own N" in text
    assert "Swin-T    image 224×224   tokens 3,136 (56×56)" in text


def test_many_systems_are_named_by_the_image_that_they_see() -> None:
    text = flat(comparison_plain(xfcost.compare("vit-s16", "swin-t", "swin-s", "swin-b", "pvt-tiny", N=784)))
    assert "images differ: vit-s16 sees 448×448, swin-t, swin-s and 2 more 112×112; --size compares equal" in text
    assert "N = 784 batch 1" in text
    same = flat(comparison_plain(xfcost.compare("swin-t", "swin-s", "swin-b", "pvt-tiny", "pvt-small")))
    assert "image 224×224 N = 3,136 batch 1" in same
    assert "differ" not in same


@pytest.mark.parametrize(("form", "words"), [("markdown", DIFFER), ("table", DIFFER)])
def test_the_page_of_operations_carries_the_images(form: str, words: str) -> None:
    done = xf("glance", "vit", "swin", "--N", "784", "--format", form)
    assert words in flat(done.stdout)
    between = ", " if form == "markdown" else " "
    assert f"ViT-S/8: image 224×224{between}tokens 784 (28×28) + 1" in flat(done.stdout)


def test_the_page_of_operations_as_data() -> None:
    told = json.loads(xf("glance", "vit", "gpt2", "--N", "784", "--format", "json").stdout)
    assert told["inputs"]["ViT-S/8"] == {"tokens": 784, "extra_tokens": 1, "image": [224, 224], "batch": 1}
    assert told["inputs"]["GPT-2 (124M)"]["image"] is None
    rows = csv_of("glance", "vit", "gpt2", "--N", "784")
    assert {(row["system"], row["N"], row["image"]) for row in rows} == {
        ("ViT-S/8", "784", "224x224"),
        ("GPT-2 (124M)", "784", ""),
    }


def test_a_text_beside_an_image_is_no_other_image() -> None:
    image, text = (
        Metadata(name=name, tokens="4", grid_tokens=4, image=sides) for name, sides in (("a", (8, 8)), ("b", None))
    )
    assert list(input_warnings({"a": image, "b": text})) == []
    wide = Metadata(name="{c}", tokens="4", grid_tokens=4, image=(8, 16))
    # --size would be refused by the text
    assert list(input_warnings({"a": image, "b": text, "{c}": wide})) == ["images differ: a sees 8×8, {c} 8×16"]


def test_figures_in_print_are_of_one_sample_and_one_forward() -> None:
    # Published MACs are per image; eight of them are no +698 %.
    assert xfcost.analyze("swin-t", trace=False).published_beside_ours()
    batch = xfcost.analyze("swin-t", batch=8, trace=False)
    assert batch.published_beside_ours() == []
    assert batch.metadata.published_left_out > 0
    assert "left out: they are of one forward of the spec as written, at its own size, batch 1" in flat(
        ledger_plain(batch, verbose=True)
    )
    for mode, stays in {"forward": True, "train": True, "prefill": False, "decode": False}.items():
        told = xfcost.analyze("llama2-7b", mode=mode, trace=False).published_beside_ours()  # type: ignore[arg-type]
        assert bool(told) is stays, mode


@pytest.mark.parametrize("preset", ["swin-t", "sasa-50", "mixtral-8x7b"])
def test_neither_dtype_nor_execution_changes_what_is_published(preset: str) -> None:
    # What is in print are parameters, MACs and FLOPs; bytes would be another matter.
    plain = xfcost.analyze(preset, trace=False).published_beside_ours()
    assert plain
    for dtype in ("float32", "bf16"):
        for attention in ("eager", "fused"):
            other = xfcost.analyze(preset, dtype=dtype, attention=attention, trace=False)  # type: ignore[arg-type]
            assert other.published_beside_ours() == plain
