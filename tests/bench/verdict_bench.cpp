// SPDX-License-Identifier: Apache-2.0
// What a failing case takes until all is said: judged, explained, brought down to a smaller one and to few values; against the passing case of
// a right kernel of the op at the same shape.
#include <algorithm>
#include <map>
#include <string>

#include "checks/runner.h"
#include "checks/shrink.h"
#include "src/error.h"
#include "tests/bench/figures.h"

namespace ampcheck::bench {

namespace {

/// Everything that `ampcheck check CASE` does, but for the certificate of the op.
CaseResult checked(const std::string& name) {
  const checks::OpDef& op = *checks::find_op(op_of(name));
  checks::RunOptions options;
  options.brief = true, options.jobs = 1;
  const std::vector<checks::Case> cases{{&op, parse_call(name, op.signature)}};
  std::vector<CaseResult> results{checks::run_one(cases.front(), {}, options)};
  checks::shrink_failures(cases, options, results);
  return results.front();
}

/// What `ampcheck check OP` does with the op's default cases; how many of them failed.
std::size_t failed_of(const checks::OpDef& op) {
  checks::RunOptions options;
  options.brief = true, options.jobs = 1;
  std::vector<checks::Case> cases;
  for (const Dtype storage : op.signature.precision.storage)
    for (OpCall& call : checks::cases_of(op.signature, storage, checks::CaseSet::standard, 1)) cases.push_back({&op, std::move(call)});
  const Report report = checks::run_cases(cases, options);
  return static_cast<std::size_t>(std::count_if(report.cases.begin(), report.cases.end(), [](const CaseResult& r) { return convicts(r.verdict); }));
}

void whole_check(benchmark::State& state, const std::string& op, const std::string& right, const std::string& fault) {
  const Pair best = interleaved(
      state, 3,
      [&] {
        if (failed_of(*checks::find_op(op + "." + right)) != 0) throw Error("[bench] check of " + op + "." + right + ", got a finding, want none");
      },
      [&] {
        if (failed_of(*checks::find_op(op + "." + fault)) == 0) throw Error("[bench] check of " + op + "." + fault + ", got no finding, want some");
      });
  const double ratio = best.subject / best.baseline;
  state.counters["ratio"] = ratio;
  static double worst = 0;
  worst = std::max(worst, ratio);
  record_figure("check of an op with a fault, its verdicts, causes and smallest cases / the check of a right one, default cases, worst of 3", Goal::at_most, 10, worst, "x");
}

/// `right`: a variant of the op as plainly written as the fault.
void verdict(benchmark::State& state, const std::string& op, const std::string& right, const std::string& fault, const std::string& shape, const char* dtype) {
  const std::string call = std::string("(x=") + dtype + "[" + shape + "],seed=1)";
  const Pair best = interleaved(
      state, 3,
      [&] {
        if (convicts(checked(op + "." + right + call).verdict)) throw Error("[bench] verdict of " + op + "." + right + call + ", got a finding, want none");
      },
      [&] {
        const CaseResult result = checked(op + "." + fault + call);
        if (!convicts(result.verdict) || deciding_check(result)->cause.empty()) throw Error("[bench] verdict of " + op + "." + fault + call + ", got none or no cause, want both");
      });
  const double ratio = best.subject / best.baseline;
  state.counters["ratio"] = ratio;
  static std::map<std::string, double> worst;
  worst[shape] = std::max(worst[shape], ratio);
  record_figure("verdict, cause and smallest case of a fault at [" + shape + "] / its check that passes, worst of 6", Goal::at_most, 10, worst[shape], "x");
}

const bool registered = [] {
  const struct {
    const char *op, *right, *fault;
  } kFaults[] = {{"softmax", "reversed_order", "sign"}, {"softmax", "reversed_order", "bf16_accumulation"}, {"layer_norm", "reversed", "row_counted_twice"}};
  for (const auto& [op, right, fault] : kFaults)
    add_figure(std::string("verdict/") + op + "." + fault + "/all", 1, [=](benchmark::State& state) { whole_check(state, op, right, fault); });
  for (const char* shape : {"5,7", "64,129", "64,1024"})
    for (const auto& [op, right, fault] : kFaults)
      for (const char* dtype : {"bf16", "fp32"}) {
        std::string name = std::string("verdict/") + op + "." + fault + "/" + dtype + "/" + shape;
        std::replace(name.begin(), name.end(), ',', 'x');
        add_figure(name, 5, [=](benchmark::State& state) { verdict(state, op, right, fault, shape, dtype); });
      }
  return true;
}();

}  // namespace

}  // namespace ampcheck::bench
