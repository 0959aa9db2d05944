"""Every name that this project reads of transformers: of its package, models, configs, caches and outputs.

transformers renames them from release to release. `NAMES` says where each can be seen, which of the tested releases
have it, and what xfcost does without it. A cache is found by its type, and the names below are for those without one.
"""

from __future__ import annotations

from typing import Any, Final

from xfcost.ledger.tested import LibraryName, names_of

_name = names_of("transformers")
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

NAMES: Final[dict[str, LibraryName]] = {
    # of the package
    "AutoConfig": _name(_REFUSED, "AutoConfig"),
    "for_model": _name(_REFUSED, "AutoConfig"),
    "from_config": _name(_REFUSED, "AutoModel"),
    "AutoModel": _name(_REFUSED, "AutoModel"),
    "AutoModelForCausalLM": _name(_REFUSED, "AutoModelForCausalLM"),
    "AutoModelForImageTextToText": _name(_REFUSED, "AutoModelForImageTextToText"),
    "AutoModelForSeq2SeqLM": _name(_REFUSED, "AutoModelForSeq2SeqLM"),
    "AutoModelForSpeechSeq2Seq": _name(_REFUSED, "AutoModelForSpeechSeq2Seq"),
    "MODEL_FOR_CAUSAL_LM_MAPPING": _name(_REFUSED, "MODEL_FOR_CAUSAL_LM_MAPPING"),
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING": _name(_REFUSED, "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING"),
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING": _name(_REFUSED, "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING"),
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING": _name(_REFUSED, "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING"),
    # parameters of a forward
    "input_ids": _name(_INPUT, "Qwen3ForCausalLM"),
    "decoder_input_ids": _name(_DECODES, "T5ForConditionalGeneration"),
    "use_cache": _name(_NO_CACHE, "Qwen3ForCausalLM"),
    "cache": _name(_NO_CACHE, "Qwen3ForCausalLM", since="5.24.0"),
    "past_key_values": _name(_NO_CACHE, "Qwen3ForCausalLM", until="5.23.0"),
    "cache_params": _name(_NO_CACHE, "MambaForCausalLM", until="5.23.0"),
    "mems": _name(_NO_CACHE, "XLNetLMHeadModel"),
    "state": _name(_NO_CACHE, "RwkvForCausalLM"),
    "past_buckets_states": _name(_NO_CACHE, "ReformerModelWithLMHead"),
    "logits_to_keep": _name("logits of a prompt are of every token", "Qwen3ForCausalLM"),
    "encoder_outputs": _name(_ENCODED, "T5ForConditionalGeneration"),
    "mm_token_type_ids": _name(_IMAGE, "Qwen2VLForConditionalGeneration", since="5.23.0"),
    "attention_dropout": _name("no note says that a module with it is in training mode", "Qwen3ForCausalLM"),
    "pixel_values": _name(_INPUT, "ViTModel"),
    "input_features": _name(_INPUT, "WhisperForConditionalGeneration"),
    "input_values": _name(_INPUT, "Wav2Vec2Model"),
    "image_grid_thw": _name(_IMAGE, "Qwen2VLForConditionalGeneration"),
    "spatial_shapes": _name(_IMAGE, "Lfm2VlForConditionalGeneration"),
    "pixel_attention_mask": _name(_IMAGE, "Lfm2VlForConditionalGeneration"),
    "aspect_ratio_ids": _name(_IMAGE, "MllamaForConditionalGeneration"),
    "aspect_ratio_mask": _name(_IMAGE, "MllamaForConditionalGeneration"),
    "image_sizes": _name(_IMAGE, "LlavaNextForConditionalGeneration"),
    # of what a model returns
    "logits": _name("the logits of a training step are not named", "CausalLMOutputWithPast"),
    "loss": _name(_LABELS, "CausalLMOutputWithPast"),
    "encoder_last_hidden_state": _name(_ENCODED, "Seq2SeqLMOutput"),
    "last_hidden_state": _name(_IMAGE, "BaseModelOutput"),
    "pooler_output": _name(_IMAGE, "BaseModelOutputWithPooling"),
    # of a cache
    "get_seq_length": _name(_GROUPS, "DynamicCache"),
    "cross_attention_cache": _name("a cache of the encoder's tokens has no bytes of its own", "EncoderDecoderCache"),
    # of models and their modules
    "main_input_name": _name(_INPUT, "PreTrainedModel"),
    "get_encoder": _name(_ENCODED, "T5ForConditionalGeneration"),
    "get_decoder": _name(_DECODES, "T5ForConditionalGeneration"),
    "get_output_embeddings": _name("--lora-on all gives the head an adapter too", "PreTrainedModel"),
    "base_model": _name(_IMAGE, "PreTrainedModel"),
    "get_image_features": _name(_IMAGE, "LlavaForConditionalGeneration"),
    "get_placeholder_mask": _name(_IMAGE, "LlavaModel"),
    "inputs_merger": _name(_IMAGE, "Idefics3Model"),
    "num_key_value_groups": _name(_GROUPS, "Qwen3ForCausalLM"),
    "layer_idx": _name(_GROUPS, "Qwen3ForCausalLM"),
    # fields and methods of a config
    "to_dict": _name("every layer runs, and long prompts run whole", "Qwen3Config"),
    "attn_implementation": _name(_REFUSED, ""),
    "is_encoder_decoder": _name(_DECODES, "T5Config"),
    "decoder_start_token_id": _name("the first token of a decoder is 0", "WhisperConfig"),
    "sliding_window": _name(_GROUPS, "MistralConfig"),
    "layer_types": _name(_GROUPS, "Qwen3Config"),
    "attention_chunk_size": _name(_GROUPS, "Llama4TextConfig"),
    "image_token_id": _name(_IMAGE, "Qwen2VLConfig"),
    "image_token_index": _name(_IMAGE, "LlavaConfig"),
    "text_config": _name(_IMAGE, "LlavaConfig"),
    "vision_config": _name(_IMAGE, "LlavaConfig"),
    "audio_config": _name(_INPUT, "Qwen2AudioConfig"),
    "encoder_config": _name(_INPUT, ""),
    "image_size": _name("images are of 224×224 pixels", "ViTConfig"),
    "patch_size": _name(_IMAGE, "ViTConfig"),
    "temporal_patch_size": _name(_IMAGE, "Qwen2VLConfig"),
    "spatial_merge_size": _name(_IMAGE, "Qwen2VLConfig"),
    "num_patches": _name(_IMAGE, "Siglip2VisionConfig"),
    "max_num_tiles": _name(_IMAGE, "MllamaConfig"),
    "num_channels": _name("images have 3 channels", "ViTConfig"),
    "in_channels": _name("images have 3 channels", "Qwen2VLConfig"),
    "max_position_embeddings": _name(_LENGTH, "Qwen3Config"),
    "n_positions": _name(_LENGTH, "GPT2Config"),
    "max_target_positions": _name(_LENGTH, "WhisperConfig"),
    "max_source_positions": _name("speech has 1,000 frames", "WhisperConfig"),
    "num_mel_bins": _name("speech has 80 frequencies", "WhisperConfig"),
    "input_feat_per_channel": _name("speech has 80 frequencies", "Speech2TextConfig"),
    "feature_projection_input_dim": _name("speech has 80 frequencies", "Wav2Vec2BertConfig"),
    "max_length": _name(_INPUT, "ASTConfig"),
    "conv_kernel": _name(_INPUT, "Wav2Vec2Config"),
    "num_attention_heads": _name(_SHARING, "Qwen3Config"),
    "n_head": _name(_SHARING, "GPT2Config"),
    "num_heads": _name(_SHARING, "T5Config"),
    "decoder_attention_heads": _name(_SHARING, "WhisperConfig"),
    "num_key_value_heads": _name(_SHARING, "Qwen3Config"),
    "num_kv_heads": _name(_SHARING, "FalconConfig"),
    "multi_query": _name(_SHARING, "FalconConfig"),
    "new_decoder_architecture": _name(_SHARING, "FalconConfig"),
    "kv_lora_rank": _name(_SHARING, "DeepseekV3Config"),
    "q_lora_rank": _name(_SHARING, "DeepseekV3Config"),
    "qk_rope_head_dim": _name(_SHARING, "DeepseekV3Config"),
    "index_head_dim": _name(_SHARING, "DeepseekV32Config", since="5.23.0"),
    "head_dim": _name(_SHARING, "Qwen3Config"),
    "hidden_size": _name(_SHARING, "Qwen3Config"),
    "n_embd": _name(_SHARING, "GPT2Config"),
    "d_model": _name(_SHARING, "T5Config"),
}


def is_cache_class(kind: Any) -> bool:
    """Is it its class `Cache`, wherever a release has it, or made from it?"""
    return any(one.__name__ == "Cache" for one in getattr(kind, "__mro__", ()))
