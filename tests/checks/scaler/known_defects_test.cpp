// SPDX-License-Identifier: Apache-2.0
// Known defects of the frameworks' scalers: a model of each, and its right twin.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "checks/scaler/call_checks.h"
#include "tests/support/planted_scalers.h"

namespace ampcheck::checks::scaler {
namespace {

struct Defect {
  const char* of;     ///< the framework, and where it was reported
  const char* rule;   ///< that the framework follows
  const char* fault;  ///< of the model; empty: the rule itself has the defect
  const char* code;
  const char* words;  ///< of what is said
  double floor = -1;  ///< another one than the rule's; below 0: the rule's
};

const Defect kDefects[] = {
    // torch's update: growth, its count, the floor.
    {"torch before 2.1, pytorch#98828: the scale becomes infinite", "torch", "no_guard", "S2", "and is inf"},
    {"torch: the count of clean steps is compared for equality", "torch", "", "S4", "compared for equality"},
    {"torch: no floor", "torch", "", "S3", "no floor holds it"},
    // torch's unscaling.
    {"torch: the product of unscaling is not checked", "torch", "", "S9", "becomes infinite by unscaling"},
    {"torch: gradients are not checked again behind unscale_", "torch", "", "S16", "between unscale and step"},
    {"torch: a loss in fp16 at the first scale", "torch", "", "S23", "leaves fp16"},
    // The flag of fused optimizers.
    {"torch: fused optimizers skip only at a flag of exactly 1", "torch", "fused_flag_is_a_sum", "S10", "weights have"},
    {"torch, pytorch#95781: fused optimizers forget the flag behind unscale_", "torch", "explicit_never_skips", "S11",
     "weights have"},
    {"ShardedGradScaler: the fused path asks its own rank alone", "torch", "ranks_check_alone", "S20", ""},
    {"ShardedGradScaler on the CPU: growth without a guard", "torch", "no_guard", "S2", "and is inf"},
    // Rules of others.
    {"apex: finite gradients whose sum overflows are an overflow", "apex", "checks_sum", "S7", "sum overflows"},
    {"apex: no floor", "apex", "", "S3", "no floor holds it"},
    {"apex with a static scale never skips", "apex", "never_skips", "S11", "weights have"},
    {"DeepSpeed, DeepSpeed#8588: the scale moves before gradients are divided", "deepspeed", "divides_by_new_scale",
     "S13", "gradients have"},
    {"DeepSpeed without dynamic keys: hysteresis 1", "deepspeed", "hysteresis_ignored", "S5", "scale has to be"},
    {"DeepSpeed: no guard", "deepspeed", "", "S2", "becomes infinite"},
    {"Megatron: no cap and no guard", "megatron", "", "S2", "becomes infinite"},
    {"Megatron's hysteresis as its comment has it: refilled by each clean step", "megatron", "refills_each_step", "S5",
     "scale has to be"},
    {"flax, flax#2547: the scale grows without bound", "flax", "cap_ignored", "S2", "and is inf"},
    {"jmp: the floor is not in what a jit keeps", "jmp", "reload_forgets_floor", "S18", "scale has to be", 32},
    {"Keras: no guard", "keras", "", "S2", "becomes infinite"},
    {"Keras: no floor", "keras", "", "S3", "no floor holds it"},
    // What users met: torch_amp's table of symptoms, as far as it is the scaler's.
    {"a fake amp-scaling flag: nothing is divided", "torch", "fused_never_divides", "S13", ""},
    {"a clip of scaled gradients, Lightning#9599", "torch", "clip_before_unscale", "S12", "weights have"},
    {"unscale_ twice, transformers#23935", "torch", "double_unscale_accepted", "S14", "has to be refused"},
    {"a step without gradients, accelerate#328", "torch", "step_without_gradients_accepted", "S14",
     "has to be refused"},
    {"the schedule goes on in a skipped step, accelerate#4242", "torch", "schedule_on_skip", "S22", "schedule has"},
    {"ranks whose scales differ, pytorch#136009", "torch", "ranks_scale_alone", "S20", "scale has to be"},
    {"a resume that forgets the scale, transformers#34053", "torch", "reload_forgets_scale", "S18", "has to become"},
};

ScaleRule rule_of(const Defect& defect) {
  ScaleRule rule = scale_rule(defect.rule);
  if (defect.floor >= 0) rule.floor = defect.floor;
  return rule;
}

CallAudit audited(const Defect& defect, const char* fault) {
  const ScaleRule rule = rule_of(defect);
  const auto subject = *defect.fault == '\0' ? built_in_scaler(rule) : tests::small_scaler(rule, fault);
  return audit_calls(*subject, rule, 4);
}

const CheckResult& result(const CallAudit& audit, std::string_view code) {
  return *std::ranges::find(audit.results, code, [](const CheckResult& r) { return std::string_view(r.check->code); });
}

TEST(KnownDefects, AreFoundInModelsOfTheirFrameworks) {
  for (const Defect& defect : kDefects) {
    SCOPED_TRACE(defect.of);
    const CallAudit audit = audited(defect, defect.fault);
    const CheckResult* const head = audit.headline();
    const CheckResult& found = result(audit, defect.code);
    EXPECT_NE(found.says.find(defect.words), std::string::npos) << found.says;
    if (*defect.fault == '\0') {
      EXPECT_EQ(found.outcome, Outcome::weak);
      continue;
    }
    EXPECT_EQ(head == nullptr ? "none" : head->check->code, std::string(defect.code));
    EXPECT_NE(result(audited(defect, ""), defect.code).outcome, Outcome::failed) << "the right twin";
  }
}

TEST(KnownDefects, ARuleIsToldFromTheOneThatItIsTakenFor) {
  struct Taken {
    const char *rule, *for_rule, *code;
  };
  for (const Taken& taken :
       {Taken{"flax", "torch", "S1"},  // grows one step later
        Taken{"megatron", "apex_hysteresis", "S5"}, Taken{"deepspeed", "deepspeed_consecutive", "S5"},
        Taken{"keras", "torch", "S2"}, Taken{"torch", "jmp", "S3"}}) {
    const auto subject = built_in_scaler(scale_rule(taken.rule));
    const CallAudit audit = audit_calls(*subject, scale_rule(taken.for_rule), 4);
    ASSERT_NE(audit.headline(), nullptr) << taken.rule << " under " << taken.for_rule;
    EXPECT_EQ(result(audit, taken.code).outcome, Outcome::failed) << taken.rule << " under " << taken.for_rule;
  }
}

}  // namespace
}  // namespace ampcheck::checks::scaler
