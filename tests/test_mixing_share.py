"""From which N on global mixing costs more than all else: by hand, and by counting on both sides."""

import json

import pytest

import xfcost
from helpers import stdout_of


def share(name: str, tokens: int, *settings: str) -> float:
    ledger = xfcost.analyze(name, N=tokens, settings=settings, trace=False)
    return ledger.total("macs", lambda row: row.mixing == "global") / ledger.total("macs")


def test_it_is_half_of_all_at_six_widths_and_the_vocabulary_adds_to_that():
    # A block has 12·d² MACs per token and 2·N·d of attention: equal at N = 6·d, which is not yet more.
    bert = xfcost.analyze("bert-base", trace=False)
    assert bert.mixing_outweighs == 6 * 768 + 1
    assert bert.metadata.grid_tokens == 512
    # The pooler's d² MACs, of one token, come on top.
    assert 0.499999 < share("bert-base", 6 * 768, "embed.1.length=8192") < 0.5
    # GPT-2 also scores 50,257 words: 2·N·d·12 = 12·12·d² + 50,257·d at N = 6·768 + 50,257 / 24 = 6,702.04.
    gpt2 = xfcost.analyze("gpt2", N=100, trace=False)
    assert gpt2.mixing_outweighs == 6703
    assert json.loads(gpt2.to_json())["mixing_outweighs_from"] == 6703
    assert "global mixing costs more MACs than all else from N = 6,703 on" in stdout_of("analyze", "gpt2", "--no-trace")


def test_feed_forward_layers_of_4_widths_cost_less_from_four_widths_on():
    # A block has 2·4·d² MACs per token in its feed-forward layer: equal to 2·N·d at N = 4·d.
    gpt2 = xfcost.analyze("gpt2", N=100, trace=False)
    assert gpt2.mixing_outweighs_feed_forward == 4 * 768 + 1
    assert json.loads(gpt2.to_json())["mixing_outweighs_feed_forward_from"] == 4 * 768 + 1
    # ViT-S/16, and its class token: 2·(N + 1)²·d against 8·(N + 1)·d², which are equal at N = 4·384 - 1
    assert xfcost.analyze("vit-s16", trace=False).mixing_outweighs_feed_forward == 40**2  # 39² = 1,521 are too few
    # Mixtral's tokens go through two of 8 experts of three matrices, which a router chooses: 2·N·d against
    # 2·3·14,336·d + 8·d
    assert xfcost.analyze("mixtral-8x7b", trace=False).mixing_outweighs_feed_forward == 3 * 14_336 + 8 // 2 + 1
    # the components of a published model have no kinds
    assert xfcost.analyze("qwen3-0.6b").mixing_outweighs_feed_forward is None


@pytest.mark.parametrize("size", ["224", "224x448"])
def test_of_images_it_is_the_least_square_grid(size):
    found = xfcost.analyze("vit-s16", size=size, trace=False).mixing_outweighs
    assert "from N = 2,401 on (49×49, image 784×784)" in stdout_of("analyze", "vit-s16", "--no-trace")
    assert found == 49**2  # 2,304 = 48² tokens and a class token fall short of it: the head and the patches come on top
    assert share("vit-s16", 48**2) < 0.5 < share("vit-s16", 49**2)


def test_of_a_published_model_it_is_that_of_its_stored_counts():
    # 28 blocks, 16 heads of 128: 2·28·2,048·N = 595,984,384 MACs per token at N = 5,196.4
    assert xfcost.analyze("qwen3-0.6b").mixing_outweighs == 5197


@pytest.mark.parametrize("name", ["swin", "linformer", "performer", "resnet-50", "mamba-130m", "t5-base"])
def test_without_such_a_form_there_is_none(name):
    assert xfcost.analyze(name, trace=False).mixing_outweighs is None


@pytest.mark.parametrize("options", [{"mode": "prefill"}, {"on": "h100-sxm"}, {"mode": "train"}])
def test_it_is_of_a_forward_alone(options):
    ledger = xfcost.analyze("gpt2", trace=False, **options)
    assert ledger.mixing_outweighs is None
    assert "mixing_outweighs_from" not in json.loads(ledger.to_json())
