// SPDX-License-Identifier: Apache-2.0
#include "src/amp/tensor_stats.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <mutex>
#include <string>

#include "src/amp/exponent_histogram.h"
#include "src/amp/stats_scan.h"
#include "src/error.h"
#include "src/parallel.h"
#include "src/rounding.h"

namespace ampcheck {

namespace {

constexpr std::int64_t kGrain = 1 << 18;

/// Derives the classes from the scan and the exponents.
void finish(const CodeScan& scan, std::int64_t n, const FloatFormat& format, TensorStats& stats) {
  const std::int64_t lowest = stats.exponents.front(), highest = stats.exponents.back();
  stats.count = n;
  stats.zeros = scan.zeros;
  stats.subnormals = lowest - scan.zeros;
  stats.nans = scan.nans;
  stats.negatives = scan.negatives;
  stats.at_max = scan.at_max;
  stats.normals = n - lowest - (format.has_infinity() ? highest : scan.nans);
  stats.largest_code = scan.largest;
  stats.largest_finite_code = scan.largest_finite;
  stats.smallest_code = scan.smallest;
}

template <class Code>
void count_infinities(const TensorView& view, std::int64_t begin, std::int64_t end, const FloatFormat& format,
                      TensorStats& stats) {
  if (!format.has_infinity() || stats.exponents.back() == stats.nans) return;
  const auto positive = static_cast<Code>(format.infinity_code()),
             negative = static_cast<Code>(positive | format.sign_code());
  each_block<Code>(view, begin, end, [&](const Code* x, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
      stats.positive_infinities += x[i] == positive;
      stats.negative_infinities += x[i] == negative;
    }
  });
}

template <class Code, class Histogram>
TensorStats part_of(const TensorView& view, std::int64_t begin, std::int64_t end, Histogram& histogram) {
  const FloatFormat& format = ampcheck::format(view.dtype);
  TensorStats stats(view.dtype);
  CodeScan scan;
  const ScanLimits limits{format.magnitude_mask(), format.has_infinity() ? format.infinity_code() : format.max_code(),
                          format.max_code()};
  each_block<Code>(view, begin, end, [&](const Code* x, std::int64_t n) {
    scan_codes(x, n, limits, scan);
    histogram.add(x, n);
  });
  histogram.add_to(stats.exponents);
  finish(scan, end - begin, format, stats);
  count_infinities<Code>(view, begin, end, format, stats);
  return stats;
}

template <class Code, int kFraction, int kExponent>
TensorStats part_with(const TensorView& view, std::int64_t begin, std::int64_t end) {
  using Fields = FieldHistogram<Code, kFraction, kExponent>;
  if constexpr (kExponent == 8) {
    constexpr int kMany = 24;
    if (end - begin >= PairHistogram<Code>::kWorthIt && view.is_dense() &&
        Fields::values(view.as<const Code>() + begin, kScanBlock) > kMany) {
      PairHistogram<Code> pairs;
      return part_of<Code>(view, begin, end, pairs);
    }
  }
  Fields fields;
  return part_of<Code>(view, begin, end, fields);
}

template <class Code>
TensorStats plain_part(const TensorView& view, std::int64_t begin, std::int64_t end) {
  const FloatFormat& format = ampcheck::format(view.dtype);
  PlainHistogram<Code> plain(format.fraction_bits(), format.exponent_bits,
                             format.has_infinity() ? std::numeric_limits<std::uint64_t>::max() : format.max_code());
  return part_of<Code>(view, begin, end, plain);
}

TensorStats part(const TensorView& view, std::int64_t begin, std::int64_t end) {
  switch (view.dtype) {
    case Dtype::fp32: return part_with<std::uint32_t, 23, 8>(view, begin, end);
    case Dtype::fp16: return part_with<std::uint16_t, 10, 5>(view, begin, end);
    case Dtype::bf16: return part_with<std::uint16_t, 7, 8>(view, begin, end);
    case Dtype::fp64: return plain_part<std::uint64_t>(view, begin, end);
    default: return plain_part<std::uint8_t>(view, begin, end);
  }
}

/// Exponent of a non-zero finite number of this magnitude: floor(log2).
int binade(double magnitude) { return std::ilogb(magnitude); }

/// Largest s with magnitude * 2^s <= limit, both positive.
int largest_shift(double magnitude, double limit) {
  const int s = binade(limit) - binade(magnitude);
  return std::ldexp(magnitude, s) <= limit ? s : s - 1;
}

}  // namespace

TensorStats::TensorStats(Dtype stored) : dtype(stored) {
  if (!is_float(stored))
    throw Error(std::string("[tensor_stats] dtype, got ") + name(stored) + ", want a floating one");
  exponents.resize(std::size_t{1} << format(stored).exponent_bits);
}

void TensorStats::merge(const TensorStats& other) {
  if (other.dtype != dtype)
    throw Error(std::string("[tensor_stats] merge, got ") + name(other.dtype) + ", want " + name(dtype));
  count += other.count;
  zeros += other.zeros;
  subnormals += other.subnormals;
  normals += other.normals;
  positive_infinities += other.positive_infinities;
  negative_infinities += other.negative_infinities;
  nans += other.nans;
  at_max += other.at_max;
  largest_code = std::max(largest_code, other.largest_code);
  largest_finite_code = std::max(largest_finite_code, other.largest_finite_code);
  smallest_code = std::min(smallest_code, other.smallest_code);
  negatives += other.negatives;
  for (std::size_t i = 0; i < exponents.size(); ++i) exponents[i] += other.exponents[i];
}

double TensorStats::amax() const { return std::fabs(decode_scalar(format(dtype), largest_code)); }
double TensorStats::amax_finite() const { return decode_scalar(format(dtype), largest_finite_code); }
double TensorStats::amin() const {
  return smallest_code == std::numeric_limits<std::uint64_t>::max() ? 0.0 : decode_scalar(format(dtype), smallest_code);
}

std::int64_t TensorStats::with_exponent(int exponent) const {
  const FloatFormat& f = format(dtype);
  const int field = exponent + f.bias;
  if (field < 0 || exponent > f.max_exponent()) return 0;
  return field == 0 ? subnormals : exponents[static_cast<std::size_t>(field)];
}

std::optional<int> TensorStats::headroom() const {
  if (amin() == 0.0) return std::nullopt;
  return format(dtype).max_exponent() - binade(amax_finite());
}

std::optional<int> TensorStats::footroom() const {
  if (amin() == 0.0) return std::nullopt;
  return binade(amin()) - format(dtype).min_exponent();
}

std::optional<ScaleWindow> TensorStats::scale_window(const FloatFormat& target, bool normal_only) const {
  if (amin() == 0.0) return std::nullopt;
  ScaleWindow window;
  window.last = largest_shift(amax_finite(), target.max_finite());
  if (normal_only) {
    window.first = -largest_shift(target.min_normal(), amin());
  } else {
    // Zero is what rounds to it: |x| 2^s <= min_subnormal / 2, the tie included.
    const int highest_flushed = largest_shift(amin(), target.min_subnormal() / 2);
    window.first = highest_flushed + 1;
  }
  return window;
}

std::int64_t TensorStats::flushed_at(const FloatFormat& target, int s) const {
  const int edge = binade(target.min_subnormal()) - 1 - s;  // binades below this one round to zero
  const FloatFormat& f = format(dtype);
  std::int64_t flushed = 0;
  for (int e = f.min_exponent() - 1; e < edge && e <= f.max_exponent(); ++e) flushed += with_exponent(e);
  return flushed;
}

std::int64_t TensorStats::overflowed_at(const FloatFormat& target, int s) const {
  const FloatFormat& f = format(dtype);
  std::int64_t overflowed = 0;
  for (int e = std::max(target.max_exponent() + 1 - s, f.min_exponent()); e <= f.max_exponent(); ++e)
    overflowed += with_exponent(e);
  return overflowed;
}

namespace {

/// Adds the subnormal numbers of an fp16 tensor by the exponent fields that they have in fp32.
void count_subnormals(const std::uint16_t* codes, std::int64_t n, std::vector<std::int64_t>& exponents) {
  constexpr std::int64_t kPart = 256;
  constexpr int kLeast = 127 - 24;  // field of 2^-24
  const auto is_subnormal = [](std::uint16_t code) { return static_cast<std::uint16_t>((code & 0x7fff) - 1) < 0x3ff; };
  for (std::int64_t at = 0; at < n; at += kPart) {
    const std::int64_t end = std::min(n, at + kPart);
    std::uint16_t any = 0;
    for (std::int64_t i = at; i < end; ++i) any |= is_subnormal(codes[i]) ? std::uint16_t{1} : std::uint16_t{0};
    for (std::int64_t i = at; any != 0 && i < end; ++i)
      if (is_subnormal(codes[i]))
        ++exponents[static_cast<std::size_t>(kLeast + std::bit_width(static_cast<unsigned>(codes[i] & 0x7fff)) - 1)];
  }
}

}  // namespace

std::optional<TensorStats> widened_stats(const TensorStats& stats, const TensorView& source) {
  constexpr std::int64_t kRare = 1000;
  const bool fp16 = stats.dtype == Dtype::fp16;
  if ((!fp16 && stats.dtype != Dtype::bf16) || source.dtype != stats.dtype || source.count() != stats.count ||
      !source.is_dense())
    return std::nullopt;
  if (stats.nans > 0 || (fp16 && stats.subnormals * kRare > stats.count)) return std::nullopt;
  const FloatFormat& f = format(stats.dtype);
  TensorStats out(Dtype::fp32);
  out.count = stats.count;
  out.zeros = stats.zeros;
  out.negatives = stats.negatives;
  out.positive_infinities = stats.positive_infinities;
  out.negative_infinities = stats.negative_infinities;
  const auto widened = [&](std::uint64_t code) { return encode_scalar(kFp32, decode_scalar(f, code)); };
  out.largest_code = widened(stats.largest_code);
  out.largest_finite_code = widened(stats.largest_finite_code);
  if (stats.smallest_code <= f.max_code()) out.smallest_code = widened(stats.smallest_code);
  if (fp16) {
    const auto shift = static_cast<std::size_t>(kFp32.bias - f.bias);
    out.exponents.front() = stats.zeros;
    out.exponents.back() = stats.exponents.back();
    for (std::size_t field = 1; field + 1 < stats.exponents.size(); ++field)
      out.exponents[field + shift] = stats.exponents[field];
    if (stats.subnormals > 0) count_subnormals(source.as<const std::uint16_t>(), stats.count, out.exponents);
  } else {
    out.exponents = stats.exponents;
    out.subnormals = stats.subnormals;
  }
  out.normals = out.count - out.zeros - out.subnormals - out.infinities();
  return out;
}

TensorStats tensor_stats(const TensorView& view) {
  TensorStats all(view.dtype);
  if (threads() == 1 || view.count() <= kGrain) return part(view, 0, view.count());
  std::mutex mutex;
  parallel_for(view.count(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    const TensorStats mine = part(view, begin, end);
    const std::lock_guard lock(mutex);
    all.merge(mine);
  });
  return all;
}

}  // namespace ampcheck
