// SPDX-License-Identifier: Apache-2.0
// Turns the pattern of a failure into words. A cause is a hint; the verdict does not depend on it.
#include <algorithm>
#include <cmath>
#include <set>

#include "checks/case_run.h"
#include "reference/replay.h"
#include "src/rounding.h"

namespace ampcheck::checks {

namespace {

/// Median of |x|, NaN last; 0 for none.
double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Where the failed elements stand: last column, tail of a vector width, one row, last row.
std::string place(const Comparison& comparison, const Shape& shape) {
  if (shape.rank == 0) return "";
  const std::int64_t width = shape.last(), rows = width > 0 ? shape.count() / width : 0;
  std::set<std::int64_t> columns, failed_rows;
  for (const std::int64_t i : comparison.outside) columns.insert(i % width), failed_rows.insert(i / width);
  if (width > 1 && columns.size() == 1 && *columns.begin() == width - 1) return "only in the last column: the tail of each row";
  for (const std::int64_t vector : {8, 4, 16, 32, 64, 128})
    if (width > vector && width % vector != 0 && *columns.begin() >= width / vector * vector)
      return "only after the last full vector of " + std::to_string(vector) + ": the tail of each row";
  if (width > 1 && columns.size() == 1) return "only in column " + std::to_string(*columns.begin());
  if (rows > 1 && failed_rows.size() == 1)
    return *failed_rows.begin() == rows - 1 ? "only in the last row" : "only in row " + std::to_string(*failed_rows.begin());
  if (rows > 2 && !failed_rows.contains(0) && static_cast<std::int64_t>(failed_rows.size()) == rows - 1) return "in every row but the first";
  return "";
}

/// got / want of the wrong elements, where it is one number for all of them.
struct Factor {
  double value = 1;
  bool constant = false;  ///< storage rounding alone spreads it
  bool clear = false;     ///< it differs from 1 by far more than that
};

Factor factor_of(const std::vector<double>& ratios, Dtype dtype) {
  const double middle = median(ratios), u = format(dtype).unit_roundoff();
  std::vector<double> spread;
  for (const double r : ratios) spread.push_back(std::fabs(r - middle));
  return {middle, median(spread) <= 2 * u * std::fabs(middle), std::fabs(middle - 1) > std::min(1e-3, 64 * u)};
}

}  // namespace

bool off_by_one_factor(const Comparison& comparison, const Interval& interval, const std::vector<double>& got) {
  constexpr std::size_t kFewest = 16;  // fewer may agree by chance
  std::vector<double> ratios;
  for (const std::int64_t i : comparison.outside) {
    const double ratio = got[static_cast<std::size_t>(i)] / interval.value[static_cast<std::size_t>(i)];
    if (std::isfinite(ratio)) ratios.push_back(ratio);
  }
  if (ratios.size() < kFewest) return false;
  const Factor factor = factor_of(ratios, interval.dtype);
  return factor.constant && std::fabs(factor.value - 1) > 64 * format(interval.dtype).unit_roundoff();
}

std::string likely_cause(const Comparison& comparison, const Interval& interval, const std::vector<double>& got) {
  std::vector<double> ratios;
  std::int64_t zeros = 0, nans = 0, infinite = 0;
  for (const std::int64_t i : comparison.outside) {
    const double g = got[static_cast<std::size_t>(i)], v = interval.value[static_cast<std::size_t>(i)];
    zeros += g == 0, nans += std::isnan(g), infinite += std::isinf(g);
    if (std::isfinite(g) && std::isfinite(v) && v != 0) ratios.push_back(g / v);
  }
  const auto all = static_cast<std::int64_t>(comparison.outside.size());
  std::string what;
  if (nans == all) what = "NaN: unwritten, or 0/0 or inf-inf on the way";
  else if (infinite == all) what = "infinite: an overflow on the way";
  else if (zeros == all) what = "written as zero";
  else if (ratios.size() > 3 || static_cast<std::int64_t>(ratios.size()) == all) {
    const Factor factor = factor_of(ratios, interval.dtype);
    const double scale = std::fabs(factor.value - 1) > 1e-3 ? 1e4 : 1e6;
    if (factor.constant && std::fabs(factor.value + 1) < 0.01) what = "the sign is flipped";
    else if (factor.constant && factor.clear) what = "off by a constant factor of " + number_text(std::round(factor.value * scale) / scale);
  }
  const std::string where = place(comparison, interval.shape);
  if (what.empty()) return where;
  return where.empty() ? what : what + "; " + where;
}

namespace {


/// How well accumulation in one format explains the elements outside: the typical size of the kernel's error in units of
/// the replays' error; 0 if such an accumulator would not leave the interval there.
double accumulation_fit(const reference::Recording& recording, const Leaves& leaves, reference::Expr target, const FloatFormat& accumulator,
                        const std::vector<double>& got, const Comparison& comparison, const Interval& interval) {
  std::vector<std::vector<double>> replays;  // rounded to storage
  for (const auto order : {reference::SumOrder::sequential, reference::SumOrder::lanes32, reference::SumOrder::pairwise, reference::SumOrder::reversed})
    replays.push_back(reference::replay(*recording.graph, leaves, {target}, {order, &accumulator}).front());
  for (std::vector<double>& values : replays) round_values(format(interval.dtype), RoundingMode{}, values, values);
  std::int64_t also_outside = 0;
  std::vector<double> ratios;
  for (const std::int64_t at : comparison.outside) {
    const auto i = static_cast<std::size_t>(at);
    double square = 0;
    bool outside = false;
    for (const std::vector<double>& values : replays) {
      const double value = values[i], error = value - interval.value[i];
      square += error * error / static_cast<double>(replays.size());
      outside |= !admits(interval, at, value);
    }
    also_outside += outside;
    if (square > 0) ratios.push_back(std::fabs(got[i] - interval.value[i]) / std::sqrt(square));
  }
  return 2 * also_outside < static_cast<std::int64_t>(comparison.outside.size()) ? 0.0 : median(ratios);
}

}  // namespace

namespace {

/// One way to replay a tensor: a form's graph, the leaves that are given, the node that is wanted.
struct Scope {
  const reference::Recording* recording;
  Leaves leaves;
  reference::Expr target;
};

/// Every sum in the declared form, and of a gradient also the backward's sums alone.
std::vector<Scope> scopes_of(CaseRun& run, std::size_t form, const Written& tensor, Pass pass) {
  const reference::Recording& recording = run.reference.recording(form);
  Scope scope{&recording, {}, {}};
  for (const auto& [name, node] : recording.inputs) scope.leaves.emplace_back(node, run.reference.inputs().at(name));
  for (const auto& [name, node] : nodes_of(recording, pass))
    if (name == tensor.name) scope.target = node;
  if (!scope.target.defined()) return {};
  if (pass == Pass::forward) return {scope};
  if (pass == Pass::jvp) {
    for (const auto& [name, node] : recording.tangents) scope.leaves.emplace_back(node, run.reference.tangents().at(name));
    return {scope};
  }
  for (const auto& [name, node] : recording.cotangents) scope.leaves.emplace_back(node, run.reference.cotangents().at(name));
  std::vector<Scope> out{scope, scope};
  give_forward(recording, out[1].leaves);
  return out;
}

constexpr std::int64_t kLargestReplay = 1 << 18;  ///< elements; replays are scalar

}  // namespace

std::string dropped_terms(CaseRun& run, const Written& tensor, Pass pass, const std::vector<double>& got, const Comparison& comparison,
                          const Interval& interval) {
  if (tensor.shape.count() > kLargestReplay || run.accumulates(tensor.name)) return "";
  for (const Scope& scope : scopes_of(run, 0, tensor, pass))
    for (const int dropped : {-1, 4, 8, 16, 32, 64, 128}) {
      std::vector<double> values =
          reference::replay(*scope.recording->graph, scope.leaves, {scope.target}, {reference::SumOrder::sequential, nullptr, dropped}).front();
      round_values(format(tensor.dtype), RoundingMode{}, values, values);
      // Nine of ten wrong elements reproduced to an ulp of storage, and wrong in the replay too: chance does not do that.
      std::int64_t same = 0;
      for (const std::int64_t at : comparison.outside) {
        const double value = values[static_cast<std::size_t>(at)];
        same += !admits(interval, at, value) && ulp_distance(format(tensor.dtype), got[static_cast<std::size_t>(at)], value) <= 1;
      }
      if (10 * same < 9 * static_cast<std::int64_t>(comparison.outside.size())) continue;
      return dropped < 0 ? "a sum leaves out its last term" : "a sum leaves out what follows the last full vector of " + std::to_string(dropped);
    }
  return "";
}

bool explained_by_low_accumulation(CaseRun& run, const Written& tensor, Pass pass, const std::vector<double>& got,
                                   const Comparison& comparison, const Interval& interval, std::string& words) {
  if (tensor.shape.count() > kLargestReplay) return false;
  constexpr Dtype candidates[] = {Dtype::bf16, Dtype::fp16};
  double best = 0;
  const char* which = "";
  for (std::size_t form = 0; form < run.op.forms.size(); ++form) {
    const std::vector<Scope> scopes = scopes_of(run, form, tensor, pass);
    for (const Dtype candidate : candidates)
      for (const Scope& scope : scopes) {
        const double fit = accumulation_fit(*scope.recording, scope.leaves, scope.target, format(candidate), got, comparison, interval);
        if (fit > 0 && (best == 0 || std::fabs(std::log(fit)) < std::fabs(std::log(best)))) best = fit, which = name(candidate);
      }
    if (best > 0.5 && best < 2) break;
  }
  // Within a factor of four of a typical replay: far from a wrong sign or factor, and from a dropped term, whose errors
  // do not scale with the accumulator's roundoff.
  if (!(best > 0.25 && best < 4)) return false;
  words = std::string("accumulates in ") + which + ": the errors are " + number_text(std::round(best * 100) / 100) +
          " times those of a replay with such an accumulator (declared: fp32)";
  return true;
}

}  // namespace ampcheck::checks
