// SPDX-License-Identifier: Apache-2.0
#include "checks/train/same_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "src/random.h"

namespace ampcheck::checks::train {

namespace {

/// Codes of one sign order as magnitudes do. `exponent`: its bits all set are an infinity or NaN.
template <class Code>
void nudge_codes(Code* codes, std::int64_t n, Code exponent, const Random& random) {
  constexpr std::int64_t kDraws = 32;  // of two bits, in one number
  constexpr auto kSizes = static_cast<Code>(~(Code{1} << (8 * sizeof(Code) - 1)));
  for (std::int64_t at = 0; at < n; at += kDraws) {
    const std::uint64_t drawn = random.bits(static_cast<std::uint64_t>(at / kDraws));
    const std::uint32_t halves[2] = {static_cast<std::uint32_t>(drawn), static_cast<std::uint32_t>(drawn >> 32)};
    for (std::int64_t half = 0; half < 2; ++half) {  // selects instead of branches, so that it vectorises
      const std::int64_t from = at + half * kDraws / 2;
      if (from >= n) return;
      Code* const first = codes + from;
      const auto part = static_cast<std::uint32_t>(std::min<std::int64_t>(n - from, kDraws / 2));
      for (std::uint32_t i = 0; i < part; ++i) {
        const Code size = first[i] & kSizes;
        const std::uint32_t two = halves[half] >> (2 * i) & 3u;
        const bool moves = size != 0 && size < exponent;
        const int up = two == 0 && static_cast<Code>(size + 1) < exponent, down = two == 1 && size > 1;
        first[i] = static_cast<Code>(first[i] + (moves ? up - down : 0));
      }
    }
  }
}

double norm2(const std::vector<double>& a, const std::vector<double>& b) {
  double out = 0;
  for (std::size_t i = 0; i < a.size(); ++i) out += (a[i] - b[i]) * (a[i] - b[i]);
  return out;
}

}  // namespace

void nudge(const Event& event, std::uint64_t replay) {
  const Random random(replay, std::string(event.op) + "/" + std::string(event.tensor) + "/" + name(event.phase) +
                                  (event.cast ? "/cast" : "") + std::to_string(event.rank));
  const std::int64_t n = event.got.count();
  if (event.got.dtype == Dtype::fp32)
    nudge_codes<std::uint32_t>(event.got.as<std::uint32_t>(), n, 0x7f800000u, random);
  else if (event.got.dtype == Dtype::fp16)
    nudge_codes<std::uint16_t>(event.got.as<std::uint16_t>(), n, 0x7c00u, random);
  else if (event.got.dtype == Dtype::bf16)
    nudge_codes<std::uint16_t>(event.got.as<std::uint16_t>(), n, 0x7f80u, random);
  else if (event.got.dtype == Dtype::e4m3fn)
    nudge_codes<std::uint8_t>(event.got.as<std::uint8_t>(), n, 0x7fu, random);
  else if (event.got.dtype == Dtype::e5m2)
    nudge_codes<std::uint8_t>(event.got.as<std::uint8_t>(), n, 0x7cu, random);
}

std::vector<double> SameWeights::taken(ParameterSet& parameters, double scale) const {
  std::vector<double> out;
  for (const Parameter& parameter : parameters.all()) {
    const auto n = static_cast<std::size_t>(parameter.value.count());
    const std::vector<double> own =
        parameter.grad.defined() ? to_doubles(parameter.grad.view()) : std::vector<double>(n);
    for (const double g : own) out.push_back(g / scale);
  }
  return out;
}

void SameWeights::leave_out() {
  compared_ = false;
  replays_.clear();
}

void SameWeights::begin(int step, ParameterSet& parameters, bool gradient) {
  step_ = step;
  compared_ = true;
  replays_.clear();
  fp64_.start_from(parameters);
  fp64_.prepare();
  fp64_.resume_at(step);
  loss_ = gradient ? fp64_.step() : fp64_.loss();
  gradient_.clear();
  if (!gradient) return;
  for (const Parameter& parameter : parameters.all()) {
    const Parameter& own = *fp64_.parameters().find(parameter.name);
    const Tensor& gradient = fp64_.gradient(own);
    const std::vector<double> values = gradient.defined()
                                           ? to_doubles(gradient.view())
                                           : std::vector<double>(static_cast<std::size_t>(parameter.value.count()));
    gradient_.insert(gradient_.end(), values.begin(), values.end());
  }
}

void SameWeights::add_replay(ParameterSet& parameters, double scale) { replays_.push_back(taken(parameters, scale)); }

void SameWeights::add_gradient(ParameterSet& parameters, double scale) {
  if (replays_.empty()) return;
  const std::vector<double> own = taken(parameters, scale);
  std::vector<double> middle(own.size(), 0);
  for (const std::vector<double>& replay : replays_)
    for (std::size_t i = 0; i < own.size(); ++i) middle[i] += replay[i] / static_cast<double>(replays_.size());
  double radius2 = 0, dot = 0, own2 = 0, fp642 = 0;
  for (const std::vector<double>& replay : replays_) radius2 = std::max(radius2, norm2(replay, middle));
  for (std::size_t i = 0; i < own.size(); ++i) {
    dot += own[i] * gradient_[i];
    own2 += own[i] * own[i];
    fp642 += gradient_[i] * gradient_[i];
  }
  const double distance2 = norm2(own, gradient_);
  if (!std::isfinite(distance2) || !std::isfinite(radius2) || fp642 == 0) return;  // a step that is skipped
  cosine_ = own2 > 0 ? dot / std::sqrt(own2 * fp642) : 0;
  size_ = std::sqrt(own2 / fp642);
  in_a_row_ = distance2 > kBeyond * kBeyond * radius2 ? in_a_row_ + 1 : 0;
  if (in_a_row_ < kInARow || departed_at_ >= 0) return;
  departed_at_ = step_;
  distance_ = std::sqrt(distance2 / fp642);
  radius_ = std::sqrt(radius2 / fp642);
}

void SameWeights::add_loss(double loss, double rounding) {
  const double gap = loss - loss_;
  if (!compared_ || !std::isfinite(gap)) return;
  if (first_ < 0) first_ = step_;
  above_ += gap > 0;
  below_ += gap < 0;
  gap_ += gap;
  rounding_ += rounding;
}

std::vector<RunFinding> SameWeights::findings() const {
  std::vector<RunFinding> out;
  if (departed_at_ >= 0)
    out.push_back(
        {RunCode::gradient, departed_at_, "",
         fmt::format("its distance from fp64's at the same weights is {:.2g} of its size; with other rounding "
                     "it moves by {:.2g} (cosine {:.4f}, size {:.4f})",
                     distance_, radius_, cosine_, size_)});
  const int all = above_ + below_;
  if (all >= kOneSided && std::min(above_, below_) == 0 && std::fabs(gap_) > rounding_)
    out.push_back(
        {RunCode::loss_gap, first_, "",
         fmt::format("{} of {} compared steps {}, by {:.2g} in the mean; rounding of the loss may move it by {:.2g}",
                     all, all, above_ > 0 ? "above" : "below", std::fabs(gap_) / all, rounding_ / all)});
  return out;
}

}  // namespace ampcheck::checks::train
