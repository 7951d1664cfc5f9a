// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/explain/agreement.h"

#include <cmath>

#include "src/rounding.h"

namespace ampcheck::checks {

Tolerance::Tolerance(const Interval& interval) : interval_(interval), storage_(format(interval.dtype)) {
  std::vector<double> shares;
  for (std::size_t i = 0; i < interval.value.size(); ++i) {
    const double share = interval.radius[i] / std::fabs(interval.value[i]);
    if (std::isfinite(share)) shares.push_back(share);
  }
  if (shares.empty()) return;
  const auto quarter = shares.begin() + static_cast<std::ptrdiff_t>(shares.size() / 4);  // little of it is cancellation
  std::nth_element(shares.begin(), quarter, shares.end());
  // A changed formula rounds where the declared one may be exact: 8 of its roundings.
  const double computed = 8 * (interval.dtype == Dtype::fp64 ? kFp64 : kFp32).unit_roundoff();
  share_ = std::clamp(*quarter, computed, 0x1p-4);
}

double Tolerance::at(std::size_t i, double got) const {
  return 2 * std::max(interval_.radius[i], share_ * std::fabs(got)) + spacing_at(storage_, got);
}

bool Tolerance::agrees(std::size_t i, double got, double changed) const {
  if (!std::isfinite(got) || !std::isfinite(changed)) return got == changed || (std::isnan(got) && std::isnan(changed));
  return std::fabs(got - changed) <= at(i, got);
}

Agreement agreement(const Tolerance& tolerance, const WrongTensor& wrong, std::vector<double> changed, double freedom) {
  Agreement out;
  out.freedom = freedom;
  out.fewest = std::min<std::int64_t>(4, (std::ssize(wrong.got) + 1) / 2);
  std::size_t far = 0;  // most changes are plainly none, before they are rounded
  for (const std::int64_t at : wrong.comparison.outside) {
    const auto i = static_cast<std::size_t>(at);
    const double off = std::fabs(wrong.got[i] - changed[i]);
    far += std::isfinite(off) && off > 2 * tolerance.at(i, wrong.got[i]);
    if (10 * far > wrong.comparison.outside.size()) return out;
  }
  round_values(format(wrong.interval.dtype), RoundingMode{}, changed, changed);
  std::size_t missed = 0, admitted = 0;
  for (const std::int64_t at : wrong.comparison.outside) {
    const auto i = static_cast<std::size_t>(at);
    if (!tolerance.agrees(i, wrong.got[i], changed[i]))
      ++missed;
    else if (admits(wrong.interval, at, changed[i]))
      ++admitted;  // it explains nothing, and refutes nothing: the kernel's own roundings took it outside
    if (10 * missed > wrong.comparison.outside.size() || 2 * admitted > wrong.comparison.outside.size()) return out;
  }
  out.outside = 1 - static_cast<double>(missed) / static_cast<double>(wrong.comparison.outside.size());
  std::vector<double> declared(wrong.interval.value.begin(), wrong.interval.value.end());
  round_values(format(wrong.interval.dtype), RoundingMode{}, declared, declared);
  out.same_bits = bytes(wrong.interval.dtype) < 4;
  const double precision = format(wrong.interval.dtype).precision;
  auto outside = wrong.comparison.outside.begin();  // ascending
  std::int64_t contradicted = 0;
  for (std::size_t i = 0; i < wrong.got.size(); ++i) {
    out.same_bits &= wrong.got[i] == changed[i];
    if (changed[i] != declared[i]) ++out.telling;
    const bool agrees = tolerance.agrees(i, wrong.got[i], changed[i]);
    out.all += agrees;
    const bool right = outside == wrong.comparison.outside.end() || *outside != static_cast<std::int64_t>(i);
    if (!right) ++outside;
    contradicted += right && !agrees;
    const double before = std::fabs(wrong.got[i] - (freedom > 0 ? declared[i] : wrong.interval.value[i])),
                 after = std::fabs(wrong.got[i] - changed[i]), blur = tolerance.at(i, wrong.got[i]) / 8;
    if (!std::isfinite(before) || !std::isfinite(after)) continue;
    const double bits = std::log2((before + blur) / (after + blur));
    // Zero is what many changes leave, and no number is known to more bits than it has.
    out.bits += freedom > 0 ? std::min(bits, changed[i] == 0 ? 2.0 : precision) : bits;
    out.moved += bits > 1;
  }
  out.all /= static_cast<double>(wrong.got.size());
  // A tail that is right is no chance, however short it is.
  const std::int64_t right = std::ssize(wrong.got) - std::ssize(wrong.comparison.outside);
  if (freedom > 0 && 20 * contradicted > right) out.all = 0;
  return out;
}

}  // namespace ampcheck::checks
