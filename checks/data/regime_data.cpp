// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "checks/data/regime_tables.h"

namespace ampcheck::checks {

Frame::Frame(const Shape& shape)
    : count(shape.count()),
      columns(shape.rank > 0 ? std::max<std::int64_t>(shape.last(), 1) : 1),
      lines(count / columns),
      slabs(shape.rank > 1 ? std::max<std::int64_t>(shape[0], 1) : 1),
      slab_size(std::max<std::int64_t>(count / slabs, 1)) {}

double Fill::log_uniform(std::int64_t i, int low, int high) const {
  return (1 + uniform(i)) * std::ldexp(1.0, low + static_cast<int>(below(i, high - low)));
}

double near_max(const Fill& f, std::int64_t i) { return f.range().max_finite() * (0.5 + 0.5 * f.uniform(i)); }

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double scaled(const Fill& f, std::int64_t i) { return f.normal(i) * std::ldexp(1.0, static_cast<int>(f.number)); }
double shifted(const Fill& f, std::int64_t i) { return f.number + f.normal(i); }
double shifted_tight(const Fill& f, std::int64_t i) { return f.number + 0x1p-6 * f.normal(i); }
double integers(const Fill& f, std::int64_t i) { return std::floor(f.uniform(i) * (2 * f.number + 1)) - f.number; }
double constant_row(const Fill& f, std::int64_t i) { return f.normal(f.frame.line(i)); }

/// The line's number, one step of the format up or down in places.
double nearly_constant_row(const Fill& f, std::int64_t i) {
  const double base = 1 + f.uniform(f.frame.line(i));
  return base + static_cast<double>(f.below(i, 3) - 1) * 2 * f.format.unit_roundoff();
}

/// 4 to 200 in magnitude, either sign; one for each line.
double spike_size(const Fill& f, std::int64_t line) {
  const double size =
      (1 + 0.5625 * f.choice(3 * line)) * std::ldexp(1.0, 2 + static_cast<int>(f.below(3 * line + 1, 6)));
  return f.sign(3 * line + 2) * size;
}
std::int64_t spike_column(const Fill& f, std::int64_t line) { return f.below(-line - 1, f.frame.columns); }

double spike(const Fill& f, std::int64_t i) {
  const std::int64_t line = f.frame.line(i);
  return f.frame.column(i) == spike_column(f, line) ? spike_size(f, line) : f.normal(i);
}
double two_spikes(const Fill& f, std::int64_t i) {
  const std::int64_t line = f.frame.line(i), columns = f.frame.columns, first = spike_column(f, line);
  const std::int64_t second = (first + 1 + columns / 3) % columns;
  return f.frame.column(i) == first || f.frame.column(i) == second ? spike_size(f, line) : f.normal(i);
}
double confident(const Fill& f, std::int64_t i) {
  return f.normal(i) + (f.frame.column(i) == spike_column(f, f.frame.line(i)) ? 30 : 0);
}

/// One element in seven is special, and the first ones of the tensor are, so that small tensors have some; the middle
/// slab has none, where there are two or more.
int special_kind(const Fill& f, std::int64_t i, int kinds) {
  const Frame& frame = f.frame;
  if (frame.slabs > 1 && frame.slab(i) == frame.slabs / 2) return -1;
  if (i < kinds) return static_cast<int>(i);
  const std::int64_t draw = f.below(i, 7 * kinds);
  return draw < kinds ? static_cast<int>(draw) : -1;
}
double specials(const Fill& f, std::int64_t i) {
  const int kind = special_kind(f, i, 3);
  return kind < 0 ? f.normal(i) : kind == 0 ? kNan : kind == 1 ? kInfinity : -kInfinity;
}
double nans(const Fill& f, std::int64_t i) { return special_kind(f, i, 1) < 0 ? f.normal(i) : kNan; }
double infinities(const Fill& f, std::int64_t i) { return special_kind(f, i, 1) < 0 ? f.normal(i) : kInfinity; }
double minus_infinities(const Fill& f, std::int64_t i) { return special_kind(f, i, 1) < 0 ? f.normal(i) : -kInfinity; }
double neg_inf_rows(const Fill& f, std::int64_t i) { return f.frame.line(i) % 2 == 0 ? -kInfinity : f.normal(i); }

double signed_zeros(const Fill& f, std::int64_t i) { return f.below(i, 2) == 0 ? f.sign(-i - 1) * 0.0 : f.normal(i); }

double antisymmetric(const Fill& f, std::int64_t i) {
  const std::int64_t half = f.frame.columns / 2, column = f.frame.column(i);
  return column >= half && column < 2 * half ? -f.normal(i - half) : f.normal(i);
}
double antisymmetric_columns(const Fill& f, std::int64_t i) {
  const std::int64_t half = f.frame.slabs / 2, slab = f.frame.slab(i);
  return slab >= half && slab < 2 * half ? -f.normal(i - half * f.frame.slab_size) : f.normal(i);
}
double log_uniform(const Fill& f, std::int64_t i) {
  const int reach = static_cast<int>(f.number);
  return f.sign(-i - 1) * f.log_uniform(i, -reach, reach);
}
double sweep(const Fill& f, std::int64_t i) {
  return f.number * ((2 * static_cast<double>(i) + 1) / static_cast<double>(f.frame.count) - 1);
}
double ascending(const Fill& f, std::int64_t i) {
  return 6 * (static_cast<double>(f.frame.column(i)) + f.uniform(i)) / static_cast<double>(f.frame.columns) - 3;
}
double repeated_columns(const Fill& f, std::int64_t i) { return f.normal(i - f.frame.column(i) % 2); }

}  // namespace

std::span<const DataFamily> data_families() {
  static const std::vector<DataFamily> kFamilies = {
      {"normal", "normal data, weights 1 +- 0.3, biases of half that scale, indices anywhere", nullptr},
      {"integers", "whole numbers up to that size, ties and exact sums", integers, {"1", "9"}, true},
      {"spike", "one of 4 to 200 in each row, either sign", spike, {}, false, true},
      {"mean", "unit spread about an offset: cancellation", shifted, {"30",  "-30",  "1",     "-1",     "2.5",   "-2.5",
                                                                      "3.7", "-3.7", "5.3",   "-5.3",   "9",     "-9",
                                                                      "15",  "-15",  "88",    "-88",    "104",   "-104",
                                                                      "300", "-300", "10000", "-10000", "-30000"}},
      {"scale",
       "normal data times a power of two",
       scaled,
       {"-9",  "+4",  "-20", "+8",  "-1",  "+1",  "-2",  "+2",   "-4",   "+3",   "-6",   "+6",  "-12",
        "+11", "-16", "+16", "-30", "+30", "-64", "+64", "-100", "+100", "-126", "-130", "-140"},
       false,
       true},
      {"zeros", "all zero", [](const Fill&, std::int64_t) { return 0.0; }, {}, false, true},
      {"negative", "all below zero", [](const Fill& f, std::int64_t i) { return -std::fabs(f.normal(i)); }},
      {"positive", "all above zero", [](const Fill& f, std::int64_t i) { return std::fabs(f.normal(i)); }},
      {"specials", "NaN and both infinities here and there, one row without", specials, {}, false, true},
      {"nans", "NaN here and there, one row without", nans, {}, false, true},
      {"infinities", "+inf here and there, one row without", infinities, {}, false, true},
      {"minus_infinities", "-inf here and there, one row without", minus_infinities},
      {"neg_inf_rows", "every other row -inf throughout", neg_inf_rows},
      {"near_max",
       "within a factor of two of the largest finite number, either sign",
       [](const Fill& f, std::int64_t i) { return f.sign(i) * near_max(f, i); },
       {},
       false,
       true},
      {"near_max_equal_sign", "near the largest finite number, one sign a row",
       [](const Fill& f, std::int64_t i) { return f.sign(f.frame.line(i)) * near_max(f, i); }},
      {"subnormal",
       "below the smallest normal number",
       [](const Fill& f, std::int64_t i) { return (2 * f.uniform(i) - 1) * f.range().min_normal(); },
       {},
       false,
       true},
      {"constant_row", "all equal in a row: variance zero, all tied", constant_row},
      {"nearly_constant_row", "a row differs by one step of the format", nearly_constant_row},
      {"two_spikes", "two equal large numbers in each row", two_spikes},
      {"confident", "one number 30 above the others of its row", confident},
      {"antisymmetric", "x[k+h] = -x[k] along rows: sums of zero", antisymmetric},
      {"antisymmetric_columns", "x[k+h] = -x[k] down the columns", antisymmetric_columns},
      {"signed_zeros", "half of them +0 or -0", signed_zeros},
      {"loguniform", "magnitudes over that many binades either way", log_uniform, {"8", "30"}, false, true},
      {"sweep", "evenly from minus to plus that number", sweep, {"6", "20", "120"}},
      {"ascending", "ascending along rows: a running maximum moves at each step", ascending},
      {"descending", "descending along rows", [](const Fill& f, std::int64_t i) { return -ascending(f, i); }},
      {"repeated_columns", "columns equal in pairs: ties", repeated_columns},
      {"near", "an offset with a spread of 2^-6", shifted_tight, {"1", "9", "-9", "30", "300"}},
      {"ones", "all one", [](const Fill&, std::int64_t) { return 1.0; }},
      {"sentinels", "indices: half of them the sentinel of an attribute", nullptr},
      {"all_sentinels", "indices: nothing but the sentinel", nullptr},
      {"same_index", "indices: all the same, so that sums collide", nullptr},
      {"end_indices", "indices and quantized numbers: the first and the last only", nullptr},
      {"mask_zeros", "masks: all zero", nullptr},
      {"mask_ones", "masks: all one", nullptr},
  };
  return kFamilies;
}

}  // namespace ampcheck::checks
