// SPDX-License-Identifier: Apache-2.0
// A tensor against its shadow, by blocks: loops without branches over doubles, then one table per block.
#include <algorithm>
#include <bit>
#include <cmath>
#include <mutex>
#include <string>

#include "src/amp/blocks.h"
#include "src/amp/tensor_stats.h"
#include "src/error.h"
#include "src/parallel.h"

namespace ampcheck {

namespace {

constexpr std::int64_t kGrain = 1 << 16;
constexpr double kBeyond = 32767.0;       // ulps; keeps the error below 2^31 units of 2^-16 ulp
constexpr double kUnits = 65536.0;
constexpr double kRound = 0x1.8p52;       // added and taken away: rounds to an integer in the low bits
constexpr std::uint64_t kSign = std::uint64_t{1} << 63;
constexpr std::uint64_t kInfinity = std::uint64_t{0x7ff} << 52;

/// Facts of the format as the loop needs them.
struct Limits {
  double max_finite, min_normal;
  std::int64_t lowest, highest, ulp;  ///< exponent fields of fp64
  explicit Limits(const FloatFormat& f)
      : max_finite(f.max_finite()), min_normal(f.min_normal()), lowest(f.min_exponent() + 1023), highest(f.max_exponent() + 1023),
        ulp(2046 + f.fraction_bits()) {}
};

struct Block {
  alignas(64) double x[kBlock], shadow[kBlock];
  alignas(64) std::int64_t bucket[kBlock];  ///< -2 not judged, -1 exact, else the ulp bucket
};

void count_block(Block& b, std::int64_t n, const Limits& limits, ShadowStats& stats) {
  std::int64_t not_zero = 0, flushed = 0, loss = 0, became = 0, saturated = 0, made = 0, killed = 0, beyond = 0, toward = 0, away = 0;
  std::int64_t errors = 0;
  std::uint64_t squares_low = 0, squares_high = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double x = b.x[i], r = b.shadow[i];
    const double ax = std::fabs(x), ar = std::fabs(r);
    const std::uint64_t r_code = std::bit_cast<std::uint64_t>(ar);
    const bool x_finite = (std::bit_cast<std::uint64_t>(x) & ~kSign) < kInfinity, r_finite = r_code < kInfinity;
    const bool judged = x_finite & r_finite;
    const std::int64_t field = std::clamp(static_cast<std::int64_t>(r_code >> 52), limits.lowest, limits.highest);
    const double per_ulp = std::bit_cast<double>(static_cast<std::uint64_t>(limits.ulp - field) << 52);
    const double e = judged ? (x - r) * per_ulp : 0.0;
    const double a = std::fabs(e);
    const bool far = a > kBeyond;
    const double units = far ? 0.0 : e * kUnits;
    const std::int64_t q = std::bit_cast<std::int64_t>(units + kRound) - std::bit_cast<std::int64_t>(kRound);
    const std::uint64_t square = static_cast<std::uint64_t>(std::int64_t{static_cast<std::int32_t>(q)} * static_cast<std::int32_t>(q));
    errors += q;
    squares_low += square & 0xffffffffu;
    squares_high += square >> 32;
    // ceil(log2 a) + 1: a power of two less one unit lies in the binade below.
    const auto above = static_cast<std::int64_t>((std::bit_cast<std::uint64_t>(a) - 1) >> 52) - 1023 + 2;
    const std::int64_t bucket = std::clamp<std::int64_t>(above, 0, kUlpBuckets - 1);
    b.bucket[i] = !judged ? -2 : a == 0.0 ? -1 : bucket;
    not_zero += r != 0.0;
    flushed += (x == 0.0) & (r != 0.0);
    loss += (ax < limits.min_normal) & (ax > 0.0) & (ar >= limits.min_normal);
    became += (ar < limits.min_normal) & (ar > 0.0);
    saturated += (ar > limits.max_finite) & r_finite & (ax >= limits.max_finite);
    made += !x_finite & (ar <= limits.max_finite);
    killed += x_finite & !r_finite;
    beyond += far;
    toward += judged & (ax < ar);
    away += judged & (ax > ar);
  }
  stats.shadow_not_zero += not_zero;
  stats.flushed += flushed;
  stats.subnormal_loss += loss;
  stats.became_subnormal += became;
  stats.saturated += saturated;
  stats.non_finite_made += made;
  stats.non_finite_killed += killed;
  stats.beyond += beyond;
  stats.toward_zero += toward;
  stats.away_from_zero += away;
  stats.error_sum += errors;
  const unsigned __int128 squares = (static_cast<unsigned __int128>(squares_high) << 32) + squares_low;
  const auto low = static_cast<std::uint64_t>(squares);
  stats.square_sum_low += low;
  stats.square_sum_high += static_cast<std::uint64_t>(squares >> 64) + (stats.square_sum_low < low ? 1 : 0);
}

void count_buckets(const Block& b, std::int64_t n, ShadowStats& stats) {
  std::array<std::int64_t, kUlpBuckets + 2> table{};
  for (std::int64_t i = 0; i < n; ++i) ++table[static_cast<std::size_t>(b.bucket[i] + 2)];
  stats.exact += table[1];
  stats.judged += n - table[0];
  for (int k = 0; k < kUlpBuckets; ++k) stats.ulps[static_cast<std::size_t>(k)] += table[static_cast<std::size_t>(k) + 2];
}

/// n elements from row-major index `at` on, as doubles.
void load(const TensorView& view, std::int64_t at, std::int64_t n, double* out) {
  if (view.is_dense()) return load_block(view, at, n, out);
  for (std::int64_t i = 0; i < n; ++i) load_block(view, view.offset(at + i), 1, out + i);
}

ShadowStats part(const TensorView& x, const TensorView& shadow, std::int64_t begin, std::int64_t end) {
  ShadowStats stats;
  const Limits limits(format(x.dtype));
  Block block;
  for (std::int64_t at = begin; at < end; at += kBlock) {
    const std::int64_t n = std::min<std::int64_t>(kBlock, end - at);
    load(x, at, n, block.x);
    load(shadow, at, n, block.shadow);
    count_block(block, n, limits, stats);
    count_buckets(block, n, stats);
  }
  stats.count = end - begin;
  return stats;
}

}  // namespace

void ShadowStats::merge(const ShadowStats& other) {
  count += other.count;
  shadow_not_zero += other.shadow_not_zero;
  flushed += other.flushed;
  subnormal_loss += other.subnormal_loss;
  became_subnormal += other.became_subnormal;
  saturated += other.saturated;
  non_finite_made += other.non_finite_made;
  non_finite_killed += other.non_finite_killed;
  exact += other.exact;
  for (std::size_t k = 0; k < ulps.size(); ++k) ulps[k] += other.ulps[k];
  judged += other.judged;
  error_sum += other.error_sum;
  square_sum_low += other.square_sum_low;
  square_sum_high += other.square_sum_high + (square_sum_low < other.square_sum_low ? 1 : 0);
  beyond += other.beyond;
  toward_zero += other.toward_zero;
  away_from_zero += other.away_from_zero;
}

double ShadowStats::bias() const {
  const std::int64_t n = judged - beyond;
  return n == 0 ? 0.0 : static_cast<double>(error_sum) / kUnits / static_cast<double>(n);
}

double ShadowStats::bias_z() const {
  const auto n = static_cast<double>(judged - beyond);
  if (n == 0.0 || error_sum == 0) return 0.0;
  const double squares = (std::ldexp(static_cast<double>(square_sum_high), 64) + static_cast<double>(square_sum_low)) / (kUnits * kUnits);
  const double mean = bias(), variance = squares / n - mean * mean;
  return variance <= 0.0 ? std::copysign(std::numeric_limits<double>::infinity(), mean) : mean / std::sqrt(variance / n);
}

ShadowStats shadow_stats(const TensorView& x, const TensorView& shadow) {
  if (!(x.shape == shadow.shape))
    throw Error("[shadow_stats] shadow, got shape " + shadow.shape.str() + ", want " + x.shape.str());
  if (!is_float(x.dtype) || x.dtype == Dtype::fp64)
    throw Error(std::string("[shadow_stats] tensor, got ") + name(x.dtype) + ", want a floating dtype below fp64");
  if (shadow.dtype != Dtype::fp64 && shadow.dtype != Dtype::fp32)
    throw Error(std::string("[shadow_stats] shadow, got ") + name(shadow.dtype) + ", want fp64 or fp32");
  if (threads() == 1 || x.count() <= kGrain) return part(x, shadow, 0, x.count());
  ShadowStats all;
  std::mutex mutex;
  parallel_for(x.count(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    const ShadowStats mine = part(x, shadow, begin, end);
    const std::lock_guard lock(mutex);
    all.merge(mine);
  });
  return all;
}

}  // namespace ampcheck
