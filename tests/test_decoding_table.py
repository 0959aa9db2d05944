"""docs/decoding.csv is what the installed transformers says today."""

from collections import Counter

import pytest

pytest.importorskip("transformers")
from decoding_table import line, types, written

# One of every way in which a type keeps its past: keys and values, windows, latents, states, convolutions, an encoder.
SOME = (
    "qwen3", "gemma3_text", "gpt_oss", "deepseek_v3", "falcon_mamba", "lfm2", "bart", "granitemoehybrid", "gemma4_text",
    "xmod",
)  # fmt: skip


def test_most_types_that_write_text_have_a_decode_step():
    lines = written()
    assert [(one["kind"], one["type"]) for one in lines] == list(types())
    found = Counter((one["kind"], one["decode"]) for one in lines)
    assert found["causal", "yes"] >= 174
    assert found["image-text", "yes"] >= 80
    assert found["speech", "yes"] >= 18
    for one in lines:
        assert bool(one["reason"]) == (one["decode"] == "no")
        assert (one["decode"] == "yes") == bool(one["cache"] and one["macs"] and one["weights"])


@pytest.mark.rest
@pytest.mark.parametrize("name", SOME)
def test_a_line_is_of_today(name):
    expected = next(one for one in written() if (one["kind"], one["type"]) == ("causal", name))
    assert {key: str(value) for key, value in line("causal", name).items()} == expected
