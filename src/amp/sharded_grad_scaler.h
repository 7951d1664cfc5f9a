// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "src/amp/grad_scaler.h"

namespace ampcheck {

/// The sum of one number over all ranks. Every rank must call it equally often, in the same order.
using AllReduceSum = std::function<float(float)>;

/// How ranks come to one found flag.
enum class ShardedRule : std::uint8_t {
  agreed,  ///< 1 on every rank if any rank found something, else 0; asked on every path
  torch    ///< FSDP's: the plain sum (2 with two bad ranks), and no question on the implicit path of a fused optimizer
};

/// A scaler for parameters sharded over ranks (FSDP's ShardedGradScaler). Differs from GradScaler: a scaled output
/// keeps its dtype, fp16 gradients are unscaled, a rank without gradients takes part. One per rank; ranks run at once.
/// Rule torch also has torch's growth without finite guard (CPU) and its faults: with an explicit unscale_ two bad
/// ranks give 2, at which torch's fused kernels do not skip; without one a fused optimizer's ranks disagree. Rule
/// agreed has neither.
class ShardedGradScaler : public GradScaler {
 public:
  ShardedGradScaler(const GradScalerOptions& options, AllReduceSum all_reduce, ShardedRule rule = ShardedRule::agreed)
      : GradScaler(options), all_reduce_(std::move(all_reduce)), rule_(rule) {}

  using GradScaler::scale;
  Tensor scale(const Tensor& output) override;

 protected:
  bool allow_fp16() const override { return true; }
  void agree(std::map<int, float>& found_inf, bool checked_only) override;
  void move_scale(float& scale, std::int32_t& tracker, float found_inf) override;

 private:
  AllReduceSum all_reduce_;
  ShardedRule rule_;
};

}  // namespace ampcheck
