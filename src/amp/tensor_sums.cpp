// SPDX-License-Identifier: Apache-2.0
// Exact sums: per sign and exponent field, how many elements and the sum of their fractions, in integers; then one long
// addition.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/amp/exponent_histogram.h"
#include "src/amp/tensor_stats.h"
#include "src/error.h"
#include "src/parallel.h"

namespace ampcheck {

namespace {

constexpr std::int64_t kGrain = 1 << 18;

/// Elements of one sign and exponent field: how many, and the sum of their fraction fields.
struct Bin {
  std::int64_t count = 0;
  unsigned __int128 fractions = 0;
};
using Bins = std::vector<Bin>;  // 2^exponent_bits of positive, then of negative sign

/// 16 and 32 bits: count and fractions share one 64-bit counter, so that an element costs one addition in memory;
/// several tables, so that equal neighbours do not wait for one another.
template <class Code, int kFraction>
class PackedCounters {
 public:
  void add(const Code* x, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
      const std::uint64_t code = x[i];
      tables_[static_cast<std::size_t>(i) % kTables][code >> kFraction] += kOne | (code & kFractionMask);
    }
    added_ += n;
  }
  bool full() const {
    return added_ + kScanBlock > std::int64_t{1} << 20;
  }  // fractions of 23 bits, 2^20 of them, stay below kOne
  void flush(Bins& bins) {
    for (auto& table : tables_)
      for (std::size_t bin = 0; bin < table.size(); ++bin) {
        bins[bin].count += static_cast<std::int64_t>(table[bin] >> kShift);
        bins[bin].fractions += table[bin] & (kOne - 1);
        table[bin] = 0;
      }
    added_ = 0;
  }

 private:
  static constexpr int kShift = 43;
  static constexpr std::uint64_t kOne = std::uint64_t{1} << kShift;
  static constexpr std::uint64_t kFractionMask = (std::uint64_t{1} << kFraction) - 1;
  static constexpr std::size_t kTables = 4, kBins = std::size_t{1} << (sizeof(Code) * 8 - kFraction);
  std::array<std::array<std::uint64_t, kBins>, kTables> tables_{};
  std::int64_t added_ = 0;
};

template <class Code, int kFraction>
void add_packed(const TensorView& view, std::int64_t begin, std::int64_t end, Bins& bins) {
  const auto counters = std::make_unique<PackedCounters<Code, kFraction>>();
  each_block<Code>(view, begin, end, [&](const Code* x, std::int64_t n) {
    if (counters->full()) counters->flush(bins);
    counters->add(x, n);
  });
  counters->flush(bins);
}

template <class Code>
void add_plain(const TensorView& view, std::int64_t begin, std::int64_t end, Bins& bins) {
  const FloatFormat& f = format(view.dtype);
  const int fraction = f.fraction_bits();
  each_block<Code>(view, begin, end, [&](const Code* x, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
      if ((x[i] & f.magnitude_mask()) > f.max_code()) continue;
      Bin& bin = bins[static_cast<std::size_t>(x[i] >> fraction)];
      ++bin.count;
      bin.fractions += x[i] & ((std::uint64_t{1} << fraction) - 1);
    }
  });
}

void add_part(const TensorView& view, std::int64_t begin, std::int64_t end, Bins& bins) {
  switch (view.dtype) {
    case Dtype::fp32: return add_packed<std::uint32_t, 23>(view, begin, end, bins);
    case Dtype::fp16: return add_packed<std::uint16_t, 10>(view, begin, end, bins);
    case Dtype::bf16: return add_packed<std::uint16_t, 7>(view, begin, end, bins);
    case Dtype::fp64: return add_plain<std::uint64_t>(view, begin, end, bins);
    default: return add_plain<std::uint8_t>(view, begin, end, bins);
  }
}

/// A signed number of many 32-bit digits; digit 0 has weight 2^lowest.
class LongSum {
 public:
  LongSum(int lowest, int bits) : lowest_(lowest), digits_(static_cast<std::size_t>(bits / 32 + 2), 0) {}

  /// Adds +-value * 2^exponent, exponent >= lowest.
  void add(unsigned __int128 value, int exponent, bool negative) {
    const int shift = exponent - lowest_;
    auto digit = static_cast<std::size_t>(shift / 32);
    // The low part may not lose bits by the shift inside a digit: feed 64 bits at a time.
    for (int part = 0; part < 2; ++part, digit += 2) {
      const unsigned __int128 piece = static_cast<unsigned __int128>(static_cast<std::uint64_t>(value >> (64 * part)))
                                      << (shift % 32);
      for (std::size_t k = 0; k < 3; ++k) {
        const auto word = static_cast<std::int64_t>(static_cast<std::uint32_t>(piece >> (32 * k)));
        if (word != 0) digits_[digit + k] += negative ? -word : word;
      }
    }
  }

  double rounded() {
    bool negative = carry();
    if (negative) {
      for (std::int64_t& digit : digits_) digit = -digit;
      carry();
    }
    std::size_t top = digits_.size();
    while (top > 0 && digits_[top - 1] == 0) --top;
    if (top == 0) return 0.0;
    // 96 leading bits, the last of them sticky: enough for one rounding to 53.
    unsigned __int128 leading = 0;
    const std::size_t used = std::min<std::size_t>(top, 3);
    for (std::size_t k = 0; k < used; ++k) leading = (leading << 32) | static_cast<std::uint32_t>(digits_[top - 1 - k]);
    for (std::size_t k = 0; k + used < top; ++k)
      if (digits_[k] != 0) leading |= 1;
    const auto weight = lowest_ + 32 * static_cast<int>(top - used);
    return std::ldexp(to_double(leading), weight) * (negative ? -1.0 : 1.0);
  }

 private:
  /// Makes every digit but the highest 0 .. 2^32 - 1; whether the number is negative.
  bool carry() {
    std::int64_t over = 0;
    for (std::size_t k = 0; k + 1 < digits_.size(); ++k) {
      const std::int64_t value = digits_[k] + over;
      digits_[k] = static_cast<std::int64_t>(static_cast<std::uint32_t>(value));
      over = value >> 32;
    }
    digits_.back() += over;
    return digits_.back() < 0;
  }
  static double to_double(unsigned __int128 value) {
    int shift = 0;
    while ((value >> shift) >> 62 != 0) ++shift;
    auto top = static_cast<std::uint64_t>(value >> shift);
    if ((value & ((static_cast<unsigned __int128>(1) << shift) - 1)) != 0) top |= 1;
    return std::ldexp(static_cast<double>(top), shift);
  }

  int lowest_;
  std::vector<std::int64_t> digits_;
};

double exact_sum(const Bins& bins, const FloatFormat& format, bool magnitudes) {
  const int fraction = format.fraction_bits();
  const auto exponents = static_cast<int>(bins.size() / 2);
  const int lowest = format.min_exponent() - fraction;
  LongSum sum(lowest, exponents + fraction + 160);
  const int finite = format.has_infinity() ? exponents - 1 : exponents;
  for (int sign = 0; sign < 2; ++sign)
    for (int field = 0; field < finite; ++field) {
      const Bin& bin = bins[static_cast<std::size_t>(sign * exponents + field)];
      if (bin.count == 0) continue;
      unsigned __int128 value = bin.fractions;
      if (field > 0) value += static_cast<unsigned __int128>(bin.count) << fraction;
      sum.add(value, lowest + std::max(field, 1) - 1, sign == 1 && !magnitudes);
    }
  return sum.rounded();
}

}  // namespace

double TensorSums::cancellation_bits() const { return abs_sum == 0.0 ? 0.0 : std::log2(abs_sum / std::fabs(sum)); }

TensorSums tensor_sums(const TensorView& view) {
  if (!is_float(view.dtype))
    throw Error(std::string("[tensor_sums] dtype, got ") + name(view.dtype) + ", want a floating one");
  const FloatFormat& f = format(view.dtype);
  Bins all(std::size_t{2} << f.exponent_bits);
  std::mutex mutex;
  parallel_for(view.count(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    Bins mine(all.size());
    add_part(view, begin, end, mine);
    const std::lock_guard lock(mutex);
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i].count += mine[i].count;
      all[i].fractions += mine[i].fractions;
    }
  });
  return {exact_sum(all, f, false), exact_sum(all, f, true)};
}

}  // namespace ampcheck
