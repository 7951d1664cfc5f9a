// SPDX-License-Identifier: Apache-2.0
// Which slip a wrong kernel made: the one change of a form that gives the kernel's numbers, right ones included.
#include <algorithm>
#include <cmath>

#include "checks/case_run.h"
#include "reference/changes.h"
#include "src/rounding.h"

namespace ampcheck::checks {

namespace {

constexpr std::int64_t kLargest = 1 << 14;  ///< elements of a tensor
constexpr std::int64_t kMost = 1 << 23;     ///< scalar operations of all changes of one form

/// How much of a tensor a changed formula gives: of the wrong elements and of all. `bits`: how far the wrong elements are
/// off in units of what agreement leaves open; that a change meets them by chance has a probability of 2^-bits.
struct Agreement {
  double outside = 0, all = 0, bits = 0;
  std::size_t elements = 0;  ///< wrong ones
  bool narrowed = false;
  /// Another rounding is off by little, but by many elements; and there are few intermediates to choose from.
  bool convincing() const { return outside >= 0.9 && all >= 0.95 && (narrowed ? elements >= 4 : bits >= 16); }
  bool perfect() const { return convincing() && outside == 1 && all == 1; }
  bool better_than(const Agreement& other) const { return outside + all > other.outside + other.all; }
};

/// What a tensor leaves open between a kernel's number and a changed formula's, whose own roundings are about those of the
/// declared one.
class Tolerance {
 public:
  explicit Tolerance(const Interval& interval) : interval_(interval), storage_(format(interval.dtype)) {
    std::vector<double> shares;
    for (std::size_t i = 0; i < interval.value.size(); ++i) {
      const double share = interval.radius[i] / std::fabs(interval.value[i]);
      if (std::isfinite(share)) shares.push_back(share);
    }
    if (shares.empty()) return;
    const auto quarter = shares.begin() + static_cast<std::ptrdiff_t>(shares.size() / 4);  // little of it is cancellation
    std::nth_element(shares.begin(), quarter, shares.end());
    share_ = std::min(*quarter, 0x1p-4);
  }
  double at(std::size_t i, double got) const {
    const double size = std::max(std::fabs(got), storage_.min_normal()), ulp = std::ldexp(1.0, std::ilogb(size) - storage_.precision + 1);
    return 2 * std::max(interval_.radius[i], share_ * std::fabs(got)) + ulp;
  }
  bool agrees(std::size_t i, double got, double changed) const {
    if (!std::isfinite(got) || !std::isfinite(changed)) return got == changed || (std::isnan(got) && std::isnan(changed));
    return std::fabs(got - changed) <= at(i, got);
  }

 private:
  const Interval& interval_;
  const FloatFormat& storage_;
  double share_ = 0;  ///< relative radius of an element that does not cancel
};

/// log2 of how far the wrong elements are off.
double bits_outside(const Tolerance& tolerance, const Interval& interval, const Comparison& comparison, const std::vector<double>& got) {
  double bits = 0;
  for (const std::int64_t at : comparison.outside) {
    const auto i = static_cast<std::size_t>(at);
    const double off = std::fabs(got[i] - interval.value[i]);
    if (std::isfinite(off)) bits += std::log2(std::max(1.0, off / tolerance.at(i, got[i])));
  }
  return bits;
}

Agreement agreement(const Tolerance& tolerance, const Interval& interval, const Comparison& comparison, const std::vector<double>& got, const std::vector<double>& changed) {
  Agreement out;
  for (const std::int64_t at : comparison.outside) {
    const auto i = static_cast<std::size_t>(at);
    // What changes nothing explains nothing.
    const bool outside = !(std::fabs(changed[i] - interval.value[i]) <= interval.radius[i]);
    out.outside += outside && tolerance.agrees(i, got[i], changed[i]);
  }
  out.outside /= static_cast<double>(comparison.outside.size());
  if (out.outside < 0.9) return out;
  for (std::size_t i = 0; i < got.size(); ++i) out.all += tolerance.agrees(i, got[i], changed[i]);
  out.all /= static_cast<double>(got.size());
  return out;
}

}  // namespace

bool explained_by_flushing(CaseRun& run, const Written& tensor, Pass pass, const std::vector<double>& got, const Comparison& comparison) {
  if (pass == Pass::jvp || run.op.signature.precision.flushes_subnormals || tensor.shape.count() > kLargest || run.accumulates(tensor.name)) return false;
  std::vector<std::int64_t> left = comparison.outside;
  for (const std::size_t form : run.reference.forms()) {
    const Interval wide = run.reference.interval_flushing(form, pass, tensor.name, tensor.dtype);
    std::erase_if(left, [&](std::int64_t at) { return admits(wide, at, got[static_cast<std::size_t>(at)]); });
    if (left.empty()) return true;
  }
  return false;
}

Replayed explained_by_change(CaseRun& run, const Written& tensor, Pass pass, const std::vector<double>& got, const Comparison& comparison,
                             const Interval& interval) {
  Replayed out;
  if (pass == Pass::jvp || tensor.shape.count() > kLargest || run.accumulates(tensor.name)) return out;
  const Tolerance tolerance(interval);
  const double bits = bits_outside(tolerance, interval, comparison, got);
  Agreement best;
  for (const std::size_t form : run.reference.forms()) {
    const reference::Recording& recording = run.reference.recording(form);
    std::vector<std::pair<reference::Expr, std::vector<double>>> leaves;
    for (const auto& [name, node] : recording.inputs) leaves.emplace_back(node, run.reference.inputs().at(name));
    if (pass != Pass::forward)
      for (const auto& [name, node] : recording.cotangents) leaves.emplace_back(node, run.reference.cotangents().at(name));
    reference::Expr target;
    for (const auto& [name, node] : pass == Pass::forward ? recording.outputs : recording.gradients)
      if (name == tensor.name) target = node;
    if (!target.defined()) continue;
    reference::NodeNames names;
    for (const auto& [name, node] : recording.outputs) names[node.id] = name;
    reference::for_each_change(*recording.graph, leaves, target, names, kMost, [&](const reference::Change& change, const std::vector<double>& changed) {
      Agreement seen = agreement(tolerance, interval, comparison, got, changed);
      seen.bits = bits, seen.elements = comparison.outside.size(), seen.narrowed = change.narrowed != nullptr;
      if (!seen.convincing() || !seen.better_than(best)) return true;
      best = seen;
      out.kind = change.narrowed != nullptr ? Replayed::Kind::narrowed : Replayed::Kind::changed_formula;
      out.of_sum = change.of_sum;
      out.words = change.narrowed != nullptr ? change.words + " (declared: fp32)" : "these are the values of the formula " + change.words;
      return !seen.perfect();
    });
    if (best.perfect()) break;
  }
  return out;
}

}  // namespace ampcheck::checks
