// SPDX-License-Identifier: Apache-2.0
#include "src/float_format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "src/error.h"
#include "src/rounding.h"
#include "tests/support/rounding_oracle.h"

namespace ampcheck {
namespace {

struct Fact {
  FloatFormat format;
  int bits, max_exponent, min_exponent;
  double max_finite, min_normal, min_subnormal, unit_roundoff;
  bool infinity, nan, negative_zero;
};

// From the published tables: IEEE 754-2019 table 3.5, OCP FP8 and MX specifications, ml_dtypes' README.
const Fact kFacts[] = {
    {kFp64, 64, 1023, -1022, std::numeric_limits<double>::max(), 0x1p-1022, 0x1p-1074, 0x1p-53, true, true, true},
    {kFp32, 32, 127, -126, 0x1.fffffep127, 0x1p-126, 0x1p-149, 0x1p-24, true, true, true},
    {kTf32, 19, 127, -126, 0x1.ffcp127, 0x1p-126, 0x1p-136, 0x1p-11, true, true, true},
    {kFp16, 16, 15, -14, 65504, 0x1p-14, 0x1p-24, 0x1p-11, true, true, true},
    {kBf16, 16, 127, -126, 0x1.fep127, 0x1p-126, 0x1p-133, 0x1p-8, true, true, true},
    {kE4m3fn, 8, 8, -6, 448, 0x1p-6, 0x1p-9, 0x1p-4, false, true, true},
    {kE5m2, 8, 15, -14, 57344, 0x1p-14, 0x1p-16, 0x1p-3, true, true, true},
    {kE4m3fnuz, 8, 7, -7, 240, 0x1p-7, 0x1p-10, 0x1p-4, false, true, false},
    {kE5m2fnuz, 8, 15, -15, 57344, 0x1p-15, 0x1p-17, 0x1p-3, false, true, false},
    {kE4m3b11fnuz, 8, 4, -10, 30, 0x1p-10, 0x1p-13, 0x1p-4, false, true, false},
    {kE4m3, 8, 7, -6, 240, 0x1p-6, 0x1p-9, 0x1p-4, true, true, true},
    {kE3m4, 8, 3, -2, 15.5, 0x1p-2, 0x1p-6, 0x1p-5, true, true, true},
    {kE8m0fnu, 8, 127, -127, 0x1p127, 0x1p-127, 0x1p-127, 0x1p-1, false, true, false},
    {kE2m3fn, 6, 2, 0, 7.5, 1, 0x1p-3, 0x1p-4, false, false, true},
    {kE3m2fn, 6, 4, -2, 28, 0x1p-2, 0x1p-4, 0x1p-3, false, false, true},
    {kE2m1fn, 4, 2, 0, 6, 1, 0.5, 0x1p-2, false, false, true},
};

static_assert(kFp16.max_finite() == 65504.0 && kE4m3fn.max_finite() == 448.0 && kFp64.min_subnormal() == 0x1p-1074);

TEST(FloatFormat, DerivedFactsMatchThePublishedTables) {
  ASSERT_EQ(std::size(kFacts), all_formats().size());
  for (const Fact& fact : kFacts) {
    const FloatFormat& f = fact.format;
    SCOPED_TRACE(f.name);
    EXPECT_EQ(f.bits(), fact.bits);
    EXPECT_EQ(f.max_exponent(), fact.max_exponent);
    EXPECT_EQ(f.min_exponent(), fact.min_exponent);
    EXPECT_EQ(f.max_finite(), fact.max_finite);
    EXPECT_EQ(f.min_normal(), fact.min_normal);
    EXPECT_EQ(f.min_subnormal(), fact.min_subnormal);
    EXPECT_EQ(f.unit_roundoff(), fact.unit_roundoff);
    EXPECT_EQ(f.has_infinity(), fact.infinity);
    EXPECT_EQ(f.has_nan(), fact.nan);
    EXPECT_EQ(f.has_negative_zero(), fact.negative_zero);
    EXPECT_EQ(f.has_subnormals(), !(f == kE8m0fnu));
    EXPECT_EQ(f.is_signed(), !(f == kE8m0fnu));
    ASSERT_NE(find_format(f.name), nullptr);
    EXPECT_EQ(*find_format(f.name), f);
  }
}

TEST(FloatFormat, StorageSizes) {
  EXPECT_EQ(kFp64.storage_bytes(), 8);
  EXPECT_EQ(kFp32.storage_bytes(), 4);
  EXPECT_EQ(kTf32.storage_bytes(), 4);
  EXPECT_EQ(kBf16.storage_bytes(), 2);
  EXPECT_EQ(kE2m1fn.storage_bytes(), 1);
  EXPECT_EQ(parse_format("e8m9").storage_bytes(), 4);
  EXPECT_EQ(parse_format("e11m30").storage_bytes(), 8);
}

TEST(FloatFormat, EveryCodeOfTheSmallAndSixteenBitFormatsDecodesAsDefined) {
  for (const FloatFormat& format : all_formats()) {
    if (format.bits() > 16) continue;
    SCOPED_TRACE(format.name);
    const tests::RoundingOracle oracle(format);
    const std::uint64_t codes = std::uint64_t{1} << format.bits();
    for (std::uint64_t code = 0; code < codes; ++code) {
      const double want = oracle.decode(code);
      const double got = decode_scalar(format, code);
      if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(got)) << code;
      } else {
        ASSERT_EQ(got, want) << code;
        ASSERT_EQ(std::signbit(got), std::signbit(want)) << code;
        ASSERT_EQ(encode_scalar(format, got), code) << "a number must keep its code";
      }
    }
  }
}

TEST(FloatFormat, ParsesUserFormats) {
  EXPECT_EQ(parse_format("e5m10"), kFp16);
  EXPECT_EQ(parse_format("e8m7"), kBf16);
  EXPECT_EQ(parse_format("e4m3fn"), kE4m3fn);
  EXPECT_EQ(parse_format("e4m3b11fnuz"), kE4m3b11fnuz);
  EXPECT_EQ(parse_format("e2m1f").specials, Specials::none);
  const FloatFormat wide = parse_format("e6m9");
  EXPECT_EQ(wide.bits(), 16);
  EXPECT_EQ(wide.bias, 31);
  EXPECT_EQ(wide.name, "e6m9");
  EXPECT_EQ(parse_format("e5m7fnuz").bias, 16);
  EXPECT_EQ(parse_format("e5m7b20fn").max_exponent(), 11);
}

TEST(FloatFormat, RejectsWhatItCannotHold) {
  for (const char* text : {"", "fp17", "e5", "em7", "e5m", "e1m3", "e12m3", "e5m0", "e5m53", "e5m7x", "e5m7 ", "e5m7b",
                           "e11m52fn", "e11m10b0", "e8m7b2000", "e8m7b-2000", "e5m99999999999"}) {
    try {
      parse_format(text);
      ADD_FAILURE() << "accepted '" << text << "'";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(std::string("got '") + text + "'"), std::string::npos) << error.what();
    }
  }
  EXPECT_EQ(find_format("fp17"), nullptr);
}

}  // namespace
}  // namespace ampcheck
