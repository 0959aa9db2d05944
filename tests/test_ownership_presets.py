"""Of the gallery's modules, looked at without their spec: kind, reads and content-dependence are the declared ones."""

from __future__ import annotations

from typing import Final

import pytest

from found_kinds import of_model, of_part, parts_of
from known_differences import KNOWN, reason_for
from xfcost.spec.load import load, preset_names
from xfcost.spec.placement import place
from xfcost.spec.run import Run

# Every row agrees.
EXACT: Final = (
    "vit", "deit-ti", "swin-t", "swinv2-b-w8-256", "mixer-s16", "gmlp-s", "resmlp-s12", "resnet-50", "resnext-50-32x4d",
    "regnety-800mf", "convnext-t", "poolformer-s12", "pvt-tiny", "pvt-v2-b0", "pvt-v2-b2-li", "twins-pcpvt-b", "cvt-13",
    "mobilevit-s", "efficientnet-b0", "mobilenetv2-1.0",
    "gpt2", "bert-base", "t5-small", "llama-7b", "bloom-560m", "mistral-7b-sliding", "deepseek-v2",
    "mixtral-8x7b", "mamba-130m", "rwkv4-169m", "retnet-1.3b", "perceiver-io", "hyena-125m", "conformer-s",
    "common-lstm", "common-longformer", "common-bigbird", "common-linformer", "common-nystrom", "common-performer",
    "common-linear", "common-set-transformer", "common-transformer-xl", "common-funnel", "common-routing",
    "common-compressed", "common-blockwise", "common-axial", "common-etc", "common-fnet", "common-sparse-strided",
    "common-synthesizer", "common-memory-tokens", "common-conv", "common-sliding",
)  # fmt: skip
# Some rows are known to differ.
WITH_KNOWN: Final = (
    "common-reformer",
    "common-sinkhorn",
    "mamba2-130m",
    "retnet-1.3b-chunkwise",
    "rnnsearch",
    "vgg-11-bn",
)


def differences(preset: str) -> dict[str, str]:
    """The rows that differ, by component, with what differs."""
    found = {}
    for part, small in parts_of(place(load(preset), Run())):
        for one in of_part(part, small):
            if one.difference is not None:
                found[f"{type(part.component).__name__}.{one.row.path}"] = one.difference
    return found


@pytest.mark.parametrize("preset", EXACT)
def test_what_is_found_without_the_spec_is_what_it_declares(preset: str) -> None:
    assert not differences(preset)


@pytest.mark.parametrize("preset", WITH_KNOWN)
def test_every_difference_is_known_with_its_reason(preset: str) -> None:
    found = differences(preset)
    assert found
    assert not [f"{row}: {text}" for row, text in found.items() if reason_for(row) is None]


def test_no_row_has_two_reasons() -> None:
    rows = [row for several in KNOWN for row in several]
    assert len(rows) == len(set(rows))


SHALLOW: Final = ["stages.*.depth=1"]
FEW_WORDS: Final = ["stages.0.depth=1", "input.vocabulary=50"]
WHOLE: Final = {
    "vit": (SHALLOW, Run(size=(64, 64)), Run(size=(96, 96))),
    "mixer-s16": (SHALLOW, Run(size=(64, 64)), Run(size=(96, 96))),
    "pvt-tiny": (SHALLOW, Run(size=(64, 64)), Run(size=(96, 96))),
    "gpt2": (FEW_WORDS, Run(tokens=(8,)), Run(tokens=(12,))),
    "common-linformer": (FEW_WORDS, Run(tokens=(8,)), Run(tokens=(12,))),
    "common-longformer": ([*FEW_WORDS, "**.window=4"], Run(tokens=(16,)), Run(tokens=(24,))),
}


@pytest.mark.parametrize("preset", WHOLE)
def test_the_rows_of_a_whole_model_agree_from_pixels_or_words_to_the_head(preset: str) -> None:
    settings, small, large = WHOLE[preset]
    assert preset in preset_names()
    compared = of_model(*(place(load(preset, settings), run) for run in (small, large)))
    assert not [f"{one.row.path}: {one.difference}" for one in compared if one.difference]
