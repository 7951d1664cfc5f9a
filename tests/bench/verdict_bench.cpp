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
