// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// A maximum is looked for by equality, as the gradient of amax does, in numbers that a fused kernel computes without
// the roundings that the maximum went through. The same nets with all roundings in place are healthy.
#include <algorithm>
#include <cmath>

#include "checks/diagnose/planted.h"
#include "checks/diagnose/planted_boundaries.h"
#include "src/rounding.h"

namespace ampcheck::checks::diagnose {

namespace {

using kernels::Kernel;
using kernels::KernelCall;
using reference::Expr;

/// Rows of x times a gain for each column, or plus one: in fp32, as registers hold it, or as it would be stored.
struct Numbers {
  std::vector<double> x, w, p;
  std::size_t rows, columns;
  Meets how;
  Numbers(const KernelCall& call, Meets how, bool stored)
      : x(to_doubles(call.at("x"))), w(to_doubles(call.at("weight"))), p(x.size()), columns(w.size()), how(how) {
    rows = x.size() / columns;
    for (std::size_t i = 0; i < p.size(); ++i) {
      const float a = static_cast<float>(x[i]), b = static_cast<float>(w[i % columns]);
      p[i] = static_cast<double>(how == Meets::gain ? a * b : a + b);
    }
    if (stored) store(call.at("x").dtype, p);
  }
  static void store(Dtype dtype, std::vector<double>& values) { round_values(format(dtype), {}, values, values); }
  std::vector<double> largest() const {
    std::vector<double> out;
    for (std::size_t r = 0; r < rows; ++r)
      out.push_back(*std::max_element(p.begin() + static_cast<std::ptrdiff_t>(r * columns),
                                      p.begin() + static_cast<std::ptrdiff_t>((r + 1) * columns)));
    return out;
  }
  /// dx and dweight from the gradient of p.
  void give(const KernelCall& call, const std::vector<double>& dp) const {
    std::vector<double> dx(x.size()), dw(columns, 0.0);
    for (std::size_t i = 0; i < x.size(); ++i) {
      dx[i] = how == Meets::gain ? dp[i] * w[i % columns] : dp[i];
      dw[i % columns] += how == Meets::gain ? dp[i] * x[i] : dp[i];
    }
    from_doubles(dx, call.at("dx"));
    from_doubles(dw, call.at("dweight"));
  }
};

Expr met(Meets how, reference::FormulaCall& call) {
  return how == Meets::gain ? call["x"] * call["weight"] : call["x"] + call["weight"];
}
/// Op names: those of sums have the word.
std::string named(Meets how, const char* name) { return std::string(how == Meets::gain ? "" : "sums_") + name; }

/// What of v is in the places that equal the row's `most`, and how many these are.
std::vector<double> shared(const std::vector<double>& p, const std::vector<double>& most, const std::vector<double>& v,
                           bool divided) {
  std::vector<double> out(p.size(), 0.0);
  const std::size_t columns = p.size() / most.size();
  for (std::size_t r = 0; r < most.size(); ++r) {
    double count = 0;
    for (std::size_t c = r * columns; c < (r + 1) * columns; ++c) count += p[c] == most[r];
    for (std::size_t c = r * columns; c < (r + 1) * columns; ++c)
      out[c] = (p[c] == most[r] ? v[c] : 0) / (divided ? count : 1);
  }
  return out;
}

Expr share_formula(Expr p, Expr most, bool divided) {
  const Expr one = reference::constant(*p.graph, 1), zero = reference::constant(*p.graph, 0);
  const Expr is_most = reference::equal(p, most), kept = reference::where(is_most, p, zero);
  return divided ? kept / reference::sum(reference::where(is_most, one, zero), -1) : kept;
}

const TensorSpec kX{.name = "x", .dims = "N D"};
const TensorSpec kGain{.name = "weight", .dims = "D", .role = Role::weight, .type = TypeRule::parameter};
const TensorSpec kMost{.name = "m", .dims = "N K", .type = TypeRule::fp32, .differentiable = false};

OpDef op_of(const std::string& name, std::vector<TensorSpec> inputs, OutputSpec output, Kernel kernel,
            const std::function<Expr(reference::FormulaCall&)>& formula) {
  OpDef op;
  op.signature = {.name = name,
                  .summary = "planted",
                  .inputs = std::move(inputs),
                  .outputs = {output},
                  .dims = {{"N", {4, 8, 2}}, {"D", {8, 16, 3}}, {"K", {1, 1, 1}}}};
  op.kernel = std::move(kernel);
  const std::string out = output.name;
  op.forms = {{"as written", [formula, out](reference::FormulaCall& call) { call.output(out, formula(call)); }}};
  return op;
}

/// y = x * weight, or x + weight.
std::string scale_op(Meets how) {
  Kernel kernel;
  kernel.forward = [how](const KernelCall& call) { from_doubles(Numbers(call, how, false).p, call.at("y")); };
  kernel.backward = [how](const KernelCall& call) { Numbers(call, how, false).give(call, to_doubles(call.at("dy"))); };
  const std::string name = how == Meets::gain ? "channel_scale" : "channel_shift";
  use_new(
      op_of(name, {kX, kGain}, {.name = "y"}, kernel, [how](reference::FormulaCall& call) { return met(how, call); }));
  return name;
}

/// m = the largest of these in each row, in fp32; `stored`: of numbers as they are stored.
std::string most_op(Meets how, bool stored) {
  Kernel kernel;
  kernel.forward = [=](const KernelCall& call) { from_doubles(Numbers(call, how, stored).largest(), call.at("y")); };
  kernel.backward = [=](const KernelCall& call) {
    const Numbers of(call, how, stored);
    const std::vector<double> dy = to_doubles(call.at("dy")), most = of.largest();
    std::vector<double> dp(of.p.size(), 0.0);
    for (std::size_t r = 0; r < of.rows; ++r)
      for (std::size_t c = r * of.columns; c < (r + 1) * of.columns; ++c)
        if (of.p[c] == most[r]) {
          dp[c] = dy[r];
          break;
        }
    of.give(call, dp);
  };
  const std::string name = named(how, stored ? "most_stored" : "most_fused");
  use_new(op_of(name, {kX, kGain}, {.name = "y", .type = TypeRule::fp32}, kernel,
                [how](reference::FormulaCall& call) { return reference::max(met(how, call), -1); }));
  return name;
}

/// y = p where p is m, over how often it is.
std::string share_op(bool divided) {
  Kernel kernel;
  kernel.forward = [divided](const KernelCall& call) {
    const std::vector<double> p = to_doubles(call.at("x"));
    from_doubles(shared(p, to_doubles(call.at("m")), p, divided), call.at("y"));
  };
  kernel.backward = [divided](const KernelCall& call) {
    from_doubles(shared(to_doubles(call.at("x")), to_doubles(call.at("m")), to_doubles(call.at("dy")), divided),
                 call.at("dx"));
  };
  const std::string name = divided ? "share_of_most" : "only_most";
  use_new(op_of(name, {kX, kMost}, {.name = "y"}, kernel,
                [divided](reference::FormulaCall& call) { return share_formula(call["x"], call["m"], divided); }));
  return name;
}

/// The same of numbers which it computes again and does not store.
std::string share_again_op(Meets how, bool divided) {
  Kernel kernel;
  kernel.forward = [=](const KernelCall& call) {
    const Numbers of(call, how, false);
    from_doubles(shared(of.p, to_doubles(call.at("m")), of.p, divided), call.at("y"));
  };
  kernel.backward = [=](const KernelCall& call) {
    const Numbers of(call, how, false);
    of.give(call, shared(of.p, to_doubles(call.at("m")), to_doubles(call.at("dy")), divided));
  };
  const std::string name = named(how, divided ? "share_again" : "only_again");
  use_new(op_of(name, {kX, kGain, kMost}, {.name = "y"}, kernel,
                [=](reference::FormulaCall& call) { return share_formula(met(how, call), call["m"], divided); }));
  return name;
}

/// All of it in one kernel. `through_memory`: its maximum was stored on the way, its other numbers were not.
std::string share_inside_op(Meets how, bool through_memory) {
  const auto most_of = [through_memory](const KernelCall& call, const Numbers& of) {
    std::vector<double> out = of.largest();
    if (through_memory) Numbers::store(call.at("x").dtype, out);
    return out;
  };
  Kernel kernel;
  kernel.forward = [=](const KernelCall& call) {
    const Numbers of(call, how, false);
    from_doubles(shared(of.p, most_of(call, of), of.p, true), call.at("y"));
  };
  kernel.backward = [=](const KernelCall& call) {
    const Numbers of(call, how, false);
    of.give(call, shared(of.p, most_of(call, of), to_doubles(call.at("dy")), true));
  };
  const std::string name = named(how, through_memory ? "share_inside_stored" : "share_inside");
  use_new(op_of(name, {kX, kGain}, {.name = "y"}, kernel, [how](reference::FormulaCall& call) {
    const Expr p = met(how, call);
    return share_formula(p, reference::max(p, -1), true);
  }));
  return name;
}

/// `exact_first`: gains of 1 and shifts of 0, so that results are exact and nothing shows before the first updates.
Var gains(Tape& t, Var h, Meets how, bool exact_first) {
  const Shape shape{t.shape(h)[1]};
  const double start = how == Meets::gain ? 1 : 0;
  return exact_first ? t.constant_start("gain", shape, start) : t.parameter("gain", shape, start + 0.1, 0.05);
}

}  // namespace

Var largest_found(Tape& t, Var h, const LargestParts& parts) {
  const Meets how = parts.how;
  const Var w = gains(t, h, how, parts.exact_first), p = t.call(scale_op(how), {{"x", h}, {"weight", w}});
  const Var m = parts.most_stored ? t.to(t.call("max", {{"x", p}}), Dtype::fp32)
                                  : t.call(most_op(how, false), {{"x", h}, {"weight", w}});
  const Var found = parts.compared_stored
                        ? t.call(share_op(parts.divided), {{"x", p}, {"m", m}})
                        : t.call(share_again_op(how, parts.divided), {{"x", h}, {"weight", w}, {"m", m}});
  return models::add(t, p, found);
}

Var largest_in_one_kernel(Tape& t, Var h, Meets how, bool through_memory) {
  const Var w = gains(t, h, how, true);
  return models::add(t, h, t.call(share_inside_op(how, through_memory), {{"x", h}, {"weight", w}}));
}

namespace {

Subject net_of(const LargestParts& parts, Dtype dtype) {
  return subject_of(class_net([=](Tape& t, Var h) { return largest_found(t, h, parts); }), dtype);
}

Subject one_kernel(bool through_memory) {
  const auto middle = [=](Tape& t, Var h) { return largest_in_one_kernel(t, h, Meets::gain, through_memory); };
  return subject_of(class_net(middle), Dtype::bf16);
}

/// The maximum of products as they are stored, by a kernel that computes them again and rounds them.
Subject emulated() {
  const auto middle = [](Tape& t, Var h) {
    const Var w = gains(t, h, Meets::gain, false), p = t.call(scale_op(Meets::gain), {{"x", h}, {"weight", w}});
    const Var m = t.call(most_op(Meets::gain, true), {{"x", h}, {"weight", w}});
    return models::add(t, p, t.call(share_op(true), {{"x", p}, {"m", m}}));
  };
  return subject_of(class_net(middle), Dtype::bf16);
}

}  // namespace

std::vector<PlantedRun> planted_boundaries() {
  using enum Cause;
  const LargestParts most_kept{.most_stored = false}, most_kept_silent{.most_stored = false, .divided = false};
  const LargestParts compared{.compared_stored = false},
      compared_silent{.compared_stored = false, .divided = false, .exact_first = false};
  const LargestParts stored{}, stored_silent{.divided = false, .exact_first = false};
  const LargestParts fused{.most_stored = false, .compared_stored = false},
      fused_silent{.most_stored = false, .compared_stored = false, .divided = false, .exact_first = false};
  const auto planted = [](const char* name, const char* what, const char* op, int optimum, auto make) {
    return PlantedRun{name, moved_boundary, what, {op}, optimum, make};
  };
  const auto well = [](const char* name, const char* what, auto make) {
    return PlantedRun{name, none, what, {}, -1, make};
  };
  return {
      planted("amax_in_registers", "a maximum of products that were not stored", "most_fused_1", -1,
              [=] { return net_of(most_kept, Dtype::bf16); }),
      planted("amax_in_registers_fp16", "the same in fp16, without a division", "most_fused_1", -1,
              [=] { return net_of(most_kept_silent, Dtype::fp16); }),
      planted("compared_in_registers", "products that were not stored, beside a maximum of stored ones",
              "share_again_1", 2, [=] { return net_of(compared, Dtype::fp16); }),
      planted("compared_in_registers_bf16", "the same in bf16, without a division", "only_again_1", 2,
              [=] { return net_of(compared_silent, Dtype::bf16); }),
      planted("one_fused_kernel", "both in one kernel", "share_inside_stored_1", 1, [] { return one_kernel(true); }),
      well("healthy_amax_stored", "every product is stored", [=] { return net_of(stored, Dtype::bf16); }),
      well("healthy_amax_stored_fp16", "the same in fp16", [=] { return net_of(stored_silent, Dtype::fp16); }),
      well("healthy_amax_fused", "no product is stored", [=] { return net_of(fused, Dtype::fp16); }),
      well("healthy_amax_fused_bf16", "the same in bf16", [=] { return net_of(fused_silent, Dtype::bf16); }),
      well("healthy_amax_emulated", "products are rounded as if they were stored", emulated),
      well("healthy_amax_one_kernel", "one kernel that stores nothing", [] { return one_kernel(false); }),
  };
}

}  // namespace ampcheck::checks::diagnose
