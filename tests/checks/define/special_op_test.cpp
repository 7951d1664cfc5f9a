// SPDX-License-Identifier: Apache-2.0
// What an op definition can describe beyond y = f(x): several outputs, integer and mask inputs, optional inputs, saved
// tensors, outputs in place and gradients that accumulate. Each comes with a right kernel and a faulty twin.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "checks/data/regimes.h"
#include "checks/define/op_def.h"
#include "checks/run/runner.h"

namespace ampcheck::checks {
namespace {

using kernels::KernelCall;
using reference::Expr;
using reference::FormulaCall;
using Values = std::vector<float>;

Values read(const KernelCall& call, const char* name) {
  const std::vector<double> values = to_doubles(call.at(name));
  return Values(values.begin(), values.end());
}
void write(const KernelCall& call, const char* name, const Values& values) {
  from_doubles(std::vector<double>(values.begin(), values.end()), call.at(name));
}
/// out[i] = f(i) for as many elements as `like` has.
template <class F>
Values map(std::size_t n, F f) {
  Values out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = f(i);
  return out;
}

/// An op over x [N, D] that can go wrong.
OpDef base(const std::string& name) {
  OpDef op;
  op.signature.name = name;
  op.signature.inputs = {{.name = "x", .dims = "N D"}};
  op.signature.outputs = {{"y"}};
  op.signature.dims = {{"N", {5, 16, 2}}, {"D", {7, 33, 129}}};
  return op;
}

struct Seen {
  int cases = 0, convicted = 0;
  std::int64_t compared = 0;
  std::set<std::string> codes;
  std::string first;
};

Seen judge_quick(const OpDef& op) {
  Seen seen;
  for (const Dtype dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp16})
    for (const OpCall& call : cases_of(op.signature, dtype, CaseSet::quick, 1)) {
      const CaseResult result = run_case(op, call, {});
      ++seen.cases;
      seen.compared += result.elements();
      if (!convicts(result.verdict)) continue;
      if (!seen.convicted++) seen.first = result.name + " " + ampcheck::name(result.code);
      for (const CheckResult& check : result.checks)
        if (convicts(check.verdict)) {
          seen.codes.insert(ampcheck::name(check.code));
          seen.first += " [" + check.name() + ": " + check.cause + "]";
        }
    }
  return seen;
}

void expect_right(const OpDef& op) {
  const Seen seen = judge_quick(op);
  EXPECT_EQ(seen.convicted, 0) << seen.first;
  EXPECT_GT(seen.cases, 20);
  EXPECT_GT(seen.compared, 1000);
}
void expect_caught(const OpDef& op, const std::string& code) {
  const Seen seen = judge_quick(op);
  EXPECT_GT(seen.convicted, 0);
  EXPECT_TRUE(seen.codes.contains(code)) << seen.first;
}

OpDef scale_in_place(bool faulty) {
  OpDef op = base("scale_in_place");
  op.signature.launch.in_place = {{"y", "x"}};
  op.forms = {{"2.5 x", [](FormulaCall& c) { c.output("y", c["x"] * 2.5); }}};
  op.kernel.forward = [faulty](const KernelCall& call) {
    const Values x = read(call, "x");
    Values y = map(x.size(), [&](std::size_t i) { return 2.5f * x[i]; });
    if (faulty && y.size() > 8) y[8] *= 2.5f;  // reads what it has already overwritten
    write(call, "y", y);
  };
  op.kernel.backward = [](const KernelCall& call) {
    const Values g = read(call, "dy");
    write(call, "dx", map(g.size(), [&](std::size_t i) { return 2.5f * g[i]; }));
  };
  return op;
}
TEST(SpecialOp, OutputInPlace) {
  expect_right(scale_in_place(false));
  expect_caught(scale_in_place(true), "AC101");
}
TEST(SpecialOp, OverwritingAnInputThatIsNotDeclaredInPlace) {
  OpDef op = scale_in_place(false);
  op.signature.launch.in_place.clear();
  op.kernel.forward = [](const KernelCall& call) {
    const Values x = read(call, "x"), y = map(x.size(), [&](std::size_t i) { return 2.5f * x[i]; });
    write(call, "x", y);
    write(call, "y", y);
  };
  expect_caught(op, "AC403");
}

OpDef sum_and_product(bool faulty) {
  OpDef op = base("sum_and_product");
  op.signature.inputs = {{.name = "a", .dims = "N D"}, {.name = "b", .dims = "N D"}};
  op.signature.outputs = {{"s"}, {"p", TypeRule::fp32}};
  op.forms = {{"a + b, a b", [](FormulaCall& c) {
                 c.output("s", c["a"] + c["b"]);
                 c.output("p", c["a"] * c["b"]);
               }}};
  op.kernel.forward = [](const KernelCall& call) {
    const Values a = read(call, "a"), b = read(call, "b");
    write(call, "s", map(a.size(), [&](std::size_t i) { return a[i] + b[i]; }));
    write(call, "p", map(a.size(), [&](std::size_t i) { return a[i] * b[i]; }));
  };
  op.kernel.backward = [faulty](const KernelCall& call) {
    const Values a = read(call, "a"), b = read(call, "b"), ds = read(call, "ds"), dp = read(call, "dp");
    write(call, "da", map(a.size(), [&](std::size_t i) { return ds[i] + dp[i] * b[i]; }));
    write(call, "db", map(a.size(), [&](std::size_t i) { return ds[i] + (faulty ? 0.0f : dp[i] * a[i]); }));
  };
  return op;
}
TEST(SpecialOp, SeveralOutputsOfDifferentTypes) {
  expect_right(sum_and_product(false));
  expect_caught(sum_and_product(true), "AC101");
}

OpDef masked(bool faulty) {
  OpDef op = base("masked");
  op.signature.inputs.push_back({.name = "keep", .dims = "N D", .role = Role::mask, .type = TypeRule::u8});
  op.forms = {{"2.5 x where kept", [](FormulaCall& c) {
                 const Expr x = c["x"];
                 c.output("y", x * 2.5 * indicator(c.graph(), x.shape(), c.integers("keep")));
               }}};
  const auto apply = [](const KernelCall& call, const char* from, const char* to, bool use_mask) {
    const Values v = read(call, from), keep = read(call, "keep");
    write(call, to,
          map(v.size(), [&](std::size_t i) { return !use_mask || keep[i] != 0 ? 2.5f * v[i] : v[i] * 0.0f; }));
  };
  op.kernel.forward = [apply](const KernelCall& call) { apply(call, "x", "y", true); };
  op.kernel.backward = [apply, faulty](const KernelCall& call) { apply(call, "dy", "dx", !faulty); };
  return op;
}
TEST(SpecialOp, MaskInput) {
  expect_right(masked(false));
  expect_caught(masked(true), "AC101");
}

OpDef lookup(bool faulty) {
  OpDef op = base("lookup");
  op.signature.inputs = {{.name = "ids", .dims = "N", .role = Role::index, .type = TypeRule::i64, .index_dim = "V"},
                         {.name = "table", .dims = "V D", .role = Role::weight}};
  op.signature.dims = {{"N", {5, 16, 2}}, {"V", {6, 9, 3}}, {"D", {7, 33, 129}}};
  op.forms = {{"table[ids]", [](FormulaCall& c) { c.output("y", gather_rows(c["table"], c.integers("ids"))); }}};
  op.kernel.forward = [](const KernelCall& call) {
    const Values ids = read(call, "ids"), table = read(call, "table");
    const auto width = static_cast<std::size_t>(call.at("table").shape[1]);
    write(call, "y", map(ids.size() * width, [&](std::size_t i) {
            return table[static_cast<std::size_t>(ids[i / width]) * width + i % width];
          }));
  };
  op.kernel.backward = [faulty](const KernelCall& call) {
    const Values ids = read(call, "ids"), g = read(call, "dy");
    const auto width = static_cast<std::size_t>(call.at("dtable").shape[1]);
    Values out(static_cast<std::size_t>(call.at("dtable").count()), 0.0f);
    for (std::size_t i = 0; i < g.size(); ++i) {
      float& to = out[static_cast<std::size_t>(ids[i / width]) * width + i % width];
      to = faulty ? g[i] : to + g[i];  // a repeated index overwrites
    }
    write(call, "dtable", out);
  };
  return op;
}
TEST(SpecialOp, IntegerInput) {
  expect_right(lookup(false));
  expect_caught(lookup(true), "AC101");
}

OpDef with_bias(bool faulty) {
  OpDef op = base("with_bias");
  op.signature.inputs.push_back(
      {.name = "bias", .dims = "D", .role = Role::bias, .type = TypeRule::parameter, .optional = true});
  op.forms = {{"x + b", [](FormulaCall& c) { c.output("y", c.has("bias") ? c["x"] + c["bias"] : c["x"] + 0.0); }}};
  op.kernel.forward = [faulty](const KernelCall& call) {
    const Values x = read(call, "x");
    Values bias(static_cast<std::size_t>(call.at("x").shape[1]), 0.0f);
    if (faulty || call.find("bias") != nullptr) bias = read(call, "bias");
    write(call, "y", map(x.size(), [&](std::size_t i) { return x[i] + bias[i % bias.size()]; }));
  };
  op.kernel.backward = [](const KernelCall& call) {
    const Values g = read(call, "dy");
    write(call, "dx", g);
    if (call.find("dbias") == nullptr) return;
    Values sums(static_cast<std::size_t>(call.at("dbias").count()), 0.0f);
    for (std::size_t i = 0; i < g.size(); ++i) sums[i % sums.size()] += g[i];
    write(call, "dbias", sums);
  };
  return op;
}
TEST(SpecialOp, OptionalInput) {
  expect_right(with_bias(false));
  expect_caught(with_bias(true), "AC501");
}

/// Forward keeps exp(x) in the storage type; backward starts from it.
OpDef saving(int fault) {
  OpDef op = base("saving");
  op.signature.saved = {{"e"}};
  op.forms = {{"e = exp(x)", [](FormulaCall& c) {
                 const Expr e = stored("e", exp(c["x"]));
                 c.output("y", own_adjoint(e, {c["x"]}, [e](Expr g) { return std::vector<Expr>{g * e}; }));
               }}};
  op.kernel.forward = [fault](const KernelCall& call) {
    const Values x = read(call, "x"), e = map(x.size(), [&](std::size_t i) { return std::exp(x[i]); });
    write(call, "y", e);
    write(call, "e", fault == 1 ? x : e);
  };
  op.kernel.backward = [fault](const KernelCall& call) {
    const Values g = read(call, "dy"), e = read(call, "e"), x = read(call, "x");
    write(call, "dx",
          map(g.size(), [&](std::size_t i) { return fault == 2 ? g[i] * (e[i] + e[i] * 0.03125f) : g[i] * e[i]; }));
    if (fault == 3) write(call, "e", x);
  };
  return op;
}
TEST(SpecialOp, SavedTensor) {
  expect_right(saving(0));
  expect_caught(saving(1), "AC101");  // saves the wrong tensor
  expect_caught(saving(2), "AC101");  // wrong from what was saved
  expect_caught(saving(3), "AC403");  // backward overwrites what was saved
}

OpDef accumulating(bool faulty) {
  OpDef op = base("accumulating");
  op.signature.launch.accumulates = {"dx"};
  op.forms = {{"2.5 x", [](FormulaCall& c) { c.output("y", c["x"] * 2.5); }}};
  op.kernel.forward = [](const KernelCall& call) {
    const Values x = read(call, "x");
    write(call, "y", map(x.size(), [&](std::size_t i) { return 2.5f * x[i]; }));
  };
  op.kernel.backward = [faulty](const KernelCall& call) {
    const Values g = read(call, "dy"), held = read(call, "dx");
    write(call, "dx", map(g.size(), [&](std::size_t i) { return (faulty ? 0.0f : held[i]) + 2.5f * g[i]; }));
  };
  return op;
}
TEST(SpecialOp, AccumulatingGradient) {
  expect_right(accumulating(false));
  expect_caught(accumulating(true), "AC408");
}

}  // namespace
}  // namespace ampcheck::checks
