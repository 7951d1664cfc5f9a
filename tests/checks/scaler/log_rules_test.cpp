// SPDX-License-Identifier: Apache-2.0
// Which rule a log follows: on torch's recorded scales, and on logs whose rule departs at one known step.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <optional>

#include "checks/scaler/answers.h"
#include "src/amp/error.h"
#include "tests/support/goldens.h"
#include "tests/support/scaler_player.h"

namespace ampcheck::checks::scaler {
namespace {

using tests::Golden;

struct Row {
  double scale = 0;
  bool skip = false;
};

/// A line for each step, from step `first` on.
std::string csv(const std::vector<Row>& rows, std::size_t first = 1) {
  std::string out = "step,loss_scale,skipped\n";
  for (std::size_t i = first - 1; i < rows.size(); ++i)
    out += fmt::format("{},{},{}\n", i + 1, rows[i].scale, rows[i].skip ? 1 : 0);
  return out;
}

Answer rule_answer(const std::string& log, const std::string& rule) { return audit_log(log, rule).answers.at(0); }

/// The step at which the log leaves the rule; 0: nowhere.
std::int64_t departure(const std::string& log, const std::string& rule) {
  const Answer a = rule_answer(log, rule);
  if (a.kind == "follows" || a.kind == "constant") return 0;
  return a.evidence.empty() ? -1 : a.evidence[0].step.value_or(-1);
}

std::vector<Row> rows_of(const Golden& pattern) {
  std::vector<Row> out;
  for (std::size_t i = 0; i < pattern.at("stepped").text.size(); ++i)
    out.push_back({tests::real(pattern.at("scale_after_update")[i]), pattern.at("stepped").text[i] == '0'});
  return out;
}

/// The first step at which a scale by that rule is another than the recorded one; 0: at none.
std::int64_t first_other(ScaleRule rule, const std::vector<Row>& rows) {
  LossScale scale(rule);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    try {
      scale.update(rows[i].skip);
    } catch (const AmpError&) {
      return static_cast<std::int64_t>(i) + 1;
    }
    const double got = scale.scale(), want = rows[i].scale;
    const bool same = got == want || std::abs(got - want) <= 1e-3 * std::abs(want) || (got != got && want != want);
    if (!same || std::isinf(got) != std::isinf(want)) return static_cast<std::int64_t>(i) + 1;
  }
  return 0;
}

/// As far as any window and first scale of a rule can follow the record: what an audit cannot know it may not hold
/// against a run.
std::int64_t due_departure(ScaleRule rule, const std::vector<Row>& rows, const GradScalerOptions& options) {
  if (rule.name != std::string_view("keras") && rule.name != std::string_view("apex")) {
    rule.growth_factor = options.growth_factor;
    rule.backoff_factor = options.backoff_factor;
  }
  std::int64_t out = 1;
  const double first = rows.at(0).scale;
  for (const double start : {options.init_scale, first, first / rule.growth_factor, first / rule.backoff_factor})
    for (std::int32_t window = 1; window <= 2001; window += window < 60 || window >= 1998 ? 1 : 1938) {
      rule.init_scale = start;
      rule.window = window;
      const std::int64_t at = first_other(rule, rows);
      if (at == 0) return 0;
      out = std::max(out, at);
    }
  return out;
}

constexpr const char* kTraces = "grad_scaler_traces.json";

TEST(LogRules, TorchsTracesFollowTorchsRule) {
  AMPCHECK_GOLDEN_OR_SKIP(golden, kTraces);
  int asked = 0;
  for (const Golden& pattern : golden.at("patterns")) {
    const std::string log = csv(rows_of(pattern));
    if (pattern.at("setters").size() > 0 || tests::scaler_options(pattern.at("scaler")).init_scale < 0) continue;
    EXPECT_EQ(departure(log, "torch"), 0) << pattern.at("name").text << ": " << rule_answer(log, "torch").text;
    ++asked;
  }
  EXPECT_GE(asked, 30);
}

TEST(LogRules, TorchsTracesLeaveOtherRulesExactlyWhereTheyShould) {
  AMPCHECK_GOLDEN_OR_SKIP(golden, kTraces);
  int left = 0, followed = 0;
  for (const Golden& pattern : golden.at("patterns")) {
    const GradScalerOptions options = tests::scaler_options(pattern.at("scaler"));
    if (pattern.at("setters").size() > 0 || !(options.init_scale > 0) || !(options.backoff_factor > 0)) continue;
    const std::vector<Row> rows = rows_of(pattern);
    for (const ScaleRule& rule : scale_rules()) {
      const std::int64_t due = due_departure(rule, rows, options);
      EXPECT_EQ(departure(csv(rows), rule.name), due) << pattern.at("name").text << " under " << rule.name;
      ++(due > 0 ? left : followed);
    }
  }
  std::cout << followed << " of torch's traces follow another rule too, " << left << " leave it\n";
}

TEST(LogRules, ASetterIsADeparture) {
  AMPCHECK_GOLDEN_OR_SKIP(golden, kTraces);
  for (const Golden& pattern : golden.at("patterns")) {
    if (pattern.at("setters").size() == 0) continue;
    const std::int64_t at = departure(csv(rows_of(pattern)), "torch");
    const auto set = static_cast<std::int64_t>(pattern.at("setters")[0].at("before_iteration").value);
    EXPECT_TRUE(at == 0 || at > set) << pattern.at("name").text << " at " << at << ", set before " << set;
  }
}

/// A run of a rule; a step is skipped where its scale is above `most`.
std::vector<Row> played(ScaleRule rule, double most, std::int64_t steps) {
  LossScale scale(rule);
  std::vector<Row> out;
  for (std::int64_t i = 0; i < steps; ++i) {
    const bool skip = scale.scale() > most;
    scale.update(skip);
    out.push_back({scale.scale(), skip});
  }
  return out;
}

TEST(LogRules, ALogMayBeginInTheMiddleOfARun) {
  for (const char* const name : {"torch", "megatron", "deepspeed", "flax"}) {
    ScaleRule rule = scale_rule(name);
    rule.init_scale = 65536;
    std::vector<Row> rows = played(rule, 0x1p17, 12'000);
    for (const std::size_t first : {1u, 700u, 3500u, 5500u})
      EXPECT_EQ(departure(csv(rows, first), name), 0) << rule_answer(csv(rows, first), name).text;
    rows[11'000].scale *= 4;
    EXPECT_EQ(departure(csv(rows, 5500), name), 11'001) << "planted: the scale moves where no window ends";
  }
}

TEST(LogRules, FactorsOfOnesOwnAreNamed) {
  ScaleRule rule = scale_rule("torch");
  rule.window = 20;
  rule.growth_factor = 1.5;
  rule.backoff_factor = 0.9;
  std::vector<Row> rows = played(rule, 2e5, 400);
  const Answer a = rule_answer(csv(rows), "torch");
  EXPECT_EQ(a.health, Health::harmless);
  EXPECT_TRUE(a.text.find("torch (window 20, growth 1.5, backoff 0.9)") != std::string::npos) << a.text;
  EXPECT_EQ(departure(csv(rows), "keras"), 20) << "which doubles";
  const auto fall = std::find_if(rows.begin() + 200, rows.end(), [](const Row& row) { return row.skip; });
  ASSERT_NE(fall, rows.end());
  fall->scale /= 2;
  EXPECT_EQ(departure(csv(rows), "torch"), fall - rows.begin() + 1) << "planted: one fall goes further";
}

TEST(LogRules, AnInfiniteScaleIsNotTheLargestOne) {
  std::vector<Row> rows = {{0x1p127}, {0x1p127}, {0x1p127}, {0x1p126, true}, {0x1p127}, {0x1p127}};
  EXPECT_EQ(departure(csv(rows), "torch"), 0);
  EXPECT_EQ(departure(csv(rows), "keras"), 5) << "which has no guard: " << rule_answer(csv(rows), "keras").text;
}

TEST(LogRules, TheFirstStepMayBeAnOverflowThatIsHeldOff) {
  const std::vector<Row> held = {{65536, true}, {32768, true}, {16384, true}, {16384}, {16384}};
  EXPECT_EQ(departure(csv(held), "deepspeed"), 0) << rule_answer(csv(held), "deepspeed").text;
  EXPECT_EQ(departure(csv(held), "megatron"), 0);
  const std::vector<Row> twice = {{65536, true}, {65536, true}, {32768, true}, {32768}, {32768}};
  EXPECT_EQ(departure(csv(twice), "deepspeed"), 2) << "planted: a hysteresis of 3";
}

}  // namespace
}  // namespace ampcheck::checks::scaler
