// SPDX-License-Identifier: Apache-2.0
// The whole check of one case against one plain forward + backward of the same op in double.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "checks/run/runner.h"
#include "src/error.h"
#include "src/rounding.h"
#include "tests/bench/eigen_ops.h"
#include "tests/bench/figures.h"

namespace ampcheck::bench {

namespace {

/// On `target`: what a narrower machine would print, Eigen and our kernels having one instruction set in either case.
void check_against_plain(benchmark::State& state, const std::string& op_name, std::string_view target, double goal,
                         void (*plain)(PlainOp&)) {
  const checks::OpDef& op = *checks::find_op(op_name);
  const OpCall call = parse_call(op_name + "(x=bf16[64,1024],cotangent=full)", op.signature);
  const checks::RunOptions options;
  PlainOp tensors(64, 1024);
  set_simd_target(target);
  const Pair best = interleaved(
      state, 10,
      [&] {
        plain(tensors);
        benchmark::DoNotOptimize(tensors.dx.data());
        benchmark::ClobberMemory();
      },
      [&] {
        const CaseResult result = checks::run_case(op, call, options);
        if (result.verdict != Verdict::rounding)
          throw Error("[bench] verdict of " + result.name + ", got " + ampcheck::name(result.code) + ", want none");
      });
  set_simd_target("");
  state.counters["ratio"] = best.subject / best.baseline;
  record_figure(fmt::format("check of {} [64,1024] bf16, six probes / plain forward + backward, {}", op_name, target),
                Goal::at_most, goal, best.subject / best.baseline, "x");
}

/// Our side of tools/bench_peers: the same op and shape that torch checks there, judging every element.
void check_alone(benchmark::State& state, const std::string& case_name) {
  const checks::OpDef& op = *checks::find_op(op_of(case_name));
  const OpCall call = parse_call(case_name, op.signature);
  double best = 1e30;
  for (auto _ : state) {
    const double t = seconds_of([&] { benchmark::DoNotOptimize(checks::run_case(op, call, {})); });
    best = std::min(best, t);
    state.SetIterationTime(t);
  }
  state.counters["best_ms"] = best * 1e3;
}

const bool registered = [] {
  const auto add = [](const char* op, double goal, void (*plain)(PlainOp&)) {
    for (const std::string_view target : simd_targets())
      add_figure(fmt::format("check/{}/{}", op, target), 60,
                 [=](benchmark::State& state) { check_against_plain(state, op, target, goal, plain); });
  };
  add("softmax", 40, plain_softmax);
  add("gelu", 40, plain_gelu);
  add("layer_norm", 60, plain_layer_norm);
  add("rms_norm", 60, plain_rms_norm);
  for (const char* shape : {"64,1024", "32,128"}) {
    std::string name = std::string("peers/softmax/") + shape;
    name[name.find(',')] = 'x';
    add_figure(name, 20,
               [=](benchmark::State& state) { check_alone(state, std::string("softmax(x=fp32[") + shape + "])"); });
  }
  return true;
}();

}  // namespace

}  // namespace ampcheck::bench
