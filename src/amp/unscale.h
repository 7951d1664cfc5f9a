// SPDX-License-Identifier: Apache-2.0
// The two kernels of a gradient scaler: the non-finite check with unscaling, and the update of the scale.
#pragma once

#include <cstdint>
#include <span>

#include "src/tensor.h"

namespace ampcheck {

/// Multiplies every gradient by inv_scale in place; found_inf becomes 1 if a value was not finite *before* the product,
/// and is left alone otherwise (it is neither cleared nor added to). The product is not checked: with inv_scale > 1 a
/// finite value may become infinite unnoticed. inv_scale == 1 is a check alone, which changes no bit. The product is
/// taken in fp32 (fp64 for fp64 gradients) and rounded once, to nearest even, to the gradient's dtype. fp32, fp64, fp16
/// and bf16, mixed as one likes; any strides without overlap. Throws AmpError (NotImplementedError) for other dtypes,
/// (RuntimeError) for overlapping memory; found_inf and the gradients before that one have then been processed. Source:
/// torch._amp_foreach_non_finite_check_and_unscale_ on the CPU, torch 2.15.
void check_and_unscale(std::span<const TensorView> grads, float inv_scale, float& found_inf);

/// 1/scale: the reciprocal in fp64, rounded to fp32 (infinite for scale <= 2^-128 and subnormal for scale > 2^126).
float inverse_scale(float scale);

/// The growth and backoff rule. found_inf != 0 (NaN too): scale *= backoff, tracker = 0. Otherwise tracker += 1, and
/// when it *equals* interval: scale *= growth if that is finite, tracker = 0. Products in fp64, stored as fp32; the
/// tracker wraps. Source: torch._amp_update_scale_, torch 2.15.
void update_scale(float& scale, std::int32_t& tracker, float found_inf, double growth, double backoff,
                  std::int32_t interval);

/// The same on tensors, with torch's refusals (AmpError, RuntimeError): scale, inv_scale and found_inf are fp32, the
/// tracker is i32, each has one element.
void check_and_unscale(std::span<const TensorView> grads, const TensorView& found_inf, const TensorView& inv_scale);
void update_scale(const TensorView& scale, const TensorView& tracker, const TensorView& found_inf, double growth,
                  double backoff, std::int32_t interval);

}  // namespace ampcheck
