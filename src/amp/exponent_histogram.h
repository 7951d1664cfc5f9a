// SPDX-License-Identifier: Apache-2.0
// Counting exponent fields.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "src/amp/stats_scan.h"
#include "src/tensor.h"

namespace ampcheck {

/// Calls body(codes, n) for blocks of elements [begin, end) in row-major order, gathered where the view is not dense.
template <class Code, class Body>
void each_block(const TensorView& view, std::int64_t begin, std::int64_t end, const Body& body) {
  const bool dense = view.is_dense();
  std::array<Code, kScanBlock> gathered;
  for (std::int64_t at = begin; at < end; at += kScanBlock) {
    const std::int64_t n = std::min(kScanBlock, end - at);
    if (dense) {
      body(view.as<const Code>() + at, n);
      continue;
    }
    for (std::int64_t i = 0; i < n; ++i) gathered[static_cast<std::size_t>(i)] = view.as<const Code>()[view.offset(at + i)];
    body(gathered.data(), n);
  }
}

/// Any width; codes whose magnitude exceeds `max_code` (NaN of a format without infinity) are left out.
template <class Code>
class PlainHistogram {
 public:
  PlainHistogram(int fraction, int exponent, std::uint64_t max_code)
      : fraction_(fraction), fields_(std::size_t{1} << exponent), max_code_(max_code), magnitude_((std::uint64_t{1} << (fraction + exponent)) - 1),
        counts_(kTables * fields_) {}
  void add(const Code* x, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
      const std::uint64_t magnitude = x[i] & magnitude_;
      if (magnitude <= max_code_) ++counts_[(static_cast<std::size_t>(i) % kTables) * fields_ + (magnitude >> fraction_)];
    }
  }
  void add_to(std::vector<std::int64_t>& exponents) const {
    for (std::size_t table = 0; table < kTables; ++table)
      for (std::size_t field = 0; field < fields_; ++field) exponents[field] += counts_[table * fields_ + field];
  }

 private:
  static constexpr std::size_t kTables = 4;  // equal neighbours do not wait for one another
  int fraction_;
  std::size_t fields_;
  std::uint64_t max_code_, magnitude_;
  std::vector<std::int64_t> counts_;
};

/// fp16, bf16 and fp32: the fields of a block as bytes, of which the values between the smallest and the largest are counted sixteen at a time:
/// some fifteen to fifty in most blocks, which no table in memory comes up to.
template <class Code, int kFraction, int kExponent>
class FieldHistogram {
 public:
  void add(const Code* x, std::int64_t n) {
    for (std::int64_t at = 0; at < n; at += kScanBlock) add_block(x + at, std::min(kScanBlock, n - at));
  }
  void add_to(std::vector<std::int64_t>& exponents) const {
    for (std::size_t field = 0; field <= kField; ++field) exponents[field] += counts_[field];
  }
  /// Values between the smallest and the largest of these.
  static int values(const Code* x, std::int64_t n) {
    int highest = 0, lowest = static_cast<int>(kField);
    for (std::int64_t i = 0; i < n; ++i) {
      const auto field = static_cast<int>((x[i] >> kFraction) & kField);
      highest = std::max(highest, field), lowest = field == 0 ? lowest : std::min(lowest, field);
    }
    return highest - lowest + 1;
  }

 private:
  static constexpr std::uint32_t kField = (1u << kExponent) - 1;
  static constexpr int kMostValues = 80;          // of more, as of what is not finite beside small numbers, one by one
  static constexpr std::int64_t kFewest = 256;    // bytes, from which on many are counted at once

  void add_block(const Code* x, std::int64_t n) {
    alignas(64) std::uint8_t fields[kScanBlock];
    std::uint8_t highest = 0, lowest = 255;  // lowest: but for 0, less one
    for (std::int64_t i = 0; i < n; ++i) fields[i] = static_cast<std::uint8_t>((x[i] >> kFraction) & kField);
    for (std::int64_t i = 0; i < n; ++i) {
      const auto below = static_cast<std::uint8_t>(fields[i] - 1);
      highest = fields[i] > highest ? fields[i] : highest, lowest = below < lowest ? below : lowest;
    }
    if (highest - lowest > kMostValues || n < kFewest) {
      for (std::int64_t i = 0; i < n; ++i) ++counts_[fields[i]];
      return;
    }
    const std::int64_t whole = (n + kCountedBytes - 1) / kCountedBytes * kCountedBytes;
    std::fill(fields + n, fields + whole, std::uint8_t{0});
    std::int64_t found = 0;  // of all but 0
    for (int first = lowest + 1; first <= highest; first += 16) {
      std::int64_t of[16];
      count_sixteen(fields, whole, first, of);
      for (int v = 0; v < std::min(16, static_cast<int>(kField) + 1 - first); ++v) counts_[static_cast<std::size_t>(first + v)] += of[v], found += of[v];
    }
    counts_[0] += n - found;
  }

  std::array<std::int64_t, kField + 1> counts_{};
};

/// bf16 and fp32 with many binades in a block: one counter per pair of fields.
template <class Code, int kFraction, int kExponent>
class PairHistogram {
 public:
  /// Elements from which on the tables (2^(2 exponent bits) counters, twice) are soon paid for.
  static constexpr std::int64_t kWorthIt = 1 << 22;

  void add(const Code* x, std::int64_t n) {
    constexpr std::int64_t kLine = 64 / static_cast<std::int64_t>(sizeof(Code)), kWord = 8 / static_cast<std::int64_t>(sizeof(Code));
    std::array<std::uint32_t*, kTables> tables;
    for (std::size_t t = 0; t < kTables; ++t) tables[t] = tables_[t].data();
    std::int64_t i = 0;
    for (; i + kLine <= n; i += kLine) {
      __builtin_prefetch(reinterpret_cast<const char*>(x + i) + kPrefetch);
      for (std::int64_t k = 0; k < kLine; k += 2 * kWord) {
        std::uint64_t word[2];
        std::memcpy(word, x + i + k, sizeof word);
        const std::uint64_t first = pairs_of(word[0]), second = pairs_of(word[1]);
        if constexpr (sizeof(Code) == 2) {
          ++tables[0][first & kPair];
          ++tables[1][first >> 32 & kPair];
          ++tables[0][second & kPair];
          ++tables[1][second >> 32 & kPair];
        } else {
          ++tables[0][first & kPair];
          ++tables[1][second & kPair];
        }
      }
    }
    for (; i < n; ++i) ++single_[(x[i] >> kFraction) & kField];
    added_ += n;
    if (added_ >= kFold) fold();
  }
  void add_to(std::vector<std::int64_t>& exponents) {
    fold();
    for (std::size_t field = 0; field <= kField; ++field) exponents[field] += single_[field];
  }

 private:
  static constexpr std::uint64_t kField = (std::uint64_t{1} << kExponent) - 1;
  static constexpr std::uint64_t kPair = (std::uint64_t{1} << (2 * kExponent)) - 1;
  static constexpr std::int64_t kFold = std::int64_t{1} << 31;  // before a 32-bit counter could overflow
  static constexpr std::size_t kPrefetch = 2 * kScanBlock * sizeof(Code);
  static constexpr std::uint64_t kFields = kField * (sizeof(Code) == 2 ? 0x0001000100010001u : 0x0000000100000001u);

  /// Two neighbouring fields side by side, of 16 bits two such pairs, the second from bit 32 on. By shifts: pext is microcode on older AMD processors,
  /// where it takes thirty times as long as all of this.
  static std::uint64_t pairs_of(std::uint64_t word) {
    const std::uint64_t fields = word >> kFraction & kFields;
    return fields | fields >> (8 * sizeof(Code) - kExponent);
  }

  static constexpr std::size_t kTables = 2;  // equal neighbours do not wait for one another
  using Table = std::vector<std::uint32_t>;
  static std::array<Table, kTables> empty_tables() {
    std::array<Table, kTables> tables;
    tables.fill(Table(kPair + 1));
    return tables;
  }
  void fold() {
    for (std::size_t pair = 0; pair <= kPair; ++pair) {
      std::int64_t all = 0;
      for (Table& table : tables_) all += table[pair];
      single_[pair & kField] += all;
      single_[pair >> kExponent] += all;
    }
    for (Table& table : tables_) std::fill(table.begin(), table.end(), 0u);
    added_ = 0;
  }

  std::array<Table, kTables> tables_ = empty_tables();
  std::array<std::int64_t, kField + 1> single_{};
  std::int64_t added_ = 0;
};

}  // namespace ampcheck
