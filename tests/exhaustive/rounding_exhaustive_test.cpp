// SPDX-License-Identifier: Apache-2.0
// All 2^32 floats into fp16, bf16, e4m3fn and e5m2, in every deterministic rounding mode, against the integer oracle.
//
// Rounding is monotone, so over consecutive bit patterns of one sign the oracle's codes form runs. The bulk conversion
// is run on every float, its runs of equal codes are found, and the oracle is evaluated at both ends of every run:
// equal there means equal between, by monotonicity of the oracle. All NaN patterns are one run of their own.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "src/rounding.h"
#include "tests/support/rounding_oracle.h"

namespace ampcheck {
void PrintTo(const FloatFormat& f, std::ostream* out) { *out << f.name; }

namespace {

using tests::RoundingOracle;

constexpr std::uint64_t kBlock = std::uint64_t{1} << 20;
constexpr std::uint64_t kBlocks = (std::uint64_t{1} << 32) / kBlock;

struct Result {
  std::uint64_t compared = 0;
  std::uint64_t runs = 0;
  std::uint64_t bad_runs = 0;
  std::string first;
};

double value_of(std::uint64_t pattern) {
  return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(pattern)));
}

/// Where the class of the pattern changes: +0.. | +inf | +NaN.. | -0.. | -inf | -NaN..; runs never cross these.
bool starts_class(std::uint64_t pattern) {
  const std::uint64_t magnitude = pattern & 0x7fffffffu;
  return magnitude == 0 || magnitude == 0x7f800000u || magnitude == 0x7f800001u;
}

void check_run(const RoundingOracle& oracle, const FloatFormat& format, const RoundingMode& mode, std::uint64_t first,
               std::uint64_t last, std::uint64_t code, Result& result) {
  ++result.runs;
  result.compared += last - first + 1;
  const std::uint64_t want_first = oracle.encode(value_of(first), mode);
  const std::uint64_t want_last = oracle.encode(value_of(last), mode);
  if (want_first == code && want_last == code) return;
  if (result.bad_runs++ == 0) {
    char text[160];
    std::snprintf(text, sizeof text, "%s, rounding %d: patterns %08llx to %08llx got %llx, want %llx and %llx",
                  std::string(format.name).c_str(), static_cast<int>(mode.rounding),
                  static_cast<unsigned long long>(first), static_cast<unsigned long long>(last),
                  static_cast<unsigned long long>(code), static_cast<unsigned long long>(want_first),
                  static_cast<unsigned long long>(want_last));
    result.first = text;
  }
}

template <class Code>
void check_block(const RoundingOracle& oracle, const FloatFormat& format, const RoundingMode& mode, std::uint64_t block,
                 std::vector<float>& in, std::vector<Code>& out, Result& result) {
  const std::uint64_t base = block * kBlock;
  for (std::uint64_t i = 0; i < kBlock; ++i) in[i] = std::bit_cast<float>(static_cast<std::uint32_t>(base + i));
  encode(format, mode, std::span<const float>(in), out.data());
  std::uint64_t start = 0;
  for (std::uint64_t i = 1; i < kBlock; ++i) {
    if (out[i] == out[start] && !starts_class(base + i)) continue;
    check_run(oracle, format, mode, base + start, base + i - 1, out[start], result);
    start = i;
  }
  check_run(oracle, format, mode, base + start, base + kBlock - 1, out[start], result);
}

template <class Code>
Result check_all_floats(const FloatFormat& format, const RoundingMode& mode) {
  const RoundingOracle oracle(format);
  std::atomic<std::uint64_t> next{0};
  std::mutex mutex;
  Result total;
  const auto work = [&] {
    std::vector<float> in(kBlock);
    std::vector<Code> out(kBlock);
    Result mine;
    for (std::uint64_t block = next++; block < kBlocks; block = next++)
      check_block(oracle, format, mode, block, in, out, mine);
    const std::lock_guard lock(mutex);
    total.compared += mine.compared;
    total.runs += mine.runs;
    total.bad_runs += mine.bad_runs;
    if (total.first.empty()) total.first = mine.first;
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  return total;
}

class AllFloats : public testing::TestWithParam<FloatFormat> {};
INSTANTIATE_TEST_SUITE_P(Formats, AllFloats, testing::Values(kFp16, kBf16, kE4m3fn, kE5m2),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(AllFloats, EveryDeterministicRounding) {
  const FloatFormat format = GetParam();
  for (const Rounding rounding : {Rounding::nearest_even, Rounding::toward_zero, Rounding::up, Rounding::down,
                                  Rounding::nearest_away, Rounding::to_odd}) {
    const auto start = std::chrono::steady_clock::now();
    const Result result = format.storage_bytes() == 2 ? check_all_floats<std::uint16_t>(format, {rounding})
                                                      : check_all_floats<std::uint8_t>(format, {rounding});
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf("%s, rounding %d: compared %llu floats in %llu runs, %.1f s, target %s\n",
                std::string(format.name).c_str(), static_cast<int>(rounding),
                static_cast<unsigned long long>(result.compared), static_cast<unsigned long long>(result.runs), seconds,
                std::string(simd_target()).c_str());
    EXPECT_EQ(result.compared, std::uint64_t{1} << 32);
    EXPECT_EQ(result.bad_runs, 0u) << result.first;
  }
}

// The run check must be able to fail: the codes of one rounding mode against the oracle of another.
TEST(AllFloatsCheck, SeesAWrongMode) {
  const RoundingOracle oracle(kE4m3fn);
  std::vector<float> in(kBlock);
  std::vector<std::uint8_t> out(kBlock);
  const std::uint64_t block = 0x3f800000u / kBlock;
  Result right, wrong;
  check_block(oracle, kE4m3fn, {Rounding::nearest_even}, block, in, out, right);
  EXPECT_EQ(right.bad_runs, 0u);
  std::uint64_t up = 0;  // the first pattern that nearest_even rounds up and toward_zero does not
  while (out[up] == out[0]) ++up;
  check_run(oracle, kE4m3fn, {Rounding::toward_zero}, 0x3f800000u + up, 0x3f800000u + up, out[up], wrong);
  EXPECT_EQ(wrong.bad_runs, 1u);
}

}  // namespace
}  // namespace ampcheck
