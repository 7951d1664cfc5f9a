// SPDX-License-Identifier: Apache-2.0
// Optimizers, clipping and schedules against torch's recorded trajectories (optimizers.json), and their rules by hand.
#include "src/amp/optimizers.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "src/amp/clip.h"
#include "src/amp/error.h"
#include "src/amp/lr_schedule.h"
#include "src/parallel.h"
#include "tests/support/golden_coverage.h"
#include "tests/support/golden_optimizers.h"
#include "tests/support/goldens.h"

namespace ampcheck {
namespace {

using tests::after_sqrt;
using tests::Golden;
using tests::real;
using tests::same_tensor;
using tests::tensor_of;

std::vector<Parameter> parameters_of(const Golden& init) {
  std::vector<Parameter> params(init.size());
  for (std::size_t i = 0; i < init.size(); ++i) {
    params[i].name = init.keys[i];
    params[i].value = tensor_of(init[i]);
  }
  return params;
}

std::vector<Parameter*> pointers(std::vector<Parameter>& params) {
  std::vector<Parameter*> all;
  for (Parameter& parameter : params) all.push_back(&parameter);
  return all;
}

Tensor widened(const Tensor& tensor) {
  Tensor wide(Dtype::fp64, tensor.shape());
  from_doubles(to_doubles(tensor.view()), wide.view());
  return wide;
}

bool has_root(const Golden& trajectory) { return trajectory.at("class").text != "SGD"; }

/// Fields of the state that no root has touched.
bool before_root(const std::string& kind, const std::string& field) {
  return kind == "SGD" || field != "momentum_buffer";
}

void load(Optimizer& optimizer, std::vector<Parameter>& params, const Golden& step) {
  for (std::size_t k = 0; k < params.size(); ++k) {
    params[k].value = tensor_of(step.at("params").at(params[k].name));
    const Golden& state = step.at("state").at(params[k].name);
    for (std::size_t f = 0; f < state.size(); ++f)
      if (state[f].is_object()) optimizer.state(k)[state.keys[f]] = tensor_of(state[f]);
  }
}

/// Largest |got - want| / bound over the elements.
double worst_share(const Tensor& got, const Golden& want, const Tensor& before, double extra, double u) {
  const std::vector<double> a = to_doubles(got.view()), b = to_doubles(tensor_of(want).view()),
                            old = to_doubles(before.view());
  double worst = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i)
    worst = std::max(worst, std::fabs(a[i] - b[i]) / after_sqrt(std::fabs(b[i] - old[i]) + extra,
                                                                std::max(std::fabs(b[i]), std::fabs(old[i])), u));
  return worst;
}

/// RMSprop's buffer holds roots of earlier steps: the update it is part of may be larger than what the weight moved.
double buffered_update(const Golden& step, const std::string& name, double lr) {
  const Golden* buffer = step.at("state").at(name).find("momentum_buffer");
  double largest = 0.0;
  if (buffer != nullptr && buffer->is_object())
    for (const double value : to_doubles(tensor_of(*buffer).view())) largest = std::max(largest, lr * std::fabs(value));
  return largest;
}

/// Each step from torch's own state before it. Returns the largest share of the bound that a parameter used.
double replay_reference(const Golden& trajectory, std::int64_t& equal, std::int64_t& all) {
  const std::string& kind = trajectory.at("class").text;
  std::vector<Parameter> params = parameters_of(trajectory.at("init"));
  const auto optimizer = tests::make_optimizer(kind, trajectory.at("args"), pointers(params));
  double worst = 0.0;
  for (std::size_t i = 0; i < trajectory.at("steps").size(); ++i) {
    SCOPED_TRACE("step " + std::to_string(i));
    if (i > 0) load(*optimizer, params, trajectory.at("steps")[i - 1]);
    std::vector<Tensor> before;
    for (Parameter& parameter : params) {
      Tensor copy(parameter.value.dtype(), parameter.value.shape());
      copy_elements(parameter.value.view(), copy.view());
      before.push_back(copy);
      parameter.grad = tensor_of(trajectory.at("grads")[i].at(parameter.name));
      EXPECT_EQ(parameter.grad.dtype(), parameter.value.dtype());
    }
    optimizer->step();
    const Golden& step = trajectory.at("steps")[i];
    for (std::size_t k = 0; k < params.size(); ++k) {
      const Golden& want = step.at("params").at(params[k].name);
      ++all;
      if (same_tensor(params[k].value, want)) ++equal;
      if (!has_root(trajectory)) {
        EXPECT_TRUE(same_tensor(params[k].value, want)) << params[k].name;
      }
      const double extra = kind == "RMSprop" ? buffered_update(step, params[k].name, optimizer->lr()) : 0.0;
      worst = std::max(worst, worst_share(params[k].value, want, before[k], extra, 0x1p-24));
      const Golden& state = step.at("state").at(params[k].name);
      for (std::size_t f = 0; f < state.size(); ++f) {
        if (!state[f].is_object() || !before_root(kind, state.keys[f])) continue;
        EXPECT_TRUE(same_tensor(optimizer->state(k).at(state.keys[f]), state[f]))
            << params[k].name << " " << state.keys[f];
      }
    }
  }
  return worst;
}

TEST(OptimizerGoldens, ReferenceTrajectories) {
  AMPCHECK_GOLDEN_OR_SKIP(golden, "optimizers.json");
  std::int64_t equal = 0, all = 0;
  for (const Golden& trajectory : golden.at("trajectories")) {
    SCOPED_TRACE(trajectory.at("name").text);
    EXPECT_LE(replay_reference(trajectory, equal, all), 1.0);
  }
  RecordProperty("tensors_bit_equal", static_cast<int>(equal));
  RecordProperty("tensors", static_cast<int>(all));
}

void play_in_fp64(const Golden& trajectory) {
  SCOPED_TRACE(trajectory.at("name").text);
  std::vector<Parameter> params = parameters_of(trajectory.at("init"));
  for (Parameter& parameter : params) parameter.value = widened(parameter.value);
  const auto optimizer = tests::make_optimizer(trajectory.at("class").text, trajectory.at("args"), pointers(params));
  std::vector<std::vector<double>> bound(params.size()), before(params.size());
  for (std::size_t i = 0; i < trajectory.at("steps").size(); ++i) {
    for (std::size_t k = 0; k < params.size(); ++k) {
      params[k].grad = widened(tensor_of(trajectory.at("grads")[i].at(params[k].name)));
      before[k] = to_doubles(params[k].value.view());
      bound[k].resize(before[k].size());
    }
    optimizer->step();
    for (std::size_t k = 0; k < params.size(); ++k) {
      const Golden& want = trajectory.at("fp64_params")[i].at(params[k].name);
      if (!has_root(trajectory)) {
        ASSERT_TRUE(same_tensor(params[k].value, want)) << params[k].name << " step " << i;
      }
      const std::vector<double> got = to_doubles(params[k].value.view()), torch = to_doubles(tensor_of(want).view());
      for (std::size_t e = 0; e < got.size(); ++e) {
        bound[k][e] += after_sqrt(got[e] - before[k][e], std::max(std::fabs(got[e]), std::fabs(before[k][e])), 0x1p-53);
        ASSERT_LE(std::fabs(got[e] - torch[e]), bound[k][e]) << params[k].name << "[" << e << "] step " << i;
      }
    }
  }
}

TEST(OptimizerGoldens, TrajectoriesInFp64) {
  AMPCHECK_GOLDEN_OR_SKIP(golden, "optimizers.json");
  for (const Golden& trajectory : golden.at("trajectories")) play_in_fp64(trajectory);
}

/// Planted: a learning rate that is wrong by a thousandth, which no loss curve shows.
TEST(OptimizerGoldens, PlantedFaultsLeaveTheBound) {
  AMPCHECK_GOLDEN_OR_SKIP(golden, "optimizers.json");
  for (const Golden& trajectory : golden.at("trajectories")) {
    SCOPED_TRACE(trajectory.at("name").text);
    Golden faulty = trajectory;
    for (std::size_t i = 0; i < faulty.keys.size(); ++i)
      if (faulty.keys[i] == "args")
        for (std::size_t a = 0; a < faulty.items[i].keys.size(); ++a)
          if (faulty.items[i].keys[a] == "lr") {
            Golden lr;
            lr.kind = Golden::Kind::number;
            lr.value = real(faulty.items[i].items[a]) * (1.0 + 0x1p-10);
            faulty.items[i].items[a] = lr;
          }
    std::int64_t equal = 0, all = 0;
    testing::TestPartResultArray failures;
    double worst = 0.0;
    {
      testing::ScopedFakeTestPartResultReporter quiet(
          testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
      worst = replay_reference(faulty, equal, all);
    }
    EXPECT_TRUE(worst > 1.0 || failures.size() > 0);
  }
}

/// Between fp32 numbers, as the record counts: the most of any element.
double ulps_apart(const Tensor& a, const Golden& b) {
  const Tensor other = tensor_of(b);
  const auto place = [](float v) {
    const auto bits = std::bit_cast<std::uint32_t>(v);
    const auto magnitude = static_cast<double>(bits & 0x7fffffffu);
    return bits >> 31 != 0 ? -magnitude : magnitude;
  };
  double most = 0;
  for (std::size_t i = 0; i < a.span<float>().size(); ++i)
    most = std::max(most, std::fabs(place(a.span<float>()[i]) - place(other.span<float>()[i])));
  return most;
}

/// torch's fused kernels, in their own order of operations, bit by bit; and how far they are from the plain ones.
void play_fused(const Golden& trajectory) {
  const Golden* fused = trajectory.find("fused");
  if (fused == nullptr) return;  // torch has no fused RMSprop
  SCOPED_TRACE(trajectory.at("name").text);
  std::vector<Parameter> params = parameters_of(trajectory.at("init"));
  const auto optimizer =
      tests::make_optimizer(trajectory.at("class").text, trajectory.at("args"), pointers(params), true);
  bool equal = true;
  for (std::size_t i = 0; i < trajectory.at("steps").size(); ++i) {
    for (Parameter& parameter : params) parameter.grad = tensor_of(trajectory.at("grads")[i].at(parameter.name));
    optimizer->step();
    const Golden &plain = trajectory.at("steps")[i].at("params"),
                 &want = fused->contains("params") ? fused->at("params")[i] : plain;
    double apart = 0;
    for (const Parameter& parameter : params) {
      ASSERT_TRUE(same_tensor(parameter.value, want.at(parameter.name))) << parameter.name << " step " << i;
      apart = std::max(apart, ulps_apart(parameter.value, plain.at(parameter.name)));
    }
    EXPECT_EQ(apart, real(fused->at("max_ulp_per_step")[i])) << "step " << i;
    equal = equal && apart == 0;
  }
  EXPECT_EQ(equal, fused->at("bitwise_equal_params").truth);
}

TEST(OptimizerGoldens, FusedTrajectoriesAreBitEqual) {
  AMPCHECK_GOLDEN_OR_SKIP(golden, "optimizers.json");
  for (const Golden& trajectory : golden.at("trajectories")) play_fused(trajectory);
}

/// torch's multi-tensor implementation has the bits of its plain one: what is held against the one is held against the
/// other.
void play_foreach(const Golden& trajectory) {
  EXPECT_TRUE(trajectory.at("foreach").at("bitwise_equal_params").truth);
  for (const Golden& apart : trajectory.at("foreach").at("max_ulp_per_step")) EXPECT_EQ(real(apart), 0);
  EXPECT_FALSE(trajectory.at("foreach").contains("params"));
}

TEST(OptimizerGoldens, ForeachIsThePlainTrajectory) {
  AMPCHECK_GOLDEN_OR_SKIP(golden, "optimizers.json");
  for (const Golden& trajectory : golden.at("trajectories")) play_foreach(trajectory);
}

/// torch's fused kernels skip on exactly 1; ours on anything but 0. Both rules are played.
void play_found_inf(const Golden& entry) {
  for (const SkipRule rule : {SkipRule::torch_exactly_one, SkipRule::nonzero}) {
    const double found = real(entry.at("found_inf"));
    SCOPED_TRACE(entry.at("class").text + " found_inf " + std::to_string(found));
    Parameter parameter{"p", tensor_of(entry.at("before").at("param"))};
    parameter.grad = tensor_of(entry.at("grad_in"));
    const auto optimizer = tests::make_optimizer(entry.at("class").text, entry.at("args"), {&parameter}, true, rule);
    const Golden& before = entry.at("before").at("state");
    for (std::size_t i = 0; i < before.size(); ++i)
      if (before[i].is_object()) optimizer->state(0)[before.keys[i]] = tensor_of(before[i]);
    optimizer->found_inf = static_cast<float>(found);
    if (!entry.at("grad_scale").is_null()) optimizer->grad_scale = static_cast<float>(real(entry.at("grad_scale")));
    optimizer->step();
    // Where ours skips and torch's does not, nothing may have moved, the step counter included.
    const bool ours_skips = rule == SkipRule::nonzero && found != 0.0;
    const Golden& want = ours_skips ? entry.at("before") : entry.at("after");
    EXPECT_TRUE(same_tensor(parameter.value, want.at("param")));
    EXPECT_TRUE(same_tensor(parameter.grad, ours_skips ? entry.at("grad_in") : entry.at("grad_out")));
    const Golden& state = want.at("state");
    for (std::size_t i = 0; i < state.size(); ++i)
      if (state[i].is_object()) {
        EXPECT_TRUE(same_tensor(optimizer->state(0).at(state.keys[i]), state[i])) << state.keys[i];
      }
    if (rule == SkipRule::torch_exactly_one) {
      EXPECT_EQ(optimizer->updates() == 0, entry.at("skipped").truth);
    }
  }
}

TEST(OptimizerGoldens, FusedFoundInf) {
  AMPCHECK_GOLDEN_OR_SKIP(golden, "optimizers.json");
  for (const Golden& entry : golden.at("fused_found_inf")) play_found_inf(entry);
}

const tests::Played played_trajectory("optimizers.json", "trajectories", [](const Golden& trajectory) {
  std::int64_t equal = 0, all = 0;
  EXPECT_LE(replay_reference(trajectory, equal, all), 1.0);
  play_in_fp64(trajectory);
  play_fused(trajectory);
  play_foreach(trajectory);
});
const tests::Played played_found_inf("optimizers.json", "fused_found_inf", play_found_inf);

// By hand
// ---------------------------------------------------------------------------------------------------------------------

Tensor filled(Dtype dtype, std::int64_t n, double value) {
  Tensor made(dtype, {n});
  from_doubles(std::vector<double>(static_cast<std::size_t>(n), value), made.view());
  return made;
}

/// The weight after two steps with the gradients 2 and -1, from 1, in fp64.
template <class Kind, class Options>
double after_two(const Options& options) {
  Parameter parameter{"p", filled(Dtype::fp64, 1, 1.0)};
  Kind optimizer({&parameter}, options);
  for (const double grad : {2.0, -1.0}) {
    parameter.grad = filled(Dtype::fp64, 1, grad);
    optimizer.step();
  }
  return parameter.value.span<double>()[0];
}

/// The papers' equations, written out once more.
TEST(Optimizer, TwoStepsByHand) {
  for (const bool fused : {false, true}) {
    SgdOptions sgd;
    sgd.fused = fused;
    sgd.lr = 0.5;
    sgd.momentum = 0.5;
    EXPECT_EQ(after_two<Sgd>(sgd), 1.0 - 0.5 * 2.0 - 0.5 * (0.5 * 2.0 - 1.0));
    sgd.nesterov = true;
    EXPECT_EQ(after_two<Sgd>(sgd), 1.0 - 0.5 * (2.0 + 0.5 * 2.0) - 0.5 * (-1.0 + 0.5 * (0.5 * 2.0 - 1.0)));

    AdamOptions adam;
    adam.fused = fused;
    adam.lr = 0.1;
    adam.beta1 = 0.5;
    adam.beta2 = 0.75;
    adam.eps = 0.0;
    const double m1 = 0.5 * 2.0, v1 = 0.25 * 4.0, m2 = 0.5 * m1 - 0.5 * 1.0, v2 = 0.75 * v1 + 0.25 * 1.0;
    const double first = 0.1 * (m1 / 0.5) / std::sqrt(v1 / 0.25),
                 second = 0.1 * (m2 / 0.75) / std::sqrt(v2 / (1.0 - 0.75 * 0.75));
    EXPECT_DOUBLE_EQ(after_two<Adam>(adam), 1.0 - first - second);
    AdamWOptions adamw;
    static_cast<AdamOptions&>(adamw) = adam;
    adamw.weight_decay = 0.25;
    EXPECT_DOUBLE_EQ(after_two<AdamW>(adamw), ((1.0 - 0.1 * 0.25) - first) * (1.0 - 0.1 * 0.25) - second);

    AdagradOptions adagrad;
    adagrad.fused = fused;
    adagrad.lr = 0.1;
    adagrad.eps = 0.0;
    EXPECT_DOUBLE_EQ(after_two<Adagrad>(adagrad), 1.0 - 0.1 + 0.1 / std::sqrt(5.0));
  }
  RmspropOptions rmsprop;
  rmsprop.lr = 0.1;
  rmsprop.alpha = 0.75;
  rmsprop.eps = 0.0;
  EXPECT_DOUBLE_EQ(after_two<Rmsprop>(rmsprop), 1.0 - 0.1 * 2.0 + 0.1 / std::sqrt(0.75 + 0.25));
}

TEST(Optimizer, UnfitGradientsAreRefusedBeforeAnythingMoves) {
  const auto refusal = [](Tensor grad, std::optional<std::vector<std::int64_t>> rows) -> std::string {
    Parameter first{"first", filled(Dtype::fp32, 3, 1.0)}, second{"second", filled(Dtype::fp32, 3, 1.0)};
    first.grad = filled(Dtype::fp32, 3, 1.0);
    second.grad = std::move(grad);
    second.sparse_rows = std::move(rows);
    Sgd sgd({&first, &second}, SgdOptions{});
    try {
      sgd.step();
    } catch (const Error& error) {
      EXPECT_EQ(to_doubles(first.value.view()), std::vector<double>(3, 1.0));
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(Tensor::uninitialized(Dtype::i64, Shape{3}), std::nullopt),
            "[optimizer] gradient of 'second', got i64, want a float dtype");
  EXPECT_EQ(refusal(filled(Dtype::fp32, 4, 1.0), std::nullopt),
            "[optimizer] gradient of 'second', got shape [4], want [3]");
  EXPECT_EQ(refusal(filled(Dtype::fp32, 2, 1.0), {{0, 3}}), "[optimizer] gradient of 'second', got row 3, want 0 to 2");
  EXPECT_EQ(refusal(filled(Dtype::fp32, 2, 1.0), {{-1, 0}}),
            "[optimizer] gradient of 'second', got row -1, want 0 to 2");
  EXPECT_EQ(refusal(filled(Dtype::fp32, 3, 1.0), {{0, 1}}),
            "[optimizer] gradient of 'second', got 3 numbers for 2 rows, want rows of [3]");
  EXPECT_EQ(refusal(filled(Dtype::fp32, 2, 1.0), {{2, 2}}), "");
}

TEST(Optimizer, ASparseGradientIsRefusedBeforeAnythingMoves) {
  Parameter first{"first", filled(Dtype::fp32, 3, 1.0)}, second{"second", filled(Dtype::fp32, 3, 1.0)};
  first.grad = filled(Dtype::fp32, 3, 1.0);
  second.grad = filled(Dtype::fp32, 2, 1.0);
  second.sparse_rows = {{0, 2}};
  Adam adam({&first, &second}, AdamOptions{});
  SgdOptions heavy;
  heavy.momentum = 0.9;
  Sgd momentum({&first, &second}, heavy);
  for (Optimizer* optimizer : {static_cast<Optimizer*>(&adam), static_cast<Optimizer*>(&momentum)}) {
    EXPECT_THROW(optimizer->step(), AmpError);
    EXPECT_EQ(to_doubles(first.value.view()), std::vector<double>(3, 1.0));
  }
  Sgd({&first, &second}, SgdOptions{}).step();
  EXPECT_LT(to_doubles(first.value.view())[0], 1.0);
}

TEST(Optimizer, Bf16WeightsStagnateAndMasterWeightsDoNot) {
  SgdOptions options;
  options.lr = 0x1p-10;  // below half the spacing of bf16 at 1, which is 2^-8 below it
  options.fused = true;
  options.count = true;
  Parameter plain{"plain", filled(Dtype::bf16, 3, 1.0)};
  Sgd without({&plain}, options);
  options.master_weights = true;
  Parameter copy{"copy", filled(Dtype::bf16, 3, 1.0)};
  Sgd with({&copy}, options);
  for (int step = 0; step < 8; ++step) {
    plain.grad = filled(Dtype::bf16, 3, 1.0);
    copy.grad = filled(Dtype::bf16, 3, 1.0);
    without.step();
    with.step();
  }
  EXPECT_EQ(to_doubles(plain.value.view())[0], 1.0);
  EXPECT_EQ(without.counts().intended, 24);
  EXPECT_EQ(without.counts().stagnant, 24);
  EXPECT_EQ(to_doubles(copy.value.view())[0], 1.0 - 0x1p-7);
  EXPECT_EQ(with.state(0).at("master_param").span<float>()[0], 1.0f - 0x1p-7f);
  EXPECT_EQ(with.counts().stagnant, 0);
  EXPECT_EQ(with.state_bytes(), 12);  // three fp32 masters and no moments
  EXPECT_GT(with.counts().copy_stagnant, 0);
  EXPECT_LT(with.counts().copy_stagnant, 24);
}

TEST(Optimizer, Fp16SecondMomentAndEpsilonVanish) {
  Parameter low{"low", filled(Dtype::fp16, 4, 1.0)};
  AdamOptions options;
  options.count = true;
  Adam adam({&low}, options);
  low.grad = filled(Dtype::fp16, 4, 1e-4);
  adam.step();
  EXPECT_EQ(adam.counts().second_moment_zero, 4);
  EXPECT_EQ(adam.counts().epsilon_zero, 4);
  EXPECT_TRUE(std::isinf(to_doubles(low.value.view())[0]));  // 1e-5 / (0 + 0)
  // fp32 moments keep both.
  Parameter same{"same", filled(Dtype::fp16, 4, 1.0)};
  options.fused = true;
  options.master_weights = true;
  Adam kept({&same}, options);
  same.grad = filled(Dtype::fp16, 4, 1e-4);
  kept.step();
  EXPECT_EQ(kept.counts().second_moment_zero, 0);
  EXPECT_EQ(kept.counts().epsilon_zero, 0);
  EXPECT_NEAR(to_doubles(same.value.view())[0], 1.0 - 1e-3, format(Dtype::fp16).unit_roundoff());
}

/// One pass that unscales, skips and writes master, moments and copy equals the steps taken one by one.
TEST(Optimizer, FusedPassEqualsItsPartsForAnyThreadCount) {
  constexpr std::int64_t kCount = 100001;
  std::vector<double> weights, grads;
  for (std::int64_t i = 0; i < kCount; ++i) {
    weights.push_back(std::sin(static_cast<double>(i)));
    grads.push_back(std::cos(static_cast<double>(i) * 1.7) * 1e-2);
  }
  const auto run = [&](bool fused_unscale, int threads_used) {
    set_threads(threads_used);
    Parameter parameter{"p", Tensor(Dtype::fp16, {kCount})};
    from_doubles(weights, parameter.value.view());
    AdamWOptions options;
    options.fused = options.master_weights = true;
    options.moments = Dtype::bf16;
    AdamW optimizer({&parameter}, options);
    for (int step = 0; step < 3; ++step) {
      parameter.grad = Tensor(fused_unscale ? Dtype::fp16 : Dtype::fp32, {kCount});
      std::vector<double> scaled(grads);
      for (double& g : scaled) g *= 1024.0;
      Tensor rounded(Dtype::fp16, {kCount});
      from_doubles(scaled, rounded.view());
      std::vector<double> values = to_doubles(rounded.view());
      if (!fused_unscale)
        for (double& g : values) g /= 1024.0;
      from_doubles(values, parameter.grad.view());
      if (fused_unscale) optimizer.grad_scale = 1024.0f;
      optimizer.found_inf = step == 1 ? 1.0f : 0.0f;
      optimizer.step();
    }
    EXPECT_EQ(optimizer.updates(), 2);
    EXPECT_EQ(optimizer.state(0).at("step").span<float>()[0], 2.0f);
    std::vector<std::vector<double>> all{to_doubles(parameter.value.view())};
    for (const auto& [name, tensor] : optimizer.state(0)) all.push_back(to_doubles(tensor.view()));
    set_threads(0);
    return all;
  };
  const auto expected = run(false, 1);
  EXPECT_EQ(run(true, 1), expected);
  EXPECT_EQ(run(true, 2), expected);
  EXPECT_NE(expected[0], weights);
}

}  // namespace
}  // namespace ampcheck
