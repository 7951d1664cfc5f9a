// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// max and min along one axis (the first among equals has the gradient).
#include <algorithm>

#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

enum class Twist {
  none,
  ties_to_last,
  ties_share,
  ties_all,
  drops_nan,
  starts_from_zero,
  without_tail,
  without_last,
  by_size,
  square_by_rows,
  gradient_everywhere,
  other_end,
};

struct Style {
  float sign = 1;  ///< -1: the smallest
  Twist twist = Twist::none;
  Slip slip = {};
};

AxisLines lines_of(const Call& call, const Style& style) {
  return AxisLines(call, style.twist == Twist::square_by_rows);
}

/// Place and value of a line's winner.
struct Winner {
  std::int64_t at = -1;
  float value = 0;
};

Winner winner_of(const Values& x, const AxisLines& lines, std::int64_t r, const Style& style) {
  std::int64_t n = lines.length;
  if (style.twist == Twist::without_tail && n >= 8) n = n / 8 * 8;
  if (style.twist == Twist::without_last && n > 1) --n;
  const auto size = [&](float v) { return style.twist == Twist::by_size ? std::fabs(v) : style.sign * v; };
  Winner best;
  if (style.twist == Twist::starts_from_zero) best.at = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const float v = x[lines.at(r, i)];
    const bool tie_wins = style.twist == Twist::ties_to_last && v == best.value;
    const bool nan_wins = v != v && best.value == best.value && style.twist != Twist::drops_nan;
    if (best.at < 0 || size(v) > size(best.value) || tie_wins || nan_wins ||
        (style.twist == Twist::drops_nan && best.value != best.value))
      best = {i, v};
  }
  return best;
}

Kernel extremum(Style style) {
  const auto forward = [=](const Call& call) {
    const Values x = call.in("x");
    const AxisLines lines = lines_of(call, style);
    Values y;
    for (std::int64_t r = 0; r < lines.count; ++r) y.push_back(winner_of(x, lines, r, style).value);
    call.out("y", y);
  };
  const auto backward = [=](const Call& call) {
    const Values x = call.in("x"), g = call.in("dy");
    Style chooses = style;
    if (style.twist == Twist::other_end) chooses.sign = -style.sign;
    const AxisLines lines = lines_of(call, style);
    Values dx(x.size());
    for (std::int64_t r = 0; r < lines.count; ++r) {
      const Winner best = winner_of(x, lines, r, chooses);
      float equals = 0;
      for (std::int64_t i = 0; i < lines.length; ++i) equals += x[lines.at(r, i)] == best.value ? 1.0f : 0.0f;
      for (std::int64_t i = 0; i < lines.length; ++i) {
        float& out = dx[lines.at(r, i)];
        const bool equal = x[lines.at(r, i)] == best.value;
        if (i == best.at || style.twist == Twist::gradient_everywhere) out = g[index_of(r)];
        if (equal && style.twist == Twist::ties_all) out = g[index_of(r)];
        if (equal && style.twist == Twist::ties_share) out = g[index_of(r)] / equals;
      }
    }
    call.out("dx", dx);
  };
  return kernel_of(forward, backward, style.slip);
}

void add_extremum(std::vector<Specimen>& out, const char* op, float sign) {
  const auto kernel = [sign](Twist twist, Slip slip = {}) { return extremum({sign, twist, std::move(slip)}); };
  add(out, op,
      {{"ties_share_all", 36, "every one of equals has the whole gradient", "ties", V::non_smooth,
        "tie|subgradient|twice|equal", kernel(Twist::ties_all), kAllTypes, V::bug},
       {"drops_nan", 29, "a NaN is passed over", "NaN", V::bug, "finite where|hides", kernel(Twist::drops_nan)},
       {"starts_from_zero", 44, "the search starts from 0", "lines of one sign", V::bug, "zero|padding|border",
        kernel(Twist::starts_from_zero), kAllTypes, V::structural},
       {"without_tail", 13, "stops at the last full vector of 8", "lengths that are no multiple of 8", V::bug,
        "tail|last full vector|zero|last", kernel(Twist::without_tail), kAllTypes, V::structural},
       {"without_last", 14, "leaves out the last element", "any", V::bug, "last|off by one|zero",
        kernel(Twist::without_last), kAllTypes, V::structural},
       {"by_size", 10, "compares |x|", "either sign", V::bug, "sign|another", kernel(Twist::by_size), kAllTypes,
        V::structural},
       {"wrong_axis_if_square", 8, "a square tensor is reduced along the other axis", "N = D", V::bug, "axis|transpos",
        kernel(Twist::square_by_rows), kAllTypes, V::structural},
       {"gradient_everywhere", 46, "dx = g for every element", "any", V::bug, "zero|does not depend|mask|tie",
        kernel(Twist::gradient_everywhere), kAllTypes, V::non_smooth},
       {"dense_x", 19, "x is read as if row-major", "strided x", V::structural, "strided",
        kernel(Twist::none, {Io::read_dense, "x"})}},
      {{"plain", "as written", kernel(Twist::none)},
       {"ties_to_last", "the last of equals has the gradient, another subgradient", kernel(Twist::ties_to_last)},
       {"ties_share_evenly", "equals share the gradient evenly, another subgradient", kernel(Twist::ties_share)}});
}

}  // namespace

std::vector<Specimen> extremum_specimens() {
  std::vector<Specimen> out;
  add_extremum(out, "max", 1);
  add_extremum(out, "min", -1);
  return out;
}

}  // namespace ampcheck::checks::zoo
