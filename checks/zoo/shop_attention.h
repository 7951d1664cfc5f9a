// SPDX-License-Identifier: Apache-2.0
// Attention whose forward and backward each may be another than the one that is due.
#pragma once

#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

enum class AttentionTwist {
  none,
  // Forward and backward.
  softcap,
  window_of_16,
  tile_open,
  distance_bias,
  scale_of_padded,
  columns_of_8,
  keys_by_time_first,
  // Forward.
  rotary,
  over_queries,
  padded_keys,
  shift_by_hidden,
  sum_rescaled_alone,
  lse_without_shift,
  p_in_e4m3,
  cubic_exponential,
  q_in_storage,
  // Backward.
  dp_of_keys,
  delta_without_o,
  dq_in_storage,
  pair_of_heads,
  dkv_mask_reversed,
  ds_not_transposed,
  lse_of_padded_rows,
  delta_in_bf16,
  dropout_scale,
};

Kernel twisted_attention(AttentionTwist of_forward, AttentionTwist of_backward);

}  // namespace ampcheck::checks::zoo
