// SPDX-License-Identifier: Apache-2.0
// The scaler against every call that was recorded from torch's, and against its rules by hand.
#include "src/amp/grad_scaler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "src/amp/clip.h"
#include "src/amp/error.h"
#include "src/amp/lr_schedule.h"
#include "src/amp/unscale.h"
#include "tests/support/golden_coverage.h"
#include "tests/support/golden_optimizers.h"
#include "tests/support/goldens.h"
#include "tests/support/scaler_player.h"
#include "tools/commands/torch_differences.h"

namespace ampcheck {
namespace {

using tests::Golden;
using tests::real;
using tests::same_number;
using tests::same_tensor;
using tests::scaler_options;
using tests::tensor;
using tests::tensor_of;

constexpr double kInf = std::numeric_limits<double>::infinity();

// What would not compile here is not an error at run time.
template <class T>
concept Scalable = requires(GradScaler& scaler, const T& outputs) {
  scaler.scale(outputs);
};
static_assert(Scalable<Tensor> && Scalable<std::vector<Tensor>> && Scalable<std::tuple<Tensor, std::vector<Tensor>>>);
static_assert(!Scalable<int>);

// Against the records
// ---------------------------------------------------------------------------------------------------------

constexpr char kTraces[] = "grad_scaler_traces.json";

void play_scenario(const Golden& scenario) { tests::Player(scenario).play(); }

TEST(GradScalerGoldens, EveryScenario) {
  AMPCHECK_GOLDEN_OR_SKIP(golden, kTraces);
  for (const Golden& scenario : golden.at("scenarios")) {
    const bool left_out = !tests::Player::python_only(scenario).empty(),
               with_a_reason = std::ranges::any_of(tools::torch_differences(), [&](const tools::TorchDifference&d) {
                 return "/scenarios[" + scenario.at("name").text + "]" == d.where;
               });
    EXPECT_EQ(left_out, with_a_reason) << scenario.at("name").text;
    if (!left_out) play_scenario(scenario);
  }
}
const tests::Played played_scenarios(kTraces, "scenarios", play_scenario);

double pattern_grad(char what, double scale) {
  switch (what) {
    case 'X': return kInf;
    case '-': return -kInf;
    case 'N': return std::nan("");
    case 'f': return 1.0;
    default: return scale;
  }
}

/// Plays the pattern; the name of the first field that differs with its iteration, or "".
std::string first_difference(const Golden& pattern, const GradScalerOptions& options) {
  Parameter w{"w", tensor(Dtype::fp32, {1}, {0.0})};
  SgdOptions lr_one;
  lr_one.lr = 1.0;
  Sgd sgd({&w}, lr_one);
  GradScaler scaler(options);
  const std::string& steps = pattern.at("pattern").text;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    for (const Golden& setter : pattern.at("setters")) {
      if (static_cast<std::size_t>(setter.at("before_iteration").value) != i) continue;
      const double value = real(setter.at("value"));
      if (setter.at("what").text == "growth_factor") scaler.set_growth_factor(value);
      if (setter.at("what").text == "backoff_factor") scaler.set_backoff_factor(value);
      if (setter.at("what").text == "growth_interval") scaler.set_growth_interval(static_cast<std::int32_t>(value));
    }
    const Tensor scaled = scaler.scale(tensor(Dtype::fp32, {}, {1.0}));
    w.grad = tensor(Dtype::fp32, {1}, {pattern_grad(steps[i], static_cast<double>(scaled.span<float>()[0]))});
    const std::int64_t before = sgd.step_calls();
    scaler.step(sgd);
    const bool stepped = sgd.step_calls() > before;
    scaler.update();
    const std::string at = " at iteration " + std::to_string(i);
    if (stepped != (pattern.at("stepped").text.at(i) == '1')) return "stepped" + at;
    if (!same_number(scaler.get_scale(), real(pattern.at("scale_after_update")[i]))) return "scale" + at;
    if (scaler.get_growth_tracker() != static_cast<std::int32_t>(pattern.at("tracker_after_update")[i].value))
      return "tracker" + at;
    if (!same_number(static_cast<double>(w.grad.span<float>()[0]), real(pattern.at("grad_after_step")[i])))
      return "grad" + at;
    if (!same_number(static_cast<double>(w.value.span<float>()[0]), real(pattern.at("param_after_step")[i])))
      return "param" + at;
  }
  return "";
}

const tests::Played played_patterns(kTraces, "patterns", [](const Golden& pattern) {
  EXPECT_EQ(first_difference(pattern, scaler_options(pattern.at("scaler"))), "");
});

TEST(GradScalerGoldens, EveryPattern) {
  AMPCHECK_GOLDEN_OR_SKIP(golden, kTraces);
  for (const Golden& pattern : golden.at("patterns"))
    EXPECT_EQ(first_difference(pattern, scaler_options(pattern.at("scaler"))), "") << pattern.at("name").text;
}

const std::string& kind_of(const Golden& training) { return training.at("optimizer").at("class").text; }

/// Bit by bit; where a root was taken, within what torch's own root may be off, and on from torch's weights.
void compare_weights(Parameter& parameter, const std::vector<double>& before, const Golden& want, bool root) {
  if (!root) {
    EXPECT_TRUE(same_tensor(parameter.value, want)) << parameter.name;
    return;
  }
  const std::vector<double> got = to_doubles(parameter.value.view()), torch = to_doubles(tensor_of(want).view());
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_LE(std::fabs(got[i] - torch[i]),
              tests::after_sqrt(torch[i] - before[i], std::max(std::fabs(torch[i]), std::fabs(before[i])), 0x1p-24))
        << parameter.name << " " << i;
  parameter.value = tensor_of(want);
}

/// The recorded gradients through our scaler (`control`: none, and no step at the iteration that has an inf), clipping
/// and optimizer.
void play_training_run(const Golden& training, bool control) {
  SCOPED_TRACE(training.at("name").text);
  const std::string& kind = training.at("kind").text;
  const Golden& run = training.at("runs").at(control ? "control" : "scaled");
  const Golden& init = run.at("init");
  std::vector<Parameter> params(init.size());
  std::vector<Parameter*> all;
  for (std::size_t i = 0; i < init.size(); ++i) {
    params[i].name = init.keys[i];
    params[i].value = tensor_of(init[i]);
    all.push_back(&params[i]);
  }
  const auto optimizer = tests::make_optimizer(kind_of(training), training.at("optimizer").at("args"), all);
  GradScalerOptions options = scaler_options(training.at("scaler"));
  options.enabled = training.at("enabled").truth && !control;
  GradScaler scaler(options);
  const double max_norm = real(training.at("max_norm"));
  for (std::size_t i = 0; i < run.at("iterations").size(); ++i) {
    SCOPED_TRACE("iteration " + std::to_string(i));
    const Golden& iteration = run.at("iterations")[i];
    scaler.scale(tensor(Dtype::fp32, {}, {real(iteration.at("loss"))}));
    for (Parameter& parameter : params)
      parameter.grad = tensor_of(iteration.at("grads_after_backward").at(parameter.name));
    std::vector<std::vector<double>> before;
    for (const Parameter& parameter : params) before.push_back(to_doubles(parameter.value.view()));
    std::optional<Tensor> norm;
    if (kind == "clipping_separate_unscale") {
      scaler.unscale_(*optimizer);
      norm = clip_grad_norm_(all, max_norm);
    }
    if (kind == "clipping") norm = clip_grad_norm_(all, max_norm * scaler.get_scale());
    if (norm) {
      EXPECT_TRUE(same_number(to_doubles(norm->view())[0], real(iteration.at("total_norm"))));
    }
    const int skipped = static_cast<int>(real(training.at("skip_iter"))), now = static_cast<int>(i);
    const bool held = control && training.at("enabled").truth && skipped >= 0 &&
                      (now == skipped || (kind == "accumulation" && now / 2 == skipped / 2));
    if (!held && (kind != "accumulation" || i % 2 == 1)) {
      scaler.step(*optimizer);
      scaler.update();
    }
    if (!control) {
      EXPECT_EQ(scaler.get_scale(), real(iteration.at("scale")));
      EXPECT_EQ(scaler.get_growth_tracker(), static_cast<std::int32_t>(iteration.at("tracker").value));
    }
    for (std::size_t k = 0; k < params.size(); ++k)
      compare_weights(params[k], before[k], iteration.at("params").at(params[k].name), kind_of(training) == "Adam");
  }
  if (!control) {
    EXPECT_EQ(scaler.get_scale(), real(training.at("final_scale")));
  }
}

/// torch's own training cases.
void play_training(const Golden& training) {
  for (const bool control : {false, true}) play_training_run(training, control);
}
const tests::Played played_training(kTraces, "training", play_training);

TEST(GradScalerGoldens, EveryTrainingCase) {
  AMPCHECK_GOLDEN_OR_SKIP(golden, kTraces);
  for (const Golden& training : golden.at("training")) play_training(training);
}

// By hand
// ---------------------------------------------------------------------------------------------------------------------

/// log2 of the scale after each update; '.' clean, 'X' overflow.
std::vector<int> exponents(const GradScalerOptions& options, const std::string& steps) {
  float scale = static_cast<float>(options.init_scale);
  std::int32_t tracker = 0;
  std::vector<int> seen;
  for (const char step : steps) {
    update_scale(scale, tracker, step == 'X' ? 1.0f : 0.0f, options.growth_factor, options.backoff_factor,
                 options.growth_interval);
    seen.push_back(std::ilogb(scale));
  }
  return seen;
}

TEST(GradScaler, GrowsOnTheIntervalAndBacksOffAtOnce) {
  GradScalerOptions options;
  options.init_scale = 16.0;
  options.growth_interval = 3;
  const std::string steps = "...X..X...";
  const std::vector<int> right{4, 4, 5, 4, 4, 4, 3, 3, 3, 4};
  EXPECT_EQ(exponents(options, steps), right);
  // Planted: a scaler that grows one step early, one that forgets to reset its window, one without backoff.
  options.growth_interval = 2;
  EXPECT_NE(exponents(options, steps), right);
  options.growth_interval = 3;
  options.backoff_factor = 1.0;
  EXPECT_NE(exponents(options, steps), right);
}

/// A scaler that grows a step early: the planted fault behind GradScaler's own calls.
class EarlyGrower : public GradScaler {
 public:
  using GradScaler::GradScaler;

 protected:
  void move_scale(float& scale, std::int32_t& tracker, float found_inf) override {
    update_scale(scale, tracker, found_inf, options_.growth_factor, options_.backoff_factor,
                 options_.growth_interval - 1);
  }
};

/// Scale after each of the iterations that `steps` describes.
template <class Scaler>
std::vector<double> scales(const std::string& steps, const GradScalerOptions& options) {
  Parameter w{"w", tensor(Dtype::fp32, {2}, {1.0, 1.0})};
  Sgd sgd({&w});
  Scaler scaler(options);
  std::vector<double> seen;
  for (const char step : steps) {
    scaler.scale(tensor(Dtype::fp32, {}, {1.0}));
    w.grad = tensor(Dtype::fp32, {2}, {1.0, step == 'X' ? kInf : 1.0});
    scaler.step(sgd);
    scaler.update();
    seen.push_back(scaler.get_scale());
  }
  return seen;
}

TEST(GradScaler, AnEarlyGrowerIsToldApart) {
  GradScalerOptions options;
  options.growth_interval = 4;
  options.init_scale = 8.0;
  const std::vector<double> right{8, 8, 8, 16, 16, 16, 8, 8, 8, 8, 16};
  EXPECT_EQ(scales<GradScaler>("......X....", options), right);
  EXPECT_NE(scales<EarlyGrower>("......X....", options), right);
}

TEST(GradScaler, CollapseByConsecutiveSkips) {
  const std::vector<double> seen = scales<GradScaler>(std::string(170, 'X'), {});
  EXPECT_EQ(seen[15], 1.0);
  EXPECT_LT(seen[16], 1.0);  // the 17th skip
  EXPECT_TRUE(std::isinf(inverse_scale(static_cast<float>(seen[143]))));
  EXPECT_FALSE(std::isinf(inverse_scale(static_cast<float>(seen[142]))));
  EXPECT_GT(seen[164], 0.0);
  EXPECT_EQ(seen[165], 0.0);
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const AmpError& e) {
    return std::string(e.type) + ": " + e.what();
  }
  return "";
}

TEST(GradScaler, CallsOutOfOrderAreRefused) {
  Parameter w{"w", tensor(Dtype::fp32, {1}, {1.0})};
  Sgd sgd({&w});
  GradScaler scaler;
  const auto starts = [](const std::string& text, const char* prefix) { return text.starts_with(prefix); };
  EXPECT_TRUE(starts(error_of([&] { scaler.step(sgd); }), "AssertionError: Attempted step but _scale is None."));
  EXPECT_TRUE(starts(error_of([&] { scaler.unscale_(sgd); }), "AssertionError: Attempted unscale_ but"));
  EXPECT_TRUE(starts(error_of([&] { scaler.update(); }), "AssertionError: Attempted update but"));
  scaler.scale(tensor(Dtype::fp32, {}, {1.0}));
  EXPECT_EQ(error_of([&] { scaler.step(sgd); }), "AssertionError: No inf checks were recorded for this optimizer.");
  scaler.update(scaler.get_scale());
  w.grad = tensor(Dtype::fp32, {1}, {1.0});
  scaler.unscale_(sgd);
  EXPECT_EQ(error_of([&] { scaler.unscale_(sgd); }),
            "RuntimeError: unscale_() has already been called on this optimizer since the last update().");
  EXPECT_NE(error_of([&] { static_cast<void>(scaler.pickled()); }), "");
  scaler.step(sgd);
  EXPECT_EQ(error_of([&] { scaler.step(sgd); }),
            "RuntimeError: step() has already been called since the last update().");
  EXPECT_EQ(error_of([&] { scaler.unscale_(sgd); }), "RuntimeError: unscale_() is being called after step().");
  scaler.update();
  EXPECT_EQ(error_of([&] { scaler.update(); }), "AssertionError: No inf checks were recorded prior to update.");
  EXPECT_EQ(error_of([&] { GradScaler(GradScalerOptions{.growth_factor = 1.0}); }),
            "AssertionError: The growth factor must be > 1.0.");
  EXPECT_EQ(error_of([&] { GradScaler(GradScalerOptions{.backoff_factor = 1.0}); }),
            "AssertionError: The backoff factor must be < 1.0.");
}

TEST(GradScaler, DefaultsStateAndDisabled) {
  GradScaler scaler;
  EXPECT_EQ(scaler.state_dict(), (GradScaler::StateDict{{"scale", 65536.0},
                                                        {"growth_factor", 2.0},
                                                        {"backoff_factor", 0.5},
                                                        {"growth_interval", 2000},
                                                        {"_growth_tracker", 0}}));
  GradScaler loaded;
  GradScaler::StateDict state = scaler.state_dict();
  state["scale"] = 3.0;
  state["_growth_tracker"] = 7;
  loaded.load_state_dict(state);
  EXPECT_EQ(loaded.get_scale(), 3.0);
  EXPECT_EQ(loaded.scale(tensor(Dtype::fp32, {}, {2.0})).span<float>()[0], 6.0f);
  EXPECT_EQ(loaded.growth_tracker(), 7);
  EXPECT_TRUE(
      error_of([&] { loaded.load_state_dict({}); }).starts_with("RuntimeError: The source state dict is empty"));

  GradScalerOptions off;
  off.enabled = false;
  GradScaler disabled(off);
  Parameter w{"w", tensor(Dtype::fp32, {1}, {1.0})};
  w.grad = tensor(Dtype::fp32, {1}, {kInf});
  SgdOptions lr_one;
  lr_one.lr = 1.0;
  Sgd sgd({&w}, lr_one);
  const Tensor loss = tensor(Dtype::fp32, {}, {2.0});
  EXPECT_EQ(disabled.scale(loss).data(), loss.data());
  disabled.unscale_(sgd);
  disabled.step(sgd);
  disabled.update();
  EXPECT_EQ(w.value.span<float>()[0], -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(disabled.state_dict().empty());
}

/// 65536 does not exist in fp16: a 16-bit loss overflows by the default scale alone, in rank 0 on its way back.
TEST(GradScaler, Fp16LossMeetsTheDefaultScale) {
  GradScaler scaler;
  const Tensor rank0 = tensor(Dtype::fp16, {}, {1.0}), rank1 = tensor(Dtype::fp16, {1}, {1.0}),
               half = tensor(Dtype::fp16, {1}, {0.5});
  EXPECT_EQ(scaler.scale(rank0).dtype(), Dtype::fp32);
  EXPECT_EQ(to_doubles(scaler.scale(rank0).view())[0], 65536.0);
  EXPECT_EQ(to_doubles(scaler.scale(rank1).view())[0], kInf);
  EXPECT_EQ(to_doubles(scaler.scale(half).view())[0], 32768.0);
  EXPECT_EQ(to_doubles(scaler.loss_gradient(rank0).view())[0], kInf);
  EXPECT_EQ(to_doubles(scaler.loss_gradient(tensor(Dtype::bf16, {}, {1.0})).view())[0], 65536.0);
  EXPECT_EQ(to_doubles(scaler.loss_gradient(tensor(Dtype::fp32, {}, {1.0})).view())[0], 65536.0);
}

TEST(GradScaler, EachOptimizerSkipsOnItsOwnFlagAndAllShareTheBackoff) {
  Parameter a{"a", tensor(Dtype::fp32, {1}, {1.0})}, b{"b", tensor(Dtype::fp32, {1}, {1.0})};
  SgdOptions lr_one;
  lr_one.lr = 1.0;
  Sgd first({&a}, lr_one), second({&b}, lr_one);
  GradScaler scaler;
  scaler.scale(tensor(Dtype::fp32, {}, {1.0}));
  a.grad = tensor(Dtype::fp32, {1}, {65536.0});
  b.grad = tensor(Dtype::fp32, {1}, {kInf});
  scaler.step(first);
  scaler.step(second);
  scaler.update();
  EXPECT_EQ(a.value.span<float>()[0], 0.0f);
  EXPECT_EQ(b.value.span<float>()[0], 1.0f);
  EXPECT_EQ(scaler.get_scale(), 32768.0);
  EXPECT_EQ(first.updates(), 1);
  EXPECT_EQ(second.updates(), 0);
}

TEST(GradScaler, DevicesHaveTheirOwnFlag) {
  Parameter a{"a", tensor(Dtype::fp32, {1}, {1.0})}, b{"b", tensor(Dtype::fp32, {1}, {1.0})};
  b.device = 1;
  Sgd sgd({&a, &b});
  GradScaler scaler;
  scaler.scale(tensor(Dtype::fp32, {}, {1.0}));
  a.grad = tensor(Dtype::fp32, {1}, {1.0});
  b.grad = tensor(Dtype::fp32, {1}, {std::nan("")});
  scaler.unscale_(sgd);
  EXPECT_EQ(scaler.found_inf(sgd), (std::map<int, float>{{0, 0.0f}, {1, 1.0f}}));
  scaler.step(sgd);
  EXPECT_EQ(sgd.step_calls(), 0);
}

TEST(Unscale, OneBadElementAnywhereIsFoundAndTheRestIsUnscaled) {
  for (const Dtype dtype : {Dtype::fp32, Dtype::fp64, Dtype::fp16, Dtype::bf16})
    for (const std::int64_t n : {1, 7, 33, 1024, 3001})
      for (const double bad : {kInf, -kInf, std::nan(""), 8.0})
        for (const std::int64_t at : {std::int64_t{0}, n / 2, n - 1}) {
          std::vector<double> values(static_cast<std::size_t>(n), 4.0);
          values[static_cast<std::size_t>(at)] = bad;
          const Tensor grad = tensor(dtype, {n}, values);
          float found = 0.0f;
          check_and_unscale(std::vector{grad.view()}, 0.25f, found);
          EXPECT_EQ(found, std::isfinite(bad) ? 0.0f : 1.0f);
          const std::vector<double> out = to_doubles(grad.view());
          for (std::size_t i = 0; i < out.size(); ++i)
            if (static_cast<std::int64_t>(i) != at) {
              ASSERT_EQ(out[i], 1.0);
            }
        }
}

}  // namespace
}  // namespace ampcheck
