"""Every option of `compare` changes what it says: beside each other, below each other, and as data."""

import itertools
import json

import pytest

import xfcost
from helpers import error_of, screen_of, xf
from strategies import as_yaml, stack
from xfcost.api.options import TIMING_OPTIONS
from xfcost.cli import command
from xfcost.comparing.crossovers import MOST_PAIRED
from xfcost.views.compare import document

FULL = {"kind": "full", "heads": 2, "causal": True}
MLP = {"kind": "mlp", "ratio": 2}
# What is not about the numbers, or is held elsewhere.
OF_MODULES = {"inputs", "build", "strict", "mixing", "mixing_limit"}  # tests/test_any_model_compared.py
OF_TIMING = {"device", *TIMING_OPTIONS}  # tests/test_timing_reports.py
OF_FILES = {"from_", "machine"}  # tests/test_from_file.py
NOT_COUNTED = {
    "fetch",
    "specs", "format_", "columns", "output", "force", "verbose", *OF_MODULES, *OF_TIMING, *OF_FILES,
    "predict", "expert_parallel", "host_memory",
    "match",
    "sort",  # tests/test_comparison.py
}  # fmt: skip
PLANNED = {"mode": "train", "on": "a100-sxm-80x8", "tokens": "1e6", "dtype": "bf16"}

# name -> (what is given to all, one value, another)
OPTIONS = {
    "N": ({}, 16, 32),
    "batch": ({}, 1, 2),
    "dtype": ({}, "float32", "bf16"),
    "attention": ({}, "eager", "fused"),
    "memory_level": ({}, "1KiB", "2KiB"),
    "mode": ({}, "forward", "decode"),
    "new_tokens": ({"mode": "generate"}, 2, 3),
    "logits": ({"mode": "prefill"}, "last", "all"),
    "optimizer": ({"mode": "train"}, "adamw", "sgd"),
    "tokens": ({"mode": "train"}, "1e6", "2e6"),
    "zero": (PLANNED, 0, 1),
    "checkpoint": (PLANNED, "none", "full"),
    "tensor_parallel": (PLANNED, 1, 2),
    "sequence_parallel": (PLANNED | {"tensor_parallel": 2}, False, True),
    "pipeline": (PLANNED | {"settings": ("stages.0.depth=2",)}, 1, 2),
    "global_batch": (PLANNED, 64, 2**20),
    "gradients": (PLANNED, "bfloat16", "float32"),
    "on": ({}, "t4", "a100-sxm-80"),
    "weights": ({"mode": "decode", "on": "l4"}, "int4", "fp8"),
    "cache": ({"mode": "decode", "on": "l4"}, None, "fp8"),
    "memory_share": ({"mode": "decode", "on": "l4"}, None, "50%"),
    "offload": ({"mode": "decode", "on": "l4"}, None, 1),
    "host": ({"mode": "decode", "on": "l4", "offload": 1}, "epyc-9654", "core-14900k"),
    "cache_blocks": ({"mode": "decode", "on": "l4"}, None, 256),
    "mbu": ({"on": "l4", "mode": "decode", "N": 4096, "mfu": 0.5}, 0.5, 0.25),
    "peak": ({"mode": "train", "tokens": "1e6", "mfu": 0.5}, "1G", "2G"),
    "mfu": ({"mode": "train", "tokens": "1e6", "peak": "1G"}, 0.5, 0.25),
    "sustained": ({"mode": "train", "tokens": "1e6"}, "1G", "2G"),
    "devices": ({"mode": "train", "tokens": "1e6", "sustained": "1G"}, 1, 2),
    "settings": ({}, (), ("stages.0.depth=2",)),
    "trace": ({}, False, True),
    "cached_prefix": ({"mode": "prefill"}, 2, 5),
    "flops": ({"mode": "train", "tokens": "1e6", "mfu": 0.5, "peak": "1G"}, "dense", "kept"),
    "lora": ({}, 1, 2),
    "lora_on": ({"lora": 2}, "q,v", "all"),
}


def written(folder, names, **more):
    """A spec for each name, one wider than the other."""
    paths = [folder / f"{number}.yaml" for number in range(1, len(names) + 1)]
    for number, (path, name) in enumerate(zip(paths, names, strict=True), 1):
        path.write_text(as_yaml(stack(FULL, MLP, dim=8 * number, name=name, **more)))
    return paths


@pytest.fixture
def specs(tmp_path):
    """Six texts."""
    return written(tmp_path, [f"Text {k}" for k in range(1, MOST_PAIRED + 3)], head={"kind": "language_model"})


@pytest.fixture
def images(tmp_path):
    """Six nets over pixels."""
    pixels = {"input": {"kind": "image", "size": 16}, "embed": [{"kind": "patch", "size": 4}]}
    head = {"kind": "classifier", "pool": "mean", "classes": 3}
    names = [f"Image {k}" for k in range(1, MOST_PAIRED + 3)]
    paths = written(tmp_path, names, **pixels, head=head)
    for path in paths:
        path.write_text(path.read_text().replace("causal: true", "causal: false"))
    return paths


def shown(comparison, width=300):
    """What `compare` prints on a screen of that width."""
    return "\n".join(screen_of(document(comparison), width))


@pytest.mark.parametrize(("option", "systems"), [*zip(OPTIONS, itertools.cycle((2, MOST_PAIRED + 2)), strict=False)])
def test_an_option_changes_the_table(option, systems, specs):
    given, one, other = OPTIONS[option]
    told = [
        shown(xfcost.compare(*specs[:systems], **{"trace": False} | given | {option: value})) for value in (one, other)
    ]
    assert told[0] != told[1]
    for text in told:  # and not only in the header
        assert text.split("\n\n")[1].strip()
    rows = [text.split("\n\n", 1)[1] for text in told]
    assert rows[0] != rows[1]


@pytest.mark.parametrize("systems", [2, MOST_PAIRED + 2])
def test_so_does_the_size_of_images(systems, images):
    small, large = (shown(xfcost.compare(*images[:systems], size=size)) for size in (16, 32))
    assert small.split("\n\n")[1] != large.split("\n\n")[1]


def test_ratios_stand_beside_the_figures_of_three_systems_with_long_names(tmp_path):
    names = [f"A transformer of many {stem}, variant 1" for stem in ("images", "characters", "phonemes")]
    paths = written(tmp_path, names)
    lines = shown(xfcost.compare(*paths), 100).splitlines()
    assert max(map(len, lines)) <= 100
    (params,) = [line for line in lines if line.startswith("parameters ")]
    assert params.count("×)") == 2


def test_every_option_is_held_here():
    names = {str(one.name) for one in command("compare").params}
    assert names == {*OPTIONS, "size"} | NOT_COUNTED


def test_a_column_that_says_nothing_is_not_missed(specs):
    narrow = shown(xfcost.compare(*specs), 60)
    left_out = narrow.split("\n\n")[1].replace("\n", " ").partition("Columns left out to fit: ")[2]
    assert "cache" not in left_out
    assert "days" not in left_out
    assert "memory N^" in left_out


def test_systems_are_compared_at_equal_parameters():
    done = xf("compare", "vit", "gpt2", "mamba", "--N", "784", "--match", "params", "--format", "json")
    systems = json.loads(done.stdout)["systems"]
    # GPT-2: 39.4 M of tables with 7.09 M a block: 1; Mamba: 38.6 M with 3.77 M a block: 1, both above 22.06 M
    assert [one["name"] for one in systems[1:]] == ["GPT-2 (124M) (stages.0.depth=1)", "Mamba-130M (stages.0.depth=1)"]
    assert "gpt2: stages.0.depth 1 instead of 12, for 46.47 M parameters: 110.7 % more than vit" in done.stderr
    done = xf("compare", "vit", "swin", "--size", "224", "--match", "params", "--format", "json")
    [vit, swin] = json.loads(done.stdout)["systems"]
    # a block of stage 3 has 12·384² weights, 13·384 biases and norms and 12·13² biases by position: 1,776,492 or so
    assert swin["params"] == 28_288_354 - 4 * (12 * 384**2 + 13 * 384 + 12 * 169)
    assert abs(swin["params"] - vit["params"]) <= (12 * 384**2 + 13 * 384 + 12 * 169) / 2
    assert "no stage with a `depth`" in error_of("compare", "vit", "resnet-50", "--match", "params")
    assert "expected params, macs or flops" in error_of("compare", "vit", "swin", "--match", "heads")
