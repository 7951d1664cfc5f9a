// SPDX-License-Identifier: Apache-2.0
// Which loss scales would have lost nothing: what a trace says of tensors and steps, what `train` says of the run, and
// what runs at these scales then lose.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <cmath>
#include <fstream>
#include <numeric>
#include <random>

#include "checks/train/gradient_range.h"
#include "checks/train/trace.h"
#include "tests/support/run_program.h"
#include "tools/trace/trace_file.h"

namespace ampcheck::testing {
namespace {

using checks::train::GradientRange;
using checks::train::LosslessScales;
using nlohmann::json;

TEST(GradientRange, PartsAndCountsReadBackAreTheWhole) {
  std::mt19937 bits(1);
  std::vector<double> values;
  for (int i = 0; i < 300; ++i)
    values.push_back(std::ldexp(i % 7 == 0 ? 1.0 : 1 + static_cast<double>(bits() % 1000) / 1000,
                                static_cast<int>(bits() % 40) - 30));
  GradientRange whole, parts, back;
  whole.add_part(values, 1, 0);
  for (std::size_t i = 0; i < values.size(); i += 100) {
    GradientRange part;
    part.add_part(std::span(values).subspan(i, 100), 1, 0);
    parts.merge(part);
  }
  std::vector<std::int64_t> counts, powers;
  for (int e = whole.first_exponent(); e <= whole.last_exponent(); ++e) {
    counts.push_back(whole.with_exponent(e));
    powers.push_back(whole.powers_with_exponent(e));
  }
  back.add_counts(whole.amin(), whole.amax(), whole.first_exponent(), counts, powers);
  for (const GradientRange* r : {&parts, &back}) {
    EXPECT_EQ(r->nonzero(), 300);
    EXPECT_EQ(r->amin(), whole.amin());
    EXPECT_EQ(r->amax(), whole.amax());
    for (int k = -20; k < 30; ++k) EXPECT_EQ(r->flushed(k), whole.flushed(k)) << k;
  }
  GradientRange nothing;
  parts.merge(nothing);
  nothing.merge(parts);
  EXPECT_EQ(parts.amin(), nothing.amin());
}

TEST(GradientRange, ASkippedStepBoundsWhatIsAdvised) {
  checks::train::KnownOverflow known;
  for (const double scale : {0.0, HUGE_VAL, -1.0, std::nan("")}) known.add(0, scale, 1, true, false);  // no scales
  known.add(0, 16, HUGE_VAL, true, false);  // the loss itself
  known.add(0, 16, 1, true, true);
  known.add(0, 16, 1, false, false);  // stepped; skipped for another reason
  EXPECT_EQ(known.exponent, checks::train::kMostScale + 1);
  known.add(6, 768, 1, true, false);
  known.add(7, 1024, 1, true, false);
  EXPECT_EQ(known.exponent, 10) << "512 may be right";
  EXPECT_EQ(known.where, "step 7");
  GradientRange range;
  const double value = 1;
  range.add({&value, 1}, 1);
  const checks::train::ScaleAdvice advice = checks::train::advise({{"dx", range}}, known);
  EXPECT_EQ(advice.high, 9);
  EXPECT_EQ(advice.overflows_at, 10);
  EXPECT_EQ(advice.overflows, "step 7");
  EXPECT_EQ(checks::train::advise({{"dx", range}}).overflows, "dx") << "2^16 alone";
}

/// The ends are where flushed() and overflows() change.
TEST(GradientRange, LosslessScalesEndWhereSomethingIsLost) {
  for (const Dtype dtype : {Dtype::fp16, Dtype::bf16})
    for (const double small : {1e-7, 0x1p-20, 0x1.8p-20, 3e-12})
      for (const double large : {0x1p-3, 0.3, 65519.0, 65520.0, 1e30}) {
        GradientRange range(dtype);
        range.add_part(std::vector<double>{small, large}, 1, 0);
        const LosslessScales s = checks::train::lossless_scales(range);
        ASSERT_TRUE(s.low && s.high);
        EXPECT_EQ(range.flushed(*s.low - 1), 0) << small << " " << large;
        EXPECT_GT(range.flushed(*s.low - 2), 0) << small << " " << large;
        EXPECT_FALSE(range.overflows(*s.high)) << small << " " << large;
        EXPECT_TRUE(range.overflows(*s.high + 1)) << small << " " << large;
      }
}

class TraceScale : public ::testing::Test {
 protected:
  /// What train says of a run, and its trace of the same; with the line of train's summary.
  struct Run {
    json train, trace;
    std::string text;
  };
  Run run(const std::string& arguments) {
    const std::string path = folder_.path() + "/run.trace";
    const ProgramResult trained = ampcheck("train --json --record " + path + " " + arguments);
    EXPECT_LE(trained.exit_code, 1) << trained.err;
    return {json::parse(trained.out), json::parse(ampcheck("trace --json " + path).out), ampcheck("trace " + path).out};
  }
  static std::string line(const std::string& text, const std::string& start) {
    const std::size_t at = text.find(start);
    return at == std::string::npos
               ? ""
               : text.substr(at + start.size(), text.find('\n', at + start.size()) - at - start.size());
  }
  TemporaryFolder folder_;
};

TEST_F(TraceScale, TheWindowOfARunIsTrainsAndThatOfItsStepsAndTensors) {
  bool all_lost = false;
  for (const char* arguments :
       {"--steps 8 --scaler none", "--steps 8 --scaler torch", "--steps 12 --scaler torch --lr 1 --momentum 0.9",
        "--steps 5 --scaler none --shadow local", "--steps 5 --shadow carried --accumulate 2",
        "--steps 4 --ranks 2 --loss-weight 1e-3 --scaler none", "--steps 4 --dtype bf16",
        "--steps 2 --grad-penalty 0.1 --scaler none"}) {
    const Run r = run(arguments);
    const json& of = r.trace["loss_scales"];
    ASSERT_EQ(of["run"], r.train["loss_scale"]) << arguments;
    int low = 0, high = 24, step_low = 0, step_high = 24;
    for (const json& t : of["tensors"]) {
      EXPECT_TRUE(t["exact"].get<bool>()) << arguments << t;
      if (!t["low"].is_null()) low = std::max(low, t["low"].get<int>());
      high = std::min(high, t["high"].get<int>());
    }
    for (const json& s : of["steps"]) {
      step_low = std::max(step_low, s["low"].get<int>());
      step_high = std::min(step_high, s["high"].get<int>());
    }
    EXPECT_EQ(low, step_low) << arguments;
    EXPECT_EQ(high, step_high) << arguments;
    EXPECT_EQ(of["steps"].size(), r.train["steps"].size());
    if (low <= high) {
      EXPECT_EQ(low, of["run"]["lossless_low"]) << arguments;
      EXPECT_EQ(high, of["run"]["lossless_high"]) << arguments;
    } else {
      EXPECT_GT(of["run"]["lossless_low"], of["run"]["lossless_high"]) << arguments;
      all_lost = true;
    }
    EXPECT_EQ(contains(r.text, "loss scales that lose nothing"), r.trace["dtype"] == "fp16") << "bf16 needs none";
  }
  EXPECT_TRUE(all_lost) << "the run that goes astray needs more scales than there are";
}

/// Of each tensor its own exact values, without the scale.
TEST_F(TraceScale, ALineHasTheRangeOfItsOwnTensor) {
  run("--steps 3 --shadow local --scaler torch");
  int seen = 0;
  for (const auto& t : tools::read_trace(folder_.path() + "/run.trace").tensors) {
    EXPECT_EQ(t.range.has_value(), t.phase == "backward" && t.dtype == Dtype::fp16 && t.nonzero > 0) << t.name();
    if (!t.range) continue;
    const auto& r = *t.range;
    EXPECT_EQ(std::accumulate(r.counts.begin(), r.counts.end(), std::int64_t{0}), t.nonzero) << t.name();
    EXPECT_EQ(r.first_exponent, std::ilogb(r.amin)) << t.name();
    EXPECT_EQ(r.first_exponent + std::ssize(r.counts) - 1, std::ilogb(r.amax)) << t.name();
    EXPECT_NEAR(t.amax / t.scale, r.amax, kFp16.unit_roundoff() * 8 * r.amax) << t.name();
    ++seen;
  }
  EXPECT_GT(seen, 20);
}

/// 2^-20 is flushed at 2^-5, which leaves half of the smallest subnormal number, and a little more is not: the line
/// says which it was.
TEST_F(TraceScale, AnExactPowerOfTwoIsReadBackAsOne) {
  using namespace checks::train;
  TrainOptions options;
  options.net = {.model = "tutorial", .batch = 4, .width = 4};
  Trainer trainer(options);
  for (const double least : {0x1p-20, 0x1.001p-20}) {
    TraceWriter trace(trainer, 1);
    GradientRange range;
    range.add_part(std::vector<double>{least, 0.3}, 1, 0);
    Event e;
    e.phase = Phase::backward;
    e.op = "linear_1";
    e.tensor = "dx";
    e.range = &range;
    trace.tensor(e, {Phase::backward, false, Dtype::fp16, "linear_1", "", "dx"}, {}, FaultRole::none,
                 TensorStats(Dtype::fp16));
    trace.step({});
    const std::string path = folder_.path() + "/hand.trace";
    std::ofstream(path) << trace.text();
    const tools::ScaleWindows windows = tools::scale_windows(tools::read_trace(path));
    ASSERT_EQ(windows.tensors.size(), 1u);
    EXPECT_EQ(windows.tensors.front().run.low, least == 0x1p-20 ? -3 : -4);
    EXPECT_EQ(windows.tensors.front().run.high, 17);
  }
}

/// A step at the ends of the window, and beyond them; the loss is divided so that the window's lower end is above 1.
TEST_F(TraceScale, RunsAtTheEndsOfTheWindowLoseNothingAndBeyondThemDo) {
  const std::string common = "--steps 1 --loss-weight 1e-3 ";
  const auto lost = [&](int k) {
    const Run r = run(common + "--scaler torch --init-scale " + std::to_string(std::ldexp(1.0, k)));
    std::int64_t flushed = 0, overflowed = 0;
    for (const json& t : r.trace["tensors"])
      if (t["phase"] == "backward" && t["dtype"] == "fp16") {
        flushed += t["flushed"].get<std::int64_t>();
        overflowed += t["overflowed"].get<std::int64_t>();
      }
    return std::pair(flushed > 0, overflowed > 0);
  };
  const Run r = run(common + "--scaler none");
  const int low = r.trace["loss_scales"]["run"]["lossless_low"], high = r.trace["loss_scales"]["run"]["lossless_high"];
  ASSERT_GT(low, 2);
  EXPECT_EQ(lost(low), std::pair(false, false));
  EXPECT_TRUE(lost(low - 4).first);  // a sum whose terms cancel may be some times larger by the run's own cotangents
  EXPECT_EQ(lost(high), std::pair(false, false));
  if (high < 24) {
    EXPECT_TRUE(lost(high + 1).second);
  }
}

/// In a run at one scale, of each tensor and step: what was seen to be lost at that scale keeps it out of what is said
/// to lose nothing. Small sums of large terms are smaller by the low-precision cotangents than by the fp64 run's, and
/// gradients meet the format between ranks again.
TEST_F(TraceScale, NoScaleAtWhichTheRunLostSomethingIsAdvised) {
  int lost = 0, between_ranks = 0, overflowed = 0;
  for (const char* arguments :
       {"--model conv --init-scale 512 --growth-interval 100000 --steps 6",
        "--model conv --scaler none --loss-weight 1e-3 --steps 2", "--model transformer --scaler none --steps 2",
        "--ranks 4 --compress fp16 --init-scale 8 --loss-weight 1e-2 --steps 3",
        "--ranks 4 --compress fp16 --divide post --init-scale 8 --loss-weight 1e-2 --steps 3",
        "--dtype bf16 --ranks 4 --compress fp16 --loss-weight 1e-3 --steps 3",
        "--shadow local --init-scale 4 --loss-weight 1e-2 --steps 2",
        "--shadow carried --scaler none --loss-weight 1e-4 --steps 2", "--init-scale 1e6 --steps 3",
        "--init-scale 16777216 --steps 4"}) {
    run(arguments);
    const tools::Trace trace = tools::read_trace(folder_.path() + "/run.trace");
    const tools::ScaleWindows windows = tools::scale_windows(trace);
    for (std::size_t i = 0; i < trace.tensors.size(); ++i) {
      const auto& t = trace.tensors[i];
      if (!t.range || t.noise || t.flushed + t.overflowed == 0) continue;
      const int k = std::ilogb(t.scale);
      const std::string what = std::string(arguments) + " step " + std::to_string(t.step) + " " + t.name();
      EXPECT_EQ(t.range->amin > 0, t.flushed > 0 || t.nonzero > 0);
      if (t.flushed > 0) {
        ++lost;
        between_ranks += t.phase == "all_reduce";
        EXPECT_GT(windows.by_line[i].low.value(), k) << what;
        EXPECT_TRUE(windows.run.low > windows.run.high || windows.run.low > k) << what;
      }
      if (t.overflowed > 0) {
        ++overflowed;
        EXPECT_LT(windows.by_line[i].high.value(), k + (std::ldexp(1.0, k) < t.scale)) << what;
        EXPECT_TRUE(windows.run.low > windows.run.high || windows.run.high < k + (std::ldexp(1.0, k) < t.scale))
            << what;
      }
    }
  }
  EXPECT_GT(lost, 10);
  EXPECT_GT(between_ranks, 2);
  EXPECT_GT(overflowed, 1);
}

/// The run of the report: an element whose exact value by the op's own inputs was below what fp16 holds, and by the
/// fp64 run was not.
TEST_F(TraceScale, TheAdviceOfAFlushInOneElementHoldsWhenItIsTaken) {
  for (const char* seed : {"8", "12", "19"}) {
    const std::string common =
        std::string("--model conv --growth-interval 100000 --steps 50 --seed ") + seed + " --init-scale ";
    const json first = run(common + "16").train;
    ASSERT_FALSE(first["vanished"].empty()) << "nothing was flushed, seed " << seed;
    const int low = first["loss_scale"]["lossless_low"];
    EXPECT_GT(low, 4);
    EXPECT_TRUE(run(common + std::to_string(1 << low)).train["vanished"].empty()) << seed;
  }
}

TEST_F(TraceScale, TheTextSaysItInTrainsWords) {
  for (const char* scaler : {"none", "torch"}) {
    const std::string path = folder_.path() + "/run.trace",
                      trained = ampcheck("train --steps 6 --record " + path + " --scaler " + scaler).out,
                      shown = ampcheck("trace " + path).out;
    EXPECT_FALSE(line(trained, "\n  scale   ").empty()) << trained;
    EXPECT_EQ(line(shown, "\n  all: "), line(trained, "\n  scale   "));
    EXPECT_TRUE(contains(shown, "lose nothing  skips")) << shown;
  }
}

/// Without a shadow only what a format kept is known: it is marked, and bounds the steps still.
TEST_F(TraceScale, WhatHasNoShadowIsMarked) {
  const Run r = run("--steps 3 --shadow off --scaler none");
  const json& of = r.trace["loss_scales"];
  EXPECT_EQ(of["run"], r.train["loss_scale"]);
  int high = 24;
  bool kept = false;
  for (const json& t : of["tensors"]) {
    kept |= !t["exact"].get<bool>();
    high = std::min(high, t["high"].get<int>());
  }
  EXPECT_TRUE(kept);
  for (const json& s : of["steps"]) EXPECT_GE(s["high"], high);
  EXPECT_LT(high, of["run"]["lossless_high"]) << "dweight has no exact values, and overflows first";
  EXPECT_TRUE(contains(r.text, " *  ")) << r.text;
  EXPECT_TRUE(contains(r.text, "  all but *: ")) << r.text;
}

}  // namespace
}  // namespace ampcheck::testing
