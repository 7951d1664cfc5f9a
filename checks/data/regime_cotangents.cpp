// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "checks/data/regime_tables.h"

namespace ampcheck::checks {

namespace {

/// Sign, exponent -1 to 2 and factor 1 to 3 read off 16 random bits, and put together as bits.
double power_from(std::uint64_t choice) {
  const std::uint64_t third = (choice >> 3) * 3 >> 13;
  const double factor = third == 0 ? 1.0 : (third == 1 ? 2.0 : 3.0);
  return factor * std::bit_cast<double>((choice & 1) << 63 | (1022 + (choice >> 1 & 3)) << 52);
}

constexpr std::int64_t kPowersAWord = 4;

}  // namespace

double signed_power(const Fill& f, std::int64_t i) {
  return power_from(f.choices.bits(static_cast<std::uint64_t>(i / kPowersAWord)) >> 16 * (i % kPowersAWord) & 0xffff);
}

namespace {

/// 2^15, or as much as leaves 12 of it inside the format.
double big(const Fill& f, std::int64_t i) {
  return signed_power(f, i) * std::ldexp(1.0, std::min(15, f.range().max_exponent() - 4));
}
double small(const Fill& f, std::int64_t i) { return signed_power(f, i) * 0x1p-10; }
double near_subnormal(const Fill& f, std::int64_t i) {
  return f.sign(-i - 1) * f.log_uniform(i, -3, 2) * f.range().min_normal();
}
double full_normal(const Fill& f, std::int64_t i) { return f.values.full_normal(static_cast<std::uint64_t>(i)); }
double row_constant(const Fill& f, std::int64_t i) { return full_normal(f, f.frame.line(i)); }
double one_hot(const Fill& f, std::int64_t i) {
  const std::int64_t line = f.frame.line(i);
  if (line % 4 == 3) return 0;
  return f.frame.column(i) == f.below(line, f.frame.columns) ? f.sign(line) : 0;
}
double single(const Fill& f, std::int64_t i) { return i == f.below(0, f.frame.count) ? 1 : 0; }
double last_column(const Fill& f, std::int64_t i) {
  return f.frame.column(i) == f.frame.columns - 1 ? full_normal(f, i) : 0;
}

/// Opposite pairs from both ends of a row; of an odd number the middle three are a, -2a, a.
double zero_sum(const Fill& f, std::int64_t i) {
  const std::int64_t columns = f.frame.columns, column = f.frame.column(i), start = i - column, middle = columns / 2;
  const auto step = [&](std::int64_t at) { return std::floor(64 * f.uniform(at)) + 1; };  // exact when doubled
  if (columns % 2 != 0 && std::abs(column - middle) <= 1) {
    if (columns == 1) return 0;
    return column == middle ? -2 * step(start + middle) : step(start + middle);
  }
  return column < columns / 2 ? f.sign(i) * step(i)
                              : -f.sign(start + columns - 1 - column) * step(start + columns - 1 - column);
}

void bulk_normal(const Fill& f, std::int64_t first, std::span<double> out) {
  f.values.full_normals(static_cast<std::uint64_t>(first), out);
}

void bulk_powers(const Fill& f, std::int64_t first, std::span<double> out) {
  constexpr std::int64_t kWords = 256;
  std::uint64_t words[kWords];
  std::uint16_t choices[kPowersAWord * kWords];
  static_assert(std::endian::native == std::endian::little);  // the lowest bits of a word are its first choice
  const std::int64_t end = first + std::ssize(out);
  for (std::int64_t i = first, next = 0; i < end; i = next) {
    const std::int64_t word = i / kPowersAWord, n = std::min(kWords, (end - 1) / kPowersAWord + 1 - word);
    f.choices.bits(static_cast<std::uint64_t>(word), {words, static_cast<std::size_t>(n)});
    std::memcpy(choices, words, static_cast<std::size_t>(n) * sizeof *words);
    next = std::min(end, (word + n) * kPowersAWord);
    std::transform(choices + i % kPowersAWord, choices + i % kPowersAWord + (next - i), out.data() + (i - first),
                   power_from);
  }
}

void bulk_row_constant(const Fill& f, std::int64_t first, std::span<double> out) {
  const std::int64_t end = first + std::ssize(out);
  for (std::int64_t i = first, next = 0; i < end; i = next) {
    next = std::min(end, (f.frame.line(i) + 1) * f.frame.columns);
    std::fill_n(out.begin() + (i - first), next - i, row_constant(f, i));
  }
}

}  // namespace

std::span<const CotangentRegime> cotangent_table() {
  static const std::vector<CotangentRegime> kTable = {
      {"mixed",
       "four probes: powers of two, full mantissas, one-hot rows, zero",
       nullptr,
       false,
       {"powers", "normal", "one_hot", "zero"}},
      {"full",
       "six probes: powers of two and full mantissas in turn",
       nullptr,
       false,
       {"powers", "normal", "powers", "normal", "row_constant", "normal"}},
      {"powers",
       "signed powers of two times 1 to 3: products are exact",
       signed_power,
       false,
       {},
       bulk_powers,
       true,
       0.5},
      {"normal", "full mantissas: the order of a sum shows", full_normal, true, {}, bulk_normal},
      {"zero", "all zero", [](const Fill&, std::int64_t) { return 0.0; }},
      {"one_hot", "one of each row is +1 or -1; of every fourth row none", one_hot},
      {"row_constant", "one number a row", row_constant, true, {}, bulk_row_constant},
      {"zero_sum", "rows that sum to zero", zero_sum},
      {"ones", "all one, as of a sum", [](const Fill&, std::int64_t) { return 1.0; }},
      {"big", "powers of two times 2^15: a large loss scale", big},
      {"small", "powers of two times 2^-10", small},
      {"near_max", "near the largest finite number",
       [](const Fill& f, std::int64_t i) { return f.sign(i) * near_max(f, i); }, true},
      {"near_subnormal", "about the smallest normal number", near_subnormal, true},
      {"positive", "all above zero", [](const Fill& f, std::int64_t i) { return std::fabs(full_normal(f, i)); }, true},
      {"negative", "all below zero", [](const Fill& f, std::int64_t i) { return -std::fabs(full_normal(f, i)); }, true},
      {"single", "one element of the tensor", single},
      {"last_column", "nothing but the last column", last_column, true},
      {"integers255", "whole numbers up to 255",
       [](const Fill& f, std::int64_t i) { return std::floor(f.uniform(i) * 511) - 255; }},
  };
  return kTable;
}

}  // namespace ampcheck::checks
