// SPDX-License-Identifier: Apache-2.0
// The training runs that PyTorch did (shared/torch_goldens/training_run.json), repeated with our kernels, scaler and
// optimizer.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <stdexcept>
#include <tuple>

#include "checks/models/real_data.h"
#include "checks/train/trainer.h"
#include "tests/support/golden_coverage.h"
#include "tests/support/goldens.h"
#include "tests/support/paths.h"

namespace ampcheck::checks::train {
namespace {

using tests::Golden;
using tests::real;

std::vector<double> from_base64(const std::string& text) {
  std::vector<unsigned char> bytes;
  std::uint32_t held = 0;
  int bits = 0;
  for (const char c : text) {
    if (c == '=') break;
    const std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    if (alphabet.find(c) == std::string_view::npos) throw std::runtime_error("golden: base64");
    held = held << 6 | static_cast<std::uint32_t>(alphabet.find(c));
    if ((bits += 6) >= 8) bytes.push_back(static_cast<unsigned char>(held >> (bits -= 8)));
  }
  std::vector<float> values(bytes.size() / 4);
  std::memcpy(values.data(), bytes.data(), values.size() * 4);
  return {values.begin(), values.end()};
}

/// Largest relative difference of the losses, as the README of the goldens states what an independent program reached;
/// the bound is the next power of two of those figures.
double loss_bound(const std::string& mode, const std::string& loss) {
  const bool mse = loss == "mse";
  if (mode == "fp64") return 1e-12;
  if (mode == "fp32") return 0x1p-20;                 // README: 5e-7
  if (mode == "bf16") return mse ? 0x1p-22 : 0x1p-6;  // 2e-7 and 1.5e-2
  return mse ? 0x1p-11 : 0x1p-8;                      // fp16: 2.6e-4 and 2.9e-3
}

constexpr const char* kActivations[] = {"z1", "h1", "z2", "h2", "logits"};
constexpr const char* kWritten[] = {"linear_1", "relu_1", "linear_2", "relu_2", "linear_3"};  // by these ops
constexpr const char* kRead[] = {"relu_1", "linear_2", "relu_2", "linear_3",
                                 ""};  // and read by these; the last one by the loss

/// What a run of ours was, in the order of the record's activations and parameters.
struct OwnStep {
  StepResult result;
  double amax[5] = {}, zero_share[5] = {};
  std::vector<double> parameter_norms;
};
struct OwnRun {
  std::vector<OwnStep> steps;
  std::string activations[5], gradients[5], input, loss, parameter_gradients;
  std::map<std::string, std::vector<double>> weights;
};

const std::string& torch_name(Dtype dtype) {
  static const std::map<Dtype, std::string> names = {
      {Dtype::fp64, "float64"}, {Dtype::fp32, "float32"}, {Dtype::fp16, "float16"}, {Dtype::bf16, "bfloat16"}};
  return names.at(dtype);
}

TrainOptions options_of(const Golden& run) {
  TrainOptions options;
  options.net.model = "mlp";
  options.net.loss = run.at("loss_name").text;
  options.net.data = tests::in_source("/tests/data");
  const std::string& mode = run.at("mode").text;
  options.autocast = AutocastDevice::cpu;  // where torch ran it
  options.dtype = mode == "bf16" ? Dtype::bf16 : mode.starts_with("fp16") ? Dtype::fp16 : Dtype::fp32;
  options.scaler.enabled = !run.at("scaler").is_null();
  if (options.scaler.enabled) {
    options.scaler.init_scale = real(run.at("scaler").at("init_scale"));
    options.scaler.growth_interval = static_cast<std::int32_t>(real(run.at("scaler").at("growth_interval")));
  }
  options.rule.optimizer.lr = real(run.at("lr"));
  options.rule.optimizer.momentum = real(run.at("momentum"));
  options.norms = true;
  return options;
}

const Golden* golden_file() { return tests::load_golden("training_run.json"); }

void start(ParameterSet& parameters, const Golden& init, const Golden& shapes) {
  for (std::size_t i = 0; i < init.size(); ++i) {
    std::vector<std::int64_t> extents;
    for (const Golden& extent : shapes.at(init.keys[i])) extents.push_back(static_cast<std::int64_t>(extent.value));
    parameters.set(init.keys[i], Shape(std::span<const std::int64_t>(extents)), from_base64(init[i].text));
  }
}

void start(ParameterSet& parameters) {
  start(parameters, golden_file()->at("init_params_base64_le_fp32"), golden_file()->at("shapes"));
}

double norm_of(const std::vector<double>& values) {
  double squares = 0;
  for (const double v : values) squares += v * v;
  return std::sqrt(squares);
}

/// Watched, which changes no bit.
OwnRun run_in_steps(const TrainOptions& given, std::size_t steps) {
  TrainOptions options = given;
  options.watched = true;
  options.shadows = {};
  Trainer trainer(options);
  start(trainer.parameters());
  trainer.prepare();
  OwnRun out;
  OwnStep* step = nullptr;
  trainer.watch()->listen([&](const Event& e, const TensorKey& key, const Tally&, FaultRole, const TensorStats& stats) {
    const bool to_loss = key.op.starts_with("cross_entropy") || key.op.starts_with("mse_loss");
    for (int a = 0; a < 5; ++a) {
      if (e.phase == Phase::forward && !e.cast && key.op == kWritten[a]) {
        step->amax[a] = stats.amax();
        out.activations[a] = torch_name(key.dtype);
      }
      // Of what two ops write, the last: the loss's gradient is rounded to the dtype of the logits by a cast.
      const bool reads = kRead[a][0] == '\0' ? to_loss : key.op == kRead[a];
      if (e.phase == Phase::backward && reads && key.tensor == "dx" &&
          key.dtype == (options.dtype == Dtype::fp32 ? Dtype::fp32 : options.dtype)) {
        step->zero_share[a] = static_cast<double>(stats.zeros) / static_cast<double>(stats.count);
        out.gradients[a] = torch_name(key.dtype);
      }
    }
    if (e.phase == Phase::forward && !e.cast && to_loss) out.loss = torch_name(key.dtype);
    if (e.phase == Phase::forward && e.cast && key.op == "linear_1" && key.tensor == "x")
      out.input = torch_name(e.from);
  });
  if (options.dtype == Dtype::fp32) out.input = "float32";  // nothing casts it
  for (std::size_t i = 0; i < steps; ++i) {
    step = &out.steps.emplace_back();
    step->result = trainer.step();
    for (Parameter& p : trainer.parameters().all())
      step->parameter_norms.push_back(norm_of(to_doubles(p.value.view())));
  }
  for (Parameter& p : trainer.parameters().all()) {
    out.weights[p.name] = to_doubles(p.value.view());
    out.parameter_gradients = torch_name(p.grad.dtype());
  }
  return out;
}

/// Each run once: entries of which one fact was changed play it again where that changes what is run.
const OwnRun& own_run(const Golden& run) {
  static std::map<std::tuple<std::string, Dtype, bool, double, double, double, double>, OwnRun> runs;
  const TrainOptions o = options_of(run);
  const std::tuple key(o.net.loss, o.dtype, o.scaler.enabled, o.scaler.init_scale,
                       static_cast<double>(o.scaler.growth_interval), o.rule.optimizer.lr, o.rule.optimizer.momentum);
  const auto known = runs.find(key);
  return known != runs.end() ? known->second : runs.emplace(key, run_in_steps(o, 50)).first->second;
}

/// torch's run in that mode with this loss, as the file has it: bounds are not made of the entry that they judge.
const Golden& torch_run(const std::string& mode, const std::string& loss) {
  for (const Golden& run : golden_file()->at("runs"))
    if (run.at("mode").text == mode && run.at("loss_name").text == loss) return run;
  throw std::runtime_error("golden: " + mode + " with loss '" + loss + "'");
}

/// Two programs that round alike but add in another order are no further apart than each may be from the run without
/// rounding, for which torch's own distance from its fp64 run stands: over all steps the most of it, twice. It holds
/// for any quantity of the run. `of`: takes it from a step.
double apart_bound(const Golden& run, const std::function<double(const Golden&)>& of) {
  const std::string& loss = run.at("loss_name").text;
  const Golden &mine = torch_run(run.at("mode").text, loss).at("steps"), &exact = torch_run("fp64", loss).at("steps");
  double most = 0;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    const double apart = std::fabs(of(mine[i]) - of(exact[i]));
    if (std::isfinite(apart)) most = std::max(most, apart);
  }
  return 2 * most;
}

void near_or_alike(double got, double want, double bound, const std::string& where) {
  if (!std::isfinite(want)) {
    EXPECT_FALSE(std::isfinite(got)) << where;
    return;
  }
  EXPECT_LE(std::fabs(got - want), bound) << where << ": " << got << ", torch " << want;
}

void compare_dtypes(const OwnRun& own, const Golden& dtypes) {
  EXPECT_EQ(own.input, dtypes.at("input").text);
  EXPECT_EQ(own.loss, dtypes.at("loss").text);
  for (std::size_t a = 0; a < 5; ++a) {
    EXPECT_EQ(own.activations[a], dtypes.at(kActivations[a]).text) << kActivations[a];
    EXPECT_EQ(own.gradients[a], dtypes.at("grad_of").at(kActivations[a]).text) << kActivations[a];
  }
  for (const Golden& dtype : dtypes.at("param_grads")) EXPECT_EQ(own.parameter_gradients, dtype.text);
}

/// What does not depend on the order of a sum: scales, skips. And step 0, where only roundings of that step differ.
void compare_step(const OwnStep& own, const Golden& step, const std::string& mode, const std::string& where) {
  const StepResult& got = own.result;
  EXPECT_EQ(got.step, static_cast<int>(step.at("step").value)) << where;
  EXPECT_EQ(got.scale, real(step.at("scale"))) << where;
  EXPECT_EQ(got.scale_after, real(step.at("scale_after"))) << where;
  EXPECT_EQ(got.tracker, static_cast<std::int32_t>(step.at("tracker_after").value)) << where;
  EXPECT_EQ(got.stepped ? 1 : 0, step.at("stepped").value) << where;
  EXPECT_EQ(got.found_inf ? 1 : 0, step.at("found_inf").value) << where;
  ASSERT_EQ(got.norms.size(), step.at("grad_norms").size()) << where;
  if (got.step > 0) return;
  // Sums in another order differ by roundings of fp32; after the rounding to 16 bits a few of thousands of elements
  // show it.
  const double close = mode == "fp32" ? 0x1p-22 : 0x1p-19, want = real(step.at("loss"));
  EXPECT_NEAR(got.loss, want, std::fabs(want) * 0x1p-22) << where;
  for (std::size_t p = 0; p < got.norms.size(); ++p) {
    EXPECT_NEAR(got.scaled_norms[p], real(step.at("scaled_grad_norms")[p]),
                real(step.at("scaled_grad_norms")[p]) * close)
        << where;
    EXPECT_NEAR(got.norms[p], real(step.at("grad_norms")[p]), real(step.at("grad_norms")[p]) * close) << where;
  }
  const double unit = mode == "fp32"   ? 0x1p-22
                      : mode == "bf16" ? 0x1p-7
                                       : 0x1p-10;  // one element: an ulp of its format
  for (std::size_t a = 0; a < 5; ++a) {
    const double amax = real(step.at("max_abs_activation").at(kActivations[a]));
    EXPECT_NEAR(own.amax[a], amax, amax * unit) << where << " " << kActivations[a];
  }
}

/// Every step, each quantity within apart_bound().
void compare_course(const OwnRun& own, const Golden& run, const std::string& what) {
  const Golden& steps = run.at("steps");
  for (std::size_t p = 0; p < 6; ++p)
    for (const char* list : {"grad_norms", "param_norms"}) {
      const double bound = apart_bound(run, [&](const Golden& step) { return real(step.at(list)[p]); });
      for (std::size_t i = 0; i < steps.size(); ++i)
        near_or_alike(list[0] == 'g' ? own.steps[i].result.norms[p] : own.steps[i].parameter_norms[p],
                      real(steps[i].at(list)[p]), bound,
                      what + " step " + std::to_string(i) + " " + list + " " + std::to_string(p));
    }
  for (std::size_t p = 0; p < 6; ++p) {
    const double bound = apart_bound(run, [&](const Golden& step) { return real(step.at("grad_norms")[p]); });
    for (std::size_t i = 0; i < steps.size(); ++i)
      near_or_alike(own.steps[i].result.scaled_norms[p], real(steps[i].at("scaled_grad_norms")[p]),
                    bound * own.steps[i].result.scale,
                    what + " step " + std::to_string(i) + " scaled gradient " + std::to_string(p));
  }
  for (std::size_t a = 0; a < 5; ++a)
    for (const char* fact : {"max_abs_activation", "activation_grad_zero_fraction"}) {
      const double bound =
          apart_bound(run, [&](const Golden& step) { return real(step.at(fact).at(kActivations[a])); });
      for (std::size_t i = 0; i < steps.size(); ++i)
        near_or_alike(fact[0] == 'm' ? own.steps[i].amax[a] : own.steps[i].zero_share[a],
                      real(steps[i].at(fact).at(kActivations[a])), bound,
                      what + " step " + std::to_string(i) + " " + fact + " " + kActivations[a]);
    }
}

/// The weights at the end, by the 2-norm of the difference.
void compare_weights(const std::map<std::string, std::vector<double>>& own, const Golden& run, double within,
                     const std::string& what) {
  const char* const key = "final_params_base64_le_fp32";
  const std::string& loss = run.at("loss_name").text;
  const Golden &end = run.at(key), &rounded = torch_run(run.at("mode").text, loss).at(key),
               &exact = torch_run("fp64", loss).at(key);
  for (std::size_t p = 0; p < end.size(); ++p) {
    const std::string& name = end.keys[p];
    const std::vector<double> want = from_base64(end[p].text), with = from_base64(rounded.at(name).text),
                              without = from_base64(exact.at(name).text), &got = own.at(name);
    ASSERT_EQ(got.size(), want.size()) << what;
    std::vector<double> apart(want.size()), allowed(want.size());
    for (std::size_t i = 0; i < want.size(); ++i) {
      apart[i] = got[i] - want[i];
      allowed[i] = with[i] - without[i];
    }
    EXPECT_LE(norm_of(apart), 2 * norm_of(allowed) + within * norm_of(want)) << what << " " << end.keys[p];
  }
}

void compare_skips(const Golden& run, const OwnRun& own) {
  std::vector<double> got, want;
  for (const OwnStep& step : own.steps)
    if (!step.result.stepped) got.push_back(step.result.step);
  for (const Golden& step : run.at("skipped_steps")) want.push_back(step.value);
  EXPECT_EQ(got, want);
}

/// The largest activations and the share of zeros among their gradients, where nothing is rounded to less than fp64.
void compare_activations_in_fp64(const models::StepRecord& record, const Golden& step) {
  for (std::size_t a = 0; a < 5; ++a) {
    const auto id = static_cast<std::size_t>(record.find(kWritten[a])->output);
    const std::vector<double>&values = record.values[id], &gradient = record.cotangents[id];
    double amax = 0;
    for (const double v : values) amax = std::max(amax, std::fabs(v));
    const double want = real(step.at("max_abs_activation").at(kActivations[a]));
    EXPECT_NEAR(amax, want, want * loss_bound("fp64", "")) << kActivations[a];
    EXPECT_EQ(
        static_cast<double>(std::count(gradient.begin(), gradient.end(), 0.0)) / static_cast<double>(gradient.size()),
        real(step.at("activation_grad_zero_fraction").at(kActivations[a])))
        << kActivations[a];
  }
}

void play_in_fp64(const Golden& run) {
  const TrainOptions options = options_of(run);
  ParameterSet init("mlp", 1);
  start(init);
  Fp64Run fp64(make_net(options.net), options.rule, 1);
  fp64.start_from(init);
  for (const Golden& step : run.at("steps")) {
    const double want = real(step.at("loss"));
    EXPECT_LE(std::fabs(fp64.step() - want) / want, loss_bound("fp64", ""));
    compare_activations_in_fp64(fp64.records().front(), step);
    std::size_t p = 0;
    for (const Parameter& parameter : fp64.parameters().all()) {
      const double norm = real(step.at("param_norms")[p]), gradient = real(step.at("grad_norms")[p]);
      EXPECT_NEAR(norm_of(to_doubles(parameter.value.view())), norm, norm * loss_bound("fp64", "")) << parameter.name;
      EXPECT_NEAR(norm_of(to_doubles(fp64.gradient(parameter).view())), gradient, gradient * loss_bound("fp64", ""))
          << parameter.name;
      ++p;
    }
  }
  std::map<std::string, std::vector<double>> weights;
  for (const Parameter& parameter : fp64.parameters().all())
    weights[parameter.name] = to_doubles(parameter.value.view());
  compare_weights(weights, run, 0x1p-24, "fp64");  // the record's are fp32
}

void play_run(const Golden& run) {
  const std::string &mode = run.at("mode").text, what = mode + " " + run.at("loss_name").text;
  SCOPED_TRACE(what);
  if (mode == "fp64") return play_in_fp64(run);
  const OwnRun& own = own_run(run);
  compare_dtypes(own, run.at("dtypes"));
  double worst = 0;
  for (std::size_t i = 0; i < run.at("steps").size(); ++i) {
    const Golden& step = run.at("steps")[i];
    const double want = real(step.at("loss"));
    worst = std::max(worst, std::fabs(own.steps[i].result.loss - want) / std::fabs(want));
    compare_step(own.steps[i], step, mode, what + " step " + std::to_string(i));
  }
  EXPECT_LE(worst, loss_bound(mode, run.at("loss_name").text)) << what;
  compare_course(own, run, what);
  compare_weights(own.weights, run, 0, what);
  compare_skips(run, own);
}
/// Other weights, or of another shape: the first step says so.
void play_start(const Golden& init, const Golden& shapes) {
  const Golden& run = torch_run("fp32", "mse");
  Trainer trainer(options_of(run));
  start(trainer.parameters(), init, shapes);
  EXPECT_NEAR(trainer.step().loss, real(run.at("steps")[0].at("loss")), real(run.at("steps")[0].at("loss")) * 0x1p-22);
}
const tests::Played played_init("training_run.json", "init_params_base64_le_fp32",
                                [](const Golden&init) { play_start(init, golden_file()->at("shapes")); }),
    played_shapes("training_run.json", "shapes",
                  [](const Golden&shapes) { play_start(golden_file()->at("init_params_base64_le_fp32"), shapes); });
const tests::Played played_runs("training_run.json", "runs", play_run);

TEST(TrainingRun, EveryRunOfTheGoldenIsMatched) {
  AMPCHECK_GOLDEN_OR_SKIP(golden, "training_run.json");
  for (const Golden& run : golden.at("runs")) play_run(run);
}

}  // namespace
}  // namespace ampcheck::checks::train
