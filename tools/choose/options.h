// SPDX-License-Identifier: Apache-2.0
// The command line as data.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checks/data/call_data.h"
#include "checks/data/regimes.h"
#include "checks/define/op_def.h"
#include "checks/train/optimizer_choice.h"
#include "src/amp/autocast_tables.h"
#include "src/device.h"
#include "src/dtype.h"
#include "src/rounding.h"
#include "tools/report/usage_error.h"

namespace ampcheck::tools {

/// "-o FORMAT:FILE"
struct ReportFile {
  enum class Format { json, junit, lines, html, csv } format = Format::json;
  std::string path;
};

/// Shapes that `--shapes` admits.
struct ShapeFilter {
  enum class Kind { all, first, standard, extents } kind = Kind::all;
  Dims extents = {};  ///< "N=64,D=1025": these extents instead of the generated ones
};

/// Whether to check at the tensors of real runs.
enum class RealTensors {
  found,  ///< too, where their data is found
  on,     ///< too; no data is an error
  only,
  off,
};

/// A tolerance rule that `audit gate` tests.
struct GateFlags {
  std::optional<double> atol, rtol, matched, mean, nmse, cosine, factor;
  std::string rules;  ///< TOML file with a rule for each storage type
  std::string range;  ///< data regime of the cases; empty: normal
  bool rounded_reference = false;
};

/// train: what is trained and how.
struct TrainChoices {
  std::string config = {};  ///< TOML file of the user's own net and the run's settings; empty: `model`
  std::string model = "mlp", optimizer = "sgd", shadow = "both";
  std::string loss = {};                             ///< empty: the net's own
  std::string scaler = {};                           ///< torch, another framework's, or none; empty: torch for fp16
  double init_scale = -1, growth_interval = -1;      ///< negative: the rule's own
  double lr = -1, momentum = -1, weight_decay = -1;  ///< negative: the model's or optimizer's own
  double clip_norm = 0, clip_value = 0, loss_weight = 1, grad_penalty = 0;
  bool nesterov = false, fused = false, keep_low_precision_grads = false;
  checks::train::Weights weights = checks::train::Weights::fp32;
  std::optional<Dtype> moments = {};
  std::optional<AutocastDevice> autocast = {};  ///< whose lists
  int steps = 50, accumulate = 1, ranks = 1;
  int spread_seeds = -1;  ///< negative: the usual number
  bool sharded = false;   ///< over the ranks
  std::optional<bool> tree = {},
                      divide_after = {};  ///< of the sum over ranks, which is a ring and divided before otherwise
  std::optional<Dtype> compress = {};     ///< of the gradients on their way between ranks
  std::int64_t batch = 0, width = 0;
  std::string schedule = {};           ///< of the learning rate
  std::string record = {};             ///< file for the trace
  std::string save = {}, resume = {};  ///< checkpoints
  std::string ops = "*";               ///< pattern of the ops that are looked at
  int ring = -1;            ///< steps before a fault that a sampled trace gets in full; 0: none, -1: the usual number
  int every = 0, from = 0;  ///< and the steps; every 0: as many as a recorded run of that length has
};

struct Options {
  std::string verb;
  std::vector<std::string> words;                     ///< selectors, ops, values or codes, as the verb has them
  std::vector<const checks::OpDef*> plugin_ops = {};  ///< of the library among the words; empty: the built-in ops
  std::vector<std::string> refused =
      {};  ///< what is wrong with ops of the library that were asked for: the others are looked at
  bool json = false;
  bool verbose = false;

  // Which cases.
  std::vector<Dtype> dtypes = {};  ///< empty: all of the op's contract
  std::uint64_t seeds = 1;         ///< seeds first_seed, first_seed + 1, ...
  std::uint64_t first_seed = 1;
  ShapeFilter shapes = {};
  checks::CaseSet set = checks::CaseSet::standard;
  RealTensors real = RealTensors::found;
  std::string data = {};    ///< folder of their data; empty: the installed one
  std::string inputs = {};  ///< check, replay: file or folder of the user's own inputs and cotangents
  std::shared_ptr<const CallData> call_data = nullptr;  ///< what data and inputs name, once open_data() read it
  std::string dump = {};     ///< check: file or folder of inputs, outputs and gradients that are to be judged
  std::string formula = {};  ///< check --dump: an op, or a formula as text
  Accumulator accumulate = Dtype::fp32;  ///< check --dump: of the contract
  std::string math = "cuda";             ///< check --dump: functions of the contract, cuda, glibc or own

  GateFlags gate = {};

  // How they run, and where the results go.
  Device device = Device::cpu;
  int jobs = 0;
  bool relations = true;
  bool isolation = true;    ///< kernels of a library run in worker processes
  std::int64_t memory = 0;  ///< bytes that the cases that run at a time may take; 0: four fifths of what is free
  double time_budget = 0;   ///< seconds after which no further case starts; 0: none
  double timeout = 60;      ///< seconds that a case may take in a worker
  std::vector<ReportFile> reports = {};
  std::string journal = {};  ///< check: file to which each case is written before and after it runs

  bool cases = false;                     ///< list: case names
  bool planted = false;                   ///< list: the planted faults and correct variants
  std::string door = "cpp";               ///< new op: cpp, c or toml
  std::string save = {};                  ///< replay: folder, .safetensors or .npz file for the tensors
  int samples = 8;                        ///< certify: coordinates per input and form
  std::vector<std::string> formats = {};  ///< formats: only these
  RoundingMode rounding = {};
  TrainChoices train = {};
  bool csv = false;    ///< trace: rows on standard output
  bool times = false;  ///< facts: times of products in place of the claims
};

/// The options of a command line. Text for the user (help, version) is returned in `help`, and nothing is to be run
/// then. Throws UsageError with "did you mean" for whatever is unknown.
Options parse_options(int argc, char** argv, std::optional<std::string>& help);

}  // namespace ampcheck::tools
