// SPDX-License-Identifier: Apache-2.0
// A rule that says nothing is called vacuous, one that rejects the right answer too tight, and one that does its work
// neither.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "checks/audit/gate_audit.h"
#include "checks/audit/gate_rules.h"
#include "checks/run/runner.h"
#include "tests/support/run_program.h"

namespace ampcheck::checks::zoo {
namespace {

using testing::contains;
using Kind = GateRule::Kind;

TEST(GateRule, CountsWhatItSays) {
  const Compared t{Dtype::fp32, {1, 2, 3, 4.5}, {1, 2, 3, 4}, {1, 2, 3.25, 4}};
  EXPECT_TRUE(accepts({Kind::close, 0.5, 0, 0}, t));
  EXPECT_FALSE(accepts({Kind::close, 0.49, 0, 0}, t));
  EXPECT_TRUE(accepts({Kind::close, 0, 0.125, 0}, t)) << "of want, not of got";
  EXPECT_FALSE(accepts({Kind::close, 0, 0.12, 0}, t));
  EXPECT_TRUE(accepts({Kind::matched, 0, 0, 0.75}, t));
  EXPECT_FALSE(accepts({Kind::matched, 0, 0, 0.76}, t));
  EXPECT_TRUE(accepts({Kind::mean, 0, 0, 0.125}, t));
  EXPECT_FALSE(accepts({Kind::mean, 0, 0, 0.124}, t));
  EXPECT_TRUE(accepts({Kind::factor, 0, 0, 2}, t));
  EXPECT_FALSE(accepts({Kind::factor, 0, 0, 1.9}, t));
  EXPECT_TRUE(accepts({Kind::nmse, 0, 0, 0.25 / 30}, t));
  EXPECT_FALSE(accepts({Kind::nmse, 0, 0, 0.24 / 30}, t));
  EXPECT_FALSE(accepts({Kind::mean, 0, 0, 1}, {Dtype::fp32, {NAN}, {1}, {1}}));
}

GateAudit audited(const char* op_name, Dtype dtype, const GateRule& rule) {
  const OpDef& op = *find_op(op_name);
  return audit_gate(op, everyday_cases(op.signature, dtype, 1), {rule, false});
}

/// Both of torch's tables and our own interval's width are rules that work.
TEST(AuditGate, TorchsDefaultsGate) {
  for (const char* op : {"add", "softmax", "linear"})
    for (const Dtype dtype : {Dtype::fp32, Dtype::fp16, Dtype::bf16}) {
      const GateAudit audit = audited(op, dtype, torch_default(dtype));
      EXPECT_FALSE(audit.vacuous()) << op << " " << name(dtype);
      EXPECT_FALSE(audit.too_tight()) << op << " " << name(dtype);
      EXPECT_GE(audit.cases, 2) << op;
      std::int64_t wrong = 0;
      for (const GatedTensor& t : audit.tensors)
        for (const SurrogateScore& s : t.surrogates) wrong += s.wrong;
      EXPECT_GT(wrong, 10) << op << ": nothing wrong was tried";
    }
}

TEST(AuditGate, CountsTheZoo) {
  const GateAudit audit = audited("softmax", Dtype::bf16, torch_default(Dtype::bf16));
  int seen = 0, missed = 0, right = 0, rejected = 0;
  for (const GatedKernel& k : audit.kernels)
    (k.defect ? (k.visible ? (k.accepted ? missed : seen) : missed) : (k.accepted ? right : rejected))++;
  EXPECT_GT(seen, 5);
  EXPECT_GT(missed, 0) << "a share of the defects is below these tolerances";
  EXPECT_GT(right, 5);
  EXPECT_EQ(rejected, 0);
  const GateAudit bitwise = audited("softmax", Dtype::bf16, {Kind::close, 0, 0, 0});
  EXPECT_TRUE(bitwise.too_tight()) << "no kernel of 16 bits hits the reference";
  EXPECT_FALSE(bitwise.vacuous());
}

/// Kernels that are right, rounded once: with a reference in the storage type a bitwise rule accepts them and nothing
/// wrong.
TEST(AuditGate, ARoundedReference) {
  const OpDef& op = *find_op("add");
  const GateAudit audit = audit_gate(op, everyday_cases(op.signature, Dtype::bf16, 1), {{Kind::close, 0, 0, 0}, true});
  EXPECT_FALSE(audit.too_tight());
  for (const GatedTensor& t : audit.tensors)
    for (const SurrogateScore& s : t.surrogates) EXPECT_EQ(s.accepted, 0) << t.name << " " << s.name;
}

struct PublicRule {
  const char *arguments, *verdict, *words;
};
/// Tolerances that public projects shipped: Liger-Kernel's test_swiglu.py and test_fused_linear_cross_entropy.py (issue
/// 192), Xilinx/mlir-air issues 1427 and 1450 (a constant passes), kornia issue 4225 (all zeros pass),
/// sgl-project/sglang issue 35795 (below half an ulp).
void PrintTo(const PublicRule& rule, std::ostream* out) { *out << rule.arguments; }
class PublicRules : public ::testing::TestWithParam<PublicRule> {};
TEST_P(PublicRules, AreFlagged) {
  const auto run = testing::ampcheck(std::string("audit gate ") + GetParam().arguments);
  EXPECT_EQ(run.exit_code, 1) << run.out << run.err;
  EXPECT_TRUE(run.out.starts_with(GetParam().verdict)) << run.out;
  EXPECT_TRUE(contains(run.out, GetParam().words)) << run.out;
}
INSTANTIATE_TEST_SUITE_P(
    Gate, PublicRules,
    ::testing::Values(PublicRule{"swiglu --dtype bf16 --atol 1e4 --rtol 1e-2", "VACUOUS",
                                 "zeros, mean, middle, shuffled, stale pass for y, dgate, dup\n"},
                      PublicRule{"cross_entropy --dtype bf16 --atol 5 --rtol 50", "VACUOUS",
                                 "zeros, mean, middle pass for loss, dx;"},
                      PublicRule{"'attention(q=bf16[1,1,256,8],k=bf16[1,1,256,8],v=bf16[1,1,256,8],range=positive,"
                                 "cotangent=normal)' --atol 0.3 --rtol 0.3 --matched 0.9",
                                 "VACUOUS", "mean, middle, shuffled, stale pass for o, dq, dk, dv"},
                      PublicRule{"mean --dtype bf16 --atol 1e-2 --rtol 1e-2", "VACUOUS", "zeros passes for dx"},
                      PublicRule{"linear --dtype bf16 --atol 0.06 --rtol 0", "TOO TIGHT",
                                 "rejects the correctly rounded y"}));

TEST(AuditGateCommand, RulesOfAFile) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/rules.toml";
  std::ofstream(path) << "[bf16]\natol = 1e4\nrtol = 1e-2\n\n[fp32]\nrule = \"nmse\"\nlimit = 5e-4\n";
  const auto run = testing::ampcheck("audit gate swiglu --rules " + path + " --json");
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_TRUE(contains(run.out, "\"schema\": \"ampcheck.audit_gate/1\"")) << run.out << run.err;
  EXPECT_TRUE(contains(run.out, "sum (got - want)^2 <= 0.0005 sum want^2"));
  EXPECT_FALSE(contains(run.out, "fp16")) << "no rule for it";
  std::ofstream(path) << "[bf16]\natoll = 1\n";
  const auto typo = testing::ampcheck("audit gate swiglu --rules " + path);
  EXPECT_EQ(typo.exit_code, 2);
  EXPECT_TRUE(contains(typo.err, "rules.toml:2:1") && contains(typo.err, "did you mean 'atol'")) << typo.err;
}

TEST(AuditGateCommand, TensorsOfADump) {
  const testing::TemporaryFolder folder;
  const auto saved =
      testing::ampcheck("replay 'softmax(x=fp32[5,7],seed=1)' --save " + folder.path() + "/dump.safetensors");
  ASSERT_EQ(saved.exit_code, 0) << saved.err;
  const std::string dump = "audit gate --dump " + folder.path() + "/dump.safetensors --formula softmax";
  EXPECT_EQ(testing::ampcheck(dump + " --atol 1e-5 --rtol 1e-6").exit_code, 0);
  const auto run = testing::ampcheck(dump + " --atol 1 --rtol 1");
  EXPECT_EQ(run.exit_code, 1) << run.out << run.err;
  EXPECT_TRUE(contains(run.out, "zeros, mean, middle pass for y, dx;")) << run.out;
  EXPECT_EQ(testing::ampcheck(dump + " --factor 2").exit_code, 2) << "no kernel runs";
}

/// A rule with checks for zeros and NaN beside it.
TEST(GateRule, LooksForZerosAndNan) {
  const GateRule plain{.kind = Kind::matched, .atol = 1, .limit = 0.5};
  GateRule strict = plain;
  strict.finite = strict.not_zero = true;
  const Compared zeros{Dtype::bf16, {0, 0}, {0.5, 0.25}, {0.5, 0.25}}, one_nan{Dtype::bf16, {1, NAN}, {1, 1}, {1, 1}},
      right{Dtype::bf16, {0.5, 0}, {0.5, 0}, {0.5, 0}}, all_zero{Dtype::bf16, {0, 0}, {0, 0}, {0, 0}};
  for (const Compared& t : {zeros, one_nan}) {
    EXPECT_TRUE(accepts(plain, t));
    EXPECT_FALSE(accepts(strict, t));
  }
  for (const Compared& t : {right, all_zero}) EXPECT_TRUE(accepts(strict, t));
  EXPECT_EQ(strict.str(), "|got - want| <= 1 + 0 |want| at 50 % of the elements, all finite, not all zero");
}

TEST(AuditGateCommand, PresetsAreTheRulesOfProjects) {
  const auto one = testing::ampcheck("audit gate --preset kernelbench mean embedding --dtype bf16 --json");
  EXPECT_EQ(one.exit_code, 1) << one.err;
  const auto parsed = nlohmann::json::parse(one.out);
  ASSERT_EQ(parsed["presets"].size(), 1u);
  const auto& line = parsed["presets"][0];
  EXPECT_EQ(line["rule"], "|got - want| <= 0.01 + 0.01 |want|");
  EXPECT_EQ(line["vacuous"], nlohmann::json::array({"mean"})) << "its gradient is near zero";
  EXPECT_EQ(line["ops"], 2);
  EXPECT_GT(line["accepted"], 2) << "planted defects pass";
  EXPECT_GT(line["defects"], line["accepted"]);
  const auto right = testing::ampcheck("audit gate --preset torch softmax --dtype bf16");
  EXPECT_EQ(right.exit_code, 0) << right.out << right.err;
  const auto all = testing::ampcheck("audit gate --preset all softmax mean");
  EXPECT_EQ(all.exit_code, 1);
  for (const char* words : {"kernelbench", "flash-attention", "1: mean", "at 85 % of the elements", "not all zero"})
    EXPECT_TRUE(contains(all.out, words)) << words << all.out;
  const auto typo = testing::ampcheck("audit gate --preset kernelbnch");
  EXPECT_EQ(typo.exit_code, 2);
  EXPECT_TRUE(contains(typo.err, "did you mean 'kernelbench'")) << typo.err;
  EXPECT_EQ(testing::ampcheck("audit gate --preset torch --atol 1").exit_code, 2);
}

TEST(AuditGateCommand, RefusesWhatItDoesNotKnow) {
  for (const auto& [arguments, words] :
       {std::pair("softmx", "did you mean 'softmax'"), std::pair("softmax --atol 1 --nmse 1", "more than one rule"),
        std::pair("softmax --atol x", "got 'x', want a number"), std::pair("softmax --atol -1", "not negative"),
        std::pair("", "got no op"), std::pair("softmax --range norml", "norml"),
        std::pair("softmax --matched 0.9", "want what it counts"),
        std::pair("softmax --atol 0.1 --matched 1.5", "[--matched] got 1.5, want a share of the elements, 0 to 1"),
        std::pair("softmax --cosine 2", "[--cosine] got 2, want a cosine, 0 to 1"),
        std::pair("softmax --nmse inf", "[--nmse] got inf, want a finite number")}) {
    const auto run = testing::ampcheck(std::string("audit gate ") + arguments);
    EXPECT_EQ(run.exit_code, 2) << arguments;
    EXPECT_TRUE(contains(run.err, words)) << run.err;
  }
  EXPECT_EQ(testing::ampcheck("audit gate add --rules /nonexistent.toml").exit_code, 2);
}

}  // namespace
}  // namespace ampcheck::checks::zoo
