// SPDX-License-Identifier: Apache-2.0
#include "src/amp/sharded_grad_scaler.h"

#include "src/amp/unscale.h"

namespace ampcheck {

Tensor ShardedGradScaler::scale(const Tensor& output) {
  const Tensor scaled = GradScaler::scale(output);
  if (scaled.dtype() == output.dtype()) return scaled;
  Tensor same(output.dtype(), output.shape());
  from_doubles(to_doubles(scaled.view()), same.view());
  return same;
}

void ShardedGradScaler::agree(std::map<int, float>& found_inf, bool checked_only) {
  if (rule_ == ShardedRule::torch && checked_only) return;
  if (found_inf.empty()) found_inf[0] = 0.0f;  // a rank without gradients is asked too
  for (auto& [device, flag] : found_inf) {
    flag = all_reduce_(flag);
    if (rule_ == ShardedRule::agreed) flag = flag != 0.0f ? 1.0f : 0.0f;
  }
}

void ShardedGradScaler::move_scale(float& scale, std::int32_t& tracker, float found_inf) {
  if (rule_ == ShardedRule::agreed) return GradScaler::move_scale(scale, tracker, found_inf);
  if (found_inf >= 1.0f) {
    scale *= static_cast<float>(options_.backoff_factor);
    tracker = 0;
  } else if (++tracker == options_.growth_interval) {
    scale *= static_cast<float>(options_.growth_factor);
    tracker = 0;
  }
}

}  // namespace ampcheck
