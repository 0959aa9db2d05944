"""The answer first: in the header of `analyze`, in the first twelve lines of `compare`; --verbose shows the rest."""

import re

import msgspec
import pytest

import xfcost
from helpers import report_text, xf
from xfcost.report.training import days_text, device_days_text


def header(spec: str, **options: object) -> list[str]:
    """The lines above the tables."""
    return report_text(xfcost.analyze(spec, trace=False, **options)).split("\n\n")[0].splitlines()  # type: ignore[arg-type]


def test_a_forward_answers_parameters_macs_flops_memory_and_agreement() -> None:
    assert header("vit")[2:] == [
        "22,055,272 parameters   22,405,742,592 MACs   45,187,362,640 FLOPs",
        "most MACs: 49.6 % MLP up-projection + down-projection, 25.3 % attention scores QKᵀ + weighted sum",
        "AV, 24.8 % Q, K, V projections + output projection W_O",
        "attention memory: 169.3 MiB in all layers (training), 28.21 MiB peak (inference)",
        "counted only; --trace checks it",
    ]


def test_a_decode_step_answers_cache_bytes_intensity_and_tokens_at_once() -> None:
    # Keys and values of 1,024 tokens, 12 layers, 768 wide, 2 bytes: 36 MiB
    assert 2 * 1024 * 12 * 768 * 2 == 36 * 2**20
    lines = header("gpt2", mode="decode", batch=2)
    assert lines[2] == "KV cache: 72 MiB bfloat16, batch 2; 36 KiB more per token of a sample"
    assert lines[3].startswith("bytes read per step: ")
    assert lines[4].endswith("FLOP/byte: memory-bound wherever the ridge point is higher")
    assert lines[5] == "tokens at once: 2 (one per sample)"


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
    line = text[text.index("most bytes read: ") : text.index(" counted only")]
    assert re.findall(r"[\d.]+ %", line) == expected
    assert line.endswith(f"{expected[-1]} KV cache")


def test_of_a_module_the_largest_parts_are_its_modules() -> None:
    # 2·64·2048 of 278,656 MACs per token: two products of the MLP
    answer = xf(
        "analyze", "torch.nn:TransformerEncoderLayer", "--build", "d_model=64", "--build", "nhead=4", "--input",
        "1xNx64", "--N", "32", "--no-mixing",
    ).stdout  # fmt: skip
    share = f"{100 * 64 * 2048 / 278_656:.1f} %"
    assert f"most MACs: {share} linear1, {share} linear2" in answer


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
    text = xf("analyze", "vit", "--no-trace", "--sort", sort, "--top", "3").stdout
    rows = [one for one in text.splitlines() if ", stage 1 · Self-attention ×12" in one]
    assert [row.partition(", stage 1")[0] for row in rows] == expected
    csv = xf("analyze", "vit", "--no-trace", "--sort", sort, "--top", "3", "--format", "csv").stdout
    assert len(csv.splitlines()) == 1 + len(expected)
    assert all(title in row for title, row in zip(expected, csv.splitlines()[1:], strict=True))


def test_groups_are_sorted_too() -> None:
    text = xf("analyze", "swin", "--no-trace", "--by", "stage", "--sort", "macs", "--top", "1").stdout
    table = text[text.index("\nstage ") :].split("\n\n")[0].strip().splitlines()
    assert len(table) == 2
    assert table[1].startswith("stage 3 ")  # 48.6 % of MACs


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sort", "seconds"], "--sort seconds: needs seconds; add --device cpu"),
        (["--sort", "time"], "--sort time: expected macs, seconds, params or memory"),
        (["--top", "3", "--format", "json"], "--sort and --top: json always has every row"),
    ],
)
def test_an_order_that_there_is_not_is_refused(options: list[str], message: str) -> None:
    answer = xf("analyze", "vit", "--no-trace", *options)
    assert answer.returncode == 2
    assert message in answer.stderr


def test_a_recurrent_state_is_no_kv_cache() -> None:
    told = header("mamba-130m", mode="decode", N=64, on="h100-sxm")
    assert any(line.startswith("recurrent state: ") for line in told)
    assert "KV cache" not in " ".join(told)


def test_an_encoder_s_keys_and_a_full_window_are_no_recurrent_state() -> None:
    for name, options in (("t5-small", {}), ("mistral-7b-sliding", {"N": 8000})):
        lines = header(name, mode="decode", on="h100-sxm", **options)
        assert any(line.startswith("KV cache: ") for line in lines)
        assert "recurrent" not in " ".join(lines)


def test_systems_with_both_kinds_of_cache_name_both() -> None:
    compared = xf("compare", "mamba-130m", "gpt2", "--mode", "decode", "--N", "64", "--no-trace").stdout
    assert "KV cache and recurrent state: " in compared


def test_a_generation_answers_its_total() -> None:
    ledger = xfcost.analyze("gpt2", mode="generate", N=64, new_tokens=8, trace=False)
    total = ledger.generation.with_cache
    assert header("gpt2", mode="generate", N=64, new_tokens=8)[2].startswith(
        f"8 new tokens after 64: {total.macs:,} MACs   {total.flops:,} FLOPs ("
    )
    assert header("gpt2", mode="generate", N=64, new_tokens=1)[2].startswith("1 new token after 64: ")
    assert header("gpt2", mode="generate", N=64, new_tokens=1)[2].endswith("(as much without a cache)")


def test_training_answers_flops_memory_and_days() -> None:
    lines = " ".join(header("gpt2", mode="train", tokens="300e9", sustained="125T", devices=8))
    for words in ("one step (1,024 tokens): ", "memory: ", "300.0 G tokens: ", " days (", " device-days) "):
        assert words in lines
    assert "(parameters, gradients, optimizer states, saved activations, 196.3 MiB float32 logits of the loss)" in lines
    traced = report_text(xfcost.analyze("gpt2", mode="train", N=8))
    assert "saved activations, 1.534 MiB float32" in traced.split("\n\n")[0]


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
    (causes,) = re.findall(r"(?:above|below) 6·P·D \(\S+?\): (.*?) [\d,]+ parameters", words)
    assert tuple(re.sub(r" [+−][\d.]+ %$", "", cause) for cause in causes.split(", ")) == CAUSES[name]


@pytest.mark.parametrize(
    ("days", "words"),
    [
        (0.002123, "3.057 minutes"), (0.7, "16.8 hours"), (1, "1 day"), (1.189, "1.189 days"), (12345, "12,345 days"),
        (0.0006, "51.8 s"),
    ],
)  # fmt: skip
def test_a_time_is_in_a_unit_that_it_fills(days: float, words: str) -> None:
    assert days_text(days) == words


def test_a_column_of_days_has_symbols_of_other_units() -> None:
    assert [days_text(days, "") for days in (1.189, 0.7, 0.002123, 0.0006)] == [
        "1.189", "16.8 h", "3.057 min", "51.8 s",
    ]  # fmt: skip


def test_device_time_is_in_the_unit_of_its_largest() -> None:
    assert device_days_text([0.5, 0.9]) == "12 to 21.6 device-hours"
    assert device_days_text([0.5, 252.4]) == "0.5 to 252.4 device-days"
    assert device_days_text([1e-6]) == "86.4 ms of one device"


def test_the_first_thirteen_lines_of_compare_are_its_answer() -> None:
    lines = xf("compare", "vit", "swin", "--N", "784").stdout.splitlines()[:13]
    text = "\n".join(lines)
    assert "MACs: Swin-T has the least at N = 784, 1.180 G: 18.99× less than ViT-S/8 (22.41 G)" in lines
    assert "attention memory: Swin-T has the least" in text
    assert "  ViT-S/8  MACs 1.41, mixing MACs 2.00, attention memory 2.00 (to 4·N)" in lines
    assert "crossovers at equal N: none found" in text
    assert text.count("counted only") == 1


def test_pairs_of_one_layer_name_that_layer() -> None:
    """Three window blocks of 7×7 come before each of three blocks of full attention, on 14×14 patches."""
    text = report_text(xfcost.compare("vit-b16", "docs/tutorials/your-architecture/windows.yaml"))
    assert (
        "query-key pairs per head, first layer: Windows, then all tokens has the least at N = 196, 9,604"  # 196·49
    ) in " ".join(text.split())


@pytest.mark.parametrize(("mode", "words"), [("decode", "bytes read per step: "), ("train", "FLOPs of a step: ")])
def test_a_comparison_answers_the_question_of_its_mode(mode: str, words: str) -> None:
    answer = report_text(xfcost.compare("gpt2", "gpt2-medium", mode=mode)).split("\n\n")[1]  # type: ignore[arg-type]
    assert answer.startswith(f"{words}GPT-2 (124M) has the least")


def test_equal_figures_are_left_out_but_for_verbose() -> None:
    comparison = xfcost.compare("gpt2", "gpt2", N=64)
    other = xfcost.compare("mistral-7b", "mistral-7b-sliding", N=8192)  # of the same parameters
    short, long = report_text(other), report_text(other, verbose=True)
    assert "(same)" not in short.split("\n\n")[2]
    assert "(same)" in long.split("\n\n")[2]
    assert "MACs: the same at N = 64" in report_text(comparison)


def test_crossovers_of_tiny_images_are_verbose() -> None:
    comparison = xfcost.compare("vit", "swin", N=784)
    assert "at 32×32" not in report_text(comparison)
    assert "ViT-S/8 at 32×32" in " ".join(report_text(comparison, verbose=True).split())


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


def test_columns_that_do_not_fit_are_named() -> None:
    text = xf("analyze", "vit", "--no-trace", COLUMNS="80").stdout
    assert "hidden at this width: FLOPs, moved" in text


def test_the_system_that_has_the_least_is_named_first() -> None:
    answer = report_text(xfcost.compare("vit-b16", "vit-s16", N=196)).split("\n\n")[1]
    assert answer.startswith("MACs: ViT-S/16 has the least at N = 196, ")
