// SPDX-License-Identifier: Apache-2.0
// The four models in fp16 with a scaler, in bf16 and in fp32: over five seeds their loss curves stay within the spread
// of the fp64 runs, or the trace names the op that takes them out of it. With fewer soak seeds than all, one seed and
// fewer steps.
#include <algorithm>
#include <cmath>

#include "checks/train/diagnosis.h"
#include "src/freed_memory.h"
#include "tests/support/paths.h"
#include "tests/support/soak.h"

namespace ampcheck::checks::train {
namespace {

struct Curve {
  const char* model;
  Dtype dtype;
};
void PrintTo(const Curve& one, std::ostream* out) { *out << one.model << ' ' << name(one.dtype); }

TrainOptions options_of(const Curve& curve, std::uint64_t seed, bool local) {
  TrainOptions options;
  options.net.model = curve.model;
  options.net.width = 128;
  options.net.seed = options.seed = seed;
  if (options.net.model == "tutorial") options.net.batch = 32;
  options.net.data = tests::in_source("/tests/data");
  options.dtype = curve.dtype;
  options.scaler.enabled = curve.dtype == Dtype::fp16;
  options.shadows = {.local = local, .carried = true};
  return options;
}

/// Mean fp64 loss of the first and the last quarter of the runs, added up over the seeds, and the furthest that a loss
/// was apart, in spreads.
struct Course {
  double first = 0, last = 0, most = 0;
};

/// The steps of a run, and what is made of them.
Diagnosis run(const TrainOptions& options, int steps, Course& course) {
  Trainer trainer(options);
  std::vector<StepResult> results;
  for (int i = 0; i < steps; ++i) {
    results.push_back(trainer.step());
    const StepResult& last = results.back();
    if (last.apart) course.most = std::max(course.most, std::fabs(*last.apart) / *last.spread);
    if (i < steps / 4) course.first += *last.fp64_loss;
    if (i >= steps - steps / 4) course.last += *last.fp64_loss;
  }
  return diagnose(trainer, results);
}

class TrainingSoak : public ::testing::TestWithParam<Curve> {};

TEST_P(TrainingSoak, StaysWithinTheSpreadOfFp64) {
  const bool full = soak_seeds() >= 200;
  const std::uint64_t seeds = full ? 5 : 1;
  const int steps = full ? 50 : 20;
  Course course;
  int left = 0;
  std::size_t skipped = 0;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const Diagnosis diagnosis = run(options_of(GetParam(), seed, false), steps, course);
    skipped += diagnosis.skipped.size();
    if (!diagnosis.left_at) continue;
    ++left;
    Course ignored;
    const Diagnosis traced = run(options_of(GetParam(), seed, true), *diagnosis.left_at + 1, ignored);
    EXPECT_TRUE(traced.producer || traced.worst)
        << "left at step " << *diagnosis.left_at + 1 << ", seed " << seed << ", and no op is named";
    std::printf("%s %s seed %d left at step %d: %s\n", GetParam().model, name(GetParam().dtype), static_cast<int>(seed),
                *diagnosis.left_at + 1,
                traced.producer ? traced.producer->where.str().c_str()
                : traced.worst  ? traced.worst->where.str().c_str()
                                : "?");
  }
  EXPECT_EQ(left, 0) << "these models stay";
  if (GetParam().model != std::string("tutorial")) {  // whose targets are noise
    EXPECT_LT(course.last, course.first) << "nothing was learned";
  }
  std::printf("%s %s: %d seeds of %d steps, %d left, at most %.2g of the spread apart, %d steps skipped\n",
              GetParam().model, name(GetParam().dtype), static_cast<int>(seeds), steps, left, course.most,
              static_cast<int>(skipped));
}

std::vector<Curve> curves() {
  std::vector<Curve> out;
  for (const char* model : {"mlp", "conv", "transformer", "tutorial"})
    for (const Dtype dtype : {Dtype::fp16, Dtype::bf16, Dtype::fp32}) out.push_back({model, dtype});
  return out;
}

INSTANTIATE_TEST_SUITE_P(Models, TrainingSoak, ::testing::ValuesIn(curves()),
                         [](const auto& info) { return std::string(info.param.model) + "_" + name(info.param.dtype); });

/// The same test has an opposite: without a scaler and with gradients too small for fp16 the run leaves, and the cast
/// that does it is named.
TEST(TrainingSoak, ARunThatLeavesIsCaught) {
  TrainOptions options = options_of({"mlp", Dtype::fp16}, 1, true);
  options.scaler.enabled = false;
  options.rule.optimizer = {.name = "adam", .lr = 0.003};
  options.rule.loss_weight = 1e-6;
  Trainer trainer(options);
  std::vector<StepResult> results;
  for (int i = 0; i < 20; ++i) results.push_back(trainer.step());
  const Diagnosis diagnosis = diagnose(trainer, results);
  ASSERT_TRUE(diagnosis.left_at);
  ASSERT_FALSE(diagnosis.vanished.empty());
  EXPECT_EQ(diagnosis.vanished.front().where.phase, Phase::backward);
}

/// The tutorial net at its own size, three layers of 4096: two steps, beside one run in fp64.
TEST(TrainingSoak, TutorialAtItsOwnSize) {
  if (soak_seeds() < kSoakSeeds) GTEST_SKIP() << "each batch takes minutes: in the whole soak alone";
  keep_freed_memory();
  for (const std::int64_t batch : {100, 128, 256, 513}) {
    TrainOptions options;
    options.net.model = "tutorial";
    options.net.batch = batch;
    options.scaler.init_scale = 1024;
    Trainer trainer(options);
    trainer.prepare();
    Fp64Run fp64(trainer.net(), trainer.options().rule, options.seed);
    fp64.start_from(trainer.parameters());
    for (int i = 0; i < 2; ++i) {
      const StepResult step = trainer.step();
      EXPECT_TRUE(step.stepped) << batch;
      EXPECT_NEAR(step.loss, fp64.step(), kFp16.unit_roundoff() * step.loss)
          << batch << ": less than one rounding to fp16";
    }
    std::int64_t elements = 0;
    for (const Parameter& p : trainer.parameters().all()) elements += p.value.count();
    EXPECT_EQ(elements, 3 * (4096 * 4096 + 4096));
  }
}

}  // namespace
}  // namespace ampcheck::checks::train
