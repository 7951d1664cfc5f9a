// SPDX-License-Identifier: Apache-2.0
// The audit of training steps on planted faults and on right loops.
#include "checks/scaler/loop_checks.h"

#include <gtest/gtest.h>

#include <functional>
#include <iostream>
#include <memory>
#include <set>

#include "tests/support/planted_loops.h"

namespace ampcheck::checks::scaler {
namespace {

std::string said(const CallAudit& audit) {
  std::string out;
  for (const CheckResult& r : audit.results) {
    if (r.outcome == Outcome::passed || (r.outcome == Outcome::not_asked && r.says.empty())) continue;
    out += std::string("  ") + r.check->code + " " + name(r.outcome) + ": " + r.says + "; " + r.setup + ":";
    for (const std::string& call : r.calls) out += " " + call;
    out += "\n";
  }
  return out;
}

Outcome outcome(const CallAudit& audit, std::string_view code) {
  for (const CheckResult& r : audit.results)
    if (r.check->code == code) return r.outcome;
  return Outcome::not_asked;
}

TEST(LoopChecks, EveryPlantedFaultIsFoundByItsCode) {
  std::set<std::string> codes;
  std::size_t right = 0;
  for (const tests::PlantedLoop& planted : tests::planted_loops()) {
    const auto loop = tests::small_loop({}, planted.fault);
    const CallAudit audit = audit_loop(*loop, scale_rule("torch"));
    const CheckResult* head = audit.headline();
    EXPECT_EQ(head == nullptr ? "none" : std::string(head->check->code), planted.code) << planted.fault << "\n"
                                                                                       << said(audit);
    codes.insert(planted.code);
    right += head != nullptr && std::string(head->check->code) == planted.code ? 1 : 0;
  }
  std::cout << "score: " << right << " of " << tests::planted_loops().size() << " planted loops have the code that is "
            << "due, of " << codes.size() << " codes\n";
  for (const CallCheck& check : loop_checks()) EXPECT_TRUE(codes.contains(check.code)) << check.code;
}

TEST(LoopChecks, RightLoopsPass) {
  for (const tests::LoopVariant& variant : tests::loop_variants()) {
    const auto loop = tests::small_loop(variant);
    const CallAudit audit = audit_loop(*loop, scale_rule(variant.rule));
    EXPECT_EQ(audit.headline(), nullptr) << variant.name << "\n" << said(audit);
    EXPECT_GE(audit.calls, 50);
    EXPECT_EQ(outcome(audit, "L13"), variant.scaler && !variant.plain ? Outcome::passed : Outcome::not_asked)
        << variant.name;
    if (!variant.dropout) {  // which may draw other numbers behind a skip
      EXPECT_EQ(outcome(audit, "L12"), Outcome::passed) << variant.name << "\n" << said(audit);
    }
    for (const char* code : {"L1", "L2", "L3", "L4", "L5", "L14"})
      EXPECT_EQ(outcome(audit, code), Outcome::passed) << variant.name << " " << code << "\n" << said(audit);
    if (variant.plain) continue;
    for (const char* code : {"L6", "L7", "L8", "L9", "L10", "L11", "L15", "L16", "L17", "L18", "L19", "L20"})
      EXPECT_TRUE(outcome(audit, code) == Outcome::passed || (variant.dropout && code == std::string("L17")))
          << variant.name << " " << code << "\n"
          << said(audit);
  }
}

/// A loop that hands out what another one says, changed.
class Changed : public Loop {
 public:
  Changed(std::unique_ptr<Loop> loop, std::function<void(LoopReply&)> change)
      : loop_(std::move(loop)), change_(std::move(change)) {}
  std::vector<LoopReply> run(const LoopSetup& setup, std::span<const LoopCall> calls) override {
    std::vector<LoopReply> out = loop_->run(setup, calls);
    for (LoopReply& reply : out) change_(reply);
    return out;
  }
  bool has(Ability ability) const override { return loop_->has(ability); }

 private:
  std::unique_ptr<Loop> loop_;
  std::function<void(LoopReply&)> change_;
};

std::string refused(const std::function<void(LoopReply&)>& change) {
  Changed loop(tests::small_loop({}), change);
  try {
    audit_loop(loop, scale_rule("torch"));
  } catch (const LoopError& error) {
    return error.what();
  }
  return "";
}

TEST(LoopChecks, RepliesThatCannotBeJudgedAreNamed) {
  EXPECT_EQ(refused([](LoopReply& r) { r.ranks[0].state.erase("weights"); }),
            "[audit step] look: got a state without weights");
  EXPECT_EQ(refused([](LoopReply& r) { r.ranks[0].scales.clear(); }), "[audit step] step(batch 0): got no scale");
  EXPECT_EQ(refused([](LoopReply& r) { r.ranks[0].scales = {1}; }),
            "[audit step] step(batch 0): got a scale of 1, want that of the setup, 65536");
  EXPECT_EQ(refused([](LoopReply& r) { r = {.error = true, .text = "boom"}; }),
            "[audit step] look fails (boom), want a reply; with scale 65536");
  EXPECT_EQ(refused([](LoopReply& r) { r.ranks.clear(); }), "[audit step] look: got replies of 0 ranks, want 1");
}

TEST(LoopChecks, GradientsLostBelowTheRangeAreAWeaknessNoFault) {
  // At small scales one gradient is flushed: the larger scales agree.
  class Flushing : public Loop {
   public:
    std::vector<LoopReply> run(const LoopSetup& setup, std::span<const LoopCall> calls) override {
      std::vector<LoopReply> out = loop_->run(setup, calls);
      if (setup.scale < 256)
        for (LoopReply& reply : out) reply.ranks[0].state.at("weights").numbers[0] += 1e-3;
      return out;
    }
    bool has(Ability) const override { return false; }

   private:
    std::unique_ptr<Loop> loop_ = tests::small_loop({.scaler = false});
  } loop;
  const CallAudit audit = audit_loop(loop, scale_rule("torch"));
  EXPECT_EQ(audit.headline(), nullptr) << said(audit);
  EXPECT_EQ(outcome(audit, "L14"), Outcome::weak) << said(audit);
}

}  // namespace
}  // namespace ampcheck::checks::scaler
