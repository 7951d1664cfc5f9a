// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/run/worse.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "checks/case/sign_test.h"

namespace ampcheck::checks {

namespace {

constexpr int kTests = 4;  ///< of each tensor

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

using Histogram = std::map<int, std::int64_t>;

/// The rank sum test of Wilcoxon, Mann and Whitney over several cases (van Elteren 1960), with midranks for what stands
/// in the same bin: do the places of the new build err more than those of the former one?
class RankSum {
 public:
  void add(const Histogram& was, const Histogram& now) {
    Histogram both = was;
    for (const auto& [bin, count] : now) both[bin] += count;
    double n = 0, m = 0, below = 0, wins = 0, ties = 0;
    for (const auto& [bin, count] : both) {
      const auto at = was.find(bin), mine = now.find(bin);
      const double a = at == was.end() ? 0 : static_cast<double>(at->second),
                   b = mine == now.end() ? 0 : static_cast<double>(mine->second), t = a + b;
      wins += b * (below + a / 2);
      below += a;
      n += a;
      m += b;
      ties += t * t * t - t;
    }
    const double all = n + m;
    if (n == 0 || m == 0 || all < 2) return;
    const double weight = 1 / (all + 1);
    above_ += weight * (wins - n * m / 2);
    variance_ += weight * weight * n * m / 12 * (all + 1 - ties / (all * (all - 1)));
  }
  /// One-sided, by the normal distribution, whose tail is heavier than that of few ranks.
  double p() const { return variance_ > 0 ? std::erfc(above_ / std::sqrt(2 * variance_)) / 2 : 1; }

 private:
  double above_ = 0, variance_ = 0;
};

}  // namespace

TensorChange change_of(const std::vector<ProfilePair>& pairs) {
  TensorChange out;
  double count = 0;
  RankSum rows, columns;
  for (const auto& [was, now] : pairs) {
    rows.add(was->row_histogram, now->row_histogram);
    columns.add(was->column_histogram, now->column_histogram);
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
  out.p_places = std::max(rows.p(), columns.p());
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
  if (p_places < level) add(fmt::format("rows and columns err more (by chance: {:.0e})", std::max(p_places, 1e-99)));
  if (p_tail < level) add(fmt::format("{} places err more than any did before", beyond));
  if (p_bias < level) add(fmt::format("errors lean more to one side in {} of {} cases", further, further + nearer));
  return out;
}

int TensorChange::needed(double level) { return static_cast<int>(std::floor(-std::log2(level))) + 1; }

double level_of(std::size_t tensors) {
  return kFalseAlarms / (kTests * static_cast<double>(std::max<std::size_t>(tensors, 1)));
}

}  // namespace ampcheck::checks
