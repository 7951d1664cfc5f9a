// SPDX-License-Identifier: Apache-2.0
// Clipping against torch's recorded calls (optimizers.json), and learning-rate schedules.
#include "src/amp/clip.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "src/amp/error.h"
#include "src/amp/grad_scaler.h"
#include "src/amp/lr_schedule.h"
#include "src/amp/optimizers.h"
#include "tests/support/golden_coverage.h"
#include "tests/support/goldens.h"

namespace ampcheck {
namespace {

using tests::Golden;
using tests::real;
using tests::same_tensor;

std::string clip(const Golden& entry, std::vector<Parameter*>& all, Tensor& norm) {
  try {
    if (entry.at("kind").text == "norm")
      norm = clip_grad_norm_(all, real(entry.at("max_norm")), real(entry.at("norm_type")),
                             entry.at("error_if_nonfinite").truth);
    else
      clip_grad_value_(all, real(entry.at("clip_value")));
  } catch (const AmpError& e) {
    return std::string(e.type) + ": " + e.what();
  }
  return "";
}

void play_clip(const Golden& entry) {
  SCOPED_TRACE(entry.at("name").text);
  const Golden& grads = entry.at("grads_in");
  std::vector<Parameter> params(grads.size());
  std::vector<Parameter*> all;
  for (std::size_t i = 0; i < grads.size(); ++i) {
    if (!grads[i].is_null()) params[i].grad = tests::tensor_of(grads[i]);
    all.push_back(&params[i]);
  }
  Tensor norm;
  const std::string error = clip(entry, all, norm);
  const Golden* want = entry.find("error");
  EXPECT_EQ(error, want == nullptr ? "" : want->at("type").text + ": " + want->at("message").text);
  if (const Golden* total = entry.find("total_norm")) {
    EXPECT_TRUE(same_tensor(norm, *total));
  }
  for (std::size_t i = 0; i < grads.size(); ++i) {
    const Golden& out = entry.at("grads_out")[i];
    EXPECT_EQ(params[i].grad.defined(), !out.is_null());
    if (!out.is_null()) {
      EXPECT_TRUE(same_tensor(params[i].grad, out)) << "gradient " << i;
    }
  }
}
const tests::Played played_clip("optimizers.json", "clipping", play_clip);

TEST(ClipGoldens, EveryCall) {
  AMPCHECK_GOLDEN_OR_SKIP(golden, "optimizers.json");
  for (const Golden& entry : golden.at("clipping")) play_clip(entry);
}

TEST(Clip, NormsAndBoundsByHand) {
  Parameter a{"a", Tensor(Dtype::fp32, {1})}, b{"b", Tensor(Dtype::fp32, {1})}, none{"none", Tensor(Dtype::fp32, {1})};
  const std::vector<Parameter*> all{&a, &none, &b};
  const auto set = [&](double x, double y) {
    a.grad = b.grad = Tensor();
    a.grad = Tensor(Dtype::fp32, {1});
    b.grad = Tensor(Dtype::fp32, {1});
    a.grad.span<float>()[0] = static_cast<float>(x);
    b.grad.span<float>()[0] = static_cast<float>(y);
  };
  set(3.0, 4.0);
  EXPECT_EQ(total_norm(all).span<float>()[0], 5.0f);
  EXPECT_EQ(total_norm(all, 1.0).span<float>()[0], 7.0f);
  EXPECT_EQ(total_norm(all, std::numeric_limits<double>::infinity()).span<float>()[0], 4.0f);
  clip_grad_norm_(all, 10.0);
  EXPECT_EQ(a.grad.span<float>()[0], 3.0f);  // never enlarged
  clip_grad_norm_(all, 5.0);
  EXPECT_LT(a.grad.span<float>()[0], 3.0f);  // 5 / (5 + 1e-6): the exact norm is still scaled
  set(1e30, 1e30);
  EXPECT_TRUE(std::isinf(clip_grad_norm_(all, 1.0).span<float>()[0]));  // the squares overflow
  EXPECT_EQ(a.grad.span<float>()[0], 0.0f);                             // and the gradients vanish without a word
  set(std::numeric_limits<double>::infinity(), 1.0);
  EXPECT_THROW(clip_grad_norm_(all, 1.0, 2.0, true), AmpError);
  clip_grad_value_(all, 2.0);
  EXPECT_EQ(a.grad.span<float>()[0], 2.0f);  // the overflow is hidden
}

/// Clipping the scaled gradients instead of the unscaled ones is the classic fault: the update must not depend on the
/// scale.
TEST(Clip, UpdateDoesNotDependOnTheScaleOnlyIfUnscaledFirst) {
  const auto update = [](double scale, bool unscale_first) {
    Parameter w{"w", Tensor(Dtype::fp32, {2})};
    SgdOptions options;
    options.lr = 1.0;
    Sgd sgd({&w}, options);
    GradScalerOptions scaling;
    scaling.init_scale = scale;
    GradScaler scaler(scaling);
    scaler.scale(Tensor(Dtype::fp32, {}));
    w.grad = Tensor(Dtype::fp32, {2});
    from_doubles(std::vector{3.0 * scale, 4.0 * scale}, w.grad.view());
    if (unscale_first) scaler.unscale_(sgd);
    clip_grad_norm_(sgd.parameters(), 1.0);
    scaler.step(sgd);
    return to_doubles(w.value.view());
  };
  EXPECT_EQ(update(1.0, true), update(65536.0, true));
  EXPECT_NE(update(1.0, false), update(65536.0, false));
}

TEST(LrSchedule, FactorsByHand) {
  const LrFactor step = step_lr(3, 0.5);
  EXPECT_EQ(step(2), 1.0);
  EXPECT_EQ(step(3), 0.5);
  EXPECT_EQ(step(8), 0.25);
  const LrFactor cosine = cosine_lr(10, 0.1);
  EXPECT_EQ(cosine(0), 1.0);
  EXPECT_DOUBLE_EQ(cosine(5), 0.55);
  EXPECT_DOUBLE_EQ(cosine(10), 0.1);
  const LrFactor warmup = warmup_linear_lr(4, 12);
  EXPECT_EQ(warmup(0), 0.25);
  EXPECT_EQ(warmup(3), 1.0);
  EXPECT_EQ(warmup(4), 1.0);
  EXPECT_EQ(warmup(8), 0.5);
  EXPECT_EQ(warmup(40), 0.0);
  EXPECT_THROW(warmup_linear_lr(4, 3), Error);
}

TEST(LrSchedule, SkippedStepsDoNotAdvanceIt) {
  for (const bool fused : {false, true}) {
    Parameter w{"w", Tensor(Dtype::fp32, {1})};
    SgdOptions options;
    options.lr = 1.0;
    options.fused = fused;
    Sgd sgd({&w}, options);
    LrSchedule ours(sgd, step_lr(1, 0.5));
    GradScaler scaler;
    std::vector<double> rates;
    for (const double grad : {std::numeric_limits<double>::infinity(), 1.0, std::nan(""), 1.0}) {
      scaler.scale(Tensor(Dtype::fp32, {}));
      w.grad = Tensor(Dtype::fp32, {1});
      from_doubles(std::vector{grad}, w.grad.view());
      scaler.step(sgd);
      scaler.update();
      ours.step();
      rates.push_back(sgd.lr());
    }
    EXPECT_EQ(rates, (std::vector{1.0, 0.5, 0.5, 0.25}));
    EXPECT_EQ(ours.stepped_too_early(), !fused);  // what torch's warning sees: a fused optimizer was called
    // Planted: a schedule that counts calls, as torch's does.
    LrSchedule calls(sgd, step_lr(1, 0.5), LrSchedule::Follows::calls);
    calls.step();
    EXPECT_EQ(calls.t(), 1);
  }
}

}  // namespace
}  // namespace ampcheck
