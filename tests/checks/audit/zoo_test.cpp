// SPDX-License-Identifier: Apache-2.0
// The zoo counts what it says it counts; a sample of it is judged as it is due, and each finding replays from its line.
#include "checks/audit/audit.h"
#include "checks/audit/form_needed.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "checks/case/case_run.h"
#include "checks/run/runner.h"
#include "tests/support/run_program.h"

namespace ampcheck::checks::zoo {
namespace {

using ampcheck::testing::contains;

/// Which op has too few of them: tests/program/wanting_test.cpp.
TEST(Zoo, SpecimensAreWholeAndNamedOnce) {
  std::set<std::string> names;
  int defects = 0, variants = 0, unseen = 0, unseen_variants = 0;
  for (const Specimen& s : specimens()) {
    EXPECT_TRUE(names.insert(s.name()).second) << s.name();
    EXPECT_EQ(find_op(s.name()), &s.op) << "a planted op has the same name";
    EXPECT_FALSE(s.what.empty()) << s.name();
    EXPECT_FALSE(s.dtypes.empty()) << s.name();
    if (s.correct()) {
      ++variants;
      unseen_variants += s.unseen;
      continue;
    }
    ++defects;
    unseen += s.unseen;
    ASSERT_LE(static_cast<std::size_t>(s.defect_class), defect_classes().size()) << s.name();
    EXPECT_TRUE(convicts(s.due)) << s.name();
    EXPECT_TRUE(convicts(s.also) || s.also == Verdict::range) << s.name();
    EXPECT_FALSE(s.regime.empty() || s.cause.empty()) << s.name();
  }
  EXPECT_GE(defects, 150);
  EXPECT_GE(variants, 60);
  EXPECT_EQ(unseen, 123);
  EXPECT_EQ(unseen_variants, 38);
  int number = 0;
  for (const DefectClass& known : defect_classes()) EXPECT_EQ(known.number, ++number);
  EXPECT_EQ(number, 48);
}

AuditOptions sample(std::vector<std::string> patterns) {
  AuditOptions out;
  out.set = CaseSet::quick;
  out.patterns = std::move(patterns);
  out.dtypes = {Dtype::bf16};
  return out;
}

TEST(Zoo, DefectsOfTheSampleAreFoundAndReplay) {
  const std::vector<Trial> trials = audit(
      sample({"add.dense_cotangent", "mul.absolute_cotangent", "relu.drops_nan", "gelu.slope_of_tanh_form",
              "silu.overflows", "softmax.dot_in_bf16", "log_softmax.overrun", "layer_norm.mean_term_missing",
              "layer_norm.no_weight_no_dx", "linear.without_last_k", "sum.without_last", "mse_loss.factor_missing",
              "cross_entropy.clobbers_logits", "embedding.overwrites", "max_pool2d.ties_share_all"}));
  ASSERT_EQ(trials.size(), 15u);
  for (const Trial& trial : trials) {
    const Specimen& specimen = *trial.specimen;
    ASSERT_TRUE(trial.found()) << specimen.name();
    EXPECT_EQ(trial.convicted, 1) << specimen.name() << ": runs on after its conviction";
    EXPECT_TRUE(trial.right_class) << specimen.name() << ": " << name(trial.verdict);
    const OpDef* op = find_op(op_of(trial.case_name));
    ASSERT_EQ(op, &specimen.op) << trial.case_name;
    const CaseResult again = run_case(*op, parse_call(trial.case_name, op->signature), {});
    EXPECT_EQ(again.verdict, trial.verdict) << trial.case_name;
    EXPECT_EQ(again.code, trial.code) << trial.case_name;
  }
}

TEST(Zoo, CorrectVariantsOfTheSampleAreNotConvicted) {
  AuditOptions options = sample({"add.fma", "gelu.erfc", "softmax.one_pass", "layer_norm.welford", "rms_norm.cubic",
                                 "sum.lanes", "cross_entropy.lse", "embedding.sorted", "linear.tiled"});
  options.gates = false;
  const Scores scores = score(audit(options));
  EXPECT_EQ(scores.clean.variants, 9);
  EXPECT_GT(scores.clean.cases, 9 * 15);
  EXPECT_EQ(scores.clean.alarms, 0);
  EXPECT_EQ(scores.all.trials, 0);
}

/// No built-in op has a kernel in fp8: the usual rules take the rounded reference in place of an eager one.
TEST(Zoo, KernelsInFp8AreJudgedAndTheUsualRulesAreAsked) {
  AuditOptions options;
  options.dtypes = {Dtype::e4m3fn};
  const Scores scores = score(audit(options));
  ASSERT_GE(scores.all.trials, 2);
  EXPECT_EQ(scores.all.found, scores.all.trials);
  ASSERT_GE(scores.clean.gate_cases, 15);
  EXPECT_EQ(scores.clean.alarms, 0);
  for (std::size_t gate = 0; gate < usual_gates().size(); ++gate) {
    EXPECT_GE(scores.all.gates[gate], 1) << usual_gates()[gate].name;
    EXPECT_EQ(scores.clean.gate_alarms[gate], 0) << usual_gates()[gate].name;
  }
}

/// What a variant says of its form holds: by that form alone, none is convicted. So no variant is excused by a form
/// that it does not compute.
TEST(Zoo, VariantsComputeTheFormThatTheyName) {
  int named = 0;
  for (const Specimen& specimen : specimens()) {
    if (specimen.form.empty()) continue;
    EXPECT_TRUE(specimen.correct()) << specimen.name();
    OpDef op = specimen.op;
    std::erase_if(op.forms, [&](const reference::Form& form) { return form.name != specimen.form; });
    ASSERT_EQ(op.forms.size(), 1u) << specimen.name() << ": " << specimen.form;
    op.tried_first = 0;
    ++named;
    for (const OpCall& call : cases_of(op.signature, Dtype::fp32, CaseSet::quick, 1)) {
      const CaseResult result = run_case(op, call, {});  // what overflows on the way says nothing of the algebra
      EXPECT_TRUE(!convicts(result.verdict) || result.code == Code::ac203) << result.name;
    }
  }
  EXPECT_GE(named, 15);
}

/// By bounds alone: (1 + tanh(x/2)) / 2 cancels below zero; x inv^3 mean(g x) is a regrouping.
TEST(Zoo, AFormIsNeededWhereItErrsMoreThanTheFormula) {
  const auto needed = [](const char* specimen, const char* call) {
    const OpDef& op = *find_op(specimen);
    for (const Specimen& s : specimens())
      if (s.name() == specimen)
        for (std::size_t form = 0; form < op.forms.size(); ++form)
          if (op.forms[form].name == s.form) return form_is_needed(op, parse_call(call, op.signature), form);
    throw Error("[test] no form of " + std::string(specimen));
  };
  EXPECT_TRUE(needed("sigmoid.by_tanh", "sigmoid.by_tanh(x=fp32[5,7],seed=1)"));
  EXPECT_TRUE(needed("elu.from_output", "elu.from_output(x=fp32[5,7],seed=1)"));
  EXPECT_TRUE(needed("gelu.erfc", "gelu.erfc(x=fp32[5,7],seed=1)")) << "erfc errs by more ulps than erf";
  EXPECT_FALSE(needed("rms_norm.cubic", "rms_norm.cubic(x=fp32[5,16],seed=1)"));
}

/// Each mechanism by which a kernel of an equally good algebra was called wrong by the formula alone; and kernels that
/// are wrong stay so.
TEST(Zoo, AnEquallyGoodAlgebraIsRightByTheFormulaAlone) {
  const auto by_formula = [](const char* specimen, const char* call) {
    OpDef op = *find_op(specimen);
    op.forms.resize(1);
    op.tried_first = 0;
    op.authored = true;
    return convicts(run_case(op, parse_call(call, op.signature), {}).verdict);
  };
  EXPECT_FALSE(by_formula("softmax.lse", "softmax.lse(x=fp32[5,7],range=mean-300,seed=1)"));
  EXPECT_FALSE(by_formula("cross_entropy.lse", "cross_entropy.lse(x=fp32[5,7],range=scale+4,seed=1)"));
  EXPECT_FALSE(by_formula("log_softmax.pairwise", "log_softmax.pairwise(x=fp32[5,7],range=scale+4,seed=1)"));
  EXPECT_FALSE(by_formula("layer_norm.welford", "layer_norm.welford(x=fp32[5,16],seed=1)"));
  EXPECT_FALSE(by_formula("attention.pairwise", "attention.pairwise(q=fp32[2,2,5,67],range=neg_inf_rows,seed=1)"));
  EXPECT_TRUE(by_formula("sigmoid.by_tanh", "sigmoid.by_tanh(x=fp32[64,129],seed=1)"));
  EXPECT_TRUE(by_formula("elu.from_output", "elu.from_output(x=fp32[5,7],seed=1)"));
  EXPECT_TRUE(
      by_formula("layer_norm.one_pass_variance", "layer_norm.one_pass_variance(x=fp32[5,67],range=mean300,seed=1)"));
}

/// Kernels in double count for themselves: the goals hold of them, and no other score has them.
TEST(Zoo, KernelsInFp64AreScoredByThemselves) {
  std::set<std::string> names;
  for (const Specimen& s : specimens_in_fp64()) {
    EXPECT_TRUE(names.insert(s.name()).second) << s.name();
    EXPECT_EQ(find_op(s.name()), &s.op);
    EXPECT_EQ(s.dtypes, std::vector{Dtype::fp64}) << s.name();
    EXPECT_EQ(s.op.signature.precision.storage, std::vector{Dtype::fp64}) << s.name();
  }
  AuditOptions options = sample({});
  options.dtypes = {Dtype::fp64};
  options.formula_alone = true;
  const Scores scores = score(audit(options));
  EXPECT_EQ(scores.fp64.trials + scores.clean_fp64.variants, std::ssize(specimens_in_fp64()));
  EXPECT_GE(scores.fp64.trials, 14);
  EXPECT_TRUE(goals_met(scores.fp64));
  EXPECT_GT(scores.clean_fp64.cases, 100);
  EXPECT_EQ(scores.clean_fp64.alarms, 0);
  EXPECT_EQ(scores.all.trials + scores.unseen.trials + scores.clean.variants, 0);
}

TEST(Zoo, EveryKernelRunsAtEveryStorageType) {
  for (const Specimen& specimen : specimens())
    for (const Dtype dtype : {Dtype::fp32, Dtype::fp16, Dtype::bf16}) {
      const OpCall call = default_call(specimen.op.signature, dtype);
      const RunOptions options;
      CaseRun run(specimen.op, call, options);
      const LaunchResult forward = run.run_forward(run.forward_tensors(run.reference.inputs(), 0));
      const LaunchResult backward =
          run.run_backward(run.backward_tensors(run.reference.inputs(), forward, run.cotangents(0), 0));
      EXPECT_EQ(backward.written.size(), run.gradients.size()) << specimen.name();
    }
}

Trial trial_of(const char* specimen, bool found, bool right_class, bool right_cause) {
  Trial out;
  for (const Specimen& s : specimens())
    if (s.name() == specimen) out.specimen = &s;
  out.cases = 10;
  out.convicted = found;
  out.right_class = right_class;
  out.exact_class = right_class;
  out.right_cause = right_cause;
  out.gate_cases = 3;
  out.gate_rejections.assign(usual_gates().size(), 0);
  out.gate_rejections[1] = 2;
  return out;
}

TEST(ZooScore, Counts) {
  const Scores scores =
      score({trial_of("softmax.dot_missing", true, true, false), trial_of("softmax.dot_added", true, false, true),
             trial_of("softmax.race", false, false, false), trial_of("softmax.pairwise", true, false, false)});
  EXPECT_EQ(scores.all.trials, 3);
  EXPECT_EQ(scores.all.found, 2);
  EXPECT_EQ(scores.all.right_class, 1);
  EXPECT_EQ(scores.all.right_cause, 1);
  EXPECT_EQ(scores.all.gates[0], 0);
  EXPECT_EQ(scores.all.gates[1], 3);
  EXPECT_EQ(scores.by_class[3].found, 1);
  EXPECT_EQ(scores.by_class[38].trials, 1);
  EXPECT_EQ(scores.clean.cases, 10);
  EXPECT_EQ(scores.clean.alarms, 1);
  EXPECT_EQ(scores.clean.gate_alarms[1], 2);
  EXPECT_FALSE(goals_met(scores.all));
  EXPECT_TRUE(goals_met(score({trial_of("softmax.dot_missing", true, true, true)}).all));
  EXPECT_FALSE(goals_met(score({trial_of("softmax.dot_missing", true, true, false)}).all));
}

bool rejected(const char* gate, const Compared& tensor) {
  for (std::size_t g = 0; g < usual_gates().size(); ++g)
    if (std::string(usual_gates()[g].name) == gate) return rejects(g, tensor);
  throw Error("[test] no gate " + std::string(gate));
}

TEST(UsualRules, AreWhatTheirProjectsSay) {
  const std::vector<double> want = {1, 2, -3, 100};
  const Compared equal{Dtype::bf16, want, want, want};
  for (std::size_t g = 0; g < usual_gates().size(); ++g) EXPECT_FALSE(rejects(g, equal)) << usual_gates()[g].name;
  const Compared zeros{Dtype::bf16, {0, 0, 0, 0}, want, want};
  for (std::size_t g = 0; g < usual_gates().size(); ++g) EXPECT_TRUE(rejects(g, zeros)) << usual_gates()[g].name;
  // KernelBench#165: outputs of 4e-6, of which an absolute tolerance of 1e-2 sees nothing.
  EXPECT_FALSE(rejected("KernelBench", {Dtype::fp32, {0, 0}, {4e-6, -4e-6}, {4e-6, -4e-6}}));
  EXPECT_TRUE(rejected("NMSE", {Dtype::fp32, {0, 0}, {4e-6, -4e-6}, {4e-6, -4e-6}}));
  // An angle does not see a factor.
  EXPECT_FALSE(rejected("cosine", {Dtype::fp32, {2, 4}, {1, 2}, {1, 2}}));
  EXPECT_TRUE(rejected("torch allclose", {Dtype::fp32, {2, 4}, {1, 2}, {1, 2}}));
  // A factor of two of the largest error, wherever it stands.
  EXPECT_FALSE(rejected("FlashAttention", {Dtype::bf16, {1, 0.0}, {1, 0.5}, {1.25, 0.5}}));
  EXPECT_TRUE(rejected("FlashAttention", {Dtype::bf16, {1, -0.25}, {1, 0.5}, {1.25, 0.5}}));
  // The same NaN and infinity are equal; a NaN alone fails everywhere.
  EXPECT_FALSE(rejected("torch allclose", {Dtype::fp32, {NAN, INFINITY}, {NAN, INFINITY}, {NAN, INFINITY}}));
  for (std::size_t g = 0; g < usual_gates().size(); ++g)
    EXPECT_TRUE(rejects(g, {Dtype::fp32, {NAN, 1}, {1, 1}, {1, 1}})) << usual_gates()[g].name;
}

TEST(AuditCommand, PrintsAScore) {
  const auto text = ampcheck::testing::ampcheck("audit zoo 'relu.*' 'exp.double' --dtype bf16 --regimes quick -v");
  for (const char* words : {"16 defects and 5 correct kernels of 2 ops", "found", "of these written last, unseen",
                            "torch allclose", "relu.guided", "relu.guided(x=bf16[5,7],seed=1)", "goals"})
    EXPECT_TRUE(contains(text.out, words)) << words << "\n" << text.out << text.err;
  const auto json = ampcheck::testing::ampcheck("audit zoo 'relu.*' --dtype bf16 --regimes quick --json");
  const auto parsed = nlohmann::json::parse(json.out);
  EXPECT_EQ(parsed["schema"], "ampcheck.audit_zoo/1");
  EXPECT_EQ(parsed["all"]["runs"], 16);
  EXPECT_EQ(parsed["correct"]["alarms"], 0);
  EXPECT_EQ(parsed["goals_met"].get<bool>() ? 0 : 1, json.exit_code);
  EXPECT_EQ(parsed["runs"].size(), 20u);
}

TEST(AuditCommand, AnOpStandsForItsKernels) {
  const auto runs = [](const std::string& words) {
    const auto run = ampcheck::testing::ampcheck("audit zoo " + words + " --dtype bf16 --regimes quick --json");
    std::vector<std::string> names;
    const auto parsed = nlohmann::json::parse(run.out);
    for (const auto& entry : parsed["runs"]) names.push_back(entry["name"]);
    return names;
  };
  const std::vector<std::string> of_relu = runs("relu");
  EXPECT_EQ(of_relu, runs("'relu.*'"));
  EXPECT_EQ(of_relu.size(), 20u);
  EXPECT_EQ(runs("exp").size(), runs("'exp.*'").size()) << "and not those of expm1 or the like";
}

TEST(AuditCommand, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(ampcheck::testing::ampcheck("audit").exit_code, 2);
  const auto unknown = ampcheck::testing::ampcheck("audit nothing");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_TRUE(contains(unknown.err, "got 'nothing', want zoo, gate, scaler, step, autocast, train or diagnose"))
      << unknown.err;
  EXPECT_EQ(ampcheck::testing::ampcheck("audit zoo nosuch.kernel").exit_code, 4);
  EXPECT_EQ(ampcheck::testing::ampcheck("audit zoo nosuch").exit_code, 4);
  EXPECT_EQ(ampcheck::testing::ampcheck("audit zoo relu.fmax --dtype bf16 --regimes quick").exit_code, 0)
      << "a correct kernel alone";
}

/// A sum of dot products overflows in some order if its terms of either sign do, though the dot products have one sign:
/// found by the soak.
TEST(Zoo, NestedSumsThatOverflowInSomeOrderAreOpen) {
  for (const char* name : {"conv2d.plain(x=fp32[2,3,5,67],weight=fp32[2,3,3,3],cotangent=near_max,seed=1001)",
                           "conv2d.fma(x=bf16[2,3,5,67],weight=bf16[2,3,3,3],cotangent=near_max,seed=1001)"}) {
    const OpDef& op = *find_op(op_of(name));
    EXPECT_FALSE(convicts(run_case(op, parse_call(name, op.signature), {}).verdict)) << name;
  }
}

}  // namespace
}  // namespace ampcheck::checks::zoo
