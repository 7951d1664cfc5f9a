// SPDX-License-Identifier: Apache-2.0
// torch.no_grad and torch.inference_mode: what a thread's calls keep for a backward. Tapes read it; a new thread starts
// with gradients.
#pragma once

namespace ampcheck {

/// Whether calls on this thread are recorded for a backward.
bool grad_enabled();
/// Whether an InferenceMode is open on this thread.
bool inference_mode();

/// For its scope calls need no gradient and keep nothing for a backward.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool before_;
};

/// NoGrad, and what is made in its scope can never be kept for a backward: a call that would is an error, as in torch.
class InferenceMode {
 public:
  InferenceMode();
  ~InferenceMode();
  InferenceMode(const InferenceMode&) = delete;
  InferenceMode& operator=(const InferenceMode&) = delete;

 private:
  NoGrad no_grad_;
  bool before_;
};

}  // namespace ampcheck
