// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Turns the pattern of a failure into words. A cause is a hint; the verdict does not depend on it.
#include "checks/explain/diagnosis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "checks/case/case_run.h"
#include "checks/explain/factor_origin.h"
#include "checks/explain/formula_change.h"
#include "checks/explain/median.h"
#include "checks/explain/odds.h"
#include "checks/explain/places.h"
#include "src/rounding.h"

namespace ampcheck::checks {

namespace {

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

/// Enough digits to know it by: of what is near 1, those of the difference.
std::string rounded_text(double factor) {
  if (std::fabs(factor) < 0.1) return fmt::format("{:.4g}", factor);
  if (const double off = factor - 1; off != 0 && std::fabs(off) < 1e-5)
    return fmt::format("1 {} {:.3g}", off < 0 ? '-' : '+', std::fabs(off));
  const double scale = std::fabs(factor - 1) > 1e-3 ? 1e4 : 1e6;
  return number_text(std::round(factor * scale) / scale);
}

/// What words begin with that describe numbers; those that say "as of" name what would look like that.
constexpr std::string_view kDescribed[] = {"finite where",
                                           "NaN where",
                                           "NaN:",
                                           "infinite:",
                                           "the infinity of the other sign",
                                           "not zero where",
                                           "written as zero",
                                           "all of it is zero",
                                           "the sign is flipped",
                                           "off by ",
                                           "errors of up to",
                                           "only ",
                                           "in every row but",
                                           "zero where",
                                           "no subgradient",
                                           "row ",
                                           "element ",
                                           "differs ",
                                           "the result is one outer product",
                                           "its values: "};

}  // namespace

bool names_a_cause(const CheckResult& check) {
  if (is_contract_departure(check.code)) return true;
  std::string_view words = check.cause;
  while (!words.empty()) {
    const std::size_t end = std::min(words.find("; "), words.size());
    std::string_view part = words.substr(0, end);
    if (const std::size_t quoted = part.find("': "); part.starts_with("as '") && quoted != std::string_view::npos)
      part.remove_prefix(quoted + 3);  // what another case says
    if (std::ranges::none_of(kDescribed, [&](std::string_view known) { return part.starts_with(known); })) return true;
    words.remove_prefix(std::min(end + 2, words.size()));
  }
  return false;
}

bool is_undecided(const CheckResult& check) {
  return check.cause.find("the numbers do not tell it from") != std::string::npos;
}

bool gives_a_reason(const CheckResult& check) { return names_a_cause(check) && !is_undecided(check); }

bool says_why(const CheckResult& check) {
  return gives_a_reason(check) || check.cause.starts_with("off by a constant factor");
}

bool all_zero(const std::vector<double>& got) {
  return got.size() > 1 && std::all_of(got.begin(), got.end(), [](double v) { return v == 0; });
}

bool off_by_one_factor(const WrongTensor& wrong) {
  constexpr std::size_t kFewest = 16;  // fewer may agree by chance
  std::vector<double> ratios;
  for (const std::int64_t i : wrong.comparison.outside) {
    const double ratio = wrong.got[static_cast<std::size_t>(i)] / wrong.interval.value[static_cast<std::size_t>(i)];
    if (std::isfinite(ratio)) ratios.push_back(ratio);
  }
  // A number where exactly zero is due is no multiple of it.
  if (ratios.size() < kFewest || ratios.size() != wrong.comparison.outside.size()) return false;
  const Factor factor = factor_of(ratios, wrong.interval.dtype);
  return factor.constant && factor.value != 0 &&
         std::fabs(factor.value - 1) > 64 * format(wrong.interval.dtype).unit_roundoff();
}

std::string added_otherwise(const WrongTensor& wrong) {
  const std::vector<double> held = wrong.run.held(wrong.tensor);
  struct Instead {
    double of_held, of_gradient;
    const char* words;
  };
  static constexpr Instead kAll[] = {
      {0, 1, "the buffer holds the gradient alone: it was overwritten, not added to"},
      {1, 2, "the buffer holds what it held and the gradient twice: it was added two times"},
      {2, 1, "the buffer holds what it held twice and the gradient: it was added to itself"}};
  for (const Instead& instead : kAll) {
    const bool fits = std::ranges::all_of(wrong.comparison.outside, [&](std::int64_t at) {
      const auto i = static_cast<std::size_t>(at);
      const double gradient = wrong.interval.value[i] - held[i],
                   v = instead.of_held * held[i] + instead.of_gradient * gradient,
                   r = 2 * wrong.interval.radius[i];  // added two times, rounded twice
      double ends[2] = {v - r, v + r};
      round_ends(wrong.interval.dtype, ends);
      return wrong.got[i] >= ends[0] && wrong.got[i] <= ends[1];
    });
    if (fits) return instead.words;
  }
  return "";
}

namespace {

/// One number is off by some factor anyway. In fp32 it is no chance if that is one that slips in formulas have.
std::string by_a_known_factor(double factor, const WrongTensor& wrong) {
  if (bytes(wrong.tensor.dtype) < 4 || std::ssize(wrong.got) > 1) return "";
  // Halves, doubles and the other sign are slips without an origin.
  const double power = std::copysign(std::exp2(std::round(std::log2(std::fabs(factor)))), factor);
  if (std::fabs(std::log2(std::fabs(power))) <= 2 && power != 1 && wrong_by_factor(power, wrong))
    return "off by a factor of " + rounded_text(power);
  const std::string origin = factor_origin(factor, wrong);
  return origin.empty() ? "" : "off by a factor of " + rounded_text(factor) + origin;
}

/// Whether errors of an ulp or two would show the same factor: it is as near 1 as they are, and most elements are
/// right, which such a factor would not leave right.
bool rounds_away(double factor, const WrongTensor& wrong) {
  constexpr double kFewUlps = 4;
  return std::fabs(factor - 1) <= kFewUlps * format(wrong.interval.dtype).unit_roundoff() &&
         2 * wrong.comparison.outside.size() < wrong.got.size();
}

/// Words if all wrong elements are one number times the value.
std::string by_one_factor(const WrongTensor& wrong) {
  std::vector<double> ratios;
  std::int64_t zeros = 0;
  const std::int64_t all = std::ssize(wrong.comparison.outside);
  for (const std::int64_t at : wrong.comparison.outside) {
    const auto i = static_cast<std::size_t>(at);
    const double g = wrong.got[i], v = wrong.interval.value[i];
    zeros += g == 0;
    if (std::isfinite(g) && std::isfinite(v) && v != 0) ratios.push_back(g / v);
  }
  const bool several = ratios.size() > 3;
  if (ratios.size() == 1 && all == 1) return by_a_known_factor(ratios.front(), wrong);
  if (!several && (ratios.size() < 2 || std::ssize(ratios) != all))
    return "";  // one number is off by some factor anyway
  const Factor factor = factor_of(ratios, wrong.interval.dtype);
  // Long sums spread it too.
  if (!factor.constant && !(several && wrong_by_factor(factor.value, wrong))) return "";
  if (factor.value == 0) return fmt::format("written as zero, {} of the {} wrong ones", zeros, all);
  if (std::fabs(factor.value + 1) < 0.01) return "the sign is flipped";
  if (!factor.clear || rounds_away(factor.value, wrong)) return "";
  return "off by a constant factor of " + rounded_text(factor.value) + factor_origin(factor.value, wrong);
}

/// What the wrong elements are by themselves, wherever they stand; empty if they have nothing in common.
std::string alike(const WrongTensor& wrong) {
  const std::vector<double>& got = wrong.got;
  const Interval& due = wrong.interval;
  const auto each = [&](const auto& is) {
    return std::ranges::all_of(wrong.comparison.outside,
                               [&](std::int64_t i) { return is(static_cast<std::size_t>(i)); });
  };
  if (each([&](std::size_t i) {
        return std::isfinite(due.value[i]) && std::isinf(due.low[i]) && due.low[i] == due.high[i] &&
               std::isfinite(got[i]);
      }))
    return "finite where the value overflows to infinity: it is clamped or saturates";
  if (each([&](std::size_t i) { return std::isnan(due.value[i]) && std::isfinite(got[i]); }))
    return "finite where NaN is due: the NaN is dropped";
  if (each([&](std::size_t i) { return std::isinf(due.value[i]) && std::isfinite(got[i]); }))
    return "finite where infinity is due";
  if (each([&](std::size_t i) { return std::isinf(due.value[i]) && std::isnan(got[i]); }))
    return "NaN where infinity is due: inf-inf or 0 times infinity on the way";
  if (each([&](std::size_t i) { return std::isinf(due.value[i]) && got[i] == -due.value[i]; }))
    return "the infinity of the other sign";
  if (each([&](std::size_t i) {
        return due.value[i] == 0 && due.low[i] == 0 && due.high[i] == 0 && got[i] != 0 && std::isfinite(got[i]);
      }))
    return "not zero where exactly zero is due";
  if (each([&](std::size_t i) { return std::isnan(got[i]); })) return "NaN: unwritten, or 0/0 or inf-inf on the way";
  if (each([&](std::size_t i) { return std::isinf(got[i]); })) return "infinite: an overflow on the way";
  if (!each([&](std::size_t i) { return got[i] == 0; })) return by_one_factor(wrong);
  return all_zero(got) ? "all of it is zero: nothing is added up or written, or all of it is a tail, behind the last "
                         "full vector or block"
                       : "written as zero";
}

}  // namespace

std::string likely_cause(const WrongTensor& wrong) {
  const std::string what = alike(wrong), where = place(wrong.comparison, wrong.interval.shape);
  return what.empty() || where.empty() ? what + where : what + "; " + where;
}

namespace {

/// A way of rounding to storage that is not to nearest even.
struct Mode {
  Rounding rounding;
  const char* words;
};

/// Words if a form, rounded so, gives the numbers; `known`: another probe has shown it.
std::string rounded_by(const WrongTensor& wrong, const Mode& mode, bool known) {
  // Numbers that tell one from the other; of few, and of what they stand among, all.
  const std::int64_t many = 8, fewest = known ? 1 : 4;
  constexpr double kChosen = 10;  // bits: fewer than four that are just those which this rounds otherwise
  for (const std::size_t form : wrong.run.reference.forms()) {
    const Interval interval = wrong.run.reference.interval(form, wrong.pass, wrong.tensor.name, wrong.tensor.dtype);
    std::vector<double> nearest(interval.value.begin(), interval.value.end()), cut = nearest, low = nearest,
                                                                               high = nearest;
    for (std::size_t i = 0; i < cut.size(); ++i) {
      low[i] -= interval.radius[i];
      high[i] += interval.radius[i];
    }
    round_values(format(wrong.tensor.dtype), RoundingMode{}, nearest, nearest);
    for (std::vector<double>* const values : {&cut, &low, &high})
      round_values(format(wrong.tensor.dtype), {.rounding = mode.rounding}, *values, *values);
    std::int64_t telling = 0, equal = 0, right = 0;
    for (std::size_t i = 0; i < cut.size(); ++i) {
      const bool admitted = wrong.got[i] >= low[i] && wrong.got[i] <= high[i];
      right += admitted;
      if (nearest[i] < low[i] || nearest[i] > high[i]) {
        ++telling;
        equal += admitted;
      }
    }
    const std::int64_t all = std::ssize(cut);
    const bool mostly = telling >= many && 20 * equal >= 19 * telling && 20 * right >= 19 * all;
    const bool few =
        right == all && (telling >= fewest || (telling == std::ssize(wrong.comparison.outside) &&
                                               bits_of_choice(cut.size(), wrong.comparison.outside.size()) >= kChosen));
    if (!mostly && !few) continue;
    return fmt::format("{} to {} {}", mode.words, name(wrong.tensor.dtype),
                       against("to nearest", odds_of(wrong, [&](std::size_t i) {
                                 return Expected{cut[i], interval.radius[i]};
                               })));
  }
  return "";
}

/// Elsewhere no rounding to storage shows.
bool shows_rounding(const WrongTensor& wrong) {
  return bytes(wrong.tensor.dtype) < 4 && !wrong.run.accumulates(wrong.tensor.name);
}

}  // namespace

std::string truncated(const WrongTensor& wrong, Notes& notes) {
  if (!shows_rounding(wrong)) return "";
  std::string out = rounded_by(wrong, {Rounding::toward_zero, "truncated, not rounded,"},
                               notes.truncating.contains(wrong.tensor.name));
  if (!out.empty()) notes.truncating.insert(wrong.tensor.name);
  return out;
}

std::string rounded_otherwise(const WrongTensor& wrong) {
  static constexpr Mode kModes[] = {
      {Rounding::nearest_away, "rounded with ties away from zero, half away, for ties to nearest even,"},
      {Rounding::up, "rounded up, toward infinity, not to nearest,"},
      {Rounding::down, "rounded down, toward -infinity, not to nearest,"}};
  if (shows_rounding(wrong))
    for (const Mode& mode : kModes)
      if (std::string out = rounded_by(wrong, mode, false); !out.empty()) return out;
  return "";
}

}  // namespace ampcheck::checks
