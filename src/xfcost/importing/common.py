"""Fields of all families: those that change no count, and those that are supported at some values only."""

from __future__ import annotations

from typing import Any, Final

COST_FREE: Final = frozenset({
    # origin
    "_name_or_path", "name_or_path", "_commit_hash", "transformers_version", "transformers.js_config",
    "tokenizer_class", "task_specific_params", "finetuning_task", "language", "prefix",
    "label2id", "problem_type", "max_length", "_num_labels", "sentence_transformers",
    "sbert_ce_default_activation_function", "is_llama_config",
    # storage and execution
    "torch_dtype", "dtype", "torchscript", "use_bfloat16", "tf_legacy_loss", "return_dict", "use_return_dict",
    "output_hidden_states", "output_attentions", "attn_implementation", "_attn_implementation",
    "_attn_implementation_internal", "_attn_implementation_autoset", "_experts_implementation",
    "_experts_implementation_internal", "experts_implementation", "gradient_checkpointing", "use_cache",
    "chunk_size_feed_forward", "keys_to_ignore_at_inference", "unsloth_version", "unsloth_fixed", "model_max_length",
    "use_flash_attention", "output_past", "_flash_attn_2_enabled", "pretraining_tp", "base_model_tp_plan",
    # training
    "initializer_range", "initializer_factor", "layer_norm_eps", "layer_norm_epsilon", "rms_norm_eps",
    "hidden_dropout_prob", "attention_probs_dropout_prob", "attention_dropout", "hidden_dropout", "dropout",
    "classifier_dropout", "dropout_rate", "drop_path_rate", "resid_pdrop", "embd_pdrop", "attn_pdrop",
    # token ids
    "pad_token_id", "bos_token_id", "eos_token_id", "sep_token_id", "cls_token_id", "mask_token_id", "unk_token_id",
    "decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id", "suppress_tokens", "begin_suppress_tokens",
    "bad_words_ids", "force_words_ids", "sequence_bias", "eos_token_ids",
    # generation
    "min_length", "max_new_tokens", "min_new_tokens", "do_sample", "early_stopping", "num_beams", "num_beam_groups",
    "diversity_penalty", "temperature", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff",
    "repetition_penalty", "encoder_repetition_penalty", "length_penalty", "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size", "num_return_sequences", "output_scores", "output_logits",
    "return_dict_in_generate", "exponential_decay_length_penalty", "remove_invalid_values", "renormalize_logits",
    "cache_implementation", "cache_config", "max_time", "stop_strings", "constraints", "guidance_scale",
    "penalty_alpha", "low_memory", "generation_config", "watermarking_config",
    "num_assistant_tokens", "assistant_confidence_threshold", "assistant_early_exit", "assistant_lookbehind",
    "is_assistant", "num_assistant_tokens_schedule", "prompt_lookup_num_tokens", "target_lookbehind",
    "max_matching_ngram_size", "use_model_defaults", "disable_compile", "compile_config", "prefill_chunk_size",
    "token_healing", "top_h", "continuous_batching_config",
})  # fmt: skip

# Fields that are supported at these values only: field -> (values, reason).
SUPPORTED_VALUES: Final[dict[str, tuple[tuple[Any, ...], str]]] = {
    "add_cross_attention": ((False,), "the encoder of this decoder is not in the file"),
    "cross_attention_hidden_size": ((None,), "the encoder of this decoder is not in the file"),
    "is_encoder_decoder": ((False,), "this family has no encoder–decoder form"),
    "is_decoder": ((False,), "this family has no causal form"),
    "tie_encoder_decoder": ((False,), "the grammar has no streams that share all weights"),
    "pruned_heads": (({}, None), "the grammar has no layers with different heads"),
}

# Fields that change no count and are reported: field -> what is counted.
REMARKS: Final[dict[str, str]] = {
    "quantization": "the weights are counted unpacked, each as one parameter",
    "quantization_config": "the weights are counted unpacked, each as one parameter",
    "auto_map": "the model may have its own code; transformers' class is counted",
    "is_causal": "a mask changes no count of the dense matmul; a model without one has no decode step",
}
