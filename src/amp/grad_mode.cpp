// SPDX-License-Identifier: Apache-2.0
#include "src/amp/grad_mode.h"

#include <utility>

namespace ampcheck {

namespace {

thread_local bool t_enabled = true, t_inference = false;

}  // namespace

bool grad_enabled() { return t_enabled; }
bool inference_mode() { return t_inference; }

NoGrad::NoGrad() : before_(std::exchange(t_enabled, false)) {}
NoGrad::~NoGrad() { t_enabled = before_; }

InferenceMode::InferenceMode() : before_(std::exchange(t_inference, true)) {}
InferenceMode::~InferenceMode() { t_inference = before_; }

}  // namespace ampcheck
