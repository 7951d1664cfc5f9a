// SPDX-License-Identifier: Apache-2.0
// What a failing case takes until all is said: judged, explained, brought down to a smaller one and to few values;
// against the passing case of a right kernel of the op at the same shape.
#include <algorithm>
#include <functional>
#include <map>
#include <string>

#include "checks/data/file_tensors.h"
#include "checks/data/regimes.h"
#include "checks/doors/plugin.h"
#include "checks/run/dump.h"
#include "checks/run/runner.h"
#include "checks/run/shrink.h"
#include "checks/zoo/zoo.h"
#include "src/error.h"
#include "src/random.h"
#include "tests/bench/figures.h"
#include "tests/support/paths.h"

namespace ampcheck::bench {

namespace {

/// Everything that `ampcheck check CASE` does, but for the certificate of the op.
CaseResult checked(const std::string& name) {
  const checks::OpDef& op = *checks::find_op(op_of(name));
  checks::RunOptions options;
  options.brief = true;
  options.jobs = 1;
  const std::vector<checks::Case> cases{{&op, parse_call(name, op.signature)}};
  std::vector<CaseResult> results{checks::run_one(cases.front(), {}, options)};
  checks::shrink_failures(cases, options, results);
  return results.front();
}

/// What `ampcheck check OP` does with the op's default cases; how many of them failed.
std::size_t failed_of(const checks::OpDef& op) {
  checks::RunOptions options;
  options.brief = true;
  options.jobs = 1;
  std::vector<checks::Case> cases;
  for (const Dtype storage : op.signature.precision.storage)
    for (OpCall& call : checks::cases_of(op.signature, storage, checks::CaseSet::standard, 1))
      cases.push_back({&op, std::move(call)});
  const Report report = checks::run_cases(cases, options);
  return static_cast<std::size_t>(
      std::count_if(report.cases.begin(), report.cases.end(), [](const CaseResult& r) { return convicts(r.verdict); }));
}

/// The ops of a check that passes and of one that fails; they are loaded when they are asked for.
struct Checks {
  std::function<const checks::OpDef&()> right, wrong;
};

const checks::OpDef& op_named(const std::string& name) { return *checks::find_op(name); }

/// A right kernel of the op as plainly written as its faults: the zoo's first.
const checks::OpDef& right_of(const std::string& op) {
  for (const checks::zoo::Specimen& specimen : checks::zoo::specimens())
    if (specimen.correct() && specimen.name().starts_with(op + ".")) return specimen.op;
  throw Error("[bench] right kernels of " + op + ", got none, want one");
}

const checks::OpDef& custom(const std::string& name) {
  for (const checks::OpDef& op : checks::load_plugin(tests::in_build("/custom_ops/causal_attention.so")).ops)
    if (op.signature.name == name) return op;
  throw Error("[bench] op " + name + ", got none, want one");
}

void whole_check(benchmark::State& state, const Checks& of, const std::string& figure) {
  const checks::OpDef &right = of.right(), &wrong = of.wrong();
  const Pair best = interleaved(
      state, 1,
      [&] {
        if (failed_of(right) != 0)
          throw Error("[bench] check of " + right.signature.name + ", got a finding, want none");
      },
      [&] {
        if (failed_of(wrong) == 0)
          throw Error("[bench] check of " + wrong.signature.name + ", got no finding, want some");
      });
  const double ratio = best.subject / best.baseline;
  state.counters["ratio"] = ratio;
  static std::map<std::string, double> worst;
  worst[figure] = std::max(worst[figure], ratio);
  record_figure(figure, Goal::at_most, 10, worst[figure], "x");
}

/// `right`: a variant of the op as plainly written as the fault.
void verdict(benchmark::State& state, const std::string& op, const std::string& right, const std::string& fault,
             const std::string& shape, const char* dtype) {
  const std::string call = std::string("(x=") + dtype + "[" + shape + "],seed=1)";
  const Pair best = interleaved(
      state, 3,
      [&] {
        if (convicts(checked(op + "." + right + call).verdict))
          throw Error("[bench] verdict of " + op + "." + right + call + ", got a finding, want none");
      },
      [&] {
        const CaseResult result = checked(op + "." + fault + call);
        if (!convicts(result.verdict) || deciding_check(result)->cause.empty())
          throw Error("[bench] verdict of " + op + "." + fault + call + ", got none or no cause, want both");
      });
  const double ratio = best.subject / best.baseline;
  state.counters["ratio"] = ratio;
  static std::map<std::string, double> worst;
  worst[shape] = std::max(worst[shape], ratio);
  record_figure("verdict, cause and smallest case of a fault at [" + shape + "] / its check that passes, worst of 6",
                Goal::at_most, 10, worst[shape], "x");
}

/// A dump of y = x w, [128,8192] by [8192,128]; `wrong`: one row of y is three times as large.
TensorFile dumped_product(bool wrong) {
  constexpr std::int64_t kRows = 128, kTerms = 8192, kColumns = 128;
  Tensor x(Dtype::fp32, {kRows, kTerms}), w(Dtype::fp32, {kTerms, kColumns}), y(Dtype::fp32, {kRows, kColumns});
  const Random random(1, "dumped_product");
  std::uint64_t drawn = 0;
  for (Tensor* const tensor : {&x, &w})
    for (float& v : tensor->span<float>()) v = static_cast<float>(random.normal(drawn++));
  const auto a = x.span<float>(), b = w.span<float>(), c = y.span<float>();
  for (std::int64_t i = 0; i < kRows; ++i)
    for (std::int64_t k = 0; k < kTerms; ++k)
      for (std::int64_t j = 0; j < kColumns; ++j)
        c[static_cast<std::size_t>(i * kColumns + j)] +=
            a[static_cast<std::size_t>(i * kTerms + k)] * b[static_cast<std::size_t>(k * kColumns + j)];
  for (std::size_t j = 0; wrong && j < kColumns; ++j) c[37 * kColumns + j] *= 3;
  return {"memory", {{"x", x}, {"w", w}, {"y", y}}};
}

void dump_verdict(benchmark::State& state) {
  const TensorFile files[] = {dumped_product(false), dumped_product(true)};
  const checks::OpDef op =
      checks::op_of_formula(files[0], "y = matmul(x, w)", {.storage = {}, .math = checks::cuda_math()});
  const auto judge = [&](const TensorFile& file, bool wrong) {
    OpCall call = checks::file_call(op, checks::data_of_file(file), Dtype::fp32);
    checks::require_file_call(op, call, true);
    const CaseResult result = checks::judge_dump(op, call, file).result;
    if (convicts(result.verdict) != wrong || (wrong && deciding_check(result)->cause.empty()))
      throw Error("[bench] verdict of a dump, got " + std::string(ampcheck::name(result.code)) + ", want " +
                  (wrong ? "a finding with its cause" : "none"));
  };
  const Pair best = interleaved(
      state, 1, [&] { judge(files[0], false); }, [&] { judge(files[1], true); });
  state.counters["ratio"] = best.subject / best.baseline;
  record_figure("finding of one wrong row in a dumped product, 128 x 128, K = 8192 / the check of the right dump",
                Goal::at_most, 3, best.subject / best.baseline, "x");
}

const bool registered = [] {
  add_figure("verdict/dump", 3, dump_verdict);
  const struct {
    const char *op, *right, *fault;
  } kFaults[] = {{"softmax", "reversed_order", "sign"},
                 {"softmax", "reversed_order", "bf16_accumulation"},
                 {"layer_norm", "reversed", "row_counted_twice"}};
  // Default cases: every verdict, cause and smallest case.
  for (const auto& [op, right, fault] : kFaults)
    add_figure(std::string("verdict/") + op + "." + fault + "/all", 1,
               [right = std::string(op) + "." + right, wrong = std::string(op) + "." + fault](benchmark::State& state) {
                 whole_check(state,
                             {[&]() -> const checks::OpDef& { return op_named(right); },
                              [&]() -> const checks::OpDef& { return op_named(wrong); }},
                             "check of an op with a fault, its verdicts, causes and smallest cases / the check of a "
                             "right one, default cases, worst of 3");
               });
  for (const std::string wrong :
       {"relu.leaky", "max_pool2d.unwritten_row", "linear.bf16_operands", "attention.mask_off_by_one"})
    add_figure("verdict/" + wrong + "/all", 1, [wrong](benchmark::State& state) {
      whole_check(state,
                  {[&]() -> const checks::OpDef& { return right_of(wrong.substr(0, wrong.find('.'))); },
                   [&]() -> const checks::OpDef& { return op_named(wrong); }},
                  "verdict of " + wrong + " / passing check");
    });
  for (const std::string wrong : {"causal_attention_unscaled_dq", "causal_attention_sees_next_key"})
    add_figure("verdict/" + wrong + "/all", 1, [wrong](benchmark::State& state) {
      whole_check(state,
                  {[]() -> const checks::OpDef& { return custom("causal_attention"); },
                   [&]() -> const checks::OpDef& { return custom(wrong); }},
                  "verdict of " + wrong + " / passing check");
    });
  for (const char* shape : {"5,7", "64,129", "64,1024"})
    for (const auto& [op, right, fault] : kFaults)
      for (const char* dtype : {"bf16", "fp32"}) {
        std::string name = std::string("verdict/") + op + "." + fault + "/" + dtype + "/" + shape;
        std::replace(name.begin(), name.end(), ',', 'x');
        add_figure(name, 5, [=, op = op, right = right, fault = fault](benchmark::State& state) {
          verdict(state, op, right, fault, shape, dtype);
        });
      }
  return true;
}();

}  // namespace

}  // namespace ampcheck::bench
