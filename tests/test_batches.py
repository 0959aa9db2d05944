"""`analyze --batch 1,8,512` and `--N 256,512,1024`: each line is the run of that batch or size alone."""

import json

import xfcost
from helpers import csv_of, error_of, stdout_of, xf

DECODE = ("analyze", "llama3-8b", "--mode", "decode", "--on", "h100-sxm", "--N", "4k", "--batch")


def test_a_line_is_the_run_of_its_batch():
    rows = csv_of(*DECODE, "1,8,512")
    for row, batch in zip(rows, (1, 8, 512), strict=True):
        alone = xfcost.analyze("llama3-8b", mode="decode", on="h100-sxm", N="4k", batch=batch)
        assert (int(row["batch"]), int(row["cache_bytes"])) == (batch, alone.cache.bytes)
        assert int(row["needed_bytes"]) == alone.on.memory.needed
        seconds = alone.on.seconds if alone.on.memory.fits else ""
        assert row["least_seconds"] == str(seconds)
    assert [row["fits"] for row in rows] == ["True", "True", "False"]


def test_the_memory_of_a_line_is_that_which_decides_whether_it_fits():
    blocks = {"mode": "decode", "on": "h100-sxm", "N": 4001, "cache_blocks": 16}
    for row in csv_of(*DECODE[:-3], "--N", "4001", "--cache-blocks", "16", "--batch", "1,8"):
        memory = xfcost.analyze("llama3-8b", **blocks, batch=int(row["batch"])).on.memory
        # 4,001 tokens take 251 blocks of 16, 4,016 tokens; 131,072 bytes each (32 layers × 2 × 8 heads × 128 × 2 B)
        assert int(row["needed_bytes"]) == memory.needed + int(row["batch"]) * 15 * 131_072


def test_the_header_names_all_batches_and_a_run_that_does_not_fit_has_no_rate():
    text = stdout_of(*DECODE, "1,8,512", COLUMNS="120")
    assert "batch 1, 8, 512   bfloat16" in text
    last = next(line for line in text.splitlines() if line.lstrip().startswith("512 "))
    assert last.split()[-1] == "–"
    assert "memory: weights" not in text  # which are of one batch


def test_json_has_the_ledgers_and_a_forward_its_counts():
    found = json.loads(stdout_of("analyze", "vit", "--batch", "2,1", "--no-trace", "--json"))
    assert [one["batch"] for one in found["batches"]] == [2, 1]
    assert "MACs" in stdout_of("analyze", "vit", "--batch", "1,2").splitlines()[3]


def test_what_is_no_list_of_batches_is_refused():
    assert "--batch 1,x: expected up to 100 whole numbers" in error_of("analyze", "vit", "--batch", "1,x")
    assert "without --by, --sort, --top and --filter" in error_of("analyze", "vit", "--batch", "1,2", "--by", "stage")


def test_a_line_is_the_run_of_its_size():
    rows = csv_of("analyze", "swin-t", "--size", "224,512,384")
    alone = [xfcost.analyze("swin-t", size=size, trace=False) for size in (224, 512, 384)]
    assert [(row["size"], row["N"]) for row in rows] == [("224", "3136"), ("512", "16384"), ("384", "9216")]
    assert [int(row["macs"]) for row in rows] == [one.total("macs") for one in alone]
    assert "image 224, 512, 384   batch 1" in stdout_of("analyze", "swin-t", "--size", "224,512,384")


def test_several_n_are_a_table_and_two_of_two_streams_are_theirs():
    found = json.loads(stdout_of("analyze", "gpt2", "--N", "256,512,1024", "--json"))
    assert [one["tokens"] for one in found["sizes"]] == [256, 512, 1024]
    assert "tokens 256, 512, 1,024   batch 1" in stdout_of("analyze", "gpt2", "--N", "256,512,1024")
    assert "encoder 256 + decoder 512" in stdout_of("analyze", "t5-base", "--N", "256,512", "--no-trace")
    found = json.loads(stdout_of("analyze", "gpt2", "--N", "256,512", "--json"))
    assert [one["tokens"] for one in found["sizes"]] == [256, 512]
    assert "one stream of tokens" in error_of("diff", "gpt2", "gpt1", "--N", "256,512")
    # what may be a number with a separator is named
    assert (
        "two runs, N = 16 and N = 384; one of 16384 tokens: --N 16384" in xf("analyze", "gpt2", "--N", "16,384").stderr
    )
    assert json.loads(stdout_of("analyze", "vit", "--N", "1,000,000", "--no-trace", "--json"))["tokens"] == 1_000_000


def test_a_table_has_one_list():
    assert "a table has one of these" in error_of("analyze", "vit", "--N", "49,196,784", "--batch", "1,2")


def test_a_module_has_a_line_for_each_size_of_its_images(tmp_path):
    net = "from torch import nn\n\ndef net():\n    return nn.Conv2d(3, 8, 3, padding=1)\n"
    (tmp_path / "net.py").write_text(net, encoding="utf-8")
    words = ("analyze", "net.py:net", "--input", "1x3xHxW", "--size", "32,48,64")
    rows = csv_of(*words, cwd=tmp_path)
    assert [int(row["macs"]) for row in rows] == [side * side * 3 * 8 * 9 for side in (32, 48, 64)]
    assert "~ N^" not in stdout_of(*words, cwd=tmp_path)


def test_several_systems_have_a_line_for_each_of_several_values():
    rows = csv_of("compare", "vit", "swin", "--size", "224,384,512", "--format", "csv")
    assert [(row["system"], row["size"], row["N"]) for row in rows[:2]] == [
        ("ViT-S/8", "224", "784"),
        ("ViT-S/8", "384", "2304"),
    ]
    own = [
        json.loads(stdout_of("analyze", "swin", "--size", size, "--no-trace", "--json"))["macs"]
        for size in ("224", "384", "512")
    ]
    assert [int(row["macs"]) for row in rows if row["system"] == "Swin-T"] == own
    text = stdout_of("compare", "vit", "swin", "--N", "784,3136")
    assert [line.split()[:2] for line in text.splitlines() if "G  " in line] == [
        [n, system] for n in ("784", "3,136") for system in ("ViT-S/8", "Swin-T")
    ]
    assert "ViT-S/8 sees 224×224, Swin-T 112×112" in text
    # (157.534126080 / 22.405742592) is 4^1.407; attention is N + 1 tokens wide: (3137 / 785)² is 4^1.9991
    assert "ViT-S/8: MACs ~ N^1.41, FLOPs ~ N^1.41, attention at once ~ N^2.00 (N = 784 to 3,136)" in text
