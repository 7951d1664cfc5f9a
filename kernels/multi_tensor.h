// SPDX-License-Identifier: Apache-2.0
// Many tensors of different sizes and dtypes in one launch: the unscaling of a gradient scaler with its check, and the
// update of an optimizer.
#pragma once

#include "kernels/stream.h"
#include "src/amp/multi_tensor.h"
#include "src/amp/optimizers.h"

namespace ampcheck::kernels {

/// check_and_unscale of src/amp/unscale.h on tensors of the stream, the same bits and refusals; strided ones and those
/// that it refuses go to the host, all together. Waits for found_inf.
void unscale_at_once(Stream& stream, std::span<const TensorView> grads, float inv_scale, float& found_inf);

/// The update of src/amp/optimizers.h on tensors of the stream, the same bits and counts: SGD, Adam and AdamW, in
/// reference arithmetic (fp32) and fused. Waits for the counts, if the rule counts.
void update_at_once(Stream& stream, std::span<const TensorUpdate> tensors, const UpdateRule& rule,
                    std::span<UpdateCounts> counts);

}  // namespace ampcheck::kernels
