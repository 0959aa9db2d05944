"""Files of hyperparameters, as people write them without having read a page, against presets and arithmetic."""

from pathlib import Path

import pytest
import yaml

import xfcost
from helpers import error_of, stdout_of
from xfcost.ledger.errors import SpecError
from xfcost.spec.load import load

FILES = yaml.safe_load((Path(__file__).parent / "data" / "hyperparameters.yaml").read_text(encoding="utf-8"))


@pytest.fixture
def own(tmp_path):
    def written(text):
        (tmp_path / "own.yaml").write_text(text)
        return str(tmp_path / "own.yaml")

    return written


@pytest.mark.parametrize("case", FILES["same"].values(), ids=FILES["same"])
def test_a_file_costs_what_the_preset_costs(case, own):
    ours, known = (xfcost.analyze(one, trace=False, mixing=False) for one in (own(case["text"]), case["preset"]))
    assert (ours.params, ours.macs) == (known.params, known.macs)
    assert ours.flops == pytest.approx(known.flops, rel=1e-3)  # GELU's formula may differ


# d = 512, 6 layers: of each 4·512² + 2·512·2048 weights, 4·512 + 2048 + 512 biases, two norms of 2·512
LAYER = 4 * 512**2 + 2 * 512 * 2048 + 4608 + 2048
# tables of 32,000·512 and 512·512, the last norm of 2·512
GPT = 6 * LAYER + 32_000 * 512 + 512 * 512 + 1024
SMALL = "d_model: 512\nn_layers: 6\nn_heads: 8\nd_ff: 2048\nseq_len: 512"
MOE = """
model: {name: m, type: decoder, hidden_size: 1024, num_layers: 2, vocab_size: 1000, tie_embeddings: true}
attention: {type: gqa, num_heads: 16, num_kv_heads: 4, rope: true}
ffn: {type: moe, num_experts: 8, top_k: 2, hidden_size: 2816, activation: swiglu}
norm: {type: rms}
"""
LIST = "d_model: 512\nseq_len: 128\nlayers:\n  - layernorm\n  - attention: {heads: 8}\n  - mlp: {hidden: 2048}"


@pytest.mark.parametrize(
    ("text", "params"),
    [
        (SMALL + "\nvocab: 32k", GPT),
        ("dModel: 512\nnum layers: 6\nn-heads: 8\nD_FF: 2048\nvocabSize: 32000\nmaxSeqLen: 512", GPT),
        (SMALL + "\nvocab: 32000\ntie_embeddings: false", GPT + 32_000 * 512),
        (SMALL + "\nvocab: 32000\nbias: no", GPT - 6 * 4608),
        (SMALL, 6 * LAYER),  # blocks alone
        (LIST, LAYER),
        # the symbols of Vaswani et al. 2017: a layer of the decoder has four more maps of 512² and a norm
        (
            "N: 6\nd_model: 512\nd_ff: 2048\nh: 8\nd_k: 64\nd_v: 64\nP_drop: 0.1\nvocab: 37000",
            37_000 * 512 + 6 * (2 * LAYER + 4 * 512 * 513 + 1024),
        ),
        # queries and output 2·1024², keys and values 2·1024·256, 8 SwiGLUs of 3·1024·2816, a router 8·1024, two norms
        (MOE, 1000 * 1024 + 2 * (2 * 1024**2 + 512 * 1024 + 24 * 1024 * 2816 + 8 * 1024 + 2 * 1024) + 1024),
    ],
    ids=["short", "spellings", "untied", "no biases", "blocks", "a list", "symbols", "sections"],
)
def test_a_file_is_counted(text, params, own):
    ledger = xfcost.analyze(own(text))
    assert ledger.params == params
    assert ledger.agreement.exact


@pytest.mark.parametrize("case", FILES["mixers"], ids=lambda case: case["text"].splitlines()[-1])
def test_mixers_are_read(case, own):
    stage = load(own(case["text"])).data["stages"][0]
    blocks = stage.get("pattern") or (stage["blocks"][0]["blocks"] if "blocks" in stage else [stage["block"]])
    assert [block[0]["kind"] for block in blocks] == case["kinds"]
    assert xfcost.analyze(own(case["text"]), N=64).agreement.exact


STAGES = """
input: {image_size: 224, channels: 3}
num_classes: 1000
stem: {type: conv, kernel_size: 4, stride: 4, out_channels: 64}
stages:
  - {dim: 64, depth: 2, mixer: {type: depthwise_conv, kernel_size: 7}, mlp_ratio: 4}
  - {dim: 256, depth: 6, downsample: 2, mixer: {type: attention, heads: 8}, mlp_ratio: 4}
"""


IN_WORDS = """
input: {image_size: 224, channels: 3}
num_classes: 1000
stem: {type: patch_embed, patch_size: 4, dim: 64}
stages:
  - dim: 64
    depth: 2
    blocks:
      - depthwise_conv: {kernel_size: 7}
      - mlp: {ratio: 4}
  - dim: 256
    depth: 6
    downsample: 2
    blocks:
      - attention: {num_heads: 8}
      - mlp: {ratio: 4}
"""


@pytest.mark.parametrize("text", [STAGES, IN_WORDS], ids=["mixers", "lists"])
def test_stages_say_their_mixers(text, own):
    ledger = xfcost.analyze(own(text))
    assert {"local", "global"} <= {row.mixing for row in ledger.rows}
    # patches 64·49 and a norm 128; 2 blocks of 64·50, 8·64² + 5·64 and two norms of 128; a convolution 256·257 and a
    # norm 512; 6 blocks of 12·256² + 9·256 and two norms of 512; a norm 512 and a classifier 257,000
    blocks = 2 * (64 * 50 + 8 * 64**2 + 5 * 64 + 256), 6 * (12 * 256**2 + 9 * 256 + 1024)
    assert ledger.params == 64 * 49 + 128 + sum(blocks) + 256 * 257 + 512 + 512 + 257_000
    assert ledger.agreement.exact


def test_a_config_of_transformers_as_yaml_is_that_config(own):
    text = "model_type: llama\nhidden_size: 4096\nintermediate_size: 11008\nnum_hidden_layers: 32\nvocab_size: 32000\n"
    place = own(text + "num_attention_heads: 32\nmax_position_embeddings: 4096\n")
    assert xfcost.analyze(place, trace=False).params == 6_738_415_616
    assert "7b" not in stdout_of("analyze", place, "--no-trace")


def test_the_report_says_as_what_it_was_read(own, tmp_path):
    place = own("d_model: 128\nn_layers: 2\nvocab: 99\ndropout: 0.1\n")
    [said] = load(place).remarks
    assert said.startswith("hyperparameters, read as a GPT-2-like decoder; not read: dropout; not given, ")
    for words in ("LayerNorm", "1,024 tokens", "2 heads of 64", "4·d hidden units", "learned positions", "tied head"):
        assert words in said
    assert "not read: dropout" in said
    assert "hyperparameters, read as" in stdout_of("analyze", place, "--no-trace")
    shown = stdout_of("show", place)
    (tmp_path / "shown.yaml").write_text(shown)  # the spec that it stands for
    own_rows, rows = (xfcost.analyze(one, trace=False).rows for one in (place, tmp_path / "shown.yaml"))
    assert [row.macs for row in own_rows] == [row.macs for row in rows]
    assert not load(str(tmp_path / "shown.yaml")).remarks


@pytest.mark.parametrize("case", FILES["refused"], ids=lambda case: case["text"].splitlines()[-1])
def test_bad_words_are_refused_with_their_line(case, own):
    with pytest.raises(SpecError) as caught:
        xfcost.analyze(own(case["text"]), trace=False)
    assert case["says"] in str(caught.value)


def test_specs_are_specs(own):
    with pytest.raises(SpecError, match="the key 'input' is missing"):
        load(own("name: a\nheads: 4\nstages: [{dim: 64, depth: 2, block: [{kind: full, heads: 4}]}]"))
    assert "unknown key 'headz'" in error_of("analyze", own("name: a\nheadz: 4\nwidth: 9"))


LAYERS = """
d_model: 64
seq_len: 128
layers:
  - {type: embedding, vocab_size: 1000}
  - {type: conv, kernel_size: 7}
  - conv1d: {kernel_size: 3}
  - pool
  - attention: {heads: 4, window: 16}
  - {type: mlp, hidden: 96}
  - dropout
  - lm_head
"""


def test_no_layer_of_a_list_is_left_out(own):
    data = load(own(LAYERS)).data
    [block] = [stage["block"] for stage in data["stages"]]
    assert [part["kind"] for part in block] == ["conv", "conv", "average_pool", "sliding", "mlp"]
    assert [part["size"] for part in block[:2]] == [7, 3]
    assert data["input"] == {"kind": "tokens", "vocabulary": 1000, "length": 128}
    assert data["head"]["kind"] == "language_model"
    ledger = xfcost.analyze(own(LAYERS))
    # tables 1128·64, convolutions 7·64² and 3·64² with biases, 4·64·65 and 2·64·96 + 160 with biases, six norms of 128
    assert ledger.params == 1128 * 64 + 10 * 64**2 + 128 + 4 * 64 * 65 + 2 * 64 * 96 + 160 + 6 * 128
    assert ledger.agreement.exact


def test_what_the_model_has_no_place_for_is_listed(own):
    [said] = load(own("dim: 64\ndepth: 2\nheads: 4\nvocab: 99\nconv_kernel: 7\npatch_size: 4\nlr: 0.1\n")).remarks
    assert "read as a ViT" in said  # by its patches
    assert "not read: lr, vocab, conv_kernel" in said


REPEATED = """
dim: 64
heads: 4
mlp_ratio: 2
layers:
  - {type: local_attention, window: 49, repeat: 9}
  - {type: attention, repeat: 3}
"""


def test_layers_that_repeat_are_whole_blocks(own):
    [stage] = load(own(REPEATED)).data["stages"]
    assert [(group["repeat"], [part["kind"] for part in group["blocks"][0]]) for group in stage["blocks"]] == [
        (9, ["sliding", "mlp"]), (3, ["full", "mlp"]),
    ]  # fmt: skip
    assert stage["blocks"][0]["blocks"][0][0]["window"] == 48  # 24 on each side, and the token itself
    ledger = xfcost.analyze(own(REPEATED), N=96)
    # 12 blocks: 4·64·65 of attention, 4·64² + 3·64 of the network, two norms of 128
    assert ledger.params == 12 * (4 * 64 * 65 + 4 * 64**2 + 192 + 256)
    # three layers read all pairs: 2·96²·64 each
    assert ledger.total("macs", lambda row: row.mixing == "global") == 3 * 2 * 96**2 * 64
    assert ledger.agreement.exact


def test_a_list_of_convolutions_has_no_networks(own):
    [stage] = load(own("d_model: 64\nlayers:\n- conv: {kernel_size: 3}\n- conv1d")).data["stages"]
    assert [part["kind"] for part in stage["block"]] == ["conv", "conv"]
