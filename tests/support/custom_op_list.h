// SPDX-License-Identifier: Apache-2.0
// The ops of tests/custom_ops/ and what is wrong with the broken ones.
#pragma once

#include <ostream>
#include <string>

#include "checks/doors/plugin.h"
#include "tests/support/paths.h"

namespace ampcheck::checks {

struct CustomOpCase {
  const char *library, *op;
  const char* code;        ///< the finding that is due, or how it starts; "" for a right kernel
  const char* cause = "";  ///< words that the cause of some finding says
  bool quick = false;      ///< the quick set shows it: replaying a wrong case of theirs takes seconds
};
inline void PrintTo(const CustomOpCase& one, std::ostream* out) { *out << one.library << ' ' << one.op; }
/// Classes are those of the table of defects found in the field (design.md 9, gradcheck.md 4).
inline constexpr CustomOpCase kCustomOps[] = {
    {"my_rms_norm.so", "my_rms_norm", ""},
    {"add_layer_norm.so", "add_layer_norm", ""},
    {"add_layer_norm.so", "add_layer_norm_drops_skip_gradient", "AC101",
     "without the term dh"},                                            // class 46: a dead gradient path
    {"add_layer_norm.so", "add_layer_norm_low_accumulation", "AC301"},  // class 23: bf16 accumulation of dgamma
    {"bias_gelu_dropout.so", "bias_gelu_dropout", ""},
    {"bias_gelu_dropout.so", "bias_gelu_dropout_forgets_mask", "AC101", "without the factor mask"},  // class 35
    {"bias_gelu_dropout.so", "bias_gelu_dropout_tanh_gradient", "AC101"},                            // class 30
    {"dropout.so", "dropout", ""},
    {"dropout.so", "dropout_by_reciprocal", ""},
    {"dropout.so", "dropout_of_another_draw", "AC10"},  // class 35: the mask is drawn anew
    {"dropout.so", "dropout_a_row_late", "AC405",
     "with mask of the next index along axis 0"},  // class 35: another row's mask
    {"dropout.so", "dropout_unscaled_backward", "AC101",
     "without dividing by 1 - p"},  // class 35: 1 / (1 - p) in the forward alone
    {"dropout.so", "dropout_forgets_mask", "AC10", "without the factor mask"},  // class 35
    {"gather_rows.so", "gather_rows", ""},
    {"gather_rows.so", "gather_rows_loses_duplicates", "AC101"},  // class 40: lost contributions
    {"gather_rows.so", "gather_rows_low_accumulation", "AC301"},  // class 23
    {"gather_rows.so", "gather_rows_undeclared_order", "AC404"},  // class 39: nondeterministic beyond contract
    {"rope.so", "rope", ""},
    {"rope.so", "rope_rotates_forward", "AC101",
     "with the other sign of sin"},             // class 7: the rotation instead of its inverse
    {"rope.so", "rope_strides_of_x", "AC406"},  // class 20: the strides of another tensor
    {"linear_cross_entropy.so", "linear_cross_entropy", ""},
    {"linear_cross_entropy.so", "linear_cross_entropy_scalar_cotangent", "AC405", "changes with other rows",
     true},  // class 9: rows follow the cotangent of the first
    {"linear_cross_entropy.so", "linear_cross_entropy_low_probability", "AC30", "keeps",
     true},  // class 25: rounding before a cancellation
    {"grouped_rms_norm.so", "grouped_rms_norm", ""},
    {"grouped_rms_norm.so", "grouped_rms_norm_whole_row_dot", "AC101"},  // class 8: reduced over the wrong extent
    {"grouped_rms_norm.so", "grouped_rms_norm_strides_of_x", "AC406"},   // class 20
    {"causal_attention.so", "causal_attention", ""},
    {"causal_attention.so", "causal_attention_unscaled_dq", "AC101", "without the factor rsqrt",
     true},  // class 1: a missing factor
    {"causal_attention.so", "causal_attention_sees_next_key", "AC101", "",
     true},  // class 32: the mask of backward leaks
    {"core_matmul.so", "core_matmul", ""},
    {"core_matmul.so", "core_matmul_of_any", ""},
    {"core_matmul.so", "core_matmul_13_bits", "AC", "", true},       // class 29: more than the declared cores do
    {"core_matmul.so", "core_matmul_in_fp16", "AC", "", true},       // class 24
    {"core_matmul.so", "core_matmul_drops_last", "AC10", "", true},  // class 14: a lost tail
    {"regrouped.so", "square_by_two", ""},
    {"regrouped.so", "square_without_two", "AC101", "with a factor of 1 for 2"},  // class 1
    {"regrouped.so", "sum_of_four", ""},
    {"regrouped.so", "sum_of_four_takes_three", "AC101", "without the term d"},  // class 40
    {"regrouped.so", "lerp", ""},
    {"regrouped.so", "lerp_exchanged", "AC101"},  // class 7: operands exchanged
    {"regrouped.so", "scaled_dot", ""},
    {"regrouped.so", "scaled_dot_in_bf16", "AC301", "accumulates in bf16"},  // class 23, in two tensors at once
    {"regrouped.so", "normalize", ""},
    {"regrouped.so", "normalize_below_floor", "AC101"},  // class 37: a branch of the backward
    {"regrouped.so", "running_mean", ""},
    {"regrouped.so", "running_mean_undeclared", ""},
    {"regrouped.so", "running_mean_from_two", "AC101"},  // class 42: another count
    {"regrouped.so", "logistic_by_tanh", ""},
    {"regrouped.so", "logistic_by_tanh_undeclared", "AC"},
    {"fp64.so", "adds64", ""},
    {"fp64.so", "adds64_in_float", "AC", "", true},
    {"fp64.so", "norm64", ""},
    {"fp64.so", "norm64_through_float", "AC301", "the result goes through float", true},
    {"fp64.so", "norm64_float_rsqrt", "AC301", "something on the way is computed in float", true},
    {"fp64.so", "norm64_no_eps", "AC101", "", true},
    {"fp64.so", "norm64_one_pass", "AC101", "", true},
    {"fp64.so", "norm64_lost_term", "AC101", "", true},
    {"fp64.so", "norm64_small_slope", "AC101", "", true},  // an error that no check in fp32 sees
    {"backward_tensors.so", "tanh_by_output", ""},
    {"backward_tensors.so", "tanh_by_output_wrong", "AC101", "", true},
    {"backward_tensors.so", "silu_over_cotangent", ""},
    {"backward_tensors.so", "silu_over_cotangent_shifted", "AC", "", true},
    {"backward_tensors.so", "running_mean_output", ""},
    {"backward_tensors.so", "running_mean_output_wrong", "AC101", "", true},
    {"in_place.so", "softmax_in_place", ""},
    {"in_place.so", "softmax_in_place_rereads", "AC401",
     "reads its input after having written it"},            // class 21: memory that is shared
    {"in_place.so", "softmax_in_place_unscaled", "AC101"},  // wrong in a buffer of its own too
    {"in_place.so", "softmax_in_place_dense_rows", "AC40",
     "is taken for dense"},  // class 20: strides are to blame, not the shared buffer
    {"tangents.so", "product", ""},
    {"tangents.so", "product_tangent_transposed", "AC101"},  // class 7: operands exchanged, in forward mode
    {"tangents.so", "product_tangent_negated", "AC101"},     // class 1, in forward mode
    {"log_sigmoid.so", "log_sigmoid", ""},
    {"log_sigmoid.so", "log_sigmoid_forgets_minimum", "AC101"},
    {"ties.so", "relu_with_tangent", ""},
    {"ties.so", "relu_with_wrong_tangent", "AC101"},
    {"ties.so", "relu_adds_gradient", ""},
    {"ties.so", "leaky_by_maximum", ""},
    {"ties.so", "hinge_of_exp", ""},
    {"ties.so", "elu_in_two_parts", ""},
    {"ties.so", "larger_by_halves", ""},
    {"ties.so", "larger_twice", "AC204", "every choice among those that tie gives"},
    {"ties.so", "larger_never", "AC204"},
    {"ties.so", "median_by_shares", ""},
    {"ties.so", "row_maximum_last", ""},
    {"choices.so", "hard_sigmoid", ""},
    {"choices.so", "hard_sigmoid_too_steep", "AC101", "factor of 1.2"},  // class 48: a constant slightly off
    {"choices.so", "relu_by_maximum", ""},
    {"choices.so", "relu_leaks", "AC101"},  // class 30: another activation's derivative
    {"choices.so", "masked_squares", ""},
    {"choices.so", "masked_squares_forgets_mask", "AC101"},  // class 35
    {"fp8.so", "fp8_gelu", ""},
    {"fp8.so", "fp8_gelu_tanh_slope", "AC101", "gelu_tanh"},
    {"fp8.so", "quantize_fp8", ""},
    {"fp8.so", "quantize_fp8_to_nan", ""},
    {"fp8.so", "quantize_fp8_240", "AC101"},
    {"fp8.so", "fp8_matmul", ""},
    {"fp8.so", "fp8_matmul_14_bits", "AC301", "accumulates in"},
    {"fp8.so", "fp8_matmul_next_scale", "AC101", "scale_b of the next index"},
    {"centered_rows.so", "centered_rows", ""},
    {"centered_rows.so", "centered_rows_by_batch", "AC409", "the number of rows decides"},
    {"centered_rows.so", "centered_rows_by_place", "AC409", "a row's place decides"},
    {"centered_rows.so", "centered_rows_in_any_order", ""},
    {"windows.so", "window_sum", ""},
    {"windows.so", "window_sum_one_further", "AC101"},  // class 32: one key too many is seen
    {"windows.so", "scale_by_blocks", ""},
    {"windows.so", "scale_by_last_block", "AC101"},  // class 13: a path for whole vectors alone
    {"extents.so", "gated_halves", ""},
    {"extents.so", "gated_by_itself", "AC101", "", true},  // class 13: the wrong half of a row
    {"extents.so", "thin_factors", ""},
    {"extents.so", "thin_factors_of_two", "AC101"},  // class 14: what is beyond the default is left out
    {"extents.so", "turned_square", ""},
    {"extents.so", "turned_square_not", "AC101", "", true},  // class 7: not transposed
    {"dequant_matmul.so", "dequant_matmul", ""},
    {"dequant_matmul.so", "dequant_matmul_forgets_zeros", "AC101",
     "without the term"},  // class 4: a mean, here the zero point, is missing
    {"dequant_matmul.so", "dequant_matmul_first_scales", "AC101",
     "with the first scales along axis 0 for all"},  // class 17: the state of the first group for all
};

inline std::string custom_op_folder() { return tests::in_build("/custom_ops/"); }

inline const OpDef& custom_op(const CustomOpCase& entry) {
  for (const OpDef& op : load_plugin(custom_op_folder() + entry.library).ops)
    if (op.signature.name == entry.op) return op;
  throw Error("[test] no op " + std::string(entry.op) + " in " + entry.library);
}

}  // namespace ampcheck::checks
