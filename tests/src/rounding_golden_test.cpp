// SPDX-License-Identifier: Apache-2.0
// Our conversions against what torch, numpy and ml_dtypes really gave (torch_goldens/formats.json). Where they differ
// from our default the rule that explains it is written here, and the bits must follow that rule exactly.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "src/rounding.h"
#include "tests/support/shared_data.h"

namespace ampcheck {
namespace {

using nlohmann::json;

std::uint64_t hex(const json& text) { return std::stoull(text.get<std::string>(), nullptr, 16); }
float float_of(const json& text) { return std::bit_cast<float>(static_cast<std::uint32_t>(hex(text))); }
double number(const json& value) { return std::strtod(value.at("hex").get<std::string>().c_str(), nullptr); }

/// "float8_e4m3fn" is our e4m3fn, "float16" our fp16.
const FloatFormat* format_of(const std::string& name) {
  if (name == "float16") return &kFp16;
  if (name == "bfloat16") return &kBf16;
  const auto underscore = name.find('_');
  return underscore == std::string::npos ? nullptr : find_format(name.substr(underscore + 1));
}

class FormatGoldens : public testing::Test {
 protected:
  void SetUp() override {
    const auto file = tests::shared_file("torch_goldens/formats.json");
    if (!file)
      GTEST_SKIP()
          << "torch_goldens/formats.json is not on this machine (AMPCHECK_SHARED, or shared/ beside the source)";
    std::ifstream stream(*file);
    golden_ = json::parse(stream);
    ASSERT_EQ(golden_.at("formats").size(), 13u);
  }
  json golden_;
};

bool is_nan_code(const FloatFormat& format, std::uint64_t code) { return std::isnan(decode_scalar(format, code)); }

/// NaN as NaN: sign and payload differ between torch's own loops. Everything else bit by bit.
bool same_code(const FloatFormat& format, std::uint64_t got, std::uint64_t want) {
  return got == want || (is_nan_code(format, got) && is_nan_code(format, want));
}

/// torch and ml_dtypes round up every fp32 subnormal between 2^-127 and 2^-126, those nearer to 2^-127 too; we round to
/// nearest there as everywhere.
bool is_e8m0_subnormal_quirk(const FloatFormat& format, float x) {
  return format.specials == Specials::scale && std::fabs(x) > 0x1p-127f && std::fabs(x) < 0x1p-126f;
}

/// What numpy or ml_dtypes stores for x.
std::uint64_t peer_code(const FloatFormat& format, float x) {
  // ml_dtypes: a format without NaN gets a zero of the other sign for NaN; we store +max_finite, as CUDA does.
  if (format.specials == Specials::none && std::isnan(x)) return std::signbit(x) ? 0 : format.sign_code();
  // ml_dtypes: e8m0 of zero and of negative numbers is NaN; CUDA, torch and we round the magnitude.
  if (format.specials == Specials::scale && (std::signbit(x) || x == 0)) return format.nan_code();
  if (is_e8m0_subnormal_quirk(format, x)) return 1;
  return encode_scalar(format, static_cast<double>(x));
}

/// What torch stores for x.
std::uint64_t torch_code(const FloatFormat& format, float x) {
  if (is_e8m0_subnormal_quirk(format, x)) return 1;
  // torch's e4m3fn saturates, from infinity too; NaN stays NaN.
  const Overflow overflow = format == kE4m3fn ? Overflow::saturate : Overflow::format_default;
  return encode_scalar(format, static_cast<double>(x), {Rounding::nearest_even, overflow});
}

TEST_F(FormatGoldens, EncodingFromFp32) {
  std::size_t compared = 0;
  for (const json& section : golden_["formats"]) {
    const FloatFormat* format = format_of(section["format"]);
    ASSERT_NE(format, nullptr) << section["format"];
    SCOPED_TRACE(format->name);
    const json& inputs = section["fp32"];
    ASSERT_EQ(inputs.size(), section["count"].get<std::size_t>());
    std::size_t peer_bad = 0, torch_bad = 0;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const float x = float_of(inputs[i]);
      peer_bad += !same_code(*format, peer_code(*format, x), hex(section["ml_dtypes"][i]));
      ++compared;
      if (!section.contains("torch")) continue;
      torch_bad += !same_code(*format, torch_code(*format, x), hex(section["torch"][i]));
      ++compared;
    }
    EXPECT_EQ(peer_bad, 0u) << section["peer"];
    EXPECT_EQ(torch_bad, 0u);
  }
  EXPECT_GT(compared, 70'000u);
}

TEST_F(FormatGoldens, DecodingEveryCode) {
  std::size_t compared = 0;
  for (const json& section : golden_["formats"]) {
    if (!section.contains("decode_fp32")) continue;
    const FloatFormat* format = format_of(section["format"]);
    ASSERT_NE(format, nullptr);
    for (std::size_t code = 0; code < section["decode_fp32"].size(); ++code, ++compared) {
      const auto want = static_cast<double>(float_of(section["decode_fp32"][code]));
      const double got = decode_scalar(*format, code);
      EXPECT_TRUE(std::isnan(want) ? std::isnan(got)
                                   : std::bit_cast<std::uint64_t>(got) == std::bit_cast<std::uint64_t>(want))
          << format->name << " code " << code << ": got " << got << ", want " << want;
    }
  }
  EXPECT_GT(compared, 2000u);
}

TEST_F(FormatGoldens, FormatFacts) {
  std::size_t compared = 0;
  for (const auto& [name, facts] : golden_["finfo"].items()) {
    const FloatFormat* format = name == "float32" ? &kFp32 : name == "float64" ? &kFp64 : format_of(name);
    ASSERT_NE(format, nullptr) << name;
    SCOPED_TRACE(name);
    for (const auto& [source, fact] : facts.items()) {
      EXPECT_EQ(number(fact.at("max")), format->max_finite());
      // eps is the distance from 1 to the next number: twice the unit roundoff.
      EXPECT_EQ(number(fact.at("eps")), 2 * format->unit_roundoff());
      EXPECT_EQ(number(fact.at("smallest_normal")), format->min_normal());
      if (fact.contains("smallest_subnormal")) {
        EXPECT_EQ(number(fact.at("smallest_subnormal")), format->min_subnormal());
      }
      ++compared;
    }
  }
  EXPECT_GT(compared, 15u);
}

TEST_F(FormatGoldens, FromFp64NumpyRoundsOnceAndTorchTwice) {
  std::size_t twice_differs = 0;
  for (const json& row : golden_["fp64_to_16bit"]) {
    const double x = number(row["fp64"]);
    SCOPED_TRACE(row["fp64"]["hex"].get<std::string>());
    const auto through_fp32 =
        static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(encode_scalar(kFp32, x))));
    EXPECT_EQ(encode_scalar(kFp32, x), hex(row["torch_float32"]));
    EXPECT_EQ(encode_scalar(kFp16, x), hex(row["numpy_float16"]));
    EXPECT_EQ(encode_scalar(kFp16, through_fp32), hex(row["torch_float16"]));
    EXPECT_EQ(encode_scalar(kBf16, through_fp32), hex(row["torch_bfloat16"]));
    // ml_dtypes converts double to bfloat16 through float, as torch does.
    EXPECT_EQ(encode_scalar(kBf16, through_fp32), hex(row["ml_dtypes_bfloat16"]));
    twice_differs += encode_scalar(kFp16, x) != encode_scalar(kFp16, through_fp32);
  }
  EXPECT_GT(twice_differs, 0u) << "the golden no longer shows double rounding";
}

}  // namespace
}  // namespace ampcheck
