// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/explain/factor_origin.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

#include "src/rounding.h"

namespace ampcheck::checks {

namespace {

struct Origin {
  double value;
  std::string words;
};

using Counts = std::map<std::int64_t, std::string>;  ///< with the dimensions that have them

/// Of dimensions with a name, and of the axes of inputs of any shape.
Counts extents_of(const CaseRun& run) {
  Counts out;
  for (const auto& [symbol, extent] : run.call.dims)
    if (extent > 1) out[extent] += (out[extent].empty() ? "" : " or ") + symbol;
  for (const TensorSpec& spec : run.op.signature.inputs) {
    if (!run.call.has(spec)) continue;
    const Shape& shape = run.call.shape(spec);
    for (int axis = 0; axis < shape.rank; ++axis)
      if (shape[axis] > 1 && !out.contains(shape[axis]))
        out[shape[axis]] = fmt::format("axis {} of {}", axis, spec.name);
  }
  return out;
}

/// Products of two extents; the root of equal ones is nothing new.
Counts products_of(const OpCall& call, bool of_equal) {
  Counts out;
  for (auto a = call.dims.begin(); a != call.dims.end(); ++a)
    for (auto b = std::next(a); b != call.dims.end(); ++b) {
      if (a->second < 2 || b->second < 2 || (!of_equal && a->second == b->second)) continue;
      std::string& names = out[a->second * b->second];
      names += (names.empty() ? "" : " or ") + a->first + " * " + b->first;
    }
  return out;
}

/// Several may be equal: each may be it.
std::vector<Origin> origins_of(const CaseRun& run) {
  const OpCall& call = run.call;
  std::vector<Origin> out;
  const auto times_and_over = [&](const Counts& counts, bool root) {
    for (const auto& [n, names] : counts) {
      const double value = root ? std::sqrt(static_cast<double>(n)) : static_cast<double>(n);
      const std::string text = root ? fmt::format("sqrt({})", n) : fmt::format("{}", n);
      out.push_back({value, root ? fmt::format("{}, {} being {}", text, n, names) : "the extent of " + names});
      out.push_back({1 / value, fmt::format("1/{}, {} being {}", text, n, names)});
    }
  };
  const auto off_by_one = [&](const Counts& counts) {
    for (const auto& [n, names] : counts) {
      if (n < 3) continue;  // 2/1 and 1/2 are the extent itself
      const auto count = static_cast<double>(n);
      out.push_back({count / (count - 1), fmt::format("{}/{}, {} being {}", n, n - 1, n, names)});
      out.push_back({(count - 1) / count, fmt::format("{}/{}, {} being {}", n - 1, n, n, names)});
    }
  };
  const Counts extents = extents_of(run), products = products_of(call, true);
  times_and_over(extents, false);
  times_and_over(extents, true);
  times_and_over(products, false);
  times_and_over(products_of(call, false), true);
  off_by_one(extents);
  off_by_one(products);
  out.insert(out.end(), {{std::numbers::ln2, "ln 2"},
                         {std::numbers::log2e, "log2 e"},
                         {std::numbers::ln10, "ln 10"},
                         {std::numbers::log10e, "1/ln 10"}});
  return out;
}

/// What the formula's roundings, times the factor, leave open at an element, and those of storage, of the factor and of
/// its product.
double room_at(double factor, std::size_t i, const Interval& interval, double got) {
  if (!std::isfinite(got)) return HUGE_VAL;  // it tells nothing
  return std::fabs(factor) * (interval.radius[i] + 2 * kFp32.unit_roundoff() * std::fabs(interval.value[i])) +
         spacing_at(format(interval.dtype), got) / 2;
}

bool explains(double factor, std::size_t i, const Interval& interval, double got) {
  const double due = factor * interval.value[i];
  if (!std::isfinite(got) || !std::isfinite(due)) return true;  // it tells nothing
  return std::fabs(got - due) <= room_at(factor, i, interval, got);
}

/// Whether the tensor is the formula's times this number: nine of ten wrong elements and nearly all others, each to
/// within its own roundings.
bool gives(double factor, const WrongTensor& wrong) {
  std::int64_t outside = 0, all = 0;
  for (const std::int64_t i : wrong.comparison.outside)
    outside += explains(factor, static_cast<std::size_t>(i), wrong.interval, wrong.got[static_cast<std::size_t>(i)]);
  if (10 * outside < 9 * std::ssize(wrong.comparison.outside)) return false;
  for (std::size_t i = 0; i < wrong.got.size(); ++i) all += explains(factor, i, wrong.interval, wrong.got[i]);
  return 20 * all >= 19 * std::ssize(wrong.got);
}

}  // namespace

bool wrong_by_factor(double factor, const WrongTensor& wrong) {
  std::int64_t by_factor = 0;
  for (const std::int64_t at : wrong.comparison.outside) {
    const auto i = static_cast<std::size_t>(at);
    const double room = room_at(factor, i, wrong.interval, wrong.got[i]);
    by_factor += std::isfinite(wrong.got[i]) && explains(factor, i, wrong.interval, wrong.got[i]) &&
                 8 * room <= std::fabs(wrong.got[i] - wrong.interval.value[i]);
  }
  return 10 * by_factor >= 9 * std::ssize(wrong.comparison.outside);
}

std::string factor_origin(double factor, const WrongTensor& wrong) {
  constexpr std::size_t kMost = 2;  // of more, one is right by chance
  const double u = format(wrong.interval.dtype).unit_roundoff();
  // Of one number there is no middle one among several: it has all of its own rounding.
  const double alone = wrong.got.size() == 1 ? wrong.interval.radius[0] / std::fabs(wrong.interval.value[0]) : 0;
  const auto given = [&](double value) {
    return std::fabs(std::fabs(factor) - value) <= (4 * u + alone) * value &&
           gives(std::copysign(value, factor), wrong);  // the middle one of ratios of rounded numbers
  };
  std::vector<std::string> words;
  bool power = false;
  for (const Origin& origin : origins_of(wrong.run))
    if (given(origin.value)) {
      words.push_back(origin.words);
      power |= std::exp2(std::round(std::log2(origin.value))) == origin.value;
    }
  const double exponent = std::round(std::log2(std::fabs(factor)));
  constexpr double kPlain = 2;  // 4, 2, 1/2 and 1/4 say as much as their names
  if ((power || std::fabs(exponent) > kPlain) && given(std::exp2(exponent)))
    words.push_back(fmt::format("2^{}", exponent));
  if (words.empty() || words.size() > kMost) return "";
  return fmt::format(", which is {}{}", factor < 0 ? "-" : "", fmt::join(words, factor < 0 ? " or -" : " or "));
}

}  // namespace ampcheck::checks
