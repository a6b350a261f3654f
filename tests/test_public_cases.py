"""Public reports of calibration, data and Q/DQ trouble, and where each is tested here.

The ids are those of the project's list of public cases. A row that no test names by its id is mapped to the test that
builds its trigger; a name that no longer exists fails here.
"""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

from calib.core.graph import Network
from calib.core.histogram import TensorAccumulator, collect_statistics
from calib.edges.report.filling import tensor_rows
from calib.types.statistics import TensorStatistics
from calibrators import CALIBRATORS
from calibrators.minmax import minmax

TESTED: dict[str, str] = {
    "A1-1": "lint/test_public_reports.py::test_a1_1_bilinear_to_one_pixel",
    "A1-2": "diagnose/test_public_reports.py::test_a1_2_a_tie_that_the_runtime_rounds_the_other_way_is_its_rounding",
    "A1-4": "diagnose/test_public_reports.py::test_a1_4_a_float32_scale_moves_a_sample_and_is_counted",
    "A1-5": "lint/test_public_reports.py::test_a1_5_a1_7_coordinates_are_checked_at_every_resize",
    "A1-7": "lint/test_public_reports.py::test_a1_7_asymmetric_by_a_broken_factor",
    "A1-8": "lint/test_public_reports.py::test_a1_8_resize_of_a_non_spatial_axis",
    "A1-10": "lint/test_public_reports.py::test_a1_10_a_scale_that_loses_a_row",
    "A1-11": "lint/test_public_reports.py::test_a1_11_a_scale_that_an_export_froze",
    "A1-13": "lint/test_public_reports.py::test_a1_13_batchnorm_without_running_statistics",
    "A1-14": "diagnose/test_public_reports.py::test_a1_14_exported_statistics_are_compared",
    "A1-16": "lint/test_public_reports.py::test_a1_16_a1_17_norms_under_fp16",
    "A1-17": "lint/test_public_reports.py::test_a1_17_decomposed_norms_are_norms",
    "A1-19": "lint/test_public_reports.py::test_a1_19_tensors_beyond_fp16_are_printed",
    "A1-20": "lint/test_public_reports.py::test_a1_20_grid_sample_changed_its_names_in_opset_20",
    "A1-22": "lint/test_public_reports.py::test_a1_22_a_stride_of_zero_is_an_error",
    "A1-23": "lint/test_public_reports.py::test_a1_23_a_pool_frozen_at_the_size_of_the_export",
    "A1-25": "lint/test_public_reports.py::test_a1_25_pads_that_a_parser_may_refuse",
    "A1-26": "lint/test_public_reports.py::test_a1_26_output_padding_is_kept_and_checked",
    "A1-28": "lint/test_public_reports.py::test_a1_28_same_padding_with_output_padding",
    "A1-29": "lint/test_public_reports.py::test_a1_29_softmax_below_opset_13_flattens",
    "A2-1": "jobs/test_build.py::test_a_size_the_network_does_not_take_is_explained",
    "A2-2": "stages/test_cachefile.py::test_a2_2_faulty_ranges_name_their_tensor",
    "A2-4": "stages/test_cachefile.py::test_a2_4_dead_and_tiny_tensors_get_a_floor_and_are_listed",
    "A2-5": "stages/test_qdq.py::test_a2_5_dead_channels_and_tensors_get_a_floor_and_are_listed",
    "A2-7": "test_public_cases.py::test_a2_7_a_tensor_that_is_constant_over_the_set_is_flagged",
    "A2-8": "core/test_scores.py::test_verdicts",
    "A2-10": "test_public_cases.py::test_a2_10_a2_11_batches_and_late_outliers_do_not_matter",
    "A2-11": "test_public_cases.py::test_a2_10_a2_11_batches_and_late_outliers_do_not_matter",
    "A2-16": "stages/test_cachefile.py::test_a2_16_a2_25_every_float_activation_outputs_included_in_network_order",
    "A2-22": "jobs/test_scan_job.py::test_unreadable_files_are_named_in_one_error_and_the_rest_is_kept",
    "A2-23": "stages/test_collect.py::test_images_of_unlike_size_are_counted_one_by_one",
    "A2-25": "stages/test_cachefile.py::test_a2_16_a2_25_every_float_activation_outputs_included_in_network_order",
    "A2-26": "calibrators/test_peers.py::test_entropy_is_not_minmax_in_disguise",
    "A2-28": "stages/test_cachefile.py::test_a2_28_tiny_values_keep_their_scale",
    "A2-29": "stages/test_cachefile.py::test_a2_29_never_observed_is_not_dead_and_gets_no_made_up_scale",
    "A2-35": "stages/test_placement.py::test_a2_35_every_operator_without_int8_path_has_a_reason",
    "A3-1": "edges/test_images.py::test_16_bit_values_are_scaled_and_not_clipped",
    "A3-2": "edges/test_labels.py::test_voc_mask_holds_indices_and_not_colours",
    "A3-4": "edges/test_labels.py::test_a_palette_with_dark_and_equal_colours_loses_no_class",
    "A3-5": "edges/test_labels.py::test_png_planes_of_every_depth_filter_and_interlace",
    "A3-7": "jobs/test_manifest_check.py::test_lossy_labels_show_their_values",
    "A3-8": "edges/test_images.py::test_exif_is_applied_unless_only_the_stored_layout_has_the_labels_size",
    "A3-10": "edges/test_images.py::test_paths_in_any_script",
    "A3-11": "jobs/test_manifest_check.py::test_size_mismatch",
    "A3-13": "jobs/test_manifest_check.py::test_holes_in_jpeg_data_are_errors_and_junk_is_a_warning",
    "A3-14": "edges/test_images.py::test_lossless_modes_are_exact",
    "A3-16": "edges/test_coco_labels.py::test_malformed_segmentations_name_annotation_and_file",
    "A3-17": "edges/test_coco_labels.py::test_encodings_give_the_same_mask",
    "A3-19": "edges/test_coco_labels.py::test_panoptic_ids_are_r_256g_65536b",
    "A3-20": "edges/test_coco_labels.py::test_panoptic_ids_are_checked_both_ways",
    "A3-22": "edges/test_labels.py::test_what_is_no_index_label_is_refused",
    "A3-23": "edges/test_labels.py::test_cityscapes_label_ids_become_train_ids",
    "A3-25": "jobs/test_build.py::test_bad_arguments_are_refused_before_any_work",
    "A3-26": "jobs/test_build.py::test_images_of_the_evaluation_split_are_refused",
    "A5-1": "stages/test_qdq.py::test_a5_1_transposed_convolution_has_a_scale_per_output_channel",
    "A5-3": "stages/test_qdq.py::test_a5_3_depthwise_transposed_convolution",
    "A5-4": "stages/test_qdq.py::test_a5_4_bias_stays_float_and_tiny_weight_scales_stay_usable",
    "A5-6": "stages/test_qdq.py::test_a5_6_channels_of_very_different_range_keep_their_resolution",
    "A5-7": "stages/test_qdq.py::test_a5_7_opset_is_raised_for_per_channel_scales",
    "A5-9": "stages/test_qdq.py::test_a5_9_weights_behind_other_nodes_have_the_axis_of_the_convolution",
    "A5-10": "stages/test_qdq.py::test_a5_10_new_names_avoid_every_name_subgraphs_included",
    "A5-12": "stages/test_qdq.py::test_a5_12_scales_are_validated_and_pairs_can_be_dedicated",
    "A5-13": "stages/test_qdq.py::test_a5_13_a5_15_notes_name_wide_concats_and_additions_in_float",
    "A5-15": "stages/test_placement.py::test_a5_15_shortcut_of_a_residual_addition_shares_the_convolutions_pair",
    "A5-16": "stages/test_placement.py::test_a5_16_pair_stands_before_a_pad",
    "A5-18": "core/test_quantization.py::test_fake_quantization_equals_onnx_runtime",
    "A5-19": "stages/test_qdq.py::test_a5_19_ranges_go_from_qdq_to_cache_and_back_unchanged",
}


def functions_of(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("case", TESTED)
def test_the_test_of_every_case_exists(case: str, repository: Path) -> None:
    file, _, name = TESTED[case].partition("::")
    assert name in functions_of(repository / "tests" / file)


def test_a2_7_a_tensor_that_is_constant_over_the_set_is_flagged() -> None:
    from calib.core.graph import analyse
    from tests.graphs import model, node, weight

    network: Network = analyse(
        model([node("Conv", "x,w", "y")], {"x": ("N", 3, 4, 4)}, ["y"], {"w": weight(2, 3, 1, 1)})
    )
    seen: dict[str, TensorStatistics] = {
        "x": collect_statistics("x", [np.full((2, 3, 4, 4), 0.25, np.float32)]),
        "y": collect_statistics("y", [np.zeros((2, 2, 4, 4), np.float32)]),
    }
    rows = tensor_rows(network, seen, {"minmax": {name: minmax(item) for name, item in seen.items()}})
    assert {row.name: row.flags for row in rows} == {"x": ("constant",), "y": ("dead",)}


@pytest.mark.parametrize("calibrator", CALIBRATORS)
def test_a2_10_a2_11_batches_and_late_outliers_do_not_matter(calibrator: str) -> None:
    rng = np.random.default_rng(0)
    images = [rng.laplace(size=(1, 4, 40, 40)).astype(np.float32) for _ in range(16)]
    images[3][0, 0, 0, 0] = 100.0
    answers = set()
    for batch, order in ((1, 1), (16, 1), (5, -1), (1, -1)):
        accumulator = TensorAccumulator("x", 1)
        arranged = images[::order]
        for start in range(0, 16, batch):
            accumulator.update(np.concatenate(arranged[start : start + batch]))
        answers.add(CALIBRATORS[calibrator](accumulator.statistics()).amax)
    assert len(answers) == 1
