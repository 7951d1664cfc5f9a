// SPDX-License-Identifier: Apache-2.0
// The audit of an autocast's rules on planted faults, on a right one, and on the program's own.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "checks/autocast/scenarios.h"
#include "src/error.h"
#include "tests/support/planted_autocasts.h"

namespace ampcheck::checks::autocast {
namespace {

std::string said(const RulesAudit& audit) {
  std::string out;
  for (const PolicyResult& r : audit.results.all()) {
    if (r.outcome == Outcome::passed || r.outcome == Outcome::not_asked) continue;
    out += std::string("  ") + r.check->code + " " + name(r.outcome) + ": " + r.says + ":";
    for (const std::string& place : r.places) out += " " + place + ";";
    out += "\n";
  }
  return out;
}

RulesAudit audit_of(AutocastDevice device, const std::string& fault) {
  const AutocastList list = autocast_list("", device);
  const auto subject = tests::small_autocast(list, device, fault);
  return audit_rules(*subject, list, device);
}

TEST(AutocastRules, EveryPlantedFaultIsFoundByItsCode) {
  std::set<std::string> codes;
  for (const tests::PlantedAutocast& planted : tests::planted_autocasts()) {
    const RulesAudit audit = audit_of(AutocastDevice::cuda, planted.fault);
    const PolicyResult* const head = audit.results.headline();
    EXPECT_EQ(head == nullptr ? "none" : head->check->code, std::string(planted.code)) << planted.fault << "\n"
                                                                                       << said(audit);
    codes.insert(planted.code);
  }
  for (const char* const code : {"A1", "A2", "A4", "A5", "A6", "A7", "A9", "A10", "A11"})
    EXPECT_TRUE(codes.contains(code)) << code << " has no planted fault";
}

TEST(AutocastRules, ARightOnePassesAndItsRulesWeaknessesAreNamed) {
  for (const AutocastDevice device : {AutocastDevice::cuda, AutocastDevice::cpu, AutocastDevice::xpu}) {
    SCOPED_TRACE(ampcheck::name(device));
    const RulesAudit audit = audit_of(device, "");
    EXPECT_EQ(audit.results.headline(), nullptr) << said(audit);
    EXPECT_EQ(audit.results.at("A10").outcome, Outcome::weak) << "a cached cast does not see an update in place";
    EXPECT_EQ(audit.results.at("A4").outcome, Outcome::weak) << "bf16 becomes fp16 without a word";
  }
}

TEST(AutocastRules, TheProgramsOwnPasses) {
  for (const AutocastDevice device : {AutocastDevice::cuda, AutocastDevice::cpu}) {
    SCOPED_TRACE(ampcheck::name(device));
    const auto subject = built_in_autocast(device);
    const RulesAudit audit = audit_rules(*subject, autocast_list("", device), device, 100);
    EXPECT_EQ(audit.results.headline(), nullptr) << said(audit);
    EXPECT_EQ(audit.results.count(Outcome::weak), 2) << said(audit);
    EXPECT_GT(audit.sequences, 300);
  }
}

TEST(AutocastRules, TheShortestSequenceIsShown) {
  const RulesAudit audit = audit_of(AutocastDevice::cuda, "key_without_dtype");
  ASSERT_NE(audit.results.headline(), nullptr);
  EXPECT_EQ(audit.results.headline()->places, (std::vector<std::string>{"autocast(bf16)", "product with the weight",
                                                                        "autocast(fp16)", "product with the weight"}))
      << said(audit);
}

TEST(AutocastLists, ReleasesDifferAsTheirTorchesDo) {
  const auto policy = [](const char* release, AutocastDevice device, const char* op) {
    return autocast_list(release, device).policy(op);
  };
  using enum CastPolicy;
  EXPECT_EQ(policy("2.10", AutocastDevice::cuda, "rms_norm"), unlisted);
  EXPECT_EQ(policy("2.12", AutocastDevice::cuda, "rms_norm"), fp32);
  EXPECT_EQ(policy("2.1", AutocastDevice::cuda, "vdot"), unlisted);
  EXPECT_EQ(policy("2.4", AutocastDevice::cuda, "vdot"), promote);
  EXPECT_EQ(policy("2.1.2", AutocastDevice::cpu, "scaled_dot_product_attention"), unlisted);
  EXPECT_EQ(policy("", AutocastDevice::cpu, "softmax"), unlisted);
  EXPECT_EQ(policy("", AutocastDevice::cuda, "softmax"), fp32_set_opt_dtype) << "without its overload";
  // As many operators as the dispatchers of these releases have.
  for (const auto& [release, cuda, cpu] : {std::tuple{"2.1.2", 112, 125},
                                           {"2.4.1", 126, 128},
                                           {"2.6.0", 126, 129},
                                           {"2.8.0", 126, 129},
                                           {"2.10.0", 126, 129},
                                           {"2.12.0", 127, 129},
                                           {"2.13.0", 120, 127},
                                           {"2.15.0", 121, 126}}) {
    EXPECT_EQ(std::ssize(autocast_list(release, AutocastDevice::cuda).ops), cuda) << release;
    EXPECT_EQ(std::ssize(autocast_list(release, AutocastDevice::cpu).ops), cpu) << release;
  }
  EXPECT_EQ("torch " + std::string(autocast_releases(AutocastDevice::cuda).back()), kAutocastTablesVersion);
  EXPECT_THROW(autocast_list("1.9", AutocastDevice::cuda), Error);
  EXPECT_THROW(autocast_list("2.6", AutocastDevice::maia), Error) << "asked of the newest alone";
}

}  // namespace
}  // namespace ampcheck::checks::autocast
