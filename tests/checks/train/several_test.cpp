// SPDX-License-Identifier: Apache-2.0
// Several losses and several optimizers: as torch runs them (tests/data/make_torch_two_losses.py), and what is said of
// them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "checks/train/checkpoint.h"
#include "checks/train/net_toml.h"
#include "checks/train/trainer.h"
#include "src/error.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"

namespace ampcheck::checks::train {
namespace {

constexpr const char* kNet = R"(
data = "digits"
[[layers]]
type = "linear"
outputs = 32
name = "body"
[[layers]]
type = "tanh"
name = "hidden"
[[layers]]
type = "linear"
outputs = 10
name = "classes"
[[layers]]
type = "linear"
outputs = 64
from = "hidden"
name = "pixels"
)";

Net net_of(const std::string& losses, std::int64_t batch = 32) {
  return read_net(TomlFile(kNet, "net.toml"), {.loss = losses, .batch = batch}, tests::in_data_root("/tests/data"));
}

StepRule three_optimizers() {
  StepRule rule;
  rule.optimizer = {.name = "sgd", .lr = 0.05, .momentum = 0.9};
  rule.further = {{{"classes"}, {.name = "adam", .lr = 0.003, .weight_decay = 0}},
                  {{"pixels"}, {.name = "sgd", .lr = 0.02, .weight_decay = 0}}};
  return rule;
}

TrainOptions run_of(const nlohmann::json& torch) {
  TrainOptions out;
  const double weight = torch.at("weight");
  out.own_net = net_of("cross_entropy*" + std::to_string(weight) + "@classes,mse@pixels");
  out.rule = three_optimizers();
  out.rule.backward_each = torch.at("backward") == "each";
  out.dtype = torch.at("dtype") == "float16" ? Dtype::fp16 : Dtype::bf16;
  out.autocast = AutocastDevice::cpu;
  out.scaler.enabled = !torch.at("scaler").is_null();
  if (out.scaler.enabled) {
    out.scaler.init_scale = torch.at("scaler").at("init_scale");
    out.scaler.growth_interval = torch.at("scaler").at("growth_interval");
  }
  return out;
}

void start_as_torch(ParameterSet& parameters) {
  const std::pair<const char*, Shape> shapes[] = {{"body.weight", {32, 64}},    {"body.bias", {32}},
                                                  {"classes.weight", {10, 32}}, {"classes.bias", {10}},
                                                  {"pixels.weight", {64, 32}},  {"pixels.bias", {64}}};
  for (const auto& [name, shape] : shapes) {
    std::vector<double> values;
    for (std::int64_t i = 0; i < shape.count(); ++i)
      values.push_back(static_cast<double>(i * 37 % 101 - 50) / (shape.rank > 1 ? 256 : 4096));
    parameters.set(name, shape, values);
  }
}

nlohmann::json torch_runs(const char* kind = "runs") {
  std::ifstream file(tests::in_data_root("/tests/data/torch_two_losses.json"));
  return nlohmann::json::parse(file).at(kind);
}

/// Two programs that round alike but add in another order are no further apart than each may be from the run without
/// rounding, for which torch's own distance from its fp64 run stands: over all steps the most of it, twice.
double bound_of(const nlohmann::json& run, std::size_t number, const std::string& what = "losses") {
  double most = 0;
  for (const auto& step : run.at("steps")) {
    const auto &got = step.at(what).at(number), &exact = step.at("fp64_" + what).at(number);
    if (got.is_null() || exact.is_null()) continue;  // no norm, or one that is not finite
    most = std::max(most, std::fabs(got.get<double>() - exact.get<double>()));
  }
  return 2 * most;
}

TEST(Several, LossesScalesAndSkipsOfEachOptimizerAreTorchs) {
  const nlohmann::json runs = torch_runs();
  ASSERT_EQ(runs.size(), 4u);
  for (const nlohmann::json& torch : runs) {
    SCOPED_TRACE(torch.at("backward").get<std::string>() + " " + torch.at("dtype").get<std::string>());
    Trainer trainer(run_of(torch));
    start_as_torch(trainer.parameters());
    std::vector<int> skips(3);
    for (const nlohmann::json& want : torch.at("steps")) {
      const StepResult got = trainer.step();
      EXPECT_EQ(got.scale, want.at("scale").get<double>()) << got.step;
      EXPECT_EQ(got.scale_after, want.at("scale_after").get<double>()) << got.step;
      ASSERT_EQ(got.optimizers.size(), 3u);
      ASSERT_EQ(got.losses.size(), 2u);
      for (std::size_t k = 0; k < 3; ++k) {
        skips[k] += want.at("stepped").at(k).get<bool>() ? 0 : 1;
        EXPECT_EQ(got.optimizers[k].stepped, want.at("stepped").at(k).get<bool>()) << got.step << " " << k;
        EXPECT_EQ(got.optimizers[k].skips, skips[k]) << got.step << " " << k;
      }
      for (std::size_t k = 0; k < 2; ++k)
        EXPECT_NEAR(got.losses[k], want.at("losses").at(k).get<double>(), bound_of(torch, k)) << got.step << " " << k;
    }
    if (trainer.options().dtype != Dtype::fp16) continue;
    EXPECT_EQ(skips, (std::vector<int>{3, 6, 0})) << "each by itself, or the record shows little";
  }
}

/// The same loss in other words is no fault; nor is one that skips by itself.
TEST(Several, CorrectRunsAreNotFlagged) {
  for (const nlohmann::json& torch : torch_runs()) {
    SCOPED_TRACE(torch.at("backward").get<std::string>() + " " + torch.at("dtype").get<std::string>());
    TrainOptions options = run_of(torch);
    options.autocast = AutocastDevice::cuda;
    options.shadows = {.local = true, .carried = true};
    options.judge = JudgeMode::sampled;
    options.check_steps = true;
    Trainer trainer(options);
    for (int i = 0; i < 8; ++i) trainer.step();
    for (const RunFinding& f : trainer.findings())
      ADD_FAILURE() << text_of(f.code).name << " " << f.where << " " << f.what;
  }
}

/// Planted: the second backward counts the first loss again; the second optimizer has the first one's rate; it never
/// steps.
TEST(Several, PlantedFaultsAreFound) {
  const auto found = [](const std::function<void(TrainOptions&)>& change, RunCode code) {
    TrainOptions options = run_of(torch_runs().at(3));
    options.shadows = {.local = true, .carried = true};
    options.check_steps = true;
    change(options);
    Trainer trainer(options);
    for (int i = 0; i < 8; ++i) trainer.step();
    for (const RunFinding& f : trainer.findings())
      if (f.code == code) return f.where + ": " + f.what;
    return std::string();
  };
  const std::string twice = found(
      [](TrainOptions& o) {
        o.plant = [](Stage stage, ParameterSet& parameters, double) {
          if (stage != Stage::accumulated) return;
          Parameter& p = *parameters.find("classes.weight");
          for (float& g : p.grad.span<float>()) g *= 2;
        };
      },
      RunCode::sum);
  EXPECT_NE(twice.find("classes.weight"), std::string::npos) << twice;
  const std::string rate = found(
      [](TrainOptions& o) {
        o.planted_optimizer = o.rule.optimizer;
        o.planted_optimizer->lr = 0.02;
      },
      RunCode::update);
  EXPECT_NE(rate.find("body"), std::string::npos) << rate;
  const std::string never = found(
      [](TrainOptions& o) {
        o.scaler.enabled = true;
        o.plant = [](Stage stage, ParameterSet& parameters, double) {
          if (stage == Stage::accumulated) parameters.find("pixels.bias")->grad.span<float>()[3] = NAN;
        };
      },
      RunCode::all_skipped);
  EXPECT_NE(never.find("optimizer 3 (sgd of pixels): it skipped 8 of 8 steps"), std::string::npos) << never;
}

TEST(Several, ResumeIsBitForBit) {
  const nlohmann::json torch = torch_runs().at(2);
  TrainOptions options = run_of(torch);
  options.rule.schedule = "step:2:0.5";  // each optimizer's follows its own updates
  Trainer whole(options), first(options), second(options);
  std::vector<double> losses;
  for (int i = 0; i < 10; ++i) losses.push_back(whole.step().loss);
  for (int i = 0; i < 5; ++i) first.step();
  resume(second, checkpoint_bytes(first), "file");
  for (std::size_t i = 5; i < 10; ++i) EXPECT_EQ(second.step().loss, losses[i]) << i;
  EXPECT_EQ(second.skips_by_optimizer(), whole.skips_by_optimizer());
  EXPECT_EQ(second.optimizers().at(1).lr(), whole.optimizers().at(1).lr());
}

/// Shards of each are updated by each.
TEST(Several, ShardedIsUnsharded) {
  TrainOptions options = run_of(torch_runs().at(2));
  options.rule.ranks = 2;
  TrainOptions sharded = options;
  sharded.sharding.on = true;
  Trainer a(options), b(sharded);
  for (int i = 0; i < 8; ++i) {
    const StepResult x = a.step(), y = b.step();
    EXPECT_EQ(x.loss, y.loss) << i;
    for (std::size_t k = 0; k < 3; ++k) EXPECT_EQ(x.optimizers[k].skips, y.optimizers[k].skips) << i << " " << k;
  }
}

/// The second optimizer clips its gradients to a norm of their own, the third each element; the first one's are clipped
/// without them.
TrainOptions clipped_apart() {
  TrainOptions options = run_of(torch_runs().at(2));
  options.rule.clip_norm = 0.5;
  options.rule.further[0].clip_norm = 0.25;
  options.rule.further[1].clip_value = 0.001;
  options.norms = true;
  options.shadows = {.local = true, .carried = true};
  options.check_steps = true;
  return options;
}

TEST(Several, EachClipsItsOwnGradients) {
  Trainer trainer(clipped_apart());
  int clipped = 0;
  for (int i = 0; i < 10; ++i) {
    const StepResult got = trainer.step();
    double norms[3] = {};
    for (std::size_t p = 0; p < got.norms.size(); ++p) {
      double& norm = norms[trainer.optimizers().of(p)];
      norm = std::hypot(norm, got.norms[p]);
    }
    ASSERT_TRUE(got.clipping && got.clipping->norm);
    const auto& own = got.optimizers[1].clipping;
    ASSERT_TRUE(own && own->norm && got.optimizers[2].clipping);
    EXPECT_FALSE(got.optimizers[0].clipping) << "it clips what no other one does";
    EXPECT_FALSE(got.optimizers[2].clipping->norm);
    if (!std::isfinite(norms[0] + norms[1])) continue;
    ++clipped;
    const double apart = 64 * kFp32.unit_roundoff();
    EXPECT_NEAR(*got.clipping->norm, norms[0], apart * norms[0]) << i;
    EXPECT_NEAR(*own->norm, norms[1], apart * norms[1]) << i;
    EXPECT_NEAR(own->factor, std::min(1.0, 0.25 / (norms[1] + 1e-6)), apart) << i;
    EXPECT_GT(got.optimizers[2].clipping->elements, 0) << i;
  }
  EXPECT_GT(clipped, 3);
  for (const RunFinding& f : trainer.findings())
    ADD_FAILURE() << text_of(f.code).name << " " << f.where << " " << f.what;
}

/// The same in torch, which clips the parameters of each optimizer after its unscale_.
TrainOptions clipped_run_of(const nlohmann::json& torch) {
  TrainOptions out = run_of(torch);
  const auto limit = [&](std::size_t k, std::size_t which) {
    const nlohmann::json& value = torch.at("clip").at(k).at(which);
    return value.is_null() ? 0.0 : value.get<double>();
  };
  out.rule.clip_norm = limit(0, 0);
  out.rule.clip_value = limit(0, 1);
  for (std::size_t k = 1; k < 3; ++k) {
    out.rule.further[k - 1].clip_norm = limit(k, 0);
    out.rule.further[k - 1].clip_value = limit(k, 1);
  }
  out.norms = true;
  return out;
}

/// 2-norms over each optimizer's parameters, of their gradients or of the weights.
std::vector<double> norms_by_optimizer(Trainer& trainer, bool weights) {
  std::vector<double> out(trainer.optimizers().size());
  auto& all = trainer.parameters().all();
  for (std::size_t p = 0; p < all.size(); ++p)
    for (const float v : (weights ? all[p].value : all[p].grad).span<float>()) {
      double& norm = out[trainer.optimizers().of(p)];
      norm = std::hypot(norm, static_cast<double>(v));
    }
  return out;
}

/// What of a run is not torch's. Numbers that torch has none of (not finite, or not clipped) are no difference of a
/// number here.
std::vector<std::string> departures(const nlohmann::json& torch, const TrainOptions& options) {
  std::vector<std::string> out;
  Trainer trainer(options);
  start_as_torch(trainer.parameters());
  constexpr double kElements[] = {32 * 64 + 32, 10 * 32 + 10, 64 * 32 + 64};  // of body, classes, pixels
  for (const nlohmann::json& want : torch.at("steps")) {
    const StepResult got = trainer.step();
    // A norm is a sum of as many squares as there are elements, each side's in its own order and in fp32.
    const auto hold = [&](const std::string& what, std::size_t k, double value) {
      const nlohmann::json& expected = want.at(what).at(k);
      const double order = what == "norms" || what == "clipped_norms" ? kElements[k] * kFp32.unit_roundoff() : 0;
      const bool same = expected.is_null()
                            ? !std::isfinite(value)
                            : std::fabs(value - expected.get<double>()) <= bound_of(torch, k, what) + order * value;
      if (!same) out.push_back(what + " of " + std::to_string(k) + " in step " + std::to_string(got.step));
    };
    const std::vector<double> grads = norms_by_optimizer(trainer, false), values = norms_by_optimizer(trainer, true);
    for (std::size_t k = 0; k < 2; ++k) hold("losses", k, got.losses[k]);
    for (std::size_t k = 0; k < 3; ++k) {
      if (got.optimizers[k].stepped != want.at("stepped").at(k).get<bool>())
        out.push_back("stepped " + std::to_string(k));
      const auto& clipping = k == 0 ? got.clipping : got.optimizers[k].clipping;
      hold("norms", k, clipping && clipping->norm ? *clipping->norm : std::nan(""));
      hold("clipped_norms", k, grads[k]);
      hold("weight_norms", k, values[k]);
    }
  }
  return out;
}

TEST(Several, ClippingOfEachOptimizerIsTorchs) {
  const nlohmann::json runs = torch_runs("clipped");
  ASSERT_EQ(runs.size(), 2u);
  for (const nlohmann::json& torch : runs) {
    SCOPED_TRACE(torch.at("dtype").get<std::string>());
    for (const std::string& departure : departures(torch, clipped_run_of(torch))) ADD_FAILURE() << departure;
    int clipped = 0, kept = 0;  // both are needed, or the record shows little
    for (const auto& step : torch.at("steps"))
      if (const auto& norm = step.at("norms").at(0); !norm.is_null())
        (norm.get<double>() > torch.at("clip").at(0).at(0).get<double>() ? clipped : kept) += 1;
    EXPECT_GT(clipped, 2);
    if (torch.at("dtype") == "bfloat16") {
      EXPECT_GT(kept, 3);
    }
  }
}

/// Planted: one norm for all; the second optimizer's limit is the first one's; no clipping of single elements; not
/// clipped at all.
TEST(Several, ClippingThatIsNotTorchsIsSeenInTheComparison) {
  const std::function<void(StepRule&)> plants[] = {
      [](StepRule& rule) {
        for (LayerOptimizer& own : rule.further) own.clip_norm = own.clip_value = -1;
      },
      [](StepRule& rule) { rule.further[0].clip_norm = rule.clip_norm; },
      [](StepRule& rule) { rule.further[0].clip_value = rule.further[1].clip_value = 0; },
      [](StepRule& rule) { rule.clip_norm = 0; },
  };
  for (const nlohmann::json& torch : torch_runs("clipped"))
    for (const auto& plant : plants) {
      TrainOptions options = clipped_run_of(torch);
      plant(options.rule);
      EXPECT_FALSE(departures(torch, options).empty()) << torch.at("dtype") << " " << &plant - plants;
    }
}

/// Planted: the second optimizer's gradients are clipped once more with all others.
TEST(Several, ClippingOfAnotherNormIsFound) {
  TrainOptions options = clipped_apart();
  options.plant = [](Stage stage, ParameterSet& parameters, double) {
    if (stage == Stage::clipped)
      for (float& g : parameters.find("classes.weight")->grad.span<float>()) g *= 0.9F;
  };
  Trainer trainer(options);
  for (int i = 0; i < 8; ++i) trainer.step();
  const std::vector<RunFinding> found = trainer.findings();
  const auto clip =
      std::find_if(found.begin(), found.end(), [](const RunFinding& f) { return f.code == RunCode::clip; });
  ASSERT_NE(clip, found.end());
  EXPECT_EQ(clip->where, "classes.weight");
}

TEST(Several, ShardsAreClippedAsTheWhole) {
  TrainOptions options = clipped_apart();
  options.rule.ranks = 2;
  TrainOptions sharded = options;
  sharded.sharding.on = true;
  Trainer a(options), b(sharded);
  for (int i = 0; i < 8; ++i) {
    const StepResult x = a.step(), y = b.step();
    // A sum of n squares in another order is off by n unit roundoffs at most, each way, and its root by half of that.
    double elements = 0;
    const auto& all = a.parameters().all();
    for (std::size_t p = 0; p < all.size(); ++p)
      if (a.optimizers().of(p) == 1) elements += static_cast<double>(all[p].grad.shape().count());
    const double apart = elements * kFp32.unit_roundoff();
    if (std::isfinite(*x.optimizers[1].clipping->norm)) {
      EXPECT_NEAR(*x.optimizers[1].clipping->norm, *y.optimizers[1].clipping->norm,
                  apart * *x.optimizers[1].clipping->norm);
    }
    EXPECT_EQ(x.optimizers[2].clipping->elements, y.optimizers[2].clipping->elements) << i;
  }
  EXPECT_TRUE(b.findings().empty());
}

/// A checkpoint of a run that clips otherwise is another run's.
TEST(Several, ACheckpointKnowsWhoClips) {
  TrainOptions options = clipped_apart(), other = options;
  other.rule.further[0].clip_norm = 0.5;
  Trainer first(options), second(other);
  first.step();
  EXPECT_THROW(resume(second, checkpoint_bytes(first), "file"), Error);
}

/// Each rank owns a part of a moment: together they lost what one rank loses that owns all.
TEST(Moments, OfShardedRanksAreCountedTogether) {
  const auto lost = [](bool sharded, std::optional<Dtype> first, std::optional<Dtype> second) {
    TrainOptions options;
    options.net.data = tests::in_data_root("/tests/data");
    options.dtype = Dtype::bf16;
    options.scaler.enabled = false;
    options.rule.optimizer = {.name = "adam", .lr = 0.003, .moments = first, .second_moment = second};
    options.rule.ranks = 3;
    options.sharding.on = sharded;
    options.shadows.local = true;
    options.check_steps = true;
    Trainer trainer(options);
    for (int i = 0; i < 12; ++i) trainer.step();
    EXPECT_TRUE(trainer.findings().empty());
    return trainer.moment_losses();
  };
  for (const bool second : {false, true}) {
    const auto one = second ? std::optional(Dtype::fp32) : std::optional(Dtype::bf16);
    const auto two = second ? std::optional(Dtype::bf16) : std::optional(Dtype::fp32);
    const auto whole = lost(false, one, two), parts = lost(true, one, two);
    ASSERT_EQ(whole.size(), 1u);
    ASSERT_EQ(parts.size(), 1u);
    EXPECT_EQ(parts[0].name, second ? "exp_avg_sq" : "exp_avg");
    EXPECT_EQ(parts[0].elements, whole[0].elements);
    EXPECT_NEAR(parts[0].error, whole[0].error, 1e-9 * whole[0].error);
    EXPECT_EQ(parts[0].median, whole[0].median);
  }
}

/// Planted: another type on the last rank than the declared one.
TEST(Moments, OfShardedRanksAreHeldToTheirType) {
  TrainOptions options;
  options.net.data = tests::in_data_root("/tests/data");
  options.dtype = Dtype::bf16;
  options.scaler.enabled = false;
  options.rule.optimizer = {.name = "adam", .lr = 0.003, .moments = Dtype::fp32, .second_moment = Dtype::bf16};
  options.rule.ranks = 2;
  options.sharding.on = true;
  options.sharding.follows = [](int rank, StepRule rule) {
    if (rank == 1) rule.optimizer.moments = Dtype::bf16;
    return rule;
  };
  options.check_steps = true;
  Trainer trainer(options);
  for (int i = 0; i < 3; ++i) trainer.step();
  ASSERT_FALSE(trainer.findings().empty());
  EXPECT_TRUE(testing::contains(trainer.findings().front().where, "exp_avg")) << trainer.findings().front().where;
}

/// Each moment by itself in bf16: what it loses is counted, and the one that stays in fp32 loses nothing. A second
/// moment whose 0.1 % is less than half a last place stands still, too high; a first moment is rounded both ways.
TEST(Moments, ChosenOneByOneLoseByThemselves) {
  const auto losses = [](std::optional<Dtype> first, std::optional<Dtype> second) {
    TrainOptions options;
    options.net.data = tests::in_data_root("/tests/data");
    options.dtype = Dtype::bf16;
    options.scaler.enabled = false;
    options.rule.optimizer = {.name = "adam", .lr = 0.003, .moments = first, .second_moment = second};
    options.shadows.local = true;
    options.check_steps = true;
    Trainer trainer(options);
    for (int i = 0; i < 40; ++i) trainer.step();
    EXPECT_TRUE(trainer.findings().empty()) << "a declared type is no fault";
    return trainer.moment_losses();
  };
  EXPECT_TRUE(losses(Dtype::fp32, {}).empty());
  const auto first = losses(Dtype::bf16, Dtype::fp32), second = losses(Dtype::fp32, Dtype::bf16);
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].name, "exp_avg");
  EXPECT_GT(first[0].error, format(Dtype::bf16).unit_roundoff() / 4);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].name, "exp_avg_sq");
  EXPECT_GT(second[0].error, first[0].error) << "it keeps more of the past, and so of its rounding";
  EXPECT_EQ(losses(Dtype::bf16, {}).size(), 2u);
  const auto vanished = losses(Dtype::fp32, Dtype::fp16);
  ASSERT_EQ(vanished.size(), 1u);
  EXPECT_GT(vanished[0].zero, 0) << "squares of small gradients are zero in fp16";
}

/// Planted: moments that another one than the declared one is kept in.
TEST(Moments, AnotherTypeThanTheDeclaredOneIsFound) {
  TrainOptions options;
  options.net.data = tests::in_data_root("/tests/data");
  options.dtype = Dtype::bf16;
  options.scaler.enabled = false;
  options.rule.optimizer = {.name = "adam", .lr = 0.003, .moments = Dtype::bf16, .second_moment = Dtype::fp32};
  options.planted_optimizer = options.rule.optimizer;
  options.planted_optimizer->second_moment = Dtype::bf16;
  options.check_steps = true;
  Trainer trainer(options);
  for (int i = 0; i < 3; ++i) trainer.step();
  const std::vector<RunFinding> found = trainer.findings();
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found.front().code, RunCode::update);
  EXPECT_TRUE(testing::contains(found.front().where, "exp_avg_sq")) << found.front().where;
}

TEST(Several, WhatDoesNotGoTogetherIsRefused) {
  const auto refusal = [](const std::function<void(TrainOptions&)>& change) -> std::string {
    TrainOptions options;
    options.own_net = net_of("cross_entropy@classes,mse@pixels");
    options.rule = three_optimizers();
    change(options);
    try {
      Trainer(options).prepare();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal([](TrainOptions&) {}), "");
  EXPECT_TRUE(testing::contains(refusal([](TrainOptions& o) { o.rule.further[0].layers = {"nothing"}; }),
                                "optimizer 2, got layers nothing, want some of body.weight, body.bias, "));
  EXPECT_TRUE(testing::contains(refusal([](TrainOptions& o) { o.rule.further[1].layers = {"c*"}; }),
                                "'classes.weight' for optimizers 2 and 3, want one for each parameter"));
  EXPECT_TRUE(testing::contains(refusal([](TrainOptions& o) {
                                  o.rule.further[0].layers = {"classes", "body"};
                                }),
                                "optimizer 1, got no parameters, as further ones have all"));
  EXPECT_TRUE(testing::contains(refusal([](TrainOptions& o) {
                                  o.rule.backward_each = true;
                                  o.rule.grad_penalty = 0.1;
                                }),
                                "backward each, got a gradient penalty"));
  EXPECT_THROW(net_of("mse@pixel"), Error);
  EXPECT_THROW(net_of("mse*x"), Error);
  EXPECT_THROW(net_of("hinge"), Error);
}

}  // namespace
}  // namespace ampcheck::checks::train
