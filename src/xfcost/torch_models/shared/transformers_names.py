"""Every name that this project reads of transformers: of its package, models, configs, caches and outputs.

transformers renames them from release to release. `NAMES` says where each can be seen, which of the tested releases
have it, and what xfcost does without it. A cache is found by its type, and the names below are for those without one.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from xfcost.ledger.tested import TESTED

OLDEST, NEWEST = TESTED["transformers"]


class Name(NamedTuple):
    """A name of transformers.

    Attributes:
        seen_in: a class that has it: a parameter of its forward, a field of a config, an attribute.
        without: what xfcost does where no name for the same is there.
        since: the oldest of the tested releases that has it.
        until: the newest one.
    """

    seen_in: str
    without: str
    since: str = OLDEST
    until: str = NEWEST


_REFUSED: Final = "a config.json that no spec is made of is refused"
_NO_CACHE: Final = "a cache that is no `Cache` is not found: prefill, decode and generate are refused"
_INPUT: Final = "the inputs of such a model have to be given by --input"
_IMAGE: Final = "a prompt with an image has to be given by --input"
_ENCODED: Final = "a decode step runs the encoder again, or does not run"
_LENGTH: Final = "N where none is given is 512"
_SHARING: Final = "the cache of each of several devices is not known"
_GROUPS: Final = "nothing: masked attention counts all pairs, and a note says so"
_DECODES: Final = "the tokens of a decoder have to be given by --input"
_LABELS: Final = "in training, the gradient is of everything that a model returns"

NAMES: Final[dict[str, Name]] = {
    # of the package
    "AutoConfig": Name("AutoConfig", _REFUSED),
    "for_model": Name("AutoConfig", _REFUSED),
    "from_config": Name("AutoModel", _REFUSED),
    "AutoModel": Name("AutoModel", _REFUSED),
    "AutoModelForCausalLM": Name("AutoModelForCausalLM", _REFUSED),
    "AutoModelForImageTextToText": Name("AutoModelForImageTextToText", _REFUSED),
    "AutoModelForSeq2SeqLM": Name("AutoModelForSeq2SeqLM", _REFUSED),
    "AutoModelForSpeechSeq2Seq": Name("AutoModelForSpeechSeq2Seq", _REFUSED),
    "MODEL_FOR_CAUSAL_LM_MAPPING": Name("MODEL_FOR_CAUSAL_LM_MAPPING", _REFUSED),
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING": Name("MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING", _REFUSED),
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING": Name("MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING", _REFUSED),
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING": Name("MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING", _REFUSED),
    # parameters of a forward
    "input_ids": Name("Qwen3ForCausalLM", _INPUT),
    "decoder_input_ids": Name("T5ForConditionalGeneration", _DECODES),
    "use_cache": Name("Qwen3ForCausalLM", _NO_CACHE),
    "cache": Name("Qwen3ForCausalLM", _NO_CACHE, since="5.24.0"),
    "past_key_values": Name("Qwen3ForCausalLM", _NO_CACHE, until="5.23.0"),
    "cache_params": Name("MambaForCausalLM", _NO_CACHE, until="5.23.0"),
    "mems": Name("XLNetLMHeadModel", _NO_CACHE),
    "state": Name("RwkvForCausalLM", _NO_CACHE),
    "past_buckets_states": Name("ReformerModelWithLMHead", _NO_CACHE),
    "logits_to_keep": Name("Qwen3ForCausalLM", "logits of a prompt are of every token"),
    "encoder_outputs": Name("T5ForConditionalGeneration", _ENCODED),
    "mm_token_type_ids": Name("Qwen2VLForConditionalGeneration", _IMAGE, since="5.23.0"),
    "pixel_values": Name("ViTModel", _INPUT),
    "input_features": Name("WhisperForConditionalGeneration", _INPUT),
    "input_values": Name("Wav2Vec2Model", _INPUT),
    "image_grid_thw": Name("Qwen2VLForConditionalGeneration", _IMAGE),
    "spatial_shapes": Name("Lfm2VlForConditionalGeneration", _IMAGE),
    "pixel_attention_mask": Name("Lfm2VlForConditionalGeneration", _IMAGE),
    "aspect_ratio_ids": Name("MllamaForConditionalGeneration", _IMAGE),
    "aspect_ratio_mask": Name("MllamaForConditionalGeneration", _IMAGE),
    "image_sizes": Name("LlavaNextForConditionalGeneration", _IMAGE),
    # of what a model returns
    "logits": Name("CausalLMOutputWithPast", "the logits of a training step are not named"),
    "loss": Name("CausalLMOutputWithPast", _LABELS),
    "encoder_last_hidden_state": Name("Seq2SeqLMOutput", _ENCODED),
    "last_hidden_state": Name("BaseModelOutput", _IMAGE),
    "pooler_output": Name("BaseModelOutputWithPooling", _IMAGE),
    # of a cache
    "get_seq_length": Name("DynamicCache", _GROUPS),
    "cross_attention_cache": Name("EncoderDecoderCache", "a cache of the encoder's tokens has no bytes of its own"),
    # of models and their modules
    "main_input_name": Name("PreTrainedModel", _INPUT),
    "get_encoder": Name("T5ForConditionalGeneration", _ENCODED),
    "get_decoder": Name("T5ForConditionalGeneration", _DECODES),
    "base_model": Name("PreTrainedModel", _IMAGE),
    "get_image_features": Name("LlavaForConditionalGeneration", _IMAGE),
    "get_placeholder_mask": Name("LlavaModel", _IMAGE),
    "inputs_merger": Name("Idefics3Model", _IMAGE),
    "num_key_value_groups": Name("Qwen3ForCausalLM", _GROUPS),
    "layer_idx": Name("Qwen3ForCausalLM", _GROUPS),
    # fields and methods of a config
    "to_dict": Name("Qwen3Config", "every layer runs, and long prompts run whole"),
    "attn_implementation": Name("", _REFUSED),
    "is_encoder_decoder": Name("T5Config", _DECODES),
    "decoder_start_token_id": Name("WhisperConfig", "the first token of a decoder is 0"),
    "sliding_window": Name("MistralConfig", _GROUPS),
    "layer_types": Name("Qwen3Config", _GROUPS),
    "attention_chunk_size": Name("Llama4TextConfig", _GROUPS),
    "image_token_id": Name("Qwen2VLConfig", _IMAGE),
    "image_token_index": Name("LlavaConfig", _IMAGE),
    "text_config": Name("LlavaConfig", _IMAGE),
    "vision_config": Name("LlavaConfig", _IMAGE),
    "audio_config": Name("Qwen2AudioConfig", _INPUT),
    "encoder_config": Name("", _INPUT),
    "image_size": Name("ViTConfig", "images are of 224×224 pixels"),
    "patch_size": Name("ViTConfig", _IMAGE),
    "temporal_patch_size": Name("Qwen2VLConfig", _IMAGE),
    "spatial_merge_size": Name("Qwen2VLConfig", _IMAGE),
    "num_patches": Name("Siglip2VisionConfig", _IMAGE),
    "max_num_tiles": Name("MllamaConfig", _IMAGE),
    "num_channels": Name("ViTConfig", "images have 3 channels"),
    "in_channels": Name("Qwen2VLConfig", "images have 3 channels"),
    "max_position_embeddings": Name("Qwen3Config", _LENGTH),
    "n_positions": Name("GPT2Config", _LENGTH),
    "max_target_positions": Name("WhisperConfig", _LENGTH),
    "max_source_positions": Name("WhisperConfig", "speech has 1,000 frames"),
    "num_mel_bins": Name("WhisperConfig", "speech has 80 frequencies"),
    "input_feat_per_channel": Name("Speech2TextConfig", "speech has 80 frequencies"),
    "feature_projection_input_dim": Name("Wav2Vec2BertConfig", "speech has 80 frequencies"),
    "max_length": Name("ASTConfig", _INPUT),
    "conv_kernel": Name("Wav2Vec2Config", _INPUT),
    "num_attention_heads": Name("Qwen3Config", _SHARING),
    "n_head": Name("GPT2Config", _SHARING),
    "num_heads": Name("T5Config", _SHARING),
    "decoder_attention_heads": Name("WhisperConfig", _SHARING),
    "num_key_value_heads": Name("Qwen3Config", _SHARING),
    "num_kv_heads": Name("FalconConfig", _SHARING),
    "multi_query": Name("FalconConfig", _SHARING),
    "new_decoder_architecture": Name("FalconConfig", _SHARING),
    "kv_lora_rank": Name("DeepseekV3Config", _SHARING),
    "q_lora_rank": Name("DeepseekV3Config", _SHARING),
    "qk_rope_head_dim": Name("DeepseekV3Config", _SHARING),
    "index_head_dim": Name("DeepseekV32Config", _SHARING, since="5.23.0"),
    "head_dim": Name("Qwen3Config", _SHARING),
    "hidden_size": Name("Qwen3Config", _SHARING),
    "n_embd": Name("GPT2Config", _SHARING),
    "d_model": Name("T5Config", _SHARING),
}
