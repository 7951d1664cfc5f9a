// SPDX-License-Identifier: Apache-2.0
// The audit of scalers on planted faults, on right ones, and on the program's own.
#include "checks/scaler/call_checks.h"

#include <gtest/gtest.h>

#include <iostream>
#include <set>

#include "tests/support/planted_scalers.h"
#include "tests/support/sanitized.h"

namespace ampcheck::checks::scaler {
namespace {

constexpr int kShort = 5;  // of sequences, where many audits run

std::string said(const CallAudit& audit) {
  std::string out;
  for (const CheckResult& r : audit.results) {
    if (r.outcome == Outcome::passed || r.outcome == Outcome::not_asked) continue;
    out += std::string("  ") + r.check->code + " " + name(r.outcome) + ": " + r.says + "; " + r.setup + ":";
    for (const std::string& call : r.calls) out += " " + call;
    out += "\n";
  }
  return out;
}

/// The code of the failure that explains the others, or else of a weakness.
std::string found(const CallAudit& audit) {
  if (const CheckResult* head = audit.headline()) return head->check->code;
  for (const CheckResult& r : audit.results)
    if (r.outcome == Outcome::weak) return r.check->code;
  return "none";
}

TEST(CallChecks, EveryPlantedFaultIsFoundByItsCode) {
  EXPECT_GE(tests::planted_scalers().size(), 60u);
  std::set<std::string> codes;
  std::size_t right = 0;
  for (const tests::PlantedScaler& planted : tests::planted_scalers()) {
    ScaleRule rule = scale_rule(planted.rule);
    if (rule.floor == 0) rule.floor = 1;  // a floor of its own, so that its absence is no weakness
    const auto subject = tests::small_scaler(rule, planted.fault);
    const CallAudit audit = audit_calls(*subject, rule, kShort);
    EXPECT_EQ(found(audit), planted.code) << planted.fault << "\n" << said(audit);
    codes.insert(planted.code);
    right += found(audit) == planted.code ? 1 : 0;
  }
  std::cout << "score: " << right << " of " << tests::planted_scalers().size() << " planted scalers have the code that "
            << "is due, of " << codes.size() << " codes\n";
  for (const CallCheck& check : call_checks())
    EXPECT_TRUE(codes.contains(check.code)) << check.code << " has no planted fault";
}

TEST(CallChecks, RightScalersPass) {
  for (const ScaleRule& known : scale_rules()) {
    SCOPED_TRACE(known.name);
    const auto subject = tests::small_scaler(known);
    const CallAudit audit = audit_calls(*subject, known, kShort);
    EXPECT_EQ(audit.headline(), nullptr) << said(audit);
  }
}

TEST(CallChecks, TheProgramsOwnScalersPassAndTheirRulesWeaknessesAreNamed) {
  for (const ScaleRule& known : scale_rules()) {
    SCOPED_TRACE(known.name);
    const auto subject = built_in_scaler(known);
    const CallAudit audit = audit_calls(*subject, known, kShort);
    EXPECT_EQ(audit.headline(), nullptr) << said(audit);
  }
  const auto torch = built_in_scaler(scale_rule("torch"));
  const CallAudit audit = audit_calls(*torch, scale_rule("torch"), kShort);
  std::string weak;
  for (const CheckResult& r : audit.results)
    if (r.outcome == Outcome::weak) weak += std::string(r.check->code) + " ";
  EXPECT_EQ(weak, "S3 S4 S9 S16 S23 ") << "torch_amp.md 1.4 and 1.5";
}

TEST(CallChecks, AllSequencesUpToLengthEight) {
  if (testing::kSanitized) GTEST_SKIP() << "slow under sanitizers";
  const auto subject = tests::small_scaler(scale_rule("torch"));
  const CallAudit audit = audit_calls(*subject, scale_rule("torch"));
  EXPECT_EQ(audit.longest, 8);
  EXPECT_GT(audit.sequences, 5'000);
  std::cout << audit.calls << " calls, " << static_cast<double>(audit.calls) / audit.seconds << " a second\n";
}

TEST(CallChecks, TheShortestSequenceIsShown) {
  const auto subject = tests::small_scaler(scale_rule("torch"), "double_unscale_accepted");
  const CallAudit audit = audit_calls(*subject, scale_rule("torch"), kShort);
  ASSERT_NE(audit.headline(), nullptr);
  EXPECT_EQ(audit.headline()->calls.size(), 3u) << said(audit);  // scale, unscale, unscale: no gradient is needed
}

}  // namespace
}  // namespace ampcheck::checks::scaler
