// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/run/worse.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

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

/// A vote for the larger or the smaller of two numbers; none where they are equal.
void vote(double was, double now, int& larger, int& smaller) {
  larger += now > was;
  smaller += now < was;
}

}  // namespace

TensorChange change_of(const std::vector<ProfilePair>& pairs) {
  TensorChange out;
  double count = 0;
  // Cases that differ in the incoming gradient alone have the same forward: one vote.
  std::set<std::tuple<std::string, double, double, double>> seen;
  for (const auto& [was, now] : pairs) {
    ++out.changed;
    const auto elements = static_cast<double>(now->elements - now->open);
    count += elements;
    out.rms_was += elements * was->rms * was->rms;
    out.rms_now += elements * now->rms * now->rms;
    out.max_was = std::max(out.max_was, was->max);
    out.max_now = std::max(out.max_now, now->max);
    out.not_finite += std::max<std::int64_t>(now->not_finite - was->not_finite, 0);
    if (!seen.insert({now->bits, was->rms, was->max, was->bias}).second) {
      ++out.same;
      continue;
    }
    vote(was->rms, now->rms, out.larger, out.smaller);
    vote(was->max, now->max, out.larger_max, out.smaller_max);
    vote(std::fabs(was->bias), std::fabs(now->bias), out.further, out.nearer);
  }
  out.rms_was = count == 0 ? 0 : std::sqrt(out.rms_was / count);
  out.rms_now = count == 0 ? 0 : std::sqrt(out.rms_now / count);
  out.p_usual = one_sided(out.larger, out.larger + out.smaller);
  out.p_max = one_sided(out.larger_max, out.larger_max + out.smaller_max);
  out.p_bias = one_sided(out.further, out.further + out.nearer);
  return out;
}

std::string TensorChange::worse(double level) const {
  std::string out;
  const auto add = [&](const std::string& words) { out += (out.empty() ? "" : "; ") + words; };
  if (not_finite > 0) add(fmt::format("{} more elements are wrongly finite, or wrongly not", not_finite));
  if (p_usual < level) add(fmt::format("the usual error is larger in {} of {} cases", larger, larger + smaller));
  if (p_max < level)
    add(fmt::format("the largest error is larger in {} of {} cases", larger_max, larger_max + smaller_max));
  if (p_bias < level) add(fmt::format("errors lean more to one side in {} of {} cases", further, further + nearer));
  return out;
}

int TensorChange::needed(double level) { return static_cast<int>(std::floor(-std::log2(level))) + 1; }

double level_of(std::size_t tensors) {
  return kFalseAlarms / (kTests * static_cast<double>(std::max<std::size_t>(tensors, 1)));
}

}  // namespace ampcheck::checks
