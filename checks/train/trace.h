// SPDX-License-Identifier: Apache-2.0
// The trace of a training run as a file: JSON lines, appended step by step. A run that dies leaves all steps before the last
// intact; a reader leaves out a torn last line.
//
// The first line says what was run:
//   {"schema":"ampcheck.trace/1","model":"mlp","dtype":"fp16","scaler":"torch","seed":1,"steps":50,"local":true,"carried":true}
// then for each step one line for each tensor, in the order in which they were written:
//   {"step":0,"seq":17,"phase":"backward","cast":false,"op":"linear_3","layer":"layer2","tensor":"dx","dtype":"fp16","from":"","source":-1,
//    "scale":65536,"elements":4096,"zero":12,"subnormal":0,"inf":0,"nan":0,"amax":0.31,"amin":1.1e-05,
//                                          source: forward, number of what is cast or of an op's output; a tensor cast twice has it twice
//    "exponents":[-15,[3,8,...]],          first exponent e, then how many magnitudes are in [2^e, 2^(e+1)), ...; an e below the
//                                          format's smallest holds all subnormal numbers
//    "nonzero":4090,"flushed":6,"overflowed":0,"local_error":2.1e-04,      against the local shadow (nonzero 0: none)
//    "subnormal_loss":0,"saturated":0,"bias":-0.001,"bias_z":-0.4,"ulps":[2000,1900,190],    src/amp/tensor_stats.h: ShadowStats; ulps:
//                                          how many are equal, off by up to 1/2 ulp, 1, 2, 4, ...
//    "carried_error":1.3e-03,                                              against the fp64 run, relative in the 2-norm
//    "rank":1,                             of several ranks, which but the first
//    "cancelled":[0.7,6.2],                forward, with a local shadow: bits of its inputs' accuracy that the op loses, mean and most of one element a
//                                          row (checks/models/cancellation.h)
//    "loss_error":-2.1e-06,"loss_reach":3e-05,    forward, with both shadows: the error made here times the fp64 cotangent; the product of
//                                          their norms
//    "norm_error":1.2e-05,                 with both shadows: the error made here times the fp64 derivative of the norm of the loss's gradient
//    "decisions":[64,1,3,0.02,61.5,0.4],   logits of a cross-entropy, with the fp64 run: rows; of these with another argmax, or one that the
//                                          error could change; smallest margin; sums of margins and of largest errors (watch.h: Tally)
//    "copy_stagnant":40,"second_moment_zero":3,"epsilon_zero":0,           optimizer, where not 0: elements meant to move whose 16-bit copy stayed; with
//                                          a gradient whose square vanished; whose eps is zero in the arithmetic of the weights
//    "intended":0,"stagnant":0,"role":"none"}                              optimizer; role in a non-finite fault
// then of every tenth step of a run with both shadows, without clipping and penalty, one for each parameter (checks/train/gradient_errors.h):
//   {"step":0,"parameter":"layer0.weight","error":1.1e-03,"size":0.9,     2-norms: error of its gradient, and the fp64 gradient
//    "apart":2.4e-06,                      part of that error that is due to weights that had come apart
//    "parts":[[17,9.8e-04,6e-05],...]}     part of the errors made in the tensors named as that of seq 17, over all micro-batches and ranks; the
//                                          most that rounding each of their elements once, or the gradient to fp32, could make
// and at last, with what the scaler did
//   {"step":0,"loss":2.29,"fp64_loss":2.29,"spread":0.05,"scale":65536,"scale_after":65536,"tracker":1,"found_inf":false,"stepped":true,
//    "stagnant_share":0.01,"loss_drift":1e-05}       the loss's part of what weights had come apart
// After a fault of a sampled run the steps before it follow, as they are above (checks/train/fault_ring.h): steps then go back once.
// Non-finite numbers are the strings "inf", "-inf" and "nan"; what does not exist is null.
#pragma once

#include <cstdio>
#include <map>
#include <optional>
#include <string>

#include "checks/train/trainer.h"

namespace ampcheck::checks::train {

/// Throws Error if there is such a file and it is no trace of this run, which could go on in it.
void require_trace_of(const std::string& path, const Trainer& trainer);

class TraceWriter {
 public:
  /// Begins the file. WriteError if it cannot be written. With `resumed` what it holds of earlier steps stays.
  TraceWriter(const std::string& path, const Trainer& trainer, int steps, bool resumed);
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  /// As a Watch::Listener.
  void tensor(const Event& event, const TensorKey& key, const Tally& tally, FaultRole role, const TensorStats& stats);
  /// Ends a step: its lines are in the file when this returns, unless they are held.
  void step(const StepResult& result);
  /// Keeps lines back until release(), which writes them or drops them.
  void hold() { held_ = true; }
  void release(bool write);

 private:
  void write();

  void gradient(const StepResult& result, const GradientError& error);

  std::string path_, pending_;
  std::optional<std::map<TensorKey, int>> seqs_;  ///< the first of that name in this step; of a run with gradient errors alone
  int file_ = -1, seq_ = 0;
  bool held_ = false;
};

}  // namespace ampcheck::checks::train
