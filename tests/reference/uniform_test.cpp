// SPDX-License-Identifier: Apache-2.0
// One radius for all elements of a part: it bounds theirs, and what it settles the judge would have found as well.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>

#include "checks/case/case_run.h"
#include "checks/data/regimes.h"
#include "checks/define/op_def.h"
#include "checks/judge/judge.h"
#include "checks/run/runner.h"
#include "reference/ball/ball.h"
#include "reference/certify/certify.h"
#include "src/rounding.h"
#include "tests/support/cotangents_of.h"
#include "tests/support/sanitized.h"

namespace ampcheck::checks {
namespace {

/// Whether the parts of some tensors hold the values of the whole and bounds of its radii; counts the elements.
std::int64_t expect_bounds(CaseReference& reference, std::size_t form, Pass pass, const std::vector<std::string>& names,
                           const std::string& where) {
  std::int64_t seen = 0, zero_radii = 0;
  const bool bounded = reference.stream_uniform(
      form, pass, names, [&](std::size_t which, std::int64_t first, const reference::Ball& part) {
        const reference::Ball& want = reference.ball(form, pass, names[which]);
        for (std::int64_t i = 0; i < part.count(); ++i) {
          const double v = part.v[i], r = want.r ? want.r[first + i] : 0.0;
          // Sums of chains are added up in another order.
          ASSERT_NEAR(v, want.v[first + i], 1e-12 * part.range.largest)
              << where << " value of " << names[which] << " at " << first + i;
          const double bound = part.all.relative * std::fabs(v) + (part.r ? part.r[i] : part.all.absolute);
          ASSERT_LE(r, bound) << where << " radius of " << names[which] << " at " << first + i;
          const double sharper = reference.radius_at(form, pass, names[which], i, {});
          const double far_enough =
              reference.radius_at(form, pass, names[which], i, [&](double radius) { return radius < bound / 2; });
          ASSERT_LE(sharper, far_enough) << where << " at " << first + i;
          ASSERT_TRUE(far_enough < bound / 2 || far_enough == sharper) << where << " at " << first + i;
          ASSERT_LE(r, sharper) << where << " radius at its own operands of " << names[which] << " at " << first + i;
          ASSERT_LE(sharper, bound) << where << " at " << first + i;
          zero_radii += bound == 0;
        }
        seen += part.count();
      });
  return bounded ? seen : 0;
}

TEST(Uniform, OneRadiusBoundsThoseOfAllElementsInEveryFormOfEveryOp) {
  std::map<std::string, std::int64_t> seen;
  for (const OpDef& op : all_ops())
    for (const std::size_t which : {std::size_t{1}, std::size_t{2}})
      for (const char* range :
           testing::all_or_first({"normal", "near_max", "loguniform8", "mean30", "integers9", "specials"})) {
        OpCall call = default_call(op.signature, Dtype::bf16);
        call.dims = reference::standard_dims(op.signature, which);
        call.range = range;
        if (op.signature.valid && !op.signature.valid(call.dims, call.attributes)) continue;
        for (std::size_t form = 0; form < op.forms.size(); ++form) {
          const RunOptions options;
          CaseReference reference(op, call, CaseRun(op, call, options).reference.inputs());
          const std::string where = call.str(op.signature) + " form " + op.forms[form].name;
          std::vector<std::string> outputs, gradients;
          for (const auto& [name, node] : reference.recording(form).outputs) outputs.push_back(name);
          for (const auto& [name, node] : reference.recording(form).gradients) gradients.push_back(name);
          seen[op.signature.name] += expect_bounds(reference, form, Pass::forward, outputs, where);
          for (int probe = 0; probe < probe_count(call) && !gradients.empty(); ++probe) {
            reference.set_cotangents(cotangents_of(reference, probe));
            seen[op.signature.name] +=
                expect_bounds(reference, form, Pass::backward, gradients, where + " probe " + std::to_string(probe));
          }
        }
      }
  for (const char* name : {"add", "mul", "gelu", "gelu_tanh", "silu", "softmax", "log_softmax", "layer_norm",
                           "rms_norm", "attention", "conv2d", "cross_entropy"})
    EXPECT_GT(seen[name], 0) << name << ": no part was bounded, nothing was compared";
}

/// What the comparison of the whole tensor with the first form says.
Comparison whole(CaseRun& run, const Subject& subject, Pass pass) {
  return compare(to_doubles(subject.got), run.reference.interval(run.reference.forms().front(), pass,
                                                                 subject.tensor->name, subject.tensor->dtype));
}

void expect_same(CaseRun& run, const std::vector<Subject>& subjects, Pass pass) {
  const std::vector<CheckResult> judged = judge(run, subjects, pass);
  for (std::size_t k = 0; k < subjects.size(); ++k) {
    const Comparison want = whole(run, subjects[k], pass);
    const std::string at = run.call.str(run.op.signature) + " " + name(subjects[k].id);
    if (!want.outside.empty()) continue;  // further forms speak then
    EXPECT_EQ(judged[k].failed, 0) << at;
    EXPECT_EQ(judged[k].compared, want.compared) << at;
    EXPECT_EQ(judged[k].blind, want.blind) << at;
    EXPECT_EQ(judged[k].range, want.range) << at;
    EXPECT_EQ(judged[k].max_ratio, want.max_ratio) << at;
  }
}

TEST(Uniform, TheCountsAreThoseOfTheWholeComparison) {
  for (const char* name :
       {"softmax(x=bf16[64,512],cotangent=full)", "layer_norm(x=fp16[64,512],cotangent=full)",
        "gelu(x=bf16[64,512],range=sweep20)", "rms_norm(x=bf16[32,1024],cotangent=full)",
        "linear(x=bf16[128,96],weight=bf16[160,96])", "attention(q=bf16[4,4,32,32])", "swiglu(gate=fp16[64,512])",
        "relu(x=bf16[64,512])", "log_softmax(x=bf16[64,512],cotangent=full)", "cross_entropy(x=bf16[64,512])"}) {
    const OpDef& op = *find_op(op_of(name));
    const OpCall call = parse_call(name, op.signature);
    const RunOptions options;
    CaseRun run(op, call, options);
    const LaunchResult forward = run.run_forward(run.forward_tensors(run.reference.inputs(), 0));
    std::vector<Subject> subjects;
    for (const Written& output : run.outputs)
      subjects.push_back({{CheckId::Kind::forward, output.name}, &output, forward.written.at(output.name).view()});
    expect_same(run, subjects, Pass::forward);
    for (int probe = 0; probe < probe_count(call); ++probe) {
      const NamedValues& cotangents = run.cotangents(probe);
      const LaunchResult backward =
          run.run_backward(run.backward_tensors(run.reference.inputs(), forward, cotangents, 0));
      subjects.clear();
      for (const Written& gradient : run.gradients)
        subjects.push_back({{.kind = CheckId::Kind::backward, .tensor = gradient.name, .probe = probe},
                            &gradient,
                            backward.written.at(gradient.name).view()});
      expect_same(run, subjects, Pass::backward);
    }
  }
}

TEST(Uniform, OneElementOffByAnUlpIsFoundAmongManyThatAreSettled) {
  const OpDef& op = *find_op("gelu");
  const OpCall call = parse_call("gelu(x=bf16[64,1024])", op.signature);
  const RunOptions options;
  CaseRun run(op, call, options);
  LaunchResult forward = run.run_forward(run.forward_tensors(run.reference.inputs(), 0));
  const Written& y = run.outputs.front();
  const TensorView& view = forward.written.at("y").view();
  const std::vector<Subject> subjects{{{CheckId::Kind::forward, "y"}, &y, view}};
  EXPECT_EQ(judge(run, subjects, Pass::forward).front().failed, 0);
  const Interval interval = run.reference.interval(0, Pass::forward, "y", Dtype::bf16);
  std::int64_t at = 40000;
  while (interval.low[static_cast<std::size_t>(at)] != interval.high[static_cast<std::size_t>(at)]) ++at;
  view.as<std::uint16_t>()[at] ^= 1;
  const CheckResult found = judge(run, subjects, Pass::forward).front();
  EXPECT_EQ(found.failed, 1);
  ASSERT_FALSE(found.worst.empty());
  EXPECT_EQ(found.worst.front().index, (std::vector<std::int64_t>{at / 1024, at % 1024}));
}

/// A case whose forward has run, so that its backward can start from what that saved.
struct AtSaved {
  explicit AtSaved(const char* name, const OpDef& op_of_name)
      : op(op_of_name), call(parse_call(name, op.signature)), run(op, call, options) {
    forward = run.run_forward(run.forward_tensors(run.reference.inputs(), 0));
    NamedValues saved;
    for (const Written& output : run.outputs)
      if (output.saved) saved[output.name] = to_doubles(forward.written.at(output.name).view());
    run.reference.set_saved(saved);
  }
  const OpDef& op;
  const OpCall call;
  const RunOptions options;
  CaseRun run;
  LaunchResult forward;
};

TEST(Uniform, SomeColumnsHaveTheBallsOfTheWhole) {
  const std::vector<std::int64_t> columns{0, 7, 128, 511};
  for (const char* name : {"layer_norm(x=bf16[64,512],cotangent=full)", "rms_norm(x=fp16[32,512],cotangent=full)"}) {
    AtSaved at(name, *find_op(op_of(name)));
    CaseReference& reference = at.run.reference;
    const std::size_t form = reference.forms().front();
    for (const char* tensor : {"dweight", "dbias"}) {
      if (at.op.signature.name == "rms_norm" && std::string(tensor) == "dbias") continue;
      for (const int probe : {0, 1, 4}) {
        at.run.cotangents(probe);
        const auto part = reference.columns(form, Pass::backward_at_saved, tensor, columns);
        ASSERT_TRUE(part) << name << " " << tensor;
        const reference::Ball& all = reference.ball(form, Pass::backward_at_saved, tensor);
        ASSERT_EQ(part->count(), 4);
        for (std::size_t k = 0; k < columns.size(); ++k) {
          const auto i = static_cast<std::int64_t>(k);
          EXPECT_NEAR(part->v[i], all.v[columns[k]], 1e-13 * (1 + all.range.largest)) << name << " " << tensor;
          const double r = part->r ? part->r[i] : 0.0, want = all.r ? all.r[columns[k]] : 0.0;
          EXPECT_NEAR(r, want, 1e-12 * want) << name << " " << tensor;
        }
      }
    }
    // The mean of a row takes all of its columns, and so do gradients that follow from it, or are no sum over rows.
    at.run.cotangents(0);
    EXPECT_FALSE(reference.columns(form, Pass::backward, "dweight", columns)) << name;
    EXPECT_FALSE(reference.columns(form, Pass::backward_at_saved, "dx", columns)) << name;
  }
}

TEST(Uniform, OneColumnOffByAnUlpIsFound) {
  AtSaved at("layer_norm(x=bf16[64,512],cotangent=full)", *find_op("layer_norm"));
  const NamedValues& cotangents = at.run.cotangents(1);
  LaunchResult backward =
      at.run.run_backward(at.run.backward_tensors(at.run.reference.inputs(), at.forward, cotangents, 0));
  const Written& dweight = *std::find_if(at.run.gradients.begin(), at.run.gradients.end(),
                                         [](const Written& w) { return w.name == "dweight"; });
  const TensorView& view = backward.written.at("dweight").view();
  const std::vector<Subject> subjects{{{CheckId::Kind::backward, "dweight"}, &dweight, view}};
  EXPECT_EQ(judge(at.run, subjects, Pass::backward_at_saved).front().failed, 0);
  const Interval interval =
      at.run.reference.interval(at.run.reference.forms().front(), Pass::backward_at_saved, "dweight", Dtype::bf16);
  std::int64_t off = 300;
  while (interval.low[static_cast<std::size_t>(off)] != interval.high[static_cast<std::size_t>(off)]) ++off;
  view.as<std::uint16_t>()[off] ^= 1;
  const CheckResult found = judge(at.run, subjects, Pass::backward_at_saved).front();
  EXPECT_EQ(found.failed, 1);
  ASSERT_FALSE(found.worst.empty());
  EXPECT_EQ(found.worst.front().index, std::vector<std::int64_t>{off});
}

/// Values, magnitudes and sums that one pass over the rows hands over, by tensor, as bits.
std::map<std::string, std::vector<double>> uniform_bits(const OpDef& op, const OpCall& call) {
  const RunOptions options;
  CaseReference reference(op, call, CaseRun(op, call, options).reference.inputs());
  std::vector<std::string> names;
  for (const auto& [name, node] : reference.recording(0).gradients) names.push_back(name);
  reference.set_cotangents(cotangents_of(reference, 1));
  std::map<std::string, std::vector<double>> out;
  const bool bounded = reference.stream_uniform(
      0, Pass::backward, names, [&](std::size_t which, std::int64_t, const reference::Ball& part) {
        std::vector<double>& to = out[names[which]];
        to.insert(to.end(), part.v.get(), part.v.get() + part.count());
        if (part.r) to.insert(to.end(), part.r.get(), part.r.get() + part.count());
        to.insert(to.end(), {part.all.relative, part.all.absolute, part.range.largest});
      });
  if (!bounded) out = {{"not bounded", {}}};
  return out;
}

TEST(Uniform, EveryWidthGivesTheSameBits) {
  int bounded = 0, not_bounded = 0;
  for (const char* name :
       {"rms_norm(x=fp32[65,257],range=near_max)", "layer_norm(x=bf16[33,130],range=infinities)",
        "gelu(x=bf16[64,129],range=specials)", "mul(x=fp32[33,257],y=fp32[33,257],range=scale+64)",
        "div(x=fp32[33,257],y=fp32[33,257],range=zeros)", "swiglu(gate=bf16[33,65],up=bf16[33,65],range=subnormal)",
        "softmax(x=bf16[33,129])", "layer_norm(x=bf16[33,130])", "rms_norm(x=bf16[65,257],range=loguniform8)",
        "gelu(x=bf16[64,129])", "swiglu(gate=fp16[33,65])"}) {
    const OpDef& op = *find_op(op_of(name));
    const OpCall call = parse_call(name, op.signature);
    std::map<std::string, std::vector<double>> first;
    for (const std::string_view target : simd_targets()) {
      set_simd_target(target);
      const auto bits = uniform_bits(op, call);
      EXPECT_FALSE(bits.empty()) << name;
      if (first.empty()) first = bits;
      EXPECT_EQ(bits, first) << name << " " << target;
    }
    ++(first.contains("not bounded") ? not_bounded : bounded);
    set_simd_target("");
  }
  EXPECT_GT(bounded, 4);
  EXPECT_GT(not_bounded, 2) << "where values are not finite, each width gives up";
}

}  // namespace
}  // namespace ampcheck::checks
