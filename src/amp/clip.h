// SPDX-License-Identifier: Apache-2.0
// Gradient clipping, on unscaled gradients: after GradScaler::unscale_ and before step.
#pragma once

#include <span>

#include "src/amp/parameter.h"

namespace ampcheck {

/// The norm of order `p` of the norms of the gradients: a rank-0 tensor of their promoted dtype (fp32 if there is
/// none). Sums run in fp32 (fp64 for fp64 gradients), and a 16-bit gradient's norm is rounded to 16 bits, as in torch:
/// squares of 1e20 overflow, those of 1e-30 vanish. p = 0 counts the tensors that are not all zero; +-infinity is max
/// and min of |g|.
Tensor total_norm(std::span<Parameter* const> parameters, double p = 2.0);

/// Multiplies every gradient by min(1, max_norm / (total_norm + 1e-6)), rounded once to the gradient's dtype; returns
/// total_norm. A non-finite norm makes every gradient zero or NaN, unless error_if_nonfinite (AmpError, RuntimeError).
/// Source: torch.nn.utils.clip_grad_norm_, torch 2.15.
Tensor clip_grad_norm_(std::span<Parameter* const> parameters, double max_norm, double p = 2.0,
                       bool error_if_nonfinite = false);

/// Clamps every gradient to [-clip_value, clip_value]; NaN stays. An infinite gradient becomes finite: done before the
/// check of a scaler, it hides the overflow. A bound beyond the gradient's dtype throws AmpError (RuntimeError).
/// Source: torch.nn.utils.clip_grad_value_, torch 2.15.
void clip_grad_value_(std::span<Parameter* const> parameters, double clip_value);

}  // namespace ampcheck
