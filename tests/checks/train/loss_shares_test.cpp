// SPDX-License-Identifier: Apache-2.0
// Which op's error moves the loss, and which decisions it moves.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "checks/models/real_data.h"
#include "checks/train/diagnosis.h"
#include "tests/support/paths.h"

namespace ampcheck::checks::train {
namespace {

TrainOptions options_of(Dtype dtype) {
  TrainOptions options;
  options.net.data = tests::in_source("/tests/data");
  options.dtype = dtype;
  options.scaler.enabled = false;
  options.shadows = {.local = true, .carried = true};
  return options;
}

struct Shares {
  double sum = 0, observed = 0, rest = 0;
  std::string largest;
  double part = 0;  ///< of the largest, in the sum of squares
};

/// Of the last of `steps` steps. `rest`: what the first order leaves out: the cotangents are those of the fp64 run, and
/// along the way to the low-precision run they change by no more than their own error there: Cauchy and Schwarz for
/// each tensor. Zeros by a symmetry (a bias before a softmax) have no such error.
Shares shares_of(Trainer& trainer, int steps) {
  Shares out;
  StepResult last;
  for (int i = 0; i < steps; ++i) last = trainer.step();
  double squares = 0, most = 0, reach = 0, cotangents = 0, largest = 0;
  for (const auto& [key, t] : trainer.watch()->of_step())
    if (key.phase == Phase::backward) largest = std::max(largest, t.carried2);
  for (const auto& [key, t] : trainer.watch()->of_step()) {
    out.sum += t.loss_error;
    squares += t.loss_error2;
    reach += t.loss_reach;
    if (key.phase == Phase::backward && !key.cast && t.carried2 > 0x1p-40 * largest)
      cotangents = std::max(cotangents, t.carried_error());
    if (t.loss_error2 > most) {
      most = t.loss_error2;
      out.largest = key.str();
    }
  }
  out.sum += last.loss_drift.value();
  out.observed = last.loss - *last.fp64_loss;
  out.part = most / squares;
  out.rest = reach * cotangents + 4 * 0x1p-24 * std::fabs(last.loss);  // and the trainer's own sum in fp32
  return out;
}

TEST(LossShares, AddUpToTheErrorOfTheLoss) {
  for (const Dtype dtype : {Dtype::fp16, Dtype::bf16})
    for (const char* model : {"mlp", "conv", "transformer"}) {
      TrainOptions options = options_of(dtype);
      options.net.model = model;
      Trainer trainer(options);
      const Shares shares = shares_of(trainer, 1);
      EXPECT_NEAR(shares.sum, shares.observed, shares.rest) << model << " " << name(dtype);
      EXPECT_LT(shares.rest, 1e-2) << model << ": a rest that excludes nothing";
    }
}

TEST(LossShares, WeightsThatCameApartAreAShareToo) {
  Trainer trainer(options_of(Dtype::bf16));
  const Shares shares = shares_of(trainer, 4);
  Trainer again(options_of(Dtype::bf16));
  StepResult last;
  for (int i = 0; i < 4; ++i) last = again.step();
  EXPECT_GT(std::fabs(*last.loss_drift), 0);
  EXPECT_LT(std::fabs(shares.sum - shares.observed), std::fabs(shares.sum - *last.loss_drift - shares.observed))
      << "with the drift it adds up better";
}

/// One op that rounds to three bits, as e4m3 does, has the largest share; twice the error has twice the share, and four
/// times the rest.
TEST(LossShares, AnOpOfTooFewBitsHasTheLargest) {
  TrainOptions plain = options_of(Dtype::bf16);
  Trainer right(plain);
  EXPECT_NE(shares_of(right, 1).largest, "relu_1 forward y");
  TrainOptions options = options_of(Dtype::bf16);
  options.fault = [](const Event& e) {
    if (e.op != "relu_1" || e.phase != Phase::forward || e.cast) return;
    for (std::int64_t i = 0; i < e.got.count(); ++i) e.got.as<std::uint16_t>()[i] &= 0xfff0;  // 3 of 7 bits
  };
  Trainer wrong(options);
  const Shares shares = shares_of(wrong, 1);
  EXPECT_EQ(shares.largest, "relu_1 forward y");
  EXPECT_GT(shares.part, 0.9);

  double sums[2], rests[2];
  for (const int halvings : {0, 1}) {
    TrainOptions scaled = options_of(Dtype::fp32);
    scaled.fault = [halvings](const Event& e) {
      if (e.op == "relu_1" && e.phase == Phase::forward)
        for (std::int64_t i = 0; i < e.got.count(); ++i) e.got.as<float>()[i] *= 1 + std::ldexp(0.25f, -halvings);
    };
    Trainer trainer(scaled);
    const Shares s = shares_of(trainer, 1);
    sums[halvings] = s.sum;
    rests[halvings] = s.sum - s.observed;
  }
  EXPECT_NEAR(sums[0] / sums[1], 2, 1e-3);
  EXPECT_NEAR(rests[0] / rests[1], 4, 1) << "the first order leaves out the second";
}

/// The norm of the gradient moves by what forward ops err and by what backward ops err.
TEST(LossShares, OfTheGradientsNormAddUpToo) {
  struct Norm {
    double sum = 0, observed = 0;
    std::string largest;
  };
  const auto norm_of = [](const TrainOptions& options) {
    Trainer trainer(options);
    const StepResult result = trainer.step();
    Norm out;
    double most = 0, low = 0, fp64 = 0;
    for (const auto& [key, t] : trainer.watch()->of_step()) {
      out.sum += t.norm_error;
      if (t.norm_error2 > most) {
        most = t.norm_error2;
        out.largest = key.str();
      }
    }
    for (const double n : result.norms) low += n * n;
    for (const Parameter& p : trainer.reference().front()->parameters().all())
      for (const double g : p.grad.span<double>()) fp64 += g * g;
    out.observed = std::sqrt(low) - std::sqrt(fp64);
    return out;
  };
  for (const char* model : {"mlp", "conv", "transformer"}) {
    TrainOptions right = options_of(Dtype::fp32);
    right.net.model = model;
    const Norm unhurt = norm_of(right);
    for (const bool backward : {false, true}) {
      Norm of[2];
      for (const int halvings : {0, 1}) {
        TrainOptions options = options_of(Dtype::fp32);
        options.net.model = model;
        options.fault = [=](const Event& e) {
          if (e.op != "linear_1" || e.tensor != (backward ? "dweight" : "y")) return;
          for (std::int64_t i = 0; i < e.got.count(); ++i) e.got.as<float>()[i] *= 1 + std::ldexp(0x1p-5f, -halvings);
        };
        of[halvings] = norm_of(options);
        EXPECT_EQ(of[halvings].largest.find("linear_1"), 0u) << model << " " << of[halvings].largest;
      }
      // Less what fp32 does by itself; what the first order leaves out is of second order.
      EXPECT_NEAR((of[0].sum - unhurt.sum) / (of[1].sum - unhurt.sum), 2, 0.01) << model << backward;
      const auto rest = [&](const Norm& n) { return n.sum - n.observed - (unhurt.sum - unhurt.observed); };
      EXPECT_NEAR(rest(of[0]) / rest(of[1]), 4, 1) << model << backward << " " << of[0].sum << " " << of[0].observed;
    }
  }
  // Powers of two as scale and loss weight change no bit but the exponents, and cancel.
  TrainOptions scaled = options_of(Dtype::fp32), plain = options_of(Dtype::fp32);
  scaled.scaler.enabled = true;
  scaled.scaler.init_scale = 1024;
  scaled.rule.loss_weight = 0.5;
  const double want = norm_of(plain).sum;
  EXPECT_NEAR(norm_of(scaled).sum, want, 1e-9 * std::fabs(want));
}

/// One step's errors of gradients.
std::vector<GradientError> gradient_errors_of(TrainOptions options, int steps = 1) {
  options.gradient_errors = 1;
  Trainer trainer(options);
  StepResult last;
  for (int i = 0; i < steps; ++i) last = trainer.step();
  return last.gradient_errors;
}

const GradientPart& largest_part(const GradientError& e) {
  return *std::max_element(e.parts.begin(), e.parts.end(),
                           [](const auto& a, const auto& b) { return std::fabs(a.moves) < std::fabs(b.moves); });
}

/// The parts add up to the error, but for what is of second order: half the error, a quarter of the rest.
TEST(GradientErrors, PartsAddUpToEachParametersError) {
  for (const char* model : {"mlp", "conv"}) {
    std::vector<GradientError> of[2];
    for (const int halvings : {0, 1}) {
      TrainOptions options = options_of(Dtype::fp32);
      options.net.model = model;
      options.fault = [=](const Event& e) {
        if (e.op != "linear_1" || e.tensor != "y" || e.phase != Phase::forward) return;
        for (std::int64_t i = 0; i < e.got.count(); ++i) e.got.as<float>()[i] *= 1 + std::ldexp(0x1p-7f, -halvings);
      };
      of[halvings] = gradient_errors_of(options);
    }
    ASSERT_EQ(of[0].size(), of[1].size());
    double largest = 0;
    int halved = 0;
    for (const GradientError& e : of[0]) largest = std::max(largest, e.error);
    for (std::size_t p = 0; p < of[0].size(); ++p) {
      double rest[2];
      for (const int k : {0, 1}) {
        rest[k] = of[k][p].error - of[k][p].apart;
        for (const GradientPart& part : of[k][p].parts) rest[k] -= part.moves;
      }
      if (of[0][p].error < 1e-3 * largest) continue;  // barely behind the op, if at all: fp32's own roundings
      ++halved;
      EXPECT_EQ(largest_part(of[0][p]).from.op, "linear_1") << model << " " << of[0][p].parameter;
      EXPECT_LT(std::fabs(rest[0]), 0.1 * of[0][p].error) << model << " " << of[0][p].parameter;
      const double own = 64 * 0x1p-24 * of[1][p].size;  // what fp32 errs by itself, in sums of 64 rows
      EXPECT_LT(std::fabs(rest[1]), 0.5 * std::fabs(rest[0]) + own) << model << " " << of[0][p].parameter;
    }
    EXPECT_GT(halved, 2) << model;
  }
}

/// An op of too few bits is in the gradients behind it and in no other, and there it is more than rounding. A right run
/// names nothing.
TEST(GradientErrors, AnOpOfTooFewBitsIsInTheGradientsBehindItAlone) {
  const std::string planted = "linear_2 (layer1) backward dx";
  for (const bool wrong : {true, false})
    for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
      TrainOptions options = options_of(dtype);
      options.scaler.enabled = dtype == Dtype::fp16;
      options.scaler.init_scale = 1024;
      if (wrong)
        options.fault = [](const Event& e) {
          if (e.op != "linear_2" || e.tensor != "dx" || e.phase != Phase::backward || e.cast) return;
          const std::uint16_t kept = e.got.dtype == Dtype::bf16 ? 0xfff0 : 0xff80;  // three bits of the fraction
          for (std::int64_t i = 0; i < e.got.count(); ++i) e.got.as<std::uint16_t>()[i] &= kept;
        };
      const std::vector<GradientError> errors = gradient_errors_of(options);
      ASSERT_EQ(errors.size(), 6u);
      for (const GradientError& e : errors) {
        const bool behind = e.parameter.starts_with("layer0");
        ASSERT_FALSE(e.parts.empty());
        if (wrong) {
          EXPECT_EQ(largest_part(e).from.str() == planted, behind)
              << name(dtype) << " " << e.parameter << " " << largest_part(e).from.str();
        }
        for (const GradientPart& part : e.parts) {
          const bool named = std::fabs(part.moves) > part.rounding;
          EXPECT_EQ(named, wrong && behind && part.from.str() == planted)
              << name(dtype) << " " << e.parameter << " " << part.from.str() << " " << part.moves << " "
              << part.rounding;
          EXPECT_TRUE(behind || part.from.str() != planted) << "no way leads from there to " << e.parameter;
        }
      }
    }
}

/// Ranks, micro-batches, weights of the loss, scales and clipping change who computes what, not what is in the error.
TEST(GradientErrors, OfRanksAndMicroBatchesAddUpToo) {
  for (const int way : {0, 1, 2, 3}) {
    const bool ranks = way == 0;
    TrainOptions options = options_of(Dtype::fp32);  // whose masks of relu are those of fp64
    options.fault = [](const Event& e) {
      if ((e.op == "linear_1" && e.phase == Phase::forward) || (e.op == "linear_3" && e.tensor == "dx"))
        for (std::int64_t i = 0; i < e.got.count(); ++i) e.got.as<float>()[i] *= 1 + 0x1p-7f;
    };
    options.rule.ranks = ranks ? 3 : 1;
    options.rule.accumulate = ranks ? 2 : 3;
    options.rule.loss_weight = 0.5;
    options.scaler.enabled = true;
    options.scaler.init_scale = 512;
    if (ranks) options.reduce.compress = Dtype::bf16;
    options.net.batch = 16;
    if (way == 2) options.rule.clip_norm = 1e-3;
    if (way == 3) options.rule.clip_value = 1e-4;
    const std::vector<GradientError> errors = gradient_errors_of(options, 2);
    EXPECT_FALSE(errors.empty()) << way;
    for (const GradientError& e : errors) {
      double sum = e.apart;
      bool reduced = false;
      for (const GradientPart& part : e.parts) {
        sum += part.moves;
        reduced |= part.from.phase == Phase::all_reduce;
      }
      EXPECT_NEAR(sum, e.error, 0.1 * e.error) << e.parameter;
      EXPECT_EQ(reduced, ranks);
      EXPECT_NE(e.apart, 0);
      EXPECT_GT(e.size, 2e-3) << "not the size of what was clipped";
    }
  }
}

/// With what ops make of their inputs' errors and with sums of gradients, nothing is left to explain.
double all_parts(const GradientError& e) {
  double sum = e.apart;
  for (const GradientPart& part : e.parts) sum += part.moves;
  for (const GradientPart& part : e.inherited) sum += part.moves;
  for (const auto& [of, moves] : e.sums) sum += moves;
  return sum;
}

TEST(GradientErrors, AllPartsOfTheFourNetsAddUp) {
  for (const char* model : {"mlp", "conv", "transformer", "tutorial"})
    for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
      TrainOptions options = options_of(dtype);
      options.net.model = model;
      if (model == std::string("tutorial")) options.net.width = 48;
      options.sampling.from = 1;
      options.scaler.enabled = dtype == Dtype::fp16;
      options.scaler.init_scale = 1024;
      const std::vector<GradientError> errors = gradient_errors_of(options, 2);
      ASSERT_FALSE(errors.empty());
      double largest = 0;
      for (const GradientError& e : errors) largest = std::max(largest, e.size);
      for (const GradientError& e : errors) {
        if (e.size <= kFp32.unit_roundoff() * largest) continue;  // zero by a symmetry
        EXPECT_NEAR(all_parts(e), e.error, 0.1 * e.error) << model << " " << name(dtype) << " " << e.parameter;
      }
    }
}

/// An element of relu's input that lands on the other side: the mask is named. One on its own side flips nothing.
TEST(GradientErrors, AFlippedMaskIsNamedAndNoOther) {
  for (const bool flips : {true, false}) {
    TrainOptions options = options_of(Dtype::fp32);
    options.fault = [flips](const Event& e) {
      if (e.op != "linear_1" || e.phase != Phase::forward || e.cast) return;
      float* const x = e.got.as<float>();
      float* const least = std::min_element(
          x, x + e.got.count(), [](float a, float b) { return (a > 0 ? a : INFINITY) < (b > 0 ? b : INFINITY); });
      *least *= flips ? -1.0f : 1.5f;
    };
    double masks = 0, error = 0;
    for (const GradientError& e : gradient_errors_of(options)) {
      if (!e.parameter.starts_with("layer0")) continue;
      error += e.error;
      for (const GradientPart& part : e.inherited)
        if (part.from.op == "relu_1") masks += part.moves;
    }
    EXPECT_GT(error, 0);
    if (flips)
      EXPECT_GT(masks, 0.5 * error);
    else
      EXPECT_LT(std::fabs(masks), 1e-3 * error);
  }
}

/// Micro-batches that are added in 16 bits; in fp32 their sum is no part worth a word.
TEST(GradientErrors, SumsOfMicroBatchesIn16BitsAreNamed) {
  double share[2];
  for (const bool low : {true, false}) {
    TrainOptions options = options_of(Dtype::bf16);
    options.rule.optimizer.weights = low ? Weights::low : Weights::fp32;
    options.rule.accumulate = 4;
    options.net.batch = 16;
    double sums = 0, error = 0;
    for (const GradientError& e : gradient_errors_of(options)) {
      error += e.error;
      for (const auto& [of, moves] : e.sums)
        if (of == e.parameter) sums += std::fabs(moves);
      EXPECT_NEAR(all_parts(e), e.error, 0.1 * e.error) << e.parameter;
    }
    share[low ? 0 : 1] = sums / error;
  }
  EXPECT_GT(share[0], 0.01);
  EXPECT_LT(share[1], 0.01 * share[0]);
}

/// Right runs of nets with gradients that are zero by a symmetry, weights that came apart, and every kind of op.
TEST(GradientErrors, RightRunsNameNothing) {
  for (const char* model : {"conv", "transformer"})
    for (const Dtype dtype : {Dtype::fp16, Dtype::bf16, Dtype::fp32}) {
      if (model == std::string("transformer") && dtype != Dtype::fp16)
        continue;  // which has the smallest range, and takes its time
      TrainOptions options = options_of(dtype);
      options.net.model = model;
      options.sampling.from = 1;
      options.scaler.enabled = dtype == Dtype::fp16;
      options.scaler.init_scale = 1024;
      const std::vector<GradientError> errors = gradient_errors_of(options, 2);
      double largest = 0;
      for (const GradientError& e : errors) largest = std::max(largest, e.size);
      int noise = 0;
      for (const GradientError& e : errors) {
        if (e.size <= kFp32.unit_roundoff() * largest) {
          ++noise;
          continue;
        }
        for (const GradientPart& part : e.parts)
          EXPECT_LE(std::fabs(part.moves), part.rounding)
              << model << " " << name(dtype) << " " << e.parameter << " " << part.from.str();
      }
      EXPECT_EQ(noise, model == std::string("conv") ? 1 : 2) << "the biases before a softmax";
    }
}

TEST(LossShares, DecisionsThatFlipAreCounted) {
  const auto tally_of = [](const TrainOptions& options) {
    Trainer trainer(options);
    trainer.step();
    Tally out;
    for (const auto& [key, t] : trainer.watch()->of_step())
      if (t.decisions > 0) out.add(t);
    return out;
  };
  const Tally fp32 = tally_of(options_of(Dtype::fp32)), bf16 = tally_of(options_of(Dtype::bf16));
  EXPECT_EQ(fp32.decisions, 64);
  EXPECT_EQ(fp32.flipped, 0);
  EXPECT_LE(fp32.undecided, bf16.undecided);
  EXPECT_LE(bf16.flipped, bf16.undecided);
  EXPECT_GT(fp32.least_margin, 0);
  // The two largest logits of three rows exchanged: these flip, and no other.
  TrainOptions swapped = options_of(Dtype::fp32);
  swapped.fault = [](const Event& e) {
    if (e.op != "linear_3" || e.phase != Phase::forward || e.cast) return;
    for (int row : {0, 5, 63}) {
      float* const x = e.got.as<float>() + row * 10;
      float* const first = std::max_element(x, x + 10);
      float* second = first == x ? x + 1 : x;
      for (float* v = x; v != x + 10; ++v)
        if (v != first && *v > *second) second = v;
      std::swap(*first, *second);
    }
  };
  const Tally flipped = tally_of(swapped);
  EXPECT_EQ(flipped.flipped, 3);
  EXPECT_EQ(flipped.undecided, 3 + fp32.undecided);
  TrainOptions squares = options_of(Dtype::fp32);
  squares.net.loss = "mse";
  EXPECT_EQ(tally_of(squares).decisions, 0) << "no argmax follows";
}

}  // namespace
}  // namespace ampcheck::checks::train
