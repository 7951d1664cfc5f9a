// SPDX-License-Identifier: Apache-2.0
#include "checks/judge/loss_scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "checks/data/regimes.h"
#include "reference/ball/ball.h"
#include "src/index.h"

namespace ampcheck::checks {

namespace {

using reference::Expr;
using reference::Primitive;

/// What becomes infinite, and what becomes zero, in a type: to nearest even, the tie at half the smallest number goes
/// to zero.
struct Limits {
  double infinite, zero;
  bool lost(double size) const { return size <= zero; }
};

Limits limits_of(const FloatFormat& format, bool flushes) {
  const double half_ulp = std::ldexp(1.0, format.max_exponent() - format.precision);
  return {format.max_finite() + half_ulp,
          flushes ? std::nextafter(format.min_normal(), 0.0) : format.min_subnormal() / 2};
}

/// Smallest k with size 2^k >= limit.
int first_at_least(double size, double limit) {
  int k = std::ilogb(limit) - std::ilogb(size) - 1;
  while (std::ldexp(size, k) < limit) ++k;
  return k;
}

/// Largest k with size 2^k <= limit.
int last_at_most(double size, double limit) {
  int k = std::ilogb(limit) - std::ilogb(size) + 1;
  while (std::ldexp(size, k) > limit) --k;
  return k;
}

/// Narrows the window by one tensor.
void see(const std::string& name, const Shape& shape, const double* values, const Limits& limits, int probe,
         LossScaleWindow& window) {
  std::int64_t largest = -1, smallest = -1;
  for (std::int64_t i = 0; i < shape.count(); ++i) {
    const double size = std::fabs(values[i]);
    if (size == 0 || !std::isfinite(size)) continue;
    if (largest < 0 || size > std::fabs(values[largest])) largest = i;
    if (smallest < 0 || size < std::fabs(values[smallest])) smallest = i;
  }
  if (largest < 0) return;
  const int high = first_at_least(std::fabs(values[largest]), limits.infinite),
            low = last_at_most(std::fabs(values[smallest]), limits.zero);
  if (!window.overflow || high < window.overflow->exponent)
    window.overflow = {high, name, index_of(shape, largest), probe};
  if (!window.flush || low > window.flush->exponent) window.flush = {low, name, index_of(shape, smallest), probe};
}

/// Arithmetic of the backward that gradients need: what follows from a cotangent. Movement makes no new numbers.
std::vector<Expr> intermediates(const reference::Recording& recording) {
  const auto& nodes = recording.graph->nodes();
  std::vector<char> scales(nodes.size(), 0), needed(nodes.size(), 0);
  for (const auto& [name, node] : recording.cotangents) scales[static_cast<std::size_t>(node.id)] = 1;
  for (const Expr& node : recording.gradient_nodes()) needed[static_cast<std::size_t>(node.id)] = 1;
  std::vector<Expr> out;
  for (std::size_t id = nodes.size(); id-- > 0;)
    for (const int arg : nodes[id].args) needed[static_cast<std::size_t>(arg)] |= needed[id];
  for (std::size_t id = 0; id < nodes.size(); ++id) {
    const Primitive p = nodes[id].primitive;
    for (const int arg : nodes[id].args) scales[id] |= scales[static_cast<std::size_t>(arg)];
    if (scales[id] && needed[id] &&
        (p == Primitive::mul || p == Primitive::div || p == Primitive::add || p == Primitive::sub ||
         p == Primitive::sum || p == Primitive::matmul || p == Primitive::put_add || p == Primitive::cumsum))
      out.push_back(recording.graph->at(static_cast<int>(id)));
  }
  return out;
}

std::string place(const ScaleEnd& end) {
  return fmt::format("{}[{}]{}", end.tensor, fmt::join(end.index, ","),
                     end.probe > 0 ? fmt::format(" of probe {}", end.probe) : "");
}

}  // namespace

std::string LossScaleWindow::words() const {
  if (!overflow || !flush) return "";
  const std::string ends = fmt::format("at 2^{} {} becomes infinite, at 2^{} {} becomes 0", overflow->exponent,
                                       place(*overflow), flush->exponent, place(*flush));
  if (flush->exponent + 1 > overflow->exponent - 1) return "no loss scale keeps every number: " + ends;
  return fmt::format("works at loss scales 2^{} to 2^{}: {}", flush->exponent + 1, overflow->exponent - 1, ends);
}

LossScaleWindow loss_scale_window(CaseRun& run) {
  LossScaleWindow out;
  const reference::Recording& recording = run.reference.recording(run.reference.forms().front());
  const reference::Arithmetic arithmetic = arithmetic_of(run.op.signature, run.call, run.options.device);
  const std::vector<Expr> inner = intermediates(recording);
  std::vector<Expr> targets = recording.gradient_nodes();
  targets.insert(targets.end(), inner.begin(), inner.end());
  if (run.gradients.empty()) return out;
  reference::BallEvaluator balls(*recording.graph, arithmetic, targets);
  for (const auto& [name, node] : recording.inputs) balls.set(node, run.reference.inputs().at(name));
  const bool flushes = arithmetic.flushes_subnormals;
  for (int probe = 0; probe < probe_count(run.call); ++probe) {
    const NamedValues& cotangents = run.cotangents(probe);
    for (const auto& [name, node] : recording.cotangents) balls.set(node, cotangents.at(name));
    balls.run(targets);
    for (const Written& output : run.outputs)
      if (!output.saved)
        see(gradient_name(output.name), output.shape, cotangents.at(gradient_name(output.name)).data(),
            limits_of(format(output.dtype), flushes), probe, out);
    for (const Written& gradient : run.gradients)
      for (const auto& [name, node] : recording.gradients)
        if (name == gradient.name)
          see(name, gradient.shape, balls.result(node).v.get(), limits_of(format(gradient.dtype), flushes), probe, out);
    for (const Expr& node : inner)
      see(std::string(reference::name(recording.graph->node(node.id).primitive)) + " of the backward", node.shape(),
          balls.result(node).v.get(), limits_of(format(Dtype::fp32), flushes), probe, out);
  }
  return out;
}

void note_loss_scales(CaseRun& run) {
  const auto leaves_range = [](const CheckResult& check) {
    return check.code == Code::ac201 && check.id.kind == CheckId::Kind::backward;
  };
  const bool found = std::any_of(run.checks.begin(), run.checks.end(), leaves_range);
  if (bytes(run.call.storage) != 2 || run.gradients.empty() || (!found && !run.options.power)) return;
  const std::string words = loss_scale_window(run).words();
  if (words.empty()) return;
  for (CheckResult& check : run.checks)
    if (leaves_range(check)) check.note += "; " + words;
  if (!run.options.power) return;
  CheckResult check;
  check.id.kind = CheckId::Kind::loss_scale;
  check.dtype = run.call.storage;
  check.note = words;
  run.add(std::move(check));
}

}  // namespace ampcheck::checks
