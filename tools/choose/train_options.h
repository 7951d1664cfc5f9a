// SPDX-License-Identifier: Apache-2.0
// Options of train and memory: the net, and how it is trained.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checks/train/judge_mode.h"
#include "checks/train/step_rule.h"
#include "src/amp/autocast_tables.h"
#include "src/device.h"
#include "tools/choose/case_options.h"
#include "tools/choose/other_data_options.h"
#include "tools/choose/run_options.h"

namespace ampcheck::tools {

/// What a step takes memory for: the net, its batch, and what the optimizer keeps.
struct NetOptions : CommonOptions, IsolationOptions {
  std::optional<Dtype> dtype = {};  ///< that the net is trained in; none: fp16
  bool fp8 = false;                 ///< its linear layers in fp8, the rest in `dtype`
  std::string optimizer = "sgd";
  std::vector<checks::train::LayerOptimizer> further = {};  ///< optimizers of some layers
  double momentum = -1;                                     ///< negative: the model's or optimizer's own
  bool nesterov = false;
  std::string loss = {};  ///< empty: the net's own; several with commas between
  std::int64_t batch = 0, width = 0;
  std::uint64_t seed = 1;
  std::string data =
      {};  ///< digits, text or random; or the folder that holds digits and text; empty: the installed one
};

struct MemoryOptions : NetOptions {
  std::string model = {};  ///< by name, or a TOML file
  double parameters = 0;   ///< instead of a model: so many
  double share = 0;        ///< of the gradients that is in fp32 at a time; 0: not asked
};
void add_options(CLI::App* command, MemoryOptions& o);

struct TrainOptions : NetOptions {
  std::string config = {};  ///< TOML file of the user's own net and the run's settings; empty: `model`
  std::string model = "mlp", shadow = "both";
  std::string scaler = {};                       ///< torch, another framework's, or none; empty: torch for fp16
  double init_scale = -1, growth_interval = -1;  ///< negative: the rule's own
  double lr = -1, weight_decay = -1;             ///< negative: the model's or optimizer's own
  std::string fp8_recipe = {};                   ///< empty: delayed
  double clip_norm = 0, clip_value = 0, loss_weight = 1, grad_penalty = 0;
  bool fused = false, keep_low_precision_grads = false;
  checks::train::Weights weights = checks::train::Weights::fp32;
  std::optional<Dtype> moments = {}, second_moment = {};
  std::optional<AutocastDevice> autocast = {};  ///< whose lists
  int steps = 50, accumulate = 1, ranks = 1;    ///< accumulate: micro-batches a step
  int spread_seeds = -1;                        ///< negative: the usual number
  bool sharded = false;                         ///< over the ranks
  std::optional<bool> tree = {};                ///< of the sum over ranks, which is a ring otherwise
  std::optional<bool> divide_after = {};
  std::optional<Dtype> compress = {};                  ///< of the gradients on their way between ranks
  std::string schedule = {};                           ///< of the learning rate
  std::optional<bool> backward_each = {};              ///< of several losses
  std::string record = {};                             ///< file for the trace
  std::string save = {}, resume = {};                  ///< checkpoints
  std::optional<checks::train::JudgeMode> judge = {};  ///< none: sampled, unless nothing else runs beside
  std::string save_case = {};                          ///< folder for the tensors of calls that are wrong
  std::string ops = "*";                               ///< pattern of the ops that are looked at
  int ring = -1;            ///< steps before a fault that a sampled trace gets in full; 0: none, -1: the usual number
  int every = 0, from = 0;  ///< and the steps; every 0: as many as a recorded run of that length has
  Device device = Device::cpu;
  int jobs = 0;
};
void add_options(CLI::App* command, TrainOptions& o);

/// What is diagnosed: a training run as `train` takes it, or by `words` other data.
struct DiagnoseOptions : TrainOptions {
  std::vector<std::string> words = {};
  OtherDataOptions other = {};
  int most_runs = 0;      ///< of experiments; 0: as many as it takes
  std::string page = {};  ///< file for the page of the run, with the causal chain
};
void add_options(CLI::App* command, DiagnoseOptions& o);

/// Takes the settings in the table [train] of a net's TOML file: options of `train` by name, with _ for -, which
/// `command` has too and the command line does not give. UsageError for what is no setting.
void take_settings(const CLI::App& train, const CLI::App& command, const std::string& path);

}  // namespace ampcheck::tools
