// SPDX-License-Identifier: Apache-2.0
#include "src/rounding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "src/error.h"
#include "tests/support/rounding_oracle.h"
#include "tests/support/sanitized.h"

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace ampcheck {
namespace {

using tests::RoundingOracle;

constexpr Rounding kDeterministic[] = {Rounding::nearest_even, Rounding::toward_zero,  Rounding::up,
                                       Rounding::down,         Rounding::nearest_away, Rounding::to_odd};
constexpr Overflow kOverflows[] = {Overflow::format_default, Overflow::infinity, Overflow::nan, Overflow::saturate};

std::vector<RoundingMode> default_modes() {
  std::vector<RoundingMode> modes;
  for (const Rounding rounding : kDeterministic) modes.push_back({rounding});
  return modes;
}

std::vector<RoundingMode> all_modes() {
  std::vector<RoundingMode> modes;
  for (const Rounding rounding : kDeterministic)
    for (const Overflow overflow : kOverflows)
      for (const Subnormals subnormals : {Subnormals::keep, Subnormals::flush})
        modes.push_back({rounding, overflow, subnormals});
  return modes;
}

/// Counter-based, so that a failure can be repeated.
std::uint64_t random_bits(std::uint64_t counter) {
  std::uint64_t z = counter * 0x9e3779b97f4a7c15u + 0x1234567;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

std::uint64_t packed_code(const std::vector<std::uint8_t>& data, std::size_t i, std::size_t bytes) {
  std::uint64_t code = 0;
  std::memcpy(&code, data.data() + i * bytes, bytes);
  return code;
}

bool same_bits(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); }

/// Counts differences and keeps the first one as text.
struct Mismatches {
  std::size_t count = 0;
  std::string first;
  void add(const FloatFormat& format, const RoundingMode& mode, const char* path, double x, std::uint64_t got,
           std::uint64_t want) {
    if (count++ != 0) return;
    char text[200];
    std::snprintf(text, sizeof text, "%s, rounding %d, overflow %d, subnormals %d, %s: x = %a, got %llx, want %llx",
                  std::string(format.name).c_str(), static_cast<int>(mode.rounding), static_cast<int>(mode.overflow),
                  static_cast<int>(mode.subnormals), path, x, static_cast<unsigned long long>(got),
                  static_cast<unsigned long long>(want));
    first = text;
  }
};

/// All paths for these inputs against the oracle: scalar, bulk, values, in the SIMD target set at the moment.
template <class T>
void compare_bulk(const FloatFormat& format, const RoundingMode& mode, const std::vector<T>& in,
                  const std::vector<std::uint64_t>& want, Mismatches& bad) {
  const auto bytes = static_cast<std::size_t>(format.storage_bytes());
  std::vector<std::uint8_t> out(in.size() * bytes);
  encode(format, mode, std::span<const T>(in), out.data());
  const char* path = sizeof(T) == 4 ? "from fp32" : "from fp64";
  for (std::size_t i = 0; i < in.size(); ++i)
    if (packed_code(out, i, bytes) != want[i])
      bad.add(format, mode, path, static_cast<double>(in[i]), packed_code(out, i, bytes), want[i]);
}

void compare_values(const FloatFormat& format, const RoundingMode& mode, const std::vector<double>& in,
                    const std::vector<std::uint64_t>& codes, Mismatches& bad) {
  std::vector<double> out(in.size());
  round_values(format, mode, in, out);
  for (std::size_t i = 0; i < in.size(); ++i) {
    const double want = decode_scalar(format, codes[i]);
    if (!same_bits(out[i], want))
      bad.add(format, mode, "values", in[i], std::bit_cast<std::uint64_t>(out[i]), std::bit_cast<std::uint64_t>(want));
  }
}

void compare(const FloatFormat& format, const std::vector<RoundingMode>& modes, const std::vector<double>& in,
             Mismatches& bad) {
  const RoundingOracle oracle(format);
  std::vector<float> floats;
  std::vector<double> as_double;
  for (const double x : in) {
    floats.push_back(static_cast<float>(x));  // any float will do: the oracle sees the same one
    as_double.push_back(static_cast<double>(floats.back()));
  }
  std::vector<std::uint64_t> want(in.size());
  std::vector<std::uint64_t> want_float(in.size());
  for (const RoundingMode& mode : modes) {
    for (std::size_t i = 0; i < in.size(); ++i) {
      want[i] = oracle.encode(in[i], mode);
      want_float[i] = oracle.encode(as_double[i], mode);
      const std::uint64_t scalar = encode_scalar(format, in[i], mode, i);
      if (scalar != want[i]) bad.add(format, mode, "scalar", in[i], scalar, want[i]);
    }
    compare_bulk(format, mode, in, want, bad);
    compare_bulk(format, mode, floats, want_float, bad);
    compare_values(format, mode, in, want, bad);
  }
}

void add_with_neighbours(std::vector<double>& out, double x) {
  const float f = static_cast<float>(x);
  constexpr float kMaxFloat = std::numeric_limits<float>::infinity();
  for (const double sign : {1.0, -1.0}) {
    out.push_back(sign * x);
    out.push_back(sign * std::nextafter(x, HUGE_VAL));
    out.push_back(sign * std::nextafter(x, -HUGE_VAL));
    out.push_back(sign * static_cast<double>(std::nextafter(f, kMaxFloat)));
    out.push_back(sign * static_cast<double>(std::nextafter(f, -kMaxFloat)));
  }
}

/// Numbers that are awkward for every format.
std::vector<double> special_inputs() {
  std::vector<double> in;
  for (const double x : {0.0, 0x1p-1074, 0x1p-1022, 0x1p-149, 0x1p-150, 0x1p-126, 0x1p-127, 1.0, 1.5, 3.0,
                         0x1.fffffep127, 0x1.ffffffp127, 0x1p128, std::numeric_limits<double>::max(), HUGE_VAL})
    add_with_neighbours(in, x);
  for (const std::uint64_t bits : {0x7ff8000000000000u, 0x7ff0000000000001u, 0x7ff4000000000000u, 0x7fffffffffffffffu})
    for (const std::uint64_t sign : {std::uint64_t{0}, std::uint64_t{1} << 63})
      in.push_back(std::bit_cast<double>(bits | sign));
  return in;
}

/// Magnitude codes whose values, upper midpoints and quarter points are tried: all of a format up to 16 bits, else the
/// ends of every binade.
std::vector<std::uint64_t> interesting_codes(const FloatFormat& format) {
  std::vector<std::uint64_t> codes;
  if (format.bits() <= 16) {
    for (std::uint64_t code = 0; code <= format.max_code(); ++code) codes.push_back(code);
    return codes;
  }
  const std::uint64_t binade = std::uint64_t{1} << format.fraction_bits();
  for (std::uint64_t base = 0; base <= format.max_code(); base += binade)
    for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{1}, binade / 2, binade - 2, binade - 1})
      codes.push_back(std::min(base + offset, format.max_code()));
  return codes;
}

/// The numbers at these codes, the midpoints above them (past max_finite: the overflow threshold), all with neighbours.
std::vector<double> boundary_inputs(const FloatFormat& format, const std::vector<std::uint64_t>& codes) {
  std::vector<double> in;
  for (const std::uint64_t code : codes) {
    const double low = decode_scalar(format, code << format.storage_shift());
    const int shift = format.storage_shift();
    const double step = code < format.max_code() ? decode_scalar(format, (code + 1) << shift) - low
                                                 : low - decode_scalar(format, (code - 1) << shift);
    add_with_neighbours(in, low);
    add_with_neighbours(in, low + step / 2);
  }
  return in;
}

class OnEveryTarget : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { set_simd_target(GetParam()); }
  void TearDown() override { set_simd_target(""); }
};

std::vector<std::string> targets() {
  std::vector<std::string> names;
  for (const std::string_view name : simd_targets()) names.emplace_back(name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Simd, OnEveryTarget, ::testing::ValuesIn(targets()),
                         [](const auto& info) { return info.param; });

TEST_P(OnEveryTarget, BoundariesTiesAndNeighbours) {
  EXPECT_EQ(simd_target(), GetParam());
  Mismatches bad;
  std::size_t compared = 0;
  for (const FloatFormat& format : all_formats()) {
    std::vector<double> in = boundary_inputs(format, interesting_codes(format));
    compare(format, default_modes(), in, bad);
    compared += in.size();
  }
  EXPECT_EQ(bad.count, 0u) << bad.first;
  RecordProperty("inputs", std::to_string(compared));
}

TEST_P(OnEveryTarget, EveryOverflowAndSubnormalRule) {
  Mismatches bad;
  for (const FloatFormat& format : all_formats()) {
    std::vector<double> in = special_inputs();
    std::vector<std::uint64_t> codes = interesting_codes(format);
    if (codes.size() > 400) {  // the ends and a sample
      std::vector<std::uint64_t> fewer(codes.begin(), codes.begin() + 100);
      fewer.insert(fewer.end(), codes.end() - 100, codes.end());
      for (std::size_t i = 0; i < 100; ++i) fewer.push_back(codes[random_bits(i) % codes.size()]);
      fewer.push_back(std::uint64_t{1} << format.fraction_bits());
      fewer.push_back((std::uint64_t{1} << format.fraction_bits()) - 1);
      codes = fewer;
    }
    const std::vector<double> more = boundary_inputs(format, codes);
    in.insert(in.end(), more.begin(), more.end());
    compare(format, all_modes(), in, bad);
  }
  EXPECT_EQ(bad.count, 0u) << bad.first;
}

TEST_P(OnEveryTarget, UserGivenFormats) {
  Mismatches bad;
  for (const char* name :
       {"e2m1", "e5m7", "e6m9", "e8m9", "e8m7b100", "e8m7b140", "e8m7b150", "e11m30", "e10m52", "e11m52", "e11m51",
        "e9m22", "e8m23b120", "e4m3f", "e5m7fnuz", "e5m10fn", "e7m16", "e10m40b1000"}) {
    const FloatFormat format = parse_format(name);
    std::vector<double> in = special_inputs();
    for (std::uint64_t i = 0; i < 400; ++i) {
      const std::uint64_t code = random_bits(i) % format.max_code();
      add_with_neighbours(in, decode_scalar(format, code));
      add_with_neighbours(in, decode_scalar(format, code) + format.min_subnormal() / 2);
    }
    compare(format, all_modes(), in, bad);
  }
  EXPECT_EQ(bad.count, 0u) << bad.first;
}

TEST_P(OnEveryTarget, DecodeEveryCodeToBothWidths) {
  for (const FloatFormat& format : all_formats()) {
    SCOPED_TRACE(format.name);
    const auto bytes = static_cast<std::size_t>(format.storage_bytes());
    const std::size_t n = format.bits() <= 16 ? std::size_t{1} << format.bits() : 100'003;
    std::vector<std::uint8_t> codes(n * bytes);
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint64_t code = format.bits() <= 16 ? i : random_bits(i);
      std::memcpy(codes.data() + i * bytes, &code, bytes);
    }
    std::vector<double> wide(n);
    std::vector<float> narrow(n);
    decode(format, codes.data(), std::span(wide));
    decode(format, codes.data(), std::span(narrow));
    const RoundingOracle fp32(kFp32);
    for (std::size_t i = 0; i < n; ++i) {
      const double want = decode_scalar(format, packed_code(codes, i, bytes));
      ASSERT_TRUE(same_bits(wide[i], want)) << i;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(narrow[i]), fp32.encode(want, {})) << i;
    }
  }
}

// Every bulk path has a part for whole vectors and one for the rest.
TEST_P(OnEveryTarget, AnyLengthAndAlignment) {
  for (const FloatFormat& format : {kE4m3fn, kBf16, kTf32, kFp64}) {
    const auto bytes = static_cast<std::size_t>(format.storage_bytes());
    for (std::size_t n = 0; n <= 70; ++n) {
      std::vector<double> in(n + 1);
      for (std::size_t i = 0; i < n; ++i) in[i] = 0.37 * static_cast<double>(i) - 5;
      std::vector<std::uint8_t> out(n * bytes + 2, 0xaa);
      encode(format, {}, std::span<const double>(in.data(), n), out.data() + 1);
      EXPECT_EQ(out.front(), 0xaa);
      EXPECT_EQ(out.back(), 0xaa) << format.name << " wrote past element " << n;
      std::vector<double> back(n + 1, -1);
      decode(format, out.data() + 1, std::span(back.data(), n));
      EXPECT_EQ(back[n], -1);
      for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(back[i], decode_scalar(format, encode_scalar(format, in[i])));
    }
  }
}

TEST_P(OnEveryTarget, LongOutputsThatBypassTheCacheAreTheSame) {
  const std::size_t n = (std::size_t{9} << 20) + 77;
  std::vector<float> in(n);
  for (std::size_t i = 0; i < n; ++i) in[i] = std::bit_cast<float>(static_cast<std::uint32_t>(random_bits(i)));
  std::vector<std::uint16_t> out(n + 64);
  for (const std::size_t offset : {0, 1}) {
    const std::size_t to_line = (64 - reinterpret_cast<std::uintptr_t>(out.data()) % 64) / 2 % 32;
    std::uint16_t* start = out.data() + to_line + offset;
    encode(kFp16, {Rounding::stochastic}, std::span<const float>(in), start);
    std::size_t bad = 0;
    for (std::size_t i = 0; i < n; i += 7)
      bad += start[i] != encode_scalar(kFp16, static_cast<double>(in[i]), {Rounding::stochastic}, i);
    EXPECT_EQ(bad, 0u);
  }
}

// 10^7 patterns over all formats, each in every deterministic rounding, from fp32 and from fp64.
TEST_P(OnEveryTarget, RandomPatterns) {
  constexpr std::size_t kTotal = testing::kSanitized ? 500'000 : 10'000'000;
  const auto formats = all_formats();
  const std::size_t per_format = kTotal / formats.size() + 1;
  const std::size_t workers = std::clamp(std::thread::hardware_concurrency(), 1u, 16u);
  std::vector<Mismatches> bad(formats.size());
  const auto work = [&](std::size_t worker) {
    for (std::size_t f = worker; f < formats.size(); f += workers) {
      for (std::size_t done = 0; done < per_format; done += 8192) {
        std::vector<double> in;
        for (std::size_t i = done; i < std::min(done + 8192, per_format); ++i) {
          const std::uint64_t bits = random_bits(i * formats.size() + f);
          // A third any double, a third any float, a third in and around the format's own range.
          const int span = formats[f].max_exponent() - formats[f].min_exponent() + formats[f].precision + 6;
          const double spread = std::ldexp(
              static_cast<double>(static_cast<std::int64_t>(bits)) * 0x1p-63,
              formats[f].max_exponent() + 2 - static_cast<int>(bits % 1000003 % static_cast<unsigned>(span)));
          in.push_back(i % 3 == 0   ? std::bit_cast<double>(bits)
                       : i % 3 == 1 ? static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits)))
                                    : spread);
        }
        compare(formats[f], default_modes(), in, bad[f]);
      }
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t w = 0; w < workers; ++w) threads.emplace_back(work, w);
  for (std::thread& thread : threads) thread.join();
  for (const Mismatches& m : bad) EXPECT_EQ(m.count, 0u) << m.first;
}

TEST_P(OnEveryTarget, StochasticBulkEqualsScalarAtEveryIndex) {
  for (const FloatFormat& format : all_formats()) {
    SCOPED_TRACE(format.name);
    for (const std::uint64_t seed : {0u, 7u}) {
      const RoundingMode mode{Rounding::stochastic, Overflow::format_default, Subnormals::keep, seed};
      std::vector<double> in = special_inputs();
      for (std::uint64_t i = 0; i < 20'000; ++i) {
        const double x = static_cast<double>(static_cast<std::int64_t>(random_bits(i))) * 0x1p-60;
        in.push_back(i % 2 == 0 ? x : x * format.min_normal());
      }
      std::vector<float> floats;
      for (const double x : in) floats.push_back(static_cast<float>(x));
      std::vector<std::uint64_t> want, want_float;
      for (std::size_t i = 0; i < in.size(); ++i) {
        want.push_back(encode_scalar(format, in[i], mode, i));
        want_float.push_back(encode_scalar(format, static_cast<double>(floats[i]), mode, i));
      }
      Mismatches bad;
      compare_bulk(format, mode, in, want, bad);
      compare_bulk(format, mode, floats, want_float, bad);
      compare_values(format, mode, in, want, bad);
      EXPECT_EQ(bad.count, 0u) << bad.first;
    }
  }
}

TEST(Stochastic, GivesANeighbourAndKeepsNumbersOfTheFormat) {
  for (const FloatFormat& format : all_formats()) {
    if (format == kFp64) continue;
    const RoundingOracle oracle(format);
    const RoundingMode mode{Rounding::stochastic, Overflow::format_default, Subnormals::keep, 3};
    for (std::uint64_t i = 0; i < 20'000; ++i) {
      const double x = static_cast<double>(static_cast<std::int64_t>(random_bits(i))) * 0x1p-64 * format.max_finite();
      const std::uint64_t got = encode_scalar(format, x, mode, i);
      const std::uint64_t down = oracle.encode(x, {Rounding::down});
      const std::uint64_t up = oracle.encode(x, {Rounding::up});
      ASSERT_TRUE(got == down || got == up) << format.name << " " << x;
      const double exact = decode_scalar(format, down);
      ASSERT_EQ(encode_scalar(format, exact, mode, i), down) << format.name << " " << exact;
    }
  }
}

// The number of roundings up among n is binomial(n, f); six standard deviations, so one false alarm in 10^9.
TEST(Stochastic, ProbabilityIsTheDiscardedFraction) {
  const std::size_t n = 200'000;
  for (const FloatFormat& format : {kBf16, kE4m3fn, kE2m1fn}) {
    for (const double fraction : {0x1p-7, 0.25, 0.5, 0.75, 0.9375}) {
      for (const double base : {1.0, format.min_subnormal()}) {
        const double step = base == 1.0 ? 2 * format.unit_roundoff() : format.min_subnormal();
        const std::vector<double> in(n, base + fraction * step);
        std::vector<double> out(n);
        round_values(format, {Rounding::stochastic, Overflow::format_default, Subnormals::keep, 11}, in, out);
        const auto ups = static_cast<double>(std::count(out.begin(), out.end(), base + step));
        const double mean = fraction * static_cast<double>(n);
        EXPECT_NEAR(ups, mean, 6 * std::sqrt(mean * (1 - fraction))) << format.name << " " << base << " " << fraction;
      }
    }
  }
}

TEST(Stochastic, SeedAndUpperIndexBitsMatter) {
  std::size_t seeds = 0, uppers = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const RoundingMode a{Rounding::stochastic, Overflow::format_default, Subnormals::keep, 1};
    const RoundingMode b{Rounding::stochastic, Overflow::format_default, Subnormals::keep, 2};
    seeds += encode_scalar(kBf16, 1 + 0x1p-8, a, i) != encode_scalar(kBf16, 1 + 0x1p-8, b, i);
    uppers +=
        encode_scalar(kBf16, 1 + 0x1p-8, a, i) != encode_scalar(kBf16, 1 + 0x1p-8, a, i + (std::uint64_t{1} << 32));
  }
  EXPECT_GT(seeds, 400u);
  EXPECT_GT(uppers, 400u);
}

#ifdef __FLT16_MAX__
// The compiler's own conversion. NaN is compared as NaN: it keeps the payload, we do not.
TEST(CompilerFloat16, AgreesOnEveryBoundaryFromBothWidths) {
  const std::vector<double> in = boundary_inputs(kFp16, interesting_codes(kFp16));
  std::size_t bad = 0;
  for (const double x : in) {
    const auto half = static_cast<_Float16>(static_cast<float>(x));
    bad += std::bit_cast<std::uint16_t>(half) != encode_scalar(kFp16, static_cast<double>(static_cast<float>(x)));
    bad += std::bit_cast<std::uint16_t>(static_cast<_Float16>(x)) != encode_scalar(kFp16, x);
  }
  for (std::uint32_t code = 0; code < 65536; ++code) {
    const auto half = std::bit_cast<_Float16>(static_cast<std::uint16_t>(code));
    const double got = decode_scalar(kFp16, code);
    bad += std::isnan(got) ? !std::isnan(static_cast<double>(half)) : got != static_cast<double>(half);
  }
  EXPECT_EQ(bad, 0u);
}
#endif

TEST(CompilerFloat, AgreesOnDoubleToFloat) {
  std::size_t bad = 0;
  for (std::uint64_t i = 0; i < 1'000'000; ++i) {
    const double x = std::bit_cast<double>((random_bits(i) >> 6) | (0x3700000000000000u));
    bad += std::bit_cast<std::uint32_t>(static_cast<float>(x)) != encode_scalar(kFp32, x);
  }
  EXPECT_EQ(bad, 0u);
}

TEST(Environment, RoundingDirectionAndFlushFlagsChangeNothing) {
  std::vector<double> in = special_inputs();
  for (std::uint64_t i = 0; i < 5000; ++i) in.push_back(std::bit_cast<double>(random_bits(i)));
  for (std::uint64_t i = 0; i < 5000; ++i)
    in.push_back(std::ldexp(1.0 + static_cast<double>(i) * 0x1p-13, -150 + static_cast<int>(i % 30)));
  for (std::uint64_t i = 0; i < 5000; ++i)
    in.push_back(std::ldexp(1.0 + static_cast<double>(i) * 0x1p-13, -30 + static_cast<int>(i % 50)));
  std::vector<float> floats;
  for (const double x : in) floats.push_back(static_cast<float>(x));
  for (const FloatFormat& format : all_formats()) {
    const auto results = [&] {
      const auto bytes = static_cast<std::size_t>(format.storage_bytes());
      std::vector<std::uint8_t> out(in.size() * (2 * bytes + 20));
      encode(format, {}, std::span<const double>(in), out.data());
      encode(format, {}, std::span<const float>(floats), out.data() + in.size() * bytes);
      std::vector<double> wide(in.size()), values(in.size());
      std::vector<float> narrow(in.size());
      decode(format, out.data(), std::span(wide));
      decode(format, out.data(), std::span(narrow));
      round_values(format, {}, in, values);
      std::uint8_t* rest = out.data() + 2 * in.size() * bytes;
      std::memcpy(rest, wide.data(), in.size() * 8);
      std::memcpy(rest + in.size() * 8, values.data(), in.size() * 8);
      std::memcpy(rest + in.size() * 16, narrow.data(), in.size() * 4);
      return out;
    };
    const auto want = results();
    for (const int direction : {FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO}) {
      ASSERT_EQ(std::fesetround(direction), 0);
      const auto got = results();
      const int left = std::fegetround();
      std::fesetround(FE_TONEAREST);
      EXPECT_EQ(left, direction) << "the caller's mode must be left alone";
      EXPECT_TRUE(got == want) << format.name << ", direction " << direction;
    }
#if defined(__SSE__)
    const unsigned saved = _mm_getcsr();
    _mm_setcsr(saved | 0x8040u);  // flush to zero, denormals are zero
    const auto got = results();
    const unsigned left = _mm_getcsr();
    _mm_setcsr(saved);
    EXPECT_EQ(left & 0x8040u, 0x8040u);
    EXPECT_TRUE(got == want) << format.name << ", flush flags";
#endif
  }
}

TEST(RoundValues, InPlaceAndSizeCheck) {
  std::vector<double> x = {1.0000001, -2.7, 1e300};
  round_values(kBf16, {}, x, x);
  EXPECT_EQ(x, (std::vector<double>{1.0, -2.703125, HUGE_VAL}));
  std::vector<double> shorter(2);
  EXPECT_THROW(round_values(kBf16, {}, x, shorter), Error);
}

TEST(SimdTarget, UnknownNameIsRefused) { EXPECT_THROW(set_simd_target("no such target"), Error); }

// The comparison above must be able to fail: an encoder that rounds twice (fp64 to fp32 to bf16) is caught by it.
TEST(Oracle, CatchesDoubleRounding) {
  const double x = 1 + 0x1p-8 + 0x1p-40;
  const std::uint64_t twice = encode_scalar(kBf16, static_cast<double>(static_cast<float>(x)));
  EXPECT_NE(twice, RoundingOracle(kBf16).encode(x, {}));
  EXPECT_EQ(encode_scalar(kBf16, x), RoundingOracle(kBf16).encode(x, {}));
}

}  // namespace
}  // namespace ampcheck
