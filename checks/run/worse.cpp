// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/run/worse.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "checks/case/sign_test.h"

namespace ampcheck::checks {

namespace {

constexpr int kTests = 3;  ///< of each tensor

/// That at least `positive` of `draws` fair coins fall on one given side.
double one_sided(int positive, int draws) {
  double p = 0;
  for (int k = positive; k <= draws; ++k) p += std::exp(log_choose(draws, k) - draws * std::log(2.0));
  return std::min(1.0, p);
}

/// Rows or columns, whichever are fewer, that err more than the former build did anywhere in this case. If the builds
/// may change places, each of the largest is the new one's by the toss of a coin. Elements of a row often err together,
/// and so do those of a column, therefore both must be many.
int places_beyond(const TensorProfile& was, const TensorProfile& now) {
  const auto count = [&](const std::vector<double>& sizes) {
    return static_cast<int>(std::count_if(sizes.begin(), sizes.end(), [&](double size) { return size > was.max; }));
  };
  return std::min(count(now.rows), count(now.columns));
}

}  // namespace

TensorChange change_of(const std::vector<ProfilePair>& pairs) {
  TensorChange out;
  double count = 0;
  for (const auto& [was, now] : pairs) {
    ++out.changed;
    out.larger += now->rms > was->rms;
    out.smaller += now->rms < was->rms;
    out.further += std::fabs(now->bias) > std::fabs(was->bias);
    out.nearer += std::fabs(now->bias) < std::fabs(was->bias);
    out.beyond += places_beyond(*was, *now);
    out.not_finite += std::max<std::int64_t>(now->not_finite - was->not_finite, 0);
    const auto elements = static_cast<double>(now->elements - now->open);
    count += elements;
    out.rms_was += elements * was->rms * was->rms;
    out.rms_now += elements * now->rms * now->rms;
    out.max_was = std::max(out.max_was, was->max);
    out.max_now = std::max(out.max_now, now->max);
  }
  out.rms_was = count == 0 ? 0 : std::sqrt(out.rms_was / count);
  out.rms_now = count == 0 ? 0 : std::sqrt(out.rms_now / count);
  out.p_usual = one_sided(out.larger, out.larger + out.smaller);
  out.p_bias = one_sided(out.further, out.further + out.nearer);
  // Heads before the tails of all cases: of M + c - 1 coins at least M are heads.
  out.p_tail = out.changed == 0 ? 1 : one_sided(out.beyond, out.beyond + out.changed - 1);
  return out;
}

std::string TensorChange::worse(double level) const {
  std::string out;
  const auto add = [&](const std::string& words) { out += (out.empty() ? "" : "; ") + words; };
  if (not_finite > 0) add(fmt::format("{} more elements are wrongly finite, or wrongly not", not_finite));
  if (p_usual < level) add(fmt::format("the usual error is larger in {} of {} cases", larger, larger + smaller));
  if (p_tail < level) add(fmt::format("{} places err more than any did before", beyond));
  if (p_bias < level) add(fmt::format("errors lean more to one side in {} of {} cases", further, further + nearer));
  return out;
}

int TensorChange::needed(double level) { return static_cast<int>(std::floor(-std::log2(level))) + 1; }

double level_of(std::size_t tensors) {
  return kFalseAlarms / (kTests * static_cast<double>(std::max<std::size_t>(tensors, 1)));
}

}  // namespace ampcheck::checks
