// SPDX-License-Identifier: Apache-2.0
#include "src/amp/lr_schedule.h"

#include <cmath>
#include <numbers>
#include <string>

#include "src/error.h"

namespace ampcheck {

namespace {

void require_positive(const char* where, std::int64_t value) {
  if (value <= 0) throw Error(std::string("[") + where + "] steps, got " + std::to_string(value) + ", want > 0");
}

}  // namespace

LrFactor step_lr(std::int64_t step_size, double gamma) {
  require_positive("step_lr", step_size);
  return [=](std::int64_t t) {
    double factor = 1.0;
    for (std::int64_t i = 0; i < t / step_size; ++i) factor *= gamma;
    return factor;
  };
}

LrFactor cosine_lr(std::int64_t period, double floor) {
  require_positive("cosine_lr", period);
  return [=](std::int64_t t) {
    const double angle = std::numbers::pi * static_cast<double>(t) / static_cast<double>(period);
    return floor + (1.0 - floor) * (1.0 + std::cos(angle)) / 2.0;
  };
}

LrFactor warmup_linear_lr(std::int64_t warmup, std::int64_t total) {
  require_positive("warmup_linear_lr", warmup);
  if (total != 0 && total <= warmup)
    throw Error("[warmup_linear_lr] total, got " + std::to_string(total) + ", want 0 or more than the warm-up");
  return [=](std::int64_t t) {
    if (t < warmup) return static_cast<double>(t + 1) / static_cast<double>(warmup);
    if (total == 0) return 1.0;
    return t >= total ? 0.0 : static_cast<double>(total - t) / static_cast<double>(total - warmup);
  };
}

LrSchedule::LrSchedule(Optimizer& optimizer, LrFactor factor, Follows follows)
    : optimizer_(optimizer),
      factor_(std::move(factor)),
      follows_(follows),
      base_(optimizer.lr()),
      updates_before_(optimizer.updates()),
      calls_before_(optimizer.step_calls()) {
  optimizer_.set_lr(base_ * factor_(0));
}

void LrSchedule::resume_at(std::int64_t t) {
  t_ = steps_ = t;
  updates_before_ = optimizer_.updates() - t;
  optimizer_.set_lr(base_ * factor_(t));
}

void LrSchedule::step() {
  if (++steps_ == 1) too_early_ = optimizer_.step_calls() == calls_before_;
  t_ = follows_ == Follows::calls ? steps_ : optimizer_.updates() - updates_before_;
  optimizer_.set_lr(base_ * factor_(t_));
}

}  // namespace ampcheck
