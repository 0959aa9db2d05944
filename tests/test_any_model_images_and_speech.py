"""Decode steps of models that read images or speech, against real runs of the models on the CPU.

References run the model itself with real numbers, with images among its tokens where it takes them; nothing of them is
ours.
"""

from importlib.metadata import version

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import hugging_face
import xfcost
from hugging_face import real, step_of, stepped, write
from modules import counted_by_torch
from transformers_models import cache_bytes, cache_name, parameters, transformers
from xfcost.ledger.errors import UsageError
from xfcost.torch_models.running.on_meta import RepeatedShapes
from xfcost.torch_models.running.surroundings import known_numbers, with_numbers

B, N = 2, 80
TEXT = hugging_face.TEXT | {"num_hidden_layers": 2, "vocab_size": 40}
IMAGE = {
    "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 8,
    "patch_size": 4,
}  # fmt: skip
SECTIONS = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}  # of half a head
CLIP = {"model_type": "clip_vision_model", "projection_dim": 16, **IMAGE}
LLAMA = {"model_type": "llama", **TEXT}
QWEN2 = {"model_type": "qwen2", **TEXT}
GRID = {"depth": 2, "hidden_size": 16, "intermediate_size": 24, "num_heads": 2, "patch_size": 14, "out_hidden_size": 16}
PINPOINTS = [[8, 16], [16, 8], [16, 16]]
# Class -> its fields, of which each takes an image in a way of its own: crops, an axis of images, a grid, a table.
IMAGES = {
    "LlavaForConditionalGeneration": {"text_config": LLAMA, "vision_config": CLIP, "image_token_index": 5},
    "LlavaNextForConditionalGeneration": {
        "text_config": LLAMA, "vision_config": CLIP, "image_token_index": 5, "image_grid_pinpoints": PINPOINTS,
    },
    "Idefics3ForConditionalGeneration": {
        "text_config": LLAMA, "vision_config": IMAGE, "image_token_id": 5, "scale_factor": 2,
    },
    "InternVLForConditionalGeneration": {
        "text_config": QWEN2, "vision_config": {"model_type": "internvl_vision", **IMAGE, "image_size": [8, 8],
        "patch_size": [4, 4]}, "image_token_id": 5,
    },
    "Qwen2_5_VLForConditionalGeneration": {
        "text_config": TEXT | {"hidden_size": 32, "head_dim": 8, "rope_parameters": SECTIONS}, "image_token_id": 5,
        "vision_config": GRID | {"out_hidden_size": 32, "window_size": 56, "fullatt_block_indexes": [1]},
    },
    "Qwen3VLForConditionalGeneration": {
        "text_config": TEXT | {"head_dim": 8, "rope_parameters": SECTIONS}, "image_token_id": 5,
        "vision_config": GRID | {"deepstack_visual_indexes": [0], "num_position_embeddings": 16},
    },
    "MllamaForConditionalGeneration": {
        "text_config": TEXT | {"cross_attention_layers": [1], "rope_parameters": {"rope_type": "default"}},
        "vision_config": IMAGE | {"attention_heads": 2, "num_global_layers": 1, "intermediate_layers_indices": [0],
        "vision_output_dim": 32}, "image_token_index": 5,
    },
    "Lfm2VlForConditionalGeneration": {
        "text_config": TEXT | {"model_type": "lfm2", "layer_types": ["conv", "full_attention"],
        "block_auto_adjust_ff_dim": False}, "image_token_id": 5, "projector_hidden_size": 16, "downsample_factor": 2,
        "vision_config": {**IMAGE, "model_type": "siglip2_vision_model", "num_patches": 4},
    },
    "Llama4ForConditionalGeneration": {
        "text_config": TEXT | {"intermediate_size_mlp": 24, "num_local_experts": 4}, "image_token_id": 5,
        "image_token_index": 5, "vision_config": IMAGE | {"intermediate_size": 64, "projector_input_dim": 16,
        "projector_output_dim": 16, "vision_output_dim": 16},
    },
}  # fmt: skip


def rest_but(names, usual):
    """All names as parameters, of which one is of the quick tier."""
    return [name if name == usual else pytest.param(name, marks=pytest.mark.rest) for name in names]


def image_of(name):
    """An image of 8 by 8 pixels of each sample, or of 224 by 224 in a grid, as the processor of the class gives it."""
    torch.manual_seed(1)
    match name:
        case "LlavaNextForConditionalGeneration":
            # scaled to 8 by 16, two crops of it, and the whole
            return {"pixel_values": torch.rand(B, 3, 3, 8, 8), "image_sizes": torch.tensor([[8, 8]] * B)}
        case "Idefics3ForConditionalGeneration":
            return {"pixel_values": torch.rand(B, 1, 3, 8, 8)}
        case "Qwen2_5_VLForConditionalGeneration" | "Qwen3VLForConditionalGeneration":
            # 16 by 16 patches of 14 by 14 pixels, of 3 channels in 2 equal frames
            grid = torch.tensor([[1, 16, 16]] * B)
            return {"pixel_values": torch.rand(B * 16 * 16, 3 * 2 * 14 * 14), "image_grid_thw": grid}
        case "MllamaForConditionalGeneration":  # four tiles
            table = {"aspect_ratio_ids": torch.ones(B, 1).long(), "aspect_ratio_mask": torch.ones(B, 1, 4).long()}
            return {"pixel_values": torch.rand(B, 1, 4, 3, 8, 8), **table}
        case "Lfm2VlForConditionalGeneration":  # four patches of 4 by 4 pixels
            shapes = {"spatial_shapes": torch.tensor([[2, 2]] * B), "pixel_attention_mask": torch.ones(B, 4).long()}
            return {"pixel_values": torch.rand(B, 4, 3 * 4 * 4), **shapes}
    return {"pixel_values": torch.rand(B, 3, 8, 8)}


if version("transformers").startswith("5.24."):
    del IMAGES["Llama4ForConditionalGeneration"]  # reads `image_outputs`, which its language model does not return


# Tokens of the image, by the class's own description.
PLACES = {
    "LlavaForConditionalGeneration": 4,  # 2 by 2 patches
    # 2 by 2 of the whole; of the crops, without padding, 2 rows of 2 and the end of each
    "LlavaNextForConditionalGeneration": 4 + 2 * 3,
    "Idefics3ForConditionalGeneration": 1,  # 2 by 2 patches, 2 by 2 joined
    "InternVLForConditionalGeneration": 1,
    "Qwen2_5_VLForConditionalGeneration": 64,  # 16 by 16 patches, 2 by 2 joined
    "Qwen3VLForConditionalGeneration": 64,
    "MllamaForConditionalGeneration": 0,  # read by cross-attention alone
    "Lfm2VlForConditionalGeneration": 1,
    "Llama4ForConditionalGeneration": 1,
}


def counted(folder, name, fields, **options):
    kind = getattr(transformers, name).config_class.model_type
    path = write(folder, {**fields, "model_type": kind, "architectures": [name]})
    return step_of(path, **{"N": N} | options)


def prompt_of(name, tokens):
    """So many tokens, the first of which are the image's."""
    ids = torch.randint(6, 30, (B, tokens), generator=torch.Generator().manual_seed(0))
    ids[:, : PLACES[name]] = 5
    prompt = {"input_ids": ids, **image_of(name)}
    # the kind of each token, 1 of an image
    return prompt | ({"mm_token_type_ids": (ids == 5).long()} if "image_grid_thw" in prompt else {})


@pytest.mark.parametrize("name", rest_but(IMAGES, "LlavaNextForConditionalGeneration"))
def test_a_step_behind_an_image_is_that_of_the_real_model(name, tmp_path):
    model, ledger = real(name, IMAGES[name]), counted(tmp_path, name, IMAGES[name])
    macs, cache = stepped(model, prompt_of(name, N - 1))
    assert ledger.cache.bytes == cache
    assert ledger.total("macs") == macs
    assert ledger.total("params") == parameters(model)


@pytest.mark.parametrize("name", rest_but(IMAGES, "Qwen3VLForConditionalGeneration"))
def test_a_prompt_with_an_image_is_that_of_the_real_model(name, tmp_path):
    ledger = counted(tmp_path, name, IMAGES[name], mode="prefill")
    with sdpa_kernel(SDPBackend.MATH):
        model, prompt = real(name, IMAGES[name]), prompt_of(name, N)
        found, macs = counted_by_torch(lambda: model(**prompt, use_cache=True, logits_to_keep=1))
    assert ledger.module.tensors == ("real" if name.startswith("Idefics") else "meta")  # which looks at the pixels
    assert ledger.cache.bytes == cache_bytes(found[cache_name()])
    assert ledger.total("macs") == macs


def test_the_tokens_of_an_image_are_among_n(tmp_path):
    name = "LlavaForConditionalGeneration"
    prefill, step = (counted(tmp_path, name, IMAGES[name], mode=mode) for mode in ("prefill", "decode"))
    seen = [any("vision_tower" in row.path for row in one.rows if row.macs) for one in (prefill, step)]
    assert seen == [True, False]
    with pytest.raises(UsageError, match="--N 4: 4 of the tokens are an image's; expected --N from 5"):
        counted(tmp_path, name, IMAGES[name], mode="prefill", N=4)
    assert counted(tmp_path, name, IMAGES[name], mode="forward", N=None).metadata.grid_tokens == 512 + 4


def places_in(grid):
    """As classes of images use the numbers of a grid: as sizes, bounds, masks and repeats."""
    rows, columns = grid[0, 1], grid[0, 2]
    numbers = torch.arange(int(rows * columns), device=grid.device).view(rows, columns)
    numbers[0, :2] = 7
    numbers += 1
    chosen = numbers[numbers > 4]
    ends = grid.prod(-1).repeat_interleave(grid[:, 0]).cumsum(0)
    features = torch.empty(int(ends[-1]), 3, device=grid.device)
    parts = features[: ends[0]].split([rows, ends[0] - rows])
    masked = features[(torch.arange(len(features), device=grid.device) % 2 == 0)]
    return chosen.tolist(), ends.tolist(), torch.Size([*parts[1].shape, *masked.shape])


def test_numbers_that_are_known_on_meta_are_those_of_the_cpu():
    grid = torch.tensor([[1, 2, 4], [2, 2, 2]])
    with known_numbers([kept := with_numbers(grid, "meta")]):
        assert places_in(kept) == places_in(grid)
        numbers = torch.zeros(4, dtype=torch.int64, device="meta")
        numbers[0] = torch.empty((), dtype=torch.int64, device="meta")  # of which nothing is known
        with pytest.raises(NotImplementedError, match="meta"):
            numbers.tolist()


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 3, 1, 2), (0, 1, 3, 2), (0, 3, 2, 1)])
@pytest.mark.parametrize("shape", [(2, 3, 5, 6), (2, 1, 5, 1), (1, 6, 1, 3)])
def test_an_interpolation_on_meta_lies_in_memory_as_torch_lays_it(shape, order, mode):
    image = torch.empty(shape, device="meta", dtype=torch.float16).permute(order)
    plain = torch.nn.functional.interpolate(image, (9, 11), mode=mode)
    with RepeatedShapes():
        made = torch.nn.functional.interpolate(image, (9, 11), mode=mode)
    assert (made.shape, made.stride(), made.dtype) == (plain.shape, plain.stride(), plain.dtype)


def test_a_run_whose_numbers_are_known_on_meta_has_no_reason_to_be_real():
    class Reads(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * int(torch.arange(3, device=x.device)[2])

    found = xfcost.analyze(Reads(), example_inputs=torch.zeros(1, 4, 8), trace=False).module
    assert (found.tensors, found.reason) == ("meta", None)


HALVES = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
HALVES |= {"d_model": 16, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "vocab_size": 40, "decoder_start_token_id": 2}
HALVES |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
MOONSHINE = {
    "hidden_size": 16, "intermediate_size": 24, "encoder_num_hidden_layers": 2, "decoder_num_hidden_layers": 2,
    "encoder_num_attention_heads": 2, "decoder_num_attention_heads": 2, "vocab_size": 40,
}  # fmt: skip
SEAMLESS = {
    "hidden_size": 16, "vocab_size": 40, "decoder_layers": 2, "decoder_attention_heads": 2, "decoder_ffn_dim": 24,
    "speech_encoder_layers": 2, "speech_encoder_attention_heads": 2, "speech_encoder_intermediate_size": 24,
    "feature_projection_input_dim": 12, "decoder_start_token_id": 2, "pad_token_id": 0, "bos_token_id": 2,
    "eos_token_id": 3, "max_position_embeddings": 64,
}  # fmt: skip
FRAMES, SAMPLES = 1000, 16_000
# Class -> its fields, and the shape of its speech: frames of frequencies, or a second's samples.
SPEECH = {
    "WhisperForConditionalGeneration": (
        HALVES | {"num_mel_bins": 8, "max_source_positions": 20}, "input_features", (8, 40),
    ),
    "Speech2TextForConditionalGeneration": (
        HALVES | {"input_feat_per_channel": 8, "max_source_positions": 20, "conv_channels": 16}, "input_features",
        (40, 8),
    ),
    "MoonshineForConditionalGeneration": (MOONSHINE, "input_values", (SAMPLES,)),
    "SeamlessM4Tv2ForSpeechToText": (SEAMLESS, "input_features", (FRAMES, 12)),
}  # fmt: skip


@pytest.mark.parametrize("name", rest_but(SPEECH, "MoonshineForConditionalGeneration"))
def test_a_step_behind_speech_is_that_of_the_real_model(name, tmp_path):
    fields, main, shape = SPEECH[name]
    model, ledger = real(name, fields), counted(tmp_path, name, fields)
    ids = torch.randint(6, 30, (B, N - 1), generator=torch.Generator().manual_seed(0))
    macs, cache = stepped(model, {main: torch.rand(B, *shape), "decoder_input_ids": ids})
    assert ledger.cache.bytes == cache
    assert ledger.total("macs") == macs
    assert ledger.total("params") == parameters(model)


T5 = {"model_type": "t5", "num_layers": 1, "d_model": 16, "d_ff": 16, "num_heads": 2, "d_kv": 8}
CODES = {"num_hidden_layers": 1, "hidden_size": 16, "ffn_dim": 16, "num_attention_heads": 2, "vocab_size": 32}
MUSIC = {"model_type": "musicgen_decoder", **CODES, "pad_token_id": 0, "bos_token_id": 0}
WAVES = {"model_type": "encodec", "num_filters": 4, "hidden_size": 8, "codebook_size": 8, "upsampling_ratios": [2, 2]}
SPEECH_T5 = {
    "model_type": "speecht5", "hidden_size": 16, "num_mel_bins": 6,
    "conv_dim": [4], "conv_stride": [5], "conv_kernel": [8],
    "num_feat_extract_layers": 1, "num_conv_pos_embedding_groups": 2, "speech_decoder_prenet_units": 8,
    **{f"{part}_{name}": 2 for part in ("encoder", "decoder") for name in ("layers", "attention_heads", "ffn_dim")},
}  # fmt: skip
# Class -> its fields, and its inputs for 16 tokens.
SOUNDS = {
    "MusicgenForCausalLM": (MUSIC, {"input_ids": (4, 16)}),
    "MusicgenForConditionalGeneration": (
        {"model_type": "musicgen", "text_encoder": T5, "audio_encoder": WAVES, "decoder": MUSIC},
        {"input_ids": (1, 16), "decoder_input_ids": (4, 16)},
    ),
    "SpeechT5ForTextToSpeech": (SPEECH_T5, {"input_ids": (1, 16), "decoder_input_values": (1, 16, 6)}),
    "SpeechT5ForSpeechToText": (SPEECH_T5, {"input_values": (1, 16_000), "decoder_input_ids": (1, 16)}),
    "SpeechT5Model": (SPEECH_T5, {"input_values": (1, 16, 16), "decoder_input_values": (1, 16, 16)}),
    "EncodecModel": (WAVES | {"audio_channels": 2}, {"input_values": (1, 2, 16)}),
}


@pytest.mark.parametrize("name", SOUNDS)
def test_models_of_sound_get_inputs_on_which_they_run(name, tmp_path):
    fields, shapes = SOUNDS[name]
    path = write(tmp_path, fields | {"architectures": [name]})
    ledger = xfcost.analyze(str(path), N=16, mixing=False, closed_form=False, trace=False)
    config = transformers.AutoConfig.for_model(**fields)
    model = getattr(transformers, name)(config).eval()
    inputs = {
        one: torch.zeros(shape, dtype=torch.int64) if one.endswith("ids") else torch.rand(shape)
        for one, shape in shapes.items()
    }
    with sdpa_kernel(SDPBackend.MATH):
        _, macs = counted_by_torch(lambda: model(**inputs))
    unseen = sum(row.times * row.macs for row in ledger.rows if "lstm" in row.path)  # by torch's counter
    assert ledger.total("macs") - unseen == macs


SEGFORMER = {
    "depths": [1, 1, 1, 1], "hidden_sizes": [8, 8, 8, 8], "decoder_hidden_size": 8, "num_attention_heads": [1, 1, 1, 1],
    "num_labels": 3,
}  # fmt: skip


def test_the_size_is_of_the_image_that_a_model_of_transformers_reads(tmp_path):
    config = write(
        tmp_path, SEGFORMER | {"model_type": "segformer", "architectures": ["SegformerForSemanticSegmentation"]}
    )
    ledger = xfcost.analyze(str(config), size="64x96", batch=2, trace=False, mixing=False)
    assert ledger.metadata.inputs == "pixel_values: 2×3×64×96 float32"
    model = transformers.SegformerForSemanticSegmentation(transformers.SegformerConfig(**SEGFORMER)).eval()
    with sdpa_kernel(SDPBackend.MATH):
        _, macs = counted_by_torch(lambda: model(torch.rand(2, 3, 64, 96)))
    assert ledger.total("macs") == macs
    with pytest.raises(UsageError, match="--size"):
        xfcost.analyze(str(config), N=64, trace=False, mixing=False)


def written(folder, kind, name):
    return write(folder, IMAGES[name] | {"model_type": kind, "architectures": [name]})


def test_the_size_is_of_the_image_among_the_tokens_of_a_text(tmp_path):
    config = written(tmp_path, "llava", "LlavaForConditionalGeneration")
    with pytest.raises(UsageError, match="Input image size"):  # its positions are those of 8×8
        xfcost.analyze(str(config), size=16, trace=False, mixing=False)
    config = written(tmp_path, "qwen3_vl", "Qwen3VLForConditionalGeneration")
    ledger = xfcost.analyze(str(config), size=56, trace=False, mixing=False)
    # (56 / 14)² patches of two frames
    assert "pixel_values: 16×1176 float32" in ledger.metadata.inputs
