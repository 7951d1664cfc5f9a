// SPDX-License-Identifier: Apache-2.0
// What an optimizer or a scaler asks of a device that takes all tensors in one launch. The arithmetic is that of
// unscale.h and optimizers.h, bit for bit.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "src/tensor.h"

namespace ampcheck {

struct UpdateCounts;

/// check_and_unscale of unscale.h.
using MultiTensorUnscale = std::function<void(std::span<const TensorView> grads, float inv_scale, float& found_inf)>;

/// torch's kernels on the CPU (AVX2) take whole vectors, and then what is left element by element, with the product of
/// another pair joined into an fma, or rounded once more: bits differ. Of `count` elements, how many lie in whole
/// vectors. `dtype`: of what is updated; `fused`: a fused kernel, which takes one vector at a time, the others take
/// two.
constexpr std::int64_t in_whole_vectors(Dtype dtype, std::int64_t count, bool fused) {
  const std::int64_t vector = dtype == Dtype::fp64 ? 4 : dtype == Dtype::fp32 ? 8 : 16;
  return count - count % (fused ? vector : 2 * vector);
}

/// The rule of an update, and its scalars as torch works them out in fp64.
struct UpdateRule {
  enum class Kind : std::uint8_t { sgd, adam } kind = Kind::sgd;
  bool fused = false, maximize = false, count = false;
  bool decoupled = false, amsgrad = false;  ///< adam
  bool nesterov = false;                    ///< sgd
  double lr = 0, weight_decay = 0;
  double momentum = 0, dampening = 0;    ///< sgd
  double beta1 = 0, beta2 = 0, eps = 0;  ///< adam
  std::optional<float> grad_scale = {};  ///< the gradient is divided by it, and written back
};

/// One parameter's part in it: fp32, fp16 or bf16, dense.
struct TensorUpdate {
  TensorView target;  ///< what moves: the parameter, or its fp32 master
  TensorView copy;    ///< of a master: the parameter; data null: none
  TensorView grad;
  std::array<TensorView, 3> moments = {};  ///< data null: none
  double step_size = 0, correction = 1;    ///< adam: lr / (1 - beta1^step), sqrt(1 - beta2^step)
  bool first = false;                      ///< sgd: the momentum buffer holds nothing yet
  std::int64_t whole = 0;                  ///< elements in whole vectors: the first ones
};

/// Updates all of them and adds to the counts of each, if the rule counts.
using MultiTensorUpdate =
    std::function<void(std::span<const TensorUpdate> tensors, const UpdateRule& rule, std::span<UpdateCounts> counts)>;

}  // namespace ampcheck
