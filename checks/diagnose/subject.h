// SPDX-License-Identifier: Apache-2.0
// What is diagnosed: a training run that can be made again, as it is or with one thing changed.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "checks/diagnose/raising_tape.h"
#include "checks/train/trainer.h"

namespace ampcheck::checks::diagnose {

using Fault = std::function<void(const train::Event&)>;

struct Subject {
  train::TrainOptions options;
  int steps = 50;
  std::function<Fault()> make_fault =
      nullptr;  ///< what the run's own code does to its tensors; a new one for each trainer
  std::function<void(train::Trainer&)> install = nullptr;  ///< what the run's own loop changes in a prepared trainer

  train::Net net() const { return options.own_net ? *options.own_net : train::make_net(options.net); }
};

/// One thing that an experiment changes. Everything else stays.
struct Change {
  Ops raised = {};               ///< E2, E3: in fp32
  Ops repaired = {};             ///< E2: results are those of their formulas, rounded once to the type that they have
  bool stochastic = false;       ///< E5: of `repaired`, rounded at random with these odds instead
  Ops rounded = {};              ///< E2: what they write in fp32 is rounded to the run's 16 bits
  bool everything_fp32 = false;  ///< E7 on this machine's kernels: no autocast, no 16-bit weights or gradients
  std::optional<double> scale = {};  ///< E1: a loss scale that stays
  std::optional<Dtype> dtype = {};   ///< of autocast
  bool without_fp8 = false;          ///< E2: linear layers in 16 bits as all else
  bool fp32_optimizer = false;       ///< E4: weights (or masters) and moments in fp32
  Ops current_fp8 = {};  ///< E2: results are those of their formulas in e4m3, each tensor by its own largest magnitude
  bool fp8_by_recipe = false;     ///< E2: scales and formats as the recipe says
  bool fp8_current = false;       ///< E2: scales by the tensors themselves, no history
  bool finite_masks = false;      ///< E2: numbers of the data beyond the run's type are its largest ones
  bool right_loop = false;        ///< what the run's own loop changes is left out
  double rate = 1;                ///< E7: the learning rates times this
  bool keep_activations = false;  ///< E8: nothing is computed again for the backward
  bool one_rank = false;          ///< E6: the ranks' batches one after the other, summed in fp32
  std::optional<double> init_scale = {};
  std::uint64_t seed = 0;  ///< of stochastic

  /// What tells it from another; empty: nothing is changed.
  std::string key() const;
};

/// The subject with the change as its own.
Subject with_change(const Subject& subject, const Change& change);

/// A trainer of the subject with the change, before its first step. Throws Error for a change that this run cannot
/// have.
std::unique_ptr<train::Trainer> make_trainer(const Subject& subject, const Change& change, train::Shadows shadows,
                                             int spread_seeds);

/// Takes a fresh trainer, of a change too, to where a checkpoint of the subject was: types are converted, state that
/// the change has no use for is left out, and a changed loss scale stays. Not of sharded runs.
void transplant(train::Trainer& trainer, std::string_view checkpoint, bool keep_scale);

}  // namespace ampcheck::checks::diagnose
