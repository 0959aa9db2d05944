"""Tests whose every case takes long: how many of their cases `make test` runs. `make test-rest` runs the others.

The cases that stay are spread evenly over those that the quick tier would run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import pytest

# file::function -> cases in the quick tier
CASES_IN_QUICK: Final = {
    "test_against_transformers.py::test_a_preset_has_their_parameters_and_their_macs": 4,
    "test_any_model.py::test_every_report": 10,
    "test_any_model_masks.py::test_csv_json_and_the_verbose_table_have_both_numbers": 0,
    "test_any_model_presets.py::test_totals_and_attention_memory_are_the_formulas": 5,
    "test_any_model_strangers.py::test_what_code_prints_stays_out_of_the_report": 0,
    "test_any_model_targets.py::test_what_is_wrong_is_said_in_one_line": 7,
    "test_any_model_training.py::test_a_preset_looked_at_without_its_spec": 5,
    "test_any_model_transformers.py::test_macs_are_torch_s_own_and_nothing_is_left_uncounted": 6,
    "test_attention_matrices.py::test_no_matrix_stays_undeclared": 60,
    "test_bert_heads.py::test_a_preset_has_their_parameters_and_their_macs": 3,
    "test_cait.py::test_every_preset_has_the_plain_one_s_parameters_and_macs": 2,
    "test_cait.py::test_the_trace_agrees_however_they_join": 4,
    "test_cli.py::test_batch_multiplies_costs_and_not_parameters": 0,
    "test_cli.py::test_disagreement_ends_with_one": 1,
    "test_cli.py::test_what_does_not_fit_is_refused_with_its_bytes": 0,
    "test_clock.py::test_every_mode_has_seconds_of_its_rows": 1,
    "test_compare_options.py::test_an_option_changes_the_table": 6,
    "test_conv.py::test_on_grids_it_reads_counts_and_answers_as_it_says": 10,
    "test_conv_layers.py::test_every_row_is_a_leaf_and_costs_what_its_trace_says": 40,
    "test_conv_layers.py::test_macs_are_half_of_what_torch_s_own_counter_says": 60,
    "test_conv_layers.py::test_outputs_and_gradients_are_those_of_a_plain_slow_reference": 60,
    "test_conv_layers.py::test_the_probed_pattern_is_the_kernel_s": 30,
    "test_cvt.py::test_a_preset_has_their_parameters_and_their_macs": 2,
    "test_decoding.py::test_a_decoding_preset_is_counted_as_it_is_traced": 1,
    "test_decoding.py::test_the_counted_step_is_the_traced_one": 30,
    "test_decoding_states.py::test_a_decoding_preset_is_counted_as_it_is_traced": 1,
    "test_decoding_states.py::test_a_whole_encoder_decoder_step_by_step": 2,
    "test_deit.py::test_a_distilled_preset_has_their_parameters_and_their_macs": 1,
    "test_diagram.py::test_no_word_is_cut_at_any_width": 6,
    "test_diagram.py::test_the_same_blocks_give_the_same_bytes": 1,
    "test_every_mechanism.py::test_a_bad_key_or_value_is_refused_with_its_line": 200,
    "test_every_mechanism.py::test_causal_means_that_later_tokens_change_nothing": 28,
    "test_every_mechanism.py::test_macs_and_flops_of_every_row_are_the_trace_s_without_residual_or_batch": 24,
    "test_every_mechanism.py::test_no_tensor_grows_faster_than_the_mechanism_claims": 24,
    "test_every_mechanism.py::test_the_closed_form_in_n_is_torch_s": 5,
    "test_every_mechanism.py::test_two_blocks_read_what_is_read_by_what_they_read": 80,
    "test_every_mechanism_learns.py::test_backward_macs_of_every_row_are_the_walk_s": 60,
    "test_every_mechanism_learns.py::test_no_gradient_of_an_input_that_learns_nothing_is_worked_out": 50,
    "test_funnel.py::test_every_row_is_what_the_trace_sees": 2,
    "test_generation.py::test_every_step_of_a_short_text_is_traced_and_three_of_a_long_one": 0,
    "test_generation_executed.py::test_gpt2_writes_ten_tokens_after_twenty": 1,
    "test_generation_executed.py::test_t5_writes_from_its_start_token": 1,
    "test_generation_executed.py::test_what_transformers_generates_costs_what_is_counted": 1,
    "test_import_configs.py::test_a_full_config_has_their_parameters": 12,
    "test_import_fields.py::test_any_fields_give_their_parameters_or_are_refused_by_name": 8,
    "test_import_tiny.py::test_a_tiny_config_has_their_parameters_and_macs": 40,
    "test_import_tiny.py::test_the_spec_runs_and_every_row_is_what_the_trace_sees": 6,
    "test_imports.py::test_counting_imports_no_heavy_library": 8,
    "test_llama.py::test_a_preset_has_their_parameters": 7,
    "test_measure.py::test_a_file_of_another_machine_and_of_another_tool_are_left_alone": 0,
    "test_measure.py::test_a_killed_sweep_leaves_no_process_and_goes_on": 0,
    "test_measure.py::test_an_interrupt_says_how_to_go_on": 0,
    "test_measure.py::test_bad_input_is_one_line_and_leaves_no_file": 6,
    "test_measure_processes.py::test_our_process_measures_time_memory_and_mixing": 1,
    "test_mla.py::test_a_decoding_preset_is_counted_as_it_is_traced": 0,
    "test_mobilevit.py::test_a_preset_has_their_parameters_and_macs": 1,
    "test_moe.py::test_every_row_agrees_with_the_trace": 15,
    "test_moe.py::test_macs_are_half_of_what_torch_s_own_counter_says_and_backward_twice_as_many": 50,
    "test_moe.py::test_the_closed_form_in_n_is_torch_s": 3,
    "test_moe_models.py::test_params_of_every_size": 2,
    "test_mvit.py::test_presets_are_what_their_public_configurations_give": 1,
    "test_mvit.py::test_whole_models_give_the_numbers_of_a_plain_one": 1,
    "test_numbers.py::test_fused_and_eager_cost_the_same_and_keep_another_memory": 1,
    "test_numbers.py::test_swin_on_awkward_images": 1,
    "test_numbers.py::test_whole_models_to_the_unit_in_both_accounts": 0,
    "test_orders.py::test_every_costly_row_of_every_preset_has_an_order": 0,
    "test_orders.py::test_more_tokens_cost_what_the_order_says": 100,
    "test_orders.py::test_rows_in_letters_are_the_rows": 100,
    "test_output.py::test_stderr_decides_nothing": 4,
    "test_ownership_presets.py::test_every_difference_is_known_with_its_reason": 1,
    "test_ownership_presets.py::test_the_rows_of_a_whole_model_agree_from_pixels_or_words_to_the_head": 1,
    "test_ownership_presets.py::test_what_is_found_without_the_spec_is_what_it_declares": 12,
    "test_ownership_transformers.py::test_attention_is_found_and_all_else_is_per_token": 4,
    "test_perceiver.py::test_the_same_parameters_macs_and_numbers": 0,
    "test_plot.py::test_the_same_numbers_give_the_same_bytes": 1,
    "test_plot.py::test_traced_points_lie_on_the_formula": 0,
    "test_pooling_attention.py::test_n_counts_what_comes_to_the_entry_and_heads_stand_on_what_leaves": 1,
    "test_pooling_attention.py::test_rows_are_the_leaves_of_the_live_entry": 20,
    "test_predicting.py::test_calls_on_meta_are_those_of_the_cpu": 2,
    "test_presets.py::test_counted_and_traced_agree_to_the_unit": 9,
    "test_probe_command.py::test_a_pattern_declared_wrongly_is_named_and_ends_with_1": 0,
    "test_probe_command.py::test_json_and_csv_carry_it_only_where_it_ran": 0,
    "test_probe_command.py::test_the_rows_of_a_preset_are_what_its_model_does": 1,
    "test_probe_command.py::test_windows_in_two_stages": 1,
    "test_probe_small.py::test_what_was_a_false_difference_agrees": 4,
    "test_process_memory.py::test_a_limited_address_space_is_an_error_and_no_traceback": 1,
    "test_process_memory.py::test_the_prediction_is_what_a_process_takes": 0,
    "test_process_memory.py::test_the_prediction_lies_in_its_interval_and_holds_the_parameters": 0,
    "test_public_packages.py::test_torch_s_own_transformer": 1,
    "test_pvt.py::test_a_preset_has_their_parameters_and_their_macs": 2,
    "test_pvt_v2.py::test_a_preset_has_their_parameters_and_their_macs": 2,
    "test_pvt_v2.py::test_pvt_v2_with_their_weights": 3,
    "test_quantities.py::test_nothing_given_to_an_option_is_echoed_whole": 40,
    "test_recurrent.py::test_memory_is_walked_through_the_loop": 0,
    "test_recurrent.py::test_the_one_node_costs_what_the_loop_inside_it_does": 5,
    "test_references.py::test_any_configuration_gives_what_its_reference_says": 14,
    "test_report_answers.py::test_training_answers_flops_memory_and_days": 0,
    "test_scaling.py::test_stages_by_alias_are_as_many_as_they_say": 0,
    "test_scaling.py::test_thousands_of_rows_are_printed_as_few_are": 0,
    "test_show.py::test_the_expanded_text_of_every_preset_is_the_same_model": 0,
    "test_swin_v2.py::test_a_preset_has_their_parameters_macs_and_attention_entries": 1,
    "test_swin_v2.py::test_awkward_grids_are_counted_as_they_are_traced": 1,
    "test_swin_v2.py::test_swin_v2_with_their_weights": 3,
    "test_t5.py::test_a_preset_has_their_parameters_and_their_macs": 1,
    "test_token_mlp.py::test_a_batch_multiplies_the_macs_in_every_account": 1,
    "test_trace_elementwise.py::test_no_module_that_works_is_silently_nothing": 116,
    "test_trace_torch_modules.py::test_macs_of_modules_are_those_of_torchs_own_counter": 60,
    "test_trace_whole_truth.py::test_models_of_transformers": 6,
    "test_training.py::test_a_loop_of_many_steps_costs_what_a_few_say": 3,
    "test_training.py::test_a_step_is_timed_and_its_memory_was_predicted": 0,
    "test_training.py::test_both_accounts_of_a_backward_pass_agree_in_every_family": 6,
    "test_training.py::test_on_a_device_as_much_is_kept_as_on_meta": 1,
    "test_training.py::test_the_predicted_peak_of_fused_attention_holds_no_matrix": 0,
    "test_training.py::test_the_report_says_what_a_step_costs": 0,
    "test_training.py::test_the_walk_is_torch_s_own_counter_forwards_and_backwards": 1,
    "test_training.py::test_vectors_without_a_entry_have_no_gradient_in_the_first_block_alone": 4,
    "test_training.py::test_what_a_device_does_in_other_kernels_takes_no_more_than_was_predicted": 0,
    "test_training.py::test_what_does_not_fit_is_refused_before_it_is_built": 0,
    "test_training.py::test_what_is_kept_is_what_autograd_saves": 2,
    "test_tutorials.py::test_the_notebook_s_outputs_are_those_stored": 0,
}


def thinned(items: Sequence[pytest.Item]) -> None:
    """Mark as `rest` the cases of slow tests that the quick tier leaves out."""
    cases = defaultdict(list)
    for item in items:
        if item.get_closest_marker("rest") is None:
            cases[f"{item.path.name}::{getattr(item, 'originalname', item.name)}"].append(item)
    for test, kept in CASES_IN_QUICK.items():
        known = cases[test]
        chosen = {number * len(known) // kept for number in range(kept)}
        for number, item in enumerate(known):
            if number not in chosen:
                item.add_marker(pytest.mark.rest)
