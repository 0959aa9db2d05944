"""The answer first: in the header of `analyze`, in the first twelve lines of `compare`; --verbose shows the rest."""

import re

import msgspec
import pytest

import xfcost
from helpers import csv_of, report_text, xf


def header(spec: str, **options: object) -> list[str]:
    """The lines above the tables."""
    return report_text(xfcost.analyze(spec, trace=False, **options)).split("\n\n")[0].splitlines()


def test_the_largest_shares_are_those_of_products_counted_by_hand() -> None:
    # ViT-S/8 at 784 tokens + 1, 12 blocks, 384 wide: MLP 2·N·d·4d, scores and AV 2·N²·d, projections 4·N·d²
    tokens, width, whole = 785, 384, 22_405_742_592
    products = (2 * tokens * width * 4 * width, 2 * tokens**2 * width, 4 * tokens * width**2)
    shares = [f"{100 * 12 * macs / whole:.1f} %" for macs in products]
    text = " ".join(header("vit"))
    assert re.findall(r"[\d.]+ %", text[text.index("most MACs") :]) == shares


def test_a_decode_step_reads_most_bytes_where_its_weights_and_its_cache_are() -> None:
    # GPT-2 124M in bfloat16, 12 blocks, 768 wide, 50,257 words: MLP 8d² + 5d, attention 4d² + 4d, the table V·d once
    width, two = 768, 2
    mlp, attention = 12 * (8 * width**2 + 5 * width) * two, 12 * (4 * width**2 + 4 * width) * two
    table, cache = 50257 * width * two, 2 * 1024 * 12 * width * two
    text = " ".join(header("gpt2", mode="decode"))
    read = int(xfcost.analyze("gpt2", mode="decode", trace=False).step.bytes_read)
    expected = [f"{100 * part / read:.1f} %" for part in (mlp, table, attention, cache)]
    line = text[text.index("most bytes read: ") : text.index(" Counted from formulas")]
    assert re.findall(r"[\d.]+ %", line) == expected
    assert line.endswith(f"{expected[-1]} KV cache")


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("macs", ["MLP up-projection", "MLP down-projection", "Q, K, V projections"]),
        ("params", ["MLP up-projection", "MLP down-projection", "Q, K, V projections"]),
        # 2 · 6·785² entries of 4 bytes alive at once, 28.21 MiB; then 12 · 591,360 weights of 4 bytes, 27.07 MiB
        ("memory", ["Softmax", "MLP up-projection", "MLP down-projection"]),
    ],
)
def test_rows_of_the_whole_model_are_sorted_and_cut(sort: str, expected: list[str]) -> None:
    rows = csv_of("analyze", "vit", "--no-trace", "--sort", sort, "--top", "3")
    assert [row["title"] for row in rows] == expected


CAUSES = {
    "gpt2": ("attention matmuls", "embeddings and norms", "biases", "recomputation"),
    "swin": ("attention matmuls", "weights that see fewer tokens", "embeddings and norms"),  # its grid shrinks
    "resnet-50": ("weights applied more than once per token", "weights that see fewer tokens", "embeddings and norms"),
    "mamba2-130m": ("products without parameters",),
    "t5-small": ("attention matmuls", "weights that see fewer tokens", "recomputation"),
    "reformer-enwik8": ("attention matmuls", "products without parameters", "embeddings and norms", "recomputation"),
}


@pytest.mark.parametrize("name", CAUSES)
def test_the_causes_of_a_count_beside_the_estimate_add_up_and_are_its_own(name: str) -> None:
    ledger = xfcost.analyze(name, mode="train", tokens="300e9", trace=False)
    for run in (ledger.training.run, ledger.training.run.without_recomputation):
        assert sum(msgspec.structs.astuple(run.beside_estimate)) == run.flops - run.filled_estimate
    words = " ".join(report_text(ledger).split())
    (causes,) = re.findall(r"(?:above|below) 6·P·D \(\S+?\): (.*?[+−][\d.]+ %)(?!,)", words)
    assert tuple(re.sub(r" [+−][\d.]+ %$", "", cause) for cause in causes.split(", ")) == CAUSES[name]


def test_pairs_of_one_layer_name_that_layer() -> None:
    """Three window blocks of 7×7 come before each of three blocks of full attention, on 14×14 patches."""
    text = report_text(xfcost.compare("vit-b16", "docs/tutorials/your-architecture/windows.yaml"))
    pairs = "query-key pairs per head, first layer, at N = 196: Windows, then all tokens 9,604,"  # 196·49
    assert pairs in " ".join(text.split())


@pytest.mark.parametrize(
    "words", [("analyze", "swin", "--N", "784", "--no-trace"), ("compare", "vit", "swin", "--N", "784")]
)
def test_notes_are_few_but_for_verbose(words: tuple[str, ...]) -> None:
    short, long = xf(*words).stdout, xf(*words, "--verbose").stdout
    assert len(re.findall(r"^note: ", short, re.MULTILINE)) == 2
    hidden = len(re.findall(r"^note: ", long, re.MULTILINE)) - 2
    assert hidden > 0
    assert f"{hidden} more note{'s' if hidden > 1 else ''}: --verbose" in short
    assert "more note" not in long
    assert "data moved" in long or words[0] == "compare"
    assert "data moved" not in short


@pytest.mark.parametrize(
    ("spec", "attention", "numbers"),
    [
        ("transformer-xl-enwik8", "fused", 512 * 1024),  # masked scores of positions: 512 queries, 512 keys of a memory
        ("retnet-1.3b", "eager", 2048**2),  # decays
        ("mvitv2-t", "eager", 56**2 * 14**2),  # scores of positions, keys pooled by 4
    ],
)
def test_the_matrix_of_a_head_is_that_of_one(spec: str, attention: str, numbers: int) -> None:
    ledger = xfcost.analyze(spec, attention=attention, dtype="float32", trace=False)
    assert ledger.attention_memory()["per_head"] == 4 * numbers
