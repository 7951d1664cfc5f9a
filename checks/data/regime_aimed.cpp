// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <cmath>

#include "checks/data/aimed_range.h"
#include "checks/data/regime_tables.h"
#include "src/error.h"
#include "src/op_call.h"

namespace ampcheck::checks {

namespace {

constexpr std::string_view kPrefix = "aimed:", kBetween = "..";

[[noreturn]] void fail(const std::string& range, const std::string& got) {
  throw Error("[range] got " + got + " in '" + range +
              "', want inputs and the numbers between which they lie, as in 'aimed:x@-2..3.5:w@0..1'");
}

double number_in(const std::string& range, std::string_view text) {
  double value = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end.ec != std::errc{} || end.ptr != text.data() + text.size() || !std::isfinite(value))
    fail(range, "'" + std::string(text) + "'");
  return value;
}

bool is_floating(const TensorSpec& spec) {
  return spec.type != TypeRule::i64 && spec.type != TypeRule::u8 && !is_index(spec) && spec.role != Role::mask;
}

/// One piece of "x@-2..3.5:w@0..1".
AimedInput parse_piece(const std::string& range, std::string_view piece) {
  const std::size_t at = piece.find('@'), between = at == std::string_view::npos ? at : piece.find(kBetween, at);
  if (at == 0 || between == std::string_view::npos) fail(range, "'" + std::string(piece) + "'");
  const AimedInput out{std::string(piece.substr(0, at)), number_in(range, piece.substr(at + 1, between - at - 1)),
                       number_in(range, piece.substr(between + kBetween.size()))};
  if (!(out.low <= out.high)) fail(range, "a lower end above the upper one");
  return out;
}

/// Evenly in the exponent, then in the binade: no function of a library, whose bits may differ between machines.
double between_binades(const Fill& f, std::int64_t i, double low, double high) {
  const int first = std::ilogb(low), last = std::ilogb(high);
  const double value =
      (1 + f.uniform(i)) * std::ldexp(1.0, first + static_cast<int>(f.below(-i - 1, last - first + 1)));
  return std::clamp(value, low, high);
}

double inside(const Fill& f, std::int64_t i, double low, double high) {
  constexpr double kWide = 4;  // ends further apart: small numbers are as likely as large ones
  if (low > 0 && high > kWide * low) return between_binades(f, i, low, high);
  if (high < 0 && low < kWide * high) return -between_binades(f, i, -high, -low);
  return low + (high - low) * f.uniform(i);
}

/// The number itself, or the next one of the format on either side.
double about(const Fill& f, std::int64_t i, double end) {
  const double step = end == 0 ? f.format.min_normal() : std::fabs(end) * 2 * f.format.unit_roundoff();
  return end + step * static_cast<double>(f.below(-i - 1, 3) - 1);
}

}  // namespace

bool is_aimed_range(std::string_view range) { return range.starts_with(kPrefix); }

std::string aimed_range(const std::vector<AimedInput>& inputs) {
  std::string out = std::string(kPrefix.substr(0, kPrefix.size() - 1));
  for (const AimedInput& input : inputs)
    out += ":" + input.input + "@" + number_text(input.low) + std::string(kBetween) + number_text(input.high);
  return out;
}

std::vector<AimedInput> parse_aimed_range(const OpSignature& signature, const std::string& range) {
  std::vector<AimedInput> out;
  for (std::size_t start = kPrefix.size(); start <= range.size();) {
    const std::size_t end = std::min(range.find(':', start), range.size());
    out.push_back(parse_piece(range, std::string_view(range).substr(start, end - start)));
    const TensorSpec* const spec = signature.input(out.back().input);
    if (spec == nullptr || !is_floating(*spec))
      fail(range, "'" + out.back().input + "', which is no floating input of " + signature.name);
    if (std::any_of(out.begin(), out.end() - 1,
                    [&](const AimedInput& other) { return other.input == out.back().input; }))
      fail(range, "'" + out.back().input + "' twice");
    start = end + 1;
  }
  return out;
}

double aimed_value(const Fill& f, std::int64_t i, const AimedInput& aim) {
  constexpr std::int64_t kParts = 8;  // one at each end, the others between
  const std::int64_t part = f.below(i, kParts);
  return part == 0 ? about(f, i, aim.low) : part == 1 ? about(f, i, aim.high) : inside(f, i, aim.low, aim.high);
}

}  // namespace ampcheck::checks
